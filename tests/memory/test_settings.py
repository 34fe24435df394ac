"""The numbers a memory runs by: those that would break a promise are refused at once."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from amv.errors import InvalidInput
from amv.memory.settings import Budget, CellSettings, MemorySettings
from amv.memory.value import PRESETS


def test_the_defaults_are_those_of_the_design() -> None:
    """8,192 candidates a search, 1,024 hot items, 32 of them on probation, nothing evicted."""
    settings = MemorySettings()

    assert settings.budget.total == 8192
    assert (settings.budget.hot, settings.budget.warm) == (1024, 3072)
    assert (settings.budget.cold, settings.budget.postings) == (3072, 1024)
    assert (settings.hot_max, settings.probation_max, settings.evict) == (1024, 32, False)
    assert settings.value_model is PRESETS["default"]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Budget(hot=255), "each part of the budget must be at least 256, got"),
        (lambda: Budget(warm=0), "at least 256"),
        (lambda: Budget(cold=-1), "at least 256"),
        (lambda: Budget(postings=1), "at least 256"),
        (lambda: CellSettings(target=1), "need 2 <= target < split_above <= 96, got"),
        (lambda: CellSettings(target=18, split_above=18), "need 2 <= target"),
        (lambda: CellSettings(split_above=97), "need 2 <= target"),
        (lambda: CellSettings(from_vectors=0), "must be at least 1, got"),
        (lambda: CellSettings(drain_at=0), "must be at least 1"),
        (lambda: CellSettings(probes_warm=0), "must be at least 1"),
        (lambda: CellSettings(probes_cold=-5), "must be at least 1"),
        (lambda: MemorySettings(hot_max=0), "hot_max must be 1 to the hot budget of 1024, got 0"),
        (lambda: MemorySettings(hot_max=1025), "hot_max must be 1 to the hot budget of 1024"),
        (lambda: MemorySettings(probation_max=-1), r"0 to half of hot_max \(512\), got -1"),
        (lambda: MemorySettings(probation_max=513), r"0 to half of hot_max \(512\), got 513"),
        (lambda: MemorySettings(cold_below=math.nan), "cold_below must be -1 to 1, got nan$"),
        (lambda: MemorySettings(cold_below=2.0), "cold_below must be -1 to 1"),
        (lambda: MemorySettings(rerank=-1), "rerank must be at least 0, got -1$"),
        (lambda: MemorySettings(k_max=0), "k_max must be at least 1, got 0$"),
        (
            lambda: MemorySettings(content_bytes_max=0),
            "content_bytes_max must be at least 1, got 0$",
        ),
        (lambda: MemorySettings(cache_bytes=-1), "cache_bytes must be at least 0, got -1$"),
    ],
)
def test_settings_that_break_a_promise_are_refused(
    make: Callable[[], object], problem: str
) -> None:
    """With the half that is pinned and the half on probation, hot is never fuller than its cap."""
    with pytest.raises(InvalidInput, match=problem):
        make()


def test_settings_at_their_limits_are_fine() -> None:
    MemorySettings(hot_max=1024, probation_max=512, rerank=0, cache_bytes=0, cold_below=-1.0)
    MemorySettings(hot_max=1, probation_max=0)
    CellSettings(target=2, split_above=3)
    CellSettings(target=95, split_above=96)

    assert Budget(hot=256, warm=256, cold=256, postings=256).total == 1024


def test_settings_cannot_be_changed_in_passing() -> None:
    """A memory trusts what was checked when they were made."""
    with pytest.raises(FrozenInstanceError):
        MemorySettings().hot_max = 5  # type: ignore[misc]
