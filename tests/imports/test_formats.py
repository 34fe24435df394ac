"""What other programs keep: each shape as it is written, and what of it is no memory."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import amv
from amv.client import Client
from amv.errors import InvalidInput
from amv.imports import FORMATS
from amv.imports.fields import a_time
from amv.imports.running import format_of
from amv.imports.turns import NEIGHBOUR_CHARS_MAX
from amv.imports.writing import BadLine
from tests.server.conftest import running

NS = ("home",)
MARCH_S = 1_772_532_000.0  # 2026-03-03 10:00 UTC


@pytest.fixture
def memory() -> Iterator[amv.Memory]:
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(embedder="hashing:32", settings=settings) as found:
        yield found


def document(value: object) -> io.BytesIO:
    return io.BytesIO(json.dumps(value, indent=1).encode())


def lines(*values: object) -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(value).encode() + b"\n" for value in values))


def items(memory: amv.Memory, namespace: tuple[str, ...] = NS) -> list[amv.Item]:
    return sorted(memory.list(namespace=namespace).items, key=lambda item: item.valid_from)


def contents(memory: amv.Memory, namespace: tuple[str, ...] = NS) -> list[str]:
    return sorted(item.content for item in memory.list(namespace=namespace).items)


def load(memory: amv.Memory, stream: io.BytesIO, **options: Any) -> amv.ImportReport:
    """Import a stream twice: the second time, all is there already."""
    options = {"namespace": NS, **options}
    report = amv.import_file(memory, stream, **options)
    stream.seek(0)
    again = amv.import_file(memory, stream, **options)
    assert (again.added, again.present) == (0, report.added + report.present)
    return report


# Roles and contents

CHAT = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "content": "My boat is called Heron."},
    {"role": "assistant", "content": [{"type": "text", "text": "A fine name."}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "tool", "content": "42", "tool_call_id": "t"},
    {"role": "assistant", "content": None},
    {"role": "user", "content": "It needs paint.", "name": "Ida"},
    {"role": "assistant", "content": "Blue?"},
    {"role": "user", "content": ["Green,", "please."]},
]
SAID = [
    "Assistant: A fine name.",
    "Assistant: Blue?",
    "Ida: It needs paint.",
    "User: Green,\nplease.",
    "User: My boat is called Heron.",
]


@pytest.mark.parametrize(
    "stream",
    [
        document(CHAT),
        document([CHAT]),
        document({"messages": CHAT}),
        document([{"messages": CHAT}]),
        lines(*CHAT),
        lines({"messages": CHAT}),
        lines(CHAT),
        io.BytesIO(b"\xef\xbb\xbf\n  " + json.dumps(CHAT).encode()),
        io.BytesIO(b"\xef\xbb\xbf\n" + json.dumps({"messages": CHAT}).encode()),
    ],
    ids=[
        *("list", "list of lists", "object", "list of objects", "lines", "object a line"),
        *("list a line", "list after a mark", "line after a mark"),
    ],
)
def test_a_chat_may_be_written_in_any_usual_way(memory: amv.Memory, stream: io.BytesIO) -> None:
    stream.seek(0)

    report = load(memory, stream)

    assert contents(memory) == SAID
    assert (report.format, report.added, report.skipped) == ("chat", 5, 0)
    assert report.left_out == {"empty": 1, "not text": 1, "system": 1, "tool": 1}


@pytest.mark.parametrize(
    ("neighbours", "around"),
    [
        (0, []),
        (1, ["Assistant: A fine name.", "Assistant: Blue?"]),
        (
            2,
            [
                "User: My boat is called Heron.",
                "Assistant: A fine name.",
                "Assistant: Blue?",
                "User: Green,\nplease.",
            ],
        ),
    ],
)
@pytest.mark.parametrize("shape", [document, lambda chat: lines(*chat)])
def test_a_turn_is_found_by_the_words_of_its_neighbours(
    memory: amv.Memory, neighbours: int, around: list[str], shape: Any
) -> None:
    load(memory, shape(CHAT), neighbours=neighbours)

    found = {item.content: item for item in memory.list(namespace=NS).items}
    assert found["Ida: It needs paint."].context == "\n".join(around)
    assert found["Ida: It needs paint."].metadata == {"role": "user", "speaker": "Ida"}
    assert found["User: My boat is called Heron."].context.count("\n") == max(0, neighbours - 1)


def test_of_a_long_neighbour_the_nearer_part_is_used(memory: amv.Memory) -> None:
    long = "begin " + "x" * 2 * NEIGHBOUR_CHARS_MAX + " end"
    chat = [{"role": "user", "content": text} for text in (long, "middle", long)]

    load(memory, document(chat))

    context = {i.content: i.context for i in memory.list(namespace=NS).items}["User: middle"]
    assert len(context) == 2 * NEIGHBOUR_CHARS_MAX + 1
    assert "begin" in context.split("\n")[1]
    assert "end" in context.split("\n")[0]
    assert "begin" not in context.split("\n")[0]


def test_turns_of_two_conversations_are_no_neighbours(memory: amv.Memory) -> None:
    chat = [
        {"role": "user", "content": f"turn {n} of {c}", "conversation_id": c, "timestamp": 10 * n}
        for c in ("a", "b", "a")
        for n in range(2)
    ]
    chat[4]["content"], chat[5]["content"] = "turn 0 again", "turn 1 again"

    report = load(memory, lines(*chat), by_conversation=True)

    assert report.added == 6
    assert {i.context for i in memory.list(namespace=(*NS, "b")).items} == {
        "User: turn 1 of b",
        "User: turn 0 of b",
    }
    assert len(memory.list(namespace=(*NS, "a")).items) == 4
    assert memory.list(namespace=(*NS, "a")).items[0].metadata["conversation"] == "a"


def test_a_conversation_that_has_grown_adds_what_is_new(memory: amv.Memory) -> None:
    chat = [{"role": "user", "content": text} for text in ("Yes.", "No.", "Yes.", "Maybe.")]

    first = load(memory, document(chat[:3]))
    second = load(memory, document(chat))

    assert (first.added, second.added, second.present) == (3, 1, 3)
    assert contents(memory) == ["User: Maybe.", "User: No.", "User: Yes.", "User: Yes."]


def test_conversations_that_say_the_same_later_are_told_apart(memory: amv.Memory) -> None:
    chats = [[{"role": "user", "content": text} for text in (one, "Yes.")] for one in ("A?", "B?")]

    assert load(memory, document(chats)).added == 4


# ChatGPT


def node(key: str, parent: str | None, role: str, *parts: object, **message: Any) -> dict[str, Any]:
    told = {
        "id": f"m-{key}",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": None,
        "content": {"content_type": "text", "parts": list(parts)},
        "recipient": "all",
        "metadata": {},
        **message,
    }
    return {"id": key, "parent": parent, "children": [], "message": told}


def conversation() -> dict[str, Any]:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    heard = {"content_type": "audio_transcription", "text": "And the mast?"}
    nodes = [
        {"id": "root", "parent": None, "children": ["sys"], "message": None},
        node("sys", "root", "system", ""),
        node("q", "sys", "user", "How do I paint a boat?", create_time=MARCH_S + 0.25),
        node("old", "q", "assistant", "With a roller."),
        node("code", "q", "assistant", "x", recipient="python"),
        node("ran", "code", "tool", "1"),
        node("a", "ran", "assistant", "With a brush.", create_time=MARCH_S + 9),
        node("pic", "a", "user", image, "Like this one?", create_time=MARCH_S + 19),
        node("voice", "pic", "user", heard, create_time=MARCH_S + 29),
        node("hidden", "voice", "user", "x", metadata={"is_visually_hidden_from_conversation": 1}),
        node("empty", "hidden", "assistant", "", None),
        node("think", "empty", "assistant", content={"content_type": "thoughts", "thoughts": []}),
        node("none", "think", "assistant", content=None),
    ]
    nodes[10]["message"]["content"]["parts"] = [""]
    return {
        "title": "Boats",
        "create_time": MARCH_S,
        "conversation_id": "c-1",
        "current_node": "none",
        "mapping": {one["id"]: one for one in nodes},
    }


def test_of_chatgpt_the_branch_last_seen_is_taken(memory: amv.Memory) -> None:
    report = load(memory, document([conversation()]))

    assert [item.content for item in items(memory)] == [
        "User: How do I paint a boat?",
        "Assistant: With a brush.",
        "User: Like this one?",
        "User: And the mast?",
    ]
    assert report.left_out == {
        **{"empty": 2, "hidden": 1, "not text": 2, "other branch": 1, "system": 1, "tool": 2},
    }
    first = items(memory)[0]
    assert first.valid_from.isoformat() == "2026-03-03T10:00:00.250000+00:00"
    assert first.source == "chatgpt"
    assert first.metadata == {
        **{"conversation": "c-1", "message": "m-q", "title": "Boats", "role": "user"}
    }


def test_without_a_current_node_the_newest_leaf_is_taken(memory: amv.Memory) -> None:
    one = conversation()
    del one["current_node"]
    for parent, child in (("q", "old"), ("q", "code"), ("code", "ran"), ("ran", "a"), ("a", "pic")):
        one["mapping"][parent]["children"].append(child)
    for key in ("root", "sys", "pic", "voice", "hidden", "empty", "think"):
        one["mapping"][key]["children"] = ["another"]

    assert load(memory, document([one])).added == 4
    empty: dict[str, Any] = {"title": "Nothing yet", "mapping": {}, "current_node": None}
    assert load(memory, document([empty])).added == 0


# Claude


def test_claude(memory: amv.Memory) -> None:
    def message(n: int, sender: str, text: str, *blocks: object) -> dict[str, Any]:
        at = f"2026-03-03T10:00:{n:02}.500000Z"
        told = {"uuid": f"u{n}", "sender": sender, "text": text, "created_at": at}
        return {**told, "content": list(blocks), "attachments": [], "files": []}

    tool = {"type": "tool_use", "name": "search", "input": {}}
    messages = [
        message(0, "human", "Which oar?", {"type": "text", "text": "Which oar?"}),
        message(1, "assistant", "placeholder", tool, {"type": "text", "text": "The ash one."}),
        message(2, "human", "Thanks, as older exports say it."),
        message(3, "assistant", "placeholder", tool),
        message(4, "human", ""),
    ]
    messages[4]["files"] = [{"file_name": "oar.png"}]

    chat = {"uuid": "c", "name": "Oars", "chat_messages": messages}
    report = load(memory, document([chat, {"uuid": "d", "name": "", "chat_messages": []}]))

    assert [item.content for item in items(memory)] == [
        "User: Which oar?",
        "Assistant: The ash one.",
        "User: Thanks, as older exports say it.",
    ]
    assert report.left_out == {"attachment": 1, "empty": 1, "not text": 2}
    assert items(memory)[1].valid_from.isoformat() == "2026-03-03T10:00:01.500000+00:00"
    assert items(memory)[1].metadata == {
        **{"conversation": "c", "message": "u1", "title": "Oars", "role": "assistant"}
    }


# LoCoMo

LOCOMO = {
    "sample_id": "s-1",
    "conversation": {
        "speaker_a": "Ida",
        "speaker_b": "Tom",
        "session_2": [{"speaker": "Tom", "dia_id": "D2:1", "text": "The paint has dried."}],
        "session_2_date_time": "12:05 am on 4 March, 2026",
        "session_1": [
            {"speaker": "Ida", "dia_id": "D1:1", "text": "I painted Heron."},
            {"speaker": "Tom", "dia_id": "D1:2", "text": "Show me!"},
            {"speaker": "Ida", "dia_id": "D1:3", "text": "", "blip_caption": "a green boat"},
            {"speaker": "Ida", "dia_id": "D1:4", "text": "", "img_url": ["x"]},
            {"speaker": "Tom", "dia_id": "D1:5", "text": " "},
        ],
        "session_1_date_time": "1:56 pm on 3 March, 2026",
    },
    "qa": [{"question": "Which colour?", "answer": "green"}],
}


@pytest.mark.parametrize("value", [[LOCOMO], LOCOMO, LOCOMO["conversation"]])
def test_locomo(memory: amv.Memory, value: object) -> None:
    report = load(memory, document(value))

    found = {item.content: item for item in memory.list(namespace=NS).items}
    assert set(found) == {
        "Ida: I painted Heron.",
        "Tom: Show me!",
        "Ida: (shares a picture: a green boat)",
        "Tom: The paint has dried.",
    }
    assert report.format == "locomo"
    assert report.left_out == {"empty": 1, "not text": 1}
    assert found["Tom: Show me!"].valid_from.isoformat() == "2026-03-03T13:56:00+00:00"
    assert found["Tom: The paint has dried."].valid_from.isoformat() == "2026-03-04T00:05:00+00:00"
    # Days lie between two sessions.
    assert found["Tom: The paint has dried."].context == ""
    metadata = found["Tom: Show me!"].metadata
    assert (metadata["session"], metadata["speaker"], metadata["message"]) == (1, "Tom", "D1:2")


def test_sessions_are_found_however_their_numbers_are_written(memory: amv.Memory) -> None:
    """In the order of the numbers, each with its own time; none hides another."""
    sessions = {
        f"session_{written}": [{"speaker": "Ida", "text": f"number {written}"}]
        for written in ("10", "1", "2", "٣", "01", "000000009")
    }
    times = {"session_1_date_time": "2026-03-01", "session_01_date_time": "2026-03-02"}

    report = load(memory, document(sessions | times))

    items = memory.list(namespace=NS).items
    told = [item.content.removeprefix("Ida: number ") for item in items]
    assert told == ["01", "1", "2", "٣", "000000009", "10"]
    assert [item.valid_from.day for item in items[:2]] == [2, 1]
    assert [item.metadata["session"] for item in items] == [1, 1, 2, 3, 9, 10]
    assert (report.added, report.left_out) == (6, {})


def test_a_session_that_can_not_be_numbered_takes_no_other_with_it(memory: amv.Memory) -> None:
    """Neither those of its own conversation nor those of the next; what is lost is told."""
    turn = [{"speaker": "Ida", "text": "one"}]
    first = {f"session_{number}": turn for number in ("1", "9" * 5000, "3", "²", "1_2", "-1")}
    told: list[BadLine] = []

    second = {"session_1": [{"speaker": "Tom", "text": "two"}]}
    report = load(memory, document([first, second]), on_bad=told.append)

    assert (report.added, report.skipped) == (3, 1)
    assert report.left_out == {"session without a number": 3}
    assert {(len(bad.where) < 100, "at most 9 digits" in bad.why) for bad in told} == {(True, True)}


def test_what_is_imported_is_dated_as_it_was_said(memory: amv.Memory) -> None:
    load(memory, document(LOCOMO))

    block = memory.context("who painted Heron", namespace=NS)

    assert "- [2026-03-03] Ida: I painted Heron." in block.text
    earlier = memory.search("paint", namespace=NS, as_of="2026-03-03T20:00", k=9)
    assert "Tom: The paint has dried." not in {hit.item.content for hit in earlier.hits}


# Memories

MEM0: list[dict[str, Any]] = [
    {
        "id": "m1",
        "memory": "Rows every Sunday",
        "hash": "x",
        "user_id": "ida",
        "agent_id": "coach",
        "metadata": {"topic": "sport"},
        "categories": ["sport"],
        "created_at": "2026-03-03T02:00:00-08:00",
        "updated_at": None,
    },
    {"id": "m2", "memory": "Answers in verse", "agent_id": "poet", "created_at": MARCH_S},
    {"id": "m3", "memory": "Has begun", "run_id": "r1", "created_at": MARCH_S * 1000},
    {"id": "m4", "memory": "  ", "user_id": "ida"},
]


@pytest.mark.parametrize("stream", [lines(*MEM0), document(MEM0), document({"results": MEM0})])
@pytest.mark.parametrize("base", [None, ("team",)])
def test_mem0(memory: amv.Memory, stream: io.BytesIO, base: tuple[str, ...] | None) -> None:
    stream.seek(0)
    report = load(memory, stream, namespace=base)

    assert (report.format, report.added, report.left_out) == ("mem0", 3, {"empty": 1})
    base = base or ()
    owners = ("ida",), ("agent", "poet"), ("run", "r1")
    assert report.namespaces == {(*base, *owner): 1 for owner in owners}
    (rows,) = memory.list(namespace=(*base, "ida")).items
    assert (rows.content, rows.valid_from.timestamp()) == ("Rows every Sunday", MARCH_S)
    assert rows.metadata == {
        **{"topic": "sport", "user_id": "ida", "agent_id": "coach", "categories": ["sport"]},
        **{"created_at": "2026-03-03T02:00:00-08:00", "mem0_id": "m1"},
    }
    for name in ("agent", "poet"), ("run", "r1"):
        (item,) = memory.list(namespace=(*base, *name)).items
        assert item.valid_from.timestamp() == MARCH_S


def test_a_memory_that_mem0_has_changed_comes_beside_the_old_one(memory: amv.Memory) -> None:
    load(memory, lines(MEM0[0]))
    changed = MEM0[0] | {"memory": "Rows daily", "updated_at": "2026-04-01"}

    assert load(memory, lines(changed)).added == 1
    found = items(memory, (*NS, "ida"))
    assert [item.content for item in found] == ["Rows every Sunday", "Rows daily"]


GRAPH: list[dict[str, Any]] = [
    {
        **{"type": "entity", "name": "Ida_Holm", "entityType": "person"},
        "observations": ["Rows on Sundays", "Owns Heron", " "],
    },
    {"type": "entity", "name": "Heron", "entityType": "boat", "observations": []},
    {"type": "relation", "from": "Ida_Holm", "to": "Heron", "relationType": "looks_after"},
    {"type": "relation", "from": "Ida_Holm", "to": "Tom", "relationType": "looks_after"},
]


def test_mcp_memory(memory: amv.Memory) -> None:
    report = load(memory, lines(*GRAPH))

    assert contents(memory) == [
        "Heron: boat",
        "Ida_Holm looks after Heron",
        "Ida_Holm looks after Tom",
        "Ida_Holm: Owns Heron",
        "Ida_Holm: Rows on Sundays",
    ]
    assert (report.format, report.left_out) == ("mcp-memory", {"empty": 1})
    found = {item.content: item for item in memory.list(namespace=NS).items}
    rows = found["Ida_Holm: Rows on Sundays"]
    assert rows.metadata == {"entity": "Ida_Holm", "entity_type": "person"}
    assert rows.context == "Ida Holm person"
    looks = found["Ida_Holm looks after Heron"]
    assert looks.metadata == {"from": "Ida_Holm", "to": "Heron", "relation": "looks_after"}
    # Of two relations of one kind, the second is no news of the first.
    assert {item.claim for item in found.values()} == {None}


# Which format it is


@pytest.mark.parametrize(
    ("value", "format"),
    [
        ({"amv": 1}, "items"),
        ({"content": "x"}, "items"),
        ({"content": "x", "memory": "y"}, "items"),
        ({"role": "user", "content": "x"}, "chat"),
        ([{"role": "user", "content": "x"}], "chat"),
        ({"messages": []}, "chat"),
        ({"mapping": {}, "title": ""}, "chatgpt"),
        ({"chat_messages": []}, "claude"),
        ({"session_1": []}, "locomo"),
        ({"conversation": {"session_12": []}}, "locomo"),
        ({"memory": "x"}, "mem0"),
        ({"results": [{"memory": "x"}]}, "mem0"),
        ({"type": "entity", "name": "x", "observations": []}, "mcp-memory"),
        ({"type": "relation", "relationType": "x"}, "mcp-memory"),
        ({"type": "entity"}, None),
        ({"results": []}, None),
        ({"chat_messages": [], "mapping": {}}, None),
        ({}, None),
        ([], None),
        ([1], None),
        (None, None),
        ("x", None),
    ],
)
def test_a_format_is_told_where_that_is_certain(value: object, format: str | None) -> None:
    assert format_of(value) == format


@pytest.mark.parametrize("value", [[{"name": "x"}], [1], ["a"], {"a": {"b": [1]}}])
def test_a_document_of_no_known_shape_is_refused(memory: amv.Memory, value: object) -> None:
    with pytest.raises(InvalidInput, match="name it with --format"):
        amv.import_file(memory, document(value), namespace=NS)

    assert memory.namespaces() == []


@pytest.mark.parametrize("given", [b"", b"[]", b"\n\n", b"\xef\xbb\xbf"])
def test_nothing_holds_nothing(memory: amv.Memory, given: bytes) -> None:
    report = amv.import_file(memory, io.BytesIO(given), namespace=NS)

    assert (report.added, report.skipped) == (0, 0)


def test_items_are_imported_from_python_too(memory: amv.Memory) -> None:
    memory.add("here", namespace=NS, id="x")
    exported = list(memory.export_items())

    with amv.Memory.open(embedder="hashing:32") as other:
        report = load(other, lines(*exported, {"content": "plain"}))
        assert contents(other) == ["here", "plain"]

    assert (report.format, report.added) == ("items", 2)


def test_a_memory_behind_a_gateway_is_imported_into_too(tmp_path: Path) -> None:
    with running(tmp_path / "a.db") as served, Client(served.url) as client:
        report = amv.import_file(client, document(CHAT), namespace=NS)
        again = amv.import_file(client, document(CHAT), namespace=NS)
        told = amv.import_file(client, document(CHAT), namespace=("other",), dry_run=True)
        with pytest.raises(InvalidInput, match=r"amv\.Memory itself"):
            amv.import_file(client, lines({"amv": 1}))

        assert (report.added, again.added, again.present) == (5, 0, 5)
        assert told.added == 5
        assert len(client.list(namespace=NS).items) == 5


# Times


@pytest.mark.parametrize(
    "value",
    [
        MARCH_S,
        int(MARCH_S),
        MARCH_S * 1000,
        str(int(MARCH_S)),
        str(int(MARCH_S * 1000)),
        "2026-03-03T10:00:00",
        "2026-03-03T10:00:00Z",
        "2026-03-03 12:00:00.000+02:00",
        "10:00 am on 3 March, 2026",
        " 10:00 A.M. on 3 mar 2026",
    ],
)
def test_a_time_may_be_written_in_any_usual_way(value: object) -> None:
    assert a_time({"at": value}, "", "never", "at") == MARCH_S


def test_noon_and_midnight() -> None:
    told = ("12:00 am on 3 March, 2026", "12:00 pm on 3 March, 2026")

    midnight, noon = (a_time({"at": text}, "", "at") for text in told)
    assert (midnight, noon) == (MARCH_S - 36_000.0, MARCH_S + 7_200.0)
    assert a_time({"at": None}, "", "at") is a_time({"at": ""}, "", "at") is None


@pytest.mark.parametrize(
    "value",
    [
        *("soon", "13:00 pm on 3 March, 2026", "1:00 pm on 3 Foo, 2026", "1:75 pm on 3 May, 2026"),
        *(True, [], {}, 1e300, "1e400", "nan", 10**400, "1:00 pm on 31 February, 2026"),
    ],
)
def test_what_is_no_time_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^\[1\]\.at: need a time"):
        a_time({"at": value}, "[1]", "at")


# What is wrong

HELLO = {"role": "user", "content": "Hello"}


def broken(**changes: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT with a message that is not as it should be."""
    one = conversation()
    one["mapping"]["a"]["message"] |= changes
    return one


def rehung(**changes: Any) -> dict[str, Any]:
    one = conversation()
    one["mapping"]["a"] |= changes
    return one


CLAUDE = {"uuid": "c", "chat_messages": [{"sender": "human", "text": "a"}]}

WRONG: list[tuple[str, object, str]] = [
    ("chat", [HELLO, 5], r"\[1\]: need a JSON object, got 5"),
    ("chat", [HELLO, {"role": "user"}], r"\[1\]: need a message with role and content"),
    ("chat", [HELLO, HELLO | {"role": None}], r"\[1\]\.role: need a role"),
    ("chat", [HELLO, HELLO | {"role": 5}], r"\[1\]\.role: need text, got 5"),
    (
        "chat",
        [HELLO, HELLO | {"content": 5}],
        r"\[1\]\.content: need text or an array of parts, got 5",
    ),
    ("chat", [HELLO, HELLO | {"content": [5]}], r"\[1\]\.content\[0\]: need a JSON object"),
    ("chat", [HELLO, HELLO | {"content": [{"text": 5}]}], r"content\[0\]\.text: need text"),
    ("chat", [HELLO, HELLO | {"time": "soon"}], r"\[1\]\.time: need a time"),
    ("chat", [HELLO, HELLO | {"content": "a\0b"}], r"\[1\]: what was said must not hold a NUL"),
    ("chat", [HELLO, HELLO | {"content": "\ud800"}], r"\[1\]: .*surrogate"),
    ("chat", [HELLO, HELLO | {"name": "x" * 201}], r"\[1\]: need a speaker's name"),
    ("chat", [HELLO, HELLO | {"content": "x" * (1 << 20)}], r"\[1\]: what was said must take"),
    ("chat", {"messages": {}}, "messages: need an array, got"),
    ("chat", [{"messages": [HELLO, 5]}], r"\[0\]\.messages\[1\]: need a JSON object"),
    ("chatgpt", [5], r"\[0\]: need a JSON object"),
    ("chatgpt", [{}], r"\[0\]: need a conversation with a mapping"),
    ("chatgpt", [{"mapping": []}], r"\[0\]\.mapping: need a JSON object"),
    ("chatgpt", [conversation() | {"current_node": "x"}], r"\[0\]\.current_node: need a node"),
    ("chatgpt", [conversation() | {"current_node": 5}], r"\[0\]\.current_node: need a node"),
    ("chatgpt", [rehung(parent="x")], r"\[0\]\.mapping\.a\.parent: need a node of the mapping"),
    ("chatgpt", [rehung(parent="pic")], r"\[0\]\.mapping\.a\.parent: need a tree"),
    ("chatgpt", [rehung(message=5)], r"\[0\]\.mapping\.a\.message: need a JSON object"),
    ("chatgpt", [broken(author=None)], r"a\.message\.author: need a JSON object"),
    ("chatgpt", [broken(author={})], r"a\.message\.author\.role: need a role"),
    ("chatgpt", [broken(content="x")], r"a\.message\.content: need a JSON object"),
    ("chatgpt", [broken(content={"parts": "x"})], r"content\.parts: need an array"),
    ("chatgpt", [broken(content={"parts": [5]})], r"content\.parts\[0\]: need a JSON object"),
    ("chatgpt", [broken(create_time="x")], r"message\.create_time: need a time"),
    ("claude", [{}], r"\[0\]: need a conversation with chat_messages"),
    ("claude", [{"chat_messages": 5}], r"\[0\]\.chat_messages: need an array"),
    ("claude", [{"chat_messages": [{}]}], r"chat_messages\[0\]\.sender: need human or assistant"),
    ("claude", [{"chat_messages": [{"sender": "human", "text": 5}]}], r"\[0\]\.text: need text"),
    ("claude", [{"chat_messages": [{"sender": "human", "files": 5}]}], r"\.files: need an array"),
    ("locomo", [{}], r"\[0\]: need a conversation with session_1"),
    ("locomo", [{"session_1": [], "session_2": 5}], r"\[0\]\.session_2: need an array"),
    ("locomo", [{"session_1234567890": []}], r"session_1234567890: need a number of .* 9 digits"),
    ("locomo", [{f"session_{'1' * 5000}": []}], r'session_1.*…"\]: need a number of a session'),
    ("locomo", [{"session_1": [{"text": "a"}]}], r"session_1\[0\]\.speaker: need who speaks"),
    ("locomo", {"session_1": [], "session_1_date_time": "x"}, "session_1_date_time: need a time"),
    ("mem0", [{}], r"\[0\]: need a memory, with its text under memory"),
    ("mem0", {"results": 5}, "results: need an array"),
    ("mem0", {"results": [5]}, r"results\[0\]: need a JSON object"),
    ("mem0", [{"memory": 5}], r"\[0\]\.memory: need text"),
    ("mem0", [{"memory": "a", "metadata": 5}], r"\[0\]\.metadata: need a JSON object"),
    ("mem0", [{"memory": "a", "created_at": "x"}], r"\[0\]\.created_at: need a time"),
    ("mem0", [{"memory": "a", "metadata": {"x": 2**60}}], r"\[0\]: .*2\^53"),
    ("mcp-memory", [{"type": "thing"}], r"\[0\]\.type: need entity or relation, got 'thing'"),
    ("mcp-memory", [{"type": "entity"}], r"\[0\]\.name: need a name"),
    ("mcp-memory", [{"type": "relation", "from": "a"}], r"\[0\]\.to: need a name, got None"),
    (
        "mcp-memory",
        [{"type": "entity", "name": "a", "observations": [5]}],
        r"\[0\]\.observations\[0\]: need text, got 5",
    ),
    ("mcp-memory", [GRAPH[0] | {"observations": ["\0"]}], r"\[0\]: the text must not hold a NUL"),
]


@pytest.mark.parametrize(("format", "value", "says"), WRONG)
def test_an_error_names_the_place_what_was_needed_and_what_came(
    memory: amv.Memory, tmp_path: Path, format: str, value: object, says: str
) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps(value))

    with pytest.raises(BadLine, match=rf"given\.json: {says}|given\.json: .*{says}"):
        amv.import_file(memory, path, namespace=NS, format=format)
    told: list[BadLine] = []
    report = amv.import_file(memory, path, namespace=NS, format=format, on_bad=told.append)

    assert (report.skipped, len(told)) == (1, 1)


def test_every_format_has_its_errors_tested() -> None:
    assert {format for format, _, _ in WRONG} | {"items"} == set(FORMATS)


def test_what_comes_before_and_after_a_bad_place_is_kept(memory: amv.Memory) -> None:
    stream = lines(HELLO, {"role": "user"}, HELLO | {"content": "Bye"})
    bad: list[BadLine] = []

    report = amv.import_file(memory, stream, namespace=NS, format="chat", on_bad=bad.append)

    assert contents(memory) == ["User: Bye", "User: Hello"]
    assert (report.added, report.skipped, report.read) == (2, 1, 3)
    assert [error.where for error in bad] == ["line 2"]


def test_a_bad_observation_takes_no_other_with_it(memory: amv.Memory) -> None:
    bad: list[BadLine] = []
    entity = GRAPH[0] | {"observations": ["a", 5, "b", "\0", "c"]}

    amv.import_file(memory, lines(entity), namespace=NS, on_bad=bad.append)

    assert contents(memory) == ["Ida_Holm: a", "Ida_Holm: b", "Ida_Holm: c"]
    assert [error.where for error in bad] == ["line 1 at observations[1]", "line 1"]


def test_a_bad_line_of_a_file_of_lines_is_named(memory: amv.Memory) -> None:
    stream = io.BytesIO(json.dumps(HELLO).encode() + b'\n\n{"role": NaN}\n')

    with pytest.raises(BadLine, match=r"^line 3: need JSON in UTF-8: NaN is no JSON"):
        amv.import_file(memory, stream, namespace=NS)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (b'[{"role": "user", ', "whole JSON document"),
        (b'[{"role": "user",\n "content": "\xff"}]', "name it with --format"),
        (b'[{"role": "user", "content": NaN}]', "whole JSON document"),
        (b"PK\x03\x04 and so on", "zip archive"),
        (b'{"messages":\n [', "need JSON"),
        (b"[" * 100_000, "whole JSON document"),
    ],
)
def test_a_document_that_cannot_be_read_is_refused_whole(
    memory: amv.Memory, given: bytes, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        amv.import_file(memory, io.BytesIO(given), namespace=NS)

    assert memory.namespaces() == []


def test_half_an_emoji_is_no_reason_to_refuse_the_rest(memory: amv.Memory) -> None:
    """Programs that cut a text by its length in UTF-16 write such."""
    for stream in (
        document([HELLO, HELLO | {"content": "\ud83d"}]),
        lines(HELLO | {"id": "\ud83d"}),
    ):
        bad: list[BadLine] = []
        load(memory, stream, on_bad=bad.append)
        assert {error.where for error in bad} <= {"[1]", "line 1"}

    assert contents(memory) == ["User: Hello"]


def test_a_document_has_a_size_it_may_have(
    memory: amv.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amv.imports.reading.DOCUMENT_BYTES_MAX", 400)

    assert load(memory, document([HELLO])).added == 1
    assert load(memory, lines(*[HELLO] * 40)).added == 39
    with pytest.raises(InvalidInput, match="may take 400 bytes"):
        amv.import_file(memory, document([HELLO] * 40), namespace=NS)


@pytest.mark.parametrize(
    "options",
    [
        {"neighbours": -1},
        {"neighbours": 17},
        {"neighbours": True},
        {"format": "pdf"},
        {"dry_run": "yes"},
        {"by_conversation": 1},
        {"namespace": "home"},
    ],
)
def test_options_that_cannot_be_are_refused(memory: amv.Memory, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        amv.import_file(memory, document(CHAT), **{"namespace": NS, **options})


@pytest.mark.parametrize(
    ("stream", "options", "says"),
    [
        (document(CHAT), {}, "need --namespace"),
        (lines(*GRAPH), {}, "need --namespace"),
        (lines({"memory": "x"}), {}, "need --namespace"),
        (document(CHAT), {"namespace": NS, "by_conversation": True}, "has no id"),
        (lines({"memory": "x", "user_id": "u" * 300}), {}, "namespace part must take"),
    ],
)
def test_whose_memory_it_becomes_must_be_said(
    memory: amv.Memory, stream: io.BytesIO, options: dict[str, Any], says: str
) -> None:
    stream.seek(0)

    with pytest.raises(BadLine, match=says):
        amv.import_file(memory, stream, **options)
    with pytest.raises(InvalidInput, match="could not be read"):
        amv.import_file(memory, "/nowhere/at.all", **options)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"foo": 1}', r"line 1: unknown field 'foo'.*name it with --format \(format=\)"),
        (b'[{"role"', "need a whole JSON document"),
        (b'{"foo":\n1}', "can't tell what this holds"),
        (b"PK\x03\x04", "this is a zip archive"),
        (b'[{"role": 5, "content": "x"}]', r"\[0\]\.role: need text"),
    ],
)
def test_an_error_names_the_file_if_it_has_a_name(
    memory: amv.Memory, tmp_path: Path, data: bytes, says: str
) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(data)

    with pytest.raises(InvalidInput, match=f"^{re.escape(str(path))}: {says}"):
        amv.import_file(memory, path, namespace=NS)
    with pytest.raises(InvalidInput, match=f"^{says}"):
        amv.import_file(memory, io.BytesIO(data), namespace=NS)


def test_a_rehearsal_writes_nothing_and_counts_the_same(memory: amv.Memory) -> None:
    memory.add("here", namespace=NS)
    exported = [item | {"id": f"e{n}"} for n, item in enumerate(memory.export_items())]
    plain = [{"content": "p", "id": "p"}, {"content": "p", "id": "p"}, {"content": "q"}, *exported]
    for stream in (document(CHAT), lines(*MEM0), lines(*GRAPH), document(LOCOMO), lines(*plain)):
        rehearsed = amv.import_file(memory, stream, namespace=NS, dry_run=True)
        names = memory.namespaces()
        stream.seek(0)
        done = amv.import_file(memory, stream, namespace=NS)

        assert rehearsed.dry_run
        assert (rehearsed.added, rehearsed.present) == (done.added, done.present)
        assert rehearsed.left_out == done.left_out
        assert len(rehearsed.first) == rehearsed.added
        assert set(names) <= set(memory.namespaces())
        stream.seek(0)
        assert amv.import_file(memory, stream, namespace=NS, dry_run=True).added == 0


def test_a_rehearsal_finds_what_is_wrong(memory: amv.Memory) -> None:
    wrong = lines({"content": "a", "source_trust": 2}, {"content": "b", "pinned": 5}, {"amv": 1})
    bad: list[BadLine] = []

    report = amv.import_file(memory, wrong, namespace=NS, dry_run=True, on_bad=bad.append)

    assert [error.number for error in bad] == [1, 2, 3]
    assert (report.added, memory.namespaces()) == (0, [])


@pytest.mark.parametrize(
    "values",
    [
        [{"content": "a", "id": "x"}, {}],
        [{"content": "a", "id": ["x"]}, {"content": "b", "id": {"x": 1}}, {"content": "c"}],
        [{"content": "a", "namespace": 5}, {"content": "b", "namespace": [["x"]]}],
        [{"content": "a", "id": "x"}, {"content": "b", "id": "x"}, {"content": "a", "id": "x"}],
        [{"content": "new", "id": "there"}, {"content": "there", "id": "there"}],
        [{"content": "there", "id": "there", "source": "other"}],
        [{"content": "there", "id": "there", "metadata": {"k": 1}}],
        [{"content": "a", "id": "x", "claim": ["s", "a", "v"]}, {"content": "a", "id": "x"}],
        [{"content": "a", "id": "x"}, {"content": "a", "id": "x", "claim": ["s", "a", "v"]}],
    ],
)
def test_a_rehearsal_counts_what_is_refused_as_the_import_will(
    memory: amv.Memory, values: list[Any]
) -> None:
    """Whoever looks first wants to know just that; what would be refused whole adds nothing."""
    memory.add("there", namespace=NS, id="there")
    (exported,) = memory.export_items()
    stream = lines(*values, {**exported, "id": "e"}, {**exported, "id": "e", "content": "other"})

    told = []
    for is_rehearsal in (True, False):
        stream.seek(0)
        bad: list[BadLine] = []
        report = amv.import_file(
            memory, stream, namespace=NS, dry_run=is_rehearsal, on_bad=bad.append
        )
        numbers = [error.number for error in bad]
        told.append((report.added, report.present, report.skipped, numbers))

    assert told[0] == told[1]
    assert told[0][2] > 0
