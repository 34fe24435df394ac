"""The lexical index: which items hold a term, newest first.

A term's row holds its newest postings, the *tail*, with keys counted from its
*base*; every key from *base* up belongs there.  A full tail moves to a *chunk*
of its own.  So adding an item touches one row a term, a rare term is one small
row, and reading the newest postings reads a few blobs.

Items come in order of key, save one that is indexed again: its posting goes
where its key belongs, and a chunk that overflows is split.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt

from amv.memory.lexical import LENGTH_MAX, POSTING, TF_MAX
from amv.memory.ports import Ids, NewPostings
from amv.stores.sqlite.codec import (
    ENTRY,
    OFFSET_MAX,
    Entries,
    decode_entries,
    decode_postings,
)
from amv.stores.sqlite.damage import damaged
from amv.stores.sqlite.rows import Params, check_kinds, decoded, kinds

Execute = Callable[..., Any]

#: A tail of this many postings becomes a chunk.
TAIL_MAX = 64
#: A chunk with more postings than this is split.
CHUNK_MAX = 128

_SIZE = ENTRY.itemsize

_FIND = """SELECT t.term, t.term_id, t.frequency, t.base, t.tail
    FROM carray(?) a CROSS JOIN term t ON t.ns_id = ? AND t.term = a.value"""
_PUT = "INSERT OR REPLACE INTO term VALUES (?, ?, ?, ?, ?, ?)"
_DROP = "DELETE FROM term WHERE ns_id = ? AND term = ?"
_PUT_CHUNK = "INSERT OR REPLACE INTO posting VALUES (?, ?, ?)"
_DROP_CHUNK = "DELETE FROM posting WHERE term_id = ? AND first_key = ?"
_CHUNKS = "SELECT first_key, data FROM posting WHERE term_id = ? ORDER BY first_key DESC"


@dataclass(slots=True)
class _Term:
    term: str
    term_id: int | None
    frequency: int
    base: int
    tail: bytes


_TERM = kinds("tIiib")


def _term_of(columns: Params) -> _Term:
    check_kinds(columns, _TERM)
    return _Term(*columns)


# ---------------------------------------------------------------- reading


def frequencies(execute: Execute, ns_id: int, terms: Sequence[str]) -> dict[str, int]:
    """Return in how many items each term stands; terms in none are left out."""
    found = {term.term: term.frequency for term in _find(execute, ns_id, terms)}
    return {term: found[term] for term in terms if term in found}


def newest(execute: Execute, ns_id: int, term: str, limit: int) -> npt.NDArray[np.void]:
    """Return at most *limit* postings of a term, newest first."""
    found = _find(execute, ns_id, [term])
    if not found or limit <= 0:
        return np.empty(0, dtype=POSTING)
    (state,) = found
    chunks = [(state.base, state.tail)]
    count = len(state.tail) // _SIZE
    if count < limit and state.term_id is not None:
        for chunk in execute(_CHUNKS, (state.term_id,)):
            chunks.append(chunk)
            count += len(chunk[1]) // _SIZE
            if count >= limit:
                break
    return decode_postings(chunks[::-1])[::-1][:limit]


def _find(execute: Execute, ns_id: int, terms: Iterable[str]) -> list[_Term]:
    wanted = tuple(dict.fromkeys(terms))
    if not wanted:
        return []
    found = decoded(_term_of, execute(_FIND, (apsw.carray(wanted), ns_id)), "a term")
    # Appending to half a posting would shift those that follow.
    if any(len(term.tail) % _SIZE for term in found):
        raise damaged("a list of postings")
    return found


# ---------------------------------------------------------------- writing


class PostingWriter:
    """Adds to and takes from the lexical index of one namespace."""

    def __init__(self, connection: apsw.Connection, ns_id: int) -> None:
        self._execute: Execute = connection.execute
        self._executemany: Execute = connection.executemany
        self._ns_id = ns_id

    def add(self, items: Sequence[NewPostings]) -> None:
        """Index items; one that stands under a term already is replaced there."""
        named = list(chain.from_iterable(item.counts for item in items))
        # In the order of the index, so that each page is visited once.
        terms = sorted(set(named))
        if not terms:
            return
        number = {term: n for n, term in enumerate(terms)}
        which = np.fromiter(map(number.__getitem__, named), np.int64, len(named))
        keys, entries = _entries(items)
        order = np.lexsort((keys, which))
        keys, entries, which = keys[order], entries[order], which[order]
        starts = np.searchsorted(which, np.arange(len(terms) + 1))
        known = {term.term: term for term in _find(self._execute, self._ns_id, terms)}
        states = [known.get(term) or _Term(term, None, 0, -1, b"") for term in terms]
        for state, first in zip(states, keys[starts[:-1]].tolist(), strict=True):
            if state.base < 0:
                state.base = first
        bases = np.fromiter((state.base for state in states), np.int64, len(states))
        offsets = keys - bases[which]
        is_next = np.diff(offsets, prepend=0) > 0
        is_next[starts[:-1]] = offsets[starts[:-1]] > [_last_offset(s.tail) for s in states]
        is_next &= offsets <= OFFSET_MAX
        fits = np.logical_and.reduceat(is_next, starts[:-1]).tolist()
        entries["offset"] = offsets
        data = entries.tobytes()
        bounds = pairwise(starts.tolist())
        for state, (start, stop), appends in zip(states, bounds, fits, strict=True):
            if appends:
                state.tail += data[start * _SIZE : stop * _SIZE]
                state.frequency += stop - start
            else:
                self._add_out_of_order(state, keys[start:stop], entries[start:stop])
            while len(state.tail) > TAIL_MAX * _SIZE:
                self._move_to_chunk(state, TAIL_MAX)
        self._put(states)

    def remove(self, key: int, terms: Sequence[str]) -> None:
        """Take an item out; a term that no item holds is gone from disk."""
        changed, emptied = [], []
        for state in _find(self._execute, self._ns_id, terms):
            if not self._remove_from(state, key):
                continue
            state.frequency -= 1
            if state.frequency > 0:
                changed.append(state)
            else:
                emptied.append((self._ns_id, state.term))
        self._put(changed)
        self._executemany(_DROP, emptied)

    def _put(self, states: Sequence[_Term]) -> None:
        self._executemany(
            _PUT,
            [(self._ns_id, s.term, s.term_id, s.frequency, s.base, s.tail) for s in states],
        )

    def _add_out_of_order(self, state: _Term, keys: Ids, entries: Entries) -> None:
        """Put postings of a term where their keys belong, which is not all at its end."""
        for key, (_, tf, length) in zip(keys.tolist(), entries.tolist(), strict=True):
            state.frequency += self._insert(state, (key, tf, length))

    def _move_to_chunk(self, state: _Term, count: int) -> None:
        """Move the first *count* postings of the tail to a chunk."""
        if state.term_id is None:
            row = self._execute("SELECT coalesce(max(term_id), 0) + 1 FROM posting").fetchone()
            state.term_id = int(row[0])
        entries = decode_entries(state.tail)
        self._execute(_PUT_CHUNK, (state.term_id, state.base, entries[:count].tobytes()))
        base = state.base + int(entries["offset"][count - 1]) + 1
        state.tail = _rebased(entries[count:], state.base, base)
        state.base = base

    def _insert(self, state: _Term, entry: tuple[int, int, int]) -> int:
        """Put one posting where its key belongs; return 1, or 0 if it replaced one."""
        key = entry[0]
        if key > state.base + OFFSET_MAX:
            if state.tail:
                self._move_to_chunk(state, len(state.tail) // _SIZE)
            state.base = key
        if key < state.base and state.term_id is None:
            entries = decode_entries(state.tail)
            if _last(entries, state.base) <= key + OFFSET_MAX:
                state.tail = _rebased(entries, state.base, key)
                state.base = key
            else:
                self._move_to_chunk(state, len(entries))
        if key >= state.base:
            entries, added = _inserted(decode_entries(state.tail), state.base, entry)
            state.tail = entries.tobytes()
            return added
        return self._insert_in_chunk(state, entry)

    def _insert_in_chunk(self, state: _Term, entry: tuple[int, int, int]) -> int:
        key = entry[0]
        first, entries = self._chunk(state, key) or self._first_chunk_from(state, key)
        if key > first + OFFSET_MAX:
            first, entries = key, np.empty(0, dtype=ENTRY)
        entries, added = _inserted(entries, first, entry)
        if len(entries) > CHUNK_MAX:
            half = len(entries) // 2
            second = first + int(entries["offset"][half])
            data = _rebased(entries[half:], first, second)
            self._execute(_PUT_CHUNK, (state.term_id, second, data))
            entries = entries[:half]
        self._execute(_PUT_CHUNK, (state.term_id, first, entries.tobytes()))
        return added

    def _first_chunk_from(self, state: _Term, key: int) -> tuple[int, Entries]:
        """Return the first chunk, made to begin at *key*, which lies before it; or a new one."""
        first, data = self._execute(
            "SELECT first_key, data FROM posting WHERE term_id = ? ORDER BY first_key LIMIT 1",
            (state.term_id,),
        ).fetchone() or (key, b"")
        entries = decode_entries(data)
        if _last(entries, first) > key + OFFSET_MAX:
            return key, np.empty(0, dtype=ENTRY)
        self._execute(_DROP_CHUNK, (state.term_id, first))
        return key, np.frombuffer(_rebased(entries, first, key), ENTRY)

    def _remove_from(self, state: _Term, key: int) -> bool:
        if key >= state.base:
            entries = _without(decode_entries(state.tail), state.base, key)
            if entries is not None:
                state.tail = entries.tobytes()
            return entries is not None
        chunk = self._chunk(state, key)
        if chunk is None:
            return False
        first, entries = chunk[0], _without(chunk[1], chunk[0], key)
        if entries is None:
            return False
        if len(entries):
            self._execute(_PUT_CHUNK, (state.term_id, first, entries.tobytes()))
        else:
            self._execute(_DROP_CHUNK, (state.term_id, first))
        return True

    def _chunk(self, state: _Term, key: int) -> tuple[int, Entries] | None:
        """Return the chunk in whose range *key* lies."""
        row = self._execute(
            "SELECT first_key, data FROM posting WHERE term_id = ? AND first_key <= ?"
            " ORDER BY first_key DESC LIMIT 1",
            (state.term_id, key),
        ).fetchone()
        return None if row is None else (row[0], decode_entries(row[1]))


def _entries(items: Sequence[NewPostings]) -> tuple[Ids, Entries]:
    """Return a posting for each term of each item, in their order: its key, and what is stored.

    The offsets are not set yet.
    """
    terms = [len(item.counts) for item in items]
    entries = np.zeros(sum(terms), dtype=ENTRY)
    tf = np.fromiter(chain.from_iterable(i.counts.values() for i in items), np.int64, len(entries))
    length = np.repeat(np.array([item.length for item in items], dtype=np.int64), terms)
    entries["tf"] = np.minimum(tf, TF_MAX)
    entries["length"] = np.minimum(length, LENGTH_MAX)
    return np.repeat(np.array([item.key for item in items], dtype=np.int64), terms), entries


def _last_offset(tail: bytes) -> int:
    """Return the offset of the last posting of a tail; -1 if there is none."""
    return int.from_bytes(tail[-_SIZE : 4 - _SIZE], "little") if tail else -1


def _rebased(entries: Entries, base: int, new_base: int) -> bytes:
    """Return entries counted from *new_base* instead of *base*."""
    offsets = entries["offset"].astype(np.int64) + (base - new_base)
    entries["offset"] = offsets
    return entries.tobytes()


def _last(entries: Entries, base: int) -> int:
    """Return the key of the last entry; *base* if there is none."""
    return base + int(entries["offset"][-1]) if len(entries) else base


def _place(entries: Entries, base: int, key: int) -> tuple[int, bool]:
    """Return where *key* stands or would stand, and whether it does."""
    offset = key - base
    place = int(np.searchsorted(entries["offset"], offset))
    return place, place < len(entries) and int(entries["offset"][place]) == offset


def _inserted(entries: Entries, base: int, entry: tuple[int, int, int]) -> tuple[Entries, int]:
    key, tf, length = entry
    place, stands = _place(entries, base, key)
    new = np.array([(key - base, tf, length)], dtype=ENTRY)
    kept = entries[place + 1 :] if stands else entries[place:]
    return np.concatenate([entries[:place], new, kept]), 0 if stands else 1


def _without(entries: Entries, base: int, key: int) -> Entries | None:
    place, stands = _place(entries, base, key)
    return np.concatenate([entries[:place], entries[place + 1 :]]) if stands else None
