"""Tier placement."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.memory.tiers import Band, Tier, next_tier

WARM = Band(demote=0.25, promote=0.45)
HOT = Band(demote=0.62, promote=0.72)

tiers = st.sampled_from(Tier)
values = st.floats(min_value=0.0, allow_infinity=False)


@pytest.mark.parametrize(
    ("tier", "value", "expected"),
    [
        (Tier.COLD, 0.72, Tier.HOT),
        (Tier.COLD, 0.71, Tier.WARM),
        (Tier.COLD, 0.45, Tier.WARM),
        (Tier.COLD, 0.44, Tier.COLD),
        (Tier.WARM, 0.71, Tier.WARM),
        (Tier.WARM, 0.25, Tier.WARM),
        (Tier.WARM, 0.24, Tier.COLD),
        (Tier.HOT, 0.62, Tier.HOT),
        (Tier.HOT, 0.61, Tier.WARM),
        (Tier.HOT, 0.24, Tier.COLD),
    ],
)
def test_an_item_rises_at_promote_and_falls_below_demote(
    tier: Tier, value: float, expected: Tier
) -> None:
    """Both ends of each band belong to the side they are documented for."""
    assert next_tier(tier, value, warm=WARM, hot=HOT) is expected


@given(tier=tiers, value=values)
def test_a_second_sweep_at_the_same_value_moves_nothing(tier: Tier, value: float) -> None:
    """Idempotence is what hysteresis buys; without it every sweep writes rows."""
    once = next_tier(tier, value, warm=WARM, hot=HOT)

    assert next_tier(once, value, warm=WARM, hot=HOT) == once


@given(tier=tiers, low=values, high=values)
def test_more_value_never_means_a_colder_tier(tier: Tier, low: float, high: float) -> None:
    """Placement by value has to be monotone in value."""
    low, high = sorted((low, high))

    assert next_tier(tier, low, warm=WARM, hot=HOT) <= next_tier(tier, high, warm=WARM, hot=HOT)


@pytest.mark.parametrize(
    ("demote", "promote"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (math.nan, 0.5), (0.1, math.nan)]
)
def test_a_band_that_is_no_band_is_refused(demote: float, promote: float) -> None:
    """Without a gap between the ends an item would move on every sweep."""
    with pytest.raises(InvalidInput, match="0 <= demote < promote"):
        Band(demote=demote, promote=promote)
