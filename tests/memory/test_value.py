"""The value lifecycle."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.memory.tiers import Band
from amv.memory.value import (
    PRESETS,
    VALUE_FLOOR,
    EventKind,
    ValueModel,
    apply_event,
    crossing_s,
    exposed,
    reinforced,
    rekey,
    rescaling,
    threshold_key,
    value_at,
    value_key,
)

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0
PAPER = PRESETS["paper"]
DEFAULT = PRESETS["default"]

half_lives = st.floats(min_value=1.0, max_value=3e9)
models = st.builds(
    lambda half_life_s, preset: replace(PRESETS[preset], half_life_s=half_life_s),
    half_lives,
    st.sampled_from(sorted(PRESETS)),
)
values = st.floats(min_value=VALUE_FLOOR, max_value=1.0)
times = st.floats(min_value=1.7e9, max_value=2.0e9)
gains = st.floats(min_value=-1.0, max_value=1.0)


def read_error(model: ValueModel) -> float:
    """Return how far, as a fraction, a value read back from its key may be off."""
    return 4.0 * math.ulp(model.decay_rate * 2.0e9) + 1e-12


def test_the_paper_preset_has_the_constants_of_the_paper() -> None:
    """These are what a reproduction of AMV-L is measured with."""
    assert PAPER.value_max == 1.0
    assert PAPER.initial == 0.5
    assert (PAPER.exposed_gain, PAPER.contributed_gain) == (0.08, 0.20)
    assert Band(demote=0.62, promote=0.72) == PAPER.hot
    assert Band(demote=0.25, promote=0.45) == PAPER.warm
    assert PAPER.evict_below == 0.20
    assert PAPER.half_life_s == 30 * DAY_S
    assert PAPER.exposed_cap == PAPER.value_max
    assert PAPER.rank_power == 0.0


def test_value_halves_in_a_half_life() -> None:
    """The formula of the paper, by hand: 0.5, a month on 0.25, two months on 0.125."""
    key = value_key(0.5, NOW_S, PAPER)

    assert value_at(key, NOW_S, PAPER) == pytest.approx(0.5, rel=1e-9)
    assert value_at(key, NOW_S + 30 * DAY_S, PAPER) == pytest.approx(0.25, rel=1e-9)
    assert value_at(key, NOW_S + 60 * DAY_S, PAPER) == pytest.approx(0.125, rel=1e-9)


def test_gains_follow_the_formula_of_the_paper() -> None:
    """Decay first, then the gain: 0.5 → 0.25 + 0.08 → 0.33 + 0.20 → 0.53 - 0.20."""
    later_s = NOW_S + 30 * DAY_S
    key = apply_event(value_key(0.5, NOW_S, PAPER), later_s, EventKind.EXPOSED, PAPER)
    assert value_at(key, later_s, PAPER) == pytest.approx(0.33, rel=1e-9)
    key = apply_event(key, later_s, EventKind.CONTRIBUTED, PAPER)
    assert value_at(key, later_s, PAPER) == pytest.approx(0.53, rel=1e-9)
    key = apply_event(key, later_s, EventKind.NEGATIVE, PAPER)

    assert value_at(key, later_s, PAPER) == pytest.approx(0.33, rel=1e-9)


@given(value=values, at_s=times, model=models)
@example(value=1.0, at_s=1.8e9, model=replace(PAPER, half_life_s=1.0))
def test_a_value_is_read_back_as_written(value: float, at_s: float, model: ValueModel) -> None:
    """At a half-life of one second λ t is 1.2e9, and 1e-6 is still right."""
    read = value_at(value_key(value, at_s, model), at_s, model)

    assert read == pytest.approx(value, rel=read_error(model))
    assert read_error(model) < 2e-6
    assert read <= model.value_max


@given(value=values, at_s=times, wait_s=st.floats(0.0, 1e9), model=models)
def test_value_never_grows_by_waiting(
    value: float, at_s: float, wait_s: float, model: ValueModel
) -> None:
    """Only events raise a value; also where λ t is so large that rounding shows."""
    key = value_key(value, at_s, model)

    assert value_at(key, at_s + wait_s, model) <= value_at(key, at_s, model)


@given(one=values, other=values, at_s=times, read_s=times, model=models)
def test_order_by_key_is_order_by_value_at_any_moment(
    one: float, other: float, at_s: float, read_s: float, model: ValueModel
) -> None:
    """An index on the key is an index on the value, without being rewritten."""
    low, high = sorted((value_key(one, at_s, model), value_key(other, at_s, model)))

    assert value_at(low, read_s, model) <= value_at(high, read_s, model)


@pytest.mark.parametrize("half_life_s", [1.0, 60.0, 30 * DAY_S, 1e9])
def test_a_day_apart_is_told_apart_by_its_key(half_life_s: float) -> None:
    """Keys of items written at different times compare as their decayed values do."""
    model = replace(PAPER, half_life_s=half_life_s)
    older = value_key(0.5, NOW_S - DAY_S, model)
    newer = value_key(0.5, NOW_S, model)

    assert older < newer
    assert value_key(0.5, NOW_S, model) < value_key(0.500001, NOW_S, model)


@pytest.mark.parametrize("value", [0.0, -1.0, VALUE_FLOOR / 2])
def test_what_is_written_is_never_below_the_floor(value: float) -> None:
    """The logarithm of zero would lose the item's place in the index."""
    assert value_key(value, NOW_S, PAPER) == value_key(VALUE_FLOOR, NOW_S, PAPER)


def test_what_is_written_is_never_above_the_maximum() -> None:
    """A caller's value of 7 counts as value_max."""
    assert value_key(7.0, NOW_S, PAPER) == value_key(1.0, NOW_S, PAPER)


def test_after_very_long_a_value_is_zero_and_before_its_start_the_maximum() -> None:
    """Neither end overflows."""
    key = value_key(0.5, NOW_S, replace(PAPER, half_life_s=1.0))

    assert value_at(key, NOW_S + 1e6, replace(PAPER, half_life_s=1.0)) == 0.0
    assert value_at(key, 0.0, replace(PAPER, half_life_s=1.0)) == 1.0


@given(value=values, threshold=values, at_s=times, wait_s=st.floats(0.0, 1e8), model=models)
def test_below_a_threshold_is_the_same_for_key_and_value(
    value: float, threshold: float, at_s: float, wait_s: float, model: ValueModel
) -> None:
    """A sweep compares keys, a reader of `value` sees values: they must agree."""
    key, later_s = value_key(value, at_s, model), at_s + wait_s
    read = value_at(key, later_s, model)
    assume(abs(read - threshold) > read_error(model) * threshold)

    assert (key < threshold_key(threshold, later_s, model)) == (read < threshold)


def test_nothing_is_below_a_threshold_of_zero() -> None:
    """`evict_below=0` means never."""
    key = value_key(0.0, NOW_S, PAPER)

    assert threshold_key(0.0, NOW_S, PAPER) == -math.inf
    assert crossing_s(key, 0.0, PAPER) == math.inf


@given(value=values, threshold=values, at_s=times, model=models)
def test_an_item_is_below_a_threshold_from_its_crossing_on(
    value: float, threshold: float, at_s: float, model: ValueModel
) -> None:
    """Woken at the crossing, a sweep must find the item, or it would wake up again at once."""
    key = value_key(value, at_s, model)
    crossing = crossing_s(key, threshold, model)

    assert key < threshold_key(threshold, crossing, model)
    assert not key < threshold_key(threshold, crossing - 1e-5 - 1e-13 * model.half_life_s, model)


def test_crossing_is_when_the_half_lives_are_over() -> None:
    """From 0.5 to 0.125 takes two half-lives."""
    crossing = crossing_s(value_key(0.5, NOW_S, PAPER), 0.125, PAPER)

    assert crossing == pytest.approx(NOW_S + 60 * DAY_S, abs=1e-3)


@given(value=values, gain=gains, cap=values, at_s=times, wait_s=st.floats(0, 1e8), model=models)
def test_a_positive_gain_never_lowers_and_a_negative_never_raises(
    value: float, gain: float, cap: float, at_s: float, wait_s: float, model: ValueModel
) -> None:
    """Also above the cap, below the floor, and where the key hardly resolves the gain."""
    key = value_key(value, at_s, model)
    after = reinforced(key, at_s + wait_s, gain, model, cap)

    assert after >= key if gain >= 0.0 else after <= key


@given(value=values, gain=st.floats(0.0, 1.0), cap=values, at_s=times, model=models)
def test_a_gain_ends_at_its_cap(
    value: float, gain: float, cap: float, at_s: float, model: ValueModel
) -> None:
    """What lies above the cap already keeps its value."""
    read = value_at(reinforced(value_key(value, at_s, model), at_s, gain, model, cap), at_s, model)

    assert read == pytest.approx(max(value, min(cap, value + gain)), rel=2 * read_error(model))


def test_exposure_stops_at_its_cap_also_with_a_gain_larger_than_the_distance() -> None:
    """0.001 + 0.008 would be 0.009; ours ends at the cap."""
    key = value_key(0.001, NOW_S, DEFAULT)
    for _ in range(2):
        key = apply_event(key, NOW_S, EventKind.EXPOSED, DEFAULT)

    assert value_at(key, NOW_S, DEFAULT) == pytest.approx(DEFAULT.exposed_cap, rel=1e-9)


@given(start=values, gaps_s=st.lists(st.floats(0.0, 10 * DAY_S), max_size=40))
def test_exposure_alone_never_makes_an_item_hot(start: float, gaps_s: list[float]) -> None:
    """What is returned often and never used must not fill the hot tier."""
    at_s, key = NOW_S, value_key(min(start, 0.99 * DEFAULT.hot.demote), NOW_S, DEFAULT)
    for gap_s in gaps_s:
        at_s += gap_s
        key = apply_event(key, at_s, EventKind.EXPOSED, DEFAULT)

    assert key < threshold_key(DEFAULT.hot.demote, at_s, DEFAULT)


@given(
    start=values,
    gaps_s=st.lists(st.floats(-DAY_S, 100 * DAY_S) | st.just(1.0), max_size=20),
    model=models | st.sampled_from([DEFAULT, PAPER, replace(DEFAULT, exposed_gain=0.61)]),
)
def test_many_exposures_at_once_are_those_one_by_one(
    start: float, gaps_s: list[float], model: ValueModel
) -> None:
    """To the last bit, also where clocks go back: how many are folded together is chance."""
    moments_s, at_s = list[float](), NOW_S
    one_by_one = key = value_key(start, NOW_S, model)
    for gap_s in gaps_s:
        at_s += gap_s
        moments_s.append(at_s)
        one_by_one = apply_event(one_by_one, at_s, EventKind.EXPOSED, model)

    assert exposed(key, moments_s, model) == one_by_one


def test_exposure_alone_does_not_keep_a_hot_item_hot() -> None:
    """Used once, then only returned every day: in time it falls below the hot band."""
    key = apply_event(
        value_key(DEFAULT.initial, NOW_S, DEFAULT), NOW_S, EventKind.CONTRIBUTED, DEFAULT
    )
    for day in range(1, 121):
        key = apply_event(key, NOW_S + day * DAY_S, EventKind.EXPOSED, DEFAULT)

    assert key < threshold_key(DEFAULT.hot.demote, NOW_S + 120 * DAY_S, DEFAULT)


def test_a_new_item_that_is_only_ever_returned_leaves_hot_within_two_half_lives() -> None:
    key = value_key(DEFAULT.initial, NOW_S, DEFAULT)
    assert key >= threshold_key(DEFAULT.hot.promote, NOW_S, DEFAULT)
    for day in range(1, 61):
        key = apply_event(key, NOW_S + day * DAY_S, EventKind.EXPOSED, DEFAULT)

    assert key < threshold_key(DEFAULT.hot.demote, NOW_S + 60 * DAY_S, DEFAULT)


def test_what_contributed_once_outlasts_what_is_new_for_two_half_lives() -> None:
    """Whatever is written meanwhile, a fact that was needed once is still worth more."""
    used = apply_event(
        value_key(DEFAULT.initial, NOW_S, DEFAULT), NOW_S, EventKind.CONTRIBUTED, DEFAULT
    )

    assert used > value_key(DEFAULT.initial, NOW_S + 2 * DEFAULT.half_life_s, DEFAULT)


def test_exposure_alone_keeps_a_hot_item_hot_in_the_paper() -> None:
    """The control of the test before: without the cap, the same history pins it."""
    key = value_key(1.0, NOW_S, PAPER)
    for day in range(1, 31):
        key = apply_event(key, NOW_S + day * DAY_S, EventKind.EXPOSED, PAPER)

    assert key >= threshold_key(PAPER.hot.promote, NOW_S + 30 * DAY_S, PAPER)


def test_contribution_makes_an_item_hot() -> None:
    """Two uses of a new item are enough in both presets."""
    for model in PRESETS.values():
        key = value_key(model.initial, NOW_S, model)
        for _ in range(2):
            key = apply_event(key, NOW_S, EventKind.CONTRIBUTED, model)

        assert key >= threshold_key(model.hot.promote, NOW_S, model)


@pytest.mark.parametrize(("model", "last"), [(DEFAULT, 0.02 / 48), (PAPER, 0.20)])
def test_what_stands_further_down_in_a_prompt_gains_less(model: ValueModel, last: float) -> None:
    """Most of a long prompt is not what was asked for; in the paper all of it gains alike."""
    start = value_key(0.1, NOW_S, model)
    keys = [
        apply_event(start, NOW_S, EventKind.CONTRIBUTED, model, rank) for rank in (0, 1, 47, 255)
    ]
    gains = [value_at(key, NOW_S, model) - 0.1 for key in keys]

    assert gains[0] == pytest.approx(model.contributed_gain, rel=1e-6)
    assert gains[1] == pytest.approx(model.contributed_gain / 2**model.rank_power, rel=1e-6)
    assert gains[2] == pytest.approx(last, rel=1e-3)
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0.0


def test_only_a_contribution_has_a_rank() -> None:
    """Being returned and being wrong weigh the same wherever an item stood."""
    start = value_key(0.001, NOW_S, DEFAULT)
    for kind in (EventKind.EXPOSED, EventKind.NEGATIVE):
        alike = {apply_event(start, NOW_S, kind, DEFAULT, rank) for rank in (0, 1, 255)}

        assert len(alike) == 1


def test_negative_feedback_ends_at_the_floor() -> None:
    """However often it is repeated, the item keeps a key that orders it."""
    key = value_key(0.5, NOW_S, PAPER)
    for _ in range(10):
        key = apply_event(key, NOW_S, EventKind.NEGATIVE, PAPER)

    assert key == value_key(VALUE_FLOOR, NOW_S, PAPER)


@given(value=values, at_s=times, wait_s=st.floats(0.0, 1e7), old=models, new=models)
def test_a_new_half_life_keeps_the_value_of_the_moment(
    value: float, at_s: float, wait_s: float, old: ValueModel, new: ValueModel
) -> None:
    """Changing λ changes how things go on, not what they are worth now."""
    key, now_s = value_key(value, at_s, old), at_s + wait_s
    log_before = key - old.decay_rate * now_s
    log_after = rekey(key, now_s, old, new) - new.decay_rate * now_s

    assert log_after == pytest.approx(log_before, abs=read_error(old) + read_error(new))


@given(one=values, other=values, ages_s=st.tuples(*[st.floats(0.0, 1e9)] * 2), old=models)
def test_a_new_half_life_keeps_the_order(
    one: float, other: float, ages_s: tuple[float, float], old: ValueModel
) -> None:
    """Also of items that decayed to nothing long ago."""
    new = replace(old, half_life_s=old.half_life_s * 3.7)
    keys = [value_key(v, NOW_S - age, old) for v, age in zip((one, other), ages_s, strict=True)]
    low, high = sorted(keys)

    assert rekey(low, NOW_S, old, new) <= rekey(high, NOW_S, old, new)


@given(contributed=st.integers(0, 1 << 40), key=st.floats(400.0, 600.0))
def test_what_is_rescaled_and_back_is_as_it_was(contributed: int, key: float) -> None:
    """Two processes with other constants on one file may go back and forth."""
    old, new = PAPER.scale, DEFAULT.scale
    there = key + rescaling(contributed, old, new)

    assert there + rescaling(contributed, new, old) == pytest.approx(key, rel=1e-12)
    assert there <= key


@given(low=st.integers(0, 100), more=st.integers(0, 100))
def test_rescaling_never_puts_what_was_used_less_before_what_was_used_more(
    low: int, more: int
) -> None:
    """Of two that were worth the same, the one of more uses is worth no less."""
    shifts = [rescaling(n, PAPER.scale, DEFAULT.scale) for n in (low, low + more)]

    assert shifts[0] <= shifts[1]


def test_what_is_new_or_used_once_is_worth_under_new_constants_what_it_would_be() -> None:
    """0.5 becomes 0.005, and 0.7 becomes 0.025, at the moment and by as much ever after."""
    for contributed, was, wanted in ((0, 0.5, 0.005), (1, 0.7, 0.025), (60, 1.0, 1.0)):
        key = value_key(was, NOW_S, PAPER) + rescaling(contributed, PAPER.scale, DEFAULT.scale)

        assert value_at(key, NOW_S, DEFAULT) == pytest.approx(wanted, rel=1e-6)


def test_a_lower_maximum_clips_when_rekeying() -> None:
    """No item is worth more than value_max under the new model."""
    lower = replace(PAPER, value_max=0.8, exposed_cap=0.8)
    key = rekey(value_key(1.0, NOW_S, PAPER), NOW_S, PAPER, lower)

    assert key == value_key(0.8, NOW_S, lower)


def test_a_maximum_that_is_not_one_is_reached_and_not_passed() -> None:
    """exp(ln 0.7) is not 0.7; what a caller reads must not exceed value_max all the same."""
    model = replace(PAPER, value_max=0.73, exposed_cap=0.7)
    key = reinforced(value_key(0.6, NOW_S, model), NOW_S, 0.5, model, model.value_max)

    assert value_at(key, NOW_S, model) == pytest.approx(0.73, rel=1e-9)
    assert value_at(key, NOW_S, model) <= 0.73


@pytest.mark.parametrize(
    ("change", "need"),
    [
        (lambda: replace(PAPER, value_max=math.inf), "value_max < inf"),
        (lambda: replace(PAPER, value_max=math.nan), "value_max < inf"),
        (lambda: replace(PAPER, initial=1.5), "initial <= value_max"),
        (lambda: replace(PAPER, initial=0.0), "VALUE_FLOOR <= initial"),
        (lambda: replace(PAPER, exposed_gain=0.0), "exposed_gain"),
        (lambda: replace(PAPER, contributed_gain=-0.1), "contributed_gain"),
        (lambda: replace(PAPER, negative_gain=-0.1), "negative_gain"),
        (lambda: replace(PAPER, rank_power=-1.0), "0 <= rank_power"),
        (lambda: replace(PAPER, rank_power=math.nan), "0 <= rank_power"),
        (lambda: replace(PAPER, exposed_cap=1.1), "exposed_cap <= value_max"),
        (lambda: replace(PAPER, half_life_s=0.5), "half_life_s"),
        (lambda: replace(PAPER, half_life_s=math.nan), "half_life_s"),
        (lambda: replace(PAPER, hot=Band(demote=0.9, promote=1.1)), "hot.promote <= value_max"),
        (lambda: replace(PAPER, warm=Band(demote=0.3, promote=0.8)), "warm.promote"),
        (lambda: replace(PAPER, warm=Band(demote=0.65, promote=0.7)), "warm.demote"),
        (lambda: replace(PAPER, evict_below=0.3), "evict_below <= warm.demote"),
        (lambda: replace(PAPER, evict_below=-0.1), "0 <= evict_below"),
    ],
)
def test_a_model_that_cannot_work_is_refused(change: Callable[[], ValueModel], need: str) -> None:
    """The message names the constant, so that a setting can be mended."""
    with pytest.raises(InvalidInput, match=need):
        change()


def test_presets_are_named_and_cannot_be_changed() -> None:
    """They are shared by every namespace of a process."""
    assert sorted(PRESETS) == ["default", "paper"]
    with pytest.raises(TypeError):
        PRESETS["paper"] = DEFAULT  # type: ignore[index]
