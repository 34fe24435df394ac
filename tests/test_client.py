"""The client: the same results and errors as a memory, and tries again only where that is safe."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amv
from amv.client import Client, Refused
from amv.client.sending import TRIES
from amv.config import ServerSettings
from amv.memory.results import ForgetReceipt, Stats
from amv.memory.service import MemoryService
from amv.server.access import Level
from amv.testing import FakeClock
from tests.server.conftest import EMBEDDER, WAIT_S, running

Call = Callable[[Any], Any]

NS = ("team", "alice")
VECTOR = np.arange(1.0, 65.0)
METHODS = {name for name in vars(Client) if not name.startswith("_")} - {"close"}


def claim(value: Any) -> amv.Claim:
    return amv.Claim("alice", "city", value)


SCRIPT: list[Call] = [
    # What can be kept.
    lambda m: m.add("Alice likes tea", namespace=NS, id="tea", metadata={"n": 1, "d": {"a": []}}),
    lambda m: m.add("In Rome", namespace=list(NS), id="rome", claim=claim("Rome"), source="chat"),
    lambda m: m.add("In Pisa", namespace=NS, id="pisa", claim=claim("Pisa"), source_trust=1),
    lambda m: m.add("by vector", namespace=NS, id="v", vector=VECTOR, pinned=True, context="c"),
    lambda m: m.add("by list", namespace=NS, id="l", vector=VECTOR.tolist()),
    lambda m: m.add("Nones", namespace=NS, id="n", source=None, metadata=None, claim=None),
    lambda m: m.add("times", namespace=NS, id="t", valid_until=datetime(2040, 1, 1, tzinfo=UTC)),
    lambda m: m.add("naive", namespace=NS, id="t2", valid_until=datetime(2040, 1, 1)),  # noqa: DTZ001
    lambda m: m.add("iso", namespace=NS, id="t3", expires_at="2041-05-06T07:08:09.123456+02:00"),
    lambda m: m.add("unix", namespace=NS, id="t4", valid_from=1_600_000_000.5),
    lambda m: m.add("emoji 🦊", namespace=("日本/ü", "%"), id="a/b %2F?#"),
    lambda m: m.add("dots", namespace=NS, id=".."),
    lambda m: m.add_many({"content": f"c{n}", "namespace": NS, "id": f"m{n}"} for n in range(3)),
    lambda m: m.add_many([]),
    lambda m: m.add("Alice likes tea", namespace=NS, id="tea"),
    # What can't.
    lambda m: m.add("Alice likes wine", namespace=NS, id="tea"),
    lambda m: m.add("", namespace=NS),
    lambda m: m.add(b"bytes", namespace=NS),
    lambda m: m.add(None, namespace=NS),
    lambda m: m.add("x", namespace="team/alice"),
    lambda m: m.add("x", namespace=()),
    lambda m: m.add("x", namespace=NS, surprise=1),
    lambda m: m.add("x", namespace=NS, vector=[1.0]),
    lambda m: m.add("x", namespace=NS, vector=["a"] * 64),
    lambda m: m.add("x", namespace=NS, vector=[float("nan")] * 64),
    lambda m: m.add("x", namespace=NS, metadata={1: 2}),
    lambda m: m.add("x", namespace=NS, metadata={"a": {1, 2}}),
    lambda m: m.add("x", namespace=NS, metadata={"a": float("inf")}),
    lambda m: m.add("x", namespace=NS, metadata={"a": datetime(2020, 1, 1, tzinfo=UTC)}),
    lambda m: m.add("x", namespace=NS, metadata=[1]),
    lambda m: m.add("x", namespace=NS, source_trust=2.0),
    lambda m: m.add("x", namespace=NS, source_trust=float("nan")),
    lambda m: m.add("x", namespace=NS, valid_until="tomorrow"),
    lambda m: m.add("x", namespace=NS, claim="Rome"),
    lambda m: m.add("\ud800", namespace=NS),
    lambda m: m.add_many("text"),
    lambda m: m.add_many([1]),
    lambda m: m.add_many(5),
    # Reading.
    lambda m: m.get("tea"),
    lambda m: m.get("a/b %2F?#", namespace=("日本/ü", "%")),
    lambda m: m.get(".."),
    lambda m: m.get("tea", namespace=("nobody",)),
    lambda m: m.get("none"),
    lambda m: m.get(""),
    lambda m: m.get(5),
    lambda m: m.list(namespace=NS, limit=3),
    lambda m: m.list(namespace=NS, limit=3, cursor=m.list(namespace=NS, limit=3).cursor),
    lambda m: m.list(namespace=NS, source="chat", status=None),
    lambda m: m.list(namespace=NS, status="superseded"),
    lambda m: m.list(namespace=NS, status="strange"),
    lambda m: m.list(namespace=NS, limit=0),
    lambda m: m.list(namespace=NS, cursor="made up"),
    lambda m: m.find_claim(NS, "alice", "city"),
    lambda m: m.find_claim(NS, "alice", "hat & coat"),
    lambda m: m.find_claim(NS, "", "city"),
    lambda m: m.history("pisa"),
    lambda m: m.add("In Bern", namespace=NS, id="bern", claim=claim("Bern"), source_trust=0),
    lambda m: m.contradicting("pisa"),
    lambda m: m.contradicting("bern", namespace=NS),
    lambda m: m.contradicting("tea"),
    lambda m: m.contradicting("none"),
    lambda m: m.contradicting("pisa", namespace=("nobody",)),
    lambda m: m.refute("bern"),
    lambda m: m.namespaces(),
    lambda m: m.search("tea", namespace=NS, k=3),
    lambda m: m.search(vector=VECTOR, namespace=NS, k=2, cold=True),
    lambda m: m.search("tea", vector=VECTOR, namespace=NS, filter={"n": {"gte": 1}}),
    lambda m: m.search("Rome", namespace=NS, as_of=datetime(2035, 1, 1, tzinfo=UTC)),
    lambda m: m.search("  ", namespace=NS),
    lambda m: m.search(namespace=NS),
    lambda m: m.search("x", namespace=NS, k=0),
    lambda m: m.search("x", namespace=NS, k="3"),
    lambda m: m.search("x", namespace=NS, filter={"n": {"strange": 1}}),
    lambda m: m.search("x", namespace=NS, vector=[1.0, 2.0]),
    lambda m: m.context("tea", namespace=NS, token_budget=50),
    lambda m: m.context("tea", namespace=NS, token_budget=0),
    # Changing.
    lambda m: m.update("tea", content="Alice likes mate", source_trust=0.25),
    lambda m: m.update("t", valid_until=None),
    lambda m: m.update("tea"),
    lambda m: m.update("tea", source="x"),
    lambda m: m.update("none", content="x"),
    lambda m: m.pin("tea"),
    lambda m: m.pin("tea", False, namespace=NS),
    lambda m: m.pin("tea", "yes"),
    lambda m: m.confirm("pisa"),
    lambda m: m.reinforce(["tea", "none", "v"]),
    lambda m: m.reinforce(["tea"], negative=True, namespace=NS),
    lambda m: m.reinforce("tea"),
    lambda m: m.refute("l"),
    lambda m: m.refute("l"),
    lambda m: m.refute("tea", "no claim"),
    lambda m: m.refute("pisa", "Bari").claim,
    lambda m: m.history("tea", namespace=NS),
    lambda m: m.sweep(dry_run=True),
    lambda m: m.sweep(),
    lambda m: m.stats(NS),
    lambda m: m.stats(),
    # Forgetting.
    lambda m: m.forget("tea"),
    lambda m: m.forget("tea"),
    lambda m: m.forget("a/b %2F?#", namespace=("日本/ü", "%")),
    lambda m: m.forget_namespace(("日本/ü", "%")),
    lambda m: m.forget_namespace(NS).namespace,
    lambda m: m.forget_namespace(("nobody",)),
    lambda m: m.forget_namespace("team"),
    lambda m: m.namespaces(),
]  # fmt: skip


def outcome(memory: Any, call: Call) -> object:
    """Return what a call gives, or the type of the error it raises."""
    try:
        found = call(memory)
    except amv.AmvError as error:
        return type(error)
    if isinstance(found, ForgetReceipt):
        return found.item_ids, found.namespace, found.count, found.erased
    # A file's size depends on more than what was asked of it.
    return (found, found.store_bytes > 0) if isinstance(found, Stats) else found


def ids_of(items: list[amv.Item]) -> list[str]:
    return [item.id for item in items]


def without_size(found: object) -> object:
    if isinstance(found, tuple) and found and isinstance(found[0], Stats):
        return {**{n: getattr(found[0], n) for n in found[0].__slots__}, "store_bytes": found[1]}
    return found


def test_a_client_gives_and_raises_what_a_memory_does(tmp_path: Path) -> None:
    settings = amv.Settings(upkeep_interval_s=None)
    with (
        running(tmp_path / "served.db") as served,
        Client(served.url) as client,
        amv.Memory.open(
            str(tmp_path / "own.db"), embedder=EMBEDDER, settings=settings, clock=FakeClock()
        ) as memory,
    ):
        raised = set()
        for number, call in enumerate(SCRIPT):
            wanted, found = outcome(memory, call), outcome(client, call)
            raised |= {wanted} if isinstance(wanted, type) else set()

            assert without_size(found) == without_size(wanted), f"call {number}"
    assert raised >= {
        amv.errors.InvalidInput,
        amv.errors.InvalidNamespace,
        amv.errors.DimensionMismatch,
        amv.errors.ItemNotFound,
        amv.errors.Conflict,
    }


def test_the_script_calls_every_method() -> None:
    called = {name for call in SCRIPT for name in call.__code__.co_names}

    assert called >= METHODS


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_takes_what_the_memory_takes(name: str) -> None:
    ours, theirs = signature(getattr(Client, name)), signature(getattr(MemoryService, name))
    not_over_http = {"context": {"count_tokens"}, "sweep": {"namespace"}}.get(name, set())

    assert set(theirs.parameters) - set(ours.parameters) == not_over_http
    for parameter in ours.parameters.values():
        assert parameter.default == theirs.parameters[parameter.name].default
        assert parameter.kind == theirs.parameters[parameter.name].kind


def test_the_how_to_names_what_only_a_memory_has() -> None:
    """What is for AMV's own parts is no method that anybody would miss."""
    inner = "store is_resident find claim_row add_under telling watch_reads activity unindexed"
    public = {name for name in dir(amv.Memory) if not name.startswith("_")}
    text = (Path(__file__).parents[1] / "docs/how-to/serve.md").read_text()
    (told,) = re.findall(r"It lacks (.*?)\.\n", text, re.DOTALL)

    lacking = public - METHODS - set(inner.split()) - {"open", "close"}
    assert lacking == set(re.findall(r"`(\w+)`", told))


def test_many_items_go_in_several_requests(tmp_path: Path) -> None:
    with running(tmp_path / "served.db") as served, Client(served.url) as client:
        added = client.add_many({"content": f"c{n}", "namespace": NS} for n in range(1500))

        assert [item.content for item in added] == [f"c{n}" for n in range(1500)]
        assert client.stats(NS).live == 1500


def test_what_a_client_writes_back_fifty_times_grows_nothing(tmp_path: Path) -> None:
    """Each request has an Idempotency-Key of its own, and what it tells is no news for that."""
    with running(tmp_path / "served.db") as served, Client(served.url) as client:
        texts = ["Alice likes tea", "Bob left for Rome", "The server listens on port 8080"]
        told = client.add_many({"content": text, "namespace": NS} for text in texts)
        for _ in range(50):
            hit = client.search("what does Alice like", namespace=NS, k=1).hits[0].item
            block = client.context("tea in Rome", namespace=NS, token_budget=200)
            assert client.add(hit.content, namespace=NS).id == hit.id
            assert client.add(block.text, namespace=NS).id == block.item_ids[0]

        assert len(block.item_ids) == len(texts)
        assert client.stats().live == client.stats().vectors == len(texts)
        assert client.list(namespace=NS, status=None).items == tuple(map(client.get, ids_of(told)))


def test_a_key_is_sent_and_its_reach_is_told(tmp_path: Path) -> None:
    with running(tmp_path / "served.db") as served:
        key = served.key(NS, Level.READ)
        with Client(served.url, key=key) as own, Client(served.url) as nobody:
            assert own.namespaces() == []
            assert own.stats().store_bytes == 0
            for call in (
                lambda: own.add("x", namespace=NS),
                lambda: own.search("x", namespace=("other",)),
                lambda: nobody.namespaces(),
            ):
                with pytest.raises(Refused):
                    call()


def test_a_body_that_is_too_large_is_invalid_input(tmp_path: Path) -> None:
    small = ServerSettings(port=0, body_bytes_max=1024)
    with (
        running(tmp_path / "s.db", small) as served,
        Client(served.url) as client,
        pytest.raises(amv.errors.InvalidInput, match="at most 1024 bytes"),
    ):
        client.add("x" * 2000, namespace=NS)


# ---------------------------------------------------------------- a gateway that fails


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: int, code: str, *headers: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": "as scripted"}}).encode()
    return http(status, body, *headers)


DROPPED = b""
SILENT = None
BUSY = problem(503, "overloaded", "Retry-After: 3")
NAMESPACES = http(200, b'{"namespaces": []}')

Answer = bytes | None


class Scripted:
    """A server that gives one scripted answer a connection, the last one for ever."""

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            link, _ = self._socket.accept()
            with link:
                if self._ended.is_set():
                    return
                link.settimeout(WAIT_S)
                self.requests.append(self._read(link))
                answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
                if answer is SILENT:
                    link.recv(1)
                else:
                    link.sendall(answer)

    def _read(self, link: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += link.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.partition(b":")[2])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        ]
        while len(body) < sum(lengths):
            body += link.recv(65536)
        return head + b"\r\n\r\n" + body

    def close(self) -> None:
        self._ended.set()
        with socket.create_connection(self._socket.getsockname()):
            self._thread.join()
        self._socket.close()


@contextmanager
def scripted(
    *answers: Answer, timeout_s: float = 60.0
) -> Iterator[tuple[Scripted, Client, list[float]]]:
    """Yield a server, a client of it, and how long the client has waited each time."""
    server, waited = Scripted(list(answers)), list[float]()
    try:
        with Client(server.url, timeout_s=timeout_s, sleep=waited.append) as client:
            yield server, client, waited
    finally:
        server.close()


READS: dict[str, Call] = {
    "get": lambda c: c.get("x"),
    "list": lambda c: c.list(namespace=NS),
    "history": lambda c: c.history("x"),
    "contradicting": lambda c: c.contradicting("x"),
    "find_claim": lambda c: c.find_claim(NS, "a", "b"),
    "namespaces": lambda c: c.namespaces(),
    "stats": lambda c: c.stats(),
    "search": lambda c: c.search("x", namespace=NS),
}
REPEATABLE: dict[str, Call] = {
    "add": lambda c: c.add("x", namespace=NS),
    "add_many": lambda c: c.add_many([{"content": "x", "namespace": NS}]),
    "pin": lambda c: c.pin("x"),
}
ONCE: dict[str, Call] = {
    "update": lambda c: c.update("x", content="y"),
    "confirm": lambda c: c.confirm("x"),
    "refute": lambda c: c.refute("x"),
    "forget": lambda c: c.forget("x"),
    "forget_namespace": lambda c: c.forget_namespace(NS),
    "reinforce": lambda c: c.reinforce(["x"]),
    "context": lambda c: c.context("x", namespace=NS),
    "sweep": lambda c: c.sweep(),
}
ALL = READS | REPEATABLE | ONCE


def test_every_method_is_of_one_of_three_sorts() -> None:
    assert set(ALL) == METHODS


@pytest.mark.parametrize("name", ALL)
def test_a_dropped_connection_is_tried_again_only_where_that_is_safe(name: str) -> None:
    with scripted(DROPPED) as (server, client, waited):
        error = amv.errors.StoreUnavailable if name in READS else amv.errors.OutcomeUnknown
        with pytest.raises(error):
            ALL[name](client)

        assert len(server.requests) == (1 if name in ONCE else TRIES)
        assert len(waited) == len(server.requests) - 1


@pytest.mark.parametrize("name", ALL)
def test_what_was_not_begun_is_tried_again(name: str) -> None:
    with scripted(BUSY) as (server, client, waited):
        with pytest.raises(amv.errors.StoreUnavailable, match="as scripted"):
            ALL[name](client)

        assert len(server.requests) == TRIES
        assert all(3.0 <= wait_s <= 3.75 for wait_s in waited)


@pytest.mark.parametrize("name", ALL)
def test_a_gateway_that_needs_a_restart_is_not_asked_again(name: str) -> None:
    with scripted(problem(503, "embedder_changed")) as (server, client, waited):
        with pytest.raises(amv.errors.EmbedderChanged):
            ALL[name](client)

        assert (len(server.requests), waited) == (1, [])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("status", "code"), [(504, "deadline_exceeded"), (500, "outcome_unknown")])
def test_a_time_out_of_the_gateway_is_not_tried_again(name: str, status: int, code: str) -> None:
    """There is no time left; and of a write no one knows what it has done."""
    with scripted(problem(status, code)) as (server, client, waited):
        is_late_read = status == 504 and name in READS
        error = amv.errors.StoreUnavailable if is_late_read else amv.errors.OutcomeUnknown
        with pytest.raises(error):
            ALL[name](client)

        assert (len(server.requests), waited) == (1, [])


@pytest.mark.parametrize("name", ALL)
def test_what_a_proxy_says_tells_nothing_of_a_write(name: str) -> None:
    with scripted(http(502, b"<html>Bad gateway</html>")) as (server, client, _):
        error = amv.errors.StoreUnavailable if name in READS else amv.errors.OutcomeUnknown
        with pytest.raises(error, match="does not come from a gateway"):
            ALL[name](client)

        assert len(server.requests) == (1 if name in ONCE else TRIES)


def test_an_add_tried_again_is_the_same_add() -> None:
    item = http(201, b'{"items": []}')
    with scripted(DROPPED, BUSY, item) as (server, client, _):
        client.add_many([{"content": "x", "namespace": NS}])
        client.add_many([{"content": "x", "namespace": NS}])
    sent = [
        (line, request.rpartition(b"\r\n")[2])
        for request in server.requests
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"idempotency-key")
    ]

    assert len(sent) == 4
    assert len(set(sent[:3])) == 1
    assert sent[3][0] != sent[0][0]


def test_it_waits_longer_each_time_and_then_succeeds() -> None:
    with scripted(DROPPED, DROPPED, problem(429, "too_many"), NAMESPACES) as (
        server,
        client,
        waited,
    ):
        assert client.namespaces() == []

    assert len(server.requests) == 4
    for wait_s, least_s in zip(waited, (0.2, 0.4, 0.8), strict=True):
        assert least_s <= wait_s <= least_s * 1.25


def test_a_wait_beyond_the_time_allowed_is_not_begun() -> None:
    with scripted(BUSY, timeout_s=2.0) as (server, client, waited):
        with pytest.raises(amv.errors.StoreUnavailable):
            client.namespaces()

        assert (len(server.requests), waited) == (1, [])
        assert b"amv-timeout-ms: 2000\r\n" in server.requests[0]


@pytest.mark.parametrize("name", ["get", "update"])
def test_a_gateway_that_does_not_answer_is_given_up(name: str) -> None:
    with scripted(SILENT, timeout_s=0.1) as (server, client, _):
        error = amv.errors.StoreUnavailable if name in READS else amv.errors.OutcomeUnknown
        with pytest.raises(error):
            ALL[name](client)

        assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"\xff", b'{"namespaces": 1}'])
def test_an_answer_that_can_not_be_read_is_told(body: bytes) -> None:
    with scripted(http(200, body)) as (server, client, _):
        with pytest.raises(amv.AmvError, match="can't be read"):
            client.namespaces()

        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [302, 400, 401, 404, 418])
def test_an_error_that_is_no_gateways_is_told_as_such(status: int) -> None:
    """A page that is not there is no item that is not there."""
    with scripted(http(status, b"<html>")) as (server, client, _):
        with pytest.raises(amv.AmvError, match="does not come from a gateway") as told:
            client.get("x")

        assert type(told.value) is amv.AmvError
        assert len(server.requests) == 1


def test_a_gateway_that_is_not_there_is_tried_again_for_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    waited: list[float] = []
    with (
        Client(f"http://127.0.0.1:{port}", sleep=waited.append) as client,
        pytest.raises(amv.errors.StoreUnavailable, match="can't be reached"),
    ):
        client.forget("x")

    assert len(waited) == TRIES - 1


# ---------------------------------------------------------------- opening and closing


def test_no_proxy_stands_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:9")
    with scripted(NAMESPACES) as (_, client, _):
        assert client.namespaces() == []


@pytest.mark.parametrize("name", ALL)
def test_a_closed_client_says_so(name: str) -> None:
    client = Client()
    client.close()
    client.close()

    with pytest.raises(amv.errors.StoreClosed):
        ALL[name](client)


@pytest.mark.parametrize(
    "url", ["", "nonsense", "localhost:8420", "ftp://x", "http://", "http://[::1", 5, None]
)
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(amv.errors.InvalidInput, match="need the URL of a gateway"):
        Client(url)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf"), "5", None])
def test_a_time_out_is_a_number_of_seconds(timeout_s: Any) -> None:
    with pytest.raises(amv.errors.InvalidInput, match="timeout_s must be"):
        Client(timeout_s=timeout_s)


@pytest.mark.parametrize("key", ["ü", "a\nb", ""])
def test_a_key_that_can_not_be_sent_is_refused(key: str) -> None:
    with pytest.raises(amv.errors.InvalidInput, match="amv keys create"):
        Client(key=key)


def test_what_can_not_be_sent_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with Client() as client:
        for filter in (loop, {"a": {1}}, {"a": float("nan")}):
            with pytest.raises(amv.errors.InvalidInput, match="can't be sent as JSON"):
                client.search("x", namespace=NS, filter=filter)
