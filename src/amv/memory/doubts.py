"""Doubts: the flags of items that others contradict, set, and taken off once nothing does.

A flag outlives what it was set for unless somebody looks again.  Whatever makes an item
go, end or say something else notes before what that item stood against, and settles
at the end of its transaction: each of these is compared once more, and its flag goes if
nothing that is live and in force stands against it.  What was found true and then ends
by itself, as it was told to, is the one thing that nobody notes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from amv.memory import contradiction
from amv.memory.edit import Edit
from amv.memory.item import Row, Status

SETTLED_MAX = 128
"""For how many items that go, and of how many that stay, one transaction looks again."""


def compare(edit: Edit, rows: Sequence[Row]) -> None:
    """Flag new rows, and those there already, that may contradict each other by their texts."""
    keys: set[int] = set()
    are_compared = edit.settings.flag_contradictions and len(rows) <= contradiction.BATCH_MAX
    for row in rows if are_compared else ():
        found = contradiction.contradicted_by(edit.tx, row, edit.now_s)
        keys.update(one.key for one in found)
        keys.update([row.key] if found else ())
    for row in edit.tx.rows(sorted(keys)).values():
        flag(edit, row)


def flag(edit: Edit, row: Row) -> None:
    """Flag a row; a sweep comes by when it ends."""
    if not row.contradicted:
        edit.put(replace(row, contradicted=True))
        edit.wake_at(row.valid_until_s)


def note(edit: Edit, rows: Iterable[Row]) -> None:
    """Note what items, which are about to go or to change, have stood against so far.

    Those are flagged, or were until they were found true.
    """
    keys = [row.key for row in rows if row.contradicted or row.last_verified_s is not None]
    keys = keys[: max(0, SETTLED_MAX - edit.reconsidered)]
    edit.reconsidered += len(keys)
    # As they are stored, whatever end was noted on them since.
    for row in edit.tx.rows(keys).values():
        edit.doubted.add(row.key)
        # Whatever is over by now may have been what it was flagged for.
        flagged = replace(row, contradicted=True)
        edit.doubted.update(other.key for other in _against(edit, flagged, -math.inf))


def end(edit: Edit) -> None:
    """Take the flags off items that have ended, and note what these stood against."""
    ended = edit.tx.doubted_ends(edit.row.ns_id, edit.now_s, SETTLED_MAX)
    rows = list(edit.tx.rows([key for _, key in ended]).values())
    note(edit, rows)
    for row in rows:
        edit.put(replace(row, contradicted=False))


def settle(edit: Edit, added: Iterable[Row] = ()) -> None:
    """Take the flag off what was noted, or added as a claim, and nothing contradicts any more."""
    edit.doubted.update(row.key for row in added if row.claim and row.contradicted)
    keys = sorted(edit.doubted)[:SETTLED_MAX]
    edit.doubted.clear()
    for row in edit.tx.rows(keys).values():
        if _is_flagged(row) and not _against(edit, row, edit.now_s):
            edit.put(replace(row, contradicted=False))


def _is_flagged(row: Row) -> bool:
    return row.contradicted and row.status is Status.LIVE


def _against(edit: Edit, row: Row, now_s: float) -> list[Row]:
    guesses = edit.settings.flag_contradictions
    return contradiction.against(edit.tx, row, now_s, guesses=guesses)
