"""The gate joined with a memory: `Guard`, and the decorators of actions and verifiers."""

import asyncio
import functools
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from amv.calling import Signature, are_changed, is_yielding, json_part
from amv.claims import MemoryClaims
from amv.closing import Closing
from amv.config import Settings
from amv.errors import (
    ActionAbstained,
    AmvError,
    PermitRefused,
    RepairNeeded,
    StoreClosed,
)
from amv.guard.actions import Action, held
from amv.guard.calibration import Calibration
from amv.guard.decision import Decision
from amv.guard.granting import refused
from amv.guard.lint import lint
from amv.guard.plan import Verdict
from amv.guard.policy import Policy, parse
from amv.guard.ports import GuardStore, State
from amv.guard.prior import LogisticPrior
from amv.guard.service import GuardService
from amv.loading import load_calibration, load_policy
from amv.memory.item import check_namespace
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.memory.guard import MemoryGuardStore
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.guard import SqliteGuardStore
from amv.verifiers import Verifiers
from amv.wiring import Memory, new_id

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


DECIDING_MAX = 32
"""How many calls of async functions are decided about at once; others wait, off the loop."""

SETTLING_MAX = 4

_log = logging.getLogger("amv")


_Exceptions = tuple[type[BaseException], ...]


class _Acting(NamedTuple):
    """For whom, in whose memory and in which session actions are called."""

    namespace: tuple[str, ...]
    session: str
    principal: str


class Guard(GuardService, Closing):
    """The gate before the actions of an agent, over one memory and one policy.

    Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        policy: Policy,
        memory: Memory,
        *,
        namespace: Sequence[str] | None = None,
        clock: Callable[[], float] | None = None,
        calibration: Calibration | None = None,
        chance: Callable[[], float] | None = None,
        owns_memory: bool = False,
    ) -> None:
        """Guard actions that rest on *memory*; see `open`."""
        self.memory = memory
        self._verifiers = Verifiers()
        self._owns_memory = owns_memory
        name = () if namespace is None else check_namespace(namespace)
        self._acting_by_default = _Acting(name, "", "")
        self._acting: ContextVar[_Acting] = ContextVar("amv_acting")
        self._signatures: dict[str, Signature] = {}
        self._deciders = ThreadPoolExecutor(DECIDING_MAX, thread_name_prefix="amv-decide")
        self._settlers = ThreadPoolExecutor(SETTLING_MAX, thread_name_prefix="amv-settle")
        claims = MemoryClaims(memory)
        super().__init__(
            policy,
            claims,
            _guard_store(memory),
            self._verifiers,
            prior=LogisticPrior(),
            calibration=calibration or Calibration(),
            clock=clock or time.time,
            new_id=new_id,
            new_token=lambda: secrets.token_urlsafe(24),
            # Nobody can foresee what is audited.
            chance=chance or secrets.SystemRandom().random,
            seen=claims.seen,
        )
        # It does not hold the gate, which is gone once nobody uses it.
        reads, acting, by_default = claims.reads, self._acting, self._acting_by_default
        memory.watch_reads(
            lambda namespace, ids: reads.note(namespace, acting.get(by_default).session, ids)
        )

    def lint(self) -> list[str]:
        """Return what is valid in the policy and surely not meant; see `amv.guard.lint`.

        Besides what `amv guard lint` finds, it knows the arguments of the
        functions that are guarded so far.
        """
        known = {name: call.names for name, call in self._signatures.items() if not call.is_open}
        return lint(self.policy, arguments=known)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        policy: str | Path | Mapping[str, Any] | Policy,
        namespace: Sequence[str] | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] | None = None,
        embedder: Any = None,
        calibration: str | Path | Calibration | None = None,
        chance: Callable[[], float] | None = None,
    ) -> Self:
        """Open the gate over the memory in the file *path*.

        *policy* is the path of a YAML file, or what would stand in it.
        *namespace* says whose memory actions rest on where `acting` does not.
        *calibration* is what `amv guard calibrate` has written, or the path of it.
        *chance* draws what is audited: numbers from 0 to below 1, of the system's
        randomness where it is not given.

        Raises PolicyError for a policy that is not valid, ConfigError for a
        calibration that can't be read, and what `Memory.open` raises.
        """
        rules, calibrated = load_policy(policy), load_calibration(calibration)
        memory = Memory.open(path, embedder=embedder, settings=settings, clock=clock)
        try:
            return cls(
                rules,
                memory,
                namespace=namespace,
                clock=clock,
                calibration=calibrated,
                chance=chance,
                owns_memory=True,
            )
        except BaseException:
            memory.close()
            raise

    @contextmanager
    def acting(
        self, *, namespace: Sequence[str], session: str = "", principal: str = ""
    ) -> Iterator[None]:
        """Have guarded functions rest on this namespace's memory inside the block."""
        token = self._acting.set(_Acting(check_namespace(namespace), session, principal))
        try:
            yield
        finally:
            self._acting.reset(token)

    def verifier(self, name: str, **rule: Any) -> Callable[[F], F]:
        """Have a function answer the checks called *name*; *rule* sets fields of its rule."""

        def register(function: F) -> F:
            self._verifiers.register(name, function)
            self._policy = _with_rule(self._policy, "verifiers", name, rule)
            return function

        return register

    def action(self, name: str, *, failed_on: _Exceptions = (), **rule: Any) -> Callable[[F], F]:
        """Guard a function, plain or async, or a method; *rule* sets fields of its rule.

        The function runs if the gate says PROCEED, once for its idempotency key.
        Otherwise the call raises ActionAbstained, or RepairNeeded with the value
        that was read.  Where a person has approved the call meanwhile, it is
        checked again and then runs.  A function that raises leaves its action
        UNKNOWN, as nobody can tell what it has done; *failed_on* lists the
        exceptions after which it has surely done nothing.

        While an async function is decided about, its event loop goes on.  The
        object of a method is no argument of its action.

        Raises InvalidInput for a function that can't be guarded, and PolicyError
        for a rule that speaks of an argument the function does not take.
        """
        if rule:
            self._policy = _with_rule(self._policy, "actions", name, rule)

        def wrap(function: F) -> F:
            call = Signature(name, function)
            if name in self._policy.actions:
                call.check(name, self._policy.actions[name])
            self._signatures[name] = call

            is_async = inspect.iscoroutinefunction(function)
            guarding = self._guarded_async if is_async else self._guarded
            return guarding(name, call, function, failed_on)  # type: ignore[return-value]

        return wrap

    def _guarded(
        self, name: str, call: Signature, function: Callable[..., Any], failed_on: _Exceptions
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            arguments = call.arguments(args, kwargs)
            # Others may change what a list or mapping holds while it is decided about.
            decided = held(arguments)
            decision_id = self._begin(name, decided)
            if decision_id is None:
                return function(*args, **kwargs)
            if are_changed(arguments, decided):
                self._note(decision_id, State.FAILED)
                raise _changed(name)
            state: State | None = State.UNKNOWN
            try:
                result = function(*args, **kwargs)
                if inspect.isawaitable(result):
                    # Nothing is done yet: what it awaits settles the call.
                    state = None
                    return self._awaited(result, decision_id, failed_on)
                if not is_yielding(result):
                    state = State.SUCCEEDED
                return result
            except failed_on:
                state = State.FAILED
                raise
            finally:
                if state is not None:
                    self._note(decision_id, state)

        return guarded

    def _guarded_async(
        self, name: str, call: Signature, function: Callable[..., Any], failed_on: _Exceptions
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            arguments = call.arguments(args, kwargs)
            # Others go on meanwhile, and may change what a list or mapping holds.
            decided = held(arguments)
            decision_id = await self._begun(name, decided)
            if decision_id is None:
                return await function(*args, **kwargs)
            if are_changed(arguments, decided):
                await self._note_off_loop(decision_id, State.FAILED)
                raise _changed(name)
            return await self._awaited(function(*args, **kwargs), decision_id, failed_on)

        return guarded

    async def _awaited(self, call: Awaitable[Any], decision_id: str, failed_on: _Exceptions) -> Any:
        """Await a call that was granted, and settle it."""
        state, is_closed = State.UNKNOWN, False
        try:
            result = await call
            state = State.SUCCEEDED
            return result
        except failed_on:
            state = State.FAILED
            raise
        except GeneratorExit:
            # Its loop is gone, so that nothing can be awaited.
            is_closed = True
            raise
        finally:
            if is_closed:
                self._note(decision_id, state)
            else:
                await self._note_off_loop(decision_id, state)

    async def _note_off_loop(self, decision_id: str, state: State) -> None:
        noting = self._submitted(self._settlers, self._note, decision_id, state)
        await asyncio.shield(asyncio.wrap_future(noting))

    def _note(self, decision_id: str, state: State) -> None:
        """Settle a call that is over.

        What it returned or raised is its caller's, also where that can't be noted:
        then the call counts as under way, and is not granted again.
        """
        try:
            self.settle(decision_id, state)
        except AmvError as error:
            _log.error(
                "the call of decision %s is over (%s), and not all of that could be noted; "
                "`amv guard reconcile` lists it if it is not settled: %s",
                decision_id,
                state,
                error,
            )

    async def _begun(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Do what `_begin` does in a thread, so that the event loop goes on meanwhile."""
        begun = self._submitted(self._deciders, self._begin, tool, arguments)
        try:
            return await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            # Nobody will make the call, also if it is granted in the end.
            begun.add_done_callback(self._withdraw)
            raise

    def _submitted(
        self, pool: ThreadPoolExecutor, work: Callable[..., T], *args: Any
    ) -> "Future[T]":
        """Begin *work* in a thread, in the context of the caller."""
        try:
            return pool.submit(copy_context().run, work, *args)
        except RuntimeError as error:
            raise StoreClosed("the gate was closed before this call") from error

    def _withdraw(self, begun: "Future[str | None]") -> None:
        """Settle a grant whose call was cancelled before it was made."""
        if begun.cancelled() or begun.exception() is not None:
            return
        decision_id = begun.result()
        if decision_id is not None:
            self._note(decision_id, State.FAILED)

    def _begin(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Decide about a call; return the decision it is settled by, None for a free one.

        Once this returns one, the call is noted as made; where it raises, it is not made.
        """
        if self.policy.mode == "shadow":
            self._shadow(tool, arguments)
            return None
        action = self._action(tool, arguments)
        decision = self.decide(action, approval_id=self._standing(action))
        if decision.code == "read_only":
            return None
        if decision.verdict == Verdict.REPAIR:
            raise RepairNeeded(decision)
        if decision.verdict != Verdict.PROCEED or decision.permit is None:
            raise ActionAbstained(decision)
        try:
            self.redeem(decision.permit.token, action)
        except PermitRefused as refused:
            # Another call of the same action was granted meanwhile, or this one took too long.
            raise _abstained(decision, refused.code, str(refused)) from refused
        except AmvError as error:
            raise _abstained(decision, "gate_error", _not_made(error)) from error
        try:
            self.dispatched(decision.id)
        except AmvError as error:
            self._note(decision.id, State.FAILED)
            raise _abstained(decision, "gate_error", _not_made(error)) from error
        return decision.id

    def _standing(self, action: Action) -> str | None:
        """Return the approval a person has given for an action, if its rule asks for one."""
        rule = self.policy.actions.get(action.tool)
        if rule is None or not rule.approval:
            return None
        return self.approvals.standing(action.digest(), self._clock())

    def _shadow(self, tool: str, arguments: dict[str, Any]) -> None:
        """Decide about a call that goes ahead whatever is decided.

        It never blocks, not even what it can't judge.  That is written down and
        logged, as under enforce it would not be let through.
        """
        try:
            decision = self.decide(self._action(tool, arguments))
            why = decision.reason if decision.code == "gate_error" else ""
        except AmvError as error:
            why = self._unjudged(tool, arguments, error)
        if why:
            _log.warning("%s went ahead in shadow mode, and enforce would refuse it: %s", tool, why)

    def _unjudged(self, tool: str, arguments: dict[str, Any], error: AmvError) -> str:
        """Record a call that can't be judged; return what is to be said of it."""
        why = f"the call can't be judged: {error}"
        try:
            self.note_unjudged(self._action(tool, json_part(arguments)), why)
        except AmvError as unwritten:
            return f"{why}; nor was that recorded: {unwritten}"
        return why

    def _action(self, tool: str, arguments: dict[str, Any]) -> Action:
        namespace, session, principal = self._acting.get(self._acting_by_default)
        return Action(
            tool=tool,
            arguments=arguments,
            namespace=namespace,
            session=session,
            principal=principal,
        )

    def _check_open(self) -> None:
        """Raise StoreClosed once the memory is closed."""
        self.memory._check_open()

    def close(self) -> None:
        """Let what async functions have begun end; close the memory, if it was opened here."""
        self._deciders.shutdown()
        self._settlers.shutdown()
        if self._owns_memory:
            self.memory.close()


def _abstained(decision: Decision, code: str, why: str) -> ActionAbstained:
    return ActionAbstained(replace(refused(decision, code, why), permit=None))


def _not_made(error: AmvError) -> str:
    return f"the call was not made, as the gate could not note that it is: {error}"


def _changed(name: str) -> PermitRefused:
    return PermitRefused(
        f"the arguments of {name} were changed while it was decided about; nothing was done"
    )


def _guard_store(memory: MemoryService) -> GuardStore:
    store = memory.store
    if isinstance(store, SqliteStore):
        return SqliteGuardStore(store)
    assert isinstance(store, MemoryStore)
    return MemoryGuardStore(store)


def _with_rule(policy: Policy, part: str, name: str, fields: Mapping[str, Any]) -> Policy:
    """Return a policy in which a decorator has set fields of one rule."""
    data = msgspec.to_builtins(policy)
    data[part][name] = {**data[part].get(name, {}), **fields}
    return parse(data)
