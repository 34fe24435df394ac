"""What of a namespace is kept in RAM, and how it follows the store.

A `View` holds the vectors of the hot items, the vectors that are in no cell
yet, the centroid index, the cells last used and a card of each item last read.
It is built at first use and then follows the namespace's change log: a search
compares one version number and reads only what changed since, whoever changed
it, this process or another.  Views are dropped, least recently used first, when
together they outgrow their share of memory.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from amv.errors import StoreError
from amv.memory.block import Block
from amv.memory.card import Card, card_of
from amv.memory.cells import CentroidIndex, code_width
from amv.memory.facts import ENDS, Columns, Facts
from amv.memory.item import Namespace
from amv.memory.ports import (
    PENDING,
    Change,
    Ids,
    Members,
    NamespaceRow,
    Reader,
    ascending,
    owners,
)
from amv.memory.value import Scale

_CARDS_MAX = 4096


class IndexDamaged(StoreError):
    """An index, which is derived data, is not what the totals say; it can be made anew."""


@dataclass(slots=True)
class Reads:
    """How often searches found what they needed in RAM, and how often they read it."""

    cells_cached: int = 0
    cells_read: int = 0
    rows_cached: int = 0
    rows_read: int = 0


class View:
    """One namespace in RAM, as of `version`.

    While a namespace has no cells all its vectors are pending, hot ones among
    them, and `hot` is empty.

    Take `lock` first and open the snapshot while holding it: then every
    snapshot is at least as new as the view, and nothing stale is cached.  *check*
    raises where the vectors in a snapshot are not of the embedder that the view
    is for.
    """

    def __init__(
        self,
        dimension: int,
        hot_vectors_max: int,
        check: Callable[[Reader], None] = lambda reader: None,
        reads: Reads | None = None,
    ) -> None:
        self.lock = threading.Lock()
        # Held by whoever puts vectors into cells; taken before the other one.
        self.indexing = threading.Lock()
        self._reads = Reads() if reads is None else reads
        self.ns_id = -1
        self.version = -1
        self.hot = Block(dimension)
        self.pending = Block(dimension)
        self.index: CentroidIndex | None = None
        self._dimension = dimension
        self._hot_vectors_max = hot_vectors_max
        self._check = check
        self._cells: OrderedDict[int, Members] = OrderedDict()
        self._cells_bytes = 0
        self._cards: OrderedDict[int, Card] = OrderedDict()
        self._facts = Facts()
        self._keys_of: tuple[float, Scale] | None = None

    @property
    def size_bytes(self) -> int:
        """Memory this view takes, cards left out."""
        index_bytes = 0 if self.index is None else self.index.size_bytes
        vectors_bytes = self.hot.size_bytes + self.pending.size_bytes + self._facts.size_bytes
        return vectors_bytes + self._cells_bytes + index_bytes

    @property
    def is_whole(self) -> bool:
        """Whether the view is loaded and its namespace has no cells: all vectors are here."""
        return self.version >= 0 and self.index is None

    def follow(self, reader: Reader, row: NamespaceRow) -> None:
        """Bring the view to the state *reader* sees; *row* is the namespace there."""
        if self._keys_of != (row.half_life_s, row.scale):
            # Every value key is another one now.
            self._cards.clear()
            self._facts.clear()
            self._keys_of = row.half_life_s, row.scale
        if self.ns_id != row.ns_id or self.version != row.version:
            self._check(reader)
            self._catch_up(reader, row)
        if self.index is None:
            self._facts.align(self.pending.ids)
        else:
            self._facts.clear()

    def _catch_up(self, reader: Reader, row: NamespaceRow) -> None:
        if self.ns_id == row.ns_id and 0 <= self.version < row.version:
            changes = reader.changes(row.ns_id, self.version)
            if changes is not None:
                for change in changes:
                    self._drop_stale(change)
                self._take_up(reader, row, changes)
                self.version = row.version
                return
        self._load(reader, row)

    def _load(self, reader: Reader, row: NamespaceRow) -> None:
        self.version = -1
        self.hot.clear()
        self.pending.clear()
        self.index = None
        self._cells.clear()
        self._cells_bytes = 0
        self._cards.clear()
        self._facts.clear()
        pending, cells = reader.pending_ids(row.ns_id), reader.cell_ids(row.ns_id)
        if len(pending) != row.pending or len(cells) != row.cells:
            raise IndexDamaged(
                f"the index of namespace {row.name!r} lacks {row.pending - len(pending)} waiting "
                f"vectors and {row.cells - len(cells)} cells; `amv doctor --rebuild` makes it anew"
            )
        self.pending.add(reader.vectors(pending))
        if row.cells:
            self.index = load_index(reader, row.ns_id, self._dimension)
            self._add_hot(reader, reader.hot_keys(row.ns_id))
        self.ns_id, self.version = row.ns_id, row.version

    def _add_hot(self, reader: Reader, keys: Iterable[int]) -> None:
        room = self._hot_vectors_max - len(self.hot)
        wanted = reader.vector_ids(list(keys))
        placed = reader.placements(wanted)
        # Hot items with more passages than fit are still reached through their cells.
        fresh = [
            i
            for i in wanted.tolist()
            if i in placed and placed[i].cell_id >= PENDING and i not in self.hot
        ]
        self.hot.add(reader.vectors(np.asarray(fresh[:room], dtype=np.int64)))

    def _drop_stale(self, change: Change) -> None:
        gone = set(change.vectors_out)
        self.hot.remove(gone)
        self.pending.remove(gone | set(change.placed))
        if change.hot_out:
            out = np.asarray(change.hot_out, dtype=np.int64)
            self.hot.remove(self.hot.ids[np.isin(owners(self.hot.ids), out)].tolist())
        for cell_id in (*change.cells_touched, *change.cells_out):
            self._forget_cell(cell_id)
        for key in change.items:
            self._cards.pop(key, None)
        self._facts.forget(change.items)

    def _take_up(self, reader: Reader, row: NamespaceRow, changes: list[Change]) -> None:
        self._follow_use(reader, row.ns_id, {key for change in changes for key in change.used})
        arrived = {i for change in changes for i in change.vectors_in}
        if arrived:
            # What came and went again is not pending any more: ask for what is.
            now = reader.placements(np.asarray(sorted(arrived), dtype=np.int64))
            fresh = [i for i, p in now.items() if p.cell_id == PENDING and i not in self.pending]
            self.pending.add(reader.vectors(np.asarray(sorted(fresh), dtype=np.int64)))
        hot_in = {key for change in changes for key in change.hot_in}
        if hot_in and self.index is not None:
            self._add_hot(reader, hot_in & set(reader.hot_keys(row.ns_id)))
        cells_out = {i for change in changes for i in change.cells_out}
        cells_in = {i for change in changes for i in change.cells_in} - cells_out
        if not row.cells:
            self.index = None
            self.hot.clear()
        elif self.index is None:
            self.index = load_index(reader, row.ns_id, self._dimension)
            self._add_hot(reader, reader.hot_keys(row.ns_id))
        elif cells_in or cells_out:
            known = self.index.ids()
            self.index.remove(np.asarray(sorted(cells_out & known), dtype=np.int64))
            new = reader.centroids(np.asarray(sorted(cells_in - known), dtype=np.int64))
            self.index.add(new.ids, new.matrix)
            self.index.tidy()

    def _forget_cell(self, cell_id: int) -> None:
        members = self._cells.pop(cell_id, None)
        if members is not None:
            self._cells_bytes -= members.codes.nbytes + members.ids.nbytes

    def members(self, reader: Reader, cell_ids: Ids) -> list[Members]:
        """Return what cells hold, in order; cells that are gone are left out."""
        missing = [i for i in cell_ids.tolist() if i not in self._cells]
        self._reads.cells_cached += len(cell_ids) - len(missing)
        self._reads.cells_read += len(missing)
        if missing:
            for cell_id, members in reader.members(np.asarray(missing, dtype=np.int64)).items():
                if members.codes.shape[1] != code_width(self._dimension):
                    raise StoreError(
                        f"the codes of cell {cell_id} have {members.codes.shape[1]} bytes, needed "
                        f"{code_width(self._dimension)}: the store is damaged; "
                        "run `amv doctor --rebuild`"
                    )
                self._cells[cell_id] = members
                self._cells_bytes += members.codes.nbytes + members.ids.nbytes
        found = []
        for cell_id in cell_ids.tolist():
            if cell_id in self._cells:
                self._cells.move_to_end(cell_id)
                found.append(self._cells[cell_id])
        return found

    def _follow_use(self, reader: Reader, ns_id: int, used: set[int]) -> None:
        held = used & self._cards.keys()
        states = reader.states(ns_id, list(held))
        for key, state in states.items():
            self._cards[key] = self._cards[key].with_state(state)
        self._facts.follow(states)
        self._facts.forget(used - held)

    def facts(self, reader: Reader, places: Ids, at_s: float) -> tuple[Columns, bool] | None:
        """Return the columns of `Facts` for vectors of `pending`; None if some have no item.

        And whether none ends before the moment that a search asks for, *at_s*.
        """
        found = self._facts.at(places)
        if found[ENDS].min(initial=np.inf) > at_s:
            return found, True
        unknown = np.isnan(found[ENDS])
        keys = owners(self.pending.ids[places[unknown]]).tolist()
        cards = self.cards(reader, keys)
        if not all(key in cards for key in keys):
            return None
        self._facts.learn(places[unknown], [cards[key] for key in keys])
        found = self._facts.at(places)
        return found, bool(found[ENDS].min(initial=np.inf) > at_s)

    def keys_at(self, places: Ids) -> tuple[Ids, bool]:
        """Return the keys of the items of vectors of `pending`, and whether all are different."""
        keys = self._facts.keys_at(places)
        return keys, self._facts.are_single or len(ascending(keys)) == len(keys)

    def cards(self, reader: Reader, keys: list[int]) -> dict[int, Card]:
        """Return the cards of items by key, from the cache where they are there."""
        found = {key: card for key in keys if (card := self._cards.get(key)) is not None}
        self._reads.rows_cached += len(found)
        if len(found) < len(keys):
            missing = [key for key in keys if key not in found]
            self._reads.rows_read += len(missing)
            # A damaged index must not lead into another namespace.
            there = reader.rows(missing).items()
            self._cards.update((key, card_of(row)) for key, row in there if row.ns_id == self.ns_id)
            found = {key: self._cards[key] for key in keys if key in self._cards}
            while len(self._cards) > _CARDS_MAX:
                self._cards.popitem(last=False)
        return found

    def trim_cells(self, bytes_max: int) -> None:
        """Drop the cells used longest ago until they take at most *bytes_max*."""
        while self._cells_bytes > bytes_max and self._cells:
            self._forget_cell(next(iter(self._cells)))


def load_index(reader: Reader, ns_id: int, dimension: int) -> CentroidIndex:
    """Load the saved centroid index and bring it up to date, or build it anew.

    The index is derived data: one that is missing or damaged costs time only.
    """
    snapshot = reader.cell_snapshot(ns_id)
    index = CentroidIndex(dimension)
    if snapshot is not None:
        try:
            index = CentroidIndex(dimension, snapshot)
        except StoreError:
            index = CentroidIndex(dimension)
    current = set(reader.cell_ids(ns_id).tolist())
    known = index.ids()
    index.remove(np.asarray(sorted(known - current), dtype=np.int64))
    new = reader.centroids(np.asarray(sorted(current - known), dtype=np.int64))
    index.add(new.ids, new.matrix)
    return index


class Views:
    """The views of all namespaces in use, within one bound on memory."""

    def __init__(self, make: Callable[[], View], bytes_max: int) -> None:
        self._make = make
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._views: OrderedDict[Namespace, View] = OrderedDict()
        self._sizes: dict[Namespace, int] = {}
        self._bytes = 0

    def of(self, namespace: Namespace) -> View:
        """Return the view of a namespace, perhaps one that holds nothing yet."""
        with self._lock:
            view = self._views.get(namespace)
            if view is None:
                view = self._views[namespace] = self._make()
            self._views.move_to_end(namespace)
            return view

    def __len__(self) -> int:
        return len(self._views)

    def peek(self, namespace: Namespace) -> View | None:
        """Return the view of a namespace if there is one."""
        return self._views.get(namespace)

    def drop(self, namespace: Namespace) -> None:
        """Forget the view of a namespace."""
        with self._lock:
            self._views.pop(namespace, None)
            self._measure(namespace)

    def trim(self, namespace: Namespace) -> None:
        """Drop views, least recently used first, until the rest fit; at least one stays.

        That one keeps its cells within the bound.  Only the view of *namespace*,
        which was just used, is measured anew: adding up all would not be free.
        """
        with self._lock:
            self._measure(namespace)
            while self._bytes > self._bytes_max and len(self._views) > 1:
                gone, _ = self._views.popitem(last=False)
                self._measure(gone)
            if self._bytes <= self._bytes_max:
                return
            name, last = next(iter(self._views.items()))
        with last.lock:
            last.trim_cells(self._bytes_max // 4)
        with self._lock:
            self._measure(name)

    def _measure(self, namespace: Namespace) -> None:
        view = self._views.get(namespace)
        self._bytes -= self._sizes.pop(namespace, 0)
        if view is not None:
            self._sizes[namespace] = view.size_bytes
            self._bytes += self._sizes[namespace]
