"""What can be wrong with a database, in plain sentences."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import apsw
import numpy as np

from amv.memory.ports import PASSAGES_MAX
from amv.memory.tiers import Tier
from amv.stores.sqlite.codec import ENTRY, decode_members, decode_postings
from amv.stores.sqlite.reader import PARTS_MAX

Execute = Callable[..., Any]

#: How many problems of one sort are named.
_NAMED_MAX = 20
_CHUNKS_AT_ONCE = 4096

_TOTALS = f"""
    SELECT name, live, length, hot, pinned, vectors, pending, cells,
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
        "vectors staged for items that are gone",
        f"SELECT count(*) FROM staged_vector"
        f" WHERE id / {PASSAGES_MAX} NOT IN (SELECT key FROM item)",
    ),
    (
        "vectors placed in cells that are gone or another namespace's",
        "SELECT count(*) FROM placement p LEFT JOIN cell c USING (cell_id)"
        " WHERE p.cell_id > 0 AND (c.cell_id IS NULL OR c.ns_id <> p.ns_id)",
    ),
    (
        "parts of cells that are gone",
        f"SELECT count(*) FROM cell_part WHERE id / {PARTS_MAX} NOT IN (SELECT cell_id FROM cell)",
    ),
    (
        "chunks of postings whose term is gone",
        "SELECT count(*) FROM posting"
        " WHERE term_id NOT IN (SELECT term_id FROM term WHERE term_id IS NOT NULL)",
    ),
    (
        "terms whose frequency is not their number of postings",
        # The terms themselves are content, and are not named.
        f"SELECT count(*) FROM term t WHERE frequency <> length(tail) / {ENTRY.itemsize}"
        f" + coalesce((SELECT sum(length(data)) / {ENTRY.itemsize} FROM posting p"
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
        name, kept, counted = columns[0], columns[1:8], columns[8:]
        for total, has, should in zip(_TOTAL_NAMES, kept, counted, strict=True):
            if has != should:
                yield f"namespace {name} says {total} is {has}, but it is {should}"
    for what, statement in _COUNTED:
        if found := execute(statement).fetchone()[0]:
            yield f"there are {found} {what}"
    for what, count in (
        ("vectors that are not in the one cell they are placed in", _misplaced),
        ("postings that lead to an item that is gone", _orphaned_postings),
    ):
        if found := count(execute):
            yield f"there are {found} {what}"


def _orphaned_postings(execute: Execute) -> int:
    chunks = execute("SELECT base, tail FROM term UNION ALL SELECT first_key, data FROM posting")
    count = 0
    while batch := list(islice(chunks, _CHUNKS_AT_ONCE)):
        # Of an empty array there is no carray; no item has the key 0.
        keys = np.unique(np.append(decode_postings(batch)["key"], 0))
        (known,) = execute(
            "SELECT count(*) FROM item WHERE key IN carray(?)", (apsw.carray(keys),)
        ).fetchone()
        count += len(keys) - 1 - known
    return count


def _misplaced(execute: Execute) -> int:
    """Count disagreements between what cells hold and what placements say."""
    held, rightly = 0, 0
    for part_id, data in execute("SELECT id, data FROM cell_part ORDER BY id"):
        ids = decode_members(data).ids.copy()
        held += len(ids)
        (found,) = execute(
            "SELECT count(*) FROM placement WHERE id IN carray(?) AND cell_id = ?",
            (apsw.carray(ids), part_id // PARTS_MAX),
        ).fetchone()
        rightly += int(found)
    (placed,) = execute("SELECT count(*) FROM placement WHERE cell_id > 0").fetchone()
    return held - rightly + abs(int(placed) - rightly)
