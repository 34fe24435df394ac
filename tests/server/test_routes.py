"""Every route over a real socket: what it does with sound input, and with each sort of bad one."""

import json
import socket
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from amv.config import ServerSettings
from amv.server import api
from amv.server.routes import ROUTES
from tests.server.cases import (
    CASES,
    CONTENT,
    ITEM,
    add_item,
    case_of,
    name_of,
    problem,
    routes,
    sound,
)
from tests.server.conftest import WAIT_S, Running, running

BODIES = [route for route in api.ROUTES if route.takes is not None]
ONE_ITEM = [route for route in api.ROUTES if "{id}" in route.path]

every = pytest.mark.parametrize("route", api.ROUTES, ids=name_of)
_numbers = count()


@pytest.fixture
def http(module_served: Running) -> httpx.Client:
    return module_served.http()


@pytest.fixture
def own(http: httpx.Client) -> list[str]:
    """A namespace of the test's own, with the item in it."""
    namespace = [f"n{next(_numbers)}"]
    add_item(http, namespace)
    return namespace


def test_every_route_has_a_case() -> None:
    assert {(route.method, route.path) for route in api.ROUTES} == set(CASES)


@every
def test_a_sound_request_is_answered(http: httpx.Client, own: list[str], route: api.Route) -> None:
    reply = http.request(**sound(route, own))

    assert reply.status_code == route.status, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()[case_of(route).tells] is not None


@pytest.mark.parametrize("route", BODIES, ids=name_of)
@pytest.mark.parametrize(
    "content",
    [b"{", b"", b"\xff", b"[1]", b'"text"', b"null", b"[" * 100_000, b'{"x": 1e999}', b"{} {}"],
    ids=["cut", "empty", "no utf-8", "array", "text", "null", "deep", "huge number", "two"],
)
def test_a_body_that_is_no_such_object_is_refused(
    http: httpx.Client, own: list[str], route: api.Route, content: bytes
) -> None:
    asked = {**sound(route, own), "json": None}
    reply = http.request(
        **asked, content=content, headers={"content-type": "application/json; charset=utf-8"}
    )

    if not content and route.body_is_optional:
        assert reply.status_code == route.status
    else:
        assert problem(reply) == (400, "invalid_input")


@pytest.mark.parametrize("route", BODIES, ids=name_of)
def test_an_unknown_field_is_refused(http: httpx.Client, own: list[str], route: api.Route) -> None:
    asked = sound(route, own)
    asked["json"]["surprise"] = 1

    assert problem(http.request(**asked)) == (400, "invalid_input")


@pytest.mark.parametrize("route", BODIES, ids=name_of)
def test_a_field_of_another_type_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    for name in sound(route, own)["json"]:
        asked = sound(route, own)
        asked["json"][name] = {"no": ["such"]}

        assert problem(http.request(**asked)) == (400, "invalid_input"), name


@pytest.mark.parametrize("route", BODIES, ids=name_of)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_that_is_not_said_to_be_json_is_refused(
    http: httpx.Client, own: list[str], route: api.Route, kind: str | None
) -> None:
    """Which keeps web pages out: a browser asks before it sends JSON to another site."""
    asked = sound(route, own)
    content = json.dumps(asked.pop("json")).encode()
    headers = {} if kind is None else {"content-type": kind}

    reply = http.request(**asked, content=content, headers=headers)

    assert problem(reply) == (415, "unsupported_media_type")


@pytest.mark.parametrize("route", [r for r in api.ROUTES if r.takes is None], ids=name_of)
def test_a_body_where_none_is_taken_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    assert problem(http.request(**sound(route, own), json={})) == (400, "invalid_input")


@every
def test_an_unknown_query_parameter_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    asked = sound(route, own)
    asked["params"]["surprise"] = "1"

    assert problem(http.request(**asked)) == (400, "invalid_input")


@pytest.mark.parametrize("route", [r for r in api.ROUTES if r.query], ids=name_of)
def test_a_query_parameter_given_twice_is_refused(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    asked = sound(route, own)
    name = next(iter(asked["params"]))
    asked["params"] = [*asked["params"].items(), (name, asked["params"][name])]

    assert problem(http.request(**asked)) == (400, "invalid_input")


@every
@pytest.mark.parametrize("query", ["%ff=1", "a", "&".join(f"a{n}=1" for n in range(40))])
def test_a_query_string_that_can_not_be_read_is_refused(
    http: httpx.Client, own: list[str], route: api.Route, query: str
) -> None:
    asked = sound(route, own)
    url = f"{asked.pop('url')}?{query}"
    asked.pop("params")

    assert problem(http.request(url=url, **asked)) == (400, "invalid_input")


@pytest.mark.parametrize("route", routes(needs_namespace=True), ids=name_of)
def test_a_missing_namespace_is_told(http: httpx.Client, route: api.Route) -> None:
    reply = http.request(**sound(route, None))

    assert problem(reply) == (400, "invalid_input")
    assert "namespace is needed" in reply.json()["error"]["message"]


@pytest.mark.parametrize("route", routes(names_namespace=True), ids=name_of)
@pytest.mark.parametrize("name", [[], [""], ["a"] * 9, ["a\0"], ["x" * 257]], ids=repr)
def test_a_namespace_that_can_not_be_is_refused(
    http: httpx.Client, route: api.Route, name: list[str]
) -> None:
    assert problem(http.request(**sound(route, name))) == (400, "invalid_namespace")


@pytest.mark.parametrize("route", [r for r in api.ROUTES if r.needs_query], ids=name_of)
def test_a_missing_query_parameter_is_told(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    for name in route.needs_query:
        asked = sound(route, own)
        del asked["params"][name]

        assert problem(http.request(**asked)) == (400, "invalid_input")


@pytest.mark.parametrize("route", ONE_ITEM, ids=name_of)
def test_an_item_that_is_not_there_is_told(
    http: httpx.Client, own: list[str], route: api.Route
) -> None:
    assert problem(http.request(**sound(route, own, "gone"))) == (404, "not_found")
    assert problem(http.request(**sound(route, ["nobody"]))) == (404, "not_found")


@pytest.mark.parametrize("path", sorted({path for _, path in CASES} | {"/health", "/docs"}))
def test_another_method_is_refused_with_those_there_are(http: httpx.Client, path: str) -> None:
    known = {method for method, own in CASES if own == path} or {"GET", "HEAD"}
    url = path.replace("{id}", ITEM).replace("{ns}", "a")
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - known:
        reply = http.request(method, url)

        assert reply.status_code == 405, method
        assert set(reply.headers["allow"].split(", ")) == known
        assert not reply.content if method == "HEAD" else problem(reply)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/items/", "/v1/items/a/b", "/v2/items", "//v1/items", "/v1/search/"]
)
def test_an_unknown_path_is_told(http: httpx.Client, path: str) -> None:
    """Without a redirect, which a client would have to follow to learn the same."""
    for method in ("GET", "POST"):
        assert problem(http.request(method, path)) == (404, "no_such_route")


@pytest.mark.parametrize(
    "item_id",
    ["a/b", "100%", "%2F", "ü", "日本", "🦊", "a b+c", "?x#y", "..", ".", "\u202e"],
    ids=repr,
)
def test_any_id_can_be_used(http: httpx.Client, own: list[str], item_id: str) -> None:
    add_item(http, own, item_id)
    part = quote(item_id, safe="").replace(".", "%2E")
    found = http.get(f"/v1/items/{part}", params={"namespace": json.dumps(own)})
    pinned = http.post(f"/v1/items/{part}/pin", params={"namespace": json.dumps(own)})
    gone = http.delete(f"/v1/items/{part}", params={"namespace": json.dumps(own)})

    assert found.json()["id"] == pinned.json()["id"] == item_id
    assert gone.json()["item_ids"] == [item_id]


def test_a_path_that_is_no_utf8_is_refused(http: httpx.Client) -> None:
    assert problem(http.get("/v1/items/%ff")) == (400, "invalid_input")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["team", "alice"], ["team", "alice"]),
        ("team/alice", ["team", "alice"]),
        ('["team", "alice"]', ["team", "alice"]),
        (["a/b"], ["a/b"]),
        ('["a/b"]', ["a/b"]),
        ('["[x"]', ["[x"]),
    ],
)
def test_a_namespace_can_be_written_in_three_ways(
    http: httpx.Client, given: list[str] | str, meant: list[str]
) -> None:
    added = http.post("/v1/items", json={"content": "x", "namespace": given}).json()
    as_text = given if isinstance(given, str) else json.dumps(given)
    listed = http.get("/v1/items", params={"namespace": as_text}).json()["items"]
    gone = http.delete(f"/v1/namespaces/{quote(as_text, safe='')}").json()

    assert added["namespace"] == meant
    assert added["id"] in [item["id"] for item in listed]
    assert gone["namespace"] == meant


@pytest.mark.parametrize("text", ["[", "[1]", '["a"', "a//b", "/", ""])
def test_a_namespace_text_that_can_not_be_read_is_refused(http: httpx.Client, text: str) -> None:
    reply = http.get("/v1/items", params={"namespace": text})

    assert problem(reply) == (400, "invalid_namespace")


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "x", "", "10001", "٣", "1" * 30])
def test_a_limit_that_is_no_such_number_is_refused(
    http: httpx.Client, own: list[str], limit: str
) -> None:
    reply = http.get("/v1/items", params={"namespace": own[0], "limit": limit})

    assert problem(reply) == (400, "invalid_input")


def test_items_are_listed_page_by_page_and_by_status(http: httpx.Client, own: list[str]) -> None:
    bodies = [{"content": f"c{n}", "namespace": own, "id": f"i{n}"} for n in range(4)]
    assert http.post("/v1/items", json=bodies).status_code == 201
    http.post("/v1/items/i3/refute", params={"namespace": own[0]})

    def pages(**query: Any) -> Iterator[list[str]]:
        cursor = None
        while True:
            asked = {"namespace": own[0], "limit": 2, **query}
            page = http.get("/v1/items", params={**asked, **({"cursor": cursor} if cursor else {})})
            yield [item["id"] for item in page.json()["items"]]
            cursor = page.json()["cursor"]
            if cursor is None:
                return

    assert list(pages()) == [[ITEM, "i0"], ["i1", "i2"]]
    assert list(pages(status="refuted")) == [["i3"]]
    assert list(pages(status="all")) == [[ITEM, "i0"], ["i1", "i2"], ["i3"]]
    assert problem(http.get("/v1/items", params={"namespace": own[0], "status": "x"}))[0] == 400


def test_a_vector_of_another_dimension_is_refused(http: httpx.Client, own: list[str]) -> None:
    for path in ("/v1/search", "/v1/context", "/v1/items"):
        body: dict[str, Any] = {"namespace": own, "vector": [1.0, 0.0]}
        body |= {"content": "x"} if path == "/v1/items" else {"query": "x"}

        assert problem(http.post(path, json=body)) == (400, "dimension_mismatch"), path


def test_a_search_takes_a_vector(http: httpx.Client, own: list[str]) -> None:
    vector = [1.0] * 64
    http.post("/v1/items", json={"content": "v", "namespace": own, "vector": vector, "id": "v"})
    for _ in range(2):
        # The second time all is in memory, and the search runs on the event loop.
        found = http.post("/v1/search", json={"namespace": own, "vector": vector, "k": 1}).json()

        assert [hit["item"]["id"] for hit in found["hits"]] == ["v"]
        assert found["hits"][0]["similarity"] == pytest.approx(1.0, abs=1e-3)


def test_a_taken_id_is_a_conflict(http: httpx.Client, own: list[str]) -> None:
    body = {"id": ITEM, "content": "something else", "namespace": own}

    assert problem(http.post("/v1/items", json=body)) == (409, "conflict")


def test_an_id_in_two_namespaces_needs_one_of_them(http: httpx.Client, own: list[str]) -> None:
    add_item(http, own, "twice")
    add_item(http, [*own, "sub"], "twice")

    assert problem(http.get("/v1/items/twice")) == (400, "invalid_input")
    assert http.get("/v1/items/twice", params={"namespace": own[0]}).status_code == 200


# ---------------------------------------------------------------- adding once


def add(http: httpx.Client, key: str, body: Any) -> httpx.Response:
    return http.post("/v1/items", json=body, headers={"idempotency-key": key})


def test_an_add_repeated_with_its_key_adds_nothing(http: httpx.Client, own: list[str]) -> None:
    body = [{"content": one, "namespace": own} for one in ("one", "two")]
    said = {"subject": "bob", "attribute": "city", "value": "Rome"}
    claim = {"content": "in Rome", "namespace": own, "claim": said}
    first, again = add(http, "k1", [*body, claim]), add(http, "k1", [*body, claim])
    other = add(http, "k2", claim)

    assert first.json() == again.json()
    ids = [item["id"] for item in first.json()["items"]]
    assert len({*ids, other.json()["id"]}) == 4
    assert http.get("/v1/stats", params={"namespace": own[0]}).json()["live"] == 5


def test_a_text_told_again_adds_nothing_whatever_its_key(
    http: httpx.Client, own: list[str]
) -> None:
    """An id made of a key is not the sender's: under another key, it is a repeat all the same."""
    body = [{"content": "same", "namespace": own}] * 2
    replies = [add(http, key, body) for key in ("k1", "k2", "k1", "k2")]
    named = add(http, "k3", body[0])

    ids = {item["id"] for reply in replies for item in reply.json()["items"]}
    assert ids == {named.json()["id"]}
    assert add(http, "k1", {**body[0], "id": "mine"}).json()["id"] == "mine"
    assert http.get("/v1/stats", params={"namespace": own[0]}).json()["live"] == 3


def test_a_key_used_for_other_content_is_a_conflict(http: httpx.Client, own: list[str]) -> None:
    assert add(http, "k", {"content": "one", "namespace": own}).status_code == 201
    assert problem(add(http, "k", {"content": "two", "namespace": own})) == (409, "conflict")


def test_a_key_used_in_two_namespaces_names_two_items(http: httpx.Client, own: list[str]) -> None:
    one = add(http, "both", {"content": "x", "namespace": own}).json()
    other = add(http, "both", {"content": "x", "namespace": [*own, "sub"]}).json()

    assert one["id"] != other["id"]


@pytest.mark.parametrize("key", ["", "x" * 257])
def test_an_idempotency_key_has_some_characters(
    http: httpx.Client, own: list[str], key: str
) -> None:
    assert problem(add(http, key, {"content": "x", "namespace": own})) == (400, "invalid_input")


def test_a_request_adds_so_many_items_at_most(http: httpx.Client, own: list[str]) -> None:
    body = [{"content": "x", "namespace": own}] * (api.ITEMS_MAX + 1)

    assert problem(http.post("/v1/items", json=body)) == (400, "invalid_input")
    assert http.post("/v1/items", json=[]).json() == {"items": []}


# ---------------------------------------------------------------- as HTTP has it


@pytest.mark.parametrize("given", ["0", "-1", "x", "1.5", "1234567890"])
def test_a_time_allowed_that_is_no_such_number_is_refused(http: httpx.Client, given: str) -> None:
    reply = http.get("/v1/namespaces", headers={"amv-timeout-ms": given})

    assert problem(reply) == (400, "invalid_input")


def exchange(url: str, *parts: bytes) -> bytes:
    """Send bytes as they are; return what comes back until the server closes."""
    at = urlsplit(url)
    assert at.hostname is not None
    with socket.create_connection((at.hostname, at.port or 80), timeout=WAIT_S) as link:
        for part in parts:
            link.sendall(part)
        answer = b""
        while data := link.recv(65536):
            answer += data
        return answer


JSON = {"content-type": "application/json"}
HEAD = (
    b"POST /v1/items HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nConnection: close\r\n"
)


def test_a_body_that_is_too_large_is_refused(served: Running) -> None:
    """As soon as that is known: from its length, or when too much has come."""
    settings = ServerSettings(port=0, body_bytes_max=2048)
    with running(served.path.with_name("small.db"), settings) as small:
        http = small.http()
        by_length = http.post("/v1/items", content=b" " * 3000, headers=JSON)
        by_chunks = http.post("/v1/items", content=iter([b" " * 512] * 5), headers=JSON)
        content = b'{"content": "x", "namespace": ["a"]}'
        at_most = http.post("/v1/items", content=content.ljust(2048), headers=JSON)

    for answer in (by_length, by_chunks):
        assert problem(answer) == (413, "too_large")
    assert at_most.status_code == 201


def test_a_body_may_come_in_parts(module_served: Running) -> None:
    content = json.dumps({"content": CONTENT, "namespace": ["parts"]}).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, content[n : n + 1]) for n in range(len(content)))
    answer = exchange(
        module_served.url, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunks, b"0\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("part", [b"", b'{"content"'])
def test_a_body_that_does_not_come_ends_at_the_deadline(
    module_served: Running, part: bytes
) -> None:
    head = HEAD + b"amv-timeout-ms: 50\r\nContent-Length: 30\r\n\r\n"
    answer = exchange(module_served.url, head, part)

    assert answer.startswith(b"HTTP/1.1 504 ")


def test_whoever_goes_away_is_not_answered(module_served: Running) -> None:
    at = urlsplit(module_served.url)
    assert at.hostname is not None
    with socket.create_connection((at.hostname, at.port or 80)) as link:
        link.sendall(HEAD + b"Content-Length: 30\r\n\r\n{")

    assert module_served.http().get("/health").status_code == 200


def test_what_is_no_http_is_refused(module_served: Running) -> None:
    assert exchange(module_served.url, b"hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_the_page_and_the_document_are_there(http: httpx.Client) -> None:
    page, document = http.get("/docs"), http.get("/openapi.json").json()

    assert page.headers["content-type"].startswith("text/html")
    assert set(document["paths"]) == {route.path for route in ROUTES} | {"/health"}
    for route in ROUTES:
        assert route.path in page.text


def test_a_large_body_is_read_like_a_small_one(http: httpx.Client, own: list[str]) -> None:
    """It is read elsewhere, so as not to keep others waiting."""
    items = [{"content": f"c{n}", "namespace": own, "context": "x" * 1000} for n in range(80)]
    added = http.post("/v1/items", json=items)
    one = http.post("/v1/items", json={"content": "y " * 40_000, "namespace": own})
    found = http.post("/v1/search", json={"namespace": own, "query": "c7", "filter": {}})
    wrong = [
        http.post("/v1/items", json=[*items, {"content": 1}]),
        http.post("/v1/items", content=b"[" + b" " * 70_000, headers=JSON),
        http.post("/v1/search", json={"namespace": own, "query": "x" * 70_000}),
    ]

    assert [item["content"] for item in added.json()["items"]] == [f"c{n}" for n in range(80)]
    assert one.status_code == 201
    assert found.status_code == 200
    assert [problem(reply) for reply in wrong] == [(400, "invalid_input")] * 3


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "takes a body of JSON, got an empty one"),
        (b"  ", "got an empty one"),
        (b'{"namespace": ["a"], "content": "\\ud800"}', "must not hold a lone surrogate"),
        (b'{"namespace": ["a"], "content": "\\ud800 and more"}', "must not hold a lone surrogate"),
        (b'{"namespace": ["a"], "content": "\\udc00"}', "surrogate"),
        (b'{"namespace": ["a"], "content": "x', "data was truncated"),
        (b'{"namespace": ["a"], "content": "\\ud83d\\ude00', "data was truncated"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(http: httpx.Client, body: bytes, told: str) -> None:
    """What the parser says of half a pair, that data is missing, sends people astray."""
    reply = http.post("/v1/items", content=body, headers={"content-type": "application/json"})

    assert problem(reply) == (400, "invalid_input")
    assert told in reply.json()["error"]["message"]
