"""The gateway as a process: it starts, stops and dies without losing what it has acknowledged."""

import gc
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import amv
from amv.server import run
from amv.server.access import Keys, Level, pepper_beside
from amv.stores.sqlite import SqliteStore
from tests.server.conftest import EMBEDDER, WAIT_S, Process, Start, client_of

WRITERS = 4


def items_in(path: Path) -> set[str]:
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(str(path), embedder=EMBEDDER, settings=settings) as memory:
        assert memory.check() == []
        page = memory.list(namespace=("a",), limit=10_000)
    return {item.id for item in page.items}


def add_until_it_ends(server: Process, end: Callable[[], object]) -> set[str]:
    """Add from several threads, call *end* once some adds are acknowledged; return which were."""
    acknowledged: set[str] = set()
    enough = threading.Event()

    def add(writer: int) -> None:
        with client_of(server.url) as http:
            for number in range(100_000):
                item_id = f"w{writer}-{number}"
                body = {"content": f"item {item_id}", "namespace": ["a"], "id": item_id}
                try:
                    reply = http.post("/v1/items", json=body)
                except httpx.HTTPError:
                    return
                if reply.status_code != 201:
                    return
                acknowledged.add(item_id)
                if len(acknowledged) >= 40:
                    enough.set()

    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(add, writer) for writer in range(WRITERS)]
        assert enough.wait(WAIT_S)
        end()
        for writer in writers:
            writer.result(WAIT_S)
    return acknowledged


def test_a_stop_loses_nothing_acknowledged(start: Start) -> None:
    server = start()
    codes: list[int] = []
    acknowledged = add_until_it_ends(server, lambda: codes.append(server.end(signal.SIGTERM)))

    assert codes == [0]
    assert acknowledged <= items_in(server.path)


def test_a_kill_loses_nothing_acknowledged(start: Start) -> None:
    server = start()
    acknowledged = add_until_it_ends(server, server.kill)
    kept = items_in(server.path)

    assert acknowledged <= kept
    assert len(kept - acknowledged) <= WRITERS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_folds_what_is_logged(start: Start, number: signal.Signals) -> None:
    """What was used counts at the next start, without anyone folding it then."""
    server = start()
    with server.http() as http:
        http.post("/v1/items", json={"content": "x", "namespace": ["a"], "id": "used"})
        assert http.post("/v1/feedback", json={"ids": ["used"]}).json() == {"noted": 1}

    assert server.end(number) == 0
    with amv.Memory.open(
        str(server.path), embedder=EMBEDDER, settings=amv.Settings(upkeep_interval_s=None)
    ) as memory:
        assert memory.get("used").contributed_count == 1


def test_a_request_under_way_is_answered_before_the_stop(start: Start) -> None:
    server = start()
    items = [{"content": f"number {n}", "namespace": ["a"]} for n in range(1500)]
    with server.http() as http, ThreadPoolExecutor(1) as pool:
        http.get("/health")
        bulk = pool.submit(http.post, "/v1/items", json=items)
        time.sleep(0.1)
        code = server.end()

        assert bulk.result(WAIT_S).status_code == 201
    assert code == 0
    assert len(items_in(server.path)) == 1500


def test_beyond_this_machine_it_needs_a_key_to_start(start: Start, tmp_path: Path) -> None:
    refused = start("--host", "0.0.0.0")
    assert refused.end() == 1
    assert "amv keys create" in "".join(refused.said)

    store = SqliteStore.open(str(refused.path))
    Keys(store, lambda: pepper_beside(str(refused.path))).create((), Level.READ, 1.0)
    store.close()
    server = start("--host", "0.0.0.0")

    assert server.url.startswith("http://0.0.0.0:")
    assert server.end() == 0


def test_an_address_that_is_taken_is_told(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = start("--port", str(taken.getsockname()[1]))

        assert refused.end() == 1
    assert "can't listen on 127.0.0.1" in "".join(refused.said)


def test_serving_leaves_the_interpreter_as_it_was() -> None:
    """Who serves from a program of their own has other uses for it, too."""
    before = sys.getswitchinterval(), gc.get_threshold()
    with run.process_tuned():
        assert sys.getswitchinterval() == pytest.approx(run.SWITCH_S)
        assert gc.get_threshold() == run.GC_THRESHOLDS

    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_the_log_is_json_without_contents(start: Start) -> None:
    server = start(environ={"AMV_LOG_LEVEL": "INFO"})
    with server.http() as http:
        body = {"content": "canary in a content", "namespace": ["canary-ns"], "id": "canary-id"}
        given = http.post("/v1/items", json=body, headers={"x-request-id": "mine-1"})
        own = http.get("/v1/items/canary-id", params={"namespace": "canary-ns"})
        http.get("/canary-path?canary=1", headers={"authorization": "Bearer canary"})
        http.post("/v1/search", json={"query": "canary words", "namespace": ["canary-ns"]})
        http.get("/health", headers={"x-request-id": "not valid"})
        http.post("/v1/search", content=b"{canary", headers={"content-type": "application/json"})
    assert server.end() == 0
    lines = [json.loads(line) for line in server.said if line.startswith("{")]

    assert given.headers["x-request-id"] == "mine-1"
    assert [line["route"] for line in lines if line["event"] == "request"] == [
        "/v1/items",
        "/v1/items/{id}",
        "",
        "/v1/search",
        "/health",
        "/v1/search",
    ]
    assert [line["status"] for line in lines] == [201, 200, 404, 200, 200, 400]
    assert lines[0]["request_id"] == "mine-1"
    assert lines[1]["request_id"] == own.headers["x-request-id"]
    assert lines[4]["request_id"] != "not valid"
    assert "canary" not in "".join(server.said)
