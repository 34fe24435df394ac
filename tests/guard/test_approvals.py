"""Approvals: a person lets one action go ahead, once, for a time, and not against the world."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.guard.ports import State
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
    assert guard.approvals.get(approval_id).state == "approved"
    guard.redeem(decision.permit.token, cancel())
    assert guard.approvals.get(approval_id).state == "used"
    again = guard.decide(cancel(), approval_id=approval_id)
    assert (again.verdict, again.code, again.permit) == ("ABSTAIN", "not_approved", None)
    assert again.reason == "the approval is used"
    assert guard.replay() == []


@pytest.mark.parametrize("by", ["", " ", "x" * 257, "\ud800", None, 5])
def test_who_approves_has_a_name(guard: amv.Guard, by: Any) -> None:
    """It is kept for ever: it is short, and can be written down."""
    approval_id = asked_for(guard)

    with pytest.raises(amv.InvalidInput, match="who says so"):
        guard.approve(approval_id, by=by)
    assert guard.approvals.get(approval_id).state == "pending"


@pytest.mark.parametrize("flag", ["no", "", None, 0, 1, []])
def test_what_is_neither_yes_nor_no_decides_nothing(guard: amv.Guard, flag: Any) -> None:
    """A text such as "no" would count as true."""
    approval_id = asked_for(guard)

    with pytest.raises(amv.InvalidInput, match="approve must be True or False"):
        guard.approve(approval_id, by="ann", approve=flag)
    assert guard.approvals.get(approval_id).state == "pending"


def test_what_a_check_refuted_is_not_forgotten_once_it_tells_nothing(
    guard: amv.Guard, world: World
) -> None:
    """The person knew of what was remembered then; they are asked again about what is now."""
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    world.status = "shipped"
    assert guard.decide(cancel(), approval_id=approval_id).code == "not_approved"
    world.status = None

    decision = guard.decide(cancel(), approval_id=approval_id)

    assert (decision.verdict, decision.code) == ("ABSTAIN", "approval_outdated")
    assert "remembered of status is not what the approval was given for" in decision.reason
    assert decision.approval_id not in ("", approval_id)
    assert guard.get(decision.id) == decision
    guard.approve(decision.approval_id, by="ann")
    assert guard.approvals.standing(cancel().digest(), guard._clock()) == decision.approval_id
    assert guard.decide(cancel(), approval_id=decision.approval_id).code == "approved"
    assert guard.replay() == []


@pytest.mark.parametrize(
    ("value", "code"), [("pending", "approved"), ("shipped", "approval_outdated")]
)
def test_an_approval_is_for_what_was_remembered_or_is_met(
    guard: amv.Guard, clock: FakeClock, value: str, code: str
) -> None:
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    clock.advance(1.0)
    remember(guard, value, source="desk", source_trust=0.9)

    assert guard.decide(cancel(), approval_id=approval_id).code == code


def test_what_was_read_when_a_person_was_asked_is_known_to_them(
    guard: amv.Guard, world: World
) -> None:
    world.status = "shipped"
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    world.status = None

    assert guard.decide(cancel(), approval_id=approval_id).code == "approved"


def test_what_was_not_remembered_then_nor_is_now_does_not_matter(guard: amv.Guard) -> None:
    approval_id = guard.decide(cancel("W9")).approval_id
    guard.approve(approval_id, by="ann")

    assert guard.decide(cancel("W9"), approval_id=approval_id).code == "approved"


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


@pytest.mark.parametrize("run_checks", [True, False])
@pytest.mark.parametrize("reading", ["delivered", "pending", None])
def test_what_only_the_caller_can_check_is_asked_for_with_an_approval_too(
    run_checks: bool, reading: str | None
) -> None:
    """Or who leaves out `run_checks` would have nothing checked of what evidence had refuted."""
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 120.0, "abstain": 5.0}}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        remember(guard)
        asked = guard.decide(cancel(), run_checks=False)
        request = guard.evidence(asked.id, "order_status", None).approval_id
        guard.approve(request, by="ann")

        decision = guard.decide(cancel(), run_checks=run_checks, approval_id=request)

        assert (decision.verdict, decision.permit) == ("VERIFY", None)
        assert decision.check is not None
        told = guard.evidence(decision.id, decision.check.verifier, reading, approval_id=request)
        assert told.verdict == ("ABSTAIN" if reading == "delivered" else "PROCEED")


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


def granted(guard: amv.Guard, approval_id: str) -> str:
    """Return the permit of a decision that an approval has let go ahead."""
    decision = guard.decide(cancel(), approval_id=approval_id)
    assert (decision.verdict, decision.code) == ("PROCEED", "approved")
    assert decision.permit is not None
    return decision.permit.token


def test_a_permit_that_was_not_redeemed_uses_no_approval_up(
    guard: amv.Guard, clock: FakeClock
) -> None:
    """Nothing was done on it: whoever was too late decides again, and asks nobody again."""
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    late = granted(guard, approval_id)
    clock.advance(61.0)
    with pytest.raises(amv.PermitRefused, match="has expired"):
        guard.redeem(late, cancel())

    guard.redeem(granted(guard, approval_id), cancel())

    assert guard.approvals.get(approval_id).state == "used"


def test_a_permit_is_good_no_longer_than_its_approval(guard: amv.Guard, clock: FakeClock) -> None:
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    clock.advance(DAY_S - 30.0)
    token = granted(guard, approval_id)
    clock.advance(30.0)

    with pytest.raises(amv.PermitRefused, match="the approval has expired; decide about"):
        guard.redeem(token, cancel())

    assert guard.approvals.get(approval_id).state == "approved"
    assert guard.replay() == []


def test_an_approval_is_used_up_by_a_call_that_failed_too(guard: amv.Guard) -> None:
    """It was for one execution; for another, the person is asked again."""
    approval_id = asked_for(guard)
    guard.approve(approval_id, by="ann")
    key = guard.redeem(granted(guard, approval_id), cancel())
    guard.settle(key, State.FAILED)

    again = guard.decide(cancel(), approval_id=approval_id)

    assert (again.code, again.reason) == ("not_approved", "the approval is used")


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_of_32_that_redeem_on_one_approval_one_executes(where: str, tmp_path: Path) -> None:
    """Each has a permit by it; the approval and one permit are used up at once."""
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 120.0, "abstain": 5.0}}
    path = ":memory:" if where == "memory" else str(tmp_path / "amv.db")
    with opened(path, policy_of(actions={"cancel_order": rule})) as guard:
        guard.verifier("order_status")(lambda order_id: None)
        remember(guard)
        approval_id = asked_for(guard)
        guard.approve(approval_id, by="ann")
        start, done = threading.Barrier(32), list[str]()

        def act(_: int) -> None:
            start.wait()
            decision = guard.decide(cancel(), approval_id=approval_id)
            if decision.permit is not None:
                with suppress(amv.PermitRefused):
                    done.append(guard.redeem(decision.permit.token, cancel()))

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(act, range(32)))

        assert len(done) == 1
        assert guard.approvals.get(approval_id).state == "used"
        assert guard.replay() == []


def test_all_that_can_be_checked_is_checked_anew_after_an_approval() -> None:
    """Also what was not worth its price before: a person has taken the price upon them."""
    asked: list[str] = []
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 1e6, "abstain": 5.0}}
    rule["rests_on"] = {
        "status": {**CANCEL["rests_on"]["status"], "verify_with": ["dear", "dearer", "again"]}
    }
    poor = {"sensitivity": 0.6, "specificity": 0.6, "args": {"order_id": "$order_id"}}
    verifiers = {
        "dearer": {**poor, "cost": 90.0, "fresh_s": 1e9},
        "dear": {**poor, "cost": 80.0, "fresh_s": 1e9},
        "again": {**poor, "cost": 99.0, "group": "dear"},
    }
    policy = policy_of(verifiers=verifiers, actions={"cancel_order": rule})
    reads: dict[str, object] = {"dear": None, "dearer": "pending", "again": "pending"}
    with opened(policy=policy) as guard:
        for name in verifiers:

            def read(order_id: str, name: str = name) -> object:
                asked.append(name)
                return reads[name]

            guard.verifier(name)(read)
        remember(guard)
        approval_id = asked_for(guard)
        assert asked == []
        guard.approve(approval_id, by="ann")
        granted(guard, approval_id)
        # The second told something, so that the third is not asked.
        assert asked == ["dear", "dearer"]

        # The reading of a moment ago is not used again.
        reads["dear"] = "shipped"
        refused = guard.decide(cancel(), approval_id=approval_id)
        assert (refused.verdict, refused.code) == ("ABSTAIN", "not_approved")
        assert asked == ["dear", "dearer", "dear"]
        assert guard.replay() == []


def test_a_client_makes_the_checks_of_an_approval_itself() -> None:
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 1e6, "abstain": 5.0}}
    verifier = {"cost": 80.0, "sensitivity": 0.6, "specificity": 0.6}
    policy = policy_of(verifiers={"order_status": verifier}, actions={"cancel_order": rule})
    with opened(policy=policy) as guard:
        remember(guard)
        approval_id = asked_for(guard)
        with pytest.raises(amv.InvalidInput, match="asks for no check"):
            guard.evidence(guard.decide(cancel()).id, "order_status", "pending")
        guard.approve(approval_id, by="ann")

        decision = guard.decide(cancel(), run_checks=False, approval_id=approval_id)
        assert decision.check is not None
        told = guard.evidence(decision.id, "order_status", "pending", approval_id=approval_id)

        assert (decision.verdict, decision.permit) == ("VERIFY", None)
        assert decision.reason == "approved; order_status is asked once more before that counts"
        assert (told.verdict, told.code) == ("PROCEED", "approved")


def test_a_request_that_was_not_approved_has_nothing_checked(
    guard: amv.Guard, world: World
) -> None:
    approval_id = asked_for(guard)
    before = world.asked
    decision = guard.decide(cancel(), run_checks=False, approval_id=approval_id)
    assert decision.verdict == "VERIFY"

    assert guard.decide(cancel(), approval_id=approval_id).code == "not_approved"
    assert world.asked == before + 1
