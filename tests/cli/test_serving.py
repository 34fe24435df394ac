"""The commands of the gateway: serve; keys create, list, revoke."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from amv.client import Client, Refused
from amv.errors import Conflict
from amv.guard.actions import Action
from amv.server.access import PEPPER_BYTES
from tests.cli.conftest import Cli

TOKEN = re.compile(r"amv_([0-9a-z]{8})_[0-9a-z]{52}")
WAIT_S = 20.0

Serve = Callable[..., str]


@pytest.fixture
def serve(amv: Cli) -> Iterator[Serve]:
    """Start `amv serve` on a free port; return its address.  It is stopped at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> str:
        process = amv.start("serve", "--port", "0", *arguments)
        started.append(process)
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert said.startswith("amv serves amv.db at http://127.0.0.1:"), said
        return said.split()[-1]

    yield begin
    for process in started:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_and_stops_when_told(amv: Cli, number: signal.Signals) -> None:
    process = amv.start("serve", "--port", "0")
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    url = said.split()[-1]
    with Client(url) as client:
        client.add("Alice moved to Rome", namespace=("alice",))
    process.send_signal(number)
    out, err = process.communicate(timeout=WAIT_S)

    assert said == f"amv serves amv.db at {url}\n"
    assert (process.returncode, out, err) == (0, b"", b"")
    assert amv("stats", "--json").json["live"] == 1


@pytest.mark.parametrize("how", ["option", "environment"])
def test_serve_has_a_gate_if_it_has_a_policy(
    amv: Cli, serve: Serve, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (amv.folder / "p.yaml").write_text("{version: 1, actions: {look: {effect: read}}}", "utf-8")
    (amv.folder / "c.json").write_text('{"steps": [{"sort": "platt", "numbers": [1, 1]}]}', "utf-8")
    given = {"policy": "p.yaml", "calibration": "c.json"}
    if how == "option":
        url = serve(*(word for name, file in given.items() for word in (f"--{name}", file)))
    else:
        for name, file in given.items():
            monkeypatch.setenv(f"AMV_{name.upper()}", file)
        url = serve()

    with Client(url) as client:
        assert client.decide(Action(tool="look", namespace=("a",))).verdict == "PROCEED"
        assert client.decide(Action(tool="leap", namespace=("a",))).verdict == "ABSTAIN"
    assert amv("guard", "replay", "--json").json == {"decisions": 2, "faults": []}


def test_serve_without_a_policy_has_no_gate(amv: Cli, serve: Serve) -> None:
    with Client(serve()) as client, pytest.raises(Conflict, match="AMV_POLICY"):
        client.decide(Action(tool="look", namespace=("a",)))


@pytest.mark.parametrize("option", ["--policy", "--calibration"])
@pytest.mark.parametrize("text", [None, "{", "{version: 2}"])
def test_serve_refuses_a_gate_that_can_not_be(amv: Cli, option: str, text: str | None) -> None:
    (amv.folder / "p.yaml").write_text("version: 1", "utf-8")
    if text is not None:
        (amv.folder / "x").write_text(text, "utf-8")
    given = {"--policy": "p.yaml"} | {option: "x"}

    run = amv("serve", "--port", "0", *(word for pair in given.items() for word in pair))

    assert (run.code, run.out) == (1, "")
    assert "'x'" in run.err or "not valid" in run.err


def test_serve_refuses_what_it_can_not_do(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = amv("serve", "--host", "0.0.0.0", "--port", "0")
    port = amv("serve", "--port", "70000")
    monkeypatch.setenv("AMV_HOST", "192.0.2.1")
    by_variable = amv("serve", "--port", "0")

    assert beyond.code == port.code == by_variable.code == 1
    assert "0.0.0.0 can be reached from elsewhere" in beyond.err
    assert "a port from 0 to 65535" in port.err
    assert "192.0.2.1 can be reached from elsewhere" in by_variable.err


def test_a_key_is_shown_once_and_opens_what_it_says(amv: Cli, serve: Serve) -> None:
    made = amv("keys", "create", "-n", "alice", "--level", "read")
    token = made.out.strip()
    assert TOKEN.fullmatch(token)
    assert made.err == "keep this key: it can't be shown again\n"
    url = serve()
    with Client(url, key=token) as client, Client(url) as nobody:
        assert client.list(namespace=("alice",)).items == ()
        for call in (
            lambda: client.list(namespace=("bob",)),
            lambda: client.add("x", namespace=("alice",)),
            lambda: nobody.namespaces(),
        ):
            with pytest.raises(Refused):
                call()

    files = b"".join(path.read_bytes() for path in amv.folder.iterdir())
    assert token.rpartition("_")[2].encode() not in files
    assert token not in amv("keys", "list").out + amv("keys", "list", "--json").out


def test_keys_as_json(amv: Cli) -> None:
    made = amv("keys", "create", "-n", '["a/b"]', "--level", "admin", "--json").json
    other = amv("keys", "create", "--json").json
    revoked = amv("keys", "revoke", made["id"], "--json").json
    listed = amv("keys", "list", "--json").lines

    found = TOKEN.fullmatch(made.pop("key"))
    assert found
    assert found[1] == made["id"]
    assert other.pop("key")
    assert (made["namespace"], made["level"], made["revoked_at"]) == (["a/b"], "admin", None)
    assert (other["namespace"], other["level"]) == ([], "write")
    assert revoked == {**made, "revoked_at": revoked["revoked_at"]}
    assert revoked["revoked_at"] >= made["created_at"]
    assert sorted(listed, key=str) == sorted([revoked, other], key=str)


def test_keys_for_people(amv: Cli) -> None:
    first = amv("keys", "create", "-n", "team/alice").out.split("_")[1]
    second = amv("keys", "create", "--level", "admin").out.split("_")[1]
    revoked = amv("keys", "revoke", first)
    lines = {line.split()[0]: line.split() for line in amv("keys", "list").out.splitlines()}

    assert (revoked.code, revoked.out, revoked.err) == (0, "", f"key {first} is revoked\n")
    assert lines[first][1:3] == ["team/alice", "write"]
    assert lines[second][1:3] == ["all", "admin"]
    assert len(lines[first]) == len(lines[second]) + 1


def test_keys_that_are_not_there_are_told(amv: Cli) -> None:
    no_file = amv("keys", "list")
    amv("add", "x", "-n", "a")
    none = amv("keys", "list")
    unknown = amv("keys", "revoke", "nokey", "--json")
    level = amv("keys", "create", "--level", "owner")

    assert no_file.code == 1
    assert (none.code, none.out, none.err) == (0, "", "there is no key yet\n")
    assert amv("keys", "list", "--json").out == ""
    assert unknown.code == 1
    assert unknown.error["type"] == "ItemNotFound"
    assert level.code == 2


def test_a_pepper_that_is_damaged_is_told(amv: Cli) -> None:
    (amv.folder / "amv.db.pepper").write_bytes(b"x" * (PEPPER_BYTES + 1))
    made = amv("keys", "create", "--json")

    assert made.code == 1
    assert made.error["type"] == "ConfigError"


def test_commands_work_beside_a_running_server(amv: Cli, serve: Serve) -> None:
    """Both see at once what the other wrote, through every kind of change."""
    with Client(serve()) as client:
        by_server = client.add("Alice moved to Rome", namespace=("alice",), id="rome")
        by_command = amv("add", "Alice likes tea", "-n", "alice", "--id", "tea", "--json")
        found = amv("search", "Rome", "-n", "alice", "--json").lines

        assert by_command.code == 0
        assert by_server.id in json.dumps(found)
        assert {i.id for i in client.list(namespace=("alice",)).items} == {"rome", "tea"}
        assert client.search("tea", namespace=("alice",)).hits[0].item.id == "tea"

        amv("update", "rome", "-n", "alice", "--content", "Alice left Rome")
        assert client.get("rome").content == "Alice left Rome"
        assert amv("forget", "tea", "-n", "alice").code == 0
        assert [hit.item.id for hit in client.search("tea", namespace=("alice",)).hits] == ["rome"]
        assert amv("sweep").code == amv("doctor").code == 0
        assert amv("stats", "--json").json["live"] == client.stats().live == 1


def test_a_key_made_or_revoked_beside_a_running_server_counts_within_a_second(
    amv: Cli, serve: Serve
) -> None:
    url = serve()
    with Client(url) as nobody:
        assert nobody.namespaces() == []
        made = amv("keys", "create", "--json").json
        until_refused(nobody)
        with Client(url, key=made["key"]) as client:
            assert client.namespaces() == []
            amv("keys", "revoke", made["id"])
            until_refused(client)


def until_refused(client: Client) -> None:
    until_s = time.monotonic() + 3.0
    while time.monotonic() < until_s:
        try:
            client.namespaces()
        except Refused:
            return
        time.sleep(0.02)
    pytest.fail("was not refused")
