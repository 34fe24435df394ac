"""What the gate needs from outside: remembered claims, a place for records, and checks.

Whoever joins the gate with a memory and a store implements these.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from amv.guard.policy import VerifierRule

T = TypeVar("T")


class Remembered(NamedTuple):
    """A claim as it is remembered.  *since_s* is when it was last known for sure, unix seconds."""

    item_id: str
    value: object
    since_s: float
    trust: float
    is_contradicted: bool
    is_trusted: bool


class Shown(NamedTuple):
    """What a check showed of a remembered claim.

    It holds, or the world has another *value*; None where there is no such thing.
    *by* is the check: what it read is trusted as its own, whoever said otherwise.
    """

    item_id: str
    holds: bool
    value: object = None
    by: str = ""


class Claims(Protocol):
    """The remembered claims of namespaces."""

    def find(self, namespace: tuple[str, ...], subject: str, attribute: str) -> Remembered | None:
        """Return the claim that is believed now, or None."""

    def find_in(
        self, tx: "GuardWriter", namespace: tuple[str, ...], subject: str, attribute: str
    ) -> Remembered | None:
        """Return the same, as a transaction finds it: until that ends it stays so."""

    def telling(
        self, namespace: tuple[str, ...], shown: Sequence[Shown]
    ) -> AbstractContextManager[Callable[["GuardWriter"], list[str]]]:
        """Prepare to tell the memory what checks showed: claims confirmed, or superseded.

        What it gives is called within the transaction that writes the decision
        down, so that both stand or neither does.  It returns the items that now
        say what was read; what was forgotten or replaced meanwhile is passed over.
        """

    def used(self, namespace: tuple[str, ...], item_ids: Sequence[str]) -> None:
        """Note that an action rested on items."""


Fault = Literal["failed", "timed_out", "refused", "not_asked"]
"""How a check can come to nothing: its verifier broke, gave no answer in time, did what no
verifier may, or could not be asked."""


class Finding(NamedTuple):
    """What a verifier read.  *problem* is empty, or says why this is no evidence.

    *fault* says in a word what went wrong, if anything did.
    """

    value: object
    problem: str = ""
    fault: Fault = "failed"


class Checker(Protocol):
    """Runs verifiers.  Never raises: what goes wrong is a finding that is no evidence."""

    def run(
        self, name: str, rule: VerifierRule, arguments: Mapping[str, Any], *, worth: float
    ) -> Finding:
        """Return what a verifier reads; *worth* is what a wrong action would lose.

        The more that is, the sooner an earlier reading is too old to be used again.
        """

    def knows(self, name: str, rule: VerifierRule) -> bool:
        """Return whether there is anything here to ask."""


class State(StrEnum):
    """How far one grant has come; see `amv.guard.ledger`."""

    APPROVED = "APPROVED"
    RESERVED = "RESERVED"
    DISPATCHED = "DISPATCHED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class LedgerRow(NamedTuple):
    """One idempotency key: which action it was granted to, and what became of that.

    *approval_id* is the approval that let it be granted, empty if none had to.
    """

    key: str
    digest: str
    state: State
    permit_hash: str
    expires_s: float
    decision_id: str
    changed_s: float
    approval_id: str = ""


class RecordRow(NamedTuple):
    """One record of the log: its number from 1, the hashes that chain it, its JSON."""

    number: int
    decision_id: str
    kind: str
    before: str
    hash: str
    body: bytes


class ApprovalRow(NamedTuple):
    """A request to a person; *state* is pending, approved, rejected or used.

    *decided_by* is who decided as they say themselves, *decided_key* the id of the
    key with which that was told over HTTP, empty if it was not.
    """

    approval_id: str
    decision_id: str
    digest: str
    state: str
    created_s: float
    expires_s: float
    decided_by: str
    decided_key: str = ""


class SpentRow(NamedTuple):
    """What one idempotency key took of a purse, which is one holder's share of a budget."""

    purse: str
    key: str
    amount: float
    at_s: float


class TextRow(NamedTuple):
    """What a record must not hold for ever: the words behind its hashes.

    It goes when an item of *item_ids* is forgotten, or their namespace.
    """

    decision_id: str
    namespace: tuple[str, ...]
    item_ids: tuple[str, ...]
    body: bytes


class GuardReader(Protocol):
    """A consistent snapshot of what the gate has written down."""

    def last_record(
        self, decision_id: str | None = None, *, kind: str | None = None
    ) -> RecordRow | None:
        """Return the newest record; of one decision or kind, if named."""

    def records(
        self,
        *,
        after: int = 0,
        decision_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> list[RecordRow]:
        """Return records after a number, oldest first; of one decision or kind, if named."""

    def opened(
        self, namespace: tuple[str, ...], *, after: int, limit: int | None = None
    ) -> list[RecordRow]:
        """Return records that opened a decision in this namespace or one below, oldest first.

        They are those after a number whose words are still there.
        """

    def ledger(self, key: str) -> LedgerRow | None:
        """Return the row of an idempotency key."""

    def ledger_of(self, decision_id: str) -> LedgerRow | None:
        """Return the row that a decision was granted last."""

    def granted(self, permit_hash: str) -> LedgerRow | None:
        """Return the row that a permit belongs to."""

    def replaced(self, permit_hash: str) -> str | None:
        """Return the digest of the action of a permit that another took the place of."""

    def in_state(self, state: State, before_s: float) -> list[LedgerRow]:
        """Return rows that have been in a state since before a moment."""

    def text(self, decision_id: str) -> TextRow | None:
        """Return the words of a decision, unless what they are about was forgotten."""

    def approval(self, approval_id: str) -> ApprovalRow | None:
        """Return a request to a person."""

    def approvals(
        self,
        state: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        after: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRow]:
        """Return requests by their time and then their id; of one state if it is named.

        Those after a time and an id, and so many.  With a namespace, only those
        whose decision is in it or below, and whose words are still there.
        """

    def approvals_of(self, digest: str, state: str) -> list[ApprovalRow]:
        """Return the requests for one action that are in a state, oldest first."""

    def spent(self, purse: str, *, since_s: float, now_s: float, but: str) -> list[float]:
        """Return what keys other than *but* have taken of a purse after a moment.

        Only those whose grant stands: not FAILED, nor a permit that nobody has
        redeemed and that has expired by *now_s*.
        """


class GuardWriter(GuardReader, Protocol):
    """A transaction; the only one at a time, so that what it reads stays so until it ends."""

    @property
    def memory(self) -> Any:
        """The same transaction, for the memory in the same store; only `Claims` knows its kind."""

    def append(self, row: RecordRow) -> None:
        """Append a record; its number must be the next one."""

    def put_ledger(self, row: LedgerRow) -> None:
        """Insert or replace the row of an idempotency key."""

    def put_replaced(self, permit_hash: str, digest: str) -> None:
        """Note that another permit has taken the place of one."""

    def put_text(self, row: TextRow) -> None:
        """Keep the words of a decision, in place of what was kept of it before.

        Unless an item of theirs is gone already: then none are kept.
        """

    def put_approval(self, row: ApprovalRow) -> None:
        """Insert or replace a request to a person."""

    def put_spent(self, row: SpentRow) -> None:
        """Note what a key takes of a purse, in place of what it took of it before."""


class GuardStore(Protocol):
    """Where the gate writes down what it decided."""

    def read(self) -> AbstractContextManager[GuardReader]:
        """Open a snapshot."""

    def write(self, work: Callable[[GuardWriter], T]) -> T:
        """Run *work* in a transaction; return its result once that is durable."""

    def secret(self) -> bytes:
        """Return the key of this store's hashes, 32 bytes, made when it was first asked for."""
