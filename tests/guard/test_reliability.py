"""How far checks can be relied on, learned where the truth was told."""

import math
import random
from typing import Any

import pytest

from amv.errors import InvalidInput
from amv.guard.reliability import (
    LEARNED_FROM,
    TYPICAL_FROM,
    Answer,
    Reliability,
    learned,
    typical,
)


def seen(count: int, right: int, *, is_violated: bool, weight: float = 1.0) -> list[Answer]:
    """Return so many answers of one check, of which so many were right."""
    return [Answer("desk", is_violated == (n < right), is_violated, weight) for n in range(count)]


def test_too_few_change_nothing() -> None:
    few = int(LEARNED_FROM) - 1
    found = learned(seen(few, few, is_violated=True))["desk"]

    assert (found.sensitivity, found.specificity) == (None, None)
    assert (found.violated, found.held) == (few, 0.0)


def test_a_check_that_is_alone_is_as_good_as_it_was() -> None:
    """The mean of what Jeffreys' prior and its own answers leave."""
    found = learned([*seen(100, 90, is_violated=True), *seen(60, 60, is_violated=False)])["desk"]

    assert found.sensitivity == pytest.approx(90.5 / 101.0, abs=1e-3)
    assert found.specificity == pytest.approx(60.5 / 61.0, abs=1e-3)


def of_many(truths: list[tuple[float, float]], count: int, seed: int) -> list[Answer]:
    """Return answers of checks c00, c01, ..., each as reliable as said, of premises of its own."""
    draw, found = random.Random(seed), []
    for number, truth in enumerate(truths):
        for n in range(count):
            is_violated = n % 2 == 0
            is_right = draw.random() < truth[not is_violated]
            found.append(Answer(f"c{number:02}", is_violated == is_right, is_violated))
    return found


def population(size: int, seed: int) -> list[tuple[float, float]]:
    """Return s and t of checks of which half never err, and one in ten is stuck."""
    draw = random.Random(seed)
    some = [(draw.uniform(0.85, 0.99), draw.uniform(0.85, 0.99)) for _ in range(size * 4 // 10)]
    return [(1.0, 1.0)] * (size // 2) + some + [(0.0, 1.0)] * (size - size // 2 - len(some))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_checks_are_like_makes_each_better_known(seed: int) -> None:
    """Nearer to what is so than the mean of each by itself, and no more sure on average."""
    truths = population(40, seed)
    answers = of_many(truths, 80, seed)
    together = learned(answers)

    def off(found: dict[str, Reliability]) -> float:
        each = [found[f"c{n:02}"].sensitivity or math.nan for n in range(len(truths))]
        return sum((one - s) ** 2 for one, (s, _) in zip(each, truths, strict=True))

    alone = {
        name: learned([one for one in answers if one.verifier == name])[name] for name in together
    }
    assert off(together) < off(alone)
    mean = sum(one.sensitivity or math.nan for one in together.values()) / len(truths)
    assert mean == pytest.approx(sum(s for s, _ in truths) / len(truths), abs=0.01)


def test_the_same_answers_mean_more_where_most_checks_never_err() -> None:
    some = seen(40, 40, is_violated=True)
    exact, shaky = (of_many([truth] * 20, 80, 1) for truth in ((1.0, 1.0), (0.9, 0.9)))

    among = [learned([*some, *others])["desk"].sensitivity or math.nan for others in (exact, shaky)]
    assert among[0] > 0.998
    assert 0.9 < among[1] < 0.985


def test_of_a_check_not_known_is_expected_what_the_known_ones_are_like() -> None:
    """Stuck ones among them: two of twenty are why one in ten wrong claims would pass."""
    truths = population(20, 1)
    expected = typical(learned(of_many(truths, 400, 1)).values())

    assert expected.sensitivity == pytest.approx(sum(s for s, _ in truths) / 20, abs=0.03)
    assert expected.specificity == pytest.approx(sum(t for _, t in truths) / 20, abs=0.03)


def test_few_checks_tell_nothing_of_others() -> None:
    few = learned(of_many([(0.9, 0.9)] * (TYPICAL_FROM - 1), 80, 1))
    shallow = learned(of_many([(0.9, 0.9)] * TYPICAL_FROM, 40, 1))

    assert typical(few.values()) == typical(shallow.values()) == Reliability()


def pair(first: str, second: str, *, shared: float, seed: int, count: int = 150) -> list[Answer]:
    """Return answers of two checks that err one time in ten, *shared* of it by the same coin."""
    draw, found = random.Random(seed), []
    for n in range(count):
        is_violated, common = n % 2 == 0, draw.random() < 0.1
        for name in (first, second):
            is_wrong = common if draw.random() < shared else draw.random() < 0.1
            about = f"{first}{second}{n}"
            found.append(Answer(name, is_violated != is_wrong, is_violated, about=about))
    return found


def test_checks_that_err_together_are_one_group() -> None:
    found = learned([*pair("a", "b", shared=1.0, seed=1), *pair("c", "d", shared=0.0, seed=1)])

    assert {name: one.group for name, one in found.items()} == {
        "a": "a",
        "b": "a",
        "c": "",
        "d": "",
    }


def test_checks_that_err_each_for_itself_are_hardly_ever_taken_for_one() -> None:
    wrongly = [learned(pair("a", "b", shared=0.0, seed=seed))["a"].group for seed in range(200)]

    assert wrongly.count("a") <= 2


def test_checks_of_which_one_errs_where_the_other_does_not_are_two() -> None:
    """That hangs together as well, but a second opinion is worth all the more."""
    answers = [
        Answer(name, n % 2 == 0, True, about=str(n))
        if name == "a"
        else Answer(name, n % 2 == 1, True, about=str(n))
        for n in range(60)
        for name in ("a", "b")
    ]

    assert learned(answers)["a"].group == ""


def test_what_errs_with_one_of_a_group_belongs_to_it() -> None:
    """Also where that was learned before, and nothing is heard of some of them now."""
    before = learned(pair("b", "c", shared=1.0, seed=2))
    after = learned(pair("a", "b", shared=1.0, seed=3), before)

    assert {name: one.group for name, one in before.items()} == {"b": "b", "c": "b"}
    assert {name: one.group for name, one in after.items()} == dict.fromkeys("abc", "a")


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
    assert found["phone"].sensitivity < 0.15
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
def test_what_can_not_have_been_seen_is_refused(what: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="a check was right of"):
        Reliability(**what)


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
