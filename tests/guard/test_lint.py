"""Linting: what is valid and yet surely not meant; and drafting."""

from typing import Any

import pytest

from amv.errors import InvalidInput
from amv.guard import baselines
from amv.guard.actions import Action
from amv.guard.bind import unbound_arguments
from amv.guard.judge import PLANNERS
from amv.guard.lint import arguments_of, draft, lint
from amv.guard.policy import Policy, parse


def policy(rule: dict[str, Any], **verifiers: dict[str, Any]) -> Policy:
    return parse({"version": 1, "verifiers": verifiers, "actions": {"cancel": rule}})


LOSS = {"wrong": 120.0, "abstain": 5.0}
STATUS = {"claim": "order/{order_id}/status", "require": "pending", "verify_with": ["look"]}
GOOD = {"loss": LOSS, "rests_on": {"status": STATUS}}
CHEAP = {"cost": 0.02}


def test_a_good_policy_has_nothing_to_be_said_about() -> None:
    assert lint(policy(GOOD, look=CHEAP)) == []
    assert lint(policy(GOOD, look=CHEAP), known=lambda attribute: attribute == "status") == []


def test_a_verifier_that_settles_nothing_is_told() -> None:
    assert lint(policy(GOOD, look=CHEAP, idle=CHEAP)) == [
        "verifiers.idle: no premise names it, so it is never asked"
    ]


def test_leave_to_make_a_check_that_anyone_may_make_is_told() -> None:
    """Whoever wrote that thinks that without it the gate alone would."""
    by_url = {**CHEAP, "url": "http://shop.example/{order_id}"}

    assert lint(policy(GOOD, look={**by_url, "by_client": True})) == []
    assert lint(policy(GOOD, look={**CHEAP, "by_client": True})) == [
        "verifiers.look.by_client: it has no url, so a client may make it anyway"
    ]


def test_a_claim_that_no_item_carries_is_told() -> None:
    """A slip in an attribute makes every action rest on something unknown."""
    (told,) = lint(policy(GOOD, look=CHEAP), known=lambda attribute: False)

    assert told == (
        "actions.cancel.rests_on.status: no remembered claim has the attribute 'status'"
    )


def test_an_attribute_that_an_argument_names_can_not_be_known_before() -> None:
    by_argument = {**STATUS, "claim": "order/{order_id}/{what}"}

    assert (
        lint(
            policy({**GOOD, "rests_on": {"status": by_argument}}, look=CHEAP),
            known=lambda attribute: False,
        )
        == []
    )


def test_a_premise_that_loses_less_than_abstaining_is_told() -> None:
    (told,) = lint(policy({**GOOD, "rests_on": {"status": {**STATUS, "wrong": 5.0}}}, look=CHEAP))

    assert "is not more than abstaining costs, 5; it is never critical" in told


def test_a_premise_that_nothing_verifies_is_told() -> None:
    (told,) = lint(policy({**GOOD, "rests_on": {"status": {**STATUS, "verify_with": []}}}))

    assert "nothing can verify it" in told


def test_a_check_that_never_pays_is_told() -> None:
    """Its price is above anything it could save: the VERIFY band is empty for every p."""
    (told,) = lint(policy(GOOD, look={"cost": 6.0}))

    assert told.startswith("actions.cancel.rests_on.status: look is never worth its price of 6")


def test_an_action_that_rests_on_nothing_is_told() -> None:
    (told,) = lint(policy({"loss": LOSS}))

    assert told.startswith("actions.cancel: it rests on no premise")


def test_premises_of_what_only_reads_are_told() -> None:
    (told,) = lint(policy({**GOOD, "effect": "read", "loss": LOSS}, look=CHEAP))

    assert "read-only, so that its premises are never looked at" in told
    assert lint(policy({"effect": "read"})) == []


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
@pytest.mark.parametrize("planner", PLANNERS)
def test_a_baseline_that_decides_in_earnest_is_told(mode: str, planner: str) -> None:
    """always_proceed is there to be compared with; as a rule it would guard nothing."""
    parts = {"mode": mode, "defaults": {"planner": planner}, "verifiers": {"look": CHEAP}}
    told = lint(parse({"version": 1, **parts, "actions": {"cancel": GOOD}}))

    if mode == "enforce" and planner in baselines.PLANNERS:
        assert [one.partition(":")[0] for one in told] == ["defaults.planner"]
        assert planner in told[0]
    else:
        assert told == []


def test_an_empty_idempotency_key_is_told() -> None:
    """All calls would be one, so that the second is refused for ever."""
    (told,) = lint(policy({**GOOD, "idempotency": {"key": []}}, look=CHEAP))

    assert told.startswith("actions.cancel.idempotency.key: it is empty")


ARGUMENTS = {"cancel": ["order_id", "user_id"]}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rests_on": {"status": {**STATUS, "claim": "order/{oder_id}/status"}}}, "claim"),
        ({"rests_on": {"status": {**STATUS, "require": {"argument": "oder_id"}}}}, "require"),
        ({"idempotency": {"key": ["oder_id"]}}, "idempotency.key"),
        ({"free": ["oder_id"]}, "free"),
    ],
)
def test_an_argument_that_the_tool_has_not_is_told(fields: dict[str, Any], told: str) -> None:
    rules = policy({**GOOD, **fields}, look=CHEAP)

    (said,) = lint(rules, arguments=ARGUMENTS)

    assert f"{told}: 'oder_id' is no argument of the tool; there is order_id, user_id" in said
    assert lint(rules) == lint(rules, arguments={"other": []}) == []
    assert lint(policy(GOOD, look=CHEAP), arguments=ARGUMENTS) == []


@pytest.mark.parametrize(
    ("path", "args", "by_rule", "by_tool"),
    [
        ("{order_id}", {}, "", ""),
        ("{user_id}", {}, "no other part of the rule names", ""),
        ("{oder_id}", {}, "no other part of the rule names", "the tool does not take"),
        ("{id}/{order_id}", {"id": "$order_id", "order_id": 5}, "", ""),
        ("a?b=1", {"id": "$order_id"}, "", ""),
    ],
)
def test_an_address_that_needs_an_argument_nobody_gives_is_told(
    path: str, args: dict[str, str], by_rule: str, by_tool: str
) -> None:
    """It would never be asked, so that nothing is ever verified."""
    rules = policy(GOOD, look={**CHEAP, "url": f"http://shop.example/{path}", "args": args})

    for found, whose in ((lint(rules), by_rule), (lint(rules, arguments=ARGUMENTS), by_tool)):
        said = f"actions.cancel: the url of its verifier look needs {path}, an argument that"
        assert found == ([f"{said} {whose}"] if whose else [])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("{order_id}", "{order_id} is none of its args (id), so that it is never asked"),
        ("{order-id}/{id}", "{order-id} is no name of an argument"),
        ("{}/{id}", "{} is no name of an argument"),
        ("{{id}}", "{} is no name of an argument"),
    ],
)
def test_an_address_that_is_never_filled_in_is_told_whatever_the_action(
    path: str, said: str
) -> None:
    url = f"http://shop.example/{path}"
    rules = policy(GOOD, look={**CHEAP, "url": url, "args": {"id": "$order_id"}})

    (found,) = lint(rules)

    assert found.startswith(f"verifiers.look.url: {said}")
    assert lint(rules, arguments=ARGUMENTS) == [found]


def test_an_address_whose_host_an_argument_names_is_told() -> None:
    """An agent could have itself confirmed by whom it likes."""
    (found,) = lint(policy(GOOD, look={**CHEAP, "url": "http://{order_id}.example/x/{order_id}"}))

    assert found == (
        "verifiers.look.url: {order_id} stands in its host, so that whoever calls says who is asked"
    )


def test_a_verifier_that_is_given_an_argument_nobody_knows_is_told() -> None:
    """It would be asked about null, and tell nothing."""
    asked = {"cost": 0.02, "args": {"id": "$oder_id", "shop": "main", "price": 5}}
    rules = policy(GOOD, look=asked)

    (by_rule,) = lint(rules)
    (by_tool,) = lint(rules, arguments=ARGUMENTS)

    assert by_rule == (
        "actions.cancel: its verifier look is given $oder_id, an argument that no other part of "
        "the rule names"
    )
    assert by_tool.endswith("an argument that the tool does not take")
    sound = policy(GOOD, look={**asked, "args": {"id": "$order_id"}})
    assert lint(sound) == lint(sound, arguments=ARGUMENTS) == []
    # Only the tool knows of an argument that the rule does not name.
    by_user = policy(GOOD, look={**asked, "args": {"id": "$user_id"}})
    assert lint(by_user, arguments=ARGUMENTS) == []


def budgeted(taken: dict[str, Any], **rule: Any) -> Policy:
    return parse(
        {
            "version": 1,
            "verifiers": {"look": CHEAP},
            "budgets": {"b": {"limit": 100}},
            "actions": {"cancel": {**GOOD, "budget": {"of": "b", **taken}, **rule}},
        }
    )


def test_a_budget_that_grants_nothing_or_that_nobody_takes_of_is_told() -> None:
    assert lint(budgeted({"amount": 100})) == []
    assert lint(budgeted({"amount": {"argument": "order_id"}})) == []
    assert lint(budgeted({"amount": 101})) == [
        "actions.cancel.budget: each call takes 101 of a limit of 100: none is granted"
    ]
    assert "each call takes 120" in lint(budgeted({}))[0]
    (unused,) = lint(parse({"version": 1, "budgets": {"b": {"limit": 1}}}))
    assert unused == "budgets.b: no action takes anything of it"
    told = lint(budgeted({}, effect="read", rests_on={}))
    assert told[1:] == ["actions.cancel: it is read-only, so that it takes nothing of its budget"]


def test_what_a_tool_takes_is_read_from_its_schema() -> None:
    closed: dict[str, Any] = {"properties": {"order_id": {}, "note": {}}}
    tools: list[dict[str, Any]] = [
        {"name": "cancel", "inputSchema": closed},
        {"name": "open", "inputSchema": {**closed, "additionalProperties": True}},
        {"name": "untold"},
        {"name": "none", "inputSchema": {"properties": {}}},
    ]

    assert arguments_of(tools) == {"cancel": ["order_id", "note"], "none": []}
    wrongs: list[Any] = [{"name": "x", "inputSchema": {"properties": [1]}}, "x"]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            arguments_of([wrong])


TOOLS: list[dict[str, Any]] = [
    {
        "name": "cancel_order",
        "inputSchema": {"properties": {"order_id": {}, "reason": {}, "bad-key_id": {}}},
        "annotations": {"destructiveHint": True},
    },
    {"name": "get", "annotations": {"readOnlyHint": True, "destructiveHint": False}},
    {"name": "delete", "inputSchema": {"properties": {"id": {}}}},
]


def test_a_draft_is_a_policy_in_shadow_mode() -> None:
    """It blocks nothing until a person has read it."""
    drafted = parse(draft(TOOLS))

    assert drafted.mode == "shadow"
    assert drafted.actions.keys() == {"cancel_order", "get", "delete"}
    cancel = drafted.actions["cancel_order"]
    assert cancel.free == []
    assert cancel.rests_on["status"].claim == "order/{order_id}/status"
    assert cancel.idempotency is not None
    assert cancel.idempotency.key == ["order_id"]
    assert drafted.actions["delete"].rests_on["status"].claim == "id/{id}/status"


def test_a_draft_believes_no_tool_that_it_only_reads() -> None:
    """A hint is what the tool's author says; being wrong about it would open the gate."""
    drafted = parse(draft(TOOLS))

    assert all(rule.effect == "commit" for rule in drafted.actions.values())


def test_a_draft_calls_no_argument_free() -> None:
    """Nobody has said that nothing can go wrong with it, so it is one that nobody verified."""
    drafted = parse(draft(TOOLS))

    for tool, rule in drafted.actions.items():
        taken = arguments_of(TOOLS).get(tool, [])
        assert set(unbound_arguments(Action(tool, dict.fromkeys(taken, "x")), rule)) == {
            name for name in taken if name not in (rule.idempotency.key if rule.idempotency else ())
        }


@pytest.mark.parametrize(
    ("names", "says"),
    [(["get", "get"], "'get' is there twice"), (["bad name"], "need a name of letters")],
)
def test_a_draft_of_tools_that_no_policy_can_name_is_refused(names: list[str], says: str) -> None:
    """Merged, the last of two would win unseen; and lint would refuse what was drafted."""
    with pytest.raises(InvalidInput, match=says):
        draft([{"name": name} for name in names])


@pytest.mark.parametrize(
    "require", ["pending", {"one_of": ["pending"]}, {"argument": "status"}, None]
)
def test_a_repair_of_nothing_but_constants_is_told(require: Any) -> None:
    status = {**STATUS, "require": require}
    if require is None:
        del status["require"]
    loss = {**LOSS, "repair": 1.0}
    found = lint(policy({"loss": loss, "rests_on": {"status": status}}, look=CHEAP))

    is_constant = require in ("pending", {"one_of": ["pending"]})
    assert [one.partition(":")[0] for one in found] == ["actions.cancel.loss.repair"] * is_constant


@pytest.mark.parametrize(
    "tool",
    ["x", {}, {"name": 5}, {"name": "x", "inputSchema": "y"}, {"name": "x", "annotations": 5}],
)
def test_what_is_no_tool_is_refused(tool: Any) -> None:
    with pytest.raises(InvalidInput, match="got"):
        draft([tool])
