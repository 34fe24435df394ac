"""Executing: a permit is redeemed once, and what became of the call is noted."""

import math
from collections.abc import Callable
from typing import TypeVar

from amv.checks import check_flag, shown
from amv.errors import InvalidInput, MemoryChanged, PolicyChanged
from amv.guard import ledger, standing
from amv.guard.actions import Action, check_action, check_named
from amv.guard.policy import Policy
from amv.guard.ports import Claims, GuardStore, GuardWriter, LedgerRow, State
from amv.guard.state import Deciding, changed_claim, is_told, items_of, loaded

SECONDS_MAX = 1e12
"""More is no time that anything could have been begun at."""

R = TypeVar("R", bound=Callable[..., bool | None])


class Executions:
    """The executing half of the gate.  A grant is named by the decision that was granted it."""

    _policy: Policy

    def __init__(self, store: GuardStore, claims: Claims, clock: Callable[[], float]) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock
        self._reconcilers: dict[str, Callable[..., bool | None]] = {}

    def redeem(self, token: str, action: Action) -> str:
        """Reserve the one execution that a permit grants; return the decision to settle.

        Raises PermitRefused for a permit that is unknown, used, expired, or of another
        action, and for one that rests on what no longer stands: another policy, a
        certificate that was withdrawn, or what the memory said before.
        """
        digest, now_s = check_action(action).digest(), self._clock()
        hashed = ledger.hashed(token)

        def work(tx: GuardWriter) -> str:
            row = ledger.redeemable(tx, hashed, digest, now_s)
            standing.check_redeemed(tx, row)
            self._check_stands(tx, loaded(tx, row.decision_id))
            ledger.reserve(tx, row, now_s)
            return row.decision_id

        return self._store.write(work)

    def _check_stands(self, tx: GuardWriter, state: Deciding) -> None:
        """Raise PermitRefused if what a decision rests on is no longer so."""
        if state.opened.policy != self._policy.digest():
            raise PolicyChanged(
                "the permit was given under another policy; decide about the action again"
            )
        changed = changed_claim(self._claims, tx, state)
        if changed:
            raise MemoryChanged(changed)

    def dispatched(self, decision_id: str) -> None:
        """Note, before the call is made, that it is made now; raises what `settle` raises."""
        self._move(decision_id, State.DISPATCHED)

    def settle(self, decision_id: str, state: State) -> None:
        """Note what became of a call: SUCCEEDED, FAILED, or UNKNOWN where nobody can tell.

        Raises ItemNotFound for a decision that was granted nothing, and Conflict for
        a call that was settled before, also if its key was granted anew since.
        """
        if state not in ledger.SETTLED:
            raise InvalidInput(
                f"a call is settled as one of {', '.join(ledger.SETTLED)}, got {shown(state)}"
            )
        self._move(decision_id, State(state))
        if state != State.SUCCEEDED:
            return
        with self._store.read() as reader:
            words = loaded(reader, decision_id).words
        used = items_of(words)
        if used:
            self._claims.used(words.namespace, used)

    def _move(self, decision_id: str, state: State) -> None:
        check_named(decision_id, "the id of a decision")
        now_s = self._clock()
        self._store.write(lambda tx: ledger.move(tx, decision_id, state, now_s))

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
        and settles those of which it knows.  Returns the decisions that were marked.
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
        marked = [row.decision_id for row in left if self._mark_unknown(row)]
        with self._store.read() as reader:
            rows = reader.in_state(State.UNKNOWN, math.inf)
            unknown = [loaded(reader, row.decision_id) for row in rows]
        for state in unknown:
            self._ask_what_became(state)
        return marked

    def _mark_unknown(self, row: LedgerRow) -> bool:
        """Mark a call as UNKNOWN, unless it has gone on meanwhile."""
        now_s = self._clock()

        def work(tx: GuardWriter) -> bool:
            if tx.ledger(row.key) != row:
                return False
            ledger.move(tx, row.decision_id, State.UNKNOWN, now_s)
            return True

        return self._store.write(work)

    def _ask_what_became(self, state: Deciding) -> None:
        ask = self._reconcilers.get(state.opened.tool)
        if ask is None or not is_told(state):
            return
        was_done = ask(**state.words.arguments)
        if was_done is not None:
            done = check_flag(was_done, f"what the reconciler of {state.opened.tool!r} returns")
            self.settle(state.id, State.SUCCEEDED if done else State.FAILED)
