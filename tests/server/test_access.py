"""Keys: who is let in, how far a key reaches, and that nothing tells what lies beyond."""

import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import amv
from amv.config import ServerSettings
from amv.errors import ConfigError, InvalidInput, ItemNotFound
from amv.memory.item import Namespace
from amv.server import api, cursors
from amv.server.access import FRESH_S, PEPPER_BYTES, Gatekeeper, Keys, Level, pepper_beside
from amv.server.logs import JsonFormatter
from amv.server.run import check_bind
from amv.stores.memory import MemoryStore
from tests.server.cases import ITEM, add_item, case_of, name_of, problem, routes, sound, told
from tests.server.conftest import WAIT_S, Running, running

every = pytest.mark.parametrize("route", api.ROUTES, ids=name_of)
TENANT: Namespace = ("tenant",)
OTHER = ["other"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway with keys, whose memory holds items of two tenants."""
    with running(tmp_path_factory.mktemp("locked") / "served.db") as found:
        add_item(found.http(), list(TENANT))
        add_item(found.http(), OTHER)
        found.key()
        yield found


# ---------------------------------------------------------------- let in or not


def test_without_keys_all_are_let_in_and_with_one_none_without(served: Running) -> None:
    http = served.http()
    assert http.get("/v1/namespaces").status_code == 200

    key = served.key()

    assert problem(http.get("/v1/namespaces")) == (401, "unauthorised")
    assert served.http(key).get("/v1/namespaces").status_code == 200


@every
@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer amv_",
        "Bearer amv_12345678_" + "0" * 52,
        "Bearer " + "x" * 5000,
        "Bearer \xff\xfe",
        "Basic YTpi",
        "amv_12345678_" + "0" * 52,
    ],
    ids=repr,
)
def test_who_has_no_key_learns_nothing(
    locked: Running, route: api.Route, given: str | None
) -> None:
    headers = [] if given is None else [(b"authorization", given.encode("latin-1"))]
    reply = locked.http().request(**sound(route, list(TENANT)), headers=headers)

    assert problem(reply) == (401, "unauthorised")
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_part_of_a_key_or_one_more_letter_is_none(locked: Running) -> None:
    key = locked.key()
    for wrong in (key[:-1], key + "0", key.upper(), key[:-1] + ("0" if key[-1] != "0" else "1")):
        assert locked.http(wrong).get("/v1/namespaces").status_code == 401


def test_the_scheme_is_read_in_any_case(locked: Running) -> None:
    headers = {"authorization": f"bEARER  {locked.key()}"}

    assert locked.http().get("/v1/namespaces", headers=headers).status_code == 200


def test_only_what_is_the_same_for_all_is_open(locked: Running) -> None:
    http = locked.http()

    assert [http.get(p).status_code for p in ("/health", "/docs", "/openapi.json")] == [200] * 3
    assert problem(http.get("/metrics")) == (401, "unauthorised")
    assert problem(locked.http(locked.key(TENANT)).get("/metrics")) == (403, "forbidden")
    assert locked.http(locked.key(level=Level.READ)).get("/metrics").status_code == 200


def test_a_key_that_is_revoked_is_refused_within_a_second(served: Running) -> None:
    key = served.key()
    http = served.http(key)
    assert http.get("/v1/namespaces").status_code == 200
    served.keys.revoke(key.split("_")[1], 1.0)
    until_s = time.monotonic() + FRESH_S + 1.0

    while http.get("/v1/namespaces").status_code == 200:
        assert time.monotonic() < until_s
        time.sleep(0.05)
    assert problem(served.http().get("/v1/namespaces")) == (401, "unauthorised")


def test_the_first_key_locks_a_running_server_within_a_second(served: Running) -> None:
    http = served.http()
    assert http.get("/v1/namespaces").status_code == 200
    served.keys.create((), Level.READ, 1.0)
    until_s = time.monotonic() + FRESH_S + 1.0

    while http.get("/v1/namespaces").status_code == 200:
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_revoked_key_stays_so_and_an_unknown_one_is_told() -> None:
    keys = Keys(MemoryStore(), lambda: bytes(PEPPER_BYTES))
    token, row = keys.create(TENANT, Level.READ, 1.0)

    assert keys.revoke(row.key_id, 2.0) == keys.revoke(row.key_id, 3.0)
    assert [kept.revoked_s for kept in keys.list()] == [2.0]
    with pytest.raises(ItemNotFound):
        keys.revoke(token, 4.0)


def test_the_known_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes up keys must not fill the server's memory with them."""
    monkeypatch.setattr("amv.server.access._CACHED_MAX", 8)
    store = MemoryStore()
    Keys(store, lambda: bytes(PEPPER_BYTES)).create((), Level.READ, 1.0)
    keeper = Gatekeeper(store, lambda: bytes(PEPPER_BYTES))
    for number in range(50):
        with pytest.raises(amv.AmvError):
            keeper.principal(f"amv_{number:08}_x")
        with pytest.raises(amv.AmvError):
            keeper.principal(f"amv_{number:09}_too long to be one")

    assert len(keeper._known) <= 8
    assert all(len(key_id) == 8 for key_id in keeper._known)


# ---------------------------------------------------------------- how far


@every
@pytest.mark.parametrize("level", Level)
def test_a_key_does_what_its_level_allows(locked: Running, route: api.Route, level: Level) -> None:
    """A dry run of each: what is refused for its level is refused before anything else."""
    asked = sound(route, ["nobody"]) | {"params": {"no such": "parameter"}}
    status, code = problem(locked.http(locked.key(level=level)).request(**asked))

    assert (status, code) == (
        (400, "invalid_input") if level >= route.level else (403, "forbidden")
    )


@pytest.mark.parametrize("route", routes(names_namespace=True), ids=name_of)
def test_beyond_a_key_all_looks_alike(locked: Running, route: api.Route) -> None:
    """Whether the namespace is there or not, whether the item is there or not."""
    http = locked.http(locked.key(TENANT))
    there = told(http.request(**sound(route, OTHER)))

    assert there[0] == 403
    assert there == told(http.request(**sound(route, ["nobody"])))
    assert there == told(http.request(**sound(route, OTHER, "gone")))
    assert there == told(http.request(**sound(route, ["tenant2"])))
    assert there == told(http.request(**sound(route, ["other", "tenant"])))


@pytest.mark.parametrize("route", [r for r in api.ROUTES if "{id}" in r.path], ids=name_of)
def test_an_item_of_others_is_an_item_that_is_not_there(locked: Running, route: api.Route) -> None:
    """A key without a namespace named means its own, where no such id is."""
    add_item(locked.http(locked.key()), OTHER, "theirs")
    http = locked.http(locked.key(TENANT))
    theirs, nobodys = (http.request(**sound(route, None, name)) for name in ("theirs", "nobody"))

    assert problem(theirs) == problem(nobodys) == (404, "not_found")
    assert theirs.text.replace("theirs", "nobody") == nobodys.text


def test_no_write_reaches_beyond_a_key(locked: Running) -> None:
    admin = locked.http(locked.key())
    before = admin.get(f"/v1/items/{ITEM}", params={"namespace": OTHER[0]}).json()
    http = locked.http(locked.key(TENANT))
    for route in api.ROUTES:
        http.request(**sound(route, OTHER))
    body = [{"content": "x", "namespace": list(TENANT)}, {"content": "x", "namespace": OTHER}]
    mixed = http.post("/v1/items", json=body)

    assert problem(mixed) == (403, "forbidden")
    assert admin.get(f"/v1/items/{ITEM}", params={"namespace": OTHER[0]}).json() == before
    assert admin.get("/v1/stats", params={"namespace": OTHER[0]}).json()["live"] <= 2


@pytest.mark.parametrize("route", routes(names_namespace=True, needs_namespace=True), ids=name_of)
def test_a_key_means_its_own_namespace_if_none_is_named(served: Running, route: api.Route) -> None:
    add_item(served.http(), list(TENANT))
    http = served.http(served.key(TENANT))
    reply = http.request(**sound(route, None))

    assert reply.status_code == route.status
    assert reply.json()[case_of(route).tells]


def test_a_key_reaches_the_namespaces_below_its_own(served: Running) -> None:
    add_item(served.http(), ["tenant", "sub"], "below")
    add_item(served.http(), ["tenants"], "beside")
    http = served.http(served.key(TENANT))

    assert http.get("/v1/items/below", params={"namespace": "tenant/sub"}).status_code == 200
    assert http.get("/v1/namespaces").json() == {"namespaces": [["tenant", "sub"]]}
    assert http.get("/v1/items/beside", params={"namespace": "tenants"}).status_code == 403
    assert http.delete("/v1/namespaces/tenant%2Fsub").json()["count"] == 1


def test_totals_and_sweeps_of_all_are_for_keys_to_all(locked: Running) -> None:
    http = locked.http(locked.key(TENANT))

    assert problem(http.post("/v1/sweep")) == (403, "forbidden")
    assert http.get("/v1/stats").json()["store_bytes"] is None
    assert locked.http(locked.key()).get("/v1/stats").json()["store_bytes"] > 0


# ---------------------------------------------------------------- cursors


def test_a_cursor_tells_nothing_and_works_in_its_own_list_only(served: Running) -> None:
    for name in ("tenant", "other"):
        bodies = [{"content": "x", "namespace": [name], "id": f"i{n}"} for n in range(3)]
        served.http().post("/v1/items", json=bodies)
    plain = served.http().get("/v1/items?namespace=tenant&limit=1").json()["cursor"]
    http = served.http(served.key())
    first = http.get("/v1/items?namespace=tenant&limit=1").json()
    query = {"namespace": "tenant", "limit": 1, "cursor": first["cursor"]}

    assert [i["id"] for i in http.get("/v1/items", params=query).json()["items"]] == ["i1"]
    assert first["cursor"] == http.get("/v1/items?namespace=tenant&limit=1").json()["cursor"]
    for wrong in (
        query | {"namespace": "other"},
        query | {"cursor": plain},
        query | {"cursor": first["cursor"].swapcase()},
        query | {"cursor": ""},
        query | {"cursor": "ü"},
    ):
        assert problem(http.get("/v1/items", params=wrong)) == (400, "invalid_input")


def test_sealing_keeps_the_place_and_nothing_in_sight() -> None:
    secret, cursor = bytes(32), "azEyMw=="
    sealed = cursors.sealed(cursor, TENANT, secret)

    assert cursors.opened(sealed, TENANT, secret) == cursor
    assert sealed != cursors.sealed(cursor, ("tenan", "t"), secret)
    for namespace, key in ((("x",), secret), (TENANT, b"\1" * 32)):
        with pytest.raises(InvalidInput):
            cursors.opened(sealed, namespace, key)


# ---------------------------------------------------------------- what is kept of keys


def test_no_key_is_in_a_file_or_a_log(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonFormatter())
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    before = logging.getLogger("amv").level
    logging.getLogger("amv").setLevel(logging.DEBUG)
    try:
        key = served.key()
        http = served.http(key)
        add_item(http, ["a"])
        assert http.get("/v1/items/none").status_code == 404
        assert served.http(key + "x").get("/v1/namespaces").status_code == 401
        # A request is logged when its reply has gone out: it may be read before.
        end_s = time.monotonic() + WAIT_S
        while len(lines) < 3 and time.monotonic() < end_s:
            time.sleep(0.01)
    finally:
        root.removeHandler(handler)
        logging.getLogger("amv").setLevel(before)
    secret = key.rpartition("_")[2]
    kept = b"".join(path.read_bytes() for path in served.path.parent.iterdir())

    assert len(lines) == 3
    assert secret not in "".join(lines)
    assert key.split("_")[1].encode() in kept
    assert secret.encode() not in kept
    assert secret not in "".join(capsys.readouterr())


def test_a_pepper_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = str(tmp_path / "m.db")
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.append(pepper_beside(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    beside = tmp_path / "m.db.pepper"

    assert set(made) == {beside.read_bytes()}
    assert len(made) == 8
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["m.db.pepper"]


def test_a_key_is_of_no_use_with_another_pepper(served: Running) -> None:
    key = served.key()
    assert served.http(key).get("/v1/namespaces").status_code == 200
    served.path.with_name("served.db.pepper").write_bytes(b"p" * PEPPER_BYTES)
    served.forget_keys()

    assert served.http(key).get("/v1/namespaces").status_code == 401


def test_a_pepper_that_can_not_be_used_is_told(tmp_path: Path, served: Running) -> None:
    path = tmp_path / "m.db"
    path.with_name("m.db.pepper").write_bytes(b"short")
    with pytest.raises(ConfigError, match="must hold 32 bytes"):
        pepper_beside(str(path))
    with pytest.raises(ConfigError, match="can't read or make"):
        pepper_beside(str(tmp_path / "no such folder" / "m.db"))

    key = served.key()
    served.path.with_name("served.db.pepper").write_bytes(b"short")
    served.forget_keys()
    reply = served.http(key).get("/v1/namespaces")

    assert problem(reply) == (500, "internal")
    assert "pepper" not in reply.text


# ---------------------------------------------------------------- where it listens


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost.evil.com"]
)
def test_without_a_key_it_listens_to_this_machine_only(host: str) -> None:
    with pytest.raises(ConfigError, match="amv keys create"):
        check_bind(ServerSettings(host=host), has_keys=False)
    check_bind(ServerSettings(host=host), has_keys=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    check_bind(ServerSettings(host=host), has_keys=False)


@pytest.mark.parametrize(
    ("headers", "is_fine"),
    [
        ({"host": "localhost:8420"}, True),
        ({"host": "LOCALHOST"}, True),
        ({"host": "127.0.0.1"}, True),
        ({"host": "127.0.0.2:99"}, True),
        ({"host": "[::1]"}, True),
        ({"host": "[::1]:8420"}, True),
        ({"host": "evil.com"}, False),
        ({"host": "evil.com:8420"}, False),
        ({"host": "localhost.evil.com"}, False),
        ({"host": "127.0.0.1.evil.com"}, False),
        ({"host": "evil.com@localhost:1"}, True),
        ({"host": "192.0.2.1"}, False),
        ({"host": "[::1"}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "http://evil.com"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
    ],
    ids=str,
)
def test_pages_of_others_are_kept_out(
    module_served: Running, headers: dict[str, str], is_fine: bool
) -> None:
    """By their name, should it point here (DNS rebinding), or by where they come from."""
    http = module_served.http()
    for method, path in (("GET", "/v1/namespaces"), ("POST", "/v1/sweep"), ("GET", "/metrics")):
        reply = http.request(method, path, headers=headers)

        if is_fine:
            assert reply.status_code == 200
        else:
            assert problem(reply) == (403, "wrong_host")


def test_with_keys_any_name_is_served(locked: Running) -> None:
    http = locked.http(locked.key())

    assert http.get("/v1/namespaces", headers={"host": "memory.example"}).status_code == 200
