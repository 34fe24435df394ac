"""How far checks can be relied on, learned where the truth was told."""

import math
import random
import sys
from typing import Any

import pytest

from amv.errors import ConfigError, InvalidInput
from amv.guard.reliability import LEARNED_FROM, Answer, Reliability, learned


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
    assert equal == learned(seen(40, 38, is_violated=True))["desk"]


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


def test_without_its_library_learning_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)

    with pytest.raises(ConfigError, match=r"pip install 'amv\[guard\]'"):
        learned(seen(50, 50, is_violated=True))
