"""Losses and the three regimes of one premise."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.loss import Prices, check_informative, check_price, check_probability, regimes

TABLE = [
    (0.2, 1, 0.05, 0.9, 1.72222, 34.5),
    (0.1, 1, 0.02, 0.95, 1.68421, 168),
    (0.3, 2, 0.1, 0.8, 3.58333, 19),
    (0.4, 1, 0.5, 0.9, 2.5, 2.5),
]

BAD_PRICES = [math.nan, math.inf, -math.inf, -0.1, True, "1"]
BAD_PROBABILITIES = [math.nan, math.inf, -0.1, 1.1, True, "0.5", None]

shares = st.floats(min_value=0.0, max_value=1.0)
prices = st.floats(min_value=0.001, max_value=10.0)


def losses(
    theta: float, p: float, kappa: float, price: float, s: float, t: float, repair: float | None
) -> tuple[float, float]:
    """Return what is lost by the best stop, and by checking once and then stopping at best."""
    rho = math.inf if repair is None else repair
    refuted, confirmed = p * s + (1 - p) * (1 - t), p * (1 - s) + (1 - p) * t
    after_refuting = min(p * s * theta, kappa * refuted, rho * refuted)
    after_confirming = min(p * (1 - s) * theta, kappa * confirmed)
    return min(p * theta, kappa), price + after_refuting + after_confirming


@pytest.mark.parametrize(("p", "kappa", "cost", "right", "one", "two"), TABLE)
def test_the_table_of_the_design(
    p: float, kappa: float, cost: float, right: float, one: float, two: float
) -> None:
    """Published figures: whoever knows them finds them again."""
    found = regimes(p=p, abstain_cost=kappa, verify_cost=cost, sensitivity=right, specificity=right)

    assert found == pytest.approx((one, two), rel=5e-6)


def test_sensitivity_and_specificity_are_two_things() -> None:
    """A check that never confirms what is wrong verifies any loss, however high."""
    found = regimes(p=0.2, abstain_cost=1, verify_cost=0.05, sensitivity=1.0, specificity=0.8)

    # (1 - m) = 0.2 + 0.8 * 0.2, and one = ((1 - m) kappa + c) / (p s).
    assert found == pytest.approx((2.05, math.inf))


def test_repairing_makes_checking_pay_earlier_and_longer() -> None:
    plain = regimes(p=0.2, abstain_cost=1, verify_cost=0.05, sensitivity=0.9, specificity=0.9)
    repaired = regimes(
        p=0.2, abstain_cost=1, verify_cost=0.05, sensitivity=0.9, specificity=0.9, repair_cost=0.9
    )

    assert repaired[0] < plain[0]
    assert repaired[1] > plain[1]


@pytest.mark.parametrize("p", [0.0, 5e-324])
def test_what_can_not_be_wrong_is_always_executed(p: float) -> None:
    found = regimes(p=p, abstain_cost=1, verify_cost=0.1, sensitivity=0.4, specificity=0.9)

    assert found == (math.inf, math.inf)


def test_what_is_surely_wrong_is_only_checked_to_repair_it() -> None:
    """Without repair the answer is known before, so that only kappa matters."""
    plain = regimes(p=1.0, abstain_cost=2, verify_cost=0.1, sensitivity=0.9, specificity=0.9)
    repaired = regimes(
        p=1.0, abstain_cost=2, verify_cost=0.1, sensitivity=0.9, specificity=0.9, repair_cost=0.5
    )

    assert plain == (2.0, 2.0)
    assert repaired == pytest.approx((0.5 + 0.1 / 0.9, math.inf))


@settings(deadline=None, max_examples=500)
@given(
    p=shares,
    kappa=prices,
    price=st.floats(min_value=0.0, max_value=5.0),
    s=shares,
    t=shares,
    repair=st.none() | prices,
    scale=st.floats(min_value=0.01, max_value=100.0),
)
def test_regimes_are_those_of_comparing_every_plan(
    p: float, kappa: float, price: float, s: float, t: float, repair: float | None, scale: float
) -> None:
    """The closed form is right where stopping and checking, worked out one by one, say so."""
    if s + t <= 1.0 + 1e-9:
        return
    one, two = regimes(
        p=p,
        abstain_cost=kappa,
        verify_cost=price,
        sensitivity=s,
        specificity=t,
        repair_cost=repair,
    )

    assert one <= two
    grid = [kappa * scale, one * 0.99, one * 1.01, two * 0.99, two * 1.01, (one + two) / 2]
    for theta in grid:
        if not theta < 1e12:
            continue
        stopping, checking = losses(theta, p, kappa, price, s, t, repair)
        slack = 1e-9 * max(1.0, kappa, price)
        if one < theta < two:
            assert checking <= stopping + slack
        else:
            assert stopping <= checking + slack
        if theta < one:
            assert p * theta <= kappa + slack
        if theta > two:
            assert kappa <= p * theta + slack


@pytest.mark.parametrize("p", BAD_PROBABILITIES)
def test_what_is_no_probability_is_refused(p: float) -> None:
    fine = {
        "p": 0.5,
        "abstain_cost": 1.0,
        "verify_cost": 0.1,
        "sensitivity": 0.9,
        "specificity": 0.9,
    }
    for name in ("p", "sensitivity", "specificity"):
        with pytest.raises(InvalidInput, match=f"{name} must be a probability"):
            regimes(**{**fine, name: p})
    with pytest.raises(InvalidInput):
        check_probability(p, "it")


@pytest.mark.parametrize("price", BAD_PRICES)
def test_what_is_no_price_is_refused_by_its_name(price: float) -> None:
    """A loss of infinity would make every other number meaningless."""
    fine = {"p": 0.5, "abstain_cost": 1.0, "verify_cost": 0.1, "repair_cost": 0.2}
    for name in ("abstain_cost", "verify_cost", "repair_cost"):
        with pytest.raises(InvalidInput, match=f"{name} must be at least 0 and finite"):
            regimes(**{**fine, name: price}, sensitivity=0.9, specificity=0.9)
    with pytest.raises(InvalidInput, match="abstain"):
        Prices(abstain=price)
    with pytest.raises(InvalidInput, match="repair"):
        Prices(abstain=1.0, repair=price)
    with pytest.raises(InvalidInput, match="check_weight"):
        Prices(abstain=1.0, check_weight=price)
    with pytest.raises(InvalidInput):
        check_price(price, "it")


@pytest.mark.parametrize(
    ("field", "value"),
    [("risk_max", -1.0), ("risk_max", math.nan), ("harm_max", 1.5), ("harm_max", math.nan)],
)
def test_a_screen_that_is_none_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        Prices(abstain=1.0, **{field: value})


@pytest.mark.parametrize(("s", "t"), [(0.5, 0.5), (0.2, 0.8), (0.0, 1.0), (0.3, 0.3)])
def test_a_verifier_no_better_than_chance_is_refused(s: float, t: float) -> None:
    """Entered by hand this is a slip: it would tell the opposite of what it says, or nothing."""
    with pytest.raises(InvalidInput, match="sensitivity \\+ specificity > 1"):
        check_informative(s, t)


def test_stopping_executes_only_within_the_screen() -> None:
    prices = Prices(abstain=2.0, risk_max=1.0, harm_max=0.1)

    assert prices.critical_above == 1.0
    assert prices.stopping_value(0.9, 0.1) == 0.9
    assert prices.stopping_value(1.1, 0.1) == 2.0
    assert prices.stopping_value(0.9, 0.11) == 2.0


def test_a_risk_that_is_no_number_never_executes() -> None:
    prices = Prices(abstain=2.0)

    assert not prices.may_execute(math.nan, 0.0)
    assert not prices.may_execute(0.0, math.nan)
