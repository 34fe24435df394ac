"""Telling OpenTelemetry of requests: one span and one duration each, never what the memory holds.

AMV speaks to the API of OpenTelemetry only, and only where that is installed
(the extra `otel`).  The API does nothing by itself.  Whoever wants spans and
durations sets up an SDK in this process, which says where they go; without one
they go nowhere, and a request costs nothing more, as that is looked up once,
at the start.

Names are those of the semantic conventions for HTTP, of which `url.path` is
left out on purpose: it may hold ids and namespaces, and so may a query.
https://opentelemetry.io/docs/specs/semconv/http/http-spans/
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from amv.server import api
from amv.server.replies import Message, Send
from amv.server.request import Receive, Scope
from amv.server.routes import ROUTES

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Tracer

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_METHODS = frozenset(
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"]
)
_SEARCH = next(route.path for route in ROUTES if route.handler is api.search)
_PLAIN_PATHS = frozenset(route.path for route in ROUTES if "{" not in route.path)
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""What the conventions advise."""


class _Scanned(msgspec.Struct):
    total: int


class _Searched(msgspec.Struct):
    """What is read of a search's reply."""

    scanned: _Scanned


def traced(app: App) -> App:
    """Return *app*, telling OpenTelemetry of its requests if something was set up to listen."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return app
    providers = (trace.get_tracer_provider(), metrics.get_meter_provider())
    if not any(map(_listens, providers)):
        return app
    meter = metrics.get_meter("amv", meter_provider=providers[1])
    seconds = meter.create_histogram(
        "http.server.request.duration",
        unit="s",
        description="Duration of HTTP server requests.",
        explicit_bucket_boundaries_advisory=_BUCKETS_S,
    )
    return Traced(app, trace.get_tracer("amv", tracer_provider=providers[0]), seconds)


def _listens(provider: object) -> bool:
    """Return whether this is more than what the API itself has, which does nothing."""
    return not type(provider).__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics")
    )


class Traced:
    """An application whose requests OpenTelemetry is told of, each when it has ended."""

    def __init__(self, app: App, tracer: "Tracer", seconds: "Histogram") -> None:
        self._app = app
        self._tracer = tracer
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began_s, began_ns = time.perf_counter(), time.time_ns()
        start: Message = {}
        body = b""

        async def noted(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
            elif not body:
                body = message.get("body", b"")
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._tell(scope, start, body, began_ns, time.perf_counter() - began_s)

    def _tell(
        self, scope: Scope, start: Message, body: bytes, began_ns: int, took_s: float
    ) -> None:
        from opentelemetry import propagate, trace

        about = _about(scope, start)
        route, status = about.get("http.route", ""), about.get("http.response.status_code", 0)
        method = str(about["http.request.method"])
        parent = propagate.extract(
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        )
        span = self._tracer.start_span(
            f"{'HTTP' if method == '_OTHER' else method} {route}".rstrip(),
            parent,
            trace.SpanKind.SERVER,
            {**about, **_of_amv(start, body if (route, status) == (_SEARCH, 200) else b"")},
            start_time=began_ns,
        )
        if "error.type" in about:
            span.set_status(trace.StatusCode.ERROR)
        self._seconds.record(took_s, about, trace.set_span_in_context(span, parent))
        span.end(began_ns + int(took_s * 1e9))


def _about(scope: Scope, start: Message) -> dict[str, str | int]:
    """Return what the conventions ask to be told of a request; of few different values each."""
    method, path = scope["method"], scope["path"]
    about: dict[str, str | int] = {
        "http.request.method": method if method in _METHODS else "_OTHER",
        "url.scheme": scope["scheme"],
    }
    # The gateway finds the hottest route by itself, and its paths are as they are asked for.
    if route := getattr(scope.get("route"), "path", path if path in _PLAIN_PATHS else ""):
        about["http.route"] = route
    status = start.get("status", 0)
    if status:
        about["http.response.status_code"] = status
    if status >= 500:
        about["error.type"] = str(status)
    return about


def _of_amv(start: Message, searched: bytes) -> dict[str, str | int]:
    """Return the request's id, and how much a search looked at."""
    ids = [value for name, value in start.get("headers", ()) if name == b"x-request-id"]
    found: dict[str, str | int] = {"amv.request_id": ids[0].decode()} if ids else {}
    if searched:
        total = msgspec.json.decode(searched, type=_Searched).scanned.total
        found["amv.search.scanned"] = total
    return found
