"""Planning: the exact plan against every history, and the others against the exact one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.ahead import lookahead
from amv.guard.baselines import always_verify
from amv.guard.belief import independent
from amv.guard.loss import Prices
from amv.guard.plan import (
    Check,
    Problem,
    Verdict,
    check_of,
    exact,
    myopic,
    policy_value,
    stop,
    work_of,
)
from tests.guard.brute import small

INSTANCES = 300
seeds = st.integers(0, 1 << 32)


def problem(p: list[float], checks: list[Check], **prices: Any) -> Problem:
    """Return a problem of premises that lose 10 each, without a screen unless one is given."""
    return Problem(
        belief=independent(p),
        thetas=(10.0,) * len(p),
        prices=Prices(**{"abstain": 2.0, "harm_max": 1.0, **prices}),
        checks=tuple(checks),
    )


def perfect(premises: list[int], n: int, cost: float = 0.1, **more: Any) -> Check:
    name = f"v{premises}"
    return check_of(name, premises, n, cost=cost, sensitivity=1.0, specificity=1.0, **more)


TWO = problem([0.3, 0.3], [perfect([0], 2), perfect([1], 2)])


def test_the_exact_plan_is_that_of_going_through_every_history() -> None:
    """In fractions, with groups, checks that tell nothing, repair and screens among them."""
    verified = 0
    for seed in range(INSTANCES):
        case = small(np.random.default_rng([seed, 1]))
        plan = exact(case.problem())
        verified += plan.verdict is Verdict.VERIFY

        assert plan.expected_loss == pytest.approx(float(case.best()), rel=1e-9), seed
    assert INSTANCES / 4 < verified < INSTANCES


def test_following_the_exact_plan_loses_what_it_says() -> None:
    for seed in range(50):
        case = small(np.random.default_rng([seed, 2])).problem()

        assert policy_value(case, exact) == pytest.approx(exact(case).expected_loss, rel=1e-9)


def test_an_outcome_that_can_not_be_is_not_followed() -> None:
    sure = replace(TWO, belief=np.asarray([1.0, 0.0, 0.0, 0.0]))

    assert policy_value(sure, always_verify) == pytest.approx(0.2)


def test_two_premises_are_checked_though_no_single_check_pays() -> None:
    """The example for which one step ahead is not enough."""
    plan = exact(TWO)

    assert plan.verdict is Verdict.VERIFY
    # 0.1, then with 0.7 another 0.1, then with 0.51 abstaining at 2.
    assert plan.expected_loss == pytest.approx(0.1 + 0.7 * 0.1 + 0.51 * 2.0)
    assert policy_value(TWO, exact) == pytest.approx(1.19)
    assert myopic(TWO).verdict is Verdict.ABSTAIN
    assert policy_value(TWO, myopic) == pytest.approx(2.0)


def test_a_check_of_two_premises_tells_of_both() -> None:
    both = problem([0.3, 0.3], [perfect([0, 1], 2)])

    assert myopic(both).check == 0
    assert myopic(both).expected_loss == pytest.approx(0.1 + 0.51 * 2.0)


@settings(deadline=None)
@given(seeds)
def test_checking_never_hurts_without_a_screen(seed: int) -> None:
    """Gross value of information: what a check is worth before its price."""
    case = small(np.random.default_rng(seed)).problem()
    case = replace(case, prices=replace(case.prices, risk_max=math.inf, harm_max=1.0))
    prices = [case.prices.check_weight * check.cost for check in case.checks]
    for plan in (exact(case), myopic(case)):
        gross = [
            plan.stopping - value + price for value, price in zip(plan.checked, prices, strict=True)
        ]

        assert all(worth >= -1e-9 for worth in gross)


@settings(deadline=None)
@given(seeds)
def test_more_or_cheaper_verifiers_never_hurt(seed: int) -> None:
    case = small(np.random.default_rng(seed)).problem()
    if not case.checks:
        return
    fewer = replace(case, checks=case.checks[1:])
    cheaper = replace(case, checks=(replace(case.checks[0], cost=0.0), *case.checks[1:]))

    # A group's checks shut each other out, but nobody need make the first.
    assert exact(case).expected_loss <= exact(fewer).expected_loss + 1e-9
    assert exact(cheaper).expected_loss <= exact(case).expected_loss + 1e-9


def test_of_one_group_the_second_answer_is_not_asked() -> None:
    """The same source asked twice would be believed twice."""
    twice = [perfect([0], 1, group="api"), perfect([0], 1, group="api", inconclusive=0.5)]
    case = problem([0.3], twice)

    assert case.after(0, 0, case.belief).checks == ()
    # What told nothing leaves the others of its group open.
    assert case.after(1, 2, case.belief).checks == (twice[0],)


def test_a_refuted_action_is_repaired_where_that_is_cheaper() -> None:
    case = problem([0.3], [perfect([0], 1)], repair=0.5)
    plan = exact(case)
    refuted = case.after(0, 1, np.asarray([0.0, 1.0]))

    assert plan.expected_loss == pytest.approx(0.1 + 0.3 * 0.5)
    assert stop(refuted, "it").verdict is Verdict.REPAIR
    # Nothing was read before, so that nothing can be put right.
    assert stop(case, "it").verdict is Verdict.ABSTAIN


def test_a_repaired_action_is_decided_afresh() -> None:
    """What else is doubtful is not repaired with it, so that is checked before, or it is left."""
    checks = [perfect([0], 2), perfect([1], 2)]
    both, one = (problem([0.5, 0.5], c, repair=0.5) for c in (checks, checks[:1]))
    refuted = independent([1.0, 0.5])

    plan = exact(both.after(0, 1, refuted))
    assert plan.verdict is Verdict.VERIFY
    assert plan.expected_loss == pytest.approx(0.1 + 0.5)
    assert stop(one.after(0, 1, refuted), "it").verdict is Verdict.ABSTAIN
    assert lookahead(both.after(0, 1, refuted)).expected_loss == plan.expected_loss


def test_what_may_have_been_misread_is_not_put_into_the_call() -> None:
    """It is wrong where what it refutes still holds; that of another plan does not rest on it."""
    weak, strong = (
        check_of(name, [0], 1, cost=0.1, sensitivity=0.9, specificity=t)
        for name, t in (("weak", 0.9), ("strong", 0.999))
    )
    case = problem([0.1], [weak, strong], repair=0.5)
    in_call = replace(case, mended=1)
    doubtful, sure = independent([0.5]), independent([0.98])

    assert stop(in_call.after(0, 1, doubtful), "it").verdict is Verdict.ABSTAIN
    assert exact(in_call.after(0, 1, doubtful)).verdict is Verdict.VERIFY
    assert stop(in_call.after(0, 1, sure), "it").verdict is Verdict.REPAIR
    assert stop(case.after(0, 1, doubtful), "it").verdict is Verdict.REPAIR


def test_a_screen_forbids_what_would_pay() -> None:
    """And a check that could only pass the screen is worth its price for that."""
    screened = problem([0.15], [perfect([0], 1)], harm_max=0.1)

    assert stop(problem([0.15], []), "it").verdict is Verdict.PROCEED
    assert stop(screened, "it").verdict is Verdict.ABSTAIN
    assert exact(screened).verdict is Verdict.VERIFY


def test_a_check_that_gains_nothing_is_not_made() -> None:
    """Not even a free one: it would only keep the caller waiting."""
    case = problem([0.001], [perfect([0], 1, cost=0.0)])
    useless = check_of("v", [0], 1, cost=0.0, sensitivity=0.6, specificity=0.6)

    assert exact(case).verdict is Verdict.VERIFY
    assert exact(replace(case, checks=(useless,))).verdict is Verdict.PROCEED


def test_without_checks_planning_is_stopping() -> None:
    case = problem([0.1], [])

    assert exact(case) == stop(case, "exact")
    assert myopic(case) == stop(case, "myopic")


def test_without_premises_an_action_proceeds() -> None:
    assert exact(problem([], [])).verdict is Verdict.PROCEED


def test_work_is_histories_times_states() -> None:
    assert work_of(TWO) == 3 * 3 * 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"thetas": (math.nan,)}, "the loss of premise 0"),
        ({"thetas": (math.inf,)}, "the loss of premise 0"),
        ({"thetas": (-1.0,)}, "the loss of premise 0"),
        ({"thetas": (1.0, 1.0)}, "over 2 premises has 4 states"),
        ({"thetas": (1.0,) * 13}, "at most 12"),
        ({"belief": np.asarray([0.5, 0.4])}, "sum to 1"),
        ({"belief": np.asarray([1.5, -0.5])}, "sum to 1"),
        ({"belief": np.asarray([math.nan, 0.5])}, "sum to 1"),
        ({"checks": (perfect([0], 2),)}, "another number of premises"),
    ],
)
def test_what_is_no_problem_is_refused(fields: dict[str, Any], message: str) -> None:
    fine = {"belief": independent([0.5]), "thetas": (1.0,), "prices": Prices(abstain=1.0)}
    with pytest.raises(InvalidInput, match=message):
        Problem(**{**fine, **fields})


@pytest.mark.parametrize("cost", [-1.0, math.inf, math.nan])
def test_a_price_of_a_check_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(InvalidInput, match="must cost"):
        perfect([0], 1, cost=cost)


@pytest.mark.parametrize("table", [[[0.5, 0.5]], [[1.5, 1.0], [-0.5, 0.0]], [[math.nan, 1.0]]])
def test_outcomes_without_probabilities_are_refused(table: list[list[float]]) -> None:
    with pytest.raises(InvalidInput, match="must have probabilities"):
        replace(perfect([0], 1), likelihood=np.asarray(table))


def test_a_check_of_more_premises_than_can_be_told_apart_is_refused() -> None:
    """It has an outcome for each set of premises, and look-ahead pairs of those."""
    with pytest.raises(InvalidInput, match="at most 8 premises of an action, 'v' checks 9"):
        check_of("v", range(9), 9, cost=0.1, sensitivity=0.9, specificity=0.9)


def test_a_check_that_tells_nothing_more_often_than_possible_is_refused() -> None:
    with pytest.raises(InvalidInput, match="inconclusive"):
        perfect([0], 1, inconclusive=1.5)
