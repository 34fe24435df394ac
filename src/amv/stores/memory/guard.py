"""What the gate writes down, in the memory of one process."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from amv.errors import StoreError
from amv.guard.ports import (
    ApprovalRow,
    GuardReader,
    GuardWriter,
    LedgerRow,
    RecordRow,
    SpentRow,
    State,
    TextRow,
)
from amv.memory.ports import Reader, Writer
from amv.stores.memory.store import MemoryStore

T = TypeVar("T")


class _Tables:
    """All rows; a transaction works on a copy."""

    def __init__(self) -> None:
        self.log: list[RecordRow] = []
        self.of: dict[str, tuple[RecordRow, ...]] = {}
        self.rows: dict[str, LedgerRow] = {}
        self.words: dict[str, TextRow] = {}
        self.requests: dict[str, ApprovalRow] = {}
        self.replaced: dict[str, str] = {}
        self.purses: dict[tuple[str, str], SpentRow] = {}

    def copy(self) -> "_Tables":
        tables = _Tables()
        tables.log, tables.of, tables.rows = list(self.log), dict(self.of), dict(self.rows)
        tables.words, tables.requests = dict(self.words), dict(self.requests)
        tables.replaced = dict(self.replaced)
        tables.purses = dict(self.purses)
        return tables


class _Writer:
    """A transaction; each method is described in `ports.GuardWriter`."""

    def __init__(self, tables: _Tables, reader: Reader) -> None:
        self._tables = tables
        self.memory = reader

    def last_record(
        self, decision_id: str | None = None, *, kind: str | None = None
    ) -> RecordRow | None:
        rows = self._tables.log if decision_id is None else self._tables.of.get(decision_id, ())
        return next((row for row in reversed(rows) if kind in (None, row.kind)), None)

    def records(
        self,
        *,
        after: int = 0,
        decision_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[RecordRow]:
        # The log has no gaps, so that its first *after* rows are those up to that number.
        rows = self._tables.log if decision_id is None else self._tables.of.get(decision_id, ())
        found = (
            row
            for row in islice(rows, after if decision_id is None else 0, None)
            if row.number > after and kind in (None, row.kind)
        )
        return list(islice(found, limit))

    def opened(
        self, namespace: tuple[str, ...], *, after: int, limit: int | None = None
    ) -> list[RecordRow]:
        rows = islice(self._tables.log, after, None)
        found = (row for row in rows if row.kind == "opened" and self._is_within(row, namespace))
        return list(islice(found, limit))

    def _is_within(self, row: RecordRow | ApprovalRow, namespace: tuple[str, ...]) -> bool:
        """Return whether a decision's words are still there and say this namespace, or below."""
        text = self._tables.words.get(row.decision_id)
        return text is not None and text.namespace[: len(namespace)] == namespace

    def ledger(self, key: str) -> LedgerRow | None:
        return self._tables.rows.get(key)

    def ledger_of(self, decision_id: str) -> LedgerRow | None:
        found = [row for row in self._tables.rows.values() if row.decision_id == decision_id]
        return found[0] if found else None

    def granted(self, permit_hash: str) -> LedgerRow | None:
        found = [row for row in self._tables.rows.values() if row.permit_hash == permit_hash]
        return found[0] if found else None

    def replaced(self, permit_hash: str) -> str | None:
        return self._tables.replaced.get(permit_hash)

    def in_state(self, state: State, before_s: float) -> list[LedgerRow]:
        found = [
            row
            for row in self._tables.rows.values()
            if row.state is state and row.changed_s < before_s
        ]
        return sorted(found, key=lambda row: (row.changed_s, row.key))

    def text(self, decision_id: str) -> TextRow | None:
        return self._tables.words.get(decision_id)

    def approval(self, approval_id: str) -> ApprovalRow | None:
        return self._tables.requests.get(approval_id)

    def approvals(
        self,
        state: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRow]:
        found = [
            row
            for row in self._tables.requests.values()
            if state in (None, row.state)
            and (not namespace or self._is_within(row, namespace))
            and (after is None or (row.created_s, row.approval_id) > after)
        ]
        return sorted(found, key=lambda row: (row.created_s, row.approval_id))[:limit]

    def approvals_of(self, digest: str, state: str) -> list[ApprovalRow]:
        return [row for row in self.approvals(state) if row.digest == digest]

    def spent(self, purse: str, *, since_s: float, now_s: float, but: str) -> list[float]:
        found = []
        for row in self._tables.purses.values():
            if row.purse != purse or row.key == but or not row.at_s > since_s:
                continue
            granted = self._tables.rows[row.key]
            is_over = granted.state is State.APPROVED and granted.expires_s <= now_s
            if granted.state is not State.FAILED and not is_over:
                found.append(row.amount)
        return found

    def append(self, row: RecordRow) -> None:
        if row.number != len(self._tables.log) + 1:
            raise StoreError(
                f"the next record is number {len(self._tables.log) + 1}, got {row.number}"
            )
        self._tables.log.append(row)
        self._tables.of[row.decision_id] = (*self._tables.of.get(row.decision_id, ()), row)

    def put_ledger(self, row: LedgerRow) -> None:
        self._tables.rows[row.key] = row

    def put_replaced(self, permit_hash: str, digest: str) -> None:
        self._tables.replaced[permit_hash] = digest

    def put_text(self, row: TextRow) -> None:
        self._tables.words.pop(row.decision_id, None)
        ns = self.memory.namespace(row.namespace)
        are_there = ns is not None and all(
            self.memory.rows_with_id(item_id, ns.ns_id) for item_id in row.item_ids
        )
        # What was forgotten while the decision was made would not be forgotten again.
        if are_there or not row.item_ids:
            self._tables.words[row.decision_id] = row._replace(
                item_ids=tuple(sorted(set(row.item_ids)))
            )

    def put_approval(self, row: ApprovalRow) -> None:
        self._tables.requests[row.approval_id] = row

    def put_spent(self, row: SpentRow) -> None:
        self._tables.purses[row.purse, row.key] = row


class MemoryGuardStore:
    """A `GuardStore` beside a `MemoryStore`; words go when what they are about is deleted there."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tables = _Tables()
        self._secret = secrets.token_bytes(32)
        store.watch(self._forget)

    @contextmanager
    def read(self) -> Iterator[GuardReader]:
        """Hold the lock, and so the state, for as long as the snapshot is open."""
        with self._store.read() as reader:
            yield _Writer(self._tables, reader)

    def write(self, work: Callable[[GuardWriter], T]) -> T:
        """Run *work*; undo all it did if it raises, to the memory too."""

        def both(writer: Writer) -> T:
            tables = self._tables.copy()
            result = work(_Writer(tables, writer))
            self._tables = tables
            return result

        return self._store.write(both)

    def _forget(self, namespace: tuple[str, ...], item_id: str | None) -> None:
        self._tables.words = {
            decision_id: row
            for decision_id, row in self._tables.words.items()
            if row.namespace != namespace or (item_id is not None and item_id not in row.item_ids)
        }

    def secret(self) -> bytes:
        """Return the key of this store's hashes."""
        return self._secret
