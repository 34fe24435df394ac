"""Guarded functions: they run once the gate lets them, and what became of them is noted."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.config import from_environment
from amv.guard.ports import State
from amv.loading import load_policy
from tests.guard.gates import CANCEL, LOSS, OWNER, opened, policy_of, remember
from tests.guard.gates import cancel as cancel_of


class Shop:
    """What the actions of these tests do."""

    def __init__(self) -> None:
        self.status: Any = "pending"
        self.cancelled: list[str] = []
        self.error: BaseException | None = None

    def cancel(self, order_id: str, note: str | None = None) -> str:
        self.cancelled.append(order_id)
        if self.error is not None:
            raise self.error
        return f"cancelled {order_id}"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def guard(shop: Shop) -> Iterator[amv.Guard]:
    with opened() as guard:
        guard.verifier("order_status")(lambda order_id: shop.status)
        remember(guard)
        yield guard


Cancel = Callable[..., Any]


@pytest.fixture(params=["plain", "async"])
def cancel(request: pytest.FixtureRequest, guard: amv.Guard, shop: Shop) -> Cancel:
    """Give the guarded function, plain or async, to be called like a plain one."""

    @guard.action("cancel_order", failed_on=(ConnectionRefusedError,))
    def plain(order_id: str, note: str | None = None) -> str:
        """Cancel an order."""
        return shop.cancel(order_id, note)

    @guard.action("cancel_order", failed_on=(ConnectionRefusedError,))
    async def asynchronous(order_id: str, note: str | None = None) -> str:
        await asyncio.sleep(0)
        return shop.cancel(order_id, note)

    if request.param == "plain":
        assert plain.__doc__ == "Cancel an order."
        return plain
    return lambda *args, **kwargs: asyncio.run(asynchronous(*args, **kwargs))


def states(guard: amv.Guard) -> list[State]:
    """Return how far the actions of a gate have come."""
    with guard._store.read() as reader:
        return [row.state for state in State for row in reader.in_state(state, float("inf"))]


def test_an_action_that_is_let_through_runs_once(
    guard: amv.Guard, cancel: Cancel, shop: Shop
) -> None:
    assert cancel("W1") == "cancelled W1"
    assert states(guard) == [State.SUCCEEDED]

    with pytest.raises(amv.ActionAbstained, match="granted to this very action before") as caught:
        cancel(order_id="W1")
    assert caught.value.decision.code == "granted_before"
    assert shop.cancelled == ["W1"]


MOVE: dict[str, Any] = {
    "loss": {"wrong": 120.0, "abstain": 5.0, "repair": 1.0},
    "rests_on": {
        "status": {
            "claim": "order/{order_id}/status",
            "require": {"argument": "status"},
            "verify_with": ["order_status"],
        }
    },
    "idempotency": {"key": ["order_id"]},
}


def test_an_action_that_needs_repair_tells_the_value_that_was_read(
    guard: amv.Guard, shop: Shop
) -> None:
    moved = []
    # Sure enough of what it reads that this may be put into the call.
    guard.verifier("page", sensitivity=0.9999, specificity=0.9999)(lambda order_id: shop.status)
    status = {**MOVE["rests_on"]["status"], "verify_with": ["page"]}

    @guard.action("move_order", **{**MOVE, "rests_on": {"status": status}})
    def move(order_id: str, status: str) -> None:
        moved.append((order_id, status))

    shop.status = "shipped"

    with pytest.raises(amv.RepairNeeded) as caught:
        move("W1", "pending")

    assert caught.value.decision.values == {"status": "shipped"}
    assert isinstance(caught.value, amv.ActionAbstained)
    assert moved == []
    move("W1", caught.value.decision.values["status"])
    assert moved == [("W1", "shipped")]


@pytest.mark.parametrize("require", ["pending", {"one_of": ["pending", "open"]}])
def test_what_no_call_can_require_otherwise_is_not_repaired(shop: Shop, require: object) -> None:
    """The same call would be refused for ever, and nobody be asked about it."""
    premise = {**CANCEL["rests_on"]["status"], "require": require}
    rule = {**CANCEL, "approval": True, "rests_on": {"status": premise}}
    with opened(policy=policy_of(actions={"cancel_order": rule})) as guard:
        guard.verifier("order_status")(lambda order_id: "shipped")
        remember(guard)

        with pytest.raises(amv.ActionAbstained) as caught:
            guard.action("cancel_order")(shop.cancel)("W1")

        assert not isinstance(caught.value, amv.RepairNeeded)
        assert caught.value.approval_id
        assert caught.value.decision.values == {"status": "shipped"}


def test_an_action_that_is_not_let_through_tells_why(cancel: Cancel, shop: Shop) -> None:
    shop.status = None

    with pytest.raises(amv.ActionAbstained, match="checks told nothing of status") as caught:
        cancel("W1")

    assert caught.value.decision.verdict == "ABSTAIN"
    assert not isinstance(caught.value, amv.RepairNeeded)
    assert shop.cancelled == []


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectionRefusedError(), State.FAILED),
        (ConnectionResetError(), State.UNKNOWN),
        (ValueError(), State.UNKNOWN),
        (KeyboardInterrupt(), State.UNKNOWN),
    ],
)
def test_what_raises_is_unknown_unless_it_has_surely_done_nothing(
    guard: amv.Guard, cancel: Cancel, shop: Shop, error: BaseException, state: State
) -> None:
    shop.error = error
    with pytest.raises(type(error)):
        cancel("W1")
    assert states(guard) == [state]

    shop.error = None
    if state is State.FAILED:
        assert cancel("W1") == "cancelled W1"
    else:
        with pytest.raises(amv.ActionAbstained, match="which is UNKNOWN"):
            cancel("W1")


def test_a_call_that_the_function_can_not_take_asks_nobody(
    guard: amv.Guard, cancel: Cancel
) -> None:
    with pytest.raises(TypeError):
        cancel()
    assert guard.decided() == 0


def test_arguments_that_are_no_json_are_an_error(cancel: Cancel, shop: Shop) -> None:
    with pytest.raises(amv.InvalidInput, match="must be JSON"):
        cancel("W1", note=object())
    assert shop.cancelled == []


def test_defaults_are_arguments_too(guard: amv.Guard, cancel: Cancel) -> None:
    """A permit is bound to all that the function gets."""
    cancel("W1")

    (decision,) = [decision for _, decision in guard.decisions()]
    action = amv.Action(
        tool="cancel_order", arguments={"order_id": "W1", "note": None}, namespace=OWNER
    )
    assert decision.digest == action.digest()


def test_of_16_calls_at_once_one_executes(guard: amv.Guard, cancel: Cancel, shop: Shop) -> None:
    start = threading.Barrier(16)

    def call(_: int) -> str:
        start.wait()
        try:
            return str(cancel("W1"))
        except amv.ActionAbstained as error:
            return str(error.decision.code)

    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(call, range(16)))

    assert shop.cancelled == ["W1"]
    assert said.count("cancelled W1") == 1
    assert set(said) <= {"cancelled W1", "granted_before", "not_redeemed"}


def test_a_permit_that_another_call_replaced_is_an_abstention(
    guard: amv.Guard, cancel: Cancel, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = guard.decide

    def decided_twice(action: amv.Action, **how: Any) -> amv.Decision:
        decision = decide(action, **how)
        decide(action, **how)
        return decision

    monkeypatch.setattr(guard, "decide", decided_twice)
    with pytest.raises(amv.ActionAbstained) as caught:
        cancel("W1")

    assert (caught.value.decision.verdict, caught.value.decision.permit) == ("ABSTAIN", None)
    assert caught.value.decision.code == "not_redeemed"
    assert shop.cancelled == []


@pytest.mark.parametrize("status", ["pending", "shipped", None])
def test_shadow_mode_never_blocks_and_is_recorded(shop: Shop, status: object) -> None:
    with opened(policy=policy_of(mode="shadow")) as guard:
        guard.verifier("order_status")(lambda order_id: status)
        remember(guard)
        guarded = guard.action("cancel_order")(shop.cancel)
        for _ in range(3):
            assert guarded("W1") == "cancelled W1"

        assert guard.decided() == 3
        assert states(guard) == []
        assert shop.cancelled == ["W1"] * 3


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"order_id": 1.5}, "needs the argument 'order_id' as a string"),
        ({"order_id": "W1", "note": object()}, "the argument 'note' must be JSON"),
        ({"order_id": "W1", "note": "x" * (1 << 20)}, "take more than"),
        ({"order_id": "W1", "note": [10**5000]}, "the argument 'note' must be JSON"),
    ],
)
def test_what_shadow_mode_can_not_judge_goes_ahead_and_is_told_of(
    shop: Shop, bad: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A week in shadow mode that recorded nothing would look like one in which all was well."""
    with opened(policy=policy_of(mode="shadow")) as guard:
        assert guard.action("cancel_order")(shop.cancel)(**bad)

        (decision,) = [decision for _, decision in guard.decisions()]
        assert (decision.verdict, decision.code) == ("ABSTAIN", "invalid_action")
        assert why in decision.reason
        assert why in guard.explain(decision.id)
        assert guard.replay() == []
        assert guard.labels() == []
    (logged,) = caplog.records
    assert "cancel_order went ahead in shadow mode, and enforce would refuse it" in logged.message
    assert why in logged.message


@pytest.mark.parametrize("note", [None, object()])
def test_shadow_mode_goes_on_without_its_store_and_says_so(
    shop: Shop, note: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(policy=policy_of(mode="shadow")) as guard:
        guarded = guard.action("cancel_order")(shop.cancel)

        def broken(work: object) -> None:
            raise amv.StoreUnavailable("the disk is full")

        monkeypatch.setattr(guard._store, "write", broken)
        assert guarded("W1", note)
    (logged,) = caplog.records
    assert "the disk is full" in logged.message


@pytest.mark.parametrize("mode", ["shadow", "enforce"])
def test_a_method_is_guarded_without_its_object(shop: Shop, mode: str) -> None:
    with opened(policy=policy_of(mode=mode)) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)

        class Desk:
            @guard.action("cancel_order")
            def cancel(self, order_id: str) -> str:
                assert isinstance(self, Desk)
                return shop.cancel(order_id)

            @classmethod
            @guard.action("look")
            async def look(cls, order_id: str) -> str:
                return f"{cls.__name__} {order_id}"

        assert Desk().cancel("W1") == "cancelled W1"
        assert asyncio.run(Desk.look("W1")) == "Desk W1"
        (one, other) = [decision for _, decision in guard.decisions()]
        assert (one.verdict, one.digest) == ("PROCEED", cancel_of("W1").digest())
        assert other.code == "read_only"


def test_what_changes_nothing_passes_each_time(guard: amv.Guard) -> None:
    @guard.action("look")
    def look(order_id: str) -> str:
        return order_id

    assert [look("W1"), look("W1")] == ["W1", "W1"]
    assert guard.decided() == 2


def test_an_unknown_tool_is_not_let_through(guard: amv.Guard) -> None:
    @guard.action("unheard_of")
    def unheard_of() -> None:
        raise AssertionError("this must not run")

    with pytest.raises(amv.ActionAbstained, match="no rule of the policy speaks of this tool"):
        unheard_of()


def test_acting_says_in_whose_memory_actions_rest(guard: amv.Guard, cancel: Cancel) -> None:
    with (
        guard.acting(namespace=("bob",), session="s1", principal="bob"),
        pytest.raises(amv.ActionAbstained) as caught,
    ):
        cancel("W1")
    assert caught.value.decision.namespace == ("bob",)

    assert cancel("W1") == "cancelled W1"
    with pytest.raises(amv.InvalidNamespace), guard.acting(namespace=()):
        pass


def test_rules_can_stand_at_the_functions(shop: Shop) -> None:
    with amv.Guard.open(
        ":memory:", policy={"version": 1}, namespace=OWNER, embedder="hashing:64"
    ) as guard:
        guard.verifier("order_status", cost=0.02)(lambda order_id: "pending")
        guarded = guard.action("cancel_order", **{**CANCEL, "rests_on": {}})(shop.cancel)
        assert guarded("W1") == "cancelled W1"
        assert guard.policy.verifiers["order_status"].cost == 0.02
        with pytest.raises(amv.PolicyError):
            guard.action("cancel_order", harm_max=2.0)
        with pytest.raises(amv.PolicyError):
            guard.verifier("order_status", cots=1)(lambda: None)


def test_a_gate_leaves_a_memory_open_that_is_not_its_own() -> None:
    with amv.Memory.open(":memory:", embedder="hashing:64") as memory:
        with amv.Guard(load_policy({"version": 1}), memory) as guard:
            assert guard.decide(amv.Action(tool="x")).code == "unknown_tool"
        memory.add("still open", namespace=OWNER)


def test_a_gate_that_can_not_be_opened_closes_its_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "amv.db")
    with pytest.raises(amv.InvalidNamespace):
        amv.Guard.open(path, policy={"version": 1}, namespace=["", ""], embedder="hashing:64")
    # Closing folds the write-ahead log away.
    assert not Path(f"{path}-wal").exists()


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nmode: shadow\n")

    assert load_policy(path).mode == load_policy(str(path)).mode == "shadow"
    assert load_policy(load_policy(path)) == load_policy({"version": 1, "mode": "shadow"})


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (b"version: [", amv.PolicyError, "is no YAML"),
        (b"version: " + b"[" * 5000 + b"]" * 5000, amv.PolicyError, "is nested too deeply"),
        (b"version: " + b"1" * 5000, amv.PolicyError, "is no YAML"),
        (b"version: 2026-13-40", amv.PolicyError, "is no YAML"),
        (b"version: 2", amv.PolicyError, "not valid"),
        (b"\xff\xfe\xff", amv.ConfigError, "can't read the policy"),
        (b"#" * (1 << 20) + b"##", amv.PolicyError, "is longer than"),
        (b"- 1", amv.PolicyError, "not valid"),
        (b"", amv.PolicyError, "not valid"),
    ],
)
def test_a_policy_that_is_none_is_an_error(
    tmp_path: Path, text: bytes, error: type[Exception], says: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(text)

    with pytest.raises(error, match=says):
        load_policy(path)


def test_a_policy_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(amv.ConfigError, match="can't read the policy"):
        load_policy(tmp_path / "absent.yaml")
    with pytest.raises(amv.InvalidInput, match="a path or a mapping"):
        load_policy(5)  # type: ignore[arg-type]


def test_5_and_its_text_are_one_order_and_granted_once(guard: amv.Guard, shop: Shop) -> None:
    """Both fill the claim's template alike, so the effect would come twice."""
    remember(guard, order_id=5)
    cancel = guard.action("cancel_order")(shop.cancel)
    cancel(5)  # type: ignore[arg-type]

    with pytest.raises(amv.ActionAbstained) as refused:
        cancel("5")
    assert refused.value.decision.code == "granted_before"
    assert len(shop.cancelled) == 1


def test_what_does_not_act_when_it_is_called_can_not_be_guarded(guard: amv.Guard) -> None:
    """Its call returns before its body has run: what became of it could not be told."""

    def yields(order_id: str) -> Iterator[str]:
        yield order_id

    async def yields_later(order_id: str) -> Any:
        yield order_id

    class Later:
        async def __call__(self, order_id: str) -> None: ...

    for function in (yields, yields_later, Later()):
        with pytest.raises(amv.InvalidInput, match="must be a function, plain or async"):
            guard.action("cancel_order")(function)


@pytest.mark.parametrize("value", ["x" * 5000, "a\0b"])
def test_a_reading_that_no_claim_can_hold_leaves_the_one_that_is_there(
    guard: amv.Guard, shop: Shop, value: str
) -> None:
    shop.status = value

    decision = guard.decide(amv.Action("cancel_order", {"order_id": "W1"}, namespace=OWNER))

    assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
    assert guard.decided() == 1
    assert guard.memory.find_claim(OWNER, "order/W1", "status") is not None
    assert guard.replay() == []


# ---------------------------------------------------------------- async


class Gated:
    """A verifier that waits until it is let go on, and tells once it is asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def plain(self, order_id: str) -> str:
        self.asked.set()
        assert self.go_on.wait(60)
        return "pending"

    async def later(self, order_id: str) -> str:
        return self.plain(order_id)

    async def is_asked(self) -> None:
        while not self.asked.is_set():
            await asyncio.sleep(0)


SLOW = {"order_status": {"cost": 0.02, "args": {"order_id": "$order_id"}, "timeout_s": 60}}


@pytest.fixture(params=["plain", "later"])
def gated(request: pytest.FixtureRequest) -> Iterator[tuple[amv.Guard, Gated]]:
    """A gate whose verifier, plain or async, is asked and waits."""
    found = Gated()
    with opened(policy=policy_of(verifiers=SLOW)) as guard:
        guard.verifier("order_status")(getattr(found, request.param))
        remember(guard)
        yield guard, found
        found.go_on.set()


def test_the_event_loop_goes_on_while_a_check_runs(
    gated: tuple[amv.Guard, Gated], shop: Shop
) -> None:
    """The check ends only because the loop let it go on meanwhile."""
    guard, found = gated

    @guard.action("cancel_order")
    async def cancel(order_id: str) -> str:
        return shop.cancel(order_id)

    async def both() -> str:
        calling = asyncio.create_task(cancel("W1"))
        await found.is_asked()
        assert not calling.done()
        found.go_on.set()
        return str(await calling)

    assert asyncio.run(both()) == "cancelled W1"
    assert states(guard) == [State.SUCCEEDED]


@pytest.mark.parametrize("added", ["W2", object()])
def test_arguments_that_are_changed_while_a_call_is_decided_about_are_not_executed(
    gated: tuple[amv.Guard, Gated], shop: Shop, added: Any
) -> None:
    """Its caller goes on meanwhile, and holds the same list: what was checked is another one."""
    guard, found = gated
    found_by = {**CANCEL, "free": ["more"]}

    @guard.action("cancel_order", **found_by)
    async def cancel(order_id: str, more: list[Any]) -> str:
        return shop.cancel(order_id)

    async def changing() -> None:
        more = ["W1"]
        calling = asyncio.create_task(cancel("W1", more))
        await found.is_asked()
        more.append(added)
        found.go_on.set()
        with pytest.raises(amv.PermitRefused, match="were changed while it was decided about"):
            await calling

    asyncio.run(changing())

    assert shop.cancelled == []
    assert states(guard) == [State.FAILED]
    ((_, decision),) = guard.decisions()
    assert decision.arguments == {"order_id": "W1", "more": ["W1"]}


def test_a_plain_function_inside_an_event_loop_asks_an_async_verifier(guard: amv.Guard) -> None:
    @guard.verifier("order_status")
    async def order_status(order_id: str) -> str:
        await asyncio.sleep(0)
        return "pending"

    @guard.action("cancel_order")
    def cancel(order_id: str) -> str:
        return order_id

    async def inside() -> str:
        return cancel("W1")

    assert asyncio.run(inside()) == "W1"


def test_acting_holds_for_async_functions_each_for_itself(guard: amv.Guard) -> None:
    """Decisions are made in threads, which know for whom by the context of the call."""

    @guard.action("look")
    async def look(order_id: str) -> str:
        return order_id

    async def acting_as(name: str) -> None:
        with guard.acting(namespace=(name,), session=name):
            await asyncio.sleep(0)
            await look(name)

    async def both() -> None:
        await asyncio.gather(*(acting_as(name) for name in ("ann", "bob")))

    asyncio.run(both())
    for name in ("ann", "bob"):
        ((_, decision),) = guard.decisions(session=name)
        assert decision.namespace == (name,)


def test_a_call_that_is_cancelled_while_it_is_decided_about_is_not_left_dispatched(
    gated: tuple[amv.Guard, Gated], shop: Shop
) -> None:
    """Nobody makes it any more, so that the same call can be granted again."""
    guard, found = gated

    @guard.action("cancel_order")
    async def cancel(order_id: str) -> str:
        return shop.cancel(order_id)

    async def withdrawn() -> None:
        calling = asyncio.create_task(cancel("W1"))
        await found.is_asked()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert shop.cancelled == []

    asyncio.run(withdrawn())
    found.go_on.set()
    guard._deciders.shutdown()

    assert states(guard) == [State.FAILED]
    assert shop.cancelled == []


def test_a_call_that_is_cancelled_and_would_be_refused_leaves_nothing(
    gated: tuple[amv.Guard, Gated], shop: Shop
) -> None:
    guard, found = gated

    # No check could make it safe, so that only an audit asks.
    @guard.action("cancel_order", loss={**LOSS, "wrong": 1e9}, audit=1.0)
    async def cancel(order_id: str) -> str:
        return shop.cancel(order_id)

    async def withdrawn() -> None:
        calling = asyncio.create_task(cancel("W1"))
        await found.is_asked()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(withdrawn())
    found.go_on.set()
    guard._deciders.shutdown()

    assert states(guard) == []
    assert guard.decided() == 1


def test_a_call_that_is_cancelled_before_its_turn_is_never_decided_about(
    guard: amv.Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads are taken, so that it waits; nothing is recorded of it."""
    go_on = threading.Event()
    monkeypatch.setattr(guard, "_deciders", ThreadPoolExecutor(1))
    guard._deciders.submit(go_on.wait, 60)

    @guard.action("look")
    async def look(order_id: str) -> str:
        return order_id

    async def withdrawn() -> None:
        calling = asyncio.create_task(look("W1"))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(withdrawn())
    go_on.set()
    guard._deciders.shutdown()

    assert guard.decided() == 0


def test_a_call_that_is_cancelled_while_it_is_made_is_unknown(guard: amv.Guard, shop: Shop) -> None:
    @guard.action("cancel_order")
    async def cancel(order_id: str) -> None:
        shop.cancel(order_id)
        await asyncio.Event().wait()

    async def stopped() -> None:
        calling = asyncio.create_task(cancel("W1"))
        while not shop.cancelled:
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(stopped())

    assert states(guard) == [State.UNKNOWN]


def test_a_call_whose_loop_is_gone_is_unknown(guard: amv.Guard, shop: Shop) -> None:
    """Its coroutine is closed, not cancelled, and can't wait for anything."""

    @guard.action("cancel_order")
    async def cancel(order_id: str) -> None:
        shop.cancel(order_id)
        await asyncio.sleep(3600)

    loop = asyncio.new_event_loop()

    async def until_made() -> Any:
        calling = cancel("W1")
        step = calling.send(None)
        await step_of(step)
        calling.send(None)
        return calling

    async def step_of(step: Any) -> None:
        step._asyncio_future_blocking = False
        await asyncio.wait([step])

    calling = loop.run_until_complete(until_made())
    loop.close()
    assert shop.cancelled == ["W1"]
    calling.close()

    assert states(guard) == [State.UNKNOWN]


def test_a_gate_that_is_closed_lets_no_async_function_through(shop: Shop) -> None:
    guard = opened()

    @guard.action("cancel_order")
    async def cancel(order_id: str) -> str:
        return shop.cancel(order_id)

    guard.close()
    with pytest.raises(amv.StoreClosed, match="the gate was closed"):
        asyncio.run(cancel("W1"))
    assert shop.cancelled == []


# ---------------------------------------------------------------- a person


def test_an_approved_call_goes_through_when_it_is_made_again(
    shop: Shop, cancel_again: Callable[..., Any]
) -> None:
    shop.status = None
    with pytest.raises(amv.ActionAbstained, match="a person can approve request") as refused:
        cancel_again("W1")
    asked = refused.value.approval_id
    guard = cancel_again.guard  # type: ignore[attr-defined]
    assert [row.approval_id for row in guard.approvals.list("pending")] == [asked]
    with pytest.raises(amv.ActionAbstained):
        cancel_again("W1")

    guard.approve(asked, by="Eve")
    with pytest.raises(amv.ActionAbstained):
        cancel_again("W1", note="other arguments")
    assert cancel_again("W1") == "cancelled W1"

    assert guard.approvals.get(asked).state == "used"
    with pytest.raises(amv.ActionAbstained) as again:
        cancel_again("W1")
    assert again.value.decision.permit is None
    assert shop.cancelled == ["W1"]


def test_an_approved_call_is_checked_again(shop: Shop, cancel_again: Callable[..., Any]) -> None:
    """What a check refutes by now is not executed, whoever approved it."""
    shop.status = None
    with pytest.raises(amv.ActionAbstained) as refused:
        cancel_again("W1")
    cancel_again.guard.approve(refused.value.approval_id, by="Eve")  # type: ignore[attr-defined]
    shop.status = "shipped"

    with pytest.raises(amv.ActionAbstained, match="a check refutes"):
        cancel_again("W1")
    assert shop.cancelled == []


@pytest.fixture
def cancel_again(shop: Shop) -> Iterator[Callable[..., Any]]:
    """A guarded function about which a person is asked, with its gate."""
    actions = {"cancel_order": {**CANCEL, "approval": True}}
    with opened(policy=policy_of(actions=actions)) as guard:
        guard.verifier("order_status")(lambda order_id: shop.status)
        remember(guard)
        guarded = guard.action("cancel_order")(shop.cancel)

        def call(*args: Any, **kwargs: Any) -> Any:
            return guarded(*args, **kwargs)

        call.guard = guard  # type: ignore[attr-defined]
        yield call


def test_an_abstention_that_asks_nobody_names_no_request(cancel: Cancel, shop: Shop) -> None:
    shop.status = None
    with pytest.raises(amv.ActionAbstained) as refused:
        cancel("W1")
    assert refused.value.approval_id == ""
    assert "approve" not in str(refused.value)


# ---------------------------------------------------------------- policy


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nmode: enforce\nmode: shadow\n",
        "version: 1\nactions:\n  a: {effect: read}\n  'a': {effect: read}\n",
        "version: 1\nactions: {a: {loss: {wrong: 1, abstain: 1, wrong: 2}}}\n",
    ],
)
def test_a_key_that_stands_twice_is_refused(tmp_path: Path, text: str) -> None:
    """The last one would win: a second, laxer rule for a tool would go unseen."""
    path = tmp_path / "policy.yaml"
    path.write_text(text)

    with pytest.raises(amv.PolicyError, match="stands here twice"):
        load_policy(path)


def test_anchors_and_merges_are_no_keys_that_stand_twice(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\nactions:\n  a: &a {effect: read, permit_s: 5}\n"
        "  b: &b {<<: *a, permit_s: 7}\n  c: {<<: *b, permit_s: 9}\n"
    )

    rules = load_policy(path).actions
    assert [rule.permit_s for rule in rules.values()] == [5, 7, 9]
    assert {rule.effect for rule in rules.values()} == {"read"}


def test_a_gate_lints_its_policy_with_the_functions_it_guards(shop: Shop) -> None:
    loss = {"wrong": 120.0, "abstain": 5.0}
    rule = {**CANCEL, "loss": loss, "free": ["note", "reason"]}
    with opened(policy=policy_of(actions={"cancel_order": rule, "open": rule})) as guard:
        assert guard.lint() == []
        guard.action("cancel_order")(shop.cancel)

        @guard.action("open")
        def anything(**arguments: Any) -> None: ...

        (told,) = guard.lint()
    assert told == (
        "actions.cancel_order.free: 'reason' is no argument of the tool; there is note, order_id"
    )


def test_a_rule_for_arguments_that_the_function_has_not_is_refused(guard: amv.Guard) -> None:
    with pytest.raises(amv.PolicyError, match="'order_id', which the function does not take"):

        @guard.action("cancel_order")
        def cancel(oder_id: str) -> None: ...


@pytest.mark.parametrize("opening", [amv.Memory.open, opened])
def test_memory_and_gate_take_their_embedder_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opening: Any
) -> None:
    """Settings that name one, such as those of the environment, are handed on."""
    monkeypatch.setenv("AMV_EMBEDDER", "hashing:48")
    settings = from_environment()
    path = str(tmp_path / "amv.db")
    if opening is opened:
        held: Any = amv.Guard.open(path, policy={"version": 1}, settings=settings)
        memory = held.memory
    else:
        held = memory = amv.Memory.open(path, settings=settings)
    with held:
        assert memory._embedder.dimension == 48
