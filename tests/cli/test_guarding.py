"""The gate on the command line: decide, explain, replay, lint, init, and a person's word."""

import json
import sqlite3

import pytest
import yaml

import amv as package
from amv.guard.policy import parse
from tests.cli.conftest import Cli

POLICY = """
version: 1
verifiers:
  desk: {cost: 0.5}
  carrier: {url: "http://127.0.0.1:9/{order_id}", cost: 0.5}
actions:
  cancel:
    loss: {wrong: 10, abstain: 5}
    rests_on:
      status: {claim: "order/{order_id}/status", require: pending, verify_with: [desk]}
  refund:
    loss: {wrong: 100, abstain: 1}
    approval: true
    rests_on:
      status: {claim: "order/{order_id}/status", require: delivered, verify_with: [desk]}
  void:
    loss: {wrong: 100, abstain: 1}
    approval: true
    rests_on:
      status: {claim: "order/{order_id}/status", require: delivered, verify_with: [carrier]}
"""
ARGUMENTS = ["--arguments", '{"order_id": "1"}', "-n", "a"]


@pytest.fixture
def gate(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """An `amv` with a policy and a memory of an order that is pending."""
    (amv.folder / "p.yaml").write_text(POLICY, "utf-8")
    monkeypatch.setenv("AMV_POLICY", "p.yaml")
    claim = ["--claim", "order/1", "status", "pending"]
    assert amv("add", "pending", "-n", "a", *claim, "--trust", "0.9").code == 0
    return amv


def test_an_action_is_decided_about_and_explained(gate: Cli) -> None:
    run = gate("guard", "decide", "cancel", *ARGUMENTS)
    listed = gate("guard", "decide", "cancel", *ARGUMENTS, "--json").json

    assert (run.code, run.out) == (0, "PROCEED\n")
    assert "executing is expected to lose" in run.err
    assert "permit " in run.err
    assert listed["verdict"] == "PROCEED"
    told = gate("guard", "explain", listed["id"])
    assert "status: order/1/status is 'pending'" in told.out
    assert "then APPROVED" in told.out


def test_a_person_is_asked_and_answers(gate: Cli) -> None:
    run = gate("guard", "decide", "refund", *ARGUMENTS)

    assert run.out == "ABSTAIN\n"
    assert "amv approvals approve" in run.err
    (waiting,) = gate("approvals", "list", "--json").lines
    assert (waiting["tool"], waiting["state"]) == ("refund", "pending")
    assert (waiting["arguments"], waiting["namespace"]) == ({"order_id": "1"}, ["a"])
    assert "refund(order_id='1')" in gate("approvals", "list").out

    said = gate("approvals", "approve", waiting["id"], "--by", "Eve")

    assert (said.code, said.err) == (0, f"request {waiting['id']} is approved\n")
    assert "no request waits" in gate("approvals", "list").err
    assert "Eve" in gate("approvals", "list", "--all").out
    again = gate("approvals", "reject", waiting["id"], "--by", "Bob", "--json")
    assert (again.code, again.error["type"]) == (1, "Conflict")
    gone = gate("approvals", "reject", "none", "--by", "Bob", "--json")
    assert gone.error["type"] == "ItemNotFound"


def test_an_approval_lets_the_same_action_go_ahead(gate: Cli) -> None:
    gate("guard", "decide", "void", *ARGUMENTS)
    (waiting,) = gate("approvals", "list", "--json").lines
    allowed = ["guard", "decide", "void", *ARGUMENTS, "--approval", waiting["id"], "--json"]
    assert gate(*allowed).json["code"] == "not_approved"

    gate("approvals", "approve", waiting["id"], "--by", "Eve")

    told = gate(*allowed).json
    assert (told["verdict"], told["reason"]) == ("PROCEED", "approved by Eve")


def test_an_approval_does_not_spare_a_check_that_is_made_elsewhere(gate: Cli) -> None:
    """No function is registered here, and that is no reason to go ahead unchecked."""
    gate("guard", "decide", "refund", *ARGUMENTS)
    (waiting,) = gate("approvals", "list", "--json").lines
    gate("approvals", "approve", waiting["id"], "--by", "Eve")

    told = gate("guard", "decide", "refund", *ARGUMENTS, "--approval", waiting["id"], "--json").json

    assert (told["verdict"], told["permit"], told["check"]["verifier"]) == ("VERIFY", None, "desk")


def test_alternatives_are_ranked_by_what_they_are_expected_to_lose(gate: Cli) -> None:
    order = {"order_id": "1"}
    given = [{"tool": tool, "arguments": order} for tool in ("refund", "cancel")]
    asked = ["guard", "rank", "-n", "a", "--alternatives", json.dumps([*given, {"tool": "other"}])]

    listed, run = gate(*asked, "--json").lines, gate(*asked)

    assert [one["tool"] for one in listed] == ["cancel", "refund", "other"]
    assert listed[0]["expected_loss"] < listed[1]["expected_loss"]
    assert [line.split()[0] for line in run.out.splitlines()[1:]] == [
        one["verdict"] for one in listed
    ]
    assert gate("guard", "decisions").err == "no decision\n"
    empty = gate("guard", "rank", "-n", "a", "--alternatives", "[]")
    assert empty.code == 0


@pytest.mark.parametrize(
    "alternatives",
    [
        *("{", "{}", "5", '["cancel"]', '[{"arguments": {}}]', '[{"tool": 5}]'),
        *('[{"tool": "x", "namespace": ["b"]}]', '[{"tool": "x", "arguments": []}]'),
    ],
)
def test_what_is_no_alternative_is_told(gate: Cli, alternatives: str) -> None:
    run = gate("guard", "rank", "-n", "a", "--alternatives", alternatives)

    assert run.code in (1, 2)
    assert run.out == ""


def test_decisions_are_listed_by_namespace_session_and_verdict(gate: Cli) -> None:
    def ids(*filters: str) -> list[str]:
        return [one["id"] for one in gate("guard", "decisions", *filters, "--json").lines]

    def decided(*arguments: str) -> str:
        return str(gate("guard", "decide", *arguments, "--json").json["id"])

    one = decided("cancel", *ARGUMENTS, "--session", "s1")
    two = decided("refund", *ARGUMENTS, "--session", "s2")
    other = decided("other", "-n", "a/b")

    assert ids() == [one, two, other]
    assert ids("-n", "a/b") == [other]
    assert ids("-n", "b") == []
    assert ids("--session", "s1") == [one]
    assert ids("--verdict", "abstain") == [two, other]
    assert ids("--session", "s1", "--verdict", "ABSTAIN") == []
    assert ids("--limit", "2") == [two, other]
    table = gate("guard", "decisions")
    assert [line.split()[:2] for line in table.out.splitlines()[1:]] == [
        [one, "PROCEED"],
        [two, "ABSTAIN"],
        [other, "ABSTAIN"],
    ]
    assert gate("guard", "decisions", "--verdict", "maybe", "--json").error["type"] == (
        "InvalidInput"
    )


def test_every_decision_is_read_when_there_are_more_than_a_page(
    gate: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amv.cli.guarding.PAGE", 2)
    made = [gate("guard", "decide", "other", "-n", "a", "--json").json["id"] for _ in range(5)]

    assert [one["id"] for one in gate("guard", "decisions", "--json").lines] == made


def begun(*, is_dispatched: bool = True) -> str:
    """Make a call of which nobody will tell what became; return its decision."""
    settings = package.Settings(upkeep_interval_s=None)
    action = package.Action("cancel", {"order_id": "1"}, namespace=("a",))
    with package.Guard.open("amv.db", policy="p.yaml", settings=settings) as guard:
        decision = guard.decide(action)
        assert decision.permit is not None
        key = guard.redeem(decision.permit.token, action)
        if is_dispatched:
            guard.dispatched(key)
    return decision.id


def test_what_became_of_a_call_is_asked_for_and_settled(gate: Cli) -> None:
    assert "it is known what became of it" in gate("guard", "reconcile").err
    decision_id = begun()

    (waiting,) = gate("guard", "reconcile", "--json").lines
    assert waiting["decision_id"] == decision_id
    assert (waiting["state"], waiting["tool"], waiting["namespace"]) == (
        "DISPATCHED",
        "cancel",
        ["a"],
    )
    assert gate("guard", "reconcile", "--older-than", "3600", "--json").json["state"] == (
        "DISPATCHED"
    )
    marked = gate("guard", "reconcile", "--older-than", "0")
    assert marked.out.splitlines()[1].split()[:2] == [decision_id, "UNKNOWN"]
    assert gate("guard", "decide", "cancel", *ARGUMENTS, "--json").json["code"] == "granted_before"

    done = gate("guard", "reconcile", decision_id, "failed")

    assert (done.code, done.out) == (0, "")
    assert gate("guard", "decide", "cancel", *ARGUMENTS).out == "PROCEED\n"
    again = gate("guard", "reconcile", decision_id, "SUCCEEDED", "--json")
    assert again.code == 1


def test_a_call_that_was_only_reserved_is_marked_and_settled_at_once(gate: Cli) -> None:
    """After a crash nobody knows whether it was made; only the destination does."""
    settle = ["guard", "reconcile", begun(is_dispatched=False), "SUCCEEDED"]

    assert gate(*settle, "--json").error["type"] == "Conflict"
    assert gate(*settle[:3], "MAYBE", "--older-than", "0").code == 2
    assert gate("guard", "reconcile", "--json").json["state"] == "RESERVED"
    assert gate(*settle, "--older-than", "0", "--json").lines == []
    assert gate("guard", "decide", "cancel", *ARGUMENTS, "--json").json["code"] == "granted_before"


@pytest.mark.parametrize("outcome", [[], ["UNKNOWN"], ["MAYBE"]])
def test_a_call_is_settled_as_one_of_two(gate: Cli, outcome: list[str]) -> None:
    decision_id = begun()

    run = gate("guard", "reconcile", decision_id, *outcome)

    assert run.code == 2
    assert "SUCCEEDED or FAILED" in run.err
    assert gate("guard", "reconcile", "--json").json["state"] == "DISPATCHED"
    assert gate("guard", "reconcile", "none", "FAILED", "--json").error["type"] == "ItemNotFound"


def test_a_record_that_was_changed_is_found(gate: Cli) -> None:
    gate("guard", "decide", "cancel", *ARGUMENTS)
    whole = gate("guard", "replay")
    with sqlite3.connect(gate.folder / "amv.db") as file:
        changed_text = "replace(CAST(body AS TEXT), '0', '1')"
        file.execute(f"UPDATE guard_record SET body = CAST({changed_text} AS BLOB)")
    file.close()
    changed = gate("guard", "replay")

    assert (whole.code, whole.out) == (0, "")
    assert "1 decisions" in whole.err
    assert changed.code == 1
    assert changed.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["guard", "decide", "cancel", "-n", "a", "--arguments", "{"], "--arguments"),
        (["guard", "decide", "cancel", "-n", "a", "--arguments", "[1]"], "--arguments"),
        (["guard", "decide", " ", "-n", "a"], "tool"),
        (["guard", "decide", "cancel", *ARGUMENTS, "--policy", "none.yaml"], "none.yaml"),
        (["guard", "explain", "none"], "no decision"),
        (["guard", "init", "none.json"], "none.json"),
        (["guard", "init", "p.yaml"], "p.yaml"),
    ],
)
def test_bad_input_is_told(gate: Cli, arguments: list[str], says: str) -> None:
    run = gate(*arguments)

    assert run.code in (1, 2)
    assert run.out == ""
    assert says in run.err


def test_without_a_policy_that_is_said(gate: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMV_POLICY")

    assert "--policy or AMV_POLICY" in gate("guard", "decide", "cancel", *ARGUMENTS).err
    assert "--policy or AMV_POLICY" in gate("guard", "lint").err


def test_an_action_without_a_rule_abstains(gate: Cli) -> None:
    told = gate("guard", "decide", "other", "-n", "a", "--json").json

    assert (told["verdict"], told["code"]) == ("ABSTAIN", "unknown_tool")


def test_lint_says_what_can_not_be_meant(gate: Cli) -> None:
    text = POLICY.replace("{order_id}/status", "{order_id}/stauts", 1)
    (gate.folder / "p.yaml").write_text(text, "utf-8")

    run = gate("guard", "lint")
    listed = gate("guard", "lint", "--json")

    assert run.code == listed.code == 1
    assert "no remembered claim has the attribute 'stauts'" in run.out
    assert listed.json["findings"] == run.out.splitlines()


def test_lint_takes_its_file_as_it_is_or_by_an_option_and_not_twice(
    gate: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMV_POLICY")

    assert gate("guard", "lint", "p.yaml").code == gate("guard", "lint", "--policy", "p.yaml").code
    assert gate("guard", "lint", "p.yaml").code == 0
    twice = gate("guard", "lint", "p.yaml", "--policy", "q.yaml", "--json")
    assert (twice.code, twice.error["type"]) == (2, "UsageError")
    assert "once" in twice.error["message"]


def test_lint_looks_nothing_up_in_a_memory_without_claims(gate: Cli) -> None:
    """Whoever writes the policy first would else be told that each claim is a slip."""
    for (item,) in [gate("list", "-n", "a", "--json").lines]:
        gate("forget", item["id"], "-n", "a")

    run = gate("guard", "lint")

    assert (run.code, run.out) == (0, "")
    assert "holds no claim yet" in run.err


def test_lint_knows_the_arguments_of_tools(gate: Cli) -> None:
    tools = [{"name": "cancel", "inputSchema": {"properties": {"number": {}}}}]
    (gate.folder / "tools.json").write_text(json.dumps(tools), "utf-8")

    run = gate("guard", "lint", "p.yaml", "--tools", "tools.json")

    assert run.code == 1
    assert run.out == (
        "actions.cancel.rests_on.status.claim: 'order_id' is no argument of the tool; "
        "there is number\n"
    )
    assert gate("guard", "lint", "--tools", "p.yaml", "--json").error["type"] == "ConfigError"


def test_a_key_that_stands_twice_is_told_with_its_line(gate: Cli) -> None:
    (gate.folder / "p.yaml").write_text(POLICY + "version: 1\n", "utf-8")

    run = gate("guard", "lint")

    assert run.code == 1
    assert "the key 'version' stands here twice" in run.err
    assert "line" in run.err


def test_lint_needs_no_memory(gate: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMV_DB", "elsewhere.db")

    run = gate("guard", "lint")

    assert (run.code, run.out) == (0, "")
    assert "claims are not looked up" in run.err
    assert not (gate.folder / "elsewhere.db").exists()


def test_a_draft_is_a_policy_that_trusts_nothing(amv: Cli) -> None:
    tools = [
        {"name": "cancel", "inputSchema": {"properties": {"order_id": {}, "reason": {}}}},
        {"name": "look", "annotations": {"readOnlyHint": True, "destructiveHint": False}},
    ]
    for held in (tools, {"tools": tools}):
        (amv.folder / "tools.json").write_text(json.dumps(held), "utf-8")
        drafted = parse(yaml.safe_load(amv("guard", "init", "tools.json").out))

        assert drafted.mode == "shadow"
        assert {rule.effect for rule in drafted.actions.values()} == {"commit"}
        assert parse(amv("guard", "init", "tools.json", "--json").json) == drafted


def test_a_draft_of_no_tools_is_an_error(amv: Cli) -> None:
    for text in ("{}", "5", '[{"title": "x"}]'):
        (amv.folder / "tools.json").write_text(text, "utf-8")

        assert amv("guard", "init", "tools.json", "--json").error["type"] == "InvalidInput"


def test_the_package_tells_the_same(gate: Cli) -> None:
    listed = gate("guard", "decide", "cancel", *ARGUMENTS, "--json").json
    settings = package.Settings(upkeep_interval_s=None)
    with package.Guard.open("amv.db", policy="p.yaml", settings=settings) as guard:
        assert guard.get(listed["id"]).verdict == listed["verdict"]
