"""Reading the dictionaries of the in-process store; the caller holds its lock."""

from collections.abc import Sequence
from heapq import nlargest

import numpy as np
import numpy.typing as npt

from amv.memory.filters import Node, matches
from amv.memory.item import Namespace, Protection, Row, State
from amv.memory.lexical import POSTING
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
)
from amv.memory.tiers import Tier
from amv.stores.memory.tables import (
    Tables,
    among,
    ids_of,
    is_expired,
    own_change,
    own_row,
    stacked,
    was_valid,
)


class MemoryReader:
    """What `ports.Reader` says, by look-ups in the tables; each method is described there."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def _indexed(self, *entry: str | int) -> list[int]:
        return sorted(self._tables.index.get(entry, ()))

    def _rows(self, *entry: str | int) -> list[Row]:
        return list(self.rows(self._indexed(*entry)).values())

    def meta(self, name: str) -> str | None:
        return self._tables.meta.get(name)

    def namespace(self, name: Namespace) -> NamespaceRow | None:
        ns_id = self._tables.names.get(name)
        return None if ns_id is None else self._tables.namespaces[ns_id]

    def namespace_by_id(self, ns_id: int) -> NamespaceRow | None:
        return self._tables.namespaces.get(ns_id)

    def namespaces(self, *, due_s: float | None = None) -> list[NamespaceRow]:
        found = sorted(self._tables.namespaces.values(), key=lambda row: row.name)
        if due_s is None:
            return found
        return [row for row in found if row.next_due_s is not None and row.next_due_s <= due_s]

    def changes(self, ns_id: int, since_version: int) -> list[Change] | None:
        namespace = self.namespace_by_id(ns_id)
        if namespace is None or since_version > namespace.version:
            return None
        kept = self._tables.changes.get(ns_id, {})
        wanted = range(since_version + 1, namespace.version + 1)
        if wanted and wanted[0] not in kept:
            return None
        return [own_change(kept[version]) for version in sorted(kept) if version in wanted]

    def rows(self, keys: Sequence[int]) -> dict[int, Row]:
        rows = self._tables.rows
        return {key: own_row(rows[key]) for key in keys if key in rows}

    def states(self, ns_id: int, keys: Sequence[int]) -> dict[int, State]:
        live = self._tables.index.get(("live", ns_id), {})
        return {key: self._tables.rows[key].state for key in keys if key in live}

    def rows_with_id(self, item_id: str, ns_id: int | None = None) -> list[Row]:
        return self._rows("id", item_id) if ns_id is None else self._rows("id", ns_id, item_id)

    def page(self, ns_id: int, *, source: str | None, after_key: int, limit: int) -> list[Row]:
        rows = self._tables.rows
        keys = [
            key
            for key in self._indexed("rows", ns_id)
            if key > after_key and (source is None or rows[key].source == source)
        ]
        return list(self.rows(keys[:limit]).values())

    def claim_rows(self, ns_id: int, subject: str, attribute: str) -> list[Row]:
        return self._rows("claim", ns_id, subject, attribute)

    def claims_in(self, name: Namespace, subject: str, attribute: str) -> list[Row]:
        ns = self.namespace(name)
        return [] if ns is None else self.claim_rows(ns.ns_id, subject, attribute)

    def told(self, ns_id: int, digests: Sequence[int]) -> dict[int, list[int]]:
        keys = {number: self._indexed("told", ns_id, number) for number in digests}
        return {number: found for number, found in keys.items() if found}

    def linked_rows(self, ns_id: int, item_id: str) -> list[Row]:
        return self._rows("link", ns_id, item_id)

    def history(self, key: int) -> list[HistoryRow]:
        return list(self._tables.history.get(key, ()))

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
        pairs = (
            (self._tables.rows[key].state.value_key, key)
            for key in self._indexed("tier", ns_id, protection, tier)
        )
        found = sorted(
            (p for p in pairs if (low is None or p[0] >= low) and (high is None or p[0] < high)),
            reverse=descending,
        )
        return found if limit < 0 else found[:limit]

    def protected_keys(self, ns_id: int, protection: Protection) -> list[int]:
        return sorted(k for tier in Tier for k in self._indexed("tier", ns_id, protection, tier))

    def hot_keys(self, ns_id: int) -> list[int]:
        return sorted(k for p in Protection for k in self._indexed("tier", ns_id, p, Tier.HOT))

    def tier_counts(self, ns_id: int) -> dict[Tier, int]:
        index = self._tables.index
        return {
            tier: sum(len(index.get(("tier", ns_id, p, tier), ())) for p in Protection)
            for tier in Tier
        }

    def vector_ids(self, keys: Sequence[int]) -> Ids:
        return ids_of(vector_id for key in keys for vector_id in self._indexed("owner", key))

    def vectors(self, vector_ids: Ids) -> Vectors:
        found = among(self._tables.vectors, vector_ids)
        return stacked({i: vector.values for i, vector in found.items()})

    def pending_ids(self, ns_id: int) -> Ids:
        return ids_of(self._indexed("pending", ns_id))

    def indexed_ids(self, ns_id: int) -> Ids:
        return ids_of(self._indexed("indexed", ns_id))

    def placements(self, vector_ids: Ids) -> dict[int, Place]:
        found = among(self._tables.vectors, vector_ids)
        return {i: vector.place for i, vector in found.items()}

    def cell_ids(self, ns_id: int) -> Ids:
        return ids_of(self._indexed("cells", ns_id))

    def centroids(self, cell_ids: Ids) -> Vectors:
        found = among(self._tables.cells, cell_ids)
        return stacked({i: cell.centroid.astype(np.float32) for i, cell in found.items()})

    def cell_snapshot(self, ns_id: int) -> bytes | None:
        return self._tables.snapshots.get(ns_id)

    def members(self, cell_ids: Ids) -> dict[int, Members]:
        found = among(self._tables.cells, cell_ids)
        return {i: cell.members for i, cell in found.items()}

    def cell_sizes(self, cell_ids: Ids) -> dict[int, int]:
        return {i: len(members.ids) for i, members in self.members(cell_ids).items()}

    def frequencies(self, ns_id: int, terms: Sequence[str]) -> dict[str, int]:
        kept = self._tables.postings.get(ns_id, {})
        return {term: len(kept[term]) for term in terms if term in kept}

    def postings(self, ns_id: int, term: str, limit: int) -> npt.NDArray[np.void]:
        kept = self._tables.postings.get(ns_id, {}).get(term, {})
        return np.array([(key, *kept[key]) for key in nlargest(limit, kept)], dtype=POSTING)

    def matching(self, ns_id: int, node: Node | None, now_s: float, limit: int) -> list[int]:
        rows = self._tables.rows
        found = [
            key
            for key in self._indexed("live", ns_id)
            if not is_expired(rows[key], now_s)
            and (node is None or matches(node, rows[key].metadata))
        ]
        return found[:limit]

    def expiring(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        rows = self._rows("expires", ns_id)
        pairs = sorted((row.expires_s, row.key) for row in rows if row.expires_s is not None)
        return [pair for pair in pairs if pair[0] <= until_s][:limit]

    def doubted_ends(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        ends = [(row.valid_until_s, row.key) for row in self._rows("doubted", ns_id)]
        pairs = sorted((end_s, key) for end_s, key in ends if end_s is not None)
        return [pair for pair in pairs if pair[0] <= until_s][:limit]

    def unstaged_keys(self, after_key: int, limit: int) -> list[int]:
        owners = {i // PASSAGES_MAX for i in self._tables.vectors}
        missing = owners - {i // PASSAGES_MAX for i in self._tables.staged}
        found = sorted(key for key in missing if key > after_key)
        return found if limit < 0 else found[:limit]

    def staged_ids(self, keys: Sequence[int]) -> Ids:
        wanted = set(keys)
        return ids_of(sorted(i for i in self._tables.staged if i // PASSAGES_MAX in wanted))

    def staged(self, vector_ids: Ids) -> Vectors:
        return stacked(among(self._tables.staged, vector_ids))

    def past_keys(self, ns_id: int, at_s: float, limit: int) -> list[int]:
        rows = self._tables.rows
        found = (key for key in self._indexed("past", ns_id) if was_valid(rows[key], at_s))
        return nlargest(limit, found)

    def key(self, key_id: str) -> KeyRow | None:
        return self._tables.keys.get(key_id)

    def keys(self) -> list[KeyRow]:
        return sorted(self._tables.keys.values(), key=lambda key: (key.created_s, key.key_id))
