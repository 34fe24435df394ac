"""Labels: which checks count, of which claims."""

from typing import Any

import pytest

import amv
from amv.guard.calibration import PRIOR
from amv.loading import load_policy

NS = ("a",)
POLICY: dict[str, Any] = {
    "version": 1,
    "verifiers": {"desk": {"cost": 0.01}, "phone": {"cost": 0.02}},
    "actions": {
        "cancel": {
            "loss": {"wrong": 1000, "abstain": 5},
            "rests_on": {
                "status": {
                    "claim": "order/{id}/status",
                    "require": "pending",
                    "verify_with": ["desk", "phone"],
                }
            },
        }
    },
}
CANCEL = amv.Action(tool="cancel", arguments={"id": "1"}, namespace=NS)


@pytest.fixture
def memory() -> Any:
    with amv.Memory.open(":memory:", embedder="hashing") as found:
        yield found


def guard_of(memory: amv.Memory, *answers: object) -> amv.Guard:
    guard, left = amv.Guard(load_policy(POLICY), memory), list(answers)
    for name in ("desk", "phone"):
        guard.verifier(name)(lambda id: left.pop(0))
    return guard


def remember(memory: amv.Memory, value: str = "pending", trust: float = 0.6) -> None:
    claim = amv.Claim("order/1", "status", value)
    memory.add("x", namespace=NS, claim=claim, source_trust=trust)


@pytest.mark.parametrize(("read", "is_violated"), [("pending", False), ("delivered", True)])
def test_the_first_check_that_tells_something_is_the_label(
    memory: amv.Memory, read: str, is_violated: bool
) -> None:
    remember(memory)
    guard = guard_of(memory, None, read, read)
    decision = guard.decide(CANCEL)

    (told,) = guard.labels()
    assert told.calibration == PRIOR
    assert told.label.p == decision.premises[0].before
    assert told.label.is_violated is is_violated


def test_what_nobody_checked_or_ruled_makes_no_label(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, None, None)
    guard.decide(CANCEL)
    guard.decide(amv.Action(tool="unknown", namespace=NS))

    assert guard.labels() == []


@pytest.mark.parametrize(("value", "trust"), [("delivered", 0.9), ("pending", 0.1), (None, 0.9)])
def test_what_was_given_no_probability_of_its_own_makes_no_label(
    memory: amv.Memory, value: str | None, trust: float
) -> None:
    """Unknown, of an untrusted source, or no support of the action."""
    if value is not None:
        remember(memory, value, trust)
    guard = guard_of(memory, "pending", "pending")
    state = guard.decide(CANCEL, run_checks=False)
    if state.check is not None:
        guard.evidence(state.id, state.check.verifier, "pending")

    assert guard.labels() == []


def test_a_claim_that_did_not_support_its_action_makes_no_label(memory: amv.Memory) -> None:
    """It was checked, but what was said of it is not that it is wrong."""
    remember(memory, "delivered", 0.9)
    rules = load_policy({**POLICY, "defaults": {"planner": "always_verify"}})
    guard = amv.Guard(rules, memory)
    guard.verifier("desk")(lambda id: "delivered")
    guard.decide(CANCEL)

    assert guard.decisions()[0][1].values == {"status": "delivered"}
    assert guard.labels() == []


def test_the_number_of_a_decision_that_is_not_there_is_told(memory: amv.Memory) -> None:
    guard = guard_of(memory)
    first = guard.decide(CANCEL).id

    assert guard.number_of(first) == 1
    with pytest.raises(amv.ItemNotFound):
        guard.number_of("none")


def test_what_was_forgotten_makes_no_label(memory: amv.Memory) -> None:
    remember(memory)
    guard = guard_of(memory, "pending", "pending")
    guard.decide(CANCEL)
    assert len(guard.labels()) == 1

    memory.forget_namespace(NS)

    assert guard.labels() == []
