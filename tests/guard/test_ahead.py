"""Look-ahead: near the exact plan, and of a size that can be afforded."""

from dataclasses import replace

import numpy as np
import pytest

from amv.guard import ahead
from amv.guard.ahead import EXACT_MAX, default, lookahead
from amv.guard.belief import independent
from amv.guard.loss import Prices
from amv.guard.plan import Problem, Verdict, check_of, exact, policy_value, work_of
from bench.planner_cases import instance, mixed, sized, wide
from tests.guard.brute import small

INSTANCES = 300


def regret(problem: Problem) -> float:
    """Return what following look-ahead loses more than the best plan, as a share of that."""
    best = exact(problem).expected_loss
    return (policy_value(problem, lookahead) - best) / max(best, 1e-12)


def test_look_ahead_is_near_the_exact_plan() -> None:
    """Of decisions as they come, and of the odd ones of every kind that the exact plan takes."""
    usual = [regret(instance(np.random.default_rng([s, 3]), 4)) for s in range(INSTANCES)]
    odd = [regret(small(np.random.default_rng([s, 4])).problem()) for s in range(INSTANCES)]
    doubtful = [regret(wide(np.random.default_rng([s, 5]), 3)) for s in range(INSTANCES // 3)]
    uneven = [regret(mixed(np.random.default_rng([s, 7]))) for s in range(INSTANCES // 3)]

    for drawn in (usual, odd, doubtful, uneven):
        assert min(drawn) > -1e-9
        assert np.mean(drawn) < 0.01
        assert max(drawn) < 0.1


def test_a_check_that_often_errs_is_not_asked_before_those_that_may_do() -> None:
    """To refute an action that is right is no find; taken for one it cost a quarter more here."""
    checks = [(0.1, 1.0, 1.0), (0.3, 0.9, 0.7), (0.1, 0.99, 0.9), (0.1, 1.0, 0.7)]
    problem = Problem(
        belief=independent([0.1, 0.12, 0.1, 0.02]),
        thetas=(10.0, 1.0, 10.0, 2.8),
        prices=Prices(abstain=20.0, harm_max=0.05),
        checks=tuple(
            check_of(f"v{i}", [i], 4, cost=c, sensitivity=s, specificity=t)
            for i, (c, s, t) in enumerate(checks)
        ),
    )

    assert regret(problem) < 0.01


def test_the_default_is_exact_where_that_is_affordable() -> None:
    affordable = sized(np.random.default_rng(0), 4, 4)
    large = sized(np.random.default_rng(0), 8, 12)

    assert work_of(affordable) <= EXACT_MAX < work_of(large)
    assert default(affordable) == exact(affordable)
    assert default(large).planner == "lookahead"


def test_the_largest_decisions_are_planned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many pairs of answers only the first answer is gone into, and the chain after it."""
    problem = sized(np.random.default_rng(1), 4, 6)
    deep = lookahead(problem)
    monkeypatch.setattr(ahead, "AHEAD_MAX", 0)
    flat = lookahead(problem)

    assert flat.check is not None
    assert flat.expected_loss >= deep.expected_loss - 1e-9
    assert policy_value(problem, lookahead) >= exact(problem).expected_loss - 1e-9


def test_checks_of_many_premises_each_fit_into_memory() -> None:
    """Pairs of their answers would not: four checks of 257 answers each, of 256 states."""
    problem = Problem(
        belief=independent([0.1] * 8),
        thetas=(50.0,) * 8,
        prices=Prices(abstain=2.0),
        checks=tuple(
            check_of(
                f"v{number}",
                range(8),
                8,
                cost=0.1,
                sensitivity=0.95,
                specificity=0.95,
                inconclusive=0.1,
            )
            for number in range(4)
        ),
    )

    assert default(problem).verdict is Verdict.VERIFY


def test_nothing_to_check_is_nothing_to_look_ahead_to() -> None:
    problem = Problem(belief=independent([0.1]), thetas=(1.0,), prices=Prices(abstain=2.0))

    assert lookahead(problem).planner == "lookahead"
    assert lookahead(problem).check is None


@pytest.mark.parametrize("number", [790, 372, 348])
def test_after_a_refutation_what_else_may_be_wrong_is_still_checked(number: int) -> None:
    """A repaired action is decided afresh; the chain that stopped there lost up to 17 % here."""
    assert regret(instance(np.random.default_rng([1, number]))) <= 0.05


def test_what_may_be_misread_is_looked_ahead_to_as_well() -> None:
    """Of decisions that can be repaired by what is put into the call."""
    cases = [instance(np.random.default_rng([s, 5]), 4) for s in range(INSTANCES)]
    mended = [replace(one, mended=(1 << len(one.thetas)) - 1) for one in cases if one.prices.repair]
    lost = [regret(one) for one in mended]

    assert len(lost) > INSTANCES / 5
    assert min(lost) > -1e-9
    assert np.mean(lost) < 0.01
    assert max(lost) < 0.1
