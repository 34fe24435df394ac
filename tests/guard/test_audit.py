"""Audits: a share of decisions is checked whatever the plan says, and drawn at random."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import amv
from amv.errors import PolicyError
from amv.guard.policy import parse
from tests.guard.gates import CANCEL, OWNER, cancel, opened, policy_of, remember

DEAR = {"cost": 50.0, "args": {"order_id": "$order_id"}}


def never() -> float:
    raise AssertionError("nothing was to be drawn")


def audited(chance: Callable[[], float], **parts: Any) -> amv.Guard:
    """Open a gate whose only check is too dear to pay, with an audit of 0.25."""
    parts = {"verifiers": {"order_status": DEAR}, "defaults": {"audit": 0.25}, **parts}
    guard = opened(policy=policy_of(**parts), chance=chance)
    remember(guard, source_trust=1.0)
    return guard


def test_what_is_not_drawn_is_decided_as_ever() -> None:
    with audited(lambda: 0.25) as guard:
        assert guard.decide(cancel()).verdict == "PROCEED"
        assert guard.labels() == []


def test_what_is_drawn_is_checked_before_it_goes_ahead() -> None:
    with audited(lambda: 0.2) as guard:
        asked = guard.decide(cancel(), run_checks=False)
        assert (asked.verdict, asked.permit) == ("VERIFY", None)
        assert "drawn at random to be checked anyway" in asked.reason
        assert asked.check is not None

        done = guard.evidence(asked.id, "order_status", "pending")

        assert (done.verdict, done.code) == ("PROCEED", "judged")
        assert done.permit is not None
        (told,) = guard.labels()
        assert (told.is_violated, told.weight, told.source) == (False, 4.0, "audited")
        assert guard.replay() == []
        assert "drawn for an audit (probability 0.25)" in guard.explain(asked.id)


def test_what_an_audit_refutes_does_not_go_ahead() -> None:
    with audited(lambda: 0.0) as guard:
        guard.verifier("order_status")(lambda order_id: "delivered")

        done = guard.decide(cancel())

        assert done.verdict != "PROCEED"
        assert done.permit is None
        assert [told.is_violated for told in guard.labels()] == [True]


def late(order_id: str) -> str:
    time.sleep(0.2)
    return "pending"


def crash(order_id: str) -> str:
    raise ValueError("broken")


FAULTS: dict[str, Callable[[str], object]] = {
    "timed out": late,
    "crashed": crash,
    "empty": lambda order_id: None,
    "no JSON": lambda order_id: {1, 2},
    "NaN": lambda order_id: float("nan"),
    "infinite": lambda order_id: [float("inf")],
    "asks the memory": lambda order_id: "replaced below",
    "not there": lambda order_id: amv.NOT_FOUND,
    "wrong type": lambda order_id: 5,
    "another value": lambda order_id: "delivered",
}
"""What an audit's check may do in place of confirming; the last three are answers that refute."""

REFUTING = ("not there", "wrong type", "another value")
SOUND = {"cost": 50.0, "args": {"order_id": "$order_id"}, "timeout_s": 0.05}
WORTH = {**SOUND, "cost": 0.02}


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_worth_it", [True, False])
def test_a_fault_stops_what_was_worth_a_check_and_no_audit(
    fault: str, is_worth_it: bool, mode: str
) -> None:
    """An audit is for learning: only what it refutes does not go ahead."""
    verifiers = {"order_status": WORTH if is_worth_it else SOUND}
    with audited(lambda: 0.0, verifiers=verifiers, mode=mode) as guard:
        answer = FAULTS[fault]
        if fault == "asks the memory":
            answer = lambda order_id: guard.memory.stats().namespaces  # noqa: E731
        guard.verifier("order_status")(answer)

        done = guard.decide(cancel())

        goes_ahead = not is_worth_it and fault not in REFUTING
        assert len(done.checks) == 1
        assert (done.verdict == "PROCEED") is goes_ahead
        assert (done.permit is not None) is (goes_ahead and mode == "enforce")
        assert guard.get(done.id).verdict == done.verdict
        assert len(guard.labels()) == (fault in REFUTING)
        assert guard.log().incomplete == (0 if fault in REFUTING else 1)
        assert guard.replay() == []


def test_an_audit_that_tells_nothing_leaves_the_plan_as_it_was() -> None:
    """Also where the caller makes the checks, and says that it could not."""
    with audited(lambda: 0.9) as guard:
        plain = guard.decide(cancel("W2"))
    with audited(lambda: 0.0) as guard:
        asked = guard.decide(cancel(), run_checks=False)
        assert asked.verdict == "VERIFY"

        done = guard.evidence(asked.id, "order_status", None)

        assert plain.verdict != "PROCEED"
        assert (done.verdict, done.code) == ("PROCEED", "judged")
        assert done.expected_loss == asked.expected_loss
        assert guard.replay() == []


def test_what_an_audit_refutes_stops_however_little_that_check_weighs() -> None:
    weak = {**DEAR, "sensitivity": 0.51, "specificity": 0.5}
    loss = {"wrong": 120.0, "abstain": 5.0}
    with audited(
        lambda: 0.0,
        verifiers={"order_status": weak},
        actions={"cancel_order": {**CANCEL, "loss": loss}},
    ) as guard:
        guard.verifier("order_status")(lambda order_id: "delivered")

        done = guard.decide(cancel())

        assert done.harm <= 0.05
        assert done.risk <= loss["abstain"]
        assert done.verdict == "ABSTAIN"
        assert done.reason.endswith("an audit refutes status")
        assert guard.replay() == []


def test_an_audit_asks_each_source_once() -> None:
    """The same source twice is not two opinions, and one that told nothing may be asked again."""
    asked = []
    rule = {**CANCEL, "rests_on": {"status": {**CANCEL["rests_on"]["status"]}}}
    names = ["a", "b", "c"]
    rule["rests_on"]["status"]["verify_with"] = names
    verifiers = {name: {**DEAR, "group": group} for name, group in zip(names, "112", strict=True)}
    guard = audited(lambda: 0.0, verifiers=verifiers, actions={"cancel_order": rule})
    with guard:
        for name in names:

            def answer(order_id: str, name: str = name) -> str | None:
                asked.append(name)
                return None if name == "a" and order_id == "W2" else "pending"

            guard.verifier(name)(answer)
        guard.decide(cancel())
        assert asked == ["a", "c"]
        remember(guard, order_id="W2", source_trust=1.0)
        asked.clear()
        guard.decide(cancel("W2"))
        assert asked == ["a", "b", "c"]


def test_what_is_only_foreseen_is_not_drawn() -> None:
    with audited(never) as guard:
        (found,) = guard.rank([cancel()])

        assert found.verdict == "PROCEED"


def test_without_an_audit_nothing_is_drawn() -> None:
    with audited(never, defaults={}) as guard:
        assert guard.decide(cancel()).verdict == "PROCEED"


def test_an_action_may_be_audited_more_often_than_others_or_never() -> None:
    for share, defaults in ((1.0, {}), (0.0, {"audit": 1.0})):
        actions = {"cancel_order": {**CANCEL, "audit": share}}
        with audited(lambda: 0.5, defaults=defaults, actions=actions) as guard:
            verdict = guard.decide(cancel(), run_checks=False).verdict

        assert verdict == ("VERIFY" if share else "PROCEED")


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(share: float) -> None:
    with pytest.raises(PolicyError, match="audit"):
        parse(policy_of(defaults={"audit": share}))
    with pytest.raises(PolicyError, match="audit"):
        parse(policy_of(actions={"cancel_order": {**CANCEL, "audit": share}}))


def test_an_approved_action_that_is_audited_is_checked_all_the_same() -> None:
    """The approval asks for what the plan left out, and the audit for nothing beyond."""
    rule = {**CANCEL, "approval": True, "loss": {"wrong": 1e5, "abstain": 5.0}}
    with audited(lambda: 0.0, actions={"cancel_order": rule}) as guard:
        asked = guard.decide(cancel(), run_checks=False)
        refused = guard.evidence(asked.id, "order_status", None)
        assert refused.verdict == "ABSTAIN"
        guard.approve(refused.approval_id, by="bob")

        again = guard.decide(cancel(), run_checks=False, approval_id=refused.approval_id)
        assert again.verdict == "VERIFY"
        assert "approved; order_status is asked once more" in again.reason
        done = guard.evidence(again.id, "order_status", "pending", approval_id=refused.approval_id)

        assert done.verdict == "PROCEED"


@pytest.mark.parametrize("audit", [0.0, 0.25])
def test_what_was_checked_for_an_approval_is_no_sample(audit: float) -> None:
    """Nobody knows how likely a person was to let it go ahead: it has no weight to count by."""
    rule = {**CANCEL, "approval": True, "harm_max": 0.0}
    parts: dict[str, Any] = {"actions": {"cancel_order": rule}, "defaults": {"audit": audit}}
    with audited(lambda: 0.9, **parts) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        request = guard.decide(cancel()).approval_id
        guard.approve(request, by="bob")
        decision = guard.decide(cancel(), approval_id=request)
        assert (decision.verdict, decision.values) == ("PROCEED", {"status": "pending"})

        assert guard.labels() == []

        # Somebody who was asked is another matter.
        guard.label(decision.id, {"status": True}, weight=3.0)
        told = [(one.source, one.weight) for one in guard.labels()]
        assert told == ([] if audit else [("told", 3.0)])


def test_by_their_weights_audits_stand_for_all_decisions() -> None:
    """Horvitz-Thompson: what is drawn counts with one over the probability of drawing it."""
    draw, truth = random.Random(11), random.Random(12)
    count, share = 1200, 0.25
    with audited(draw.random) as guard:
        wrong: dict[str, bool] = {}
        guard.verifier("order_status")(
            lambda order_id: "delivered" if wrong[order_id] else "pending"
        )
        for number in range(count):
            name = f"o{number}"
            wrong[name] = truth.random() < 0.3
            remember(guard, order_id=name, source_trust=1.0)
            guard.decide(cancel(name))
        told = guard.labels()

    assert {one.source for one in told} == {"audited"}
    assert len(told) == pytest.approx(share * count, rel=0.15)
    assert sum(one.weight for one in told) == pytest.approx(count, rel=0.15)
    rate = sum(one.weight for one in told if one.is_violated) / sum(one.weight for one in told)
    assert rate == pytest.approx(sum(wrong.values()) / count, abs=0.06)


def test_whose_memory_a_label_is_of_can_be_asked() -> None:
    with audited(lambda: 0.0) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        guard.decide(cancel())

        assert len(guard.labels(namespace=OWNER)) == 1
        assert guard.labels(namespace=("bob",)) == []
        assert guard.log(namespace=(*OWNER, "below")).decisions == 0
