"""What can be wrong with a database, in plain sentences."""

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import apsw
import numpy as np

from amv.errors import StoreError
from amv.memory.lookup import EMBEDDER_META, marked
from amv.memory.ports import PASSAGES_MAX
from amv.memory.tiers import Tier
from amv.stores.sqlite.codec import (
    ENTRY,
    decode_centroids,
    decode_entries,
    decode_members,
    decode_postings,
    decode_vectors,
    vector_bytes,
)
from amv.stores.sqlite.damage import UNDECODABLE
from amv.stores.sqlite.reader import PARTS_MAX
from amv.stores.sqlite.rows import (
    SELECT_NAMESPACES,
    SELECT_ROWS,
    Params,
    change_of,
    history_of,
    namespace_of,
    row_of,
)

Execute = Callable[..., Any]

#: How many problems of one sort are named.
_NAMED_MAX = 20
_CHUNKS_AT_ONCE = 4096
_ENTRY = ENTRY.itemsize

_TOTALS = f"""
    SELECT CAST(name AS BLOB), live, length, hot, pinned, vectors, pending, cells,
        (SELECT count(*) FROM item i WHERE i.ns_id = n.ns_id AND i.status = 0),
        (SELECT coalesce(sum(length), 0) FROM item i WHERE i.ns_id = n.ns_id AND i.status = 0),
        (SELECT count(*) FROM item_state s
            WHERE s.ns_id = n.ns_id AND s.live = 1 AND s.tier = {int(Tier.HOT)}),
        (SELECT count(*) FROM item i WHERE i.ns_id = n.ns_id AND i.status = 0 AND i.pinned = 1),
        (SELECT count(*) FROM placement p WHERE p.ns_id = n.ns_id AND min(p.cell_id, 1) >= 0),
        (SELECT count(*) FROM placement p WHERE p.ns_id = n.ns_id AND min(p.cell_id, 1) = 0),
        (SELECT count(*) FROM cell c WHERE c.ns_id = n.ns_id)
    FROM namespace n"""
_TOTAL_NAMES = ("live", "length", "hot", "pinned", "vectors", "pending", "cells")

_COUNTED = (
    (
        "items without a state, or states without an item",
        "SELECT (SELECT count(*) FROM item WHERE key NOT IN (SELECT key FROM item_state))"
        " + (SELECT count(*) FROM item_state WHERE key NOT IN (SELECT key FROM item))",
    ),
    (
        "states that disagree with their item about being live",
        "SELECT count(*) FROM item i JOIN item_state s USING (key)"
        " WHERE (i.status = 0) <> s.live OR i.ns_id <> s.ns_id",
    ),
    (
        "items in no namespace",
        "SELECT count(*) FROM item WHERE ns_id NOT IN (SELECT ns_id FROM namespace)",
    ),
    (
        "vectors without a placement, or placements without a vector",
        "SELECT (SELECT count(*) FROM vector_data WHERE id NOT IN (SELECT id FROM placement))"
        " + (SELECT count(*) FROM placement WHERE id NOT IN (SELECT id FROM vector_data))",
    ),
    (
        "vectors of items that are gone",
        f"SELECT count(*) FROM placement WHERE id / {PASSAGES_MAX} NOT IN (SELECT key FROM item)",
    ),
    (
        "vectors placed in another namespace than that of their item",
        "SELECT count(*) FROM placement p"
        f" JOIN item i ON i.key = p.id / {PASSAGES_MAX} AND i.ns_id <> p.ns_id",
    ),
    (
        "vectors staged for items that are gone",
        f"SELECT count(*) FROM staged_vector"
        f" WHERE id / {PASSAGES_MAX} NOT IN (SELECT key FROM item)",
    ),
    (
        "vectors placed in cells that are gone or another namespace's",
        "SELECT count(*) FROM (SELECT cell_id, ns_id FROM placement"
        " UNION ALL SELECT second_id, ns_id FROM placement"
        " UNION ALL SELECT third_id, ns_id FROM placement) p LEFT JOIN cell c USING (cell_id)"
        " WHERE p.cell_id > 0 AND (c.cell_id IS NULL OR c.ns_id <> p.ns_id)",
    ),
    (
        "parts of cells that are gone",
        f"SELECT count(*) FROM cell_part WHERE id / {PARTS_MAX} NOT IN (SELECT cell_id FROM cell)",
    ),
    (
        "parts of cells whose length is not that of so many members",
        # A code has half a byte a component, a centroid two; see `cells.code_width`.
        "SELECT count(*) FROM cell_part p JOIN cell c"
        f" ON c.cell_id = p.id / {PARTS_MAX}"
        " WHERE length(p.data) <> p.members * (8 + (length(c.centroid) + 2) / 4)",
    ),
    (
        "chunks of postings whose term is gone",
        "SELECT count(*) FROM posting"
        " WHERE term_id NOT IN (SELECT term_id FROM term WHERE term_id IS NOT NULL)",
    ),
    (
        "terms whose frequency is not their number of postings",
        # The terms themselves are content, and are not named.
        f"SELECT count(*) FROM term t WHERE frequency <> length(tail) / {_ENTRY}"
        f" + coalesce((SELECT sum(length(data)) / {_ENTRY} FROM posting p"
        " WHERE p.term_id = t.term_id), 0)",
    ),
    (
        "metadata entries of items that are gone or not live",
        "SELECT count(*) FROM entry WHERE key NOT IN (SELECT key FROM item WHERE status = 0)",
    ),
)


def problems(execute: Execute) -> Iterator[str]:
    """Yield what is wrong; nothing for a sound database."""
    for (line,) in execute(f"PRAGMA integrity_check({_NAMED_MAX})").fetchall():
        if line != "ok":
            yield f"the file is damaged: {line}"
    for columns in execute(_TOTALS).fetchall():
        name = (columns[0] or b"?").decode(errors="replace")
        kept, counted = columns[1:8], columns[8:]
        for total, has, should in zip(_TOTAL_NAMES, kept, counted, strict=True):
            if has != should:
                yield f"namespace {name} says {total} is {has}, but it is {should}"
    for what, statement in _COUNTED:
        if found := execute(statement).fetchone()[0]:
            yield f"there are {found} {what}"
    yield from _undecodable(execute)
    yield from _astray(execute)


def _astray(execute: Execute) -> Iterator[str]:
    if found := _misplaced(execute):
        yield f"there are {found} vectors that are not in just the cells they are placed in"
    gone, others = _misled_postings(execute)
    if gone:
        yield f"there are {gone} postings that lead to an item that is gone"
    if others:
        yield f"there are {others} postings that lead to an item of another namespace"


# ---------------------------------------------------------------- what can't be decoded


def _vector_of(columns: Params) -> None:
    if not np.isfinite(decode_vectors(columns)).all():
        raise ValueError("a vector that is not finite")


#: What is read of each table, and what decodes a row of it.
_DECODED: tuple[tuple[str, str, Callable[[Params], object]], ...] = (
    ("items", SELECT_ROWS, row_of),
    ("namespaces", SELECT_NAMESPACES, namespace_of),
    ("entries of histories", "SELECT at_s, event, content, claim FROM history", history_of),
    ("changes", "SELECT payload FROM change", lambda columns: change_of(*columns)),
    ("vectors", "SELECT data FROM vector_data", _vector_of),
    ("staged vectors", "SELECT data FROM staged_vector", _vector_of),
    (
        "parts of cells",
        "SELECT members, data FROM cell_part",
        lambda columns: decode_members(*columns),
    ),
    ("centroids", "SELECT centroid FROM cell", decode_centroids),
    (
        "lists of postings",
        "SELECT tail FROM term UNION ALL SELECT data FROM posting",
        lambda columns: decode_entries(*columns),
    ),
)


def _undecodable(execute: Execute) -> Iterator[str]:
    for what, statement, decode in _DECODED:
        if found := sum(_is_damaged(decode, row) for row in _each(execute(statement))):
            yield f"there are {found} {what} that can't be read"
    if len(sizes := execute("SELECT DISTINCT length(data) FROM vector_data").fetchall()) > 1:
        yield f"there are vectors of {len(sizes)} sizes, but all should have one"
    yield from _of_another_embedder(execute)


def _of_another_embedder(execute: Execute) -> Iterator[str]:
    for row in _each(execute("SELECT value FROM meta WHERE name = ?", (EMBEDDER_META,))):
        known = row and marked(row[0])
        if not known:
            yield "the name of the embedder can't be read"
            continue
        name, dimension = known
        (found,) = execute(
            "SELECT count(*) FROM vector_data WHERE length(data) <> ?", (vector_bytes(dimension),)
        ).fetchone()
        if found:
            yield f"{found} vectors have not the {dimension} dimensions of embedder {name}"


def _each(cursor: Any) -> Iterator[Params | None]:
    """Yield the rows of a cursor; None for one with text that is not UTF-8."""
    while True:
        try:
            row = next(cursor, None)
        except UnicodeDecodeError:
            yield None
            continue
        if row is None:
            return
        yield row


def _is_damaged(decode: Callable[[Params], object], row: Params | None) -> bool:
    if row is None:
        return True
    try:
        decode(row)
    except (StoreError, *UNDECODABLE):
        return True
    return False


# ---------------------------------------------------------------- what leads astray

# By namespace, in which order the terms stand.
_POSTINGS = (
    "SELECT ns_id, base, tail FROM term",
    "SELECT t.ns_id, p.first_key, p.data FROM term t CROSS JOIN posting p"
    " ON p.term_id = t.term_id WHERE t.term_id IS NOT NULL",
)


def _misled_postings(execute: Execute) -> tuple[int, int]:
    """Count items that postings lead to which are gone, and which are of another namespace."""
    gone, others = 0, 0
    for statement in _POSTINGS:
        chunks = execute(statement)
        while batch := list(islice(chunks, _CHUNKS_AT_ONCE)):
            for ns_id, listed in groupby(batch, key=itemgetter(0)):
                # What can't be read is told of already.
                whole = [
                    (first, data)
                    for _, first, data in listed
                    if isinstance(data, bytes) and not len(data) % _ENTRY
                ]
                # Of an empty array there is no carray; no item has the key 0.
                keys = np.unique(np.append(decode_postings(whole)["key"], 0))
                known, own = execute(
                    "SELECT count(*), count(*) FILTER (WHERE ns_id = ?2) FROM item"
                    " WHERE key IN carray(?1)",
                    (apsw.carray(keys), ns_id),
                ).fetchone()
                gone += len(keys) - 1 - known
                others += known - own
    return gone, others


def _misplaced(execute: Execute) -> int:
    """Count disagreements between what cells hold and what placements say."""
    held, rightly = 0, 0
    for part_id, count, data in execute("SELECT id, members, data FROM cell_part ORDER BY id"):
        try:
            ids = decode_members(count, data).ids.copy()
        except StoreError:
            # Told apart; its members are counted as placed where they are not.
            continue
        held += len(ids)
        (found,) = execute(
            "SELECT count(*) FROM placement"
            " WHERE id IN carray(?1) AND ?2 IN (cell_id, second_id, third_id)",
            (apsw.carray(ids), part_id // PARTS_MAX),
        ).fetchone()
        rightly += int(found)
    (placed,) = execute(
        "SELECT count(*) FILTER (WHERE cell_id > 0) + count(*) FILTER (WHERE second_id > 0)"
        " + count(*) FILTER (WHERE third_id > 0)"
        " FROM placement"
    ).fetchone()
    return held - rightly + abs(int(placed) - rightly)
