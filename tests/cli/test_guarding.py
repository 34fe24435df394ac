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
    assert "ABSTAIN refund" in gate("approvals", "list").out

    said = gate("approvals", "approve", waiting["id"], "--by", "Eve")

    assert (said.code, said.err) == (0, f"request {waiting['id']} is approved\n")
    assert "no request waits" in gate("approvals", "list").err
    assert "Eve" in gate("approvals", "list", "--all").out
    again = gate("approvals", "reject", waiting["id"], "--by", "Bob", "--json")
    assert (again.code, again.error["type"]) == (1, "Conflict")
    gone = gate("approvals", "reject", "none", "--by", "Bob", "--json")
    assert gone.error["type"] == "ItemNotFound"


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
