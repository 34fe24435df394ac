"""The record says what was answered, also where that is not what the plan says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.ports import State
from amv.testing import FakeClock
from tests.guard.gates import CANCEL, OWNER, cancel, opened, policy_of, remember

LOSS = {"wrong": 120.0, "abstain": 5.0}
POLICY = policy_of(
    budgets={"all": {"limit": 1}},
    actions={
        "cancel_order": {**CANCEL, "loss": LOSS, "approval": True},
        "spend": {**CANCEL, "loss": LOSS, "budget": {"of": "all", "amount": 2}},
    },
)


class World:
    """What the check of these tests reads."""

    status: Any = "pending"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=["memory", "sqlite"])
def guard(request: pytest.FixtureRequest, tmp_path: Path, world: World) -> Iterator[amv.Guard]:
    where = ":memory:" if request.param == "memory" else str(tmp_path / "amv.db")
    with opened(where, POLICY, FakeClock()) as guard:
        guard.verifier("order_status")(lambda order_id: world.status)
        remember(guard)
        yield guard


def check_kept(guard: amv.Guard, decision: amv.Decision, verdict: str, code: str) -> None:
    """Assert that a decision was answered so, and is told so wherever it is told."""
    assert (decision.verdict, decision.code) == (verdict, code)
    kept = guard.get(decision.id)
    for field in ("verdict", "code", "reason", "approval_id"):
        assert getattr(kept, field) == getattr(decision, field), field
    assert guard.explain(decision.id).startswith(f"{verdict}: ")
    assert decision.reason in guard.explain(decision.id)
    listed = [one.id for _, one in guard.decisions(verdict=verdict)]
    assert decision.id in listed
    others = {"PROCEED", "VERIFY", "REPAIR", "ABSTAIN"} - {verdict}
    for other in others:
        assert decision.id not in [one.id for _, one in guard.decisions(verdict=other)]
    assert guard.replay() == []


def test_what_was_granted_before_is_kept_as_refused(guard: amv.Guard) -> None:
    first = guard.decide(cancel())
    assert first.permit is not None
    check_kept(guard, first, "PROCEED", "judged")
    guard.redeem(first.permit.token, cancel())

    check_kept(guard, guard.decide(cancel()), "ABSTAIN", "granted_before")


def test_what_is_over_its_budget_is_kept_as_refused(guard: amv.Guard) -> None:
    decision = guard.decide(amv.Action("spend", {"order_id": "W1"}, namespace=OWNER))

    check_kept(guard, decision, "ABSTAIN", "over_budget")
    guard.memory.forget_namespace(OWNER)
    # The reason may hold what must be forgotten; the answer does not.
    kept = guard.get(decision.id)
    assert (kept.verdict, kept.code) == ("ABSTAIN", "over_budget")
    assert kept.reason == "why was forgotten with the words of the decision"


def test_what_was_approved_is_kept_as_let_go_ahead(guard: amv.Guard, world: World) -> None:
    world.status = None
    asked = guard.decide(cancel())
    check_kept(guard, asked, "ABSTAIN", "unresolved")
    early = guard.decide(cancel(), approval_id=asked.approval_id)
    check_kept(guard, early, "ABSTAIN", "not_approved")
    guard.approve(asked.approval_id, by="ann")
    due = guard.decide(cancel(), approval_id=asked.approval_id, run_checks=False)
    check_kept(guard, due, "VERIFY", "judged")

    approved = guard.decide(cancel(), approval_id=asked.approval_id)

    check_kept(guard, approved, "PROCEED", "approved")
    told = guard.explain(asked.id).splitlines()
    assert told[-2:] == [
        "  then a request to a person is pending",
        "  then a request to a person is approved by ann",
    ]
    assert approved.permit is not None
    guard.settle(guard.redeem(approved.permit.token, cancel()), State.FAILED)
    assert (
        guard.explain(asked.id).splitlines()[-1].startswith("  then a request to a person is used")
    )


def test_arguments_are_those_of_the_moment_the_action_was_made() -> None:
    """Whoever holds a list of them, the verifier among others, changes nothing."""
    rule = {**CANCEL, "free": ["items"], "idempotency": {"key": ["order_id", "items"]}}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        remember(guard)
        read: list[Any] = []

        @guard.verifier("order_status", args={"order_id": "$order_id", "items": "$items"})
        def order_status(order_id: str, items: list[str]) -> Any:
            items.append("EVIL")
            read.append(order_id)
            return "pending"

        items = ["a"]
        action = amv.Action("cancel_order", {"order_id": "W1", "items": items}, namespace=OWNER)
        digest = action.digest()
        items.append("late")
        assert (action.digest(), action.arguments["items"]) == (digest, ["a"])

        decision = guard.decide(action)

        assert read == ["W1"]
        assert guard.get(decision.id).arguments == {"order_id": "W1", "items": ["a"]}
        assert decision.permit is not None
        guard.redeem(decision.permit.token, action)
        assert guard.decide(action).code == "granted_before"
        assert guard.replay() == []


def test_a_reading_is_kept_as_it_was_compared() -> None:
    """A function may hold what it returned, and go on changing it."""
    rule = {**CANCEL, "rests_on": {"status": {**CANCEL["rests_on"]["status"], "require": ["a"]}}}
    policy = policy_of(actions={"cancel_order": rule}, defaults={"audit": 1.0})
    with opened(policy=policy) as guard:
        remember(guard)
        reply = ["a"]
        guard.verifier("order_status", fresh_s=1e9, cost=1.0)(lambda order_id: reply)
        first = guard.decide(cancel())
        reply.append("EVIL")

        assert first.values == guard.get(first.id).values == {"status": ["a"]}


@pytest.mark.parametrize("namespace", ["shop", 5, None, [5], ("shop", None), {"a": b""}.values()])
def test_a_namespace_is_several_strings(namespace: Any) -> None:
    with pytest.raises(amv.InvalidInput, match="a tuple of strings"):
        amv.Action("cancel_order", {}, namespace=namespace)


def test_a_namespace_may_be_a_list(guard: amv.Guard) -> None:
    action = amv.Action("cancel_order", {"order_id": "W1"}, namespace=list(OWNER))  # type: ignore[arg-type]

    assert action == cancel()
    assert guard.decide(action).verdict == "PROCEED"
    with pytest.raises(amv.InvalidInput, match="must be JSON"):
        amv.Action("x", namespace=("\ud800",))


def test_whose_a_decision_is_stays_known(guard: amv.Guard) -> None:
    """Also once the words are forgotten; the record names nobody."""
    asked = amv.Action("cancel_order", {"order_id": "W1"}, namespace=OWNER, principal="eve")
    decision = guard.decide(asked)
    for forget in (lambda: guard.memory.forget_namespace(OWNER), lambda: None):
        assert guard.is_of(decision.id, "eve")
        assert not guard.is_of(decision.id, "")
        assert not guard.is_of(decision.id, "ann")
        forget()
    with pytest.raises(amv.ItemNotFound, match="no decision"):
        guard.is_of("absent", "eve")
    with guard._store.read() as reader:
        assert not any(b"eve" in row.body for row in reader.records())
