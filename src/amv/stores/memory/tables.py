"""What the in-process store holds, how it copies, and what must agree.

`Tables.index` stands for every secondary index at once: it leads from an entry
such as ("claim", ns_id, subject, attribute) to the keys that have it.  Which
entries a row or vector has is said in one place, `entries_of_row` and
`entries_of_vector`.

Nothing mutable is shared with callers: it is copied, or made read-only.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from amv.memory.item import Namespace, Row, Status
from amv.memory.lexical import POSTING
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
    Place,
    Vectors,
)
from amv.memory.repeats import digest
from amv.memory.tiers import Tier

Entry = tuple[str | int, ...]
Terms = dict[str, dict[int, tuple[int, int]]]
V = TypeVar("V")
S = TypeVar("S", bound=np.generic)


class Vector(NamedTuple):
    """One passage's vector and where it is."""

    ns_id: int
    place: Place
    values: Floats


class Cell(NamedTuple):
    """One cell; the centroid is kept as float16, as every store keeps it."""

    ns_id: int
    centroid: npt.NDArray[np.float16]
    members: Members


@dataclass(frozen=True, slots=True)
class Tables:
    """All that is kept.  *postings* leads from namespace, term and key to (tf, length)."""

    meta: dict[str, str] = field(default_factory=dict)
    keys: dict[str, KeyRow] = field(default_factory=dict)
    namespaces: dict[int, NamespaceRow] = field(default_factory=dict)
    names: dict[Namespace, int] = field(default_factory=dict)
    changes: dict[int, dict[int, Change]] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    history: dict[int, tuple[HistoryRow, ...]] = field(default_factory=dict)
    vectors: dict[int, Vector] = field(default_factory=dict)
    staged: dict[int, Floats] = field(default_factory=dict)
    cells: dict[int, Cell] = field(default_factory=dict)
    snapshots: dict[int, bytes] = field(default_factory=dict)
    postings: dict[int, Terms] = field(default_factory=dict)
    index: dict[Entry, dict[int, None]] = field(default_factory=dict)
    # Never wound back, so that no number is given out twice.
    new_ns_ids: Iterator[int] = field(default_factory=partial(count, 1))
    new_keys: Iterator[int] = field(default_factory=partial(count, 1))
    new_cell_ids: Iterator[int] = field(default_factory=partial(count, PENDING + 1))


# ---------------------------------------------------------------- index


def entries_of_row(row: Row | None) -> set[Entry]:
    """Return where *row* stands in the index; only live rows have a tier."""
    if row is None:
        return set()
    ns_id = row.ns_id
    entries: set[Entry] = {("rows", ns_id), ("id", row.id), ("id", ns_id, row.id)}
    if row.claim is not None and row.status is Status.LIVE:
        entries.add(("claim", ns_id, *row.claim.key))
    for linked in (row.supersedes, row.superseded_by):
        if linked is not None:
            entries.add(("link", ns_id, linked))
    if row.expires_s is not None:
        entries.add(("expires", ns_id))
    if row.status is Status.LIVE:
        entries |= {("live", ns_id), ("tier", ns_id, row.state.protection, row.state.tier)}
        entries.add(("told", ns_id, digest(row.content)))
        if row.contradicted and row.valid_until_s is not None:
            entries.add(("doubted", ns_id))
    elif row.status is Status.SUPERSEDED:
        entries.add(("past", ns_id))
    return entries


def entries_of_vector(vector_id: int, vector: Vector | None) -> set[Entry]:
    """Return where a vector stands in the index."""
    if vector is None:
        return set()
    entries: set[Entry] = {("vectors", vector.ns_id), ("owner", vector_id // PASSAGES_MAX)}
    if vector.place.cell_id != RETIRED:
        entries.add(("indexed", vector.ns_id))
    if vector.place.cell_id == PENDING:
        entries.add(("pending", vector.ns_id))
    return entries


def is_expired(row: Row, now_s: float) -> bool:
    """Tell whether *row* has run out by *now_s*."""
    return row.expires_s is not None and row.expires_s <= now_s


def was_valid(row: Row, at_s: float) -> bool:
    """Tell whether what *row* says held at *at_s*."""
    return row.valid_from_s <= at_s and (row.valid_until_s is None or at_s < row.valid_until_s)


# ---------------------------------------------------------------- copies


def own_row(row: Row) -> Row:
    """Return *row* with metadata of its own."""
    return replace(row, metadata=copy.deepcopy(dict(row.metadata)))


def own_change(change: Change) -> Change:
    """Return a copy of *change*."""
    return Change.from_lists([list(one) for one in change.as_lists()])


def own_members(members: Members) -> Members:
    """Return a read-only copy of *members*."""
    return Members(frozen(members.ids, np.int64), frozen(members.codes, np.uint8))


def frozen(array: npt.NDArray[np.generic], dtype: type[S]) -> npt.NDArray[S]:
    """Return a read-only copy of *array*."""
    owned = array.astype(dtype)
    owned.setflags(write=False)
    return owned


def among(table: Mapping[int, V], ids: Ids) -> dict[int, V]:
    """Return what *table* has at these ids."""
    return {i: table[i] for i in ids.tolist() if i in table}


def ids_of(ids: Iterable[int]) -> Ids:
    """Return ids ascending, each once."""
    return np.array(sorted(set(ids)), dtype=np.int64)


def stacked(rows: Mapping[int, Floats]) -> Vectors:
    """Return rows by id as one matrix, ascending; of shape (0, 0) if there are none."""
    ids = ids_of(rows)
    if not rows:
        return Vectors(ids, np.empty((0, 0), dtype=np.float32))
    return Vectors(ids, np.stack([rows[i] for i in ids.tolist()]))


# ---------------------------------------------------------------- checks


def payload_bytes(tables: Tables) -> int:
    """Return how many bytes texts, vectors, cells, snapshots and postings take."""
    return (
        sum(len((row.content + row.context).encode()) for row in tables.rows.values())
        + sum(vector.values.nbytes for vector in tables.vectors.values())
        + sum(
            cell.centroid.nbytes + cell.members.ids.nbytes + cell.members.codes.nbytes
            for cell in tables.cells.values()
        )
        + sum(len(snapshot) for snapshot in tables.snapshots.values())
        + sum(
            len(term.encode()) + POSTING.itemsize * len(entries)
            for terms in tables.postings.values()
            for term, entries in terms.items()
        )
    )


def problems(tables: Tables) -> list[str]:
    """Say where totals differ from counts, placements from cells, owners from rows."""
    totals = [
        problem
        for namespace in tables.namespaces.values()
        for problem in _wrong_totals(tables, namespace)
    ]
    return totals + _wrong_vectors(tables) + _wrong_postings(tables)


def _wrong_totals(tables: Tables, namespace: NamespaceRow) -> Iterator[str]:
    """Yield where the running totals of a namespace differ from what it holds."""
    ns_id = namespace.ns_id
    live = [tables.rows[key] for key in tables.index.get(("live", ns_id), ())]
    counted = {
        "live": len(live),
        "length": sum(row.length for row in live),
        "hot": sum(row.state.tier is Tier.HOT for row in live),
        "pinned": sum(row.pinned for row in live),
        "vectors": len(tables.index.get(("indexed", ns_id), ())),
        "pending": len(tables.index.get(("pending", ns_id), ())),
        "cells": len(tables.index.get(("cells", ns_id), ())),
    }
    for name, number in counted.items():
        if (total := getattr(namespace, name)) != number:
            yield f"namespace {namespace.name!r} says {name} = {total}, but {number} are there"


def _wrong_vectors(tables: Tables) -> list[str]:
    """Say which vectors have no item, or are not where their placement says."""
    held = {
        (vector_id, cell_id)
        for cell_id, cell in tables.cells.items()
        for vector_id in cell.members.ids.tolist()
    }
    placed = {
        (vector_id, cell_id)
        for vector_id, vector in tables.vectors.items()
        for cell_id in vector.place
        if cell_id not in (PENDING, RETIRED)
    }
    orphans = [i for i in tables.vectors if i // PASSAGES_MAX not in tables.rows]
    return (
        [f"vector {i} is placed in cell {cell_id}, which lacks it" for i, cell_id in placed - held]
        + [f"cell {cell_id} holds vector {i}, placed elsewhere" for i, cell_id in held - placed]
        + [f"vector {i} belongs to no item" for i in orphans]
    )


def _wrong_postings(tables: Tables) -> list[str]:
    """Say which postings lead to no item; a term is content, so it is not named."""
    return [
        f"the lexical index of namespace {ns_id} leads to item {key}, which is gone"
        for ns_id, terms in tables.postings.items()
        for key in sorted({key for entries in terms.values() for key in entries})
        if key not in tables.rows
    ]
