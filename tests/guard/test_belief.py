"""Beliefs: exact inference over 2^n states."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.belief import (
    PREMISES_MAX,
    check_count,
    harm,
    independent,
    losses,
    marginals,
    ordered,
    size,
    updated,
    violated,
    with_common_cause,
    with_foundations,
)
from amv.guard.plan import Check, check_of

shares = st.floats(min_value=0.01, max_value=0.99)
probabilities = st.lists(shares, min_size=1, max_size=4)


@st.composite
def checks(draw: st.DrawFn, n: int) -> Check:
    """Draw a check of some of n premises."""
    about = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    s = draw(st.floats(min_value=0.55, max_value=1.0))
    t = draw(st.floats(min_value=0.55, max_value=1.0))
    nothing = draw(st.sampled_from([0.0, 0.2]))
    return check_of("v", about, n, cost=0.1, sensitivity=s, specificity=t, inconclusive=nothing)


@settings(deadline=None)
@given(st.data(), probabilities)
def test_the_posterior_is_a_martingale(data: st.DataObject, p: list[float]) -> None:
    """What is believed after a check is, on average, what was believed before."""
    belief = independent(p)
    check = data.draw(checks(len(p)))
    expected = np.zeros_like(belief)
    for row in check.likelihood:
        mass = float(belief @ row)
        if mass > 0.0:
            expected += mass * updated(belief, row)

    np.testing.assert_allclose(expected, belief, atol=1e-12)


@settings(deadline=None)
@given(st.data(), probabilities)
def test_the_order_of_evidence_does_not_matter(data: st.DataObject, p: list[float]) -> None:
    belief = independent(p)
    rows = []
    for _ in range(3):
        check = data.draw(checks(len(p)))
        rows.append(check.likelihood[data.draw(st.integers(0, len(check.likelihood) - 1))])
    if not belief @ (rows[0] * rows[1] * rows[2]) > 0.0:
        return

    one = updated(updated(updated(belief, rows[0]), rows[1]), rows[2])
    other = updated(updated(updated(belief, rows[2]), rows[0]), rows[1])
    np.testing.assert_allclose(one, other, atol=1e-9)


@settings(deadline=None)
@given(probabilities, shares)
def test_a_common_cause_leaves_every_probability_as_it_was(p: list[float], share: float) -> None:
    """It only says that they fail together: no premise gets likelier to fail."""
    q = min(p) * share
    belief = with_common_cause(p, range(len(p)), q)

    np.testing.assert_allclose(marginals(belief), p, atol=1e-12)
    assert belief[-1] >= q - 1e-12
    assert harm(belief) <= harm(independent(p)) + 1e-12


def test_a_sure_common_cause_violates_all() -> None:
    assert with_common_cause([1.0, 1.0], [0, 1], 1.0).tolist() == [0.0, 0.0, 0.0, 1.0]


def test_a_cause_likelier_than_what_it_causes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="premise 1 fails with probability"):
        with_common_cause([0.5, 0.1], [0, 1], 0.2)


def test_a_premise_fails_with_what_it_rests_on() -> None:
    """Noisy-or: by itself, or with any of those below it, those of those included."""
    belief = with_foundations([0.1, 0.2, 0.3], {0: [1], 1: [2]})

    expected = [1 - 0.9 * 0.8 * 0.7, 1 - 0.8 * 0.7, 0.3]
    np.testing.assert_allclose(marginals(belief), expected)


def test_premises_that_rest_on_nothing_are_independent() -> None:
    np.testing.assert_array_equal(with_foundations([0.1, 0.2], {}), independent([0.1, 0.2]))


def test_a_circle_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"premises \[0, 2\] rest on each other in a circle"):
        ordered(3, {0: [2], 2: [0]})


def test_foundations_come_first() -> None:
    assert ordered(3, {0: [1], 1: [2]}) == [2, 1, 0]


def test_more_premises_than_can_be_thought_through_are_refused() -> None:
    check_count(PREMISES_MAX)
    with pytest.raises(InvalidInput, match="at most 12 critical premises, got 13"):
        independent([0.1] * 13)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(InvalidInput, match="premise 1 must be a probability"):
        independent([0.5, p])


def test_evidence_that_nothing_explains_is_refused() -> None:
    with pytest.raises(InvalidInput, match="impossible"):
        updated(independent([0.0]), np.asarray([0.0, 1.0]))


def test_the_loss_of_a_state_is_the_largest_of_what_is_violated() -> None:
    """Two wrong premises spoil one action once."""
    assert losses([3.0, 5.0]).tolist() == [0.0, 3.0, 5.0, 5.0]
    assert losses([]).tolist() == [0.0]


def test_harm_is_that_some_premise_is_violated() -> None:
    assert harm(independent([0.5, 0.2])) == pytest.approx(0.6)
    assert harm(independent([])) == 0.0
    assert size(independent([0.5, 0.2])) == 2


def test_states_can_not_be_changed_by_who_reads_them() -> None:
    """They are cached, and shared by all decisions."""
    with pytest.raises(ValueError, match="read-only"):
        violated(2)[0, 0] = True
