"""How far checks can be relied on, learned where the truth was told."""

import math
import random
from typing import Any

import pytest

from amv.errors import InvalidInput
from amv.guard.libraries import library
from amv.guard.reliability import LEARNED_FROM, Answer, Reliability, beta_quantile, learned


def seen(count: int, right: int, *, is_violated: bool, weight: float = 1.0) -> list[Answer]:
    """Return so many answers of one check, of which so many were right."""
    return [Answer("desk", is_violated == (n < right), is_violated, weight) for n in range(count)]


def test_too_few_change_nothing() -> None:
    few = int(LEARNED_FROM) - 1
    found = learned(seen(few, few, is_violated=True))["desk"]

    assert (found.sensitivity, found.specificity) == (None, None)
    assert (found.violated, found.held) == (few, 0.0)


def test_what_is_used_is_the_bound_below_what_was_seen() -> None:
    """A check thought better than it is would make the gate too sure."""
    found = learned([*seen(100, 90, is_violated=True), *seen(60, 60, is_violated=False)])["desk"]

    assert found.sensitivity is not None
    assert found.specificity is not None
    assert 0.84 < found.sensitivity < 0.9
    # Of Beta(1 + 60, 1), whose distribution is x^61.
    assert found.specificity == pytest.approx(0.1 ** (1.0 / 61.0))


@pytest.mark.parametrize("truth", [0.55, 0.8, 0.95])
@pytest.mark.parametrize("count", [30, 200])
def test_the_bound_holds_about_as_often_as_it_says(truth: float, count: int) -> None:
    draw, held = random.Random(int(1000 * truth) + count), 0
    for _ in range(400):
        right = sum(draw.random() < truth for _ in range(count))
        bound = learned(seen(count, right, is_violated=True))["desk"].sensitivity
        assert bound is not None
        held += bound <= truth

    assert held / 400 > 0.86


def test_unequal_weights_count_for_as_many_as_they_are_worth() -> None:
    """One label of great weight is still one."""
    many = seen(40, 40, is_violated=True)
    heavy = learned([*many, Answer("desk", False, True, 1e4)])["desk"]
    equal = learned(seen(40, 38, is_violated=True, weight=7.0))["desk"]

    assert heavy.violated == pytest.approx(1.0, abs=0.01)
    assert heavy.sensitivity is None
    once = learned(seen(40, 38, is_violated=True))["desk"]
    assert equal.sensitivity == pytest.approx(once.sensitivity)
    assert (equal.violated, equal.caught) == pytest.approx((once.violated, once.caught))


def test_each_check_is_learned_of_by_itself() -> None:
    other = [answer._replace(verifier="phone") for answer in seen(50, 5, is_violated=True)]
    found = learned([*seen(50, 45, is_violated=True), *other])

    assert list(found) == ["desk", "phone"]
    assert found["phone"].sensitivity is not None
    assert found["phone"].sensitivity < 0.1
    assert learned([]) == {}


@pytest.mark.parametrize("what", ["sensitivity", "specificity"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_what_is_no_share_is_refused(what: str, value: float) -> None:
    bad: dict[str, Any] = {what: value}

    with pytest.raises(InvalidInput, match=f"a learned {what}"):
        Reliability(**bad)


@pytest.mark.parametrize(
    "what", [{"caught": 2.0, "violated": 1.0}, {"passed": -1.0}, {"held": math.inf}]
)
def test_what_can_not_have_been_seen_is_refused(what: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="a check was right of"):
        Reliability(**what)


@pytest.mark.parametrize("right", [0.0, 1.0, 29.4, 400.0, 9_999.0, 1e6])
@pytest.mark.parametrize("wrong", [0.0, 0.6, 7.0, 3_000.0])
@pytest.mark.parametrize("share", [0.025, 0.1, 0.5])
def test_the_quantile_is_that_of_the_beta_distribution(
    right: float, wrong: float, share: float
) -> None:
    a, b, beta = 1.0 + right, 1.0 + wrong, library("scipy.stats", "beta")
    exact = beta.ppf(share, a, b)

    assert beta_quantile(share, a, b) == pytest.approx(exact, abs=1e-3 * beta.std(a, b))


def test_what_is_seen_later_is_added_to_what_was_seen_before() -> None:
    """Some of it first and the rest later is all of it at once."""
    one, other = seen(40, 33, is_violated=True), seen(50, 49, is_violated=True)
    right = seen(70, 60, is_violated=False)

    parts = learned([*other, *right], learned(one))
    whole = learned([*one, *other, *right])

    for name in ("sensitivity", "specificity", "violated", "held", "caught", "passed"):
        assert getattr(parts["desk"], name) == pytest.approx(getattr(whole["desk"], name)), name


def test_too_little_seen_later_leaves_what_was_known() -> None:
    """A calibration from before counts were kept has bounds alone."""
    old = {"desk": Reliability(sensitivity=0.7, violated=50.0), "phone": Reliability()}

    found = learned(seen(20, 20, is_violated=True), old)

    assert (found["desk"].sensitivity, found["desk"].violated) == (0.7, 20.0)
    assert found["phone"] == old["phone"]
    later = learned(seen(20, 20, is_violated=True), found)["desk"].sensitivity
    assert later is not None
    assert later > 0.9


def test_few_are_kept_for_what_is_seen_later() -> None:
    few = learned(seen(20, 20, is_violated=False))

    assert few["desk"].specificity is None
    assert learned(seen(10, 10, is_violated=False), few)["desk"].specificity is not None
