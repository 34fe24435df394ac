"""The gate joined with a memory: `Guard`, and the decorators of actions and verifiers."""

import functools
import inspect
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import yaml

from amv.checks import shown
from amv.closing import Closing
from amv.config import Settings
from amv.errors import (
    ActionAbstained,
    AmvError,
    ConfigError,
    InvalidInput,
    PermitRefused,
    PolicyError,
    RepairNeeded,
)
from amv.guard.actions import Action
from amv.guard.calibration import Calibration
from amv.guard.plan import Verdict
from amv.guard.policy import Policy, parse
from amv.guard.ports import GuardStore, GuardWriter, Remembered, Shown, State
from amv.guard.prior import LogisticPrior
from amv.guard.service import GuardService
from amv.memory.checked import Checked
from amv.memory.item import check_namespace
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.stores.memory.guard import MemoryGuardStore
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.guard import SqliteGuardStore
from amv.verifiers import Verifiers
from amv.wiring import Memory, new_id

F = TypeVar("F", bound=Callable[..., Any])

POLICY_BYTES_MAX = 1 << 20
TRUSTED_FROM = 0.5
"""The source trust from which a claim counts as known at all."""


class _Acting(NamedTuple):
    """For whom, in whose memory and in which session actions are called."""

    namespace: tuple[str, ...]
    session: str
    principal: str


class MemoryClaims:
    """The claims of a memory, as the gate asks for them."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory

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
        owns_memory: bool = False,
    ) -> None:
        """Guard actions that rest on *memory*; see `open`."""
        prior, calibrated = LogisticPrior(), calibration or Calibration()
        self.memory = memory
        self._verifiers = Verifiers()
        self._owns_memory = owns_memory
        name = () if namespace is None else check_namespace(namespace)
        self._acting_by_default = _Acting(name, "", "")
        self._acting: ContextVar[_Acting] = ContextVar("amv_acting")
        super().__init__(
            policy,
            MemoryClaims(memory),
            _guard_store(memory),
            self._verifiers,
            prior=lambda features, kind: calibrated(prior(features)),
            calibration=calibrated.digest(),
            clock=clock or time.time,
            new_id=new_id,
            new_token=lambda: secrets.token_urlsafe(24),
        )

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
    ) -> Self:
        """Open the gate over the memory in the file *path*.

        *policy* is the path of a YAML file, or what would stand in it.
        *namespace* says whose memory actions rest on where `acting` does not.
        *calibration* is what `amv guard calibrate` has written, or the path of it.

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

    def action(
        self, name: str, *, failed_on: tuple[type[BaseException], ...] = (), **rule: Any
    ) -> Callable[[F], F]:
        """Guard a function, plain or async; *rule* sets fields of its rule.

        The function runs if the gate says PROCEED, once for its idempotency key.
        Otherwise the call raises ActionAbstained, or RepairNeeded with the value
        that was read.  A function that raises leaves its action UNKNOWN, as
        nobody can tell what it has done; *failed_on* lists the exceptions after
        which it has surely done nothing.
        """
        if rule:
            self._policy = _with_rule(self._policy, "actions", name, rule)

        def wrap(function: F) -> F:
            if not inspect.isroutine(function) or _yields(function):
                # Its call returns before its body has run, so that nothing could be settled.
                raise InvalidInput(
                    f"{name!r} must be a function, plain or async, that does the action when it "
                    f"is called, got {shown(function)}"
                )
            signature = inspect.signature(function)

            @contextmanager
            def guarding(args: Any, kwargs: Any) -> Iterator[None]:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                key = self._begin(name, dict(bound.arguments))
                state = State.UNKNOWN
                try:
                    yield
                    state = State.SUCCEEDED
                except failed_on:
                    state = State.FAILED
                    raise
                finally:
                    if key is not None:
                        self.settle(key, state)

            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                    with guarding(args, kwargs):
                        return await function(*args, **kwargs)

                return guarded_async  # type: ignore[return-value]

            @functools.wraps(function)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                with guarding(args, kwargs):
                    return function(*args, **kwargs)

            return guarded  # type: ignore[return-value]

        return wrap

    def _begin(self, tool: str, arguments: dict[str, Any]) -> str | None:
        """Decide about a call; return the key under which it is settled, None for a free one."""
        if self.policy.mode == "shadow":
            # It never blocks, not even what it can't judge.
            with suppress(AmvError):
                self.decide(self._action(tool, arguments))
            return None
        action = self._action(tool, arguments)
        decision = self.decide(action)
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

    def _action(self, tool: str, arguments: dict[str, Any]) -> Action:
        namespace, session, principal = self._acting.get(self._acting_by_default)
        return Action(
            tool=tool,
            arguments=arguments,
            namespace=namespace,
            session=session,
            principal=principal,
        )

    def close(self) -> None:
        """Close the memory, if it was opened with the gate."""
        if self._owns_memory:
            self.memory.close()


def _yields(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _guard_store(memory: MemoryService) -> GuardStore:
    store = memory.store
    if isinstance(store, SqliteStore):
        return SqliteGuardStore(store)
    assert isinstance(store, MemoryStore)
    return MemoryGuardStore(store)


def load_policy(policy: str | Path | Mapping[str, Any] | Policy) -> Policy:
    """Return a policy from a YAML file, from plain data, or as it is; raises PolicyError."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, Mapping):
        return parse(dict(policy))
    if not isinstance(policy, str | Path):
        raise InvalidInput(f"a policy is a path or a mapping, got {shown(policy)}")
    try:
        text = Path(policy).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read the policy {str(policy)!r}: {error}") from error
    if len(text) > POLICY_BYTES_MAX:
        raise PolicyError(
            f"the policy {str(policy)!r} is longer than {POLICY_BYTES_MAX} characters"
        )
    try:
        return parse(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise PolicyError(f"the policy {str(policy)!r} is no YAML: {error}") from error


def load_calibration(calibration: str | Path | Calibration | None) -> Calibration:
    """Return a calibration from its file, or as it is; raises ConfigError."""
    if calibration is None or isinstance(calibration, Calibration):
        return calibration or Calibration()
    if not isinstance(calibration, str | Path):
        raise InvalidInput(f"a calibration is the path of its file, got {shown(calibration)}")
    try:
        return msgspec.json.decode(Path(calibration).read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError, InvalidInput) as error:
        raise ConfigError(f"can't use the calibration {str(calibration)!r}: {error}") from error


def _with_rule(policy: Policy, part: str, name: str, fields: Mapping[str, Any]) -> Policy:
    """Return a policy in which a decorator has set fields of one rule."""
    data = msgspec.to_builtins(policy)
    data[part][name] = {**data[part].get(name, {}), **fields}
    return parse(data)
