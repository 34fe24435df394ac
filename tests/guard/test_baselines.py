"""Baselines: each does what its name says, and no more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.guard.baselines import (
    PLANNERS,
    always_proceed,
    always_verify,
    env_probe,
    naive_voi,
    static_threshold,
    ttl,
)
from amv.guard.belief import independent
from amv.guard.loss import Prices
from amv.guard.plan import Planner, Problem, Verdict, check_of, exact, policy_value
from bench.planner_cases import instance
from tests.guard.brute import small


def problem(p: list[float], checked: tuple[int, ...] = (0, 1), **more: Any) -> Problem:
    """Return a problem with a check of each premise named."""
    return Problem(
        belief=independent(p),
        thetas=(10.0,) * len(p),
        prices=Prices(abstain=2.0, harm_max=0.05),
        checks=tuple(
            check_of(f"v{i}", [i], len(p), cost=0.1, sensitivity=0.9, specificity=0.9)
            for i in checked
        ),
        **more,
    )


UNCHECKED = problem([0.6, 0.3], ())


def test_always_proceed_does() -> None:
    assert always_proceed(problem([0.99, 0.99])).verdict is Verdict.PROCEED


def test_always_verify_makes_every_check_and_then_stops_as_the_screen_says() -> None:
    assert always_verify(problem([0.001, 0.001])).check == 0
    assert always_verify(problem([0.001, 0.001], ())).verdict is Verdict.PROCEED
    assert always_verify(UNCHECKED).verdict is Verdict.ABSTAIN


def test_static_threshold_checks_what_is_likely_wrong() -> None:
    assert static_threshold(problem([0.5, 0.5])).verdict is Verdict.PROCEED
    assert static_threshold(problem([0.1, 0.6])).check == 1
    assert static_threshold(UNCHECKED).verdict is Verdict.ABSTAIN


def test_env_probe_looks_twice_at_what_is_least_certain() -> None:
    assert env_probe(problem([0.1, 0.45])).check == 1
    assert env_probe(problem([0.9, 0.001])).check == 0
    assert env_probe(problem([0.1, 0.45], made=2)).verdict is Verdict.ABSTAIN
    assert env_probe(UNCHECKED).verdict is Verdict.ABSTAIN


def test_ttl_goes_by_age_until_it_has_checked() -> None:
    assert ttl(problem([0.9, 0.9], ages_h=(1.0, 24.0))).verdict is Verdict.PROCEED
    assert ttl(problem([0.1, 0.1], ages_h=(1.0, 25.0))).check == 1
    assert ttl(problem([0.1, 0.1], (), ages_h=(1.0, 25.0))).verdict is Verdict.ABSTAIN
    assert ttl(problem([0.1, 0.1], (), ages_h=(1.0, 25.0), made=1)).verdict is Verdict.PROCEED
    # What its checks have refuted does not go ahead.
    assert ttl(problem([0.1, 0.9], (), ages_h=(1.0, 25.0), made=1)).verdict is Verdict.ABSTAIN


def test_where_no_check_tells_of_the_premise_any_is_made() -> None:
    """The one asked for has no verifier; that of another premise is what there is."""
    assert static_threshold(problem([0.1, 0.6], (0,))).check == 0


def test_where_checks_tell_of_nothing_the_first_is_made() -> None:
    deaf = check_of("v", [], 1, cost=0.0, sensitivity=0.9, specificity=0.9)

    assert static_threshold(replace(problem([0.6], (0,)), checks=(deaf,))).check == 0


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_naive_rule_never_verifies(seed: int) -> None:
    """The expected risk after a check is the risk before: such a rule checks nothing, ever."""
    for case in (
        small(np.random.default_rng(seed)).problem(),
        instance(np.random.default_rng(seed), 3),
    ):
        free = replace(case, prices=replace(case.prices, check_weight=0.0))

        assert naive_voi(case).verdict is not Verdict.VERIFY
        assert naive_voi(free).verdict is not Verdict.VERIFY


@pytest.mark.parametrize("planner", [always_verify, naive_voi, env_probe])
def test_no_baseline_within_the_screen_beats_the_exact_plan(planner: Planner) -> None:
    for seed in range(50):
        case = instance(np.random.default_rng([seed, 5]), 3)

        assert policy_value(case, planner) >= exact(case).expected_loss - 1e-9


def test_each_is_known_by_its_name() -> None:
    assert all(
        planner(UNCHECKED).planner == name for name, planner in PLANNERS.items() if name != "ttl"
    )
    assert ttl(replace(UNCHECKED, ages_h=(0.0, 0.0))).planner == "ttl"
