"""Verifiers: whatever they do, the gate gets an answer in time, or none that counts."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import amv
from amv import verifiers
from amv.client import Client
from amv.guard.policy import VerifierRule
from amv.guard.ports import Finding
from amv.testing import FakeClock
from amv.verifiers import Verifiers, lifetime_s
from tests.guard.gates import OWNER, cancel, opened, policy_of, remember

RULE = VerifierRule(timeout_s=20.0)
SHORT = VerifierRule(timeout_s=0.05)
PATIENCE_S = 15.0


def run(function: Callable[..., Any], rule: VerifierRule = RULE, **arguments: Any) -> Finding:
    """Return what one function gives for one check."""
    checker = Verifiers()
    checker.register("v", function)
    return checker.run("v", rule, arguments, worth=1.0)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Give an event that hung checks wait for, and end them."""
    event = threading.Event()
    yield event
    event.set()


def test_a_function_is_asked_with_its_arguments() -> None:
    assert run(lambda a, b: [a, b], a=1, b="x") == Finding([1, "x"])


def test_a_function_gets_those_arguments_of_the_action_that_it_takes() -> None:
    """An action that gets one more argument must not silence its verifiers."""
    given: dict[str, Any] = {"order_id": "W1", "note": "x"}

    assert run(lambda order_id: order_id, **given) == Finding("W1")
    assert run(lambda order_id, shop="main": [order_id, shop], **given) == Finding(["W1", "main"])
    assert run(lambda **all_of_them: all_of_them, **given) == Finding(given)
    assert run(lambda: "pending", **given) == Finding("pending")
    # One that says nothing of what it takes gets all.
    assert run(dict, **given) == Finding(given)


def test_a_function_that_takes_none_of_the_actions_arguments_tells_nothing() -> None:
    """What it says by its defaults is not about this action."""
    finding = run(lambda number="W2": "pending", order_id="W1", note="x")

    assert finding == Finding(
        None,
        "the verifier takes number, the action has order_id, note: name what it gets in `args`",
        "not_asked",
    )
    assert "the action has none" in run(lambda number: number).problem


def test_a_function_gets_all_that_its_rule_names() -> None:
    """What the policy says is meant, so a slip in it is no evidence."""
    rule = VerifierRule(timeout_s=20.0, args={"order_id": "$order_id", "shop": "main"})

    assert "unexpected keyword" in run(lambda order_id: "x", rule, order_id="W1", shop="m").problem


def test_an_async_function_is_asked_too() -> None:
    async def status(order_id: str) -> str:
        await asyncio.sleep(0)
        return f"{order_id} is pending"

    assert run(status, order_id="W1") == Finding("W1 is pending")


def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    async def status() -> str:
        return "pending"

    assert run(lambda: status()) == Finding("pending")


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError(), SystemExit(1), KeyboardInterrupt(), RecursionError()]
)
def test_a_function_that_raises_is_no_evidence(error: BaseException) -> None:
    def fails() -> None:
        raise error

    finding = run(fails)

    assert finding.value is None
    assert finding.problem.startswith("the verifier failed: ")


def test_an_exception_that_can_not_be_shown_is_no_evidence_and_ends_its_check() -> None:
    """Else its thread would be gone, and the check count as under way for ever."""

    class Unshown(Exception):
        def __repr__(self) -> str:
            raise SystemExit(1)

    def fails() -> None:
        raise Unshown

    checker = Verifiers()
    checker.register("v", fails)

    for _ in range(verifiers.RUNNING_MAX + 1):
        finding = checker.run("v", RULE, {}, worth=1.0)
        assert finding == Finding(None, "the verifier failed: Unshown")


@pytest.mark.parametrize(
    ("reply", "path", "says"),
    [
        (math.nan, "$", "not finite"),
        ({"a": math.inf}, "$.a", "not finite"),
        ({"a": 1}, "$.b", "nothing at $.b"),
        ({"a": 1}, "$.a.b", "nothing at $.a.b"),
        ([1], "$[1]", "nothing at $[1]"),
        ({"a": 1}, "$[0]", r"nothing at $[0]"),
        ([1], "$.a", "nothing at $.a"),
        ("text", "$.a", "nothing at $.a"),
    ],
)
def test_a_reply_without_the_value_is_no_evidence(reply: object, path: str, says: str) -> None:
    finding = run(lambda: reply, VerifierRule(read=path, timeout_s=20.0))

    assert finding.value is None
    assert says in finding.problem


@pytest.mark.parametrize(
    ("reply", "path", "value"),
    [
        ({"order": {"items": [{"state-x": 3}]}}, "$.order.items[0].state-x", 3),
        ([["a"], "b"], "$[1]", "b"),
        ((1, 2), "$[0]", 1),
        ({"a": None}, "$.a", None),
        (amv.NOT_FOUND, "$.a.b", amv.NOT_FOUND),
    ],
)
def test_a_value_is_read_at_its_path(reply: object, path: str, value: object) -> None:
    assert run(lambda: reply, VerifierRule(read=path, timeout_s=20.0)) == Finding(value)


def test_what_is_not_registered_is_no_evidence() -> None:
    checker = Verifiers()
    checker.register("other", lambda: "pending")

    assert "nothing is registered as 'v'" in checker.run("v", RULE, {}, worth=1.0).problem
    named = VerifierRule(tool="other", timeout_s=20.0)
    assert checker.run("v", named, {}, worth=1.0) == Finding("pending")
    with pytest.raises(amv.InvalidInput, match="must be a function"):
        checker.register("v", "pending")  # type: ignore[arg-type]


def test_arguments_that_are_no_json_are_no_evidence() -> None:
    assert "must be JSON" in run(lambda a: "pending", a=object()).problem


# ---------------------------------------------------------------- deadlines


def test_a_check_that_hangs_ends_at_its_deadline(hanging: threading.Event) -> None:
    start_s = time.monotonic()

    finding = run(lambda: hanging.wait(), SHORT)

    assert finding == Finding(None, "no answer within 0.05 s", "timed_out")
    assert time.monotonic() - start_s < PATIENCE_S


def test_a_decision_takes_about_as_long_as_its_checks_may(hanging: threading.Event) -> None:
    policy = policy_of(verifiers={"order_status": {"cost": 0.02, "timeout_s": 0.1}})
    with opened(policy=policy) as guard:
        guard.verifier("order_status")(lambda order_id: hanging.wait())
        remember(guard)
        start_s = time.monotonic()

        decision = guard.decide(cancel())

        assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
        assert 0.1 <= time.monotonic() - start_s < PATIENCE_S
        assert "no answer within 0.1 s" in guard.explain(decision.id)


def test_an_answer_that_comes_too_late_is_neither_used_nor_kept(hanging: threading.Event) -> None:
    """Whoever asks next asks anew."""
    checker, calls, ended = Verifiers(), list[int](), threading.Event()

    def slow_at_first() -> str:
        calls.append(1)
        if len(calls) == 1:
            hanging.wait()
            ended.set()
            return "late"
        return "fresh"

    checker.register("v", slow_at_first)
    rule = VerifierRule(timeout_s=0.05, fresh_s=1000.0)
    assert checker.run("v", rule, {}, worth=0.0).problem
    hanging.set()
    assert ended.wait(PATIENCE_S)
    patient = VerifierRule(timeout_s=20.0, fresh_s=1000.0)

    assert checker.run("v", patient, {}, worth=0.0) == Finding("fresh")


def test_so_many_checks_may_hang_and_no_more(
    hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a thread; when they end, there is room again."""
    monkeypatch.setattr(verifiers, "RUNNING_MAX", 3)
    checker = Verifiers()
    ended = threading.Semaphore(0)

    def hangs(n: int) -> bool:
        is_over = hanging.wait()
        ended.release()
        return is_over

    checker.register("v", hangs)
    for n in range(3):
        assert "no answer" in checker.run("v", SHORT, {"n": n}, worth=1.0).problem

    assert "3 checks are under way" in checker.run("v", SHORT, {"n": 3}, worth=1.0).problem
    hanging.set()
    for _ in range(3):
        assert ended.acquire(timeout=PATIENCE_S)
    until_s = time.monotonic() + PATIENCE_S
    while checker._running and time.monotonic() < until_s:
        time.sleep(0.01)
    assert checker.run("v", RULE, {"n": 4}, worth=1.0) == Finding(True)


def test_a_check_for_which_there_is_no_thread_is_no_evidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checker = Verifiers()
    checker.register("v", lambda: "pending")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert "can't start" in checker.run("v", RULE, {}, worth=1.0).problem

    assert checker._running == 0
    assert checker.run("v", RULE, {}, worth=1.0) == Finding("pending")


# ---------------------------------------------------------------- asking once


def test_checks_that_are_the_same_at_the_same_time_are_made_once() -> None:
    checker, calls, start = Verifiers(), list[int](), threading.Barrier(16)
    all_wait = threading.Event()

    def status(order_id: str) -> str:
        calls.append(1)
        all_wait.wait(PATIENCE_S)
        return "pending"

    checker.register("v", status)

    def ask(number: int) -> Finding:
        start.wait()
        if number == 0:
            threading.Timer(0.5, all_wait.set).start()
        return checker.run("v", RULE, {"order_id": "W1"}, worth=1.0)

    with ThreadPoolExecutor(16) as pool:
        findings = list(pool.map(ask, range(16)))

    assert findings == [Finding("pending")] * 16
    assert len(calls) == 1


def test_checks_with_other_arguments_are_others() -> None:
    checker = Verifiers()
    checker.register("v", lambda n: [n])

    fresh = VerifierRule(timeout_s=20.0, fresh_s=1000.0)
    for n in (5, "5", None, True):
        assert checker.run("v", fresh, {"n": n}, worth=0.0).value == [n]


def counting(clock: FakeClock) -> tuple[Verifiers, list[int]]:
    """Return a checker whose only verifier counts its calls."""
    checker, calls = Verifiers(clock), list[int]()

    def status() -> int:
        calls.append(1)
        return len(calls)

    checker.register("v", status)
    return checker, calls


def test_a_reading_is_used_again_as_long_as_that_is_worth_it() -> None:
    clock = FakeClock()
    checker, calls = counting(clock)
    rule = VerifierRule(cost=0.1, fresh_s=3600.0, timeout_s=20.0)
    assert lifetime_s(rule, 10.0) == 36.0

    assert checker.run("v", rule, {}, worth=10.0).value == 1
    clock.advance(36.0)
    assert checker.run("v", rule, {}, worth=10.0).value == 1
    # What matters more wants a newer one, which then serves what matters less.
    assert checker.run("v", rule, {}, worth=20.0).value == 2
    clock.advance(36.5)
    assert checker.run("v", rule, {}, worth=10.0).value == 3
    assert len(calls) == 3


@pytest.mark.parametrize("worth", [0.0, 0.05, 0.1, math.nan])
def test_a_reading_lives_as_long_as_its_source_where_little_is_at_stake(worth: float) -> None:
    assert lifetime_s(VerifierRule(cost=0.1, fresh_s=60.0), worth) == 60.0


def test_without_a_lifetime_each_check_is_made() -> None:
    checker, _ = counting(FakeClock())

    assert [checker.run("v", RULE, {}, worth=0.0).value for _ in range(3)] == [1, 2, 3]


def test_what_a_function_said_goes_with_it(hanging: threading.Event) -> None:
    """Neither kept nor under way does it answer for the function that took its place."""
    rule = VerifierRule(cost=0.1, fresh_s=3600.0, timeout_s=20.0)
    checker, begun = Verifiers(), threading.Event()

    def waits() -> str:
        begun.set()
        hanging.wait(PATIENCE_S)
        return "waited"

    checker.register("v", lambda: "old")
    assert checker.run("v", rule, {}, worth=0.0).value == "old"
    checker.register("v", waits)
    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(checker.run, "v", rule, {}, worth=0.0)
        assert begun.wait(PATIENCE_S)
        checker.register("v", lambda: "new")
        assert checker.run("v", rule, {}, worth=math.inf).value == "new"
        hanging.set()
        assert earlier.result().value == "waited"
    assert checker.run("v", rule, {}, worth=0.0).value == "new"


def test_what_was_no_evidence_is_not_kept() -> None:
    checker, answers = Verifiers(), iter([math.nan, "pending"])
    checker.register("v", lambda: next(answers))
    rule = VerifierRule(timeout_s=20.0, fresh_s=1000.0)

    assert checker.run("v", rule, {}, worth=0.0).problem
    assert checker.run("v", rule, {}, worth=0.0) == Finding("pending")


def test_so_many_readings_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifiers, "READINGS_MAX", 2)
    checker, calls = Verifiers(), list[int]()
    checker.register("v", lambda n: calls.append(n))
    rule = VerifierRule(timeout_s=20.0, fresh_s=1000.0)
    for n in (1, 2, 3, 3, 2, 1):
        checker.run("v", rule, {"n": n}, worth=0.0)

    assert calls == [1, 2, 3, 1]


# ---------------------------------------------------------------- independence


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("way", ["search", "claim", "write", "gate", "caught", "async"])
def test_a_verifier_that_asks_the_memory_is_no_evidence_for_it(
    where: str, way: str, tmp_path: Any
) -> None:
    """Not even if it hides that the memory refused to answer it."""
    with opened(":memory:" if where == "memory" else str(tmp_path / "amv.db")) as guard:
        memory = guard.memory

        def order_status(order_id: str) -> Any:
            if way == "search":
                return memory.search("order", namespace=OWNER).hits[0].item.claim
            if way == "claim":
                return memory.find_claim(OWNER, f"order/{order_id}", "status")
            if way == "write":
                memory.add("seen", namespace=OWNER)
            if way == "gate":
                guard.decisions()
            if way == "caught":
                try:
                    memory.list(namespace=OWNER)
                except amv.AmvError:
                    return "pending"
            return asynchronous()

        async def asynchronous() -> str:
            await asyncio.to_thread(memory.list, namespace=OWNER)
            return "pending"

        guard.verifier("order_status")(order_status)
        remember(guard)
        decision = guard.decide(cancel())

        assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
        assert "not independent" in guard.explain(decision.id)
        # Outside a verifier the memory answers as ever.
        assert len(memory.list(namespace=OWNER).items) == 1


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("way", ["thread", "pool", "thread of a thread", "caught"])
def test_a_verifier_that_has_a_thread_ask_the_memory_is_found_out_too(
    where: str, way: str, tmp_path: Any
) -> None:
    """A new thread knows nothing of the context of the one that started it."""
    with opened(":memory:" if where == "memory" else str(tmp_path / "amv.db")) as guard:
        memory, seen = guard.memory, list[Any]()

        def ask() -> None:
            try:
                seen.append(memory.list(namespace=OWNER))
            except amv.Conflict as error:
                seen.append(error)
                if way != "caught":
                    raise

        def in_thread(target: Callable[[], None]) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(target).exception()

        def order_status(order_id: str) -> str:
            if way == "pool":
                in_thread(ask)
            elif way == "thread of a thread":
                in_thread(lambda: in_thread(ask))
            else:
                thread = threading.Thread(target=lambda: in_thread(ask))
                thread.start()
                thread.join()
            return "pending"

        guard.verifier("order_status")(order_status)
        remember(guard)
        decision = guard.decide(cancel())

        assert [type(one) for one in seen] == [amv.Conflict]
        assert (decision.verdict, decision.code) == ("ABSTAIN", "unresolved")
        assert [one.ended for one in decision.checks] == ["refused"]


def test_a_thread_that_outlives_its_verifier_is_a_thread_like_others(
    hanging: threading.Event,
) -> None:
    """A pool that grew inside a verifier goes on to serve the rest of the program."""
    with opened() as guard, ThreadPoolExecutor(1) as pool:

        def order_status(order_id: str) -> str:
            return str(pool.submit(lambda: "pending").result())

        guard.verifier("order_status")(order_status)
        remember(guard)
        assert guard.decide(cancel()).verdict == "PROCEED"

        found = pool.submit(guard.memory.list, namespace=OWNER).result()

        assert len(found.items) == 1


def test_other_threads_may_read_while_a_check_is_made(hanging: threading.Event) -> None:
    """What they read has nothing to do with it."""
    reading, read = threading.Event(), list[int]()
    with opened() as guard:

        def order_status(order_id: str) -> str:
            reading.set()
            hanging.wait(PATIENCE_S)
            return "pending"

        guard.verifier("order_status")(order_status)
        remember(guard)

        def reads() -> None:
            reading.wait(PATIENCE_S)
            read.append(len(guard.memory.list(namespace=OWNER).items))
            hanging.set()

        other = threading.Thread(target=reads)
        other.start()
        decision = guard.decide(cancel())
        other.join()

        assert (decision.verdict, read) == ("PROCEED", [1])


def test_a_verifier_does_not_ask_through_a_client() -> None:
    def order_status(order_id: str) -> str:
        with Client("http://127.0.0.1:9") as client:
            return str(client.list(namespace=OWNER))

    finding = run(order_status, order_id="W1")

    assert (finding.fault, "not independent" in finding.problem) == ("refused", True)


# ---------------------------------------------------------------- how checks end


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        ("answered", ""),
        ("inconclusive", ""),
        ("failed", "ZeroDivisionError"),
        ("timed_out", "no answer within 0.1 s"),
        ("refused", "not independent"),
        ("not_asked", "nothing is registered"),
    ],
)
def test_each_way_in_which_a_check_can_end_has_a_name(
    ended: str, problem: str, hanging: threading.Event
) -> None:
    """A verifier that broke is not one that was silent."""
    policy = policy_of(verifiers={"order_status": {"cost": 0.02, "timeout_s": 0.1}})
    with opened(policy=policy) as guard:
        ways: dict[str, Callable[[str], Any]] = {
            "answered": lambda order_id: "pending",
            "inconclusive": lambda order_id: None,
            "failed": lambda order_id: 1 / 0,
            "timed_out": lambda order_id: hanging.wait(),
            "refused": lambda order_id: guard.memory.list(namespace=OWNER),
        }
        if ended in ways:
            guard.verifier("order_status")(ways[ended])
        remember(guard)

        decision = guard.decide(cancel())

        (check,) = decision.checks
        assert (check.verifier, check.ended) == ("order_status", ended)
        assert problem in check.problem
        assert bool(problem) == bool(check.problem)
        told = "confirmed" if ended == "answered" else "inconclusive"
        assert check.found == {"status": told}
        assert guard.get(decision.id).checks == decision.checks
        said = told if ended == "answered" else ended
        assert f"check order_status: {said}" in guard.explain(decision.id)
        if ended != "answered":
            assert decision.reason.endswith(f"told nothing of status (order_status: {ended})")
        assert guard.replay() == []
