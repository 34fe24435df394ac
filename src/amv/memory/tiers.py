"""Tier placement: which tier an item belongs in, given its value.

With a single threshold, an item whose value hovers near it would cross on
every sweep, and each crossing writes a row.  So every boundary is a band: an
item rises at `promote`, falls below `demote`, and between the two stays where
it is (hysteresis).

This is the rule for one item on its own.  That the hot tier has a hard cap,
that new and pinned items are protected, is decided where the whole tier is in
sight.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

from amv.checks import check_fields
from amv.errors import InvalidInput


class Tier(IntEnum):
    """How close to the caller an item is kept; a hotter tier compares greater."""

    COLD = 0
    WARM = 1
    HOT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The boundary below one tier, in units of value.

    Raises:
        InvalidInput: unless 0 <= demote < promote < inf.
    """

    demote: float
    promote: float

    def __post_init__(self) -> None:
        check_fields(self)
        # Written positively, so that NaN is refused too.
        if 0.0 <= self.demote < self.promote < math.inf:
            return
        raise InvalidInput(f"need 0 <= demote < promote < inf, got {self!r}")


def next_tier(tier: Tier, value: float, *, warm: Band, hot: Band) -> Tier:
    """Return the tier for an item now in *tier* whose decayed value is *value*.

    >>> warm, hot = Band(demote=0.25, promote=0.45), Band(demote=0.62, promote=0.72)
    >>> next_tier(Tier.HOT, 0.65, warm=warm, hot=hot).name
    'HOT'
    >>> next_tier(Tier.WARM, 0.65, warm=warm, hot=hot).name
    'WARM'
    """
    hot_floor = hot.demote if tier >= Tier.HOT else hot.promote
    warm_floor = warm.demote if tier >= Tier.WARM else warm.promote
    if value >= hot_floor:
        return Tier.HOT
    if value >= warm_floor:
        return Tier.WARM
    return Tier.COLD
