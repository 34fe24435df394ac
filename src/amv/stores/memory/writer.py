"""Writing the dictionaries of the in-process store, with notes on how to undo it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from amv.errors import StoreError
from amv.memory.item import Namespace, Protection, Row, State
from amv.memory.lexical import LENGTH_MAX, TF_MAX
from amv.memory.ports import (
    PASSAGES_MAX,
    PENDING,
    RETIRED,
    Change,
    Floats,
    HistoryRow,
    Ids,
    KeyRow,
    Members,
    NamespaceRow,
    NewPostings,
    Place,
    Vectors,
)
from amv.memory.value import Scale, rescaling
from amv.stores.memory.reader import MemoryReader
from amv.stores.memory.tables import (
    Cell,
    Entry,
    Tables,
    Vector,
    among,
    entries_of_row,
    entries_of_vector,
    frozen,
    ids_of,
    own_change,
    own_members,
    own_row,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

CHANGES_KEPT = 256


class MemoryWriter(MemoryReader):
    """What `ports.Writer` says; each method is described there.

    Every change goes through `_set` and `_remove`, which note how to undo it.
    Writes about keys and ids that are not there do nothing.
    """

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._inverses: list[Callable[[], object]] = []
        self.deleted: list[tuple[Namespace, str | None]] = []

    def undo(self) -> None:
        """Take back everything, the latest first."""
        while self._inverses:
            self._inverses.pop()()

    def _set(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            self._inverses.append(partial(table.__setitem__, key, table[key]))
        else:
            self._inverses.append(partial(table.pop, key))
        table[key] = value

    def _remove(self, table: dict[K, V], key: K) -> None:
        if key in table:
            self._inverses.append(partial(table.__setitem__, key, table.pop(key)))

    def _set_or_remove(self, table: dict[K, V], key: K, value: V | None) -> None:
        if value is None:
            self._remove(table, key)
        else:
            self._set(table, key, value)

    def _inner(self, table: dict[K, dict[T, V]], key: K) -> dict[T, V]:
        """Return the dictionary at *key*, made if missing."""
        if key not in table:
            self._set(table, key, {})
        return table[key]

    def _remove_inner(self, table: dict[K, dict[T, V]], key: K, inner_key: T) -> None:
        """Remove from the dictionary at *key*, and that too once it is empty."""
        if key in table:
            self._remove(table[key], inner_key)
            if not table[key]:
                self._remove(table, key)

    def _reindex(self, key: int, before: set[Entry], after: set[Entry]) -> None:
        for entry in before - after:
            self._remove_inner(self._tables.index, entry, key)
        for entry in after - before:
            self._set(self._inner(self._tables.index, entry), key, None)

    def _put_row(self, row: Row) -> None:
        before = self._tables.rows.get(row.key)
        self._reindex(row.key, entries_of_row(before), entries_of_row(row))
        self._set(self._tables.rows, row.key, row)

    def _put_vector(self, vector_id: int, vector: Vector) -> None:
        before = self._tables.vectors.get(vector_id)
        after = entries_of_vector(vector_id, vector)
        self._reindex(vector_id, entries_of_vector(vector_id, before), after)
        self._set(self._tables.vectors, vector_id, vector)

    def set_meta(self, name: str, value: str | None) -> None:
        self._set_or_remove(self._tables.meta, name, value)

    def put_key(self, key: KeyRow) -> None:
        self._set(self._tables.keys, key.key_id, key)

    def create_namespace(self, name: Namespace, half_life_s: float) -> NamespaceRow:
        if name in self._tables.names:
            raise StoreError(f"namespace {name!r} exists already")
        ns_id = next(self._tables.new_ns_ids)
        row = NamespaceRow(ns_id=ns_id, name=name, version=0, half_life_s=half_life_s)
        self._set(self._tables.names, name, ns_id)
        self._set(self._tables.namespaces, ns_id, row)
        return row

    def put_namespace(self, row: NamespaceRow) -> None:
        if row.ns_id in self._tables.namespaces:
            self._set(self._tables.namespaces, row.ns_id, row)

    def rekey(self, ns_id: int, shift: float) -> None:
        for key in self._indexed("rows", ns_id):
            row = self._tables.rows[key]
            if row.state.protection is not Protection.NOT_YET_VALID:
                state = replace(row.state, value_key=row.state.value_key + shift)
                self._put_row(replace(row, state=state))

    def rescale(self, ns_id: int, old: Scale, new: Scale) -> None:
        for key in self._indexed("rows", ns_id):
            row = self._tables.rows[key]
            if row.state.protection is not Protection.NOT_YET_VALID:
                shift = rescaling(row.state.contributed_count, old, new)
                state = replace(row.state, value_key=row.state.value_key + shift)
                self._put_row(replace(row, state=state))

    def drop_namespace(self, ns_id: int) -> None:
        namespace = self.namespace_by_id(ns_id)
        if namespace is None:
            return
        tables = self._tables
        self.clear_index(ns_id)
        self.drop_vectors(ids_of(self._indexed("vectors", ns_id)))
        self.delete(self._indexed("rows", ns_id))
        self._remove(tables.changes, ns_id)
        self._remove(tables.names, namespace.name)
        self._remove(tables.namespaces, ns_id)
        self.deleted.append((namespace.name, None))

    def drop_beside(self, name: Namespace) -> bool:
        self.deleted.append((name, None))
        return True

    def log_change(self, ns_id: int, version: int, change: Change) -> None:
        kept = self._inner(self._tables.changes, ns_id)
        self._set(kept, version, own_change(change))
        for old in [other for other in kept if other <= version - CHANGES_KEPT]:
            self._remove(kept, old)

    def insert(self, rows: Sequence[Row]) -> list[int]:
        keys = []
        for row in rows:
            if self._indexed("id", row.ns_id, row.id):
                raise StoreError(f"item id {row.id!r} is taken in this namespace")
            key = next(self._tables.new_keys)
            self._put_row(replace(own_row(row), key=key))
            keys.append(key)
        return keys

    def update(self, row: Row) -> None:
        if row.key in self._tables.rows:
            self._put_row(own_row(row))

    def put_states(self, states: Sequence[tuple[int, State]]) -> None:
        for key, state in states:
            if key in self._tables.rows:
                self._put_row(replace(self._tables.rows[key], state=state))

    def delete(self, keys: Sequence[int]) -> None:
        for key in keys:
            row = self._tables.rows.get(key)
            if row is not None:
                self.deleted.append((self._tables.namespaces[row.ns_id].name, row.id))
            self._reindex(key, entries_of_row(row), set())
            self._remove(self._tables.rows, key)
            self._remove(self._tables.history, key)

    def add_history(self, key: int, entry: HistoryRow) -> None:
        if key in self._tables.rows:
            self._set(self._tables.history, key, (*self.history(key), entry))

    def stage_vectors(self, vectors: Vectors) -> None:
        for vector_id, values in zip(vectors.ids.tolist(), vectors.matrix, strict=True):
            self._set(self._tables.staged, vector_id, frozen(values, np.float32))

    def clear_stage(self) -> None:
        for vector_id in list(self._tables.staged):
            self._remove(self._tables.staged, vector_id)

    def add_vectors(self, ns_id: int, vectors: Vectors) -> None:
        for vector_id, values in zip(vectors.ids.tolist(), vectors.matrix, strict=True):
            vector = Vector(ns_id, Place(PENDING), frozen(values, np.float32))
            self._put_vector(vector_id, vector)

    def retire_vectors(self, vector_ids: Ids) -> None:
        self._place_all(vector_ids, Place(RETIRED))

    def drop_vectors(self, vector_ids: Ids) -> None:
        for vector_id, vector in among(self._tables.vectors, vector_ids).items():
            self._reindex(vector_id, entries_of_vector(vector_id, vector), set())
            self._remove(self._tables.vectors, vector_id)
        for vector_id in self.staged_ids([i // PASSAGES_MAX for i in vector_ids.tolist()]).tolist():
            self._remove(self._tables.staged, vector_id)

    def place(self, vector_ids: Ids, cell_ids: Ids) -> None:
        for vector_id, place in zip(vector_ids.tolist(), cell_ids.tolist(), strict=True):
            self._place_all(np.array([vector_id]), Place(*place))

    def _place_all(self, vector_ids: Ids, place: Place) -> None:
        for vector_id, vector in among(self._tables.vectors, vector_ids).items():
            self._put_vector(vector_id, vector._replace(place=place))

    def move_vectors(self, vector_ids: Ids, moves: Ids) -> None:
        for vector_id, (left, joined) in zip(vector_ids.tolist(), moves.tolist(), strict=True):
            if (vector := self._tables.vectors.get(vector_id)) is not None:
                place = Place(*(joined if i == left else i for i in vector.place))
                self._put_vector(vector_id, vector._replace(place=place))

    def add_cell(self, ns_id: int, centroid: Floats, members: Members) -> int:
        cell_id = next(self._tables.new_cell_ids)
        cell = Cell(ns_id, frozen(centroid, np.float16), own_members(members))
        self._reindex(cell_id, set(), {("cells", ns_id)})
        self._set(self._tables.cells, cell_id, cell)
        return cell_id

    def extend_cells(self, members: Mapping[int, Members]) -> None:
        for cell_id, more in members.items():
            if (cell := self._tables.cells.get(cell_id)) is not None:
                joined = Members(
                    np.concatenate([cell.members.ids, more.ids]),
                    np.concatenate([cell.members.codes, more.codes]),
                )
                self._set(self._tables.cells, cell_id, cell._replace(members=own_members(joined)))

    def remove_members(self, cell_id: int, vector_ids: Ids) -> None:
        if (cell := self._tables.cells.get(cell_id)) is not None:
            stays = ~np.isin(cell.members.ids, vector_ids)
            left = Members(cell.members.ids[stays], cell.members.codes[stays])
            self._set(self._tables.cells, cell_id, cell._replace(members=own_members(left)))

    def drop_cell(self, cell_id: int) -> None:
        if (cell := self._tables.cells.get(cell_id)) is not None:
            self._reindex(cell_id, {("cells", cell.ns_id)}, set())
            self._remove(self._tables.cells, cell_id)

    def put_cell_snapshot(self, ns_id: int, snapshot: bytes | None) -> None:
        self._set_or_remove(self._tables.snapshots, ns_id, snapshot)

    def add_postings(self, ns_id: int, postings: Sequence[NewPostings]) -> None:
        terms = self._inner(self._tables.postings, ns_id)
        for item in postings:
            length = min(item.length, LENGTH_MAX)
            for term, tf in item.counts.items():
                self._set(self._inner(terms, term), item.key, (min(tf, TF_MAX), length))

    def remove_postings(self, ns_id: int, key: int, terms: Sequence[str]) -> None:
        for term in terms:
            self._remove_inner(self._tables.postings.get(ns_id, {}), term, key)

    def clear_index(self, ns_id: int) -> None:
        for cell_id in self._indexed("cells", ns_id):
            self.drop_cell(cell_id)
        self.put_cell_snapshot(ns_id, None)
        self._remove(self._tables.postings, ns_id)
        self._place_all(self.indexed_ids(ns_id), Place(PENDING))
