"""Value: what an item is worth by now, kept as one number that needs no update.

    V(t) = min(value_max, V(t0) · exp(-λ (t - t0)) + gain),   λ = ln 2 / half_life_s

(AMV-L, arXiv 2603.04443.)  Storing V and t0 would mean computing every item's
value to compare two of them.  Instead an item keeps its *value key*,

    value_key = ln V(t0) + λ · t0,   so that   V(t) = exp(value_key - λ t).

Between two events the key is constant: time passing rewrites nothing, ordering
by key is ordering by value at every moment, and an item is below a threshold τ
exactly when `value_key < ln τ + λ t`.  A sweep is therefore one range scan.

Times are unix seconds.  λ t is about 480 for a half-life of 30 days and 1.2e9
for one of a second, where neighbouring floats are 2.4e-7 apart: a value read
back from its key is off by at most about that fraction.  What must hold exactly
(order, "below the threshold", "never lowers") is therefore decided on keys,
never on values read back.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from amv.checks import check_fields
from amv.errors import InvalidInput
from amv.memory.tiers import Band

#: No value is written below this, so that its logarithm exists.
VALUE_FLOOR = 1e-9

_DAY_S = 86_400.0


class EventKind(IntEnum):
    """What happened to an item; the numbers are stored."""

    EXPOSED = 1
    CONTRIBUTED = 2
    NEGATIVE = 3


class Scale(NamedTuple):
    """What values were made of: the most there is, what is new, and what one use adds."""

    value_max: float
    initial: float
    contributed_gain: float

    def worth(self, contributed: int) -> float:
        """Return what an item that was used so often just now is worth, at most."""
        return min(self.value_max, self.initial + self.contributed_gain * contributed)


#: That of both presets until the default got constants of its own.
SCALE_BEFORE = Scale(1.0, 0.5, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueModel:
    """The constants of one value lifecycle; all items of a namespace share them.

    Gains are positive; `negative_gain` is subtracted.  Being used also means
    having been returned, so an item that contributes usually gets both gains,
    as two events.  Exposure alone never lifts a value above `exposed_cap`.  What
    stands at rank r of a prompt, from 0 for the best, gains contributed_gain /
    (1 + r)^rank_power: at 0 all that a prompt holds gain alike.

    Raises:
        InvalidInput: when a constant is not finite or the thresholds are not in order.
    """

    value_max: float
    initial: float
    exposed_gain: float
    contributed_gain: float
    negative_gain: float
    rank_power: float
    exposed_cap: float
    half_life_s: float
    hot: Band
    warm: Band
    evict_below: float

    def __post_init__(self) -> None:
        check_fields(self)
        # Written positively, so that NaN is refused too.
        for need, holds in (
            ("VALUE_FLOOR < value_max < inf", VALUE_FLOOR < self.value_max < math.inf),
            ("VALUE_FLOOR <= initial <= value_max", VALUE_FLOOR <= self.initial <= self.value_max),
            ("0 < exposed_gain < inf", 0.0 < self.exposed_gain < math.inf),
            ("0 < contributed_gain < inf", 0.0 < self.contributed_gain < math.inf),
            ("0 < negative_gain < inf", 0.0 < self.negative_gain < math.inf),
            ("0 <= rank_power < inf", 0.0 <= self.rank_power < math.inf),
            ("0 < exposed_cap <= value_max", 0.0 < self.exposed_cap <= self.value_max),
            ("1 <= half_life_s < inf", 1.0 <= self.half_life_s < math.inf),
            ("hot.promote <= value_max", self.hot.promote <= self.value_max),
            ("warm.promote <= hot.promote", self.warm.promote <= self.hot.promote),
            ("warm.demote <= hot.demote", self.warm.demote <= self.hot.demote),
            ("0 <= evict_below <= warm.demote", 0.0 <= self.evict_below <= self.warm.demote),
        ):
            if not holds:
                raise InvalidInput(f"need {need}, got {self!r}")

    @property
    def decay_rate(self) -> float:
        """λ, in 1/s."""
        return math.log(2.0) / self.half_life_s

    @property
    def scale(self) -> Scale:
        """What value keys must be made anew for when it changes."""
        return Scale(self.value_max, self.initial, self.contributed_gain)


def value_key(value: float, at_s: float, model: ValueModel) -> float:
    """Return the key of an item worth *value* at *at_s*; clipped to VALUE_FLOOR..value_max."""
    return math.log(min(model.value_max, max(VALUE_FLOOR, value))) + model.decay_rate * at_s


def value_at(key: float, at_s: float, model: ValueModel) -> float:
    """Return the value at *at_s*, in 0..value_max.

    It may lie below VALUE_FLOOR: only what is written is floored.  Before the
    moment its key was made for, an item is worth at most value_max.
    """
    return values_at([key], at_s, model)[0]


def values_at(keys: Iterable[float], at_s: float, model: ValueModel) -> list[float]:
    """Return `value_at` of each key."""
    decayed, highest, most = model.decay_rate * at_s, math.log(model.value_max), model.value_max
    return [
        most if key - decayed >= highest else min(most, math.exp(key - decayed)) for key in keys
    ]


def threshold_key(threshold: float, at_s: float, model: ValueModel) -> float:
    """Return the key k such that an item is below *threshold* at *at_s* iff its key is < k.

    Nothing is below a threshold of zero: its key is -inf.
    """
    if threshold <= 0.0:
        return -math.inf
    return math.log(threshold) + model.decay_rate * at_s


def crossing_s(key: float, threshold: float, model: ValueModel) -> float:
    """Return the moment from which on an item is below *threshold*; inf for a threshold of zero.

    A few rounding errors late (under a microsecond, as a rule), so that
    `key < threshold_key(threshold, crossing_s(...))` holds: a sweep that wakes
    up at this moment finds the item and does not wake up for nothing again.
    """
    if threshold <= 0.0:
        return math.inf
    log_threshold, rate = math.log(threshold), model.decay_rate
    crossing = (key - log_threshold) / rate
    rounding = abs(crossing) + (abs(key) + abs(log_threshold)) / rate
    return crossing + 4.0 * sys.float_info.epsilon * rounding


def reinforced(key: float, at_s: float, gain: float, model: ValueModel, cap: float) -> float:
    """Return the key after *gain* was added to the value at *at_s*.

    A positive gain stops at *cap* and never lowers, also where the value
    already lies above *cap*.  A negative one stops at VALUE_FLOOR and never
    raises.  For an item that starts later than *at_s*, pass its start.
    """
    # `value_at` and `value_key` in one, since folding does this for each event.
    decayed, most = model.decay_rate * at_s, model.value_max
    value = most if key - decayed >= math.log(most) else min(most, math.exp(key - decayed))
    value = value + gain if gain < 0.0 else min(cap, value + gain)
    changed = math.log(min(most, max(VALUE_FLOOR, value))) + decayed
    return max(key, changed) if gain >= 0.0 else min(key, changed)


def apply_event(
    key: float, at_s: float, kind: EventKind, model: ValueModel, rank: int = 0
) -> float:
    """Return the key after an event of *kind* at *at_s*; *rank* is that in a prompt, from 0."""
    if kind is EventKind.EXPOSED:
        return reinforced(key, at_s, model.exposed_gain, model, model.exposed_cap)
    if kind is EventKind.CONTRIBUTED:
        gain = model.contributed_gain / (1 + rank) ** model.rank_power
        return reinforced(key, at_s, gain, model, model.value_max)
    return reinforced(key, at_s, -model.negative_gain, model, model.value_max)


def exposed(key: float, moments_s: Iterable[float], model: ValueModel) -> float:
    """Return the key after exposures at several moments, in order: what `apply_event` does of each.

    Most items that are found often are worth as much as exposure makes them, or
    nearly.  One exposure more then leads there, which takes no logarithm.
    """
    rate, cap, gain = model.decay_rate, model.exposed_cap, model.exposed_gain
    most = math.log(min(model.value_max, max(VALUE_FLOOR, cap)))
    # A little above, so that rounding can't tell the two ways apart.
    nearly = math.log(cap - gain) + 1e-9 if cap > gain else math.inf
    for at_s in moments_s:
        decayed = rate * at_s
        if key - decayed >= nearly:
            key = max(key, most + decayed)
        else:
            key = reinforced(key, at_s, gain, model, cap)
    return key


def rekey(key: float, at_s: float, old_model: ValueModel, new_model: ValueModel) -> float:
    """Return the key under *new_model* that keeps the value an item has at *at_s*.

    The same expression for every item, so a store can run it as one statement;
    it keeps their order, also far below VALUE_FLOOR.  For an item that starts
    later than *at_s*, pass its start.
    """
    log_value = min(math.log(new_model.value_max), key - old_model.decay_rate * at_s)
    return log_value + new_model.decay_rate * at_s


def rescaling(contributed: int, old: Scale, new: Scale) -> float:
    """Return what to add to the key of an item that was used so often, under other constants.

    When it was used is not kept.  So it is worth as large a part of what its uses are
    worth under *new* as it was of what they are under *old*: new and old items then
    compare as if all had been new under *new*, nearly (see docs/explanation/lifecycle.md).
    The way back undoes it.
    """
    return math.log(new.worth(contributed)) - math.log(old.worth(contributed))


#: The constants of AMV-L, which gives none for negative feedback: here it undoes
#: one contribution.
_PAPER = ValueModel(
    value_max=1.0,
    initial=0.5,
    exposed_gain=0.08,
    contributed_gain=0.20,
    negative_gain=0.20,
    rank_power=0.0,
    exposed_cap=1.0,
    half_life_s=30 * _DAY_S,
    hot=Band(demote=0.62, promote=0.72),
    warm=Band(demote=0.25, promote=0.45),
    evict_below=0.20,
)

#: Ours, from the lifecycle benchmark.  What contributed once is worth five times what is
#: new, so that it outlasts whatever is written in the two half-lives after.  A
#: contribution is a fiftieth of value_max, so that what is used often and what is used
#: all the time are told apart.  Of a prompt of 48 items most are not what was asked for,
#: so that the second gains half of what the first does, and the last a 48th.  The
#: thresholds lie so low that hot is full wherever there is enough to fill it: its cap
#: decides what stays, and not the time alone.  Exposure ends just under hot.demote, so
#: that an item which is only ever returned, and never used, neither becomes hot nor stays
#: it: it leaves 1.3 half-lives after it was new.
_DEFAULT = replace(
    _PAPER,
    initial=0.005,
    exposed_gain=0.008,
    contributed_gain=0.02,
    negative_gain=0.02,
    rank_power=1.0,
    exposed_cap=0.0018,
    hot=Band(demote=0.002, promote=0.0025),
    warm=Band(demote=0.0008, promote=0.001),
    evict_below=0.0005,
)

PRESETS: Mapping[str, ValueModel] = MappingProxyType({"paper": _PAPER, "default": _DEFAULT})
