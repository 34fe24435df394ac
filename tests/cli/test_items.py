"""The commands about items: what they take, say, refuse, and keep apart."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from amv.errors import ItemNotFound, StoreError
from amv.wiring import Memory
from tests.cli.conftest import Cli

EMOJI = "Alice 👩🏽‍🚀 moved to Rome 🏛️"
HEBREW = "אליס גרה ברומא (since ٢٠٢٤)"
CONTROLS = "red \x1b[31m\x07 \u202e turned\r [bold]x[/bold] :smile:\nnext\tline"
HOSTILE = ["' OR 1=1 --", '"; DROP', "%", "*", "_", "x' OR '1'='1", "../..", "a\\b", "-n"]


def added(amv: Cli, content: str, *options: str, namespace: str = "alice") -> str:
    run = amv("add", "-n", namespace, "--json", *options, "--", content)
    assert run.code == 0, run.err
    return str(run.json["id"])


# add


def test_add_keeps_every_field_it_is_given(amv: Cli) -> None:
    run = amv(
        *("add", "Alice lives in Rome", "-n", "team/alice", "--json", "--id", "x1"),
        *("--claim", "alice", "city", "Rome", "--source", "user", "--trust", "0.9"),
        *("--metadata", '{"city": "Rome", "tags": ["a", 1, null]}', "--context", "home address"),
        *("--valid-from", "2020-01-01", "--valid-until", "2999-01-01T00:00:00+02:00"),
        *("--expires-at", "32503680000", "--pinned"),
    )

    assert run.code == 0
    got = amv("get", "x1", "-n", "team/alice", "--json").json
    assert run.json["present"] is False
    assert got | {"present": False} == run.json | {"value": got["value"]}
    assert got["namespace"] == ["team", "alice"]
    assert got["claim"] == ["alice", "city", "Rome"]
    assert (got["source"], got["source_trust"]) == ("user", 0.9)
    assert got["metadata"] == {"city": "Rome", "tags": ["a", 1, None]}
    assert got["context"] == "home address"
    assert got["valid_from"] == "2020-01-01T00:00:00+00:00"
    assert got["valid_until"] == "2998-12-31T22:00:00+00:00"
    assert got["expires_at"] == "3000-01-01T00:00:00+00:00"
    assert (got["pinned"], got["tier"], got["status"]) == (True, "HOT", "live")


@pytest.mark.parametrize("content", [EMOJI, HEBREW, CONTROLS, "-5 degrees", "--json"])
def test_any_text_comes_back_as_it_was(amv: Cli, content: str) -> None:
    item_id = added(amv, content)

    assert amv("get", item_id, "-n", "alice", "--json").json["content"] == content


def test_add_reads_stdin_without_the_line_break_at_its_end(amv: Cli) -> None:
    run = amv("add", "-n", "alice", "--json", "-", stdin=f"{EMOJI}\nsecond\n\n")

    assert run.json["content"] == f"{EMOJI}\nsecond\n"


def test_add_refuses_an_argument_that_is_no_text(amv: Cli) -> None:
    with amv.start("add", "-n", "alice", "\udcff") as process:
        _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert b"well-formed Unicode" in err


def test_add_refuses_stdin_that_is_no_text(amv: Cli) -> None:
    run = amv("add", "-n", "alice", "-", stdin=b"\xff\xfe")

    assert run.code == 2
    assert "UTF-8" in run.err


@pytest.mark.parametrize(
    ("text", "value"),
    [("Rome", "Rome"), ("5", 5), ("2.5", 2.5), ("true", True), ("null", None), ('"5"', "5")],
)
def test_a_claim_value_is_json_where_it_reads_as_json(amv: Cli, text: str, value: object) -> None:
    item_id = added(amv, "a claim", "--claim", "s", "a", text)

    assert amv("get", item_id, "-n", "alice", "--json").json["claim"] == ["s", "a", value]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "[", "-"])
def test_a_claim_value_that_is_no_json_is_text(amv: Cli, text: str) -> None:
    item_id = added(amv, "a claim", "--claim", "s", "a", text)

    assert amv("get", item_id, "-n", "alice", "--json").json["claim"] == ["s", "a", text]


def test_add_says_what_a_claim_supersedes_or_contradicts(amv: Cli) -> None:
    added(amv, "in Rome", "--id", "old", "--claim", "alice", "city", "Rome", "--trust", "0.8")

    newer = amv(
        *("add", "in Lisbon", "-n", "alice", "--id", "new"),
        *("--claim", "alice", "city", "Lisbon", "--trust", "0.8"),
    )
    doubtful = amv(
        *("add", "in Oslo", "-n", "alice", "--claim", "alice", "city", "Oslo", "--trust", "0.1"),
    )

    assert newer.out == "new is in alice, and supersedes old\n"
    assert doubtful.out.endswith(
        ' is in alice; it contradicts new ("in Lisbon"), from a source trusted more\n'
    )


def test_add_names_all_that_a_claim_supersedes_up_to_a_few(amv: Cli) -> None:
    """Of two that contradict each other both end; so does all that said the same."""
    for name, trust in (("a", "0.5"), ("b", "0.2")):
        added(amv, f"in {name}", "--id", name, "--claim", "x", "y", name, "--trust", trust)
    both = amv("add", "in c", "-n", "alice", "--id", "c", "--claim", "x", "y", "c")
    for number in range(6):
        added(amv, "in c", "--id", f"c{number}", "--claim", "x", "y", "c")
    again = amv("add", "in c", "-n", "alice", "--id", "c", "--claim", "x", "y", "c")
    many = amv("add", "in d", "-n", "alice", "--id", "d", "--claim", "x", "y", "d")

    assert re.fullmatch(r"c is in alice, and supersedes (a, b|b, a)\n", both.out)
    assert "supersedes" not in again.out
    told = re.fullmatch(r"d is in alice, and supersedes (.+) and 2 more\n", many.out)
    assert told is not None
    assert len({"c", *(f"c{n}" for n in range(6))} & set(told[1].split(", "))) == 5


def test_a_claim_that_is_older_and_trusted_more_is_said_to_be_so(amv: Cli) -> None:
    """Which of the two is to be doubted depends on it."""
    added(amv, "in Oslo", "--id", "o", "--claim", "alice", "city", "Oslo", "--trust", "0.1")

    run = amv(
        *("add", "in Rome", "-n", "alice", "--id", "r", "--valid-from", "2020-01-01"),
        *("--claim", "alice", "city", "Rome", "--trust", "0.9"),
    )

    assert run.out == ('r is in alice; it contradicts o ("in Oslo"), from a source trusted less\n')


def test_add_names_the_texts_that_a_text_may_contradict(amv: Cli) -> None:
    """Nothing is known of them but their words, and no source is trusted more."""
    for port in range(8080, 8085):
        run = amv("add", f"The server listens on port {port}", "-n", "alice", "--id", f"p{port}")
        told = run.out.removeprefix(f"p{port} is in alice")
        named = re.findall(r'(p\d+) \("The server listens on port \d+"\)', told)
        assert len(named) == len(set(named)) == min(3, port - 8080)
        assert told.startswith("; it may contradict p") == (port > 8080)
        assert ("; so does what 1 more say" in told) == (port == 8084)
        assert "trusted" not in told

    again = amv("add", "The server listens on port 8080", "-n", "alice")
    as_json = amv("add", "The server listens on port 8080", "-n", "alice", "--json").json

    assert again.out.startswith("p8080 is in alice already, since ")
    assert "contradict" not in again.out
    assert (as_json["id"], as_json["present"], as_json["contradicted"]) == ("p8080", True, True)
    assert set(as_json["contradicts"]) == {"p8081", "p8082", "p8083", "p8084"}


def test_what_stands_against_an_item_is_seen_wherever_it_is_read(amv: Cli) -> None:
    """Else nobody who finds it knows that it is in doubt."""
    long = f"Alice works at {'Acme' * 30}"
    added(amv, long, "--id", "x")
    added(amv, "Alice works at Globex", "--id", "y")
    added(amv, "Bob sells boats", "--id", "z")

    found = amv("search", "Alice works", "-n", "alice").out
    block = amv("context", "Alice works", "-n", "alice").out
    got = amv("get", "y", "-n", "alice").out
    changed = amv("update", "y", "-n", "alice", "--content", "Alice works at Initech").out

    assert re.search(r"^y .*  \(contradicted\?\) Alice works at Globex$", found, re.M)
    assert re.search(r"^- \[.*\] \(contradicted\?\) Alice works at Globex$", block, re.M)
    for shown in (got, changed):
        assert re.search(rf'^contradicts +x \("{long[:59]}…"\)$', shown, re.M)
    assert "contradict" not in amv("search", "Bob boats", "-n", "alice", "-k", "1").out
    assert re.search(r"^contradicted +false$", amv("get", "z", "-n", "alice").out, re.M)
    for command in ("get", "update"):
        more = ["--trust", "0.9"] if command == "update" else []
        assert amv(command, "y", "-n", "alice", "--json", *more).json["contradicts"] == ["x"]
    hits = amv("search", "Alice", "-n", "alice", "--json").json["hits"]
    flags = {hit["item"]["id"]: hit["item"]["contradicted"] for hit in hits}
    assert flags["x"] is flags["y"] is True


def test_what_stands_against_an_item_forges_no_row_of_its_own(amv: Cli) -> None:
    """Neither with line breaks nor by ending the quotes it stands in."""
    content = 'Ann lives in Rome\nstatus  gone ("'
    added(amv, content, "--id", 'x ("ok")\nvalue  9')
    shown = amv("add", "Ann lives in Oslo", "-n", "alice", "--id", "y").out
    fields = amv("get", "y", "-n", "alice").out

    named = 'x ("ok")\\nvalue  9 ("Ann lives in Rome\\nstatus  gone (\\"")'
    assert shown == f"y is in alice; it may contradict {named}\n"
    assert re.search(rf"^contradicts +{re.escape(named)}$", fields, re.M)
    assert len(re.findall(r"^(?:status|value) ", fields, re.M)) == 2


def test_an_item_that_is_gone_by_then_was_added_all_the_same(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands against it is looked for after it is in, and another process may forget it."""
    added(amv, "The server listens on port 8080")

    def gone(*_: object, **__: object) -> None:
        raise ItemNotFound("gone")

    monkeypatch.setattr(Memory, "contradicting", gone)
    run = amv("add", "The server listens on port 8081", "-n", "alice", "--id", "x")

    assert (run.code, run.out) == (0, "x is in alice\n")


# confirm and refute


def test_confirm_takes_the_flag_off_what_was_found_true(amv: Cli) -> None:
    added(amv, "The server listens on port 8080", "--id", "x")
    added(amv, "The server listens on port 8081", "--id", "y")

    run = amv("confirm", "x", "-n", "alice")

    assert re.fullmatch(r"x is confirmed, verified at [-0-9]+ [:0-9]+Z\n", run.out)
    kept = {one["id"]: one for one in amv("list", "-n", "alice", "--json").lines}
    assert (kept["x"]["contradicted"], kept["y"]["contradicted"]) == (False, True)
    again = amv("confirm", "x", "-n", "alice", "--json").json
    assert again["last_verified_at"] > kept["x"]["last_verified_at"]


def test_refute_retires_what_was_found_wrong(amv: Cli) -> None:
    added(amv, "The server listens on port 8080", "--id", "x")

    run = amv("refute", "x", "-n", "alice")

    assert run.out == "x is refuted\n"
    assert amv("list", "-n", "alice", "--json").lines == []
    assert amv("get", "x", "-n", "alice", "--json").json["status"] == "refuted"


@pytest.mark.parametrize(("text", "value"), [("Lisbon", "Lisbon"), ("5", 5), ('"5"', "5")])
def test_refute_keeps_what_holds_instead(amv: Cli, text: str, value: object) -> None:
    """Read as `add --claim` reads it."""
    added(amv, "in Rome", "--id", "x", "--claim", "alice", "city", "Rome")

    run = amv("refute", "x", "-n", "alice", "--value", text)

    (new,) = amv("list", "-n", "alice", "--json").lines
    assert run.out == (
        f'x is refuted; {new["id"]} ("alice city: {value}") says what holds instead\n'
    )
    assert (new["claim"], new["supersedes"]) == (["alice", "city", value], "x")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["confirm", "nobody", "-n", "alice"], 1, "no item has the id 'nobody'"),
        (["confirm", "x", "-n", "bob"], 1, "in namespace bob"),
        (["confirm", "x"], 2, "--namespace (-n) is needed"),
        (["refute", "x"], 2, "--namespace (-n) is needed"),
        (["refute", "nobody", "-n", "alice"], 1, "no item has the id 'nobody'"),
        (["refute", "x", "-n", "alice", "--value", "Rome"], 1, "has no claim"),
        (["refute", "x", "-n", "alice", "--value", "null"], 2, "leave it out"),
    ],
)
def test_what_cannot_be_confirmed_or_refuted_stays_as_it_was(
    amv: Cli, arguments: list[str], code: int, says: str
) -> None:
    added(amv, "a text", "--id", "x")
    before = amv("get", "x", "-n", "alice", "--json").json

    run = amv(*arguments)

    assert (run.code, run.out) == (code, "")
    assert says in run.err
    got = amv("get", "x", "-n", "alice", "--json").json
    assert got == before | {"value": got["value"]}


def test_adding_the_same_id_again_changes_nothing_unless_it_says_something_else(
    amv: Cli,
) -> None:
    added(amv, "the text", "--id", "x")

    again = amv("add", "-n", "alice", "--id", "x", "the text")
    other = amv("add", "-n", "alice", "--id", "x", "another text", "--json")
    pinned = amv("add", "-n", "alice", "--id", "x", "the text", "--pinned")

    assert re.fullmatch(r"x is in alice already, since [-0-9]+ [:0-9]+Z\n", again.out)
    assert (other.code, other.error["type"]) == (1, "Conflict")
    assert (pinned.code, "another pinned" in pinned.err) == (1, True)
    assert amv("stats", "--json").json["live"] == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--metadata", "[1]"], "JSON object"),
        (["--metadata", "{'a': 1}"], "need JSON"),
        (["--metadata", '{"a": NaN}'], "NaN"),
        (["--metadata", '{"a": 1, "b": 2, "a": 3}'], "the key 'a' stands twice in one object"),
        (["--metadata", '{"x": [{"k": 1, "k": 1}]}'], "the key 'k' stands twice in one object"),
        (["--metadata", "[" * 100_000], "nested"),
        (["--trust", "much"], "--trust"),
        (["--claim", "s", "a"], "--claim"),
        (["--colour", "red"], "--colour"),
        (["-n", '["a", 1]'], "array of strings"),
        (["-n", '["a'], "need JSON"),
    ],
)
def test_add_refuses_what_it_cannot_read_as_a_usage_error(
    amv: Cli, options: list[str], says: str
) -> None:
    run = amv("add", "x", "-n", "alice", *options)

    assert run.code == 2
    assert says in run.err
    assert len(run.err.splitlines()) == 1
    assert not Path("amv.db").exists()


@pytest.mark.parametrize(
    ("content", "options", "kind"),
    [
        (" ", [], "InvalidInput"),
        ("x", ["--trust", "1.5"], "InvalidInput"),
        ("x", ["--trust", "nan"], "InvalidInput"),
        ("x", ["--expires-at", "tomorrow"], "InvalidInput"),
        ("x", ["--expires-at", "1e300"], "InvalidInput"),
        ("x", ["--expires-at", "2020-01-01"], "InvalidInput"),
        ("x", ["--valid-from", "2020-01-02", "--valid-until", "2020-01-01"], "InvalidInput"),
        ("x", ["--claim", "s", "a", "[1]"], "InvalidInput"),
        ("x", ["--claim", "", "a", "1"], "InvalidInput"),
        ("x", ["--id", " "], "InvalidInput"),
        ("x", ["-n", "a//b"], "InvalidNamespace"),
        ("x", ["-n", ""], "InvalidNamespace"),
        ("x", ["-n", "[]"], "InvalidNamespace"),
        ("x", ["-n", "1/2/3/4/5/6/7/8/9"], "InvalidNamespace"),
    ],
)
def test_add_passes_on_what_the_memory_refuses(
    amv: Cli, content: str, options: list[str], kind: str
) -> None:
    run = amv("add", content, "-n", "alice", "--json", *options)

    assert (run.code, run.out) == (1, "")
    assert run.error["type"] == kind


# search and context


def test_search_finds_ranks_and_counts(amv: Cli) -> None:
    best = added(amv, "Alice prefers window seats on trains")
    added(amv, "Bob likes cats")

    result = amv("search", "window seats", "-n", "alice", "-k", "1", "--json").json

    (hit,) = result["hits"]
    assert hit["item"]["id"] == best
    assert 0 < hit["similarity"] <= 1
    parts = result["scanned"]
    assert parts["total"] == parts["hot"] + parts["warm"] + parts["cold"] + parts["postings"] > 0
    assert (result["complete"], result["reason"]) == (True, "")


def test_search_shows_a_table_and_what_it_cost(amv: Cli) -> None:
    item_id = added(amv, EMOJI)

    header, row, cost = amv("search", "Rome", "-n", "alice").out.splitlines()

    assert header.split() == ["id", "rank", "similarity", "tier", "value", "content"]
    assert row.startswith(item_id)
    assert row.endswith(EMOJI)
    assert cost.startswith("1 found; scanned ")
    assert cost.endswith("; complete")


def test_search_filters_by_metadata_and_moment(amv: Cli) -> None:
    rome = added(amv, "a city of hills", "--metadata", '{"city": "Rome", "n": 3}')
    added(amv, "a city of hills", "--metadata", '{"city": "Lisbon", "n": 9}')
    added(amv, "a city to be", "--valid-from", "2999-01-01")

    def found(*options: str) -> list[str]:
        run = amv("search", "city", "-n", "alice", "--json", *options)
        return [hit["item"]["id"] for hit in run.json["hits"]]

    assert len(found()) == 2
    assert found("--filter", '{"city": "Rome"}') == [rome]
    assert found("--filter", '{"n": {"lt": 5}}') == [rome]
    assert len(found("--as-of", "2999-06-01", "--cold")) == 3
    assert found("--as-of", "1990-01-01", "--no-cold") == []


def test_a_blank_query_finds_nothing(amv: Cli) -> None:
    added(amv, "something")

    run = amv("search", "  ", "-n", "alice")

    assert run.code == 0
    assert run.out.startswith("0 found; scanned 0")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-k", "0"], 1),
        (["-k", "many"], 2),
        (["--filter", "{"], 2),
        (["--filter", '"x"'], 2),
        (["--filter", '{"n": {"above": 3}}'], 1),
        (["--as-of", "yesterday"], 1),
    ],
)
def test_search_refuses_bad_options(amv: Cli, options: list[str], code: int) -> None:
    added(amv, "something")

    run = amv("search", "x", "-n", "alice", "--json", *options)

    assert run.code == code
    assert run.error["message"]


def test_context_packs_a_block_and_counts_it_as_used(amv: Cli) -> None:
    item_id = added(amv, "Alice is allergic to peanuts")

    block = amv("context", "dinner for Alice", "-n", "alice", "--json").json
    shown = amv("context", "dinner for Alice", "-n", "alice")

    assert block["item_ids"] == [item_id]
    assert block["tokens"] > 0
    assert shown.out == block["text"] + "\n"
    got = amv("get", item_id, "-n", "alice", "--json").json
    assert got["contributed_count"] == 2


NOBODY = "there is no namespace nobody yet"


def test_context_of_nothing_is_an_empty_block(amv: Cli) -> None:
    added(amv, "something")

    run = amv("context", "x", "-n", "nobody")

    assert (run.code, run.out, run.err) == (0, "", f"{NOBODY}\n0 items, 0 tokens\n")


def test_context_refuses_a_budget_of_nothing(amv: Cli) -> None:
    added(amv, "something")

    assert amv("context", "x", "-n", "alice", "--token-budget", "0").code == 1


# list and get


def test_list_pages_through_a_namespace(amv: Cli) -> None:
    ids = [added(amv, f"item {n}") for n in range(5)]

    first = amv("list", "-n", "alice", "--limit", "2", "--json")
    cursor = json.loads(first.err)["cursor"]
    second = amv("list", "-n", "alice", "--limit", "2", "--cursor", cursor, "--json")
    last = amv("list", "-n", "alice", "--cursor", json.loads(second.err)["cursor"], "--json")

    pages = [*first.lines, *second.lines, *last.lines]
    assert [item["id"] for item in pages] == ids
    assert last.err == ""


def test_list_all_goes_through_every_page(amv: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [added(amv, f"item {n}") for n in range(5)]
    monkeypatch.setattr("amv.cli.items.LIST_PAGE", 2)

    run = amv("list", "-n", "alice", "--all", "--json")
    table = amv("list", "-n", "alice", "--all")

    assert [item["id"] for item in run.lines] == ids
    assert [row.split()[0] for row in table.out.splitlines()] == ["id", *ids]
    assert run.err == table.err == ""


def test_list_chooses_by_source_and_status(amv: Cli) -> None:
    added(amv, "in Rome", "--id", "old", "--claim", "a", "city", "Rome", "--source", "user")
    added(amv, "in Oslo", "--id", "new", "--claim", "a", "city", "Oslo", "--source", "mail")

    def listed(*options: str) -> list[str]:
        return [item["id"] for item in amv("list", "-n", "alice", "--json", *options).lines]

    assert listed() == ["new"]
    assert listed("--status", "superseded") == ["old"]
    assert listed("--status", "refuted") == []
    assert listed("--status", "all") == ["old", "new"]
    assert listed("--status", "all", "--source", "user") == ["old"]
    assert listed("--source", "nobody") == []


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--cursor", "x"], 1), (["--limit", "0"], 1), (["--status", "dead"], 2)],
)
def test_list_refuses_bad_options(amv: Cli, options: list[str], code: int) -> None:
    added(amv, "something")

    assert amv("list", "-n", "alice", *options).code == code


def test_get_shows_every_field_of_an_item(amv: Cli) -> None:
    item_id = added(amv, "first line\nsecond line", "--metadata", '{"a": "é"}')

    shown = amv("get", item_id, "-n", "alice").out
    fields = amv("get", item_id, "-n", "alice", "--json").json

    for name in fields:
        assert f"\n{name} " in f"\n{shown}"
    assert "first line\n" in shown
    assert '{"a": "é"}' in shown


def test_get_tells_the_history_of_a_claim(amv: Cli) -> None:
    added(amv, "in Rome", "--id", "old", "--claim", "a", "city", "Rome")
    added(amv, "in Oslo", "--id", "new", "--claim", "a", "city", "Oslo")

    entries = amv("get", "new", "-n", "alice", "--history", "--json").json["history"]
    shown = amv("get", "new", "-n", "alice", "--history").out

    assert [(entry["item_id"], entry["event"]) for entry in entries] == [
        ("old", "added"),
        ("old", "superseded"),
        ("new", "added"),
    ]
    assert entries[0]["claim"] == ["a", "city", "Rome"]
    assert "superseded" in shown


def test_get_of_an_absent_or_expired_item_is_an_error(amv: Cli) -> None:
    with Memory.open("amv.db", embedder="hashing", clock=lambda: 1e9) as memory:
        memory.add("something", namespace=("alice",), id="gone", expires_at=1e9 + 1)

    for item_id in ("gone", "never"):
        run = amv("get", item_id, "-n", "alice", "--json")
        assert (run.code, run.error["type"]) == (1, "ItemNotFound")


# update


def test_update_changes_what_it_is_told_and_nothing_else(amv: Cli) -> None:
    item_id = added(amv, "the old text", "--expires-at", "2999-01-01", "--trust", "0.7")
    before = amv("get", item_id, "-n", "alice", "--json").json

    run = amv(
        *("update", item_id, "-n", "alice", "--json", "--content", "the new text"),
        *("--metadata", '{"k": 1}', "--expires-at", "none", "--context", "more"),
    )

    changed = {
        "content": "the new text",
        "metadata": {"k": 1},
        "expires_at": None,
        "context": "more",
    }
    assert run.json == before | changed | {"value": run.json["value"]}
    found = amv("search", "new", "-n", "alice", "--json").json["hits"]
    assert [hit["item"]["id"] for hit in found] == [item_id]
    history = amv("get", item_id, "-n", "alice", "--history", "--json").json["history"]
    assert [entry["content"] for entry in history] == ["the old text", "the old text"]


def test_update_pins_and_releases(amv: Cli) -> None:
    item_id = added(amv, "something")

    assert amv("update", item_id, "-n", "alice", "--pinned", "--json").json["pinned"]
    assert not amv("update", item_id, "-n", "alice", "--no-pinned", "--json").json["pinned"]


def test_update_reads_stdin(amv: Cli) -> None:
    item_id = added(amv, "something")

    run = amv("update", item_id, "-n", "alice", "--content", "-", "--json", stdin="from stdin\n")

    assert run.json["content"] == "from stdin"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--content", " "], 1),
        (["--trust", "2"], 1),
        (["--metadata", "7"], 2),
        (["--pinned", "--trust", "0.5"], 2),
        (["--claim", "a", "b", "c"], 2),
    ],
)
def test_update_refuses_and_leaves_the_item_alone(amv: Cli, options: list[str], code: int) -> None:
    item_id = added(amv, "something")
    before = amv("export").out

    assert amv("update", item_id, "-n", "alice", *options).code == code
    assert amv("export").out == before


# forget


def test_forget_leaves_no_byte_of_an_item(amv: Cli) -> None:
    canary = "xylophone-4711"
    item_id = added(amv, f"the {canary} is here")
    added(amv, "another")

    run = amv("forget", item_id, "-n", "alice", "--json")

    assert run.json == {
        "forgotten": 1,
        "item_ids": [item_id],
        "namespace": ["alice"],
        "erased": True,
        "reason": "",
    }
    assert amv("get", item_id, "-n", "alice").code == 1
    for file in amv.folder.iterdir():
        assert canary.encode() not in file.read_bytes()


def test_forget_all_asks_first(amv: Cli) -> None:
    added(amv, "one", namespace="a/b")
    added(amv, "two", namespace="a/b")
    added(amv, "other", namespace="a")

    for answer in ("n\n", "", "yes please\n"):
        declined = amv("forget", "--all", "-n", "a/b", stdin=answer)
        assert declined.code == 1
        assert "2 live items" in declined.err
        assert "nothing was forgotten" in declined.err
    assert amv("stats", "--json").json["live"] == 3

    agreed = amv("forget", "--all", "-n", "a/b", stdin="y\n")
    assert agreed.out == "forgot 2 of a/b; erased: yes, no byte is left on disk\n"
    assert [item["content"] for item in amv("export").lines] == ["other"]


def test_forget_all_with_yes_does_not_ask(amv: Cli) -> None:
    added(amv, "one")

    run = amv("forget", "--all", "-n", "alice", "--yes", "--json")

    assert (run.json["forgotten"], run.err) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["x", "--all", "-y", "-n", "alice"], 2),
        (["-n", "alice"], 2),
        (["--all", "-y"], 2),
        (["--all", "--json", "-n", "alice"], 2),
        (["x"], 2),
        (["x", "-n", "alice"], 1),
        (["--all", "-y", "-n", "nobody"], 1),
    ],
)
def test_forget_that_is_not_clear_forgets_nothing(
    amv: Cli, arguments: list[str], code: int
) -> None:
    added(amv, "something", "--id", "kept")

    assert amv("forget", *arguments).code == code
    assert amv("stats", "--json").json["live"] == 1


# namespaces


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "text"],
        ["search", "text"],
        ["context", "text"],
        ["list"],
        ["get", "kept"],
        ["update", "kept", "--trust", "0"],
        ["forget", "kept"],
    ],
)
def test_a_namespace_has_to_be_said(amv: Cli, arguments: list[str]) -> None:
    """An id or a query must not reach into whatever namespace happens to hold something."""
    added(amv, "text", "--id", "kept")
    before = amv("export").out

    run = amv(*arguments)

    assert run.code == 2
    assert "--namespace (-n) is needed" in run.err
    assert amv("export").out == before


@pytest.mark.parametrize(
    ("given", "name", "shown"),
    [
        ("a", ["a"], "a"),
        ("a/b", ["a", "b"], "a/b"),
        ('["a", "b"]', ["a", "b"], "a/b"),
        ('["a/b", "c"]', ["a/b", "c"], '["a/b", "c"]'),
        ('["[x"]', ["[x"], '["[x"]'),
        ("שלום/🏛", ["שלום", "🏛"], "שלום/🏛"),
    ],
)
def test_a_namespace_is_shown_as_it_is_given(
    amv: Cli, given: str, name: list[str], shown: str
) -> None:
    said = amv("add", "text", "-n", given, "--id", "x").out

    assert said == f"x is in {shown}\n"
    assert amv("get", "x", "-n", shown, "--json").json["namespace"] == name


def test_one_namespace_sees_nothing_of_another(amv: Cli) -> None:
    added(amv, "a secret of Bob", "--id", "b1", namespace="bob")
    added(amv, "hello", namespace="bob/child")
    added(amv, "hello", namespace="alice")

    assert amv("search", "secret", "-n", "alice", "--json").json["hits"][0]["item"]["id"] != "b1"
    assert "secret" not in amv("list", "-n", "alice", "--status", "all").out
    assert amv("get", "b1", "-n", "alice").code == 1
    assert amv("forget", "b1", "-n", "alice").code == 1
    assert amv("forget", "--all", "-y", "-n", "bob", "--json").json["item_ids"] == ["b1"]
    assert len(amv("export").lines) == 2


@pytest.mark.parametrize("key", HOSTILE)
def test_keys_are_data_and_never_patterns_or_statements(amv: Cli, key: str) -> None:
    added(amv, "must stay hidden", "--id", "kept", namespace="victim")
    stored = json.dumps({key: key})
    hostile = json.dumps([key])
    amv("add", "theirs", "-n", hostile, "--id", key, "--source", key, "--metadata", stored)

    items = amv("list", "-n", hostile, "--source", key, "--json").lines
    assert [item["id"] for item in items] == [key]
    for condition in ({key: key}, {"k": key}):
        found = amv("search", "hidden", "-n", hostile, "--filter", json.dumps(condition), "--json")
        assert [hit["item"]["id"] for hit in found.json["hits"]] == [key] * (key in condition)
    assert amv("get", "-n", "victim", "--", key).code == 1
    assert amv("forget", "-n", "victim", "--", key).code == 1
    assert amv("list", "-n", "victim", "--source", key, "--json").lines == []
    assert amv("forget", "-n", hostile, "--json", "--", key).json["forgotten"] == 1
    assert [item["id"] for item in amv("export").lines] == ["kept"]


# what people see


def test_what_a_memory_holds_never_commands_the_terminal(amv: Cli) -> None:
    """An agent may have stored text from anywhere, escape sequences included."""
    item_id = added(amv, CONTROLS, "--source", "\x1b]0;owned\x07")

    for shown in (
        amv("search", "red", "-n", "alice"),
        amv("list", "-n", "alice"),
        amv("get", item_id, "-n", "alice", "--history"),
        amv("get", "\x1b[2J", "-n", "alice"),
    ):
        text = shown.out + shown.err
        assert text
        assert not set(text) & {"\x1b", "\x07", "\r", "\u202e"}
        assert "\\x1b" in text


def test_a_row_is_a_line_and_no_id_is_cut(amv: Cli) -> None:
    long = "i" * 256
    added(amv, CONTROLS + " " + "word " * 500, "--id", long)

    for rows in (
        amv("list", "-n", "alice").out.splitlines()[1:],
        amv("search", "word", "-n", "alice").out.splitlines()[1:-1],
    ):
        (row,) = rows
        assert row.startswith(f"{long} ")
        assert "[bold]x[/bold] :smile:\\nnext\\tline" in row
        assert row.endswith("…")


@pytest.mark.parametrize(
    "command", [("search", "x"), ("list",), ("context", "x"), ("stats",), ("export",)]
)
def test_a_namespace_that_is_not_there_is_noted_to_people(
    amv: Cli, command: tuple[str, ...]
) -> None:
    added(amv, "something")

    told, data = amv(*command, "-n", "nobody"), amv(*command, "-n", "nobody", "--json")

    assert (told.code, data.code, data.err) == (0, 0, "")
    assert told.err.splitlines()[0] == NOBODY
    assert NOBODY not in told.out


def test_get_names_the_namespace_as_the_command_line_does(amv: Cli) -> None:
    added(amv, "something")

    run = amv("get", "x", "-n", "nobody/else")

    assert run.code == 1
    assert "in namespace nobody/else;" in run.err
    assert run.err.endswith("there is no namespace nobody/else yet\n")


def test_the_text_of_a_python_tuple_is_no_namespace(amv: Cli) -> None:
    run = amv("add", "x", "-n", '("alice",)')

    assert run.code == 2
    assert "Python tuple" in run.err


@pytest.mark.parametrize(
    ("words", "hint"), [(("-5 degrees",), "comes after --"), (("hi", "there"), "in quotes")]
)
def test_a_text_the_shell_took_apart_gets_a_hint(
    amv: Cli, words: tuple[str, ...], hint: str
) -> None:
    run = amv("add", "-n", "a", *words)

    assert run.code == 2
    assert hint in run.err


@pytest.mark.parametrize(
    "command",
    [
        ("search", "text", "-n", "alice"),
        ("context", "text", "-n", "alice"),
        ("context", "text", "-n", "alice", "--json"),
        ("list", "-n", "alice"),
        ("get", "x", "-n", "alice"),
        ("export",),
    ],
    ids=" ".join,
)
def test_what_was_found_is_printed_though_its_use_cannot_be_noted(
    amv: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: list[str]
) -> None:
    """A full disk is no reason to leave a prompt without its block."""
    added(amv, "the text", "--id", "x")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    run = amv(*command)

    assert (run.code, "the text" in run.out) == (0, True)
    uses = command[0] in ("search", "context")
    assert ("value events are lost" in caplog.text) == uses


def test_an_error_before_there_is_an_answer_is_one(
    amv: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    added(amv, "the text", "--id", "x")

    def broken(*_: object, **__: object) -> None:
        raise StoreError("the database could not be read")

    monkeypatch.setattr(Memory, "context", broken)

    run = amv("context", "text", "-n", "alice", "--json")
    assert (run.code, run.out, run.error["type"]) == (1, "", "StoreError")


@pytest.mark.parametrize(
    "options",
    [
        ("add", "x", "-n", "alice", "--metadata"),
        ("search", "x", "-n", "alice", "--filter"),
        ("context", "x", "-n", "alice", "--filter"),
        ("list", "-n"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("text", ["[" + "x" * 60_000, "[" + "1, " * 20_000 + "1]"])
def test_what_cannot_be_read_is_not_echoed_whole(
    amv: Cli, options: tuple[str, ...], text: str
) -> None:
    """The message must be seen, and a terminal not be flooded."""
    run = amv(*options, text)

    assert run.code == 2
    assert "got '[" in run.err
    assert len(run.err) < 400


def test_a_filter_with_a_key_twice_is_refused(amv: Cli) -> None:
    """One of its conditions would not count."""
    run = amv("search", "x", "-n", "alice", "--filter", '{"a": 1, "a": 2}')

    assert (run.code, "'a' stands twice" in run.err) == (2, True)


@pytest.mark.parametrize(
    "options", [("", "-n", "a"), ("x", "-n", ""), ("x", "-n", "a", "--trust", "7")]
)
def test_an_add_that_is_refused_makes_no_file(amv: Cli, options: tuple[str, ...]) -> None:
    run = amv("add", *options, "--json")

    assert run.code == 1
    assert list(amv.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("add", "x", "-n", "a", "--claim", "a", "b"), "amv add"),
        (("keys", "create", "--level"), "amv keys create"),
        (("--nothing",), "amv"),
    ],
)
def test_a_usage_error_points_to_the_help_of_its_command(
    amv: Cli, arguments: tuple[str, ...], path: str
) -> None:
    run = amv(*arguments)

    assert run.code == 2
    assert f"(see {path} --help)" in run.err
