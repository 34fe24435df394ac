"""A small memory with one of everything, and a picture of all that a reader tells about it.

The contract compares pictures: before and after a write that failed, of one
namespace while another one changes, before and after a file was reopened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from amv.memory import filters
from amv.memory.cells import code_width
from amv.memory.item import Claim, Namespace, Protection, Row, State, Status
from amv.memory.ports import (
    PASSAGES_MAX,
    Change,
    Floats,
    HistoryRow,
    Ids,
    KeyRow,
    Members,
    NamespaceRow,
    NewPostings,
    Place,
    Reader,
    Store,
    Vectors,
    Writer,
)
from amv.memory.repeats import digest
from amv.memory.tiers import Tier

DIMENSION = 8
NOW_S = 1_700_000_000.0
HALF_LIFE_S = 86_400.0

FORMS: tuple[dict[str, object], ...] = (
    {},
    {"city": "Rome"},
    {"city": {"ne": "Rome"}},
    {"age": {"gt": 3, "lte": 9}},
    {"age": {"gte": 10}},
    {"age": "10"},
    {"city": {"gt": "Oslo"}},
    {"tag": {"in": ["a", 7]}},
    {"tag": "b"},
    {"home.zip": None},
    {"done": True},
    {"done": 1},
    {"or": [{"city": "Rome"}, {"done": True}]},
    {"and": [{"city": "Rome"}, {"age": {"lt": 9}}]},
    {"not": {"or": [{"city": "Rome"}, {"age": {"gte": 0}}]}},
    {"quo'te": '"; --'},
)
"""Filters, one for each of their features."""

METADATA: tuple[dict[str, object], ...] = (
    {},
    {"city": "Rome", "age": 3},
    {"city": "Rome", "age": 9.0, "tag": ["a", "b"]},
    {"city": "rome", "age": "10", "done": True},
    {"city": ["Oslo", "Rome"], "home": {"zip": None}},
    {"age": 10, "tag": ["7", 7], "done": 1},
    {"city": "Zürich", "tag": [], "home": {"zip": "8001"}},
    {"quo'te": '"; --', "done": False},
)
"""Metadata that tell those filters apart."""

TERMS = ("rome", "trip", "john_doe", "naïve", "%", "absent")


def ids(*numbers: int) -> Ids:
    """Return an array of ids."""
    return np.array(numbers, dtype=np.int64)


def vector_id(key: int, passage: int = 0) -> int:
    """Return the id of a vector of the item at *key*."""
    return key * PASSAGES_MAX + passage


def unit(seed: int) -> Floats:
    """Return a unit vector that is always the same for *seed*."""
    row = np.sin(np.arange(1, DIMENSION + 1) * (seed + 1.0)).astype(np.float32)
    return np.asarray(row / np.linalg.norm(row), dtype=np.float32)


def vectors(*vector_ids: int) -> Vectors:
    """Return a vector for each id, in the order given."""
    rows = [unit(i) for i in vector_ids]
    return Vectors(ids(*vector_ids), np.array(rows, dtype=np.float32).reshape(-1, DIMENSION))


def members(*vector_ids: int) -> Members:
    """Return those vectors as members of a cell; to a store, a code is so many bytes."""
    parts = vectors(*vector_ids).matrix[:, : code_width(DIMENSION)]
    return Members(ids(*vector_ids), np.rint(parts * 127 + 128).astype(np.uint8))


def spots(*places: Place) -> Ids:
    """Return the cells of each vector, as `Writer.place` takes them."""
    return np.array(places, dtype=np.int64).reshape(-1, len(Place._fields))


def pairs(*cell_ids: tuple[int, int]) -> Ids:
    """Return from which cell to which each vector moves, as `Writer.move_vectors` takes them."""
    return np.array(cell_ids, dtype=np.int64).reshape(-1, 2)


def gateway_key(key_id: str, *namespace: str) -> KeyRow:
    """Return a key to the gateway that reaches *namespace*."""
    mac = bytes(range(256))[-32:]
    return KeyRow(key_id, mac, namespace, level=1, created_s=NOW_S + 0.125, revoked_s=None)


def state(
    tier: Tier = Tier.WARM,
    value_key: float = 0.0,
    protection: Protection = Protection.NONE,
) -> State:
    """Return a state with no counts."""
    return State(tier=tier, protection=protection, value_key=value_key)


_PLAIN = Row(
    key=0,
    ns_id=0,
    id="",
    content="a trip to Rome",
    context="",
    length=2,
    created_s=NOW_S,
    valid_from_s=NOW_S,
    valid_until_s=None,
    expires_s=None,
    source=None,
    source_trust=0.5,
    claim=None,
    status=Status.LIVE,
    contradicted=False,
    pinned=False,
    metadata={},
    supersedes=None,
    superseded_by=None,
    last_verified_s=None,
    state=state(),
)


def plain(ns_id: int, item_id: str) -> Row:
    """Return a row about nothing in particular; use `dataclasses.replace` for the rest."""
    return replace(_PLAIN, ns_id=ns_id, id=item_id)


def rich(ns_id: int, item_id: str) -> Row:
    """Return a row with something in every field."""
    return replace(
        plain(ns_id, item_id),
        content="Élan\n\t🧠 \u202e\u05e2\u05d1\u05e8\u05d9\u05ea\u202c 'quote' \"double\" % _ \\",
        context="said in Rome",
        length=70_000,
        created_s=NOW_S + 0.123456,
        valid_from_s=NOW_S - 5.5,
        valid_until_s=NOW_S + 1e6,
        expires_s=NOW_S + 2e6,
        source="chat/1",
        source_trust=0.1 + 0.2,
        claim=Claim("user", "city", "Rome"),
        contradicted=True,
        pinned=True,
        metadata={"a": [1, 2.5, None, True, {"b": "ß"}], "": "empty key", "big": 2**53},
        supersedes="older",
        superseded_by="newer",
        last_verified_s=NOW_S - 1.25,
        state=State(
            tier=Tier.HOT,
            protection=Protection.PINNED,
            value_key=480.123456789012,
            exposed_count=3,
            contributed_count=2,
        ),
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the things in a populated namespace are."""

    name: Namespace
    ns_id: int
    keys: tuple[int, ...]
    cell_id: int
    second_id: int
    third_id: int


ITEM_IDS = ("plain", "hot", "cold", "old", "new", "refuted", "later", "expired")


def populate(writer: Writer, name: Namespace) -> Scene:
    """Create a namespace with one of everything; its totals are right."""
    namespace = writer.create_namespace(name, HALF_LIFE_S)
    keys = tuple(writer.insert(_rows(namespace.ns_id)))
    first, hot, cold, old, new = keys[:5]
    writer.add_history(new, HistoryRow(NOW_S, "updated", "it was Oslo", None))
    writer.add_vectors(
        namespace.ns_id,
        vectors(*(vector_id(key) for key in (first, hot, cold, old, new)), vector_id(first, 1)),
    )
    writer.retire_vectors(ids(vector_id(old)))
    writer.stage_vectors(vectors(vector_id(cold)))
    in_cell = (vector_id(first), vector_id(first, 1), vector_id(cold))
    cell_id = writer.add_cell(namespace.ns_id, unit(1), members(*in_cell))
    second_id = writer.add_cell(namespace.ns_id, unit(2), members(*in_cell[:2]))
    third_id = writer.add_cell(namespace.ns_id, unit(3), members(in_cell[0]))
    # One vector is in all three, one has its nearest in the second, and one is in one only.
    places = Place(cell_id, second_id, third_id), Place(second_id, cell_id), Place(cell_id)
    writer.place(ids(*in_cell), spots(*places))
    writer.put_cell_snapshot(namespace.ns_id, b"index\x00over centroids")
    postings = [
        NewPostings(key, {"rome": 1 + i, "trip": 1, TERMS[2 + i % 3]: 2}, 2)
        for i, key in enumerate((first, hot, cold, new))
    ]
    writer.add_postings(namespace.ns_id, postings)
    writer.log_change(namespace.ns_id, 1, Change(hot_in=[hot], vectors_in=[vector_id(hot)]))
    writer.put_namespace(totals(namespace))
    return Scene(name, namespace.ns_id, keys, cell_id, second_id, third_id)


def populated(store: Store, *name: str) -> Scene:
    """Populate a namespace of this name in a write of its own."""
    return store.write(lambda w: populate(w, name))


def totals(namespace: NamespaceRow) -> NamespaceRow:
    """Return *namespace* with the totals of what `populate` puts there."""
    return replace(
        namespace,
        version=1,
        live=6,
        length=12,
        hot=2,
        pinned=1,
        vectors=5,
        pending=2,
        cells=3,
        cells_changed=3,
        next_due_s=NOW_S + 60.0,
    )


def _rows(ns_id: int) -> list[Row]:
    row = partial(plain, ns_id)
    oslo, rome = Claim("user", "city", "Oslo"), Claim("user", "city", "Rome")
    return [
        replace(row("plain"), metadata=METADATA[1], state=state(Tier.WARM, 4.0)),
        replace(
            row("hot"),
            source="chat",
            pinned=True,
            metadata=METADATA[2],
            state=state(Tier.HOT, 9.0, Protection.PINNED),
        ),
        replace(row("cold"), source="chat", state=state(Tier.COLD, -3.5)),
        replace(
            row("old"),
            claim=oslo,
            status=Status.SUPERSEDED,
            valid_from_s=NOW_S - 100.0,
            valid_until_s=NOW_S,
            superseded_by="new",
        ),
        replace(row("new"), claim=rome, supersedes="old", state=state(Tier.HOT, 5.0)),
        replace(row("refuted"), status=Status.REFUTED, claim=oslo),
        replace(
            row("later"),
            valid_from_s=NOW_S + 100.0,
            state=state(Tier.COLD, 7.0, Protection.NOT_YET_VALID),
        ),
        replace(
            row("expired"),
            expires_s=NOW_S - 1.0,
            state=state(Tier.COLD, 1.0, Protection.PROBATION),
        ),
    ]


def picture(reader: Reader, scene: Scene) -> dict[str, object]:
    """Return what *reader* tells about the scene, as plain values that can be compared."""
    return {
        "namespace": reader.namespace(scene.name),
        "changes": reader.changes(scene.ns_id, 0),
        "keys": reader.keys(),
        **_row_picture(reader, scene.ns_id, scene.keys),
        **_sweep_picture(reader, scene.ns_id),
        **_vector_picture(reader, scene),
        **_word_picture(reader, scene.ns_id),
    }


def _row_picture(reader: Reader, ns_id: int, keys: Sequence[int]) -> dict[str, object]:
    return {
        "rows": reader.rows(keys),
        "states": reader.states(ns_id, keys),
        "by id": [reader.rows_with_id(item_id, ns_id) for item_id in ITEM_IDS],
        "pages": [
            reader.page(ns_id, source=source, after_key=after, limit=4)
            for source in (None, "chat")
            for after in (0, *keys)
        ],
        "claims": reader.claim_rows(ns_id, "user", "city"),
        "told": reader.told(ns_id, [digest(row.content) for row in reader.rows(keys).values()]),
        "links": [reader.linked_rows(ns_id, item_id) for item_id in ITEM_IDS],
        "history": [reader.history(key) for key in keys],
        "matching": [
            sorted(reader.matching(ns_id, filters.parse(form), NOW_S, 100)) for form in FORMS
        ],
        "expiring": reader.expiring(ns_id, NOW_S, 100),
        "doubted_ends": reader.doubted_ends(ns_id, float("inf"), 100),
        "past": reader.past_keys(ns_id, NOW_S - 50.0, 100),
    }


def _sweep_picture(reader: Reader, ns_id: int) -> dict[str, object]:
    return {
        "ranges": [
            reader.tier_range(ns_id, protection, tier) for protection in Protection for tier in Tier
        ],
        "protected": [reader.protected_keys(ns_id, protection) for protection in Protection],
        "hot": sorted(reader.hot_keys(ns_id)),
        "counts": reader.tier_counts(ns_id),
    }


def _vector_picture(reader: Reader, scene: Scene) -> dict[str, object]:
    of_items = reader.vector_ids(scene.keys)
    found = reader.vectors(of_items)
    cell_ids = reader.cell_ids(scene.ns_id)
    centroids = reader.centroids(cell_ids)
    return {
        "vector ids": of_items.tolist(),
        "vectors": (found.ids.tolist(), found.matrix.tolist()),
        "staged": reader.staged(reader.staged_ids(scene.keys)).matrix.tolist(),
        "pending": reader.pending_ids(scene.ns_id).tolist(),
        "indexed": reader.indexed_ids(scene.ns_id).tolist(),
        "placements": reader.placements(of_items),
        "cells": cell_ids.tolist(),
        "centroids": (centroids.ids.tolist(), centroids.matrix.tolist()),
        "snapshot": reader.cell_snapshot(scene.ns_id),
        "members": {i: codes_by_id(one) for i, one in reader.members(cell_ids).items()},
        "sizes": reader.cell_sizes(cell_ids),
        "own cells": sorted(reader.members(ids(scene.cell_id, scene.second_id, scene.third_id))),
    }


def _word_picture(reader: Reader, ns_id: int) -> dict[str, object]:
    return {
        "frequencies": reader.frequencies(ns_id, TERMS),
        "postings": [reader.postings(ns_id, term, 100).tolist() for term in TERMS],
    }


def codes_by_id(one: Members) -> dict[int, list[int]]:
    """Return the codes of each member; in which order a cell holds them is its own affair."""
    assert one.codes.dtype == np.uint8
    return dict(zip(one.ids.tolist(), one.codes.tolist(), strict=True))


def triples(postings: npt.NDArray[np.void]) -> list[tuple[int, int, int]]:
    """Return postings as (key, tf, length)."""
    return [(int(key), int(tf), int(length)) for key, tf, length in postings.tolist()]
