"""Reading a snapshot: what `amv.memory.ports.Reader` says, as statements.

Many keys or ids are passed as one array (SQLite's carray), which is six times
faster than a statement for each.  No statement reads rows of a namespace it
was not asked for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt

from amv.memory.filters import Node
from amv.memory.item import Namespace, Protection, Row, State
from amv.memory.ports import (
    PASSAGES_MAX,
    Change,
    HistoryRow,
    Ids,
    KeyRow,
    Members,
    NamespaceRow,
    Place,
    Vectors,
    ascending,
)
from amv.memory.tiers import Tier
from amv.stores.sqlite import postings
from amv.stores.sqlite.codec import (
    decode_centroids,
    decode_members,
    decode_vectors,
    join_members,
)
from amv.stores.sqlite.damage import UNDECODABLE, damaged
from amv.stores.sqlite.filters_sql import live_keys, matching_keys
from amv.stores.sqlite.lean import with_centroids
from amv.stores.sqlite.rows import (
    SELECT_NAMESPACES,
    SELECT_ROWS,
    SUPERSEDED,
    change_of,
    decoded,
    history_of,
    key_of,
    namespace_of,
    namespace_text,
    place_of,
    rows_of,
    state_of,
)

#: The numbers that one cell's parts, and one item's events, may take.
PARTS_MAX = 256
EVENTS_MAX = 1 << 20

_NAMESPACES_CACHED = 4096

_BY_NAME = f"{SELECT_NAMESPACES} WHERE name = ?"
_BY_NS_ID = f"{SELECT_NAMESPACES} WHERE ns_id = ?"
_DUE = f"{SELECT_NAMESPACES} WHERE next_due_s <= ?"

_ROWS_BY_KEY = f"{SELECT_ROWS} WHERE i.key IN carray(?)"
_ROWS_BY_ID = f"{SELECT_ROWS} WHERE i.id = ? ORDER BY i.key"
_ROWS_BY_ID_IN = f"{SELECT_ROWS} WHERE i.id = ? AND i.ns_id = ?"
_PAGE = f"{SELECT_ROWS} WHERE i.ns_id = ? AND i.key > ? ORDER BY i.key LIMIT ?"
_PAGE_OF_SOURCE = (
    f"{SELECT_ROWS} WHERE i.ns_id = ? AND i.source = ? AND i.key > ? ORDER BY i.key LIMIT ?"
)
_SAYS = "i.subject = ? AND i.attribute = ? AND i.status = 0 ORDER BY i.key"
_CLAIMS = f"{SELECT_ROWS} WHERE i.ns_id = ? AND {_SAYS}"
_CLAIMS_IN = (
    f"{SELECT_ROWS} WHERE i.ns_id = (SELECT ns_id FROM namespace WHERE name = ?) AND {_SAYS}"
)
# Named, or the planner prefers an index that gives the order and reads the whole namespace.
_TOLD = """SELECT digest, key FROM item INDEXED BY item_by_digest
    WHERE ns_id = ? AND status = 0 AND digest IN carray(?) ORDER BY key"""
_LINKED = f"""{SELECT_ROWS} WHERE i.key IN (
        SELECT key FROM item WHERE ns_id = ?1 AND supersedes = ?2
        UNION SELECT key FROM item WHERE ns_id = ?1 AND superseded_by = ?2
    ) ORDER BY i.key"""
# Named for the same reason.
_PAST_FROM = f"""SELECT key FROM item INDEXED BY item_by_past
    WHERE ns_id = ?1 AND status = {SUPERSEDED} AND coalesce(valid_from_s, created_s) <= ?2"""
_PAST = f"""{_PAST_FROM} AND valid_until_s > ?2
    UNION ALL {_PAST_FROM} AND valid_until_s IS NULL
    ORDER BY key DESC LIMIT ?3"""

_STATES = """SELECT s.key, s.tier, s.protection, s.value_key, s.exposed, s.contributed
    FROM carray(?) a CROSS JOIN item_state s ON s.key = a.value
    WHERE s.live = 1 AND s.ns_id = ?"""
_TIER = """SELECT value_key, key FROM item_state
    WHERE live = 1 AND ns_id = ? AND protection = ? AND tier = ?"""
_PROTECTED = """SELECT key FROM item_state
    WHERE live = 1 AND ns_id = ? AND protection = ? ORDER BY key"""
# Naming all protections lets the index lead to the hot items of each.
_HOT = f"""SELECT key FROM item_state
    WHERE live = 1 AND ns_id = ? AND protection IN ({", ".join(str(int(p)) for p in Protection)})
        AND tier = {int(Tier.HOT)} ORDER BY key"""
_TIER_COUNTS = "SELECT tier, count(*) FROM item_state WHERE live = 1 AND ns_id = ? GROUP BY tier"

_VECTOR_IDS = f"""SELECT p.id FROM carray(?) a CROSS JOIN placement p
    ON p.id >= a.value * {PASSAGES_MAX} AND p.id < (a.value + 1) * {PASSAGES_MAX}"""
_VECTORS = "SELECT v.id, v.data FROM carray(?) a CROSS JOIN vector_data v ON v.id = a.value"
_STAGED = "SELECT v.id, v.data FROM carray(?) a CROSS JOIN staged_vector v ON v.id = a.value"
_STAGED_IDS = f"""SELECT v.id FROM carray(?) a CROSS JOIN staged_vector v
    ON v.id >= a.value * {PASSAGES_MAX} AND v.id < (a.value + 1) * {PASSAGES_MAX}"""
# From item to item, over however many passages each has.
_UNSTAGED = f"""WITH RECURSIVE owner (key) AS (
        SELECT min(id) / {PASSAGES_MAX} FROM placement WHERE id >= (?1 + 1) * {PASSAGES_MAX}
        UNION ALL
        SELECT (SELECT min(id) / {PASSAGES_MAX} FROM placement
            WHERE id >= (owner.key + 1) * {PASSAGES_MAX})
        FROM owner WHERE key IS NOT NULL
    )
    SELECT key FROM owner WHERE key IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM staged_vector v
        WHERE v.id >= key * {PASSAGES_MAX} AND v.id < (key + 1) * {PASSAGES_MAX}
    ) LIMIT ?2"""
_KEYS = "SELECT key_id, mac, namespace, level, created_s, revoked_s FROM api_key"
_PENDING = "SELECT id FROM placement WHERE ns_id = ? AND min(cell_id, 1) = 0"
_INDEXED = "SELECT id FROM placement WHERE ns_id = ? AND min(cell_id, 1) >= 0"
_PLACEMENTS = """SELECT p.id, p.cell_id, p.second_id, p.third_id FROM carray(?) a
    CROSS JOIN placement p ON p.id = a.value"""
_CENTROIDS = """SELECT c.cell_id, c.centroid FROM carray(?) a
    CROSS JOIN cell c ON c.cell_id = a.value"""
# Damage may have put anything here; an index of that fails its checksum.
_SNAPSHOT = """SELECT CAST(coalesce(data, '') AS BLOB), CAST(coalesce(cell_ids, '') AS BLOB)
    FROM cell_snapshot WHERE ns_id = ?"""
_WAYPOINTS = """SELECT a.value, CAST(coalesce(c.centroid, w.centroid, '') AS BLOB) FROM carray(?) a
    LEFT JOIN cell c ON c.cell_id = a.value
    LEFT JOIN waypoint w ON w.ns_id = ? AND w.cell_id = a.value"""
_SIZES = f"""SELECT c.cell_id, (SELECT coalesce(sum(p.members), 0) FROM cell_part p
        WHERE p.id >= c.cell_id * {PARTS_MAX} AND p.id < (c.cell_id + 1) * {PARTS_MAX})
    FROM carray(?) a CROSS JOIN cell c ON c.cell_id = a.value"""
_PARTS = f"""SELECT p.id, p.members, p.data FROM carray(?) a CROSS JOIN cell_part p
    ON p.id >= a.value * {PARTS_MAX} AND p.id < (a.value + 1) * {PARTS_MAX}"""


class SqliteReader:
    """A snapshot on one connection; each method is described in `ports.Reader`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        # Typed loosely: what a column holds is known from the statement.
        self._execute: Callable[..., Any] = connection.execute
        self._namespaces: dict[int, tuple[tuple[Any, ...], NamespaceRow]] = {}

    @property
    def execute(self) -> Callable[..., Any]:
        """Run a statement within the snapshot; for what no other store can do."""
        return self._execute

    # ------------------------------------------------------------ namespaces

    def meta(self, name: str) -> str | None:
        found = self._execute("SELECT value FROM meta WHERE name = ?", (name,))
        values = decoded(lambda columns: str(columns[0]), found, "a setting of the store")
        return values[0] if values else None

    def namespace(self, name: Namespace) -> NamespaceRow | None:
        return self._namespace(self._execute(_BY_NAME, (namespace_text(name),)))

    def namespace_by_id(self, ns_id: int) -> NamespaceRow | None:
        return self._namespace(self._execute(_BY_NS_ID, (ns_id,)))

    def namespaces(self, *, due_s: float | None = None) -> list[NamespaceRow]:
        statement, params = (SELECT_NAMESPACES, ()) if due_s is None else (_DUE, (due_s,))
        found = decoded(namespace_of, self._execute(statement, params), "a namespace")
        return sorted(found, key=lambda row: row.name)

    def changes(self, ns_id: int, since_version: int) -> list[Change] | None:
        namespace = self.namespace_by_id(ns_id)
        if namespace is None or since_version > namespace.version:
            return None
        if since_version == namespace.version:
            return []
        found = self._execute(
            "SELECT version, payload FROM change"
            " WHERE ns_id = ? AND version > ? AND version <= ? ORDER BY version",
            (ns_id, since_version, namespace.version),
        ).fetchall()
        if not found or found[0][0] != since_version + 1:
            return None
        return decoded(lambda columns: change_of(columns[1]), found, "the change log")

    def _namespace(self, found: Any) -> NamespaceRow | None:
        """Return the row found, and the same object as long as nothing in it has changed."""
        try:
            columns = found.fetchone()
            if columns is None:
                return None
            kept = self._namespaces.get(columns[0])
            if kept is not None and kept[0] == columns:
                return kept[1]
            row = namespace_of(columns)
        except UNDECODABLE as error:
            raise damaged("a namespace") from error
        if len(self._namespaces) >= _NAMESPACES_CACHED:
            self._namespaces.clear()
        self._namespaces[row.ns_id] = (columns, row)
        return row

    # ------------------------------------------------------------ items

    def rows(self, keys: Sequence[int]) -> dict[int, Row]:
        if not keys:
            return {}
        found = {row.key: row for row in rows_of(self._execute(_ROWS_BY_KEY, (_array(keys),)))}
        return {key: found[key] for key in keys if key in found}

    def states(self, ns_id: int, keys: Sequence[int]) -> dict[int, State]:
        if not keys:
            return {}
        found = self._execute(_STATES, (_array(keys), ns_id))
        return dict(decoded(state_of, found, "the state of an item"))

    def rows_with_id(self, item_id: str, ns_id: int | None = None) -> list[Row]:
        if ns_id is None:
            return self._rows(_ROWS_BY_ID, item_id)
        return self._rows(_ROWS_BY_ID_IN, item_id, ns_id)

    def page(self, ns_id: int, *, source: str | None, after_key: int, limit: int) -> list[Row]:
        if source is None:
            return self._rows(_PAGE, ns_id, after_key, limit)
        return self._rows(_PAGE_OF_SOURCE, ns_id, source, after_key, limit)

    def claim_rows(self, ns_id: int, subject: str, attribute: str) -> list[Row]:
        return self._rows(_CLAIMS, ns_id, subject, attribute)

    def claims_in(self, name: Namespace, subject: str, attribute: str) -> list[Row]:
        return self._rows(_CLAIMS_IN, namespace_text(name), subject, attribute)

    def told(self, ns_id: int, digests: Sequence[int]) -> dict[int, list[int]]:
        if not digests:
            return {}
        array = ascending(np.array(digests, dtype=np.int64))
        keys: dict[int, list[int]] = {}
        for found, key in self._execute(_TOLD, (ns_id, apsw.carray(array))):
            keys.setdefault(found, []).append(key)
        return keys

    def linked_rows(self, ns_id: int, item_id: str) -> list[Row]:
        return self._rows(_LINKED, ns_id, item_id)

    def history(self, key: int) -> list[HistoryRow]:
        found = self._execute(
            "SELECT at_s, event, content, claim FROM history WHERE id >= ? AND id < ? ORDER BY id",
            (key * EVENTS_MAX, (key + 1) * EVENTS_MAX),
        )
        return decoded(history_of, found, "the history of an item")

    def matching(self, ns_id: int, node: Node | None, now_s: float, limit: int) -> list[int]:
        if node is None:
            return live_keys(self._execute, ns_id, now_s, limit)
        return matching_keys(self._execute, ns_id, node, now_s, limit)

    def expiring(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = self._execute(
            "SELECT expires_s, key FROM item WHERE ns_id = ? AND expires_s <= ?"
            " ORDER BY expires_s, key LIMIT ?",
            (ns_id, until_s, limit),
        ).fetchall()
        return found

    def doubted_ends(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = self._execute(
            "SELECT valid_until_s, key FROM item WHERE ns_id = ? AND status = 0"
            " AND contradicted = 1 AND valid_until_s <= ? ORDER BY valid_until_s, key LIMIT ?",
            (ns_id, until_s, limit),
        ).fetchall()
        return found

    def past_keys(self, ns_id: int, at_s: float, limit: int) -> list[int]:
        return self._column(_PAST, ns_id, at_s, limit)

    def _rows(self, statement: str, *params: object) -> list[Row]:
        return rows_of(self._execute(statement, params))

    def _column(self, statement: str, *params: object) -> list[int]:
        return [value for (value,) in self._execute(statement, params)]

    # ------------------------------------------------------------ tiers

    def tier_range(
        self,
        ns_id: int,
        protection: Protection,
        tier: Tier,
        *,
        low: float | None = None,
        high: float | None = None,
        descending: bool = False,
        limit: int = -1,
    ) -> list[tuple[float, int]]:
        statement = _TIER
        params: list[float] = [ns_id, protection.value, tier.value]
        if low is not None:
            statement += " AND value_key >= ?"
            params.append(low)
        if high is not None:
            statement += " AND value_key < ?"
            params.append(high)
        order = " DESC" if descending else ""
        statement += f" ORDER BY value_key{order}, key{order} LIMIT ?"
        found: list[tuple[float, int]] = self._execute(statement, (*params, limit)).fetchall()
        return found

    def protected_keys(self, ns_id: int, protection: Protection) -> list[int]:
        return self._column(_PROTECTED, ns_id, protection.value)

    def hot_keys(self, ns_id: int) -> list[int]:
        return self._column(_HOT, ns_id)

    def tier_counts(self, ns_id: int) -> dict[Tier, int]:
        found = dict(decoded(tuple, self._execute(_TIER_COUNTS, (ns_id,)), "the tier of an item"))
        return {tier: found.get(tier.value, 0) for tier in Tier}

    # ------------------------------------------------------------ vectors and cells

    def vector_ids(self, keys: Sequence[int]) -> Ids:
        return self._ids_of(_VECTOR_IDS, keys)

    def vectors(self, vector_ids: Ids) -> Vectors:
        return _vectors(self._by_ids(_VECTORS, vector_ids))

    def unstaged_keys(self, after_key: int, limit: int) -> list[int]:
        return self._column(_UNSTAGED, after_key, limit)

    def staged(self, vector_ids: Ids) -> Vectors:
        return _vectors(self._by_ids(_STAGED, vector_ids))

    def staged_ids(self, keys: Sequence[int]) -> Ids:
        return self._ids_of(_STAGED_IDS, keys)

    def pending_ids(self, ns_id: int) -> Ids:
        return _ids(self._column(_PENDING, ns_id))

    def indexed_ids(self, ns_id: int) -> Ids:
        # The index gives those pending first.
        return np.sort(_ids(self._column(_INDEXED, ns_id)))

    def placements(self, vector_ids: Ids) -> dict[int, Place]:
        found = self._by_ids(_PLACEMENTS, vector_ids)
        return dict(decoded(place_of, found, "where a vector is"))

    def cell_ids(self, ns_id: int) -> Ids:
        return _ids(self._column("SELECT cell_id FROM cell WHERE ns_id = ? ORDER BY 1", ns_id))

    def centroids(self, cell_ids: Ids) -> Vectors:
        found = self._by_ids(_CENTROIDS, cell_ids)
        return Vectors(_ids([row[0] for row in found]), decode_centroids([row[1] for row in found]))

    def cell_snapshot(self, ns_id: int) -> bytes | None:
        row = self._execute(_SNAPSHOT, (ns_id,)).fetchone()
        if row is None:
            return None
        data, ids = row
        cell_ids = np.frombuffer(ids, np.int64, len(ids) // 8)
        return with_centroids(data, cell_ids, dict(self._by_ids(_WAYPOINTS, cell_ids, ns_id)))

    def members(self, cell_ids: Ids) -> dict[int, Members]:
        parts: dict[int, list[Members]] = {}
        for part_id, count, data in self._by_ids(_PARTS, cell_ids):
            parts.setdefault(part_id // PARTS_MAX, []).append(decode_members(count, data))
        found = {cell_id: join_members(members) for cell_id, members in parts.items()}
        if len(found) < len(cell_ids):
            self._add_empty_cells(found, cell_ids)
        return found

    def _add_empty_cells(self, found: dict[int, Members], cell_ids: Ids) -> None:
        """A cell that lost its last member has no part, and is still a cell."""
        missing = np.array([i for i in cell_ids.tolist() if i not in found], dtype=np.int64)
        for cell_id, centroid in self._by_ids(_CENTROIDS, missing):
            # Two bytes a component of a centroid, half of one in a code.
            codes = np.empty((0, (len(centroid) + 2) // 4), dtype=np.uint8)
            found[cell_id] = Members(_ids([]), codes)

    def cell_sizes(self, cell_ids: Ids) -> dict[int, int]:
        return dict(self._by_ids(_SIZES, cell_ids))

    def _ids_of(self, statement: str, keys: Sequence[int]) -> Ids:
        """Run a statement over an array of keys, ascending and each once."""
        if not keys:
            return _ids([])
        return _ids(self._column(statement, _array(sorted(set(keys)))))

    def _by_ids(self, statement: str, ids: Ids, *params: int) -> list[Any]:
        """Run a statement over an array of ids, ascending and each once."""
        if not len(ids):
            return []
        unique = ascending(ids).astype(np.int64, copy=False)
        try:
            found: list[Any] = self._execute(statement, (apsw.carray(unique), *params)).fetchall()
        except UnicodeDecodeError as error:
            # Where a number or a blob should be, damage may have put text.
            raise damaged("an index") from error
        return found

    # ------------------------------------------------------------ keys to the gateway

    def key(self, key_id: str) -> KeyRow | None:
        found = self._execute(f"{_KEYS} WHERE key_id = ?", (key_id,))
        keys = decoded(key_of, found, "a key to the gateway")
        return keys[0] if keys else None

    def keys(self) -> list[KeyRow]:
        found = self._execute(f"{_KEYS} ORDER BY created_s, key_id")
        return decoded(key_of, found, "a key to the gateway")

    # ------------------------------------------------------------ postings

    def frequencies(self, ns_id: int, terms: Sequence[str]) -> dict[str, int]:
        return postings.frequencies(self._execute, ns_id, terms)

    def postings(self, ns_id: int, term: str, limit: int) -> npt.NDArray[np.void]:
        return postings.newest(self._execute, ns_id, term, limit)


def _ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int64)


def _vectors(found: Sequence[tuple[int, bytes]]) -> Vectors:
    return Vectors(_ids([row[0] for row in found]), decode_vectors([row[1] for row in found]))


def _array(keys: Sequence[int]) -> Any:
    return apsw.carray(_ids(keys))
