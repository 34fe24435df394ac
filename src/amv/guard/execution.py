"""Executing: a permit is redeemed once, and what became of the call is noted."""

import math
from collections.abc import Callable
from typing import TypeVar

from amv.checks import check_flag, shown
from amv.errors import InvalidInput, ItemNotFound
from amv.guard import ledger, record, standing
from amv.guard.actions import Action, check_action, check_named
from amv.guard.decision import Ended
from amv.guard.ports import Claims, GuardStore, GuardWriter, LedgerRow, State
from amv.guard.state import Deciding, is_told, items_of, loaded

SECONDS_MAX = 1e12
"""More is no time that anything could have been begun at."""

R = TypeVar("R", bound=Callable[..., bool | None])


class Executions:
    """The executing half of the gate."""

    def __init__(self, store: GuardStore, claims: Claims, clock: Callable[[], float]) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock
        self._reconcilers: dict[str, Callable[..., bool | None]] = {}

    def redeem(self, token: str, action: Action) -> str:
        """Reserve the one execution that a permit grants; return its idempotency key.

        Raises PermitRefused for a permit that is unknown, used, expired, of another
        action, or rests on a certificate that was withdrawn.
        """
        digest, now_s = check_action(action).digest(), self._clock()
        hashed = ledger.hashed(token)

        def work(tx: GuardWriter) -> str:
            row = ledger.reserve(tx, hashed, digest, now_s)
            standing.check_redeemed(tx, row)
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
                f"a call is settled as one of {', '.join(ledger.SETTLED)}, got {shown(state)}"
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
        check_named(key, "an idempotency key")
        now_s = self._clock()

        def work(tx: GuardWriter) -> str:
            row = ledger.move(tx, key, state, now_s)
            record.append(tx, row.decision_id, "moved", Ended(at_s=now_s, what=state))
            return row.decision_id

        return self._store.write(work)

    def reconciler(self, tool: str) -> Callable[[R], R]:
        """Have a function tell `reconcile` what became of calls of *tool*.

        It is called with the arguments of a call, and returns True if that was
        carried out, False if surely nothing was done, and None if it can't tell.
        """

        def register(function: R) -> R:
            if not callable(function):
                raise InvalidInput(f"a reconciler must be a function, got {shown(function)}")
            self._reconcilers[tool] = function
            return function

        return register

    def reconcile(self, older_than_s: float) -> list[str]:
        """Mark calls that were reserved or dispatched and never settled as UNKNOWN.

        Meant to be called after a crash, with more seconds than a call may take.
        Then asks the `reconciler` of each tool what became of its UNKNOWN calls,
        and settles those of which it knows.  Returns the keys that were marked.
        """
        if not isinstance(older_than_s, int | float) or not abs(older_than_s) < SECONDS_MAX:
            raise InvalidInput(f"need a number of seconds, got {shown(older_than_s)}")
        before_s = self._clock() - older_than_s
        with self._store.read() as reader:
            left = [
                row
                for state in (State.RESERVED, State.DISPATCHED)
                for row in reader.in_state(state, before_s)
            ]
        marked = [row.key for row in left if self._mark_unknown(row)]
        with self._store.read() as reader:
            unknown = [
                (row.key, loaded(reader, row.decision_id))
                for row in reader.in_state(State.UNKNOWN, math.inf)
            ]
        for key, state in unknown:
            self._ask_what_became(key, state)
        return marked

    def _mark_unknown(self, row: LedgerRow) -> bool:
        """Mark a call as UNKNOWN, unless it has gone on meanwhile."""
        now_s = self._clock()

        def work(tx: GuardWriter) -> bool:
            if tx.ledger(row.key) != row:
                return False
            ledger.move(tx, row.key, State.UNKNOWN, now_s)
            record.append(tx, row.decision_id, "moved", Ended(at_s=now_s, what=State.UNKNOWN))
            return True

        return self._store.write(work)

    def _ask_what_became(self, key: str, state: Deciding) -> None:
        ask = self._reconcilers.get(state.opened.tool)
        if ask is None or not is_told(state):
            return
        was_done = ask(**state.words.arguments)
        if was_done is not None:
            done = check_flag(was_done, f"what the reconciler of {state.opened.tool!r} returns")
            self.settle(key, State.SUCCEEDED if done else State.FAILED)

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
