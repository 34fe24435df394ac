"""Under load: what is too much is turned away at once, and the server answers all the same."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from amv.config import ServerSettings
from amv.memory.item import Item
from amv.memory.query import Found
from amv.server.app import Gateway
from amv.server.replies import Send
from amv.server.request import Receive, Scope
from amv.server.work import SLICE_S, Lane, Overloaded, Turns
from tests.server.cases import ITEM, add_item, problem
from tests.server.conftest import SRC, WAIT_S, Running, client_of, running

JSON = {"content-type": "application/json"}
AT_ONCE_S = 2.0
"""Far above what an answer takes that waits for nothing, far below WAIT_S."""


class Gate:
    """Holds up every `get` of a memory until it is opened, and counts those that came."""

    def __init__(self, served: Running) -> None:
        self._get = served.memory.get
        self._open = threading.Event()
        self.began = threading.Semaphore(0)
        self.asked: list[str] = []
        served.memory.get = self.get  # type: ignore[method-assign]

    def get(self, item_id: str, **how: Any) -> Item:
        self.asked.append(item_id)
        self.began.release()
        assert self._open.wait(WAIT_S)
        return self._get(ITEM, **how)

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.began.acquire(timeout=WAIT_S)

    def open(self) -> None:
        self._open.set()


@contextmanager
def held_up(path: Path, **settings: int) -> Iterator[tuple[Running, Gate, ThreadPoolExecutor]]:
    """Serve with these limits, every read of an item being held up."""
    server = ServerSettings(port=0, **settings)  # type: ignore[arg-type]
    with running(path / "served.db", server) as served, ThreadPoolExecutor(16) as pool:
        add_item(served.http(), ["a"])
        gate = Gate(served)
        try:
            yield served, gate, pool
        finally:
            gate.open()


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def statuses(replies: list[Future[httpx.Response]]) -> list[int]:
    return [reply.result(WAIT_S).status_code for reply in replies]


def test_a_full_queue_turns_away_at_once_and_recovers(tmp_path: Path) -> None:
    with held_up(tmp_path, read_threads=1, queue_max=2) as (served, gate, pool):
        http = served.http()
        waiting = [pool.submit(http.get, f"/v1/items/{ITEM}") for _ in range(3)]
        until(lambda: served.gateway.lanes.read.under_way == 3)
        began_s = time.monotonic()
        refused = [http.get(f"/v1/items/{ITEM}") for _ in range(3)]
        alive = http.get("/health")
        metrics = http.get("/metrics")
        written = http.post("/v1/items", json={"content": "x", "namespace": ["a"]})
        took_s = time.monotonic() - began_s
        gate.open()

        assert [problem(reply) for reply in (*refused, metrics)] == [(503, "overloaded")] * 4
        assert {reply.headers["retry-after"] for reply in refused} == {"1"}
        assert (alive.status_code, written.status_code) == (200, 201)
        assert took_s < AT_ONCE_S
        assert statuses(waiting) == [200] * 3
        assert http.get(f"/v1/items/{ITEM}").status_code == 200


def test_one_key_can_not_take_all(tmp_path: Path) -> None:
    with held_up(tmp_path, per_key_max=2) as (served, gate, pool):
        busy, other = served.http(served.key()), served.http(served.key())
        waiting = [pool.submit(busy.get, f"/v1/items/{ITEM}") for _ in range(2)]
        gate.wait_for(2)
        refused, let_in = busy.get("/v1/namespaces"), other.get("/v1/namespaces")
        gate.open()

        assert problem(refused) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert let_in.status_code == 200
        assert statuses(waiting) == [200, 200]
        assert busy.get("/v1/namespaces").status_code == 200


def test_what_waited_past_its_deadline_is_not_begun(tmp_path: Path) -> None:
    with held_up(tmp_path, read_threads=1) as (served, gate, pool):
        http = served.http()
        first = pool.submit(http.get, f"/v1/items/{ITEM}")
        gate.wait_for(1)
        late = http.get("/v1/items/late", headers={"amv-timeout-ms": "50"})
        gate.open()

        assert problem(late) == (504, "deadline_exceeded")
        assert statuses([first]) == [200]
        until(lambda: served.gateway.lanes.read.under_way == 0)
        assert gate.asked == [ITEM]


def test_what_runs_past_its_deadline_is_told_so(tmp_path: Path) -> None:
    with held_up(tmp_path) as (served, gate, _):
        late = served.http().get(f"/v1/items/{ITEM}", headers={"amv-timeout-ms": "50"})

        assert problem(late) == (504, "deadline_exceeded")
        assert gate.asked == [ITEM]


def test_large_bodies_on_their_way_are_bounded_together(tmp_path: Path) -> None:
    server = ServerSettings(port=0, body_bytes_max=4096)
    with running(tmp_path / "served.db", server) as served, ThreadPoolExecutor(8) as pool:
        end = threading.Event()

        def slowly() -> Iterator[bytes]:
            yield b" " * 2000
            yield b" " * 2000
            assert end.wait(WAIT_S)

        def in_parts() -> Iterator[bytes]:
            for _ in range(3):
                yield b" " * 1000
                time.sleep(0.03)

        http, kind = served.http(), {"content-type": "application/json"}
        waiting = [
            pool.submit(http.post, "/v1/sweep", content=slowly(), headers=kind) for _ in range(4)
        ]
        until(lambda: served.gateway.bodies._held >= 4 * 4000)
        refused = http.post("/v1/sweep", content=in_parts(), headers=kind)
        end.set()

        assert problem(refused) == (503, "overloaded")
        assert statuses(waiting) == [400] * 4
        assert served.gateway.bodies._held == 0


def busy(most: int) -> Turns:
    """Return turns of which the present slice is used up."""
    turns = Turns(most)
    turns._spent_s = SLICE_S
    return turns


def test_searches_on_the_event_loop_are_bounded() -> None:
    async def flood() -> list[object]:
        turns = busy(2)
        found = [asyncio.create_task(turns.run(partial(int, n))) for n in range(3)]
        await asyncio.sleep(0)
        was_taken = turns.are_taken
        return [
            *await asyncio.gather(*found, return_exceptions=True),
            was_taken,
            turns.are_taken,
            await turns.run(lambda: "later"),
        ]

    one, two, refused, was_taken, is_taken, later = asyncio.run(flood())

    assert (one, two, later) == (0, 1, "later")
    assert isinstance(refused, Overloaded)
    assert (was_taken, is_taken) == (True, False)


def test_what_arrives_is_looked_at_between_searches() -> None:
    """A request that is turned away, or asks for health, does not wait for all that were let in."""
    log = list[str]()

    def search() -> None:
        log.append("searched")
        time.sleep(SLICE_S)

    async def look() -> None:
        while log.count("searched") < 10:
            log.append("looked")
            await asyncio.sleep(0)

    async def both() -> None:
        turns = Turns(128)
        await asyncio.gather(*(turns.run(search) for _ in range(10)), look())

    asyncio.run(both())

    assert "searched searched" not in " ".join(log)


def test_one_who_is_gone_holds_up_nobody_and_searches_nothing() -> None:
    done = list[str]()

    async def wait() -> None:
        turns = busy(128)
        gone = asyncio.create_task(turns.run(lambda: done.append("gone")))
        stays = asyncio.create_task(turns.run(lambda: done.append("stays")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait_for(stays, WAIT_S)

    asyncio.run(wait())

    assert done == ["stays"]


@pytest.mark.parametrize("turns", [Turns(1), busy(1)])
def test_work_that_fails_has_had_its_turn(turns: Turns) -> None:
    async def fail() -> str:
        with pytest.raises(ZeroDivisionError):
            await turns.run(lambda: 1 // 0)
        return await turns.run(lambda: "next")

    assert asyncio.run(fail()) == "next"


def test_a_search_too_many_is_turned_away_before_it_is_read(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a body and then refuse it would cost what was to be spared."""
    monkeypatch.setattr(Turns, "are_taken", True)
    refused = served.http().post("/v1/search", content=b"{", headers=JSON)
    other = served.http().post("/v1/context", content=b"{", headers=JSON)

    assert problem(refused) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert problem(other) == (400, "invalid_input")


def test_a_search_on_the_event_loop_comes_in_time_or_not_at_all(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"namespace": ["a"], "vector": [1.0] * 64}
    http = served.http()
    add_item(http, ["a"])
    http.post("/v1/search", json=body)
    assert served.memory.is_resident(("a",))

    run = Turns.run

    async def late(turns: Turns, work: Callable[[], object]) -> object:
        await asyncio.sleep(0.02)
        return await run(turns, work)

    monkeypatch.setattr(Turns, "run", late)
    in_time = http.post("/v1/search", json=body)
    too_late = http.post("/v1/search", json=body, headers={"amv-timeout-ms": "10"})

    assert in_time.status_code == 200
    assert problem(too_late) == (504, "deadline_exceeded")


def test_a_search_that_would_hold_up_the_event_loop_goes_elsewhere(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where indexing began between its arrival and its turn."""
    add_item(served.http(), ["a"])
    answers, threads = iter([True, False]), list[str]()
    find = served.memory.find

    def noted(*given: Any, **how: Any) -> Found:
        threads.append(threading.current_thread().name)
        return find(*given, **how)

    monkeypatch.setattr(served.memory, "is_resident", lambda _: next(answers))
    monkeypatch.setattr(served.memory, "find", noted)
    body = {"namespace": ["a"], "vector": [1.0] * 64}

    assert served.http().post("/v1/search", json=body).status_code == 200
    assert threads[0].startswith("amv-read")


def test_a_lane_lets_what_was_begun_finish() -> None:
    done: list[int] = []

    async def begin() -> None:
        lane = Lane("test", threads=1, queue_max=4)
        began, end = threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            assert end.wait(WAIT_S)
            done.append(1)

        first = asyncio.create_task(lane.run(work, time.monotonic() + WAIT_S))
        second = asyncio.create_task(lane.run(lambda: done.append(2), time.monotonic() + WAIT_S))
        await asyncio.to_thread(began.wait, WAIT_S)
        end.set()
        await asyncio.to_thread(lane.close)
        await asyncio.gather(first, second, return_exceptions=True)

    asyncio.run(begin())

    assert done[0] == 1


def check_health(http: httpx.Client, is_over: Callable[[], bool]) -> None:
    """Ask for health until something is over; it must be told again and again meanwhile.

    How soon is what `python -m bench.health` measures.
    """
    answered = 0
    while not is_over():
        assert http.get("/health").status_code == 200
        answered += not is_over()
        time.sleep(0.005)

    # One or two would be what is answered before and after a loop that waits.
    assert answered >= 5


@pytest.mark.parametrize("kind", ["texts", "vectors"])
def test_health_answers_during_a_bulk_add(served: Running, kind: str) -> None:
    items: list[dict[str, Any]] = [
        {"content": f"number {n} of many words that are to be kept", "namespace": ["bulk"]}
        for n in range(2000)
    ]
    if kind == "vectors":
        for n, item in enumerate(items):
            item["vector"] = [float((n * k) % 97) - 48.5 for k in range(64)]
    http = served.http()
    http.get("/health")
    with ThreadPoolExecutor(1) as pool:
        bulk = pool.submit(http.post, "/v1/items", json=items)
        check_health(http, bulk.done)

    assert bulk.result().status_code == 201


def test_health_answers_while_another_process_changes_the_embedder(served: Running) -> None:
    """The new vectors are staged beside the old ones, with which searches go on."""
    items = [{"content": f"number {n} of many words", "namespace": ["a"]} for n in range(1500)]
    http = served.http()
    assert http.post("/v1/items", json=items).status_code == 201
    command = [sys.executable, "-m", "amv", "--db", str(served.path), "reembed", "hashing:32"]
    environ = {**os.environ, "PYTHONPATH": str(SRC), "OPENBLAS_NUM_THREADS": "1"}
    changing = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)
    try:
        check_health(http, lambda: changing.poll() is not None)
    finally:
        changing.kill()

    assert changing.wait(WAIT_S) == 0
    assert http.get("/health").status_code == 200
    # From now on the gateway can't help: that is no fault of whoever asks.
    search = {"namespace": ["a"], "query": "number"}
    for path, body in (("/v1/search", search), ("/v1/items", items[0])):
        reply = http.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "embedder_changed")
        assert "restart what serves it" in reply.json()["error"]["message"]
        # Waiting is of no use, and whoever watches must learn of it.
        assert "retry-after" not in reply.headers
        health = http.get("/health")
        assert (health.status_code, health.json()) == (503, reply.json())


def test_health_waits_for_what_came_before_it_only(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches on the event loop take turns with it, however many clients send them.

    Counted are the searches begun between the arrival of a request for health
    and its answer, which no other work on this machine changes.
    """
    clients = 16
    item = {"content": "x", "namespace": ["a"], "vector": [1.0] * 64}
    served.http().post("/v1/items", json=[item] * 300)
    body = {"namespace": ["a"], "vector": [1.0] * 64, "k": 50}
    served.http().post("/v1/search", json=body)
    begun, waited_for, over = count(), list[int](), threading.Event()
    find, gateway = served.memory.find, Gateway.__call__
    asked = 0

    def counted(*given: Any, **how: Any) -> Found:
        nonlocal asked
        asked = next(begun)
        assert threading.current_thread().name == "gateway"
        return find(*given, **how)

    async def noted(self: Gateway, scope: Scope, receive: Receive, send: Send) -> None:
        before = asked
        await gateway(self, scope, receive, send)
        if scope["path"] == "/health":
            waited_for.append(asked - before)

    def keep_searching() -> int:
        with client_of(served.url) as http:
            while not over.is_set():
                assert http.post("/v1/search", json=body).status_code == 200
        return 1

    monkeypatch.setattr(served.memory, "find", counted)
    monkeypatch.setattr(Gateway, "__call__", noted)
    with ThreadPoolExecutor(clients) as pool:
        searching = [pool.submit(keep_searching) for _ in range(clients)]
        until(lambda: asked > 2 * clients)
        for _ in range(50):
            assert served.http().get("/health").status_code == 200
        over.set()
        assert sum(done.result(WAIT_S) for done in searching) == clients

    assert len(waited_for) == 50
    assert max(waited_for) <= clients
