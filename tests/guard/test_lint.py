"""Linting: what is valid and yet surely not meant; and drafting."""

from typing import Any

import pytest

from amv.errors import InvalidInput
from amv.guard.lint import draft, lint
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
    assert cancel.free == ["reason", "bad-key_id"]
    assert cancel.rests_on["status"].claim == "order/{order_id}/status"
    assert cancel.idempotency is not None
    assert cancel.idempotency.key == ["order_id"]
    assert drafted.actions["delete"].rests_on["status"].claim == "id/{id}/status"


def test_a_draft_believes_no_tool_that_it_only_reads() -> None:
    """A hint is what the tool's author says; being wrong about it would open the gate."""
    drafted = parse(draft(TOOLS))

    assert all(rule.effect == "commit" for rule in drafted.actions.values())


@pytest.mark.parametrize(
    "tool",
    ["x", {}, {"name": 5}, {"name": "x", "inputSchema": "y"}, {"name": "x", "annotations": 5}],
)
def test_what_is_no_tool_is_refused(tool: Any) -> None:
    with pytest.raises(InvalidInput, match="got"):
        draft([tool])
