"""What the gate writes down, in the same file and transactions as the memory."""

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

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
from amv.stores.sqlite.rows import decoded, namespace_of_text, namespace_text
from amv.stores.sqlite.store import SqliteStore
from amv.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")

SECRET_META = "guard_secret"

_RECORDS = "SELECT number, decision_id, kind, before, hash, body FROM guard_record"
OPENED = f"""{_RECORDS} INDEXED BY guard_record_opened
    WHERE kind = 'opened' AND number > ? ORDER BY number LIMIT ?"""
OPENED_WITHIN = """SELECT r.number, r.decision_id, r.kind, r.before, r.hash, r.body
    FROM guard_within w JOIN guard_record r ON r.number = w.number
    WHERE w.prefix = ? AND w.number > ? ORDER BY w.number LIMIT ?"""
_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM guard_record"
_APPEND = f"""INSERT INTO guard_record SELECT ?1, ?2, ?3, ?4, ?5, ?6
    WHERE ?1 = 1 + ({_LAST_NUMBER}) RETURNING number"""
_LEDGER = """SELECT key, digest, state, permit_hash, expires_s, decision_id, changed_s, approval_id
    FROM guard_ledger"""
_APPROVALS = """SELECT a.approval_id, a.decision_id, a.digest, a.state, a.created_s, a.expires_s,
    a.decided_by, a.decided_key FROM guard_approval a"""
_IN_ORDER = "ORDER BY a.created_s, a.approval_id"
APPROVALS_OF = f"{_APPROVALS} WHERE a.digest = ? AND a.state = ? {_IN_ORDER}"

_SPENT = """SELECT s.amount FROM guard_spent s JOIN guard_ledger l ON l.key = s.key
    WHERE s.purse = ? AND s.at_s > ? AND s.key != ? AND l.state != 'FAILED'
    AND NOT (l.state = 'APPROVED' AND l.expires_s <= ?)"""

_PUT_WITHIN = """INSERT INTO guard_within
    SELECT ?1, number, decision_id FROM guard_record INDEXED BY guard_record_by_decision
    WHERE decision_id = ?2 AND kind = 'opened'"""
_PUT_APPROVALS_WITHIN = """INSERT INTO guard_approval_within
    SELECT ?1, created_s, approval_id, state, decision_id FROM guard_approval
    WHERE decision_id = ?2"""

# What was forgotten while the decision was made would not be forgotten again.
_DROP_FORGOTTEN = """DELETE FROM guard_text WHERE decision_id = ? AND EXISTS (
    SELECT 1 FROM guard_text_item t WHERE t.decision_id = ? AND NOT EXISTS (
        SELECT 1 FROM namespace n JOIN item i ON i.ns_id = n.ns_id AND i.id = t.item_id
        WHERE n.name = t.namespace))"""


def _records_of(decision_id: str | None) -> str:
    """Return how to select records: of one decision they are few, of one kind perhaps all."""
    return _RECORDS if decision_id is None else f"{_RECORDS} INDEXED BY guard_record_by_decision"


def _ledger_of(columns: tuple[Any, ...]) -> LedgerRow:
    key, digest, state, *rest = columns
    return LedgerRow(key, digest, State(state), *rest)


def approvals_page(*, is_of_state: bool, is_within: bool) -> str:
    """Return what reads a page of requests: by state, prefix, time and id of the last, limit."""
    place, within = "a", ""
    if is_within:
        place, within = "w", "JOIN guard_approval_within w ON w.approval_id = a.approval_id"
    own = [f"{place}.state = ?"] if is_of_state else []
    own += ["w.prefix = ?"] if is_within else []
    conditions = " AND ".join([*own, f"({place}.created_s, {place}.approval_id) > (?, ?)"])
    return f"""{_APPROVALS} {within} WHERE {conditions}
        ORDER BY {place}.created_s, {place}.approval_id LIMIT ?"""


def _prefixes(namespace: tuple[str, ...]) -> list[str]:
    """Return the names of a namespace and of all above it."""
    return [namespace_text(namespace[:depth]) for depth in range(1, len(namespace) + 1)]


def _where(**wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition that columns have the values wanted of them, and these."""
    named = {column: value for column, value in wanted.items() if value is not None}
    conditions = " AND ".join(["TRUE", *(f"{column} = ?" for column in named)])
    return conditions, tuple(named.values())


class SqliteGuardReader:
    """A snapshot; each method is described in `ports.GuardReader`."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute

    def last_record(
        self, decision_id: str | None = None, *, kind: str | None = None
    ) -> RecordRow | None:
        own, params = _where(decision_id=decision_id, kind=kind)
        statement = f"{_records_of(decision_id)} WHERE {own} ORDER BY number DESC LIMIT 1"
        found = self._execute(statement, params).fetchone()
        return None if found is None else RecordRow(*found)

    def records(
        self,
        *,
        after: int = 0,
        decision_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[RecordRow]:
        if kind == "opened" and decision_id is None:
            return self._records(OPENED, after, limit)
        own, params = _where(decision_id=decision_id, kind=kind)
        statement = f"{_records_of(decision_id)} WHERE {own} AND number > ? ORDER BY number LIMIT ?"
        return self._records(statement, *params, after, limit)

    def opened(
        self, namespace: tuple[str, ...], *, after: int, limit: int | None = None
    ) -> list[RecordRow]:
        return self._records(OPENED_WITHIN, namespace_text(namespace), after, limit)

    def _records(self, statement: str, *params: object) -> list[RecordRow]:
        """Return the records that a statement finds, whose last parameter is how many at most."""
        found = self._execute(statement, (*params[:-1], -1 if params[-1] is None else params[-1]))
        return decoded(lambda columns: RecordRow(*columns), found, "a record of the gate")

    def ledger(self, key: str) -> LedgerRow | None:
        return self._one(f"{_LEDGER} WHERE key = ?", key)

    def ledger_of(self, decision_id: str) -> LedgerRow | None:
        return self._one(f"{_LEDGER} WHERE decision_id = ?", decision_id)

    def granted(self, permit_hash: str) -> LedgerRow | None:
        return self._one(f"{_LEDGER} WHERE permit_hash = ?", permit_hash)

    def replaced(self, permit_hash: str) -> str | None:
        found = self._execute(
            "SELECT digest FROM guard_replaced WHERE permit_hash = ?", (permit_hash,)
        ).fetchone()
        return None if found is None else str(found[0])

    def _one(self, statement: str, name: str) -> LedgerRow | None:
        found = decoded(_ledger_of, self._execute(statement, (name,)), "the ledger")
        return found[0] if found else None

    def in_state(self, state: State, before_s: float) -> list[LedgerRow]:
        found = self._execute(
            f"{_LEDGER} WHERE state = ? AND changed_s < ? ORDER BY changed_s, key",
            (state.value, before_s),
        )
        return decoded(_ledger_of, found, "the ledger")

    def text(self, decision_id: str) -> TextRow | None:
        found = self._execute(
            "SELECT namespace, body FROM guard_text WHERE decision_id = ?", (decision_id,)
        ).fetchone()
        if found is None:
            return None
        items = self._execute(
            "SELECT item_id FROM guard_text_item WHERE decision_id = ? ORDER BY 1", (decision_id,)
        )
        return TextRow(
            decision_id,
            namespace_of_text(found[0]),
            tuple(item_id for (item_id,) in items),
            found[1],
        )

    def approval(self, approval_id: str) -> ApprovalRow | None:
        found = self._execute(f"{_APPROVALS} WHERE a.approval_id = ?", (approval_id,)).fetchone()
        return None if found is None else ApprovalRow(*found)

    def approvals(
        self,
        state: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRow]:
        statement = approvals_page(is_of_state=state is not None, is_within=bool(namespace))
        params = [] if state is None else [state]
        params += [namespace_text(namespace)] if namespace else []
        last = (-math.inf, "") if after is None else after
        return self._approvals(statement, *params, *last, -1 if limit is None else limit)

    def approvals_of(self, digest: str, state: str) -> list[ApprovalRow]:
        return self._approvals(APPROVALS_OF, digest, state)

    def _approvals(self, statement: str, *params: object) -> list[ApprovalRow]:
        found = self._execute(statement, params)
        return decoded(lambda columns: ApprovalRow(*columns), found, "a request for approval")

    def spent(self, purse: str, *, since_s: float, now_s: float, but: str) -> list[float]:
        found = self._execute(_SPENT, (purse, since_s, but, now_s))
        return [amount for (amount,) in found]


class SqliteGuardWriter(SqliteGuardReader):
    """A transaction; each method is described in `ports.GuardWriter`."""

    def __init__(self, memory: SqliteWriter) -> None:
        super().__init__(memory.execute)
        self.memory = memory

    def append(self, row: RecordRow) -> None:
        if self._execute(_APPEND, tuple(row)).fetchone() is None:
            last = self._execute(_LAST_NUMBER).get
            raise StoreError(f"the next record is number {last + 1}, got {row.number}")

    def put_ledger(self, row: LedgerRow) -> None:
        values = tuple(row._replace(state=row.state.value))  # type: ignore[arg-type]
        self._execute("INSERT OR REPLACE INTO guard_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def put_replaced(self, permit_hash: str, digest: str) -> None:
        self._execute("INSERT OR REPLACE INTO guard_replaced VALUES (?, ?)", (permit_hash, digest))

    def put_text(self, row: TextRow) -> None:
        name = namespace_text(row.namespace)
        self._execute("DELETE FROM guard_text WHERE decision_id = ?", (row.decision_id,))
        self._execute("INSERT INTO guard_text VALUES (?, ?, ?)", (row.decision_id, name, row.body))
        for item_id in set(row.item_ids):
            self._execute(
                "INSERT INTO guard_text_item VALUES (?, ?, ?)", (item_id, name, row.decision_id)
            )
        for prefix in _prefixes(row.namespace):
            self._execute(_PUT_WITHIN, (prefix, row.decision_id))
            self._execute(_PUT_APPROVALS_WITHIN, (prefix, row.decision_id))
        self._execute(_DROP_FORGOTTEN, (row.decision_id, row.decision_id))

    def put_approval(self, row: ApprovalRow) -> None:
        self._execute(
            "INSERT OR REPLACE INTO guard_approval VALUES (?, ?, ?, ?, ?, ?, ?, ?)", tuple(row)
        )
        self._execute("DELETE FROM guard_approval_within WHERE decision_id = ?", (row.decision_id,))
        text = self.text(row.decision_id)
        for prefix in [] if text is None else _prefixes(text.namespace):
            self._execute(_PUT_APPROVALS_WITHIN, (prefix, row.decision_id))

    def put_spent(self, row: SpentRow) -> None:
        self._execute("INSERT OR REPLACE INTO guard_spent VALUES (?, ?, ?, ?)", tuple(row))


class SqliteGuardStore:
    """A `GuardStore` in the file of a `SqliteStore`."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._secret: bytes | None = None

    @contextmanager
    def read(self) -> Iterator[GuardReader]:
        """Open a snapshot."""
        with self._store.read() as reader:
            yield SqliteGuardReader(reader.execute)  # type: ignore[attr-defined]

    def write(self, work: Callable[[GuardWriter], T]) -> T:
        """Run *work* in a transaction; return its result once that is durable."""
        return self._store.write(
            lambda tx: work(SqliteGuardWriter(tx))  # type: ignore[arg-type]
        )

    def secret(self) -> bytes:
        """Return the key of this store's hashes."""
        if self._secret is None:
            with self._store.read() as reader:
                found = reader.meta(SECRET_META)
            if found is None:

                def work(tx: Any) -> str:
                    known = tx.meta(SECRET_META)
                    if known is None:
                        known = secrets.token_hex(32)
                        tx.set_meta(SECRET_META, known)
                    return str(known)

                found = self._store.write(work)
            self._secret = bytes.fromhex(found)
        return self._secret
