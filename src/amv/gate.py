"""The gate joined with a memory: `Guard`, and the decorators of actions and verifiers."""

import asyncio
import functools
import inspect
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from amv.calling import Signature, are_changed, held, json_part
from amv.closing import Closing
from amv.config import Settings
from amv.errors import (
    ActionAbstained,
    AmvError,
    ItemNotFound,
    PermitRefused,
    RepairNeeded,
    StoreClosed,
)
from amv.guard.actions import Action
from amv.guard.calibration import Calibration
from amv.guard.lint import lint
from amv.guard.plan import Verdict
from amv.guard.policy import Policy, parse
from amv.guard.ports import GuardStore, GuardWriter, Remembered, Shown, State
from amv.guard.prior import TRUSTED_FROM, LogisticPrior
from amv.guard.service import GuardService
from amv.guard.suggest import Seen
from amv.loading import load_calibration, load_policy
from amv.memory.checked import Checked
from amv.memory.item import Status, check_namespace
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.memory.guard import MemoryGuardStore
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.guard import SqliteGuardStore
from amv.verifiers import Verifiers
from amv.wiring import Memory, new_id

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


SESSIONS_MAX = 256
"""Of how many sessions the gate knows what they have read lately."""

SEEN_MAX = 32
"""How many items it knows of each, the newest ones."""

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


class RecentReads:
    """Which items sessions have read lately; bounded, and known to this process alone."""

    def __init__(self) -> None:
        # By namespace and session, the one that read last at the end: ids, the newest at the end.
        self._read: OrderedDict[tuple[tuple[str, ...], str], OrderedDict[str, None]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, namespace: tuple[str, ...], session: str, item_ids: Sequence[str]) -> None:
        """Note that a session has read items; only the last ones are known for a while."""
        with self._lock:
            known = self._read.setdefault((namespace, session), OrderedDict())
            self._read.move_to_end((namespace, session))
            # The best hit counts as read last.
            for item_id in reversed(item_ids):
                known[item_id] = None
                known.move_to_end(item_id)
            _trim(known, SEEN_MAX)
            _trim(self._read, SESSIONS_MAX)

    def of(self, namespace: tuple[str, ...], session: str) -> list[str]:
        """Return what a session has read, and what was read outside of any, the newest first."""
        with self._lock:
            keys = dict.fromkeys([(namespace, session), (namespace, "")])
            ids = [one for key in keys for one in reversed(self._read.get(key, OrderedDict()))]
        return list(dict.fromkeys(ids))


class MemoryClaims:
    """The claims of a memory, as the gate asks for them, and what sessions have read of it."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
        self.reads = RecentReads()

    def find(self, namespace: tuple[str, ...], subject: str, attribute: str) -> Remembered | None:
        """Return the claim that is believed now, or None."""
        item = self._memory.find_claim(namespace, subject, attribute)
        if item is None or item.claim is None:
            return None
        since = item.last_verified_at or item.valid_from
        return Remembered(
            item_id=item.id,
            value=item.claim.value,
            since_s=since.timestamp(),
            trust=item.source_trust,
            is_contradicted=item.contradicted,
            is_trusted=item.source_trust >= TRUSTED_FROM,
        )

    @contextmanager
    def telling(
        self, namespace: tuple[str, ...], shown: Sequence[Shown]
    ) -> Iterator[Callable[[GuardWriter], list[str]]]:
        """Prepare to tell the memory what checks showed, within a decision's transaction."""
        checks = [Checked(one.item_id, one.holds, one.value) for one in shown]
        with self._memory.telling(checks, namespace=namespace) as tell:
            yield lambda tx: tell(tx.memory)

    def used(self, namespace: tuple[str, ...], item_ids: Sequence[str]) -> None:
        """Note that an action rested on items."""
        self._memory.reinforce(item_ids, contributed=True, namespace=namespace)

    def seen(self, namespace: tuple[str, ...], session: str) -> list[Seen]:
        """Return the claims a session has read that still hold, the last one first.

        What was read outside of any session belongs to each.  What an untrusted
        source says is left out.
        """
        found = []
        for item_id in self.reads.of(namespace, session):
            try:
                item = self._memory.get(item_id, namespace=namespace)
            except ItemNotFound:
                # Forgotten since.
                continue
            is_live = item.status is Status.LIVE and item.source_trust >= TRUSTED_FROM
            if item.claim is not None and is_live:
                claim = item.claim
                found.append(Seen(item.id, claim.subject, claim.attribute, claim.value))
        return found


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
            key = self._begin(name, call.arguments(args, kwargs))
            state = State.UNKNOWN
            try:
                result = function(*args, **kwargs)
                state = State.SUCCEEDED
                return result
            except failed_on:
                state = State.FAILED
                raise
            finally:
                if key is not None:
                    self.settle(key, state)

        return guarded

    def _guarded_async(
        self, name: str, call: Signature, function: Callable[..., Any], failed_on: _Exceptions
    ) -> Callable[..., Any]:
        @functools.wraps(function)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            arguments = call.arguments(args, kwargs)
            # Others go on meanwhile, and may change what a list or mapping holds.
            decided = held(arguments)
            key = await self._begun(name, decided)
            state, is_closed = State.UNKNOWN, False
            try:
                if key is not None and are_changed(arguments, decided):
                    state = State.FAILED
                    raise PermitRefused(
                        f"the arguments of {name} were changed while it was decided about; "
                        "nothing was done"
                    )
                result = await function(*args, **kwargs)
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
                if key is not None and is_closed:
                    self.settle(key, state)
                elif key is not None:
                    settling = self._submitted(self._settlers, self.settle, key, state)
                    await asyncio.shield(asyncio.wrap_future(settling))

        return guarded

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
        key = begun.result()
        if key is not None:
            self.settle(key, State.FAILED)

    def _begin(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Decide about a call; return the key under which it is settled, None for a free one."""
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
            key = self.redeem(decision.permit.token, action)
        except PermitRefused as refused:
            # Another call of the same action was granted meanwhile, or this one took too long.
            refusal = replace(decision, verdict=Verdict.ABSTAIN.value, code="not_redeemed")
            raise ActionAbstained(replace(refusal, reason=str(refused), permit=None)) from refused
        self.dispatched(key)
        return key

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


def _trim(known: OrderedDict[Any, Any], most: int) -> None:
    while len(known) > most:
        known.popitem(last=False)


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
