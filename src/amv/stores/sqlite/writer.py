"""Writing in a transaction: what `amv.memory.ports.Writer` says, as statements.

Writes about keys and ids that are not there do nothing.  Everything that is
deleted is overwritten with zeros (secure_delete), in the file and, after the
next truncating checkpoint, in the log; so a delete here needs nothing more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw
import numpy as np

from amv.errors import StoreError
from amv.memory.filters import Entry, entries
from amv.memory.item import Namespace, Protection, Row, State, Status
from amv.memory.ports import (
    PASSAGES_MAX,
    RETIRED,
    Change,
    Floats,
    HistoryRow,
    Ids,
    KeyRow,
    Members,
    NamespaceRow,
    NewPostings,
    Vectors,
    ascending,
    owners,
)
from amv.memory.value import Scale
from amv.stores.sqlite.codec import (
    decode_members,
    encode_members,
    encode_vectors,
    extended,
)
from amv.stores.sqlite.filters_sql import stored
from amv.stores.sqlite.lean import without_centroids
from amv.stores.sqlite.postings import PostingWriter
from amv.stores.sqlite.reader import EVENTS_MAX, PARTS_MAX, SqliteReader
from amv.stores.sqlite.rows import (
    LIVE,
    NAMESPACE_COLUMNS,
    STORED_COLUMNS,
    change_data,
    decoded,
    history_params,
    item_params,
    metadata_of,
    namespace_params,
    namespace_text,
    state_params,
)

#: Versions kept in the change log, and how often older ones are dropped.
CHANGES_KEPT = 1024
_TRIM_EVERY = 64

#: A part of a cell takes about as many bytes.  Of larger rows, fewer would fill a page well:
#: a quarter of the pages stood empty when a part held up to 60 members.
PART_BYTES = 1400


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _assignments(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)


_INSERT_ITEM = f"INSERT INTO item VALUES ({_marks(len(STORED_COLUMNS))})"
_INSERT_STATE = f"INSERT INTO item_state VALUES ({_marks(8)})"
_UPDATE_ITEM = f"UPDATE item SET {_assignments(STORED_COLUMNS[1:])} WHERE key = ?"
_UPDATE_STATE = """UPDATE item_state SET ns_id = ?, live = ?, protection = ?, tier = ?,
    value_key = ?, exposed = ?, contributed = ? WHERE key = ?"""
_PUT_STATE = """UPDATE item_state SET protection = ?, tier = ?, value_key = ?, exposed = ?,
    contributed = ? WHERE key = ?"""
_REKEY = f"""UPDATE item_state SET value_key = value_key + ? WHERE protection <> {
    Protection.NOT_YET_VALID.value
} AND key IN (SELECT key FROM item WHERE ns_id = ?)"""
_RESCALE = f"""UPDATE item_state SET value_key = value_key
    + ln(min(?1, ?2 + ?3 * contributed)) - ln(min(?4, ?5 + ?6 * contributed)) WHERE protection <> {
    Protection.NOT_YET_VALID.value
} AND key IN (SELECT key FROM item WHERE ns_id = ?7)"""
_INSERT_ENTRY = "INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?, ?)"
_DELETE_ENTRY = (
    "DELETE FROM entry WHERE ns_id = ? AND path = ? AND kind = ? AND value = ? AND key = ?"
)
_ADD_HISTORY = f"""INSERT INTO history
    SELECT coalesce(max(h.id), ?1 * {EVENTS_MAX}) + 1, ?2, ?3, ?4, ?5
    FROM item i LEFT JOIN history h
        ON h.id >= i.key * {EVENTS_MAX} AND h.id < (i.key + 1) * {EVENTS_MAX}
    WHERE i.key = ?1
    HAVING count(i.key) > 0 AND coalesce(max(h.id), 0) < (?1 + 1) * {EVENTS_MAX} - 1"""
_DELETE_HISTORY = f"""DELETE FROM history WHERE id IN (
    SELECT h.id FROM carray(?) a CROSS JOIN history h
    ON h.id >= a.value * {EVENTS_MAX} AND h.id < (a.value + 1) * {EVENTS_MAX})"""
_PUT_NAMESPACE = f"UPDATE namespace SET {_assignments(NAMESPACE_COLUMNS[1:])} WHERE ns_id = ?"
_INSERT_NAMESPACE = f"INSERT INTO namespace VALUES ({_marks(len(NAMESPACE_COLUMNS))})"

_LAST_PARTS = f"""SELECT c.cell_id, p.id, p.members, p.data FROM carray(?) a
    CROSS JOIN cell c ON c.cell_id = a.value
    LEFT JOIN cell_part p ON p.id = (SELECT max(id) FROM cell_part
        WHERE id >= c.cell_id * {PARTS_MAX} AND id < (c.cell_id + 1) * {PARTS_MAX})"""
_OWN_PARTS = f"""SELECT id, members, data FROM cell_part
    WHERE id >= ?1 * {PARTS_MAX} AND id < (?1 + 1) * {PARTS_MAX} ORDER BY id"""
_DROP_PARTS = f"""DELETE FROM cell_part
    WHERE id >= ?1 * {PARTS_MAX} AND id < (?1 + 1) * {PARTS_MAX}"""

_PUT_PART = "INSERT OR REPLACE INTO cell_part VALUES (?, ?, ?)"

_PLACE = "UPDATE placement SET cell_id = ?, second_id = ?, third_id = ? WHERE id = ?"
_MOVE = """UPDATE placement SET cell_id = iif(cell_id = ?2, ?3, cell_id),
    second_id = iif(second_id = ?2, ?3, second_id),
    third_id = iif(third_id = ?2, ?3, third_id) WHERE id = ?1"""
_RETIRE = f"""UPDATE placement SET cell_id = {RETIRED}, second_id = 0, third_id = 0
    WHERE id IN carray(?1)"""

_CELLS_OF = "SELECT cell_id, CAST(coalesce(centroid, '') AS BLOB) FROM cell WHERE ns_id = ?"
_ADD_SNAPSHOT = "INSERT INTO cell_snapshot (ns_id, data, last_id, cell_ids) VALUES (?, ?, ?, ?)"
_ADD_WAYPOINT = """INSERT INTO waypoint SELECT c.ns_id, c.cell_id, c.centroid
    FROM cell c JOIN cell_snapshot s USING (ns_id) WHERE c.cell_id = ? AND c.cell_id <= s.last_id"""
_DROP_SNAPSHOT = (
    "DELETE FROM cell_snapshot WHERE ns_id = ?",
    "DELETE FROM waypoint WHERE ns_id = ?",
)

_DROP_CELLS = (
    f"""DELETE FROM cell_part WHERE id IN (
        SELECT p.id FROM cell c CROSS JOIN cell_part p
        ON p.id >= c.cell_id * {PARTS_MAX} AND p.id < (c.cell_id + 1) * {PARTS_MAX}
        WHERE c.ns_id = ?)""",
    "DELETE FROM cell WHERE ns_id = ?",
    *_DROP_SNAPSHOT,
    "DELETE FROM posting WHERE term_id IN (SELECT term_id FROM term WHERE ns_id = ?)",
    "DELETE FROM term WHERE ns_id = ?",
)
_DROP_NAMESPACE = (
    *_DROP_CELLS,
    f"""DELETE FROM staged_vector WHERE id IN (
        SELECT v.id FROM placement p CROSS JOIN staged_vector v
        ON v.id >= p.id / {PASSAGES_MAX} * {PASSAGES_MAX}
            AND v.id < (p.id / {PASSAGES_MAX} + 1) * {PASSAGES_MAX}
        WHERE p.ns_id = ?)""",
    "DELETE FROM vector_data WHERE id IN (SELECT id FROM placement WHERE ns_id = ?)",
    "DELETE FROM placement WHERE ns_id = ?",
    "DELETE FROM entry WHERE ns_id = ?",
    f"""DELETE FROM history WHERE id IN (
        SELECT h.id FROM item i CROSS JOIN history h
        ON h.id >= i.key * {EVENTS_MAX} AND h.id < (i.key + 1) * {EVENTS_MAX}
        WHERE i.ns_id = ?)""",
    "DELETE FROM item_state WHERE key IN (SELECT key FROM item WHERE ns_id = ?)",
    "DELETE FROM item WHERE ns_id = ?",
    "DELETE FROM change WHERE ns_id = ?",
    "DELETE FROM namespace WHERE ns_id = ?",
)


class SqliteWriter(SqliteReader):
    """A transaction on one connection; each method is described in `ports.Writer`."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self._executemany: Callable[..., Any] = connection.executemany
        # How often something was deleted for good, whose bytes are to be erased.
        self.deletions = 0

    # ------------------------------------------------------------ namespaces

    def set_meta(self, name: str, value: str | None) -> None:
        if value is None:
            self._execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self._execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def put_key(self, key: KeyRow) -> None:
        params = key._replace(namespace=namespace_text(key.namespace))  # type: ignore[arg-type]
        self._execute("INSERT OR REPLACE INTO api_key VALUES (?, ?, ?, ?, ?, ?)", tuple(params))

    def create_namespace(self, name: Namespace, half_life_s: float) -> NamespaceRow:
        text = namespace_text(name)
        if self._execute("SELECT 1 FROM namespace WHERE name = ?", (text,)).fetchone():
            raise StoreError(f"namespace {name!r} exists already")
        blank = NamespaceRow(ns_id=0, name=name, version=0, half_life_s=half_life_s)
        self._execute(_INSERT_NAMESPACE, (None, *namespace_params(blank)[1:]))
        row = self.namespace_by_id(self._connection.last_insert_rowid())
        assert row is not None
        return row

    def put_namespace(self, row: NamespaceRow) -> None:
        ns_id, *values = namespace_params(row)
        self._execute(_PUT_NAMESPACE, (*values, ns_id))

    def rekey(self, ns_id: int, shift: float) -> None:
        self._execute(_REKEY, (shift, ns_id))

    def rescale(self, ns_id: int, old: Scale, new: Scale) -> None:
        self._execute(_RESCALE, (*new, *old, ns_id))

    def drop_namespace(self, ns_id: int) -> None:
        self.deletions += 1
        for statement in _DROP_NAMESPACE:
            self._execute(statement, (ns_id,))

    def drop_beside(self, name: Namespace) -> bool:
        self._execute("DELETE FROM guard_text WHERE namespace = ?", (namespace_text(name),))
        has_dropped = self._connection.changes() > 0
        self.deletions += has_dropped
        return has_dropped

    def log_change(self, ns_id: int, version: int, change: Change) -> None:
        self._execute(
            "INSERT OR REPLACE INTO change VALUES (?, ?, ?)", (ns_id, version, change_data(change))
        )
        if version % _TRIM_EVERY == 0:
            self._execute(
                "DELETE FROM change WHERE ns_id = ? AND version <= ?",
                (ns_id, version - CHANGES_KEPT),
            )

    # ------------------------------------------------------------ items

    def insert(self, rows: Sequence[Row]) -> list[int]:
        if not rows:
            return []
        last = self._execute("SELECT seq FROM sqlite_sequence WHERE name = 'item'").fetchone()
        first = 1 if last is None else last[0] + 1
        keys = list(range(first, first + len(rows)))
        keyed = list(zip(keys, rows, strict=True))
        try:
            self._executemany(_INSERT_ITEM, [item_params(key, row) for key, row in keyed])
        except apsw.ConstraintError as error:
            ids = ", ".join(repr(row.id) for row in rows[:3])
            raise StoreError(f"an item id is taken in its namespace; ids from {ids}") from error
        self._executemany(_INSERT_STATE, [state_params(key, row) for key, row in keyed])
        self._executemany(
            _INSERT_ENTRY, [entry for key, row in keyed for entry in _entry_params(key, row)]
        )
        return keys

    def update(self, row: Row) -> None:
        found = self._execute(
            "SELECT key, ns_id, status, metadata FROM item WHERE key = ?", (row.key,)
        )
        old = decoded(_entries_of, found, "the metadata of an item")
        if not old:
            return
        key, *values = item_params(row.key, row)
        self._execute(_UPDATE_ITEM, (*values, key))
        key, *values = state_params(row.key, row)
        self._execute(_UPDATE_STATE, (*values, key))
        before = dict.fromkeys(old[0])
        after = dict.fromkeys(_entry_params(key, row))
        self._executemany(_DELETE_ENTRY, [entry for entry in before if entry not in after])
        self._executemany(_INSERT_ENTRY, [entry for entry in after if entry not in before])

    def put_states(self, states: Sequence[tuple[int, State]]) -> None:
        self._executemany(
            _PUT_STATE,
            [
                (
                    int(state.protection),
                    int(state.tier),
                    state.value_key,
                    state.exposed_count,
                    state.contributed_count,
                    key,
                )
                for key, state in states
            ],
        )

    def delete(self, keys: Sequence[int]) -> None:
        if not keys:
            return
        self.deletions += 1
        array = ascending(np.array(keys, dtype=np.int64))
        found = self._execute(
            "SELECT key, ns_id, status, metadata FROM item"
            " WHERE key IN carray(?) AND metadata IS NOT NULL",
            (apsw.carray(array),),
        )
        for listed in decoded(_entries_of, found, "the metadata of an item"):
            self._executemany(_DELETE_ENTRY, listed)
        for statement in (
            _DELETE_HISTORY,
            "DELETE FROM item_state WHERE key IN carray(?)",
            "DELETE FROM item WHERE key IN carray(?)",
        ):
            self._execute(statement, (apsw.carray(array),))

    def add_history(self, key: int, entry: HistoryRow) -> None:
        self._execute(_ADD_HISTORY, (key, *history_params(entry)))

    # ------------------------------------------------------------ vectors

    def stage_vectors(self, vectors: Vectors) -> None:
        rows = zip(vectors.ids.tolist(), encode_vectors(vectors.matrix), strict=True)
        self._executemany("INSERT OR REPLACE INTO staged_vector VALUES (?, ?)", list(rows))

    def clear_stage(self) -> None:
        self._execute("DELETE FROM staged_vector")

    def add_vectors(self, ns_id: int, vectors: Vectors) -> None:
        ids = vectors.ids.tolist()
        data = encode_vectors(vectors.matrix)
        self._executemany(
            "INSERT OR REPLACE INTO vector_data VALUES (?, ?)", list(zip(ids, data, strict=True))
        )
        self._executemany(
            "INSERT OR REPLACE INTO placement VALUES (?, ?, 0, 0, 0)",
            [(vector_id, ns_id) for vector_id in ids],
        )

    def retire_vectors(self, vector_ids: Ids) -> None:
        self._by_id(_RETIRE, vector_ids)

    def drop_vectors(self, vector_ids: Ids) -> None:
        staged_ids = self.staged_ids(owners(vector_ids).tolist())
        self._by_id("DELETE FROM staged_vector WHERE id IN carray(?)", staged_ids)
        self._by_id("DELETE FROM vector_data WHERE id IN carray(?)", vector_ids)
        self._by_id("DELETE FROM placement WHERE id IN carray(?)", vector_ids)

    def place(self, vector_ids: Ids, cell_ids: Ids) -> None:
        found = zip(vector_ids.tolist(), cell_ids.tolist(), strict=True)
        self._executemany(_PLACE, [(*cells, vector_id) for vector_id, cells in found])

    def move_vectors(self, vector_ids: Ids, moves: Ids) -> None:
        self._executemany(_MOVE, np.column_stack([vector_ids, moves]).tolist())

    def _by_id(self, statement: str, ids: Ids) -> None:
        if len(ids):
            array = ascending(ids).astype(np.int64, copy=False)
            self._execute(statement, (apsw.carray(array),))

    # ------------------------------------------------------------ cells

    def add_cell(self, ns_id: int, centroid: Floats, members: Members) -> int:
        self._execute(
            "INSERT INTO cell VALUES (NULL, ?, ?)", (ns_id, centroid.astype(np.float16).tobytes())
        )
        cell_id = self._connection.last_insert_rowid()
        self._executemany(_PUT_PART, _part_params(cell_id * PARTS_MAX, *extended([], members)))
        return cell_id

    def extend_cells(self, members: Mapping[int, Members]) -> None:
        parts = []
        for cell_id, part_id, count, data in self._by_ids(_LAST_PARTS, np.array(list(members))):
            if part_id is None:
                part_id, count, data = cell_id * PARTS_MAX, 0, b""
            own = _part_params(part_id, *extended([(count, data)], members[cell_id]))
            # Parts between may be gone.
            is_full = own[-1][0] >= (cell_id + 1) * PARTS_MAX
            parts += self._parts_anew(cell_id, members[cell_id]) if is_full else own
        self._executemany(_PUT_PART, parts)

    def _parts_anew(self, cell_id: int, more: Members) -> list[tuple[int, int, bytes]]:
        """Return the rows of a cell's members, and of *more*, numbered from the first again."""
        parts = self._execute(_OWN_PARTS, (cell_id,)).fetchall()
        self._execute(_DROP_PARTS, (cell_id,))
        kept = [(count, data) for _, count, data in parts]
        return _part_params(cell_id * PARTS_MAX, *extended(kept, more))

    def remove_members(self, cell_id: int, vector_ids: Ids) -> None:
        for part_id, count, data in self._execute(_OWN_PARTS, (cell_id,)).fetchall():
            members = decode_members(count, data)
            stays = ~np.isin(members.ids, vector_ids)
            if stays.all():
                continue
            if stays.any():
                left = Members(members.ids[stays], members.codes[stays])
                self._execute(_PUT_PART, (part_id, len(left.ids), encode_members(left)))
            else:
                self._execute("DELETE FROM cell_part WHERE id = ?", (part_id,))

    def drop_cell(self, cell_id: int) -> None:
        self._execute(_DROP_PARTS, (cell_id,))
        self._execute(_ADD_WAYPOINT, (cell_id,))
        self._execute("DELETE FROM cell WHERE cell_id = ?", (cell_id,))

    def put_cell_snapshot(self, ns_id: int, snapshot: bytes | None) -> None:
        for statement in _DROP_SNAPSHOT:
            self._execute(statement, (ns_id,))
        if snapshot is not None:
            data, cell_ids = without_centroids(snapshot, self._execute(_CELLS_OF, (ns_id,)))
            params = (ns_id, data, max(cell_ids.tolist(), default=0), cell_ids.tobytes())
            self._execute(_ADD_SNAPSHOT, params)

    # ------------------------------------------------------------ postings

    def add_postings(self, ns_id: int, postings: Sequence[NewPostings]) -> None:
        PostingWriter(self._connection, ns_id).add(postings)

    def remove_postings(self, ns_id: int, key: int, terms: Sequence[str]) -> None:
        PostingWriter(self._connection, ns_id).remove(key, terms)

    def clear_index(self, ns_id: int) -> None:
        for statement in _DROP_CELLS:
            self._execute(statement, (ns_id,))
        # What damage left without a cell or term belongs to no namespace that can be told.
        self._execute(
            f"DELETE FROM cell_part WHERE id / {PARTS_MAX} NOT IN (SELECT cell_id FROM cell)"
        )
        self._execute(
            "DELETE FROM posting"
            " WHERE term_id NOT IN (SELECT term_id FROM term WHERE term_id IS NOT NULL)"
        )
        self._execute(
            "UPDATE placement SET cell_id = 0, second_id = 0, third_id = 0"
            " WHERE ns_id = ? AND min(cell_id, 1) = 1",
            (ns_id,),
        )

    # ------------------------------------------------------------ logs of events

    def event_logs(self) -> list[str]:
        """Return the names of logs of which something has been folded."""
        found = self._execute("SELECT log FROM event_offset")
        return decoded(lambda columns: str(columns[0]), found, "the notes on logs of events")

    def event_offset(self, log: str) -> int:
        """Return up to which byte a log has been folded."""
        row = self._execute("SELECT offset FROM event_offset WHERE log = ?", (log,)).fetchone()
        return 0 if row is None else int(row[0])

    def set_event_offset(self, log: str, offset: int) -> None:
        """Note up to which byte a log has been folded."""
        self._execute("INSERT OR REPLACE INTO event_offset VALUES (?, ?)", (log, offset))

    def forget_event_logs(self, logs: Sequence[str]) -> None:
        """Drop the notes about logs that are no more."""
        self._executemany("DELETE FROM event_offset WHERE log = ?", [(log,) for log in logs])


def _part_params(part_id: int, ids: bytes, codes: bytes) -> list[tuple[int, int, bytes]]:
    """Return the rows of parts of a cell, the first being *part_id*; none without members."""
    count = len(ids) // 8
    width = len(codes) // max(1, count)
    step = max(1, PART_BYTES // (8 + width))
    if 0 < count <= step:
        return [(part_id, count, ids + codes)]
    return [
        (
            part_id + n,
            min(step, count - start),
            ids[8 * start : 8 * (start + step)] + codes[width * start : width * (start + step)],
        )
        for n, start in enumerate(range(0, count, step))
    ]


def _entry_params(key: int, row: Row) -> list[tuple[Any, ...]]:
    """Return the rows of the filter index for an item: none unless it is live."""
    if row.status is not Status.LIVE or not row.metadata:
        return []
    return _bound(key, row.ns_id, entries(row.metadata))


def _entries_of(columns: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return what `_entry_params` gave when the item was last written."""
    key, ns_id, status, metadata = columns
    if status != LIVE or metadata is None:
        return []
    return _bound(key, ns_id, entries(metadata_of(metadata)))


def _bound(key: int, ns_id: int, found: Sequence[Entry]) -> list[tuple[Any, ...]]:
    return [(ns_id, path, kind, stored(kind, value), key) for path, kind, value in found]
