"""Guarded functions: they run once the gate lets them, and what became of them is noted."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.gate import load_policy
from amv.guard.ports import State
from tests.guard.gates import CANCEL, OWNER, opened, policy_of, remember


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


def test_an_action_that_needs_repair_tells_the_value_that_was_read(
    cancel: Cancel, shop: Shop
) -> None:
    shop.status = "shipped"

    with pytest.raises(amv.RepairNeeded) as caught:
        cancel("W1")

    assert caught.value.decision.values == {"status": "shipped"}
    assert isinstance(caught.value, amv.ActionAbstained)
    assert shop.cancelled == []


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

    def decided_twice(action: amv.Action) -> amv.Decision:
        decision = decide(action)
        decide(action)
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


@pytest.mark.parametrize("bad", [{"order_id": 1.5}, {"order_id": "W1", "note": object()}])
def test_shadow_mode_does_not_block_what_it_can_not_judge(shop: Shop, bad: dict[str, Any]) -> None:
    with opened(policy=policy_of(mode="shadow")) as guard:
        assert guard.action("cancel_order")(shop.cancel)(**bad)


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
def test_a_reading_that_no_claim_can_hold_refutes_the_one_that_is_there(
    guard: amv.Guard, shop: Shop, value: str
) -> None:
    shop.status = value

    decision = guard.decide(amv.Action("cancel_order", {"order_id": "W1"}, namespace=OWNER))

    assert decision.verdict == "REPAIR"
    assert guard.decided() == 1
    assert guard.memory.find_claim(OWNER, "order/W1", "status") is None
    assert guard.replay() == []
