"""Approvals: a person lets one action go ahead, once, for a time, and not against the world."""

from collections.abc import Iterator
from typing import Any

import pytest

import amv
from amv.testing import FakeClock
from tests.guard.gates import CANCEL, cancel, opened, policy_of, remember

DAY_S = 86_400.0


class World:
    """What the verifier of these tests reads; None: it tells nothing."""

    status: Any = None
    asked = 0

    def order_status(self, order_id: str) -> Any:
        self.asked += 1
        return self.status


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def guard(world: World, clock: FakeClock) -> Iterator[amv.Guard]:
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 120.0, "abstain": 5.0}}
    with opened(policy=policy_of(actions={"cancel_order": rule}), clock=clock) as guard:
        guard.verifier("order_status")(world.order_status)
        remember(guard)
        yield guard


def asked_for(guard: amv.Guard) -> str:
    """Return the request that an abstention has made."""
    decision = guard.decide(cancel())
    assert decision.verdict == "ABSTAIN"
    assert decision.approval_id
    return decision.approval_id


def test_an_approved_action_goes_ahead_once(guard: amv.Guard) -> None:
    approval_id = asked_for(guard)
    (row,) = guard.approvals.list("pending")
    assert (row.approval_id, row.digest) == (approval_id, cancel().digest())
    assert guard.approve(approval_id, by="ann").state == "approved"

    decision = guard.decide(cancel(), approval_id=approval_id)

    assert (decision.verdict, decision.code) == ("PROCEED", "approved")
    assert decision.reason == "approved by ann"
    assert decision.permit is not None
    guard.redeem(decision.permit.token, cancel())
    assert guard.approvals.get(approval_id).state == "used"
    again = guard.decide(cancel(), approval_id=approval_id)
    assert (again.verdict, again.code, again.permit) == ("ABSTAIN", "not_approved", None)
    assert again.reason == "the approval is used"
    assert guard.replay() == []


def test_who_tries_again_does_not_ask_again(guard: amv.Guard, clock: FakeClock) -> None:
    """A person who finds one request a hundred times over soon approves unread."""
    first = asked_for(guard)
    assert {asked_for(guard) for _ in range(5)} == {first}
    other = guard.decide(cancel(note="x")).approval_id
    assert [row.approval_id for row in guard.approvals.list()] == [first, other]

    clock.advance(DAY_S)
    late = asked_for(guard)
    guard.approve(late, by="ann", approve=False)

    assert len({first, late, asked_for(guard)}) == 3


def test_the_approval_that_stands_is_found_by_its_action(
    guard: amv.Guard, clock: FakeClock
) -> None:
    approval_id, digest = asked_for(guard), cancel().digest()
    assert guard.approvals.standing(digest, clock()) is None
    guard.approve(approval_id, by="ann")

    assert guard.approvals.standing(digest, clock()) == approval_id
    assert guard.approvals.standing(cancel(note="x").digest(), clock()) is None
    assert guard.approvals.standing(digest, clock() + DAY_S) is None


def test_checks_are_made_again_after_an_approval(guard: amv.Guard, world: World) -> None:
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    before = world.asked

    guard.decide(cancel(), approval_id=approval_id)

    assert world.asked == before + 1


def test_an_approval_does_not_stand_against_the_world(guard: amv.Guard, world: World) -> None:
    """What the person knew may be so no longer."""
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    world.status = "shipped"

    decision = guard.decide(cancel(), approval_id=approval_id)

    assert (decision.verdict, decision.code) == ("ABSTAIN", "not_approved")
    assert "a check refutes" in decision.reason
    assert guard.approvals.get(approval_id).state == "approved"


def test_an_approval_that_is_not_needed_is_not_used(guard: amv.Guard, world: World) -> None:
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    world.status = "pending"

    decision = guard.decide(cancel(), approval_id=approval_id)

    assert (decision.verdict, decision.code) == ("PROCEED", "judged")
    assert guard.approvals.get(approval_id).state == "approved"


def test_a_check_that_is_due_is_due_with_an_approval_too(guard: amv.Guard) -> None:
    """Whoever runs the checks; then the approval stands for the screen."""
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    decision = guard.decide(cancel(), run_checks=False, approval_id=approval_id)
    assert decision.verdict == "VERIFY"
    assert decision.check is not None
    assert decision.permit is None

    told = guard.evidence(decision.id, decision.check.verifier, None, approval_id=approval_id)

    assert (told.verdict, told.code) == ("PROCEED", "approved")


def test_a_pending_or_rejected_request_lets_nothing_go_ahead(guard: amv.Guard) -> None:
    approval_id = asked_for(guard)
    assert guard.decide(cancel(), approval_id=approval_id).reason == "the approval is pending"
    assert guard.approve(approval_id, by="ann", approve=False).state == "rejected"

    decision = guard.decide(cancel(), approval_id=approval_id)

    assert (decision.code, decision.reason) == ("not_approved", "the approval is rejected")
    with pytest.raises(amv.Conflict, match="is rejected already"):
        guard.approve(approval_id, by="bob")


def test_an_approval_is_for_one_action_alone(guard: amv.Guard) -> None:
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")

    decision = guard.decide(cancel(note="x"), approval_id=approval_id)

    assert (decision.verdict, decision.code) == ("ABSTAIN", "not_approved")
    assert "for other arguments" in decision.reason


def test_a_request_expires_before_and_after_it_is_approved(
    guard: amv.Guard, clock: FakeClock
) -> None:
    approved = asked_for(guard)
    guard.approve(approved, by="ann")
    late = asked_for(guard)
    clock.advance(DAY_S)

    with pytest.raises(amv.Conflict, match="has expired"):
        guard.approve(late, by="ann")
    # By now the claim is a day older, but the action is the same.
    decision = guard.decide(cancel(), approval_id=approved)
    assert (decision.verdict, decision.reason) == ("ABSTAIN", "the approval has expired")


def test_a_request_that_is_none_grants_nothing(guard: amv.Guard) -> None:
    decision = guard.decide(cancel(), approval_id="made up")

    assert (decision.verdict, decision.code) == ("ABSTAIN", "not_approved")
    for ask in (guard.approvals.get, lambda name: guard.approve(name, by="ann")):
        with pytest.raises(amv.ItemNotFound):
            ask("made up")


def test_an_approval_gives_no_second_grant_of_a_key(guard: amv.Guard) -> None:
    one = asked_for(guard)
    guard.approve(one, by="ann")
    two = asked_for(guard)
    guard.approve(two, by="ann")
    decision = guard.decide(cancel(), approval_id=one)
    assert decision.permit is not None
    guard.redeem(decision.permit.token, cancel())

    again = guard.decide(cancel(), approval_id=two)

    assert (again.verdict, again.code, again.permit) == ("ABSTAIN", "granted_before", None)
    assert guard.approvals.get(two).state == "approved"


def test_without_approval_in_its_rule_an_abstention_asks_nobody() -> None:
    with opened() as guard:
        guard.verifier("order_status")(lambda order_id: None)
        remember(guard)

        assert guard.decide(cancel()).approval_id == ""
        assert guard.approvals.list() == []
