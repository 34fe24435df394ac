"""A small world to test a memory in: few items reach every path, and time stands still."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from amv.embedders.hashing import Hashing
from amv.memory.item import Claim, Item, Namespace
from amv.memory.ports import Embedder, Event, NamespaceRow, Store, Writer
from amv.memory.service import MemoryService
from amv.memory.settings import CellSettings, MemorySettings
from amv.memory.tiers import Tier
from amv.memory.value import PRESETS
from amv.testing import FakeClock

T = TypeVar("T")

ALICE: Namespace = ("alice",)
BOB: Namespace = ("bob",)

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S
YEAR_S = 365 * DAY_S

#: Constants of the tests' own, so that better ones of the product change no scene: an
#: item goes cold unused after a month, and is hot once it was used twice.
MODEL = replace(PRESETS["paper"], exposed_cap=0.61)

SMALL = MemorySettings(
    keep_repeats=True,
    value_model=MODEL,
    hot_max=8,
    probation_max=2,
    cells=CellSettings(
        from_vectors=40, drain_at=8, target=4, split_above=8, probes_warm=4, probes_cold=8
    ),
)
"""Caps so small that a few dozen items fill every tier and split cells.

What is added again becomes an item again: equal ones are the simplest to add many of.
"""

DIMENSION = 64


class WordByWord(Hashing):
    """An embedder that reads one word at a time, so that short texts have many passages."""

    def passages(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]


class World:
    """Memories over one store, on one clock; ids count up: i1, i2, ..."""

    def __init__(
        self,
        store: Store,
        settings: MemorySettings = SMALL,
        *,
        clock: FakeClock | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock or FakeClock()
        self.embedder: Embedder = embedder or Hashing(dimension=DIMENSION)
        self._ids = count(1)
        self.memory = self.another()

    def another(
        self, settings: MemorySettings | None = None, *, store: Store | None = None
    ) -> MemoryService:
        """Return one more memory on the same store, as another process would have."""
        return MemoryService(
            store or self.store,
            self.embedder,
            settings or self.settings,
            clock=self.clock,
            new_id=lambda: f"i{next(self._ids)}",
        )

    def add(self, content: str, **fields: Any) -> Item:
        """Remember something of Alice's."""
        return self.memory.add(content, **{"namespace": ALICE, **fields})

    def fill(self, number: int, **fields: Any) -> list[Item]:
        """Remember *number* different things at once."""
        things = [f"thing{i} kind{i % 5} colour{i % 7}" for i in range(number)]
        return self.memory.add_many(
            [{"content": thing, "namespace": ALICE, **fields} for thing in things]
        )

    def claim(self, value: str, **fields: Any) -> Item:
        """Remember where Alice lives."""
        return self.add(f"lives in {value}", claim=Claim("alice", "city", value), **fields)

    def city(self) -> str | None:
        """Return where Alice lives now, by her claims."""
        item = self.memory.find_claim(ALICE, "alice", "city")
        return None if item is None else item.content.removeprefix("lives in ")

    def found(self, query: str, **arguments: Any) -> list[str]:
        """Return the ids of what a search finds, best first."""
        result = self.memory.search(query, **{"namespace": ALICE, **arguments})
        return [hit.item.id for hit in result.hits]

    def tier(self, item_id: str) -> Tier:
        """Return the tier of an item."""
        return self.memory.get(item_id).tier

    def tiers(self) -> Mapping[Tier, int]:
        """Return how many items of Alice's each tier holds."""
        return self.memory.stats(ALICE).tiers

    def use(self, *item_ids: str, times: int = 1) -> None:
        """Note that items contributed, and fold that in."""
        for _ in range(times):
            self.memory.reinforce(item_ids, contributed=True, namespace=ALICE)
        self.memory.flush()

    def row(self, namespace: Namespace = ALICE) -> NamespaceRow:
        """Return a namespace as the store keeps it."""
        with self.store.read() as reader:
            row = reader.namespace(namespace)
        assert row is not None
        return row

    def key(self, item_id: str) -> int:
        """Return the store's own key of an item."""
        with self.store.read() as reader:
            (row,) = reader.rows_with_id(item_id)
        return row.key

    def make_due(self, namespace: Namespace = ALICE) -> None:
        """Have the next sweep visit a namespace, whatever it was told."""
        row = self.row(namespace)
        self.store.write(lambda tx: tx.put_namespace(replace(row, next_due_s=self.clock())))


class Interrupted:
    """A store that lets something happen just before a write, as another process may.

    `Store` as seen by one memory; what happens in between goes to the store behind it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = store.read
        self.fold = store.fold
        self.erase = store.erase
        self.unfolded = store.unfolded
        self.size_bytes = store.size_bytes
        self.check = store.check
        self.close = store.close
        self.before_write: Callable[[int], object] = lambda number: None
        self.writes = 0

    def write(self, work: Callable[[Writer], T]) -> T:
        """Count the write, let it be preceded, and pass it on."""
        self.writes += 1
        self.before_write(self.writes)
        return self._store.write(work)

    def log(self, events: Sequence[Event]) -> None:
        """Pass events on."""
        self._store.log(events)
