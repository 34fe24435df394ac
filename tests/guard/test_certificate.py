"""The certificate: it holds as often as it says, and says why where there is none."""

import math

import msgspec
import numpy as np
import pytest

from amv.errors import InvalidInput
from amv.guard.certificate import (
    THRESHOLDS,
    DriftAlarm,
    Instance,
    Trial,
    betting_tail,
    binomial_tail,
    certificate_of,
    certified,
    certify,
    certify_weighted,
    executions_needed,
    harm_executed,
    trials,
)
from amv.guard.judge import Case, CaseCheck, CasePremise, Evidence, Outcome
from bench.learning import DELTA, EPSILON, VIOLATIONS_MAX, Repeated, certificates

REPEATS = 1_000


@pytest.fixture(scope="module")
def repeated() -> Repeated:
    """Certify a thousand times, each on data of its own."""
    return certificates(REPEATS)


def test_a_certificate_is_wrong_no_more_often_than_it_says(repeated: Repeated) -> None:
    assert repeated.violations <= VIOLATIONS_MAX


def test_what_only_looks_good_is_wrong_more_often(repeated: Repeated) -> None:
    """The control: taking the loosest threshold under which few have harmed."""
    assert repeated.naive_violations > VIOLATIONS_MAX


def test_a_certificate_lets_most_go_ahead_that_could(repeated: Repeated) -> None:
    assert repeated.coverage >= 0.8


def test_the_tail_is_that_of_the_binomial() -> None:
    exact = sum(math.comb(60, k) * 0.05**k * 0.95 ** (60 - k) for k in range(4))

    assert binomial_tail(3, 60, 0.05) == pytest.approx(exact)
    assert binomial_tail(60, 60, 0.05) == pytest.approx(1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 0.1), (0.01, 0.05), (0.2, 0.3)])
def test_so_few_executions_are_needed_and_no_fewer(epsilon: float, delta: float) -> None:
    needed = executions_needed(epsilon, delta)

    assert binomial_tail(0, needed, epsilon) <= delta < binomial_tail(0, needed - 1, epsilon)


def test_testing_begins_where_there_are_enough_executions() -> None:
    """A threshold under which too few go ahead is passed over, whatever they did."""
    found = [Trial(0.01, 44, 44), Trial(0.02, 45, 0), Trial(0.05, 200, 3), Trial(0.1, 400, 40)]
    made = certified(found, epsilon=EPSILON, delta=DELTA, instances=500)

    assert (made.threshold, made.executed, made.harmed) == (0.05, 200, 3)
    assert made.coverage == 0.4


def test_one_harm_by_chance_does_not_end_the_row_at_its_beginning() -> None:
    """Where 64 go ahead one harm is too many, though it may be the only one of all."""
    found = [Trial(0.001, 64, 1), Trial(0.002, 104, 1), Trial(0.003, 112, 1), Trial(0.1, 300, 4)]

    assert certified(found, epsilon=EPSILON, delta=DELTA, instances=400).threshold == 0.1
    # Where no more go ahead, that is where it begins.
    assert certified(found[:1], epsilon=EPSILON, delta=DELTA, instances=400).threshold is None
    few = [Trial(0.001, 64, 0)]
    assert certified(few, epsilon=EPSILON, delta=DELTA, instances=400).threshold == 0.001


def test_the_first_that_fails_ends_the_row() -> None:
    """One that passes after it may do so by luck, which nothing corrects for."""
    found = [Trial(0.01, 120, 0), Trial(0.02, 200, 30), Trial(0.05, 2000, 30)]

    assert certified(found, epsilon=EPSILON, delta=DELTA, instances=2000).threshold == 0.01


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], "at most 0 actions go ahead, and a bound needs 45"),
        ([Trial(0.1, 44, 0)], "at most 44 actions go ahead, and a bound needs 45"),
        ([Trial(0.1, 100, 50)], "too many of those that go ahead under the strictest"),
    ],
)
def test_where_nothing_is_certified_it_says_why(found: list[Trial], why: str) -> None:
    made = certified(found, epsilon=EPSILON, delta=DELTA, instances=0)

    assert made.threshold is None
    assert made.why.startswith(why)
    assert made.coverage == 0.0


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan])
def test_bounds_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        certify([], epsilon=value, delta=0.1)
    with pytest.raises(InvalidInput, match="delta"):
        certify_weighted([], epsilon=0.1, delta=value)
    with pytest.raises(InvalidInput, match="delta"):
        certified([], epsilon=0.1, delta=value, instances=0)
    with pytest.raises(InvalidInput, match="epsilon"):
        DriftAlarm(value)


def instance(
    p: float, is_harmful: bool, outcome: Outcome = "confirmed", weight: float = 1.0
) -> Instance:
    """Return an action of one premise and a free check, with what that would have found."""
    check = CaseCheck(
        name="look", premises=(0,), cost=0.0, sensitivity=0.9, specificity=0.9, group="look"
    )
    return Instance(
        case=Case(
            premises=(CasePremise(name="p", p=p, theta=2.0),),
            checks=(check,),
            abstain=1.0,
            harm_max=0.05,
        ),
        answers={"look": Evidence(check="look", outcomes=(outcome,))},
        is_harmful=is_harmful,
        weight=weight,
    )


def test_an_instance_is_replayed_with_its_own_answers() -> None:
    """A threshold decides which checks are made, and so which answers matter."""
    fine, wrong = instance(0.1, False), instance(0.1, True, "refuted")

    # 0.1 * 0.1 / (0.1 * 0.1 + 0.9 * 0.9): the check confirmed it.
    assert harm_executed(fine, 0.05) == pytest.approx(CONFIRMED)
    assert harm_executed(wrong, 0.05) is None
    assert harm_executed(fine, 0.001) is None
    none, one = trials([fine, wrong], [0.001, 0.05])
    assert none == Trial(0.001, 0, 0, 0.0)
    assert one[:3] == (0.05, 1, 0)
    assert one.largest == pytest.approx(CONFIRMED)


CONFIRMED = 1 / 82
"""H of an instance of p = 0.1 whose check has confirmed it."""


def test_instances_are_certified() -> None:
    some = [instance(0.1, False)] * 60 + [instance(0.3, True)] * 20
    made = certify(some, epsilon=EPSILON, delta=DELTA, thresholds=[0.001, 0.02, 0.2])

    assert (made.executed, made.harmed, made.instances) == (60, 0, 80)
    assert made.threshold == pytest.approx(CONFIRMED)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 2.0)])
def test_no_screen_is_certified_at_which_nothing_went_ahead(weights: tuple[float, float]) -> None:
    """Every threshold looser than all that was seen passes, and tells nothing."""
    some = [instance(p, False, weight=w) for p, w in zip((0.05, 0.1), weights, strict=True)] * 400
    made = certificate_of(some, epsilon=EPSILON, delta=DELTA)

    assert THRESHOLDS[-1] > 0.1
    assert max(harm_executed(one, THRESHOLDS[-1]) or 0.0 for one in some[:2]) == 0.1
    assert (made.threshold, made.executed) == (0.1, 800)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 2.0)])
def test_one_idempotency_key_is_one_action(weights: tuple[float, float]) -> None:
    """It is granted once, however often it is tried; a certificate of retries is none."""
    retries = [
        msgspec.structs.replace(instance(0.1, False, weight=w), key="k") for w in weights
    ] * 100
    others = [instance(0.1, False)] * 2

    assert trials(retries + others, [0.05])[0].executed == 3
    assert certificate_of(retries, epsilon=EPSILON, delta=DELTA).threshold is None


def test_weights_that_differ_have_no_binomial() -> None:
    some = [instance(0.1, False), instance(0.1, False, weight=2.0)]

    with pytest.raises(InvalidInput, match="use certify_weighted"):
        certify(some, epsilon=EPSILON, delta=DELTA)


def test_weighted_instances_are_certified() -> None:
    some = [instance(0.1, False, weight=1.0 + n % 2) for n in range(200)]
    bad = [instance(0.3, True) for _ in range(100)]
    made = certify_weighted(some + bad, epsilon=EPSILON, delta=DELTA, thresholds=[0.2, 0.001, 0.02])

    assert (made.executed, made.harmed, made.instances) == (200, 0, 300)
    assert made.threshold == pytest.approx(CONFIRMED)


def test_where_no_weighted_bound_holds_it_says_so() -> None:
    made = certify_weighted([instance(0.1, True)] * 60, epsilon=EPSILON, delta=DELTA)

    assert made.threshold is None
    assert made.why == "the weighted bound holds under no threshold"
    assert certify_weighted([], epsilon=EPSILON, delta=DELTA).threshold is None


def test_the_bound_by_betting_holds() -> None:
    """Of weighted harms whose mean is exactly the bound, one in ten at most seems below it."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(REPEATS):
        weights = rng.choice([0.25, 1.0], 300)
        is_harmful = rng.random(300) < EPSILON
        shifted = weights * (is_harmful - EPSILON) + EPSILON
        wrong += betting_tail(shifted.tolist(), EPSILON) <= DELTA

    assert wrong <= VIOLATIONS_MAX


def test_the_bound_by_betting_is_reached() -> None:
    assert betting_tail([0.0] * 200, EPSILON) <= DELTA
    assert betting_tail([], EPSILON) == 1.0


def test_harms_that_come_late_count_as_well() -> None:
    """A log is in the order of time; what was certified before a change must not stay so."""
    assert betting_tail([0.0] * 200 + [1.0] * 100, EPSILON) == 1.0


def alarmed_after(harm: float, executions: int, rng: np.random.Generator) -> int | None:
    """Return after how many executions the alarm was raised, if it was."""
    alarm = DriftAlarm(EPSILON)
    for number, is_harmful in enumerate((rng.random(executions) < harm).tolist(), start=1):
        if alarm.note(is_harmful):
            return number
    return None


def test_drift_raises_the_alarm_soon() -> None:
    rng = np.random.default_rng(8)
    after = [alarmed_after(0.3, 500, rng) for _ in range(100)]

    assert None not in after
    assert np.median([number for number in after if number]) < 150


def test_without_drift_the_alarm_is_rare() -> None:
    """Once in a thousand executions at most, on average: in 200, for one in five at most."""
    rng = np.random.default_rng(9)
    raised = [alarmed_after(EPSILON, 200, rng) for _ in range(300)]

    assert sum(number is not None for number in raised) <= 300 * 0.2
