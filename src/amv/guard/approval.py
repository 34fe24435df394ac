"""Approvals: a person may let one action go ahead that the gate abstained from.

A request is bound to the digest of the action, is used at most once, and
expires; it is used up when the permit that it led to is redeemed.  An approval
takes the place of the screen, not of the world: all that can be checked is
checked once more, and what is refuted by then is not executed.
"""

from amv.checks import check_flag, shown
from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.guard import record
from amv.guard.actions import check_count, check_named, check_who
from amv.guard.decision import Ended
from amv.guard.ports import ApprovalRow, GuardReader, GuardStore, GuardWriter

PENDING, APPROVED, REJECTED, USED = STATES = ("pending", "approved", "rejected", "used")


class Approvals:
    """The requests to a person."""

    def __init__(self, store: GuardStore) -> None:
        self._store = store

    def list(
        self,
        state: str | None = None,
        *,
        namespace: tuple[str, ...] = (),
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ApprovalRow]:
        """Return requests, oldest first; of one state, if it is named.

        Only those for actions whose namespace begins with *namespace*, those after
        the one with the id *after*, and so many.  Raises ItemNotFound for an
        unknown one, InvalidInput for a state that is none.
        """
        if limit is not None:
            check_count(limit, "limit")
        if state is not None and state not in STATES:
            raise InvalidInput(f"state must be one of {', '.join(STATES)}, got {shown(state)}")
        with self._store.read() as reader:
            last = None if after is None else found(reader, after)
            place = None if last is None else (last.created_s, last.approval_id)
            return reader.approvals(state, namespace=namespace, after=place, limit=limit)

    def get(self, approval_id: str) -> ApprovalRow:
        """Return a request; raises ItemNotFound."""
        with self._store.read() as reader:
            return found(reader, approval_id)

    def standing(self, digest: str, now_s: float) -> str | None:
        """Return the approval that lets an action go ahead, if a person has given one: the last."""
        with self._store.read() as reader:
            rows = reader.approvals_of(digest, APPROVED)
        standing = (row.approval_id for row in reversed(rows) if not refusal(row, digest, now_s))
        return next(standing, None)

    def decide(
        self, approval_id: str, *, approve: bool, by: str, key_id: str = "", now_s: float
    ) -> ApprovalRow:
        """Approve or reject a request; raises ItemNotFound, Conflict if it is decided or over.

        *key_id* is the id of the key with which *by* says so, empty if with none.
        """
        check_who(by, is_needed=True)
        check_flag(approve, "approve")
        check_named(key_id, "the id of a key")

        def work(tx: GuardWriter) -> ApprovalRow:
            row = found(tx, approval_id)
            if row.state != PENDING:
                raise Conflict(f"request {approval_id!r} is {row.state} already")
            if not now_s < row.expires_s:
                raise Conflict(f"request {approval_id!r} has expired")
            state = APPROVED if approve else REJECTED
            row = row._replace(state=state, decided_by=by, decided_key=key_id)
            put(tx, row, now_s)
            return row

        return self._store.write(work)


def put(tx: GuardWriter, row: ApprovalRow, now_s: float) -> None:
    """Write down what a request has come to, and a record of that."""
    tx.put_approval(row)
    ended = Ended(
        at_s=now_s,
        what=row.state,
        name=row.approval_id,
        row=record.hash_of(row),
        by=row.decided_by,
        by_key=row.decided_key,
    )
    record.append(tx, row.decision_id, "asked", ended)


def found(reader: GuardReader, approval_id: str) -> ApprovalRow:
    """Return a request; raises ItemNotFound."""
    check_named(approval_id, "the id of a request")
    row = reader.approval(approval_id)
    if row is None:
        raise ItemNotFound(f"no request for approval {approval_id!r}")
    return row


def refusal(row: ApprovalRow | None, digest: str, now_s: float) -> str:
    """Return why an approval does not stand for an action, or nothing."""
    if row is None or row.digest != digest:
        # One sentence for both: whoever names a stranger's request learns nothing of it.
        return "no such approval, or the approval is for another action, or for other arguments"
    if row.state != APPROVED:
        return f"the approval is {row.state}"
    if not now_s < row.expires_s:
        return "the approval has expired"
    return ""
