"""The commands about a memory as a whole."""

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import pytest

import amv as package
from amv import wiring
from amv.embedders.hashing import Hashing
from amv.memory.upkeep import rebuild
from tests.cli.conftest import Cli
from tests.embedders.endpoint_server import refusing, serving

DAY_S = 86_400.0


def test_stats_count_one_namespace_or_all(amv: Cli) -> None:
    amv("add", "one", "-n", "a", "--pinned")
    amv("add", "two", "-n", "a")
    amv("add", "three", "-n", "b")

    everyone, one, nobody = (
        amv("stats", "--json", *options).json for options in ([], ["-n", "a"], ["-n", "x"])
    )

    assert (everyone["namespace"], everyone["namespaces"], everyone["live"]) == (None, 2, 3)
    assert (one["namespace"], one["live"], one["pinned"]) == (["a"], 2, 1)
    assert one["tiers"] == {"HOT": 2, "WARM": 0, "COLD": 0}
    assert one["store_bytes"] > 0
    assert (one["embedder"], one["dimension"]) == ("hashing-256", 256)
    assert one["embedder_name"] == "hashing:256"
    assert nobody["live"] == 0


def test_stats_say_whose_they_are(amv: Cli) -> None:
    amv("add", "one", "-n", "a")

    assert "all namespaces" in amv("stats").out
    assert "HOT 1, WARM 0, COLD 0" in amv("stats", "-n", "a").out


def aged(path: str) -> None:
    """Make a memory with something to sweep in two namespaces."""
    past_s = time.time() - 200 * DAY_S
    settings = package.Settings(upkeep_interval_s=None)
    with package.Memory.open(
        path, embedder="hashing", settings=settings, clock=lambda: past_s
    ) as memory:
        for name in ("a", "b"):
            memory.add_many({"content": f"n {n}", "namespace": (name,)} for n in range(150))
        memory.add("gone", namespace=("a",), expires_at=past_s + DAY_S, id="gone")


def test_a_dry_sweep_lists_what_the_sweep_does(amv: Cli) -> None:
    aged("amv.db")

    before = amv("export").out
    dry = amv("sweep", "--dry-run", "--json").json
    assert amv("export").out == before
    real = amv("sweep", "--json").json

    assert dry["dry_run"]
    assert not real["dry_run"]
    assert dry["moves"] == real["moves"]
    assert {move["to"] for move in real["moves"]} == {"COLD", None}
    assert {tuple(move["namespace"]) for move in real["moves"]} == {("a",), ("b",)}
    assert amv("sweep", "--json").json["moves"] == []


def test_sweep_of_one_namespace_leaves_others_alone(amv: Cli) -> None:
    aged("amv.db")

    run = amv("sweep", "-n", "b")

    assert "items of b;" in run.out
    assert "gone" not in run.out
    rows = [row.split() for row in run.out.splitlines()]
    assert rows[0] == ["id", "namespace", "was", "to", "why"]
    assert {row[1] for row in rows[1:-1]} == {"b"}
    assert "of all namespaces" in amv("sweep", "--dry-run").out


def test_doctor_finds_nothing_wrong_with_a_sound_file(amv: Cli) -> None:
    aged("amv.db")

    assert (amv("doctor").code, amv("doctor").out) == (0, "all 2 namespaces: nothing is wrong\n")
    empty: dict[str, list[str]] = {"problems": [], "rebuilt": [], "unchecked": [], "unindexed": []}
    assert amv("doctor", "--json").json == empty
    # Whatever embedder others are told to use, or if it can't be loaded.
    assert amv("--embedder", "minilm", "doctor", "--json").json == empty


def test_a_file_of_the_static_embedder_is_made_and_looked_after(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMV_EMBEDDER", "static")
    assert amv("add", "-n", "a", "The cellar keys are in the blue drawer").code == 0
    monkeypatch.delenv("AMV_EMBEDDER")

    found = amv("search", "-n", "a", "basement", "--json").json

    assert found["hits"][0]["similarity"] > 0.1
    stats = amv("stats", "--json").json
    assert (stats["embedder"], stats["dimension"]) == ("minilm-l6-v2-static-256-1", 256)
    assert stats["embedder_name"] == "static"
    assert re.search(r"^embedder_name +static$", amv("stats").out, re.M)
    assert amv("doctor", "--json").json["unchecked"] == []
    assert amv("--embedder", "minilm", "search", "-n", "a", "x", "--json").code == 1
    assert amv("reembed", "hashing").code == 0
    assert amv("reembed", "static").code == 0
    assert amv("stats", "--json").json["dimension"] == 256


class OneOfTheirs(Hashing):
    """An embedder that AMV has not."""

    id = "one (of) theirs"


def test_a_file_of_someones_own_embedder_is_looked_after(amv: Cli) -> None:
    """Only what embeds needs the object: nothing else may be refused for the lack of it."""
    with package.Memory.open("amv.db", embedder=OneOfTheirs(dimension=32)) as memory:
        memory.add_many({"content": f"n {n}", "namespace": ("a",)} for n in range(9))
        item = memory.add("first", namespace=("a",))

    told, as_json = amv("doctor"), amv("doctor", "--json")

    what = "whether the vectors are what embedder one (of) theirs gives"
    assert (told.code, told.out) == (0, "1 namespace: nothing is wrong\n")
    assert f"not checked: {what}" in told.err
    assert (as_json.json["unchecked"], as_json.json["problems"]) == ([what], [])
    assert amv("stats", "--json").json["embedder_name"] is None
    assert re.search(r"^embedder_name +-$", amv("stats").out, re.M)
    assert amv("doctor", "--rebuild").code == 0
    stats = amv("stats", "--json").json
    assert (stats["live"], stats["embedder"], stats["dimension"]) == (10, "one (of) theirs", 32)
    assert amv("sweep", "--json").code == 0
    assert item.id in amv("export", "--vectors").out
    refused = amv("search", "n 7", "-n", "a", "--json")
    assert (refused.code, refused.error["type"]) == (1, "EmbedderChanged")
    with package.Memory.open("amv.db", embedder=OneOfTheirs(dimension=32)) as memory:
        assert memory.search("n 7", namespace=("a",)).hits[0].item.content == "n 7"


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        (
            "hashing-64 (64 dimensions)",
            "3 vectors have not the 64 dimensions of embedder hashing-64",
        ),
        ("hashing", "the name of the embedder can't be read"),
    ],
)
def test_doctor_finds_vectors_of_another_embedder(amv: Cli, mark: str, problem: str) -> None:
    for text in ("one", "two", "three"):
        amv("add", text, "-n", "a")
    with closing(sqlite3.connect("amv.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'embedder'", (mark,))

    run = amv("doctor", "--json")

    assert (run.code, run.json["problems"]) == (1, [problem])


def test_doctor_tells_of_an_index_that_is_to_be_made(amv: Cli) -> None:
    """That is not wrong: it is how an upgrade, or a process that was killed, leaves a file."""
    with package.Memory.open("amv.db", embedder="hashing:8") as memory:
        memory.add_many({"content": f"n {n}", "namespace": ("a",)} for n in range(2100))
        settings = package.Settings().memory
        memory.store.write(lambda tx: rebuild(tx, 1, settings, time.time()))

    told, as_json = amv("doctor"), amv("doctor", "--json")

    assert (told.code, told.out) == (0, "1 namespace: nothing is wrong\n")
    assert "many vectors of a wait for their index" in told.err
    assert as_json.json["unindexed"] == [["a"]]
    assert amv("stats", "--json").json["pending"] == 2100


def test_doctor_names_what_is_wrong_and_rebuilds_it(amv: Cli) -> None:
    aged("amv.db")
    with closing(sqlite3.connect("amv.db")) as connection, connection:
        connection.execute("UPDATE namespace SET live = live + 7")

    sick = amv("doctor", "--json")
    told = amv("doctor")
    half = amv("doctor", "--rebuild", "-n", "a", "--json")
    well = amv("doctor", "--rebuild")

    assert (sick.code, len(sick.json["problems"])) == (1, 2)
    assert told.code == 1
    assert "--rebuild" in told.err
    assert (half.code, half.json["rebuilt"], len(half.json["problems"])) == (1, [["a"]], 1)
    assert (well.code, well.out) == (
        0,
        "rebuilt the indexes of all namespaces\nall 2 namespaces: nothing is wrong\n",
    )
    assert amv("search", "n 7", "-n", "a", "--json").json["hits"][0]["item"]["content"] == "n 7"


def test_doctor_refuses_a_file_that_is_no_memory(amv: Cli) -> None:
    (amv.folder / "amv.db").write_bytes(b"something else entirely, and long enough " * 100)

    run = amv("doctor", "--json")

    assert (run.code, run.error["type"]) == (1, "SchemaMismatch")


def test_reembed_changes_over_to_another_embedder(amv: Cli) -> None:
    amv("add", "Alice lives in Rome", "-n", "a", "--id", "x")

    run = amv("reembed", "hashing:64", "--json")

    assert run.json == {"embedded": 1, "embedder": "hashing:64"}
    refused = amv("search", "Rome", "-n", "a", "--json")
    assert (refused.code, refused.error["type"]) == (1, "EmbedderChanged")
    found = amv("--embedder", "hashing:64", "search", "Rome", "-n", "a", "--json")
    assert found.json["hits"][0]["item"]["id"] == "x"
    assert found.json["hits"][0]["similarity"] > 0
    assert "now of hashing" in amv("--embedder", "hashing:64", "reembed", "hashing").out
    assert amv("search", "Rome", "-n", "a").code == 0


def test_reembed_to_an_embedder_there_is_none_of_changes_nothing(amv: Cli) -> None:
    amv("add", "Alice lives in Rome", "-n", "a")

    run = amv("reembed", "word2vec", "--json")

    assert (run.code, run.error["type"]) == (1, "InvalidInput")
    assert amv("search", "Rome", "-n", "a").code == 0


def test_a_stopped_reembed_says_how_far_it_got(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    amv("add", "Alice lives in Rome", "-n", "a")

    def stopped(
        path: str, settings: package.Settings, to: str, progress: Callable[[int, int], None]
    ) -> int:
        progress(3, 10)
        raise KeyboardInterrupt

    monkeypatch.setattr(wiring, "reembed", stopped)
    run = amv("reembed", "hashing:64", "--json")

    assert run.code == 130
    assert run.error["type"] == "Interrupted"
    assert "3 of 10" in run.error["message"]
    assert "again" in run.error["message"]


def test_a_file_of_a_remote_model_is_looked_after_without_it(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever checks, counts or exports it needs no key, and asks nobody."""
    monkeypatch.setenv("AMV_EMBEDDER", "remote:m")
    with serving() as server:
        monkeypatch.setenv("AMV_EMBEDDER_URL", server.url)
        assert amv("add", "Alice moved to Rome", "-n", "a").code == 0
        assert amv("search", "Rome", "-n", "a", "--json").json["hits"]
    monkeypatch.delenv("AMV_EMBEDDER")

    refused = amv("search", "Rome or Oslo", "-n", "a", "--json")
    assert (refused.code, refused.error["type"]) == (1, "EmbedderError")
    monkeypatch.delenv("AMV_EMBEDDER_URL")
    unchecked = ["whether the vectors are what embedder remote:m gives"]
    assert amv("doctor", "--json").json["unchecked"] == unchecked
    assert amv("stats", "--json").json["embedder"] == "remote:m"
    assert len(amv("export").lines) == 1
    assert "AMV_EMBEDDER_URL" in amv("search", "x", "-n", "a").err
    assert amv("reembed", "hashing:64").code == 0
    with serving() as server:
        monkeypatch.setenv("AMV_EMBEDDER_URL", server.url)
        server.always = refusing(400, b"no such model")
        failed = amv("reembed", "remote:m", "--json").error
        assert "no such model" in failed["message"]
        assert "run `amv reembed remote:m` again" in failed["message"]
    assert amv("search", "Rome", "-n", "a", "--json").json["hits"]


@pytest.mark.parametrize("rebuilds", [[], ["--rebuild"]])
@pytest.mark.parametrize("from_byte", [100, 8192, 40_000])
@pytest.mark.parametrize("is_cut", [False, True])
def test_doctor_of_a_file_that_lost_much_says_what_to_do(
    amv: Cli, from_byte: int, is_cut: bool, rebuilds: list[str]
) -> None:
    """And never to run the doctor."""
    aged("amv.db")
    file = amv.folder / "amv.db"
    content = file.read_bytes()
    lost = b"" if is_cut else b"\xaa" * (len(content) - from_byte)
    file.write_bytes(content[:from_byte] + lost)

    run = amv("doctor", *rebuilds)

    assert run.code == 1
    assert "damaged" in run.out + run.err
    assert "run `amv doctor`" not in run.out + run.err
    if not run.out:
        assert "restore a backup" in run.err


def test_an_empty_file_is_no_database_to_look_at(amv: Cli) -> None:
    """A mistyped name must not become a memory."""
    file = amv.folder / "amv.db"
    file.touch()

    for command in (("stats",), ("search", "x", "-n", "a"), ("doctor",)):
        run = amv(*command, "--json")
        assert (run.code, run.error["type"]) == (1, "ConfigError")
    assert file.read_bytes() == b""
    assert amv("add", "x", "-n", "a").code == 0


def test_a_sweep_of_a_namespace_that_is_not_there_says_so(amv: Cli) -> None:
    aged("amv.db")

    run = amv("sweep", "-n", "nobody")

    assert (run.code, run.err) == (0, "there is no namespace nobody yet\n")
    assert amv("sweep", "-n", "a").err == ""
