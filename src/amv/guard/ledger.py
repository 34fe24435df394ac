"""The ledger: at most one grant per idempotency key.

    APPROVED -> RESERVED -> DISPATCHED -> SUCCEEDED | FAILED | UNKNOWN

A permit stands for APPROVED.  Redeeming it reserves the execution, which is
written down before the call is made, and uses up the approval that it was given
by.  A call that was reserved or dispatched and of which nobody knows what became
is UNKNOWN, never FAILED, and is not made again by itself.  After FAILED the key
can be granted anew; a new permit takes the place of one that was not redeemed.

A decision is granted a key once at most.  So a grant is named by its decision,
and an old call can't settle a later one of the same key.
"""

from hashlib import sha256
from unicodedata import normalize

from amv.checks import shown
from amv.errors import Conflict, InvalidInput, ItemNotFound, PermitRefused
from amv.guard import approval, record
from amv.guard.actions import canonical
from amv.guard.decision import Ended, Permit, Words
from amv.guard.policy import ActionRule
from amv.guard.ports import GuardReader, GuardWriter, LedgerRow, State

STEPPED_S = 60.0
"""By how much a clock may be put back, without what was decided before being too old."""

SETTLED = (State.SUCCEEDED, State.FAILED, State.UNKNOWN)

_MOVES = {
    State.APPROVED: (State.RESERVED,),
    State.RESERVED: (State.DISPATCHED, State.FAILED, State.UNKNOWN),
    State.DISPATCHED: SETTLED,
    State.UNKNOWN: (State.SUCCEEDED, State.FAILED),
    State.SUCCEEDED: (),
    State.FAILED: (),
}

_REGRANTED = (State.APPROVED, State.FAILED)


def hashed(token: str) -> str:
    """Return what is kept of a permit's token."""
    if not isinstance(token, str):
        raise InvalidInput(f"a permit's token is a text, got {shown(token)}")
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(tool: str, digest: str, words: Words, rule: ActionRule) -> str:
    """Return the idempotency key of an action: its digest, unless the rule names arguments.

    There 5, 5.0 and "5" are one key: the first two are one action, and the last
    fills a claim's template as the first does.  So is a text in each of its normal
    forms, which look the same and may be the same to whoever carries it out.
    """
    if rule.idempotency is None:
        return digest
    own = {name: _as_filled(words.arguments.get(name)) for name in rule.idempotency.key}
    parts = [tool, list(words.namespace), words.principal, own]
    return sha256(canonical(parts, "an idempotency key")).hexdigest()


def _as_filled(value: object) -> object:
    if isinstance(value, str):
        return normalize("NFC", value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return canonical(value, "an argument").decode()


def put(tx: GuardWriter, row: LedgerRow) -> None:
    """Write down how far a grant has come, and a record of that."""
    tx.put_ledger(row)
    ended = Ended(at_s=row.changed_s, what=row.state, name=row.key, row=record.hash_of(row))
    record.append(tx, row.decision_id, "moved", ended)


def refusal(tx: GuardWriter, key: str, digest: str) -> str:
    """Return why a key can't be granted to an action: it was granted before; else nothing."""
    row = tx.ledger(key)
    if row is None or row.state in _REGRANTED:
        return ""
    same = "this very action" if row.digest == digest else "another action"
    return f"its idempotency key was granted to {same} before, which is {row.state}"


def approve(
    tx: GuardWriter, key: str, permit: Permit, decision_id: str, approval_id: str, now_s: float
) -> None:
    """Grant a key, of which there is no `refusal`, to an action."""
    row = tx.ledger(key)
    if row is not None:
        tx.put_replaced(row.permit_hash, row.digest)
    put(
        tx,
        LedgerRow(
            key,
            permit.digest,
            State.APPROVED,
            hashed(permit.token),
            permit.expires_s,
            decision_id,
            now_s,
            approval_id,
        ),
    )


def is_taken(reader: GuardReader, key: str) -> bool:
    """Return whether a key was granted for good: to a call that was begun, and did not fail."""
    row = reader.ledger(key)
    return row is not None and row.state not in _REGRANTED


def redeemable(tx: GuardWriter, permit_hash: str, digest: str, now_s: float) -> LedgerRow:
    """Return the row of a permit that is good for an action; raises PermitRefused."""
    row = tx.granted(permit_hash)
    if row is None and tx.replaced(permit_hash) == digest:
        raise PermitRefused(
            "the permit is good no more: a later decision under the same idempotency key was "
            "given another in its place; redeem that one, or decide about the action again"
        )
    if row is None or row.digest != digest:
        # One sentence for both: whoever holds a stranger's permit learns nothing of it.
        raise PermitRefused(
            "no such permit, or the permit is for another action, or for other arguments; "
            "decide about the action again"
        )
    if row.state is not State.APPROVED:
        raise PermitRefused(f"the permit was used before; its action is {row.state}")
    if not now_s < row.expires_s:
        raise PermitRefused("the permit has expired; decide about the action again")
    if now_s < row.changed_s - STEPPED_S:
        # Nobody knows how long ago that was, nor what became of all that was checked.
        raise PermitRefused(
            "the permit was given at a time that is yet to come: the clock was put back; decide "
            "about the action again"
        )
    return row


def reserve(tx: GuardWriter, row: LedgerRow, now_s: float) -> None:
    """Reserve the execution that a redeemable permit grants, and use up its approval.

    Raises PermitRefused if that no longer stands.
    """
    if row.approval_id:
        _use_approval(tx, row, now_s)
    put(tx, row._replace(state=State.RESERVED, changed_s=now_s))


def _use_approval(tx: GuardWriter, row: LedgerRow, now_s: float) -> None:
    request = tx.approval(row.approval_id)
    refused = approval.refusal(request, row.digest, now_s)
    if request is None or refused:
        raise PermitRefused(f"{refused}; decide about the action again")
    approval.put(tx, request._replace(state=approval.USED), now_s)


def move(tx: GuardWriter, decision_id: str, state: State, now_s: float) -> None:
    """Note how far a decision's execution has come.

    Raises ItemNotFound for a decision that was granted nothing, Conflict on a step
    that is none or where its key was granted anew since.
    """
    row = tx.ledger_of(decision_id)
    if row is None and tx.last_record(decision_id, kind="moved") is not None:
        raise Conflict(
            f"the idempotency key of decision {decision_id!r} was granted to a later decision; "
            "what became of this call is noted already"
        )
    if row is None:
        raise ItemNotFound(f"decision {decision_id!r} was granted nothing")
    if state not in _MOVES[row.state]:
        raise Conflict(f"an action that is {row.state} can't become {state}")
    put(tx, row._replace(state=state, changed_s=now_s))
