"""What OpenTelemetry is told of requests, and that by default nothing is told to anyone."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from amv.errors import StoreError
from amv.server import api, tracing
from amv.server.app import Gateway
from amv.server.tracing import traced
from tests.faults.strace import ROOT, needs_strace
from tests.server.cases import ITEM, add_item, name_of, sound
from tests.server.conftest import WAIT_S, Running, Start, running

every = pytest.mark.parametrize("route", api.ROUTES, ids=name_of)


@dataclass(frozen=True, slots=True)
class Told:
    """A gateway, and what was told of its requests."""

    served: Running
    spans: InMemorySpanExporter
    reader: InMemoryMetricReader

    def span(self, reply: httpx.Response) -> ReadableSpan:
        """Return the one span of a reply; it is told just after that was sent."""
        spans = self.all_spans(lambda span: _id(span) == reply.headers["x-request-id"], 1)
        assert len(spans) == 1
        return spans[0]

    def all_spans(self, want: Callable[[ReadableSpan], bool], count: int) -> list[ReadableSpan]:
        """Return the spans that are wanted, once there are so many."""
        end_s = time.monotonic() + WAIT_S
        while len(found := [*filter(want, self.spans.get_finished_spans())]) < count:
            assert time.monotonic() < end_s
            time.sleep(0.002)
        return found

    def durations(self) -> list[HistogramDataPoint]:
        """Return what was counted."""
        data = self.reader.get_metrics_data()
        assert data is not None
        (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
        assert (metric.name, metric.unit) == ("http.server.request.duration", "s")
        assert isinstance(metric.data, Histogram)
        return [*metric.data.data_points]


def _id(span: ReadableSpan) -> object:
    return (span.attributes or {}).get("amv.request_id")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """Set up the SDK as a process would, for a gateway that starts then."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    # The API lets each be set once in a process.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    with running(tmp_path / "served.db") as served:
        yield Told(served, spans, reader)
    tracers.shutdown()
    meters.shutdown()


@every
def test_a_request_is_one_span_named_by_its_route(told: Told, route: api.Route) -> None:
    http = told.served.http()
    add_item(http, ["a"])
    reply = http.request(**sound(route, ["a"]), headers={"x-request-id": "mine"})
    span = told.span(reply)
    more = dict(span.attributes or {})
    scanned = more.pop("amv.search.scanned", None)

    assert (span.name, span.kind) == (f"{route.method} {route.path}", SpanKind.SERVER)
    assert span.status.status_code is StatusCode.UNSET
    assert more == {
        "http.request.method": route.method,
        "url.scheme": "http",
        "http.route": route.path,
        "http.response.status_code": route.status,
        "amv.request_id": "mine",
    }
    assert scanned == (reply.json()["scanned"]["total"] if route.handler is api.search else None)


def test_a_span_lasts_as_long_as_its_request(told: Told) -> None:
    span = told.span(told.served.http().get("/health"))
    (point,) = told.durations()

    assert span.start_time is not None
    assert span.end_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(point.sum, abs=1e-6)


@pytest.mark.parametrize(
    ("method", "path", "name", "status"),
    [
        ("GET", "/health", "GET /health", 200),
        ("GET", "/nowhere/secret", "GET", 404),
        ("PUT", "/v1/items/secret", "PUT /v1/items/{id}", 405),
        ("GET", "/v1/search", "GET /v1/search", 405),
        ("PURGE", "/v1/items/secret", "HTTP /v1/items/{id}", 405),
        ("GET", "/v1/items/secret", "GET /v1/items/{id}", 404),
        ("POST", "/v1/search", "POST /v1/search", 415),
    ],
)
def test_what_is_refused_is_told_without_what_was_asked(
    told: Told, method: str, path: str, name: str, status: int
) -> None:
    reply = told.served.http().request(method, path, content=b"secret" * (method == "POST"))
    span = told.span(reply)

    assert (span.name, reply.status_code) == (name, status)
    assert (span.attributes or {})["http.response.status_code"] == status
    assert (span.attributes or {})["amv.request_id"] == reply.headers["x-request-id"]
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in span.to_json()


def test_a_failure_of_the_server_is_an_error(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("secret")

    monkeypatch.setattr(told.served.memory, "get", fail)
    reply = told.served.http().get(f"/v1/items/{ITEM}")
    span = told.span(reply)

    assert reply.status_code == 500
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "500"
    assert "secret" not in span.to_json()


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("given", "is_parent"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        ("00-secret", False),
        ("\xff", False),
    ],
)
def test_a_span_belongs_to_the_trace_a_request_names(
    told: Told, given: str, is_parent: bool
) -> None:
    headers = [(b"traceparent", given.encode("latin-1"))]
    span = told.span(told.served.http().get("/health", headers=headers))

    assert span.context is not None
    if is_parent:
        assert span.parent is not None
        assert (span.context.trace_id, span.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    else:
        assert span.parent is None
        assert span.context.trace_id != int(TRACE, 16)


def test_durations_are_counted_by_route_and_status(told: Told) -> None:
    http = told.served.http()
    for item_id in ("one", "two", "three"):
        add_item(http, ["a"], item_id)
        http.get(f"/v1/items/{item_id}")
    told.span(http.get("/v1/items/gone"))
    counts = {
        tuple(value for _, value in sorted((point.attributes or {}).items())): point.count
        for point in told.durations()
    }

    assert counts == {
        ("POST", 201, "/v1/items", "http"): 3,
        ("GET", 200, "/v1/items/{id}", "http"): 3,
        ("GET", 404, "/v1/items/{id}", "http"): 1,
    }
    assert told.durations()[0].explicit_bounds[:3] == (0.005, 0.01, 0.025)


def test_nothing_of_what_the_memory_holds_is_told(told: Told) -> None:
    """Of every route, in the body, the path and the query, and in the headers that are read."""
    key = told.served.key()
    http = told.served.http(key)
    headers = {"idempotency-key": "canary", "tracestate": "x=canary", "baggage": "y=canary"}
    asks = 0
    for route in api.ROUTES:
        asked = sound(route, ["canary"], "canary")
        asks += 1 + ("json" in asked)
        http.request(**asked, headers=headers)
        if "json" in asked:
            text = json.dumps(asked["json"]).replace("Rome", "canary")
            http.request(**{**asked, "json": json.loads(text)}, headers=headers)
    spans = [span.to_json() for span in told.all_spans(lambda _: True, asks)]
    data = told.reader.get_metrics_data()
    assert data is not None

    for text in (*spans, data.to_json()):
        assert "canary" not in text
        assert key not in text


# ---------------------------------------------------------------- by default


def test_without_an_sdk_the_gateway_is_as_it_is(served: Running) -> None:
    assert traced(served.gateway) is served.gateway


def test_without_the_package_the_gateway_is_as_it_is(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its control: with it, and something that listens, it is not."""
    gateway: Gateway = told.served.gateway
    assert traced(gateway) is not gateway

    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    assert traced(gateway) is gateway


CONNECTS = re.compile(r"\b(?:connect|sendto|sendmsg|sendmmsg)\(.*sa_family=AF_INET6?\b")


def connected(log: Path) -> list[str]:
    """Return the calls by which a process reached for an address."""
    return [line for line in log.read_text().splitlines() if CONNECTS.search(line)]


def under_strace(log: Path) -> list[str]:
    # -D: it stands beside the process, which so gets the signals that are sent.
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    return ["strace", "-D", "-f", "-o", str(log), "-e", calls]


@needs_strace("by default the gateway sends nothing anywhere")
def test_by_default_nothing_is_sent_anywhere(start: Start, tmp_path: Path) -> None:
    """OpenTelemetry and its SDK are installed, and every route is asked for."""
    log = tmp_path / "log"
    server = start(under=under_strace(log))
    with server.http() as http:
        add_item(http, ["a"])
        for route in api.ROUTES:
            assert http.request(**sound(route, ["a"])).status_code < 500
        assert http.get("/metrics").status_code == 200
    assert server.end() == 0

    # It was watched: an end, and no more than that.
    assert "exited with 0" in log.read_text()
    assert connected(log) == []


@needs_strace("that would be found out")
def test_control_whoever_sends_something_is_found_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    subprocess.run([*under_strace(log), sys.executable, "-c", program], check=True)

    assert len(connected(log)) == 1


def test_an_sdk_set_up_beforehand_is_told(start: Start, tmp_path: Path) -> None:
    """A process of its own, in which the SDK is set up before `amv serve` runs."""
    out = tmp_path / "spans"
    program = tmp_path / "serve.py"
    program.write_text(SET_UP)
    server = start(program=[str(program), str(out)])
    with server.http() as http:
        add_item(http, ["a"])
    assert server.end() == 0
    span: dict[str, Any] = json.loads(out.read_text())

    assert span["name"] == "POST /v1/items"


SET_UP = """\
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from amv.cli import main

out = open(sys.argv.pop(1), "w")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
trace.set_tracer_provider(provider)
sys.exit(main())
"""


def test_the_guide_lists_all_that_is_told_and_no_more() -> None:
    source = Path(tracing.__file__).read_text("utf-8")
    told = set(re.findall(r'"((?:amv|error|http|url)\.[a-z._]+)"', source))
    guide = (ROOT / "docs" / "how-to" / "serve.md").read_text("utf-8")
    section = guide.partition("## Trace it")[2]
    names = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]

    # Of these the first is a name of ASGI's, and the second that of the histogram.
    told -= {"http.response.start", "http.server.request.duration"}
    assert set(re.findall(r"`([^`]+)`", "".join(names))) == told
    assert "`http.server.request.duration`" in section
