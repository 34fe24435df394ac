"""What a decision rests on must still be so when it lets an action go ahead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.policy import parse
from amv.testing import FakeClock
from tests.guard.gates import CANCEL, OWNER, VERIFIER, cancel, opened, policy_of, remember

RULE = {
    **CANCEL,
    "rests_on": {
        # Trusted as it is; nothing checks it.
        "status": {"claim": "order/{order_id}/status", "require": "pending"},
        "owner": {"claim": "order/{order_id}/owner", "require": "ann", "verify_with": ["owner"]},
        "shade": {"claim": "order/{order_id}/shade", "require": "red", "wrong": 0.1},
    },
}
POLICY = policy_of(
    verifiers={"owner": {**VERIFIER}}, actions={"cancel_order": RULE, "look": {"effect": "read"}}
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def guard(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[amv.Guard]:
    where = ":memory:" if request.param == "memory" else str(tmp_path / "amv.db")
    with opened(where, POLICY, clock) as guard:
        note(guard, "status", "pending", source_trust=0.95)
        note(guard, "owner", "ann", source_trust=0.6)
        yield guard


def note(guard: amv.Guard, attribute: str, value: str, **fields: Any) -> str:
    claim = amv.Claim("order/W1", attribute, value)
    return guard.memory.add(f"{attribute} {value}", namespace=OWNER, claim=claim, **fields).id


def of(guard: amv.Guard, attribute: str) -> str:
    item = guard.memory.find_claim(OWNER, "order/W1", attribute)
    assert item is not None
    return item.id


def superseded(guard: amv.Guard, clock: FakeClock) -> None:
    note(guard, "status", "delivered", source_trust=0.97)


def refuted(guard: amv.Guard, clock: FakeClock) -> None:
    guard.memory.refute(of(guard, "status"), "delivered", namespace=OWNER)


def contradicted(guard: amv.Guard, clock: FakeClock) -> None:
    note(guard, "status", "delivered", source_trust=0.3)


def trusted_less(guard: amv.Guard, clock: FakeClock) -> None:
    guard.memory.update(of(guard, "status"), source_trust=0.7, namespace=OWNER)


def forgotten(guard: amv.Guard, clock: FakeClock) -> None:
    guard.memory.forget(of(guard, "status"), namespace=OWNER)


def said_anew(guard: amv.Guard, clock: FakeClock) -> None:
    """The same value from elsewhere is another claim, of which nothing was weighed."""
    note(guard, "owner", "ann", source_trust=0.97)


CHANGES = [superseded, refuted, contradicted, trusted_less, forgotten, said_anew]


@pytest.mark.parametrize("change", CHANGES)
def test_a_permit_is_good_while_the_memory_says_the_same(
    guard: amv.Guard, clock: FakeClock, change: Any
) -> None:
    guard.verifier("owner", **VERIFIER)(lambda order_id: "ann")
    decision = guard.decide(cancel())
    assert decision.permit is not None, decision.says
    change(guard, clock)

    with pytest.raises(amv.PermitRefused, match="decide about the action again") as refused:
        guard.redeem(decision.permit.token, cancel())
    assert refused.value.code == "memory_changed"
    assert guard.unsettled() == []
    assert guard.replay() == []


@pytest.mark.parametrize("change", [one for one in CHANGES if one is not forgotten])
def test_evidence_lets_nothing_go_ahead_on_what_is_remembered_no_more(
    guard: amv.Guard, clock: FakeClock, change: Any
) -> None:
    asked = guard.decide(cancel(), run_checks=False)
    assert asked.verdict == "VERIFY"
    change(guard, clock)

    decision = guard.evidence(asked.id, "owner", "ann")

    assert (decision.verdict, decision.code) == ("ABSTAIN", "memory_changed")
    assert decision.permit is None
    assert "has changed since this was decided" in decision.reason
    kept = guard.get(asked.id)
    assert (kept.verdict, kept.code, kept.reason) == (
        decision.verdict,
        decision.code,
        decision.reason,
    )


def test_what_changes_while_checks_run_is_seen(guard: amv.Guard, clock: FakeClock) -> None:
    """The last look is in the transaction that grants."""

    @guard.verifier("owner", **VERIFIER)
    def owner(order_id: str) -> str:
        # By someone else, meanwhile.
        return "ann"

    run = guard._checker.run

    def late(*args: Any, **how: Any) -> Any:
        found = run(*args, **how)
        superseded(guard, clock)
        return found

    guard._checker.run = late  # type: ignore[method-assign]

    assert guard.decide(cancel()).code == "memory_changed"


def test_what_a_decision_read_itself_and_what_is_not_critical_may_change(
    guard: amv.Guard, clock: FakeClock
) -> None:
    """Its own checks confirm, or correct, what it rests on; of the rest nothing hangs."""
    asked = guard.decide(cancel(), run_checks=False)
    decision = guard.evidence(asked.id, "owner", "ann")
    assert decision.permit is not None
    note(guard, "shade", "blue")
    guard.memory.confirm(of(guard, "status"), namespace=OWNER)

    assert guard.redeem(decision.permit.token, cancel()) == decision.id


def test_a_claim_that_a_check_corrected_is_what_the_decision_knows() -> None:
    """A poor check reads another value, which the memory takes over; a good one outweighs it."""
    premise = {**CANCEL["rests_on"]["status"], "verify_with": ["poor", "good"]}
    rule = {**CANCEL, "loss": {"wrong": 120.0, "abstain": 5.0}, "rests_on": {"status": premise}}
    poor = {**VERIFIER, "cost": 0.001, "sensitivity": 0.8, "specificity": 0.8}
    good = {**VERIFIER, "cost": 1.0, "sensitivity": 0.9999, "specificity": 0.9999}
    policy = policy_of(actions={"cancel_order": rule}, verifiers={"poor": poor, "good": good})
    with opened(policy=policy) as guard:
        remember(guard, source_trust=0.6)
        asked = guard.decide(cancel(), run_checks=False)
        asked = guard.evidence(asked.id, "poor", "shipped")
        item = guard.memory.find_claim(OWNER, "order/W1", "status")
        assert item is not None
        assert item.claim == amv.Claim("order/W1", "status", "shipped")

        decision = guard.evidence(asked.id, "good", "pending")

        assert decision.permit is not None, decision.says
        assert guard.redeem(decision.permit.token, cancel()) == decision.id


def test_a_permit_does_not_outlive_its_policy(guard: amv.Guard) -> None:
    guard.verifier("owner", **VERIFIER)(lambda order_id: "ann")
    decision, policy = guard.decide(cancel()), guard.policy
    assert decision.permit is not None
    for other in ({"version": 1}, {**POLICY, "defaults": {"harm_max": 0.01}}):
        guard._policy = parse(other)
        with pytest.raises(amv.PermitRefused, match="under another policy") as refused:
            guard.redeem(decision.permit.token, cancel())
        assert refused.value.code == "policy_changed"
    guard._policy = policy

    assert guard.redeem(decision.permit.token, cancel()) == decision.id


def test_a_guarded_call_tells_why_its_permit_was_no_good(guard: amv.Guard) -> None:
    guard.verifier("owner", **VERIFIER)(lambda order_id: "ann")
    ran: list[str] = []

    @guard.action("cancel_order")
    def call(order_id: str) -> None:
        ran.append(order_id)

    redeem = guard.redeem

    def late(token: str, action: amv.Action) -> str:
        note(guard, "status", "delivered", source_trust=0.97)
        return redeem(token, action)

    guard.redeem = late  # type: ignore[method-assign]

    with pytest.raises(amv.ActionAbstained) as refused:
        call("W1")
    assert refused.value.decision.code == "memory_changed"
    assert ran == []
