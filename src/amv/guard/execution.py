"""Executing: a permit is redeemed once, and what became of the call is noted."""

from collections.abc import Callable

from amv.errors import InvalidInput, ItemNotFound
from amv.guard import ledger, record
from amv.guard.actions import Action
from amv.guard.decision import Ended
from amv.guard.ports import Claims, GuardStore, GuardWriter, State
from amv.guard.state import items_of, loaded


class Executions:
    """The executing half of the gate."""

    def __init__(self, store: GuardStore, claims: Claims, clock: Callable[[], float]) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock

    def redeem(self, token: str, action: Action) -> str:
        """Reserve the one execution that a permit grants; return its idempotency key.

        Raises PermitRefused for a permit that is unknown, used, expired, or of
        another action.
        """
        digest, hashed, now_s = action.digest(), ledger.hashed(token), self._clock()

        def work(tx: GuardWriter) -> str:
            row = ledger.reserve(tx, hashed, digest, now_s)
            record.append(tx, row.decision_id, "moved", Ended(at_s=now_s, what=row.state))
            return row.key

        return self._store.write(work)

    def dispatched(self, key: str) -> None:
        """Note, before the call is made, that it is made now."""
        self._move(key, State.DISPATCHED)

    def settle(self, key: str, state: State) -> None:
        """Note what became of a call: SUCCEEDED, FAILED, or UNKNOWN where nobody can tell."""
        if state not in ledger.SETTLED:
            raise InvalidInput(
                f"a call is settled as one of {', '.join(ledger.SETTLED)}, got {state!r}"
            )
        decision_id = self._move(key, State(state))
        if state != State.SUCCEEDED:
            return
        with self._store.read() as reader:
            words = loaded(reader, decision_id).words
        used = items_of(words)
        if used:
            self._claims.used(words.namespace, used)

    def _move(self, key: str, state: State) -> str:
        now_s = self._clock()

        def work(tx: GuardWriter) -> str:
            row = ledger.move(tx, key, state, now_s)
            record.append(tx, row.decision_id, "moved", Ended(at_s=now_s, what=state))
            return row.decision_id

        return self._store.write(work)

    def reconcile(self, older_than_s: float) -> list[str]:
        """Mark calls that were dispatched and never settled as UNKNOWN; return their keys.

        Meant to be called after a crash; whoever can ask the destination settles
        them then.
        """
        with self._store.read() as reader:
            rows = reader.in_state(State.DISPATCHED, self._clock() - older_than_s)
        for row in rows:
            self._move(row.key, State.UNKNOWN)
        return [row.key for row in rows]

    def decision_of_key(self, key: str) -> str:
        """Return the decision that an idempotency key was granted by; raises ItemNotFound."""
        with self._store.read() as reader:
            row = reader.ledger(key)
        if row is None:
            raise ItemNotFound(f"nothing was granted under the key {key!r}")
        return row.decision_id

    def key_of_decision(self, decision_id: str) -> str:
        """Return the idempotency key that a decision was granted; raises ItemNotFound."""
        with self._store.read() as reader:
            row = reader.ledger_of(decision_id)
        if row is None:
            raise ItemNotFound(f"decision {decision_id!r} was granted nothing")
        return row.key
