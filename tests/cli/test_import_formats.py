"""`amv import` of what other programs keep: counted, rehearsed, stopped and run again."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from amv.imports import writing
from amv.imports.running import SHOWN_MAX
from tests.cli.conftest import Cli
from tests.imports.test_formats import CHAT, GRAPH, MEM0, conversation


def given(amv: Cli, value: object, name: str = "given.json") -> str:
    (amv.folder / name).write_text(json.dumps(value), "utf-8")
    return name


def of_lines(amv: Cli, values: list[Any], name: str = "given.jsonl") -> str:
    (amv.folder / name).write_text("".join(json.dumps(v) + "\n" for v in values), "utf-8")
    return name


def test_a_chat_is_imported_once(amv: Cli) -> None:
    file = given(amv, CHAT)

    first, again = (amv("import", file, "-n", "home", "--json") for _ in range(2))

    left_out = {"empty": 1, "not text": 1, "system": 1, "tool": 1}
    assert first.json == {
        **{"format": "chat", "read": 9, "added": 5, "present": 0, "skipped": 0},
        **{"left_out": left_out, "dry_run": False},
        "namespaces": [{"namespace": ["home"], "added": 5}],
    }
    assert again.json == {**first.json, "added": 0, "present": 5, "namespaces": []}
    hit = amv("search", "a green boat", "-n", "home", "--json").json["hits"][0]["item"]
    assert hit["source"] == "chat"


def test_what_was_left_out_is_told_to_people(amv: Cli) -> None:
    run = amv("import", given(amv, [conversation()]), "-n", "home")

    assert run.out == (
        "chatgpt: 4 items added, 0 there already, 0 bad places skipped; left out: "
        "2 empty, 1 hidden, 2 not text, 1 other branch, 1 system, 2 tool\n"
    )


def test_a_format_can_be_named_and_must_be_where_nobody_can_tell(amv: Cli) -> None:
    file = given(amv, [{"uuid": "c", "chat_messages": None}])

    untold = amv("import", file, "-n", "home", "--json")
    told = amv("import", file, "-n", "home", "--format", "claude", "--json")
    wrong = amv("import", file, "-n", "home", "--format", "pdf")

    assert (untold.code, untold.error["type"]) == (1, "InvalidInput")
    assert "--format" in untold.error["message"]
    assert (told.json["format"], told.json["added"]) == ("claude", 0)
    assert wrong.code == 2


def test_options_reach_the_import(amv: Cli) -> None:
    file = given(amv, [conversation()])

    amv("import", file, "-n", "home", "--by-conversation", "--neighbours", "0")

    items = amv("list", "-n", "home/c-1", "--json").lines
    assert len(items) == 4
    assert {item["context"] for item in items} == {""}
    assert amv("import", file, "-n", "home", "--neighbours", "17").code == 1


def test_mem0_needs_no_namespace(amv: Cli) -> None:
    assert amv("import", of_lines(amv, MEM0), "--json").json["added"] == 3
    assert len(amv("list", "-n", "ida", "--json").lines) == 1
    assert len(amv("list", "-n", "agent/poet", "--json").lines) == 1


@pytest.mark.parametrize(("more", "added"), [([], "added"), (["--dry-run"], "would be added")])
def test_whose_the_memories_of_mem0_became_is_told(amv: Cli, more: list[str], added: str) -> None:
    """Nobody named these namespaces, and without them nothing that came in is found."""
    file = of_lines(amv, [*MEM0, {"id": "m5", "memory": "Swims", "user_id": "ida"}])

    as_json = amv("import", file, "-n", "team", "--json", "--dry-run").json
    run = amv("import", file, "-n", "team", *more)
    again = amv("import", file, "-n", "team", *more)

    assert as_json["namespaces"] == [
        {"namespace": ["team", "ida"], "added": 2},
        {"namespace": ["team", "agent", "poet"], "added": 1},
        {"namespace": ["team", "run", "r1"], "added": 1},
    ]
    line = f"{added}: 2 to team/ida, 1 to team/agent/poet, 1 to team/run/r1\n"
    assert run.out.endswith(f"skipped; left out: 1 empty\n{line}")
    assert again.out.endswith(line if more else "left out: 1 empty\n")


def test_of_many_namespaces_a_few_are_named(amv: Cli) -> None:
    many = [{"memory": f"likes tea {n}", "user_id": f"u{min(n, 7)}"} for n in range(9)]

    run = amv("import", of_lines(amv, many), "--format", "mem0")

    assert run.out.splitlines()[-1] == (
        "added: 2 to u7, 1 to u0, 1 to u1, 1 to u2, 1 to u3, 3 to 3 others"
    )


def test_a_namespace_that_was_named_is_not_told_again(amv: Cli) -> None:
    run = amv("import", of_lines(amv, GRAPH), "-n", "home")

    (line,) = run.out.splitlines()
    assert line.startswith("mcp-memory: 5 items added")


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_rehearsal_shows_what_would_be_added_and_makes_nothing(
    amv: Cli, has_memory: bool
) -> None:
    if has_memory:
        amv("add", "here", "-n", "home")
    before = {path.name for path in amv.folder.iterdir()}
    file = of_lines(amv, GRAPH)

    told = amv("import", file, "-n", "home", "--dry-run", "--json").json
    shown = amv("import", file, "-n", "home", "--dry-run").out.splitlines()

    assert (told["added"], told["dry_run"], len(told["first"])) == (5, True, 5)
    assert told["first"][0]["content"] == "Ida_Holm: Rows on Sundays"
    assert told["first"][0]["metadata"] == {"entity": "Ida_Holm", "entity_type": "person"}
    assert len(shown) == 1 + 5 + 1
    assert shown[-1].startswith("mcp-memory: 5 items would be added")
    assert {path.name for path in amv.folder.iterdir()} == before | {file}
    assert not has_memory or len(amv("list", "-n", "home", "--json").lines) == 1


def test_a_rehearsal_of_many_shows_the_first(amv: Cli) -> None:
    many = [{"role": "user", "content": f"turn {n}", "time": n} for n in range(SHOWN_MAX + 3)]

    shown = amv("import", of_lines(amv, many), "-n", "home", "--dry-run").out

    assert "\nand 3 more\n" in shown
    assert "1970-01-01 00:00:01Z  User: turn 1\n" in shown
    plain = of_lines(amv, [{"content": "x", "valid_from": "2026-03-03"}])
    assert "1 line: 1 item would be added" in amv("import", plain, "-n", "a", "--dry-run").out


def test_a_rehearsal_writes_times_and_claims_as_every_command_does(amv: Cli) -> None:
    """Whatever the file writes them as."""
    ends = {"valid_until": 4e9, "expires_at": "2100-01-01T01:00:00+01:00"}
    claim = {"subject": "a", "attribute": "b", "value": 1}
    times = [{"content": "x", "valid_from": "2026-03-03", "claim": claim, **ends}]
    chat = [{"role": "user", "content": "hello", "time": 5}]

    (item,) = amv("import", of_lines(amv, times), "-n", "a", "--dry-run", "--json").json["first"]
    (turn,) = amv("import", of_lines(amv, chat), "-n", "a", "--dry-run", "--json").json["first"]
    amv("import", of_lines(amv, times), "-n", "a")
    (added,) = amv("list", "-n", "a", "--json").lines

    names = ("valid_from", "valid_until", "expires_at", "claim")
    assert {name: item[name] for name in names} == {name: added[name] for name in names}
    assert added["expires_at"] == "2100-01-01T00:00:00+00:00"
    assert turn["valid_from"] == "1970-01-01T00:00:05+00:00"


def test_a_bad_place_ends_it_and_is_named_and_can_be_skipped(amv: Cli) -> None:
    file = given(amv, [CHAT[1], {"role": 5, "content": "x"}, CHAT[7]])

    ended = amv("import", file, "-n", "home", "--json")
    skipped = amv("import", file, "-n", "home", "--skip-bad", "--json")

    assert (ended.code, ended.error["type"]) == (1, "BadLine")
    assert ended.error["message"].startswith("given.json: [1].role: need text, got 5; ")
    assert "--skip-bad" in ended.error["message"]
    assert (skipped.code, skipped.json["added"], skipped.json["skipped"]) == (0, 2, 1)
    assert skipped.error["where"] == "[1].role"
    assert len(amv("list", "-n", "home", "--json").lines) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_import_that_was_stopped_is_run_again(amv: Cli, how: signal.Signals) -> None:
    """Wherever it was stopped, the second run adds exactly what is missing."""
    count = 6 * writing.CHUNK_LINES
    turns = [{"role": "user", "content": f"turn number {n} of many"} for n in range(count)]
    process = amv.start("import", "-", "-n", "home", "--json", environ={"AMV_EMBEDDER": "hashing"})
    assert process.stdin is not None
    for turn in turns[: count // 2]:
        process.stdin.write(json.dumps(turn).encode() + b"\n")
    process.stdin.flush()
    wait_for_some(amv)

    process.send_signal(how)
    _, err = process.communicate()

    assert process.returncode == (-how if how is signal.SIGKILL else 128 + how)
    if how is not signal.SIGKILL:
        (said,) = err.splitlines()
        told = json.loads(said)["error"]
        assert told["type"] == "Interrupted"
        assert re.match(r"stopped; what came before is in \(\d+ added", told["message"])
    there = len(amv("export").lines)
    assert 0 < there <= count // 2
    run = amv("import", of_lines(amv, turns), "-n", "home", "--json")
    assert (run.json["added"], run.json["present"]) == (count - there, there)
    found = {item["content"]: item for item in amv("export").lines}
    assert len(found) == count
    # Also those next to where it was stopped have their neighbours.
    for n in range(2, count - 2):
        around = re.findall(r"number (\d+) of", found[f"User: turn number {n} of many"]["context"])
        assert around == [str(n - 2), str(n - 1), str(n + 1), str(n + 2)]
    assert amv("doctor").code == 0


@pytest.mark.parametrize("is_callers", [True, False])
def test_sigterm_is_what_it_was_once_an_import_ended(amv: Cli, is_callers: bool) -> None:
    """A program that runs commands in itself may have something of its own to do then."""
    was: Any = (lambda number, frame: None) if is_callers else signal.SIG_DFL
    before = signal.signal(signal.SIGTERM, was)
    try:
        assert amv("import", of_lines(amv, [{"content": "x"}]), "-n", "a").code == 0
        assert signal.getsignal(signal.SIGTERM) is was
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_for_some(amv: Cli) -> None:
    """Wait until a part of what is imported is there."""
    while True:
        if Path(amv.folder / "amv.db").exists():
            run = amv("stats", "--json")
            if run.code == 0 and run.json["live"]:
                return
