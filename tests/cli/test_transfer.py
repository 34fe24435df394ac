"""Export and import: nothing lost, nothing twice, from wherever an import stopped."""

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import amv as package
from amv.imports import lines, writing
from tests.cli.conftest import Cli

DAY_S = 86_400.0


def written(path: Path, items: Sequence[object]) -> str:
    """Write JSON lines; return the file's name."""
    path.write_text("".join(json.dumps(item) + "\n" for item in items), "utf-8")
    return str(path)


def contents(amv: Cli, db: str = "amv.db") -> list[str]:
    run = amv("--db", db, "export")
    assert run.code == 0, run.err
    return [item["content"] for item in run.lines]


def fill(path: str) -> None:
    """Make a memory in which items have been through all that can happen to one."""
    now_s = time.time() - 90 * DAY_S
    settings = package.Settings(upkeep_interval_s=None)

    with package.Memory.open(
        path, embedder="hashing", settings=settings, clock=lambda: now_s
    ) as memory:
        a, b = ("alice",), ("team/x", "b")
        memory.add_many({"content": f"filler {n}", "namespace": a} for n in range(200))
        for city in ("Rome", "Oslo", "Lima"):
            claim = package.Claim("alice", "city", city)
            memory.add(f"lives in {city}", namespace=a, claim=claim, id=city)
            now_s += DAY_S
        refuted = memory.add("likes tea", namespace=a, id="tea")
        memory.refute(refuted.id, namespace=a)
        memory.add("3 cats", namespace=a, id="cats", claim=package.Claim("alice", "cats", 3))
        memory.refute("cats", 4.5, namespace=a)
        memory.add("pinned 📌", namespace=a, pinned=True, id="pin")
        memory.add("gone", namespace=a, expires_at=now_s + 1, id="gone")
        memory.add("expires", namespace=a, expires_at="2999-01-01T00:00:00.000001", id="exp")
        memory.add("to come", namespace=a, valid_from="2999-01-01", id="future")
        memory.add("over", namespace=a, valid_until=now_s + 1.5, id="over")
        memory.add(
            'שלום\n\u2028 \x1b[0m \\ " é',
            namespace=b,
            id="' OR 1=1 --",
            source="s%",
            source_trust=1 / 3,
            context="more words",
            metadata={"z": [1, 2.5, None, True, {"é": "💥"}], "a": "x" * 3000, "": 0},
        )
        memory.update("' OR 1=1 --", namespace=b, content="changed 🏛")
        memory.confirm("pin", namespace=a)
        trusted = package.Claim("bob", "age", 41)
        memory.add("Bob is 41", namespace=b, claim=trusted, source_trust=0.9)
        doubted = package.Claim("bob", "age", -(2**53))
        memory.add("Bob is old", namespace=b, claim=doubted, source_trust=0.1)
        for _ in range(4):
            memory.context("filler 7", namespace=a)
            memory.search("cats", namespace=a)
            now_s += 10 * DAY_S
            memory.sweep()


@pytest.mark.parametrize("vectors", [[], ["--vectors"]])
def test_an_import_loses_nothing(amv: Cli, vectors: list[str]) -> None:
    """Exporting what was imported gives the same bytes: links, history, tier, value and all."""
    fill("a.db")
    assert amv("--db", "a.db", "export", *vectors, "-o", "a.jsonl").code == 0

    run = amv("--db", "b.db", "import", "a.jsonl", "--json")

    assert amv("--db", "b.db", "export", *vectors, "-o", "b.jsonl").code == 0
    exported = Path("a.jsonl").read_bytes()
    assert Path("b.jsonl").read_bytes() == exported
    items = [json.loads(line) for line in exported.splitlines()]
    assert run.json == {"lines": len(items), "added": len(items), "present": 0, "skipped": 0}
    assert {item["status"] for item in items} == {"live", "superseded", "refuted"}
    assert {item["state"]["tier"] for item in items} == {"HOT", "WARM", "COLD"}
    assert {item["state"]["protection"] for item in items} >= {"NONE", "PINNED", "NOT_YET_VALID"}
    assert {step["event"] for item in items for step in item["history"]} == {
        *("superseded", "refuted", "confirmed", "updated")
    }
    assert any(item["contradicted"] for item in items)
    assert not any(item["id"] == "gone" for item in items)
    assert ("vectors" in items[0]) == bool(vectors)
    assert amv("--db", "b.db", "doctor").code == 0
    for query in ("lives in", "filler 7", "cats"):
        one, two = (
            amv("--db", db, "search", query, "-n", "alice", "--json").json["hits"]
            for db in ("a.db", "b.db")
        )
        assert [hit["item"]["id"] for hit in one] == [hit["item"]["id"] for hit in two]


def test_importing_an_export_again_changes_nothing(amv: Cli) -> None:
    fill("a.db")
    amv("--db", "a.db", "export", "-o", "a.jsonl")
    amv("--db", "b.db", "import", "a.jsonl")
    before = amv("--db", "b.db", "export").out

    run = amv("--db", "b.db", "import", "a.jsonl", "--json")

    assert (run.json["added"], run.json["present"]) == (0, run.json["lines"])
    assert amv("--db", "b.db", "export").out == before


def test_export_of_one_namespace_has_nothing_of_another(amv: Cli) -> None:
    fill("a.db")

    run = amv("--db", "a.db", "export", "-n", '["team/x", "b"]')
    nobody = amv("--db", "a.db", "export", "-n", "nobody")

    assert {tuple(item["namespace"]) for item in run.lines} == {("team/x", "b")}
    assert run.err == 'exported 3 items of ["team/x", "b"]\n'
    assert (nobody.code, nobody.out) == (0, "")


def test_a_line_ends_only_where_every_reader_thinks_it_does(amv: Cli) -> None:
    """Python and JavaScript took U+2028 for the end of a line; a terminal may obey U+009B."""
    content = "a\u2028b\u2029c\x85d\x9b31m\u202ee\x7f"
    amv("add", content, "-n", "a", "--id", "x")

    for run in (amv("export"), amv("get", "x", "-n", "a", "--json")):
        assert run.json["content"] == content
        assert not set(run.out) & set("\u2028\u2029\x85\x9b\u202e\x7f")


def test_export_says_that_it_took_all_namespaces(amv: Cli) -> None:
    amv("add", "text", "-n", "a")

    assert amv("export").err == "exported 1 item of all namespaces\n"
    assert amv("export", "--json").err == ""
    assert amv("export", "-o", "x", "--json").json == {
        "exported": 1,
        "namespace": None,
        "file": "x",
        "vectors": False,
    }


def test_an_export_that_fails_leaves_the_old_file_alone(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    amv("add", "text", "-n", "a")
    Path("x").write_text("the old one")

    def broken(*_: object, **__: object) -> Iterator[dict[str, object]]:
        yield {"id": "1"}
        raise package.StoreUnavailable("the disk is gone")

    monkeypatch.setattr(package.Memory, "export_items", broken)
    run = amv("export", "-o", "x", "--json")

    assert (run.code, run.error["type"]) == (1, "StoreUnavailable")
    assert Path("x").read_text() == "the old one"
    assert not list(amv.folder.glob(".amv-export*"))


def test_the_draft_of_an_export_that_was_killed_is_removed_by_the_next(amv: Cli) -> None:
    """It holds what the memory holds.  One that is being written, or was begun just now, stays."""
    amv("add", "text", "-n", "a")
    dead, written, young = (amv.folder / f".amv-export-{name}.tmp" for name in "abc")
    for draft in (dead, written, young):
        draft.write_text("text")
    for draft in (dead, written):
        os.utime(draft, (0, 0))
    with written.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)

        assert amv("export", "-o", "x").code == 0

        assert sorted(amv.folder.glob(".amv-export*")) == [written, young]


def test_export_keeps_the_mode_and_the_link_of_the_file_it_replaces(amv: Cli) -> None:
    amv("add", "text", "-n", "a")
    Path("real").touch(0o600)
    Path("link").symlink_to("real")

    amv("export", "-o", "link")

    assert Path("link").is_symlink()
    assert stat.S_IMODE(Path("real").stat().st_mode) == 0o600
    assert json.loads(Path("real").read_text())["content"] == "text"


def test_export_writes_to_a_device_without_replacing_it(amv: Cli) -> None:
    amv("add", "text", "-n", "a")

    assert amv("export", "-o", "/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["amv.db", "./amv.db", "link", "hard", "amv.db-wal"])
def test_export_never_overwrites_the_memory_itself(amv: Cli, name: str) -> None:
    amv("add", "text", "-n", "a")
    Path("link").symlink_to("amv.db")
    Path("hard").hardlink_to("amv.db")

    run = amv("export", "-o", name)

    assert run.code == 1
    assert "belongs to the database" in run.err
    assert contents(amv) == ["text"]


def test_export_into_a_folder_that_is_not_there_says_so(amv: Cli) -> None:
    amv("add", "text", "-n", "a")

    run = amv("export", "-o", "nowhere/x", "--json")

    assert (run.code, run.error["type"]) == (1, "FileFailed")
    assert "nowhere/x" in run.error["message"]


# plain lines


def test_plain_lines_take_all_fields_of_add(amv: Cli) -> None:
    plain = {
        "content": "lives in Rome 🏛",
        "namespace": ["a/b", "c"],
        "id": "x",
        "metadata": {"k": [1]},
        "context": "home",
        "claim": ["alice", "city", "Rome"],
        "source": "user",
        "source_trust": 0.9,
        "valid_from": "2020-01-01",
        "valid_until": "2999-01-01",
        "expires_at": 32503680000,
        "pinned": True,
    }
    named = {"subject": "alice", "attribute": "age", "value": 41}
    file = written(amv.folder / "f", [plain, {"content": "is 41", "claim": named, "id": "y"}])

    run = amv("import", file, "-n", "default", "--json")

    assert run.json == {"lines": 2, "added": 2, "present": 0, "skipped": 0}
    got = amv("get", "x", "-n", '["a/b", "c"]', "--json").json
    assert got["metadata"] == {"k": [1]}
    assert got["claim"] == ["alice", "city", "Rome"]
    assert (got["pinned"], got["context"], got["source_trust"]) == (True, "home", 0.9)
    assert amv("get", "y", "-n", "default", "--json").json["claim"] == ["alice", "age", 41]


def test_a_repeated_import_passes_over_what_is_there(amv: Cli) -> None:
    """Lines without an id are recognised, those that repeat one another among them."""
    same = {"content": "again", "namespace": ["a"]}
    items = [same, {"content": "once"}, same, {"namespace": ["a"], "content": "again"}]
    file = written(amv.folder / "f", items)

    first = amv("import", file, "-n", "a", "--json").json
    second = amv("import", file, "-n", "a", "--json").json
    grown = amv("import", written(amv.folder / "f", [*items, same]), "-n", "a", "--json").json

    assert (first["added"], first["present"]) == (4, 0)
    assert (second["added"], second["present"]) == (0, 4)
    assert (grown["added"], grown["present"]) == (1, 4)
    assert contents(amv) == ["again", "once", "again", "again", "again"]


def test_the_same_line_for_two_namespaces_is_two_items(amv: Cli) -> None:
    file = written(amv.folder / "f", [{"content": "text"}])

    for namespace in ("a", "b"):
        assert amv("import", file, "-n", namespace, "--json").json["added"] == 1
    assert len({item["id"] for item in amv("export").lines}) == 2


def test_a_line_whose_item_was_changed_since_is_passed_over(amv: Cli) -> None:
    file = written(amv.folder / "f", [{"content": "the old text"}])
    amv("import", file, "-n", "a")
    (item,) = amv("export").lines
    amv("update", item["id"], "-n", "a", "--content", "the new text")

    run = amv("import", file, "-n", "a", "--json")

    assert (run.json["added"], run.json["present"]) == (0, 1)
    assert contents(amv) == ["the new text"]


def test_an_id_that_stands_in_two_lines_is_one_item(amv: Cli) -> None:
    line = {"content": "text", "id": "x"}
    file = written(amv.folder / "f", [line, line])

    run = amv("import", file, "-n", "a", "--json")

    assert (run.json["added"], run.json["present"]) == (1, 1)


def test_an_import_reads_stdin_with_a_mark_blank_lines_and_no_end(amv: Cli) -> None:
    given = '\ufeff{"content": "one"}\r\n\r\n   \n{"content": "two"}'

    run = amv("import", "-", "-n", "a", "--json", stdin=given)

    assert run.json == {"lines": 4, "added": 2, "present": 0, "skipped": 0}
    assert contents(amv) == ["one", "two"]


def test_exported_and_plain_lines_mix(amv: Cli) -> None:
    amv("--db", "a.db", "add", "exported", "-n", "a", "--id", "e")
    (exported,) = amv("--db", "a.db", "export").lines
    file = written(amv.folder / "f", [{"content": "1"}, exported, {"content": "2"}])

    run = amv("import", file, "-n", "z", "--json")

    assert run.json["added"] == 3
    assert [tuple(item["namespace"]) for item in amv("export").lines] == [("a",), ("z",), ("z",)]


def test_an_empty_file_is_an_import_of_nothing(amv: Cli) -> None:
    Path("f").touch()

    assert (
        amv("import", "f").out == "0 lines: 0 items added, 0 there already, 0 bad lines skipped\n"
    )


# bad lines

BAD = [
    (b"nonsense", "need JSON"),
    (b"[1]", "JSON object"),
    (b'"text"', "JSON object"),
    (b'{"content": "x"', "need JSON"),
    (b'{"content": NaN}', "NaN"),
    (b'{"content": "x", "id": "a", "content": "y"}', "the key 'content' stands twice"),
    (b'{"content": "x", "metadata": {"a": 1, "a": 2}}', "the key 'a' stands twice"),
    (b'{"content": "\xff"}', "UTF-8"),
    (b'{"content": "\\ud800"}', "surrogate"),
    (b'{"content": "\\u0000"}', "NUL"),
    (b'{"content": " "}', "white space"),
    (b'{"content": 5}', "string"),
    (b'{"id": "x"}', "content"),
    (b'{"content": "x", "namespace": "a"}', "namespace"),
    (b'{"content": "x", "namespace": [[]]}', "namespace"),
    (b'{"content": "x", "namespace": ["a", 5]}', "namespace"),
    (b'{"content": "x", "colour": "red"}', "colour"),
    (b'{"content": "x", "id": 5}', "id"),
    (b'{"content": "x", "claim": ["s", "a"]}', "claim"),
    (b'{"content": "x", "claim": "sav"}', "claim"),
    (b'{"content": "x", "claim": ["s", "a", [1]]}', "claim"),
    (b'{"content": "x", "claim": {"subject": "s"}}', "claim"),
    (b'{"content": "x", "metadata": [1]}', "metadata"),
    (b'{"content": "x", "pinned": "yes"}', "pinned"),
    (b'{"content": "x", "vector": [1, 2]}', "shape"),
    (b'{"content": "x", "expires_at": "soon"}', "expires_at"),
    (b'{"content": "other", "id": "kept"}', "kept"),
    (b'{"amv": 2}', "amv"),
    (b'{"amv": 1, "id": "x", "namespace": ["a"]}', "state"),
    (b"[" * 200_000, "nested"),
    (b'{"content": "' + b"x" * ((1 << 20) + 1) + b'"}', "bytes"),
]


@pytest.mark.parametrize(("bad", "says"), BAD, ids=range(len(BAD)))
def test_a_bad_line_ends_the_import_and_is_named(amv: Cli, bad: bytes, says: str) -> None:
    kept = b'{"content": "kept", "id": "kept"}\n{"content": "also kept"}\n\n'
    file = kept + bad + b'\n{"content": "after"}\n'

    run = amv("import", "-", "-n", "a", stdin=file)

    assert (run.code, run.out) == (1, "")
    (said,) = run.err.splitlines()
    assert said.startswith("amv: stdin: line 4: ")
    assert says in said
    assert "--skip-bad" in said
    assert "2 added" in said
    assert contents(amv) == ["kept", "also kept"]


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (b'{"content": "x", "entities": []}', ("-n", "a"), "line 1: unknown field 'entities'"),
        (b'{"content": "x"}', (), "line 1: need a namespace"),
        (b'{"foo": 1}', ("-n", "a"), "line 1: unknown field 'foo'"),
        (b'[{"content": "x"', ("-n", "a"), "need a whole JSON document"),
        (b'{"a":\n1}', ("-n", "a"), "can't tell what this holds"),
        (b"PK\x03\x04", ("-n", "a"), "this is a zip archive"),
        (b'[{"role": 5, "content": "x"}]', ("-n", "a", "--format", "chat"), "[0].role: need"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_wrong_with_a_file_is_told_with_its_name(
    amv: Cli, data: bytes, options: tuple[str, ...], says: str, as_json: bool
) -> None:
    """One of many imports in a script failed: which?"""
    (amv.folder / "some.json").write_bytes(data)
    arguments = ("import", "some.json", *options)

    run = amv(*arguments, "--json") if as_json else amv(*arguments)
    message = run.error["message"] if as_json else run.err.removeprefix("amv: ")
    assert run.code == 1
    assert message.startswith(f"some.json: {says}")


def test_a_first_line_that_looks_like_no_item_asks_for_the_format(amv: Cli) -> None:
    """It is told once, and to those only who left the format to be guessed."""
    file = written(amv.folder / "f", [{"foo": 1}, {"foo": 2}, {"content": "x"}])
    run = amv("import", file, "-n", "a", "--skip-bad")
    told = amv("import", file, "-n", "a", "--format", "items")
    (amv.folder / "f").write_text('{"content": 5}\n', "utf-8")
    item = amv("import", file, "-n", "a")

    first, second = run.err.splitlines()
    assert "name it with --format" in first
    for said in (second, told.err, item.err):
        assert "--format" not in said
    assert contents(amv) == ["x"]


def test_skip_bad_reports_counts_and_goes_on(amv: Cli) -> None:
    bad = b"\n".join(line for line, _ in BAD)
    file = b'{"content": "kept", "id": "kept"}\n' + bad + b'\n{"content": "after"}\n'

    run = amv("import", "-", "-n", "a", "--skip-bad", "--json", stdin=file)

    assert run.code == 0
    assert run.json == {
        "lines": len(BAD) + 2,
        "added": 2,
        "present": 0,
        "skipped": len(BAD),
    }
    reported = [json.loads(line)["error"] for line in run.err.splitlines()]
    assert sorted(error["line"] for error in reported) == list(range(2, len(BAD) + 2))
    assert contents(amv) == ["kept", "after"]


def test_bad_lines_among_many_good_ones_are_each_found(amv: Cli) -> None:
    """A chunk is written whole or not at all, so its bad lines are looked for by halves."""
    items: list[dict[str, object]] = [{"content": f"n {n}"} for n in range(700)]
    for n in (0, 3, 4, 250, 499, 500, 699):
        items[n] = {"content": " "}
    file = written(amv.folder / "f", items)

    run = amv("import", file, "-n", "a", "--skip-bad")

    assert run.out == "700 lines: 693 items added, 0 there already, 7 bad lines skipped\n"
    said = [line.split(":")[1].split()[-1] for line in run.err.splitlines()]
    assert said == ["1", "4", "5", "251", "500", "501", "700"]


def test_a_line_too_long_to_hold_is_passed_over_in_pieces(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 100)
    given = b'{"content": "' + b"x" * 1000 + b'"}\n{"content": "short"}\n' + b"y" * 101

    run = amv("import", "-", "-n", "a", "--skip-bad", "--json", stdin=given)

    assert (run.json["lines"], run.json["added"], run.json["skipped"]) == (3, 1, 2)


def test_a_file_that_cannot_be_read_says_so(amv: Cli) -> None:
    for file in ("nowhere", "."):
        run = amv("import", file, "-n", "a", "--json")
        assert (run.code, run.error["type"]) == (1, "FileFailed")
    assert not Path("amv.db").exists()


def test_lines_without_a_namespace_need_one(amv: Cli) -> None:
    run = amv("import", "-", stdin=b'{"content": "x"}\n')

    assert run.code == 1
    assert "--namespace" in run.err


def test_a_failing_store_says_how_far_the_import_got(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = package.Memory.add_many, 0

    def failing(memory: package.Memory, items: list[dict[str, object]]) -> list[package.Item]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise package.StoreUnavailable("the disk is full")
        return real(memory, items)

    monkeypatch.setattr(package.Memory, "add_many", failing)
    file = written(amv.folder / "f", [{"content": f"n {n}"} for n in range(700)])
    run = amv("import", file, "-n", "a", "--json")

    assert (run.code, run.error["type"]) == (1, "StoreUnavailable")
    assert "line 500" in run.error["message"]
    assert "again" in run.error["message"]
    assert amv("import", file, "-n", "a", "--json").json == {
        "lines": 700,
        "added": 200,
        "present": 500,
        "skipped": 0,
    }


# stopped and run again


@contextmanager
def half_way(amv: Cli, given: list[bytes], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield an import that has got three quarters of its lines, and written some of them."""
    process = amv.start("import", "-", *arguments)
    assert process.stdin is not None
    with process:
        process.stdin.write(b"".join(given[: len(given) * 3 // 4]))
        process.stdin.flush()
        deadline_s = time.monotonic() + 60
        while amv("stats", "--json").code or not amv("stats", "--json").json["live"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        yield process
        process.stdin.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_plain_import_that_was_stopped_is_run_again(amv: Cli, how: signal.Signals) -> None:
    """Whatever had been written, each line is one item in the end, in the order of the file."""
    texts = [f"line {n % 900}" for n in range(2000)]
    given = [json.dumps({"content": text}).encode() + b"\n" for text in texts]

    with half_way(amv, given, "-n", "a") as process:
        process.send_signal(how)
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.read().decode()
    there = contents(amv)
    run = amv("import", "-", "-n", "a", "--json", stdin=b"".join(given))

    if how is signal.SIGINT:
        assert process.returncode == 130
        # The last chunk may have been written, and not counted yet.
        found = re.search(r"up to line (\d+) is in \((\d+) added", said)
        assert found
        assert 0 <= len(there) - int(found[1]) <= writing.CHUNK_LINES
        assert "again" in said
        assert len(said.splitlines()) == 1
    assert 0 < len(there) < len(texts)
    assert (run.json["present"], run.json["added"]) == (len(there), len(texts) - len(there))
    assert contents(amv) == texts


def test_an_exported_import_that_was_killed_is_run_again(amv: Cli) -> None:
    amv("--db", "a.db", "import", "-", "-n", "b", stdin=b'{"content": "x", "pinned": true}\n')
    fill("a.db")
    many = written(amv.folder / "f", [{"content": f"n {n}"} for n in range(1500)])
    amv("--db", "a.db", "import", many, "-n", "a")
    exported = amv("--db", "a.db", "export").out
    given = exported.encode().splitlines(keepends=True)

    with half_way(amv, given) as process:
        process.kill()
    there = len(contents(amv))
    run = amv("import", "-", "--json", stdin=exported)

    assert 0 < there < len(given)
    assert (run.json["present"], run.json["added"]) == (there, len(given) - there)
    assert amv("export").out == exported


def test_ids_made_for_lines_stay_what_they_are(amv: Cli) -> None:
    """Another id for the same line, in a later release, would import old files twice."""
    amv("import", "-", "-n", "a", stdin='{"content": "é", "metadata": {"b": 1, "a": 2}}')

    assert amv("export").lines[0]["id"] == "d9e6287a540bb47e124bbd83"
