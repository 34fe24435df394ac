"""One sound request of every route, which tests run as it is or break in one place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from amv.server import api

Body = Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a sound request holds besides the namespace, and in which field its reply is told by."""

    body: Body = None
    query: Mapping[str, str] = field(default_factory=dict)
    names_namespace: bool = True
    needs_namespace: bool = False
    tells: str


ITEM = "it"
CONTENT = "Alice moved to Rome"
CLAIM = {"subject": "alice", "attribute": "city", "value": "Rome"}

CASES: dict[tuple[str, str], Case] = {
    ("POST", "/v1/search"): Case(body={"query": "Rome"}, needs_namespace=True, tells="hits"),
    ("POST", "/v1/context"): Case(body={"query": "Rome"}, needs_namespace=True, tells="text"),
    ("POST", "/v1/feedback"): Case(body={"ids": [ITEM]}, tells="noted"),
    ("POST", "/v1/items"): Case(body={"content": "new"}, needs_namespace=True, tells="id"),
    ("GET", "/v1/items"): Case(query={"limit": "2"}, needs_namespace=True, tells="items"),
    ("GET", "/v1/items/{id}"): Case(tells="content"),
    ("PATCH", "/v1/items/{id}"): Case(body={"content": "Alice left"}, tells="content"),
    ("DELETE", "/v1/items/{id}"): Case(tells="item_ids"),
    ("GET", "/v1/items/{id}/history"): Case(tells="entries"),
    ("GET", "/v1/items/{id}/contradicting"): Case(tells="items"),
    ("POST", "/v1/items/{id}/pin"): Case(body={"pinned": True}, tells="pinned"),
    ("POST", "/v1/items/{id}/confirm"): Case(tells="last_verified_at"),
    ("POST", "/v1/items/{id}/refute"): Case(body={"value": "Pisa"}, tells="supersedes"),
    ("GET", "/v1/claims"): Case(
        query={"subject": "alice", "attribute": "city"}, needs_namespace=True, tells="item"
    ),
    ("GET", "/v1/namespaces"): Case(names_namespace=False, tells="namespaces"),
    ("DELETE", "/v1/namespaces/{ns}"): Case(tells="count"),
    ("GET", "/v1/stats"): Case(tells="live"),
    ("POST", "/v1/sweep"): Case(body={"dry_run": True}, names_namespace=False, tells="moves"),
}


def case_of(route: api.Route) -> Case:
    return CASES[(route.method, route.path)]


def name_of(route: api.Route) -> str:
    return f"{route.method} {route.path}"


def routes(*, but: set[str] = frozenset(), **having: bool) -> list[Any]:  # type: ignore[assignment]
    """Return the routes whose case has what is asked for."""
    return [
        route
        for route in api.ROUTES
        if name_of(route) not in but
        and all(getattr(case_of(route), name) == value for name, value in having.items())
    ]


def add_item(http: httpx.Client, namespace: list[str], item_id: str = ITEM) -> None:
    """Add the item that the sound requests are about."""
    body = {"id": item_id, "content": CONTENT, "namespace": namespace, "claim": CLAIM}
    assert http.post("/v1/items", json=body).status_code == 201


def sound(route: api.Route, namespace: list[str] | None, item_id: str = ITEM) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.request` for a sound request."""
    case = case_of(route)
    query, body = dict(case.query), None if case.body is None else dict(case.body)
    path = route.path.replace("{id}", quote(item_id, safe=""))
    if namespace is not None and "{ns}" in path:
        path = path.replace("{ns}", quote(json.dumps(namespace), safe=""))
    elif namespace is not None and case.names_namespace:
        if "namespace" in route.query:
            query["namespace"] = json.dumps(namespace)
        else:
            assert body is not None
            body["namespace"] = namespace
    asked: dict[str, Any] = {"method": route.method, "url": path, "params": query}
    return asked if body is None else {**asked, "json": body}


def problem(reply: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error, having checked that it is told as one."""
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert set(error) == {"code", "message"}
    assert error["message"]
    return reply.status_code, error["code"]


def told(reply: httpx.Response) -> tuple[Any, ...]:
    """Return all of a reply but its date and request id."""
    ours = [(k, v) for k, v in reply.headers.items() if k not in ("date", "x-request-id")]
    return reply.status_code, sorted(ours), reply.content
