"""A guarded call: what it runs with, what it returns, and what is noted of it."""

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import amv
from amv.errors import OutcomeUnknown
from amv.guard.ports import State
from tests.guard.gates import CANCEL, opened, policy_of, remember


@pytest.fixture
def guard() -> Iterator[amv.Guard]:
    with opened(policy=policy_of(actions={"cancel_order": {**CANCEL, "free": ["more"]}})) as guard:
        guard.verifier("order_status")(lambda order_id: "pending")
        remember(guard)
        yield guard


def state_of(guard: amv.Guard) -> State:
    """Return how far the only call has come."""
    (_, decision) = guard.decisions()[-1]
    with guard._store.read() as reader:
        row = reader.ledger_of(decision.id)
    assert row is not None
    return row.state


def broken(*args: Any) -> Any:
    raise OutcomeUnknown("the disk is full")


@pytest.mark.parametrize("added", ["EVIL", object()])
def test_a_plain_call_does_not_run_with_arguments_that_were_changed_meanwhile(
    guard: amv.Guard, added: Any
) -> None:
    """As an async one does not: a thread of somebody's holds the same list."""
    ran: list[Any] = []
    more = ["a"]

    @guard.action("cancel_order")
    def cancel(order_id: str, more: list[Any]) -> None:
        ran.append(more)

    dispatched = guard.dispatched

    def late(decision_id: str) -> None:
        dispatched(decision_id)
        more.append(added)

    guard.dispatched = late  # type: ignore[method-assign]

    with pytest.raises(amv.PermitRefused, match="were changed while it was decided about"):
        cancel("W1", more)
    assert ran == []
    assert state_of(guard) is State.FAILED
    assert guard.decisions()[0][1].arguments == {"order_id": "W1", "more": ["a"]}


def through(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async function by a plain one, as many decorators do."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        (None, State.SUCCEEDED),
        (RuntimeError("shop down"), State.UNKNOWN),
        (ConnectionRefusedError("shop closed"), State.FAILED),
    ],
)
def test_a_plain_function_that_gives_a_coroutine_is_settled_when_that_ends(
    guard: amv.Guard, raised: Exception | None, state: State
) -> None:
    """Until then nothing is done."""
    seen: list[State] = []

    @guard.action("cancel_order", failed_on=(ConnectionRefusedError,))
    @through
    async def cancel(order_id: str) -> str:
        seen.append(state_of(guard))
        if raised is not None:
            raise raised
        return order_id

    async def called() -> Any:
        return await cancel("W1")

    if raised is None:
        assert asyncio.run(called()) == "W1"
    else:
        with pytest.raises(type(raised)):
            asyncio.run(called())
    assert seen == [State.DISPATCHED]
    assert state_of(guard) is state


def test_a_coroutine_that_nobody_awaits_stays_under_way(guard: amv.Guard) -> None:
    @guard.action("cancel_order")
    @through
    async def cancel(order_id: str) -> None:
        """Never runs."""

    left = cancel("W1")

    assert state_of(guard) is State.DISPATCHED
    asyncio.run(left)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_does_its_work_once_it_is_iterated_is_unknown(
    guard: amv.Guard, is_async: bool
) -> None:
    async def later() -> Any:
        yield 1

    @guard.action("cancel_order")
    def cancel(order_id: str) -> Any:
        return later() if is_async else (one for one in order_id)

    cancel("W1")

    assert state_of(guard) is State.UNKNOWN


@pytest.mark.parametrize("step", ["redeem", "dispatched"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_can_not_be_noted_beforehand_is_not_made(
    guard: amv.Guard, step: str, is_async: bool
) -> None:
    """It is told apart from one that was made: an abstention, with what went wrong."""
    ran: list[str] = []
    whole = getattr(guard, step)
    setattr(guard, step, broken)

    if is_async:

        @guard.action("cancel_order")
        async def later(order_id: str) -> None:
            ran.append(order_id)

        def cancel(order_id: str) -> None:
            asyncio.run(later(order_id))

    else:
        cancel = guard.action("cancel_order")(lambda order_id: ran.append(order_id))

    with pytest.raises(amv.ActionAbstained, match="the call was not made") as refused:
        cancel("W1")
    assert refused.value.decision.code == "gate_error"
    assert "the disk is full" in refused.value.decision.reason
    assert isinstance(refused.value.__cause__, OutcomeUnknown)
    assert ran == []
    # As surely nothing was done, the same call can be made once it can be noted.
    setattr(guard, step, whole)
    cancel("W1")
    assert ran == ["W1"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("raised", [None, RuntimeError("shop down")])
def test_what_a_call_returned_is_not_lost_where_that_can_not_be_noted(
    guard: amv.Guard,
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
    raised: Exception | None,
) -> None:
    """It was made: whoever is told of an error of the store would make it again."""

    def done(order_id: str) -> str:
        guard.settle = broken  # type: ignore[method-assign, assignment]
        if raised is not None:
            raise raised
        return "cancelled"

    async def later(order_id: str) -> str:
        return done(order_id)

    def cancel(order_id: str) -> Any:
        if not is_async:
            return guard.action("cancel_order")(done)(order_id)
        return asyncio.run(guard.action("cancel_order")(later)(order_id))

    with caplog.at_level(logging.ERROR, "amv"):
        if raised is None:
            assert cancel("W1") == "cancelled"
        else:
            with pytest.raises(RuntimeError, match="shop down"):
                cancel("W1")

    assert "the disk is full" in caplog.text
    assert "amv guard reconcile" in caplog.text
    assert state_of(guard) is State.DISPATCHED
    with pytest.raises(amv.ActionAbstained, match="which is DISPATCHED"):
        guard.action("cancel_order")(lambda order_id: None)(order_id="W1")


def test_a_call_that_was_given_up_does_not_settle_the_next_one(
    guard: amv.Guard, caplog: pytest.LogCaptureFixture
) -> None:
    """It hangs; the shop says that nothing was done; another call goes on while it ends."""
    done: list[int] = []
    begun = [threading.Event(), threading.Event()]
    may_end = [threading.Event(), threading.Event()]
    count = iter(range(2))
    guard.reconciler("cancel_order")(lambda order_id: False)

    @guard.action("cancel_order", failed_on=(ConnectionRefusedError,))
    def cancel(order_id: str) -> None:
        number = next(count)
        begun[number].set()
        assert may_end[number].wait(60)
        if number == 0:
            raise ConnectionRefusedError("no answer")
        done.append(number)

    def first() -> None:
        with pytest.raises(ConnectionRefusedError):
            cancel("W1")

    threads = [threading.Thread(target=first), threading.Thread(target=cancel, args=("W1",))]
    threads[0].start()
    assert begun[0].wait(60)
    assert len(guard.reconcile(-1.0)) == 1
    threads[1].start()
    assert begun[1].wait(60)
    may_end[0].set()
    threads[0].join()

    assert state_of(guard) is State.DISPATCHED
    assert "granted to a later decision" in caplog.text
    with pytest.raises(amv.ActionAbstained, match="which is DISPATCHED"):
        cancel("W1")
    may_end[1].set()
    threads[1].join()
    assert done == [1]
    assert guard.replay() == []
