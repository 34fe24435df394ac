"""The gateway as an ASGI application.

    Gateway     request id, Host check, metrics and log of every request
    Endpoint    key, body, deadline, lane, errors: one for each route of `api`
    Starlette   routing of paths with parameters, and what HTTP asks besides

A path that is a route's own goes straight to its endpoint.
"""

import json
import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as StarletteRoute

from amv.checks import REFUSED, VERIFIER_HEADER
from amv.config import ServerSettings
from amv.errors import AmvError, EmbedderChanged, InvalidInput
from amv.guard.service import GuardService
from amv.memory.item import Namespace
from amv.memory.service import MemoryService
from amv.server import api, openapi, request, wire
from amv.server.access import Forbidden, Gatekeeper
from amv.server.metrics import Metrics
from amv.server.replies import (
    Message,
    NotIndependent,
    Reply,
    Send,
    UnsupportedMedia,
    WrongHost,
    error_reply,
    told,
)
from amv.server.request import Receive, Scope
from amv.server.routes import ROUTES
from amv.server.work import DeadlineExceeded, Lanes, Overloaded, begun

VERSION = "1"
"""The version of the interface, which is that in its paths."""

_VERIFIER = VERIFIER_HEADER.encode()

_TOO_MANY = error_reply(Overloaded("as many searches wait as may, and no more can"))

_log = logging.getLogger("amv.server")


class Endpoint:
    """One route, as an ASGI application."""

    def __init__(self, route: api.Route, gateway: "Gateway") -> None:
        self.route = route
        self._gateway = gateway
        self.may_be_inline = route.handler is api.search

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        reply = await self.reply(scope, receive)
        if reply is not None:
            await reply.send(send)

    async def reply(self, scope: Scope, receive: Receive) -> Reply | None:
        """Return what goes back; None if whoever asked is gone."""
        try:
            return await self._reply(scope, receive)
        except request.Gone:
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the server
            reply = failed(error, scope)
            if isinstance(error, EmbedderChanged):
                self._gateway.out_of_order = reply
            return reply

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        gateway, route = self._gateway, self.route
        headers = scope["amv.headers"]
        principal = gateway.keeper.principal(request.token(headers))
        principal.check_level(route.level)
        allowed_s = request.timeout_s(headers, gateway.settings.timeout_s)
        deadline_s = time.monotonic() + allowed_s
        gateway.lanes.enter(principal)
        try:
            body = self._checked(headers, await gateway.bodies.read(headers, receive, allowed_s))
            large = body if body is not None and request.is_large(body) else None
            call = api.Call(
                memory=gateway.memory,
                guard=gateway.guard,
                principal=principal,
                path=request.path_params(scope["path_params"]),
                query=request.query(route, scope["query_string"]),
                body=None if body is None or large else request.decoded(body, route.takes),
                idempotency_key=request.idempotency_key(headers),
                cursor_secret=gateway.keeper.secret() if route.gives is wire.PageOut else None,
            )
            found = await self._done(call, large, deadline_s)
        finally:
            gateway.lanes.leave(principal)
        return Reply(route.status, found)

    async def _done(self, call: api.Call, large: bytes | None, deadline_s: float) -> bytes:
        lanes, work = self._gateway.lanes, partial(self._work, call, large)
        name = _by_vector_alone(call) if self.may_be_inline and large is None else None
        if name is not None and call.memory.is_resident(name):

            def inline() -> bytes | None:
                # Once more: what began to index meanwhile would hold up the event loop.
                return begun(work, deadline_s) if call.memory.is_resident(name) else None

            found = await lanes.turns.run(inline)
            if found is not None:
                return found
        lane = lanes.write if self.route.writes else lanes.read
        return await lane.run(work, deadline_s)

    def _work(self, call: api.Call, large: bytes | None) -> bytes:
        if large is not None:
            call = call._replace(body=request.decoded(large, self.route.takes))
        found = self.route.handler(call)
        self._gateway.metrics.note_result(found)
        return wire.encoded(found)

    def _checked(self, headers: request.Headers, body: bytes) -> bytes | None:
        """Return the body if there is one to read; raises if there should be none, or no such."""
        route = self.route
        if route.takes is None:
            if body:
                raise InvalidInput("this route takes no body")
            return None
        if not body and route.body_is_optional:
            return None
        # Also keeps web pages out: a browser asks before it sends JSON elsewhere.
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise UnsupportedMedia("the body must be JSON: Content-Type: application/json")
        return body


def _check_asker(scope: Scope) -> None:
    """Refuse the verifiers of a gate: what a memory says is no evidence for it."""
    if _VERIFIER in scope["amv.headers"]:
        raise NotIndependent("a verifier must ask the world, not a memory of AMV")


def _by_vector_alone(call: api.Call) -> Namespace | None:
    """Return where to search, if that needs nothing but vectors and may all be in memory."""
    body = call.body
    if body.vector is None or body.query is not None:
        return None
    if body.as_of is not None or body.filter is not None:
        return None
    return call.one_namespace(body.namespace)


def failed(error: Exception, scope: Scope) -> Reply:
    """Return what is said of an error; one that only the server's keeper can mend is logged."""
    reply = error_reply(error)
    if reply.status >= 500 and not isinstance(error, Overloaded | DeadlineExceeded):
        _log.error("request failed", exc_info=error, extra={"request_id": scope["amv.id"]})
    return reply


class Gateway:
    """The whole application; `close` lets what was begun finish."""

    def __init__(
        self,
        memory: MemoryService,
        keeper: Gatekeeper,
        settings: ServerSettings,
        guard: GuardService | None = None,
    ) -> None:
        self.memory = memory
        self.guard = guard
        self.keeper = keeper
        self.settings = settings
        self.lanes = Lanes(settings)
        self._is_loopback = settings.is_loopback
        # What is said to all who ask for health once only a restart helps.
        self.out_of_order: Reply | None = None
        self.bodies = request.Bodies(settings.body_bytes_max)
        self.metrics = Metrics(memory, guard)
        document = openapi.document(ROUTES, VERSION)
        self._document = json.dumps(document).encode()
        self._page = openapi.page(document)
        endpoints = [Endpoint(route, self) for route in ROUTES]
        self._direct = {
            (e.route.method, e.route.path.encode()): e for e in endpoints if "{" not in e.route.path
        }
        self._app = Starlette(
            routes=[
                *(_by_path(endpoints)),
                StarletteRoute("/health", self._health),
                StarletteRoute("/metrics", self._metrics),
                StarletteRoute("/openapi.json", self._openapi),
                StarletteRoute("/docs", self._docs),
            ],
            exception_handlers={HTTPException: _http_error, AmvError: _amv_error},
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        began_s = time.perf_counter()
        request_id = request.request_id(scope["headers"])
        scope["amv.id"] = request_id.decode()
        headers = scope["amv.headers"] = dict(scope["headers"])
        own: request.RawHeaders = [(b"x-request-id", request_id)]
        if _VERIFIER in headers:
            own.append((_VERIFIER, REFUSED.encode()))
        # As it came, so that an id with an escaped slash stays one part of the path.
        raw_path = scope.get("raw_path") or scope["path"].encode()
        endpoint = self._direct.get((scope["method"], raw_path))
        if endpoint is not None:
            route = endpoint.route.path
            status = await self._answered(endpoint, scope, receive, send, own)
        else:
            scope["path"] = raw_path.decode("latin-1")
            route, status = await self._routed(scope, receive, send, own)
        self._note(scope, route, status, time.perf_counter() - began_s)

    async def _answered(
        self,
        endpoint: Endpoint,
        scope: Scope,
        receive: Receive,
        send: Send,
        own: request.RawHeaders,
    ) -> int:
        """Answer a request whose path names its route; return the status, 0 if nobody waits."""
        scope["path_params"] = {}
        reply: Reply | None = _TOO_MANY
        # Before anything else is looked at: to turn away must not cost what it spares.
        if not (endpoint.may_be_inline and self.lanes.turns.are_taken):
            refused = self._refused(scope)
            reply = await endpoint.reply(scope, receive) if refused is None else refused
        if reply is None:
            return 0
        await reply.send(send, own)
        return reply.status

    async def _routed(
        self, scope: Scope, receive: Receive, send: Send, own: request.RawHeaders
    ) -> tuple[str, int]:
        """Answer any other request; return its route, "" if there is none such, and the status."""
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused.send(noted)
            return "", status
        await self._app(scope, receive, noted)
        return getattr(scope.get("route"), "path", ""), status

    def _refused(self, scope: Scope) -> Reply | None:
        """Return what is said to who may ask nothing here."""
        try:
            self._check_host(scope)
            _check_asker(scope)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the server
            return failed(error, scope)
        return None

    def _note(self, scope: Scope, path: str, status: int, took_s: float) -> None:
        self.metrics.note_request(scope["method"], path, status, took_s)
        if _log.isEnabledFor(logging.INFO):
            _log.info(
                "request",
                extra={
                    "request_id": scope["amv.id"],
                    "method": scope["method"],
                    "route": path,
                    "status": status,
                    "took_ms": round(took_s * 1e3, 3),
                },
            )

    def _check_host(self, scope: Scope) -> None:
        """Without keys, refuse what a web page could send or have sent; raises WrongHost."""
        if not self._is_loopback or self.keeper.has_keys():
            return
        if not request.is_of_this_machine(scope["amv.headers"], self.settings.host):
            raise WrongHost("this server answers on a loopback name only, and no other's pages")

    async def _health(self, asked: Request) -> Response:
        if self.out_of_order is not None:
            return _response(self.out_of_order, {})
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def _metrics(self, asked: Request) -> Response:
        principal = self.keeper.principal(request.token(asked.scope["amv.headers"]))
        if principal.prefix:
            raise Forbidden("metrics are of the whole server; this needs a key that reaches it")
        deadline_s = time.monotonic() + self.settings.timeout_s
        text = await self.lanes.read.run(self.metrics.exposition, deadline_s)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self, asked: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def _docs(self, asked: Request) -> Response:
        return HTMLResponse(self._page)

    def close(self) -> None:
        """Let what was begun finish; the memory is left to whoever opened it."""
        self.lanes.close()


class _ByMethod:
    """The endpoints of one path."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints[scope["method"]](scope, receive, send)


def _by_path(endpoints: Iterable[Endpoint]) -> list[StarletteRoute]:
    paths: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.route.path, {})[endpoint.route.method] = endpoint
    routes = []
    for path, by_method in paths.items():
        route = StarletteRoute(path, _ByMethod(by_method), methods=list(by_method))
        # Starlette answers HEAD wherever it answers GET; these answer what they say.
        route.methods = set(by_method)
        routes.append(route)
    return routes


async def _http_error(asked: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        reply = told(404, "no_such_route", "there is no such route")
    else:
        reply = told(error.status_code, "method_not_allowed", "this route has other methods")
    return _response(reply, error.headers or {})


async def _amv_error(asked: Request, error: Exception) -> Response:
    return _response(failed(error, asked.scope), {})


def _response(reply: Reply, headers: Mapping[str, str]) -> Response:
    own = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, {**own, **headers})
