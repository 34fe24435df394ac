"""Survival: how fast claims of a kind change, learned from what was found of them."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.prior import Features, LogisticPrior, logit, sigmoid
from amv.guard.survival import START_H, Aged, Survival, fit_bias, fit_survival

PRIOR = LogisticPrior()
TRUE = {"status": 1.0 / 30.0, "price": 1.0 / 300.0, "address": 1.0 / 4000.0}


def drawn(count: int, seed: int, rates: dict[str, float] = TRUE, wrong: float = 0.01) -> list[Aged]:
    """Return claims of known hazards, each seen once at a random age."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        kind = draw.choice(list(rates))
        age_h = draw.expovariate(1.0 / 100.0)
        p = 1.0 - (1.0 - wrong) * math.exp(-rates[kind] * age_h)
        found.append(Aged(Features(age_h=age_h, trust=0.8), kind, draw.random() < p))
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hazards_of_known_truth_are_found_again(seed: int) -> None:
    found = fit_survival(drawn(3000, seed), PRIOR)

    for kind, rate in TRUE.items():
        assert 0.6 < found.kinds[kind] / rate < 1.6


def test_a_kind_that_was_seen_seldom_is_pulled_to_all_together() -> None:
    """One change after an hour is no reason to think that a kind changes hourly."""
    common = drawn(1500, 4, {"price": 1.0 / 300.0})
    once = Aged(Features(age_h=1.0, trust=0.8), "rare", True)
    found = fit_survival([*common, once], PRIOR)

    assert found.hazard is not None
    assert found.hazard < found.kinds["rare"] < 2.0 * found.hazard
    assert found.of("never seen") == found.hazard


def test_a_kind_that_was_seen_often_is_not_held_back() -> None:
    """Or the gate believes of it for weeks what was outdated within hours."""
    common = drawn(1500, 4, {"price": 1.0 / 4000.0})
    often = drawn(200, 5, {"fast": 1.0 / 5.0})
    found = fit_survival([*common, *often], PRIOR)

    assert found.kinds["fast"] == pytest.approx(1.0 / 5.0, rel=0.5)
    assert found.kinds["price"] == pytest.approx(1.0 / 4000.0, rel=0.5)


def test_with_next_to_nothing_seen_all_are_near_where_they_start() -> None:
    found = fit_survival([Aged(Features(age_h=0.0, trust=0.8), "a", False)], PRIOR)

    assert found.hazard == pytest.approx(START_H, rel=1e-3)
    assert found.kinds["a"] == pytest.approx(START_H, rel=1e-3)


def test_a_weight_counts_as_so_many_claims() -> None:
    one = drawn(200, 5)
    twice = fit_survival([*one, *one], PRIOR)
    heavy = fit_survival([claim._replace(weight=2.0) for claim in one], PRIOR)

    assert heavy.kinds == pytest.approx(twice.kinds, rel=1e-6)
    assert heavy.bias == pytest.approx(twice.bias, abs=1e-6)


def test_the_bias_says_how_much_more_often_all_are_wrong() -> None:
    """At age 0 nothing else can say so."""
    draw = random.Random(6)
    fresh = Features(age_h=0.0, trust=0.8)
    p = sigmoid(logit(PRIOR(fresh)) + 3.0)
    seen = [Aged(fresh, "a", draw.random() < p) for _ in range(4000)]

    assert fit_bias(seen, PRIOR).bias == pytest.approx(3.0, abs=0.3)
    assert fit_survival(seen, PRIOR).bias == pytest.approx(3.0, abs=0.3)


def test_without_hazards_the_published_ramp_holds() -> None:
    features = Features(age_h=720.0, trust=0.8)

    assert Survival()(PRIOR, features, "any") == PRIOR(features)
    moved = Survival(bias=1.0)(PRIOR, features, "any")
    assert moved == pytest.approx(sigmoid(logit(PRIOR(features)) + 1.0))
    assert Survival().of("any") is None


@given(
    age_h=st.floats(0.0, 1e6),
    more_h=st.floats(0.0, 1e6),
    rate=st.floats(1e-7, 10.0),
    bias=st.floats(-8.0, 8.0),
)
def test_older_is_never_likelier_to_be_right(
    age_h: float, more_h: float, rate: float, bias: float
) -> None:
    """Otherwise an old memory would be checked less than a fresh one."""
    learned = Survival(hazard=rate, bias=bias)
    p, later = (
        learned(PRIOR, Features(age_h=age, trust=0.8), "a") for age in (age_h, age_h + more_h)
    )

    assert 0.001 <= p <= later <= 0.999


def test_of_half_a_life_half_are_wrong() -> None:
    learned = Survival(hazard=1.0, kinds={"slow": math.log(2.0) / 500.0}, bias=-30.0)

    p = learned(PRIOR, Features(age_h=500.0, trust=0.8), "slow")

    assert p == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    "bad",
    [
        {"kinds": {"a": 1.0}},
        {"hazard": 0.0},
        {"hazard": -1.0},
        {"hazard": math.inf},
        {"hazard": math.nan},
        {"hazard": 1.0, "kinds": {"a": 0.0}},
        {"bias": math.nan},
        {"bias": math.inf},
    ],
)
def test_what_is_no_hazard_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Survival(**bad)


def test_a_fit_that_does_not_settle_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amv.guard.survival._ROUNDS", 1)

    once = fit_survival(drawn(500, 7), PRIOR)

    assert once.kinds["status"] > once.kinds["address"]
