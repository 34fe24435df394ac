"""What the gateway counts, and that its log and its counters hold no one's words."""

import json
import logging
import sys
from unittest.mock import Mock

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from amv.errors import EmbedderError, StoreUnavailable
from amv.server import api
from amv.server.logs import JsonFormatter, log_as_json
from tests.server.cases import CASES, CONTENT, ITEM, add_item, name_of, problem, sound
from tests.server.conftest import Running

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(http: httpx.Client) -> Samples:
    reply = http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }


def of(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


@pytest.mark.parametrize("route", api.ROUTES, ids=name_of)
def test_every_route_is_counted_under_its_own_name(
    module_served: Running, route: api.Route
) -> None:
    http = module_served.http()
    add_item(http, [name_of(route)])
    labels = {"method": route.method, "route": route.path}
    before = samples(http)
    assert http.request(**sound(route, [name_of(route)])).status_code == route.status
    after = samples(http)

    for name, more in (
        ("amv_http_requests_total", {"status": str(route.status)}),
        ("amv_http_request_seconds_count", {}),
    ):
        assert of(after, name, **labels, **more) - of(before, name, **labels, **more) == 1.0


def test_what_is_made_up_gets_no_label_of_its_own(served: Running) -> None:
    """Or else anyone could fill the memory of the server, and of whoever reads its metrics."""
    http = served.http()
    for number in range(5):
        http.get(f"/made/up/{number}")
        http.request("PUT", f"/v1/items/{number}")
        http.request("PROPFIND", f"/{number}")
        http.get("/v1/stats", params={"namespace": f"n{number}"})
    labels = [dict(own) for _, own in samples(http)]

    known = {path for _, path in CASES} | {"/health", "/metrics", "/openapi.json", "/docs"}
    assert {own["route"] for own in labels if "route" in own} <= known | {"other"}
    assert {own["method"] for own in labels if "method" in own} <= {"GET", "other"}
    assert of(samples(http), "amv_http_requests_total", method="GET", route="other", status="404")


def test_searches_and_totals_are_counted(served: Running) -> None:
    http = served.http()
    for number in range(3):
        add_item(http, ["a"], f"i{number}")
    http.post("/v1/search", json={"query": "Rome", "namespace": ["a"]})
    http.post("/v1/sweep")
    found = samples(http)

    assert of(found, "amv_items", tier="hot") == 3.0
    assert of(found, "amv_namespaces") == 1.0
    assert of(found, "amv_store_bytes") > 0.0
    assert of(found, "amv_search_scanned_sum", part="hot") == 3.0
    assert of(found, "amv_search_scanned_count", part="postings") == 1.0
    assert of(found, "amv_lookups_total", of="items", result="miss") == 3.0
    assert of(found, "amv_events_folded_total") == 3.0
    assert of(found, "amv_events_unfolded") == 0.0
    assert of(found, "amv_namespaces_cached") == 1.0
    assert ("amv_sweep_moves_total", frozenset()) in found
    assert ("amv_sweep_visited_total", frozenset()) in found


def test_buckets_hold_all_up_to_their_bound(served: Running) -> None:
    """As Prometheus has it: each counts those below it, too, and the last one all."""
    http = served.http()
    for number in range(17):
        add_item(http, ["a"], f"i{number}")
    for _ in range(2):
        http.post("/v1/search", json={"query": "Rome", "namespace": ["a"]})
    found = samples(http)
    hot = {
        bound: of(found, "amv_search_scanned_bucket", part="hot", le=bound)
        for bound in ("0.0", "16.0", "64.0", "8192.0", "+Inf")
    }

    assert hot == {"0.0": 0.0, "16.0": 0.0, "64.0": 2.0, "8192.0": 2.0, "+Inf": 2.0}
    assert of(found, "amv_search_scanned_sum", part="hot") == 34.0
    assert of(found, "amv_search_incomplete_total") == 0.0


def test_totals_are_looked_up_only_now_and_then(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, stats = served.http(), Mock(wraps=served.memory.stats)
    monkeypatch.setattr(served.memory, "stats", stats)
    for _ in range(3):
        samples(http)

    assert stats.call_count == 1


# ---------------------------------------------------------------- the log


def test_a_request_id_is_given_back_or_made(served: Running) -> None:
    http = served.http()
    for path in ("/health", "/v1/namespaces", "/nowhere", "/v1/items/none"):
        given = http.get(path, headers={"x-request-id": "a-b_c.1"}).headers["x-request-id"]
        made = {http.get(path).headers["x-request-id"] for _ in range(3)}

        assert given == "a-b_c.1"
        assert len(made) == 3
    for wrong in ("x" * 65, "a b", ""):
        assert http.get("/health", headers={"x-request-id": wrong}).headers["x-request-id"] != wrong


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ValueError(CONTENT), 500, "internal"),
        (EmbedderError("the model failed"), 500, "embedder_failed"),
        (StoreUnavailable("the disk is full"), 503, "store_unavailable"),
    ],
    ids=repr,
)
def test_a_failure_is_told_to_the_keeper_and_not_to_the_caller(
    served: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    code: str,
) -> None:
    def get(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(served.memory, "get", get)
    with caplog.at_level(logging.WARNING, "amv"):
        reply = served.http().get(f"/v1/items/{ITEM}", headers={"x-request-id": "failed-1"})
    (record,) = caplog.records
    line = JsonFormatter().format(record)

    assert problem(reply) == (status, code)
    assert json.loads(line)["request_id"] == "failed-1"
    assert type(error).__name__ in line
    assert "test_metrics.py" in line
    assert CONTENT not in line + reply.text
    assert served.http().get("/health").status_code == 200


def test_a_store_that_fails_while_keys_are_looked_up_is_told(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(served.gateway.keeper, "has_keys", fail)

    for path in ("/v1/namespaces", "/metrics", "/nowhere"):
        assert problem(served.http().get(path)) == (503, "store_unavailable")


def test_a_line_is_one_object_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    root, level = logging.getLogger(), logging.getLogger("amv").level
    handlers, root_level = root.handlers[:], root.level
    log_as_json("INFO")
    try:
        try:
            try:
                raise StoreUnavailable("no\nfile")
            except StoreUnavailable as error:
                raise KeyError("secret \U0001f98a") from error
        except KeyError:
            logging.getLogger("amv.test").warning("one\ntwo \U0001f98a", exc_info=sys.exc_info())
        logging.getLogger("amv.test").debug("not this")
    finally:
        root.handlers[:] = handlers
        root.setLevel(root_level)
        logging.getLogger("amv").setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)

    assert found["event"] == "one\ntwo \U0001f98a"
    assert line.isascii()
    assert found["error"].startswith("KeyError at ")
    assert "because of StoreUnavailable: no\nfile at" in found["error"]
    assert "secret" not in line
