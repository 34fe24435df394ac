"""The memory that the store benchmark measures: one namespace in one SQLite file.

Vectors are given with the items, so that what is measured is the store and not
the embedder, and time is a fake clock's, so that months pass between adding
and searching: most items are then cold, some warm, a few hot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import amv
from amv.memory.value import PRESETS
from amv.testing import FakeClock
from bench.datasets import DIMENSION, Dataset
from bench.store_given import NAMESPACE, Given

_DAY_S = 86_400.0

#: Constants under which a month without use makes an item cold, so that there is something in
#: every tier when it is searched.  Under those of the default hot would hold all that is used.
MODEL = replace(PRESETS["paper"], exposed_cap=0.61)
_IDLE_DAYS = 45
_LATER_DAYS = 5
_HOT_SHARE = 0.01
_WARM_SHARE = 0.09
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A file, the dataset it is filled with, and the clock its items live by."""

    path: Path
    dataset: Dataset
    clock: FakeClock
    settings: amv.MemorySettings

    def open(self, settings: amv.MemorySettings | None = None) -> amv.Memory:
        """Open the memory; no upkeep runs by itself, so that nothing moves while measured."""
        return amv.Memory.open(
            str(self.path),
            embedder=Given(self.dataset.embedder_id, DIMENSION),
            settings=amv.Settings(
                upkeep_interval_s=None,
                memory=replace(settings or self.settings, value_model=MODEL),
            ),
            clock=self.clock,
        )

    def disk_bytes(self) -> int:
        """Return the bytes of all files of the store."""
        return sum(p.stat().st_size for p in self.path.parent.glob(f"{self.path.name}*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where the items of a dataset ended up; arrays of shape (n,), ids in the dataset's order."""

    place_of: dict[str, int]
    tiers: np.ndarray[tuple[int], np.dtype[np.int8]]
    values: np.ndarray[tuple[int], np.dtype[np.float32]]


def age(memory: amv.Memory, clock: FakeClock, ids: Sequence[str], seed: int) -> None:
    """Let time pass as in a memory that is used: most of it not at all, some of it often.

    After 45 days without use every item is cold but the newest, which are on
    probation.  Then a hundredth of the others is used four times and another
    nine hundredths twice, which makes them hot and warm; five days later they
    still are.
    """
    rng = np.random.default_rng([seed, len(ids), 4])
    clock.advance(_IDLE_DAYS * _DAY_S)
    memory.sweep()
    order = rng.permutation(len(ids))
    hot = round(_HOT_SHARE * len(ids))
    warm = hot + round(_WARM_SHARE * len(ids))
    for start, stop, uses in ((0, hot, 4), (hot, warm, 2)):
        used = [ids[i] for i in order[start:stop].tolist()]
        for _ in range(uses):
            memory.reinforce(used, namespace=NAMESPACE)
    memory.flush()
    clock.advance(_LATER_DAYS * _DAY_S)
    memory.sweep()


def placed(memory: amv.Memory, ids: Sequence[str]) -> Placed:
    """Read tier and value of every item."""
    place_of = {item_id: place for place, item_id in enumerate(ids)}
    tiers = np.zeros(len(ids), dtype=np.int8)
    values = np.zeros(len(ids), dtype=np.float32)
    cursor = None
    while True:
        page = memory.list(namespace=NAMESPACE, cursor=cursor, limit=_PAGE)
        for item in page.items:
            tiers[place_of[item.id]] = item.tier
            values[place_of[item.id]] = item.value
        cursor = page.cursor
        if cursor is None:
            return Placed(place_of=place_of, tiers=tiers, values=values)
