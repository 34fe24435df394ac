"""Intake: bad input gets a clear error and changes nothing; texts are embedded in batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pytest

from amv.embedders.hashing import Hashing
from amv.errors import (
    Conflict,
    DimensionMismatch,
    EmbedderError,
    InvalidInput,
    InvalidNamespace,
    ItemNotFound,
    StoreClosed,
)
from amv.memory import intake, lookup
from amv.memory.checked import Checked
from amv.memory.item import Claim, Status
from amv.memory.ports import PASSAGES_MAX, Floats, Store
from amv.memory.service import MemoryService
from amv.memory.settings import MemorySettings
from amv.stores.memory import MemoryStore
from amv.testing import FakeClock
from tests.memory.worlds import ALICE, DIMENSION, SMALL, WordByWord, World

UNIT = [1.0] + [0.0] * (DIMENSION - 1)


class Counting(Hashing):
    """An embedder that notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__(dimension=DIMENSION)
        self.batches: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Floats:
        self.batches.append(list(texts))
        return super().embed(texts)


# ---------------------------------------------------------------- adding


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"content": ""}, "content must hold more than white space, got ''"),
        ({"content": " \n"}, "content must hold more than white space"),
        ({"content": None}, "content must be a string, got NoneType"),
        ({"content": 5}, "content must be a string, got int"),
        ({"content": "a\x00b"}, "content must not hold a NUL character"),
        ({"content": "a\ud800"}, "content must be well-formed Unicode"),
        ({"content": "x" * 101}, "content must take at most 100 bytes, got 101"),
        ({"context": "x" * 101}, "context must take at most 100 bytes"),
        ({"context": 0}, "context must be a string, got int"),
        ({"context": "\x00"}, "context must not hold a NUL"),
        ({"namespace": None}, "namespace is needed: whose memory this is"),
        ({"namespace": ()}, "a namespace has 1 to 8 parts, got 0"),
        ({"namespace": "alice"}, "a namespace is a tuple of strings"),
        ({"namespace": ("a",) * 9}, "a namespace has 1 to 8 parts, got 9"),
        ({"id": ""}, "an item id must hold"),
        ({"id": 7}, "an item id must be a string"),
        ({"metadata": []}, "metadata must be a mapping, got list"),
        ({"metadata": {"a": math.nan}}, "finite number"),
        ({"metadata": {1: 2}}, "a metadata key must be a string"),
        ({"metadata": {"a": {"b"}}}, "need a string, finite number, boolean or null"),
        ({"claim": ("a", "b", "c")}, "claim must be an amv.Claim, got tuple"),
        ({"source": ""}, "source must hold"),
        ({"source": 1}, "source must be a string"),
        ({"source_trust": 2}, "source_trust must be a number from 0 to 1, got 2"),
        ({"pinned": 1}, "pinned must be True or False, got 1"),
        ({"pinned": None}, "pinned must be True or False, got None"),
        ({"valid_from": "soon"}, "valid_from must be an ISO 8601 time, got 'soon'"),
        ({"valid_until": "2001-01-01"}, "valid_until must be later than valid_from"),
        ({"valid_from": 5, "valid_until": 5}, "valid_until must be later than valid_from"),
        ({"expires_at": math.inf}, "expires_at must lie in years 1 to 9999"),
        ({"expires_at": "2001-01-01"}, r"expires_at must be later than now .* forget\(\)"),
        ({"expires_at": FakeClock()()}, "expires_at must be later than now"),
        ({"vector": [1.0]}, r"has shape \(64,\), got \(1,\)"),
        ({"vector": [UNIT]}, r"has shape \(64,\), got \(1, 64\)"),
        ({"vector": [0.0] * DIMENSION}, "a vector must be finite and not all zero"),
        ({"vector": [math.nan] * DIMENSION}, "a vector must be finite"),
        ({"vector": [math.inf, *UNIT[1:]]}, "a vector must be finite"),
        ({"vector": ["a"] * DIMENSION}, "a vector must hold numbers only"),
        ({"vector": [[1.0], [1.0, 2.0]]}, "a vector must hold numbers only"),
        ({"vector": [1j] * DIMENSION}, "a vector must hold numbers only: got complex128"),
        ({"vector": np.ones(DIMENSION, np.complex64)}, "numbers only: got complex64"),
        ({"vector": ["1"] * DIMENSION}, "a vector must hold numbers only"),
        ({"colour": "red"}, "unknown field 'colour'; an item has claim, content"),
        ({"created_at": 5}, "unknown field 'created_at'"),
        ({"tier": "HOT"}, "unknown field 'tier'"),
        ({5: 1, "colour": 2, None: 3}, "unknown field 'colour'"),
        ({10**5000: 1}, "unknown field an integer of 16610 bits"),
        ({"vector": [10**5000] * DIMENSION}, "a vector must hold numbers only"),
        ({"content": " " * 100}, r"more than white space, got '[ .]{70,80}'$"),
    ],
)
def test_an_item_that_cannot_be_kept_is_refused_and_nothing_changes(
    store: Store, fields: dict[str, Any], problem: str
) -> None:
    """Nothing of its batch either: all are checked before the first is written."""
    world = World(store, replace(SMALL, content_bytes_max=100))
    good = {"content": "fine", "namespace": ALICE}

    with pytest.raises(InvalidInput, match=problem):
        world.memory.add_many([good, {**good, **fields}])

    assert world.memory.namespaces() == []


@pytest.mark.parametrize("items", [None, 5, "text", ["text"], [None], {"content": "x"}, [[]], b"x"])
@pytest.mark.parametrize("call", ["add_many", "restore"])
def test_what_is_no_list_of_items_is_refused(world: World, items: Any, call: str) -> None:
    """With a word about what is needed, and nothing added."""
    with pytest.raises(InvalidInput, match=r"must be several|is a mapping|is an object"):
        getattr(world.memory, call)(items)
    assert world.memory.namespaces() == []


def test_an_item_is_a_mapping(world: World) -> None:
    """A list of texts is an understandable mistake, and gets an answer."""
    with pytest.raises(InvalidInput, match="an item is a mapping of fields, got str"):
        world.memory.add_many(["a text"])  # type: ignore[list-item]


def test_an_add_without_a_namespace_is_an_error(world: World) -> None:
    """Never everyone's items."""
    with pytest.raises(InvalidInput, match="namespace is needed"):
        world.memory.add_many([{"content": "x"}])
    with pytest.raises(TypeError, match="namespace"):
        world.memory.add("x")  # type: ignore[call-arg]


def test_errors_about_dimension_and_namespace_have_their_own_kind(world: World) -> None:
    """So that a caller can tell them apart; both are InvalidInput as well."""
    with pytest.raises(DimensionMismatch):
        world.add("x", vector=[1.0])
    with pytest.raises(InvalidNamespace):
        world.add("x", namespace=())


@pytest.mark.parametrize(
    "content",
    [
        "emoji 🍕👩‍👩‍👧",
        "\u202e\u05e9\u05dc\u05d5\u05dd\u202c",
        "quote ' and \" and % and * and \\",
        "'; DROP TABLE item; --",
        " spaces kept ",
        "line\nbreak\r\n\ttab",
        "\ufeffbom",
    ],
)
def test_what_can_be_kept_comes_back_byte_for_byte(world: World, content: str) -> None:
    """In every text field; metadata keys and claims too."""
    item = world.add(
        content,
        id=content,
        context=content,
        source=content,
        metadata={content: [content]},
        claim=Claim(content, content, content),
        namespace=(content,),
    )
    kept = world.memory.get(content, namespace=(content,))

    assert kept == item
    assert (kept.content, kept.context, kept.source, kept.id) == (content,) * 4
    assert kept.metadata == {content: [content]}
    assert kept.claim == Claim(content, content, content)
    assert kept.namespace == (content,)
    found = world.memory.find_claim((content,), content, content)
    assert found == item
    page = world.memory.list(namespace=(content,), source=content)
    assert page.items == (item,)
    hits = world.memory.search(content, namespace=(content,), filter={content: content}).hits
    assert [hit.item.id for hit in hits] == [content]


def test_a_content_of_exactly_the_limit_is_kept(store: Store) -> None:
    """One byte more is an error, never a silent cut."""
    world = World(store, replace(SMALL, content_bytes_max=100))

    assert world.add("é" * 50).content == "é" * 50
    with pytest.raises(InvalidInput, match="at most 100 bytes, got 102"):
        world.add("é" * 51)


def test_by_default_a_content_may_take_a_mebibyte() -> None:
    assert MemorySettings().content_bytes_max == 2**20


def test_a_content_of_too_many_passages_is_refused() -> None:
    """A vector's id has room for so many; one more would be another item's."""
    world = World(MemoryStore(), embedder=WordByWord(dimension=8))

    world.add("a " * PASSAGES_MAX)
    with pytest.raises(InvalidInput, match=f"at most {PASSAGES_MAX} passages, got .*; add it as"):
        world.add("a " * (PASSAGES_MAX + 1))


def test_defaults_are_plain(world: World) -> None:
    """What is not said is empty, and the trust is even."""
    item = world.add("x", id=None, metadata=None, context=None, claim=None, vector=None)

    assert (item.context, item.metadata, item.claim, item.source) == ("", {}, None, None)
    assert (item.source_trust, item.pinned, item.contradicted) == (0.5, False, False)
    assert item.valid_from == item.created_at
    assert (item.valid_until, item.expires_at, item.last_verified_at) == (None, None, None)


def test_metadata_of_a_caller_is_copied(world: World) -> None:
    """Changing it afterwards changes nothing kept."""
    metadata = {"a": [1]}
    item = world.add("x", metadata=metadata)
    metadata["a"].append(2)

    assert world.memory.get(item.id).metadata == {"a": [1]}


# ---------------------------------------------------------------- vectors


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1.0, 1e30, 1e200])
def test_a_vector_counts_by_its_direction(world: World, scale: float) -> None:
    """Whatever its length, also where its square is no number any more."""
    direction = np.arange(1.0, DIMENSION + 1.0)
    world.add("x", vector=direction * scale)

    hit = world.memory.search(vector=list(direction), namespace=ALICE).hits[0]

    assert hit.similarity == pytest.approx(1.0, abs=1e-5)


def test_a_content_with_a_vector_is_not_embedded() -> None:
    """That is what it was given for."""
    embedder = Counting()
    world = World(MemoryStore(), embedder=embedder)
    world.memory.add_many(
        [
            {"content": "one", "namespace": ALICE},
            {"content": "two", "namespace": ALICE, "vector": UNIT},
            {"content": "three", "namespace": ALICE},
        ]
    )

    assert embedder.batches == [["one", "three"]]
    world.add("four", vector=UNIT)
    assert len(embedder.batches) == 1
    assert set(world.found("x", vector=UNIT, k=2)) == {"i2", "i4"}


def test_all_passages_of_a_batch_are_embedded_together() -> None:
    """A model is much faster at many texts at once."""
    world = World(MemoryStore(), embedder=(embedder := Counting()))
    world.memory.add_many([{"content": str(i), "namespace": (str(i % 3),)} for i in range(50)])

    assert [len(batch) for batch in embedder.batches] == [50]


def test_large_batches_are_written_in_chunks(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Each chunk wholly, in order; all are checked before the first."""
    monkeypatch.setattr("amv.memory.service.ADD_CHUNK", 4)
    rows = [{"content": f"{i}", "namespace": ALICE} for i in range(10)]

    with pytest.raises(InvalidInput):
        world.memory.add_many([*rows, {"content": "", "namespace": ALICE}])
    assert world.memory.namespaces() == []

    items = world.memory.add_many(rows)
    assert [item.content for item in items] == [str(i) for i in range(10)]
    assert world.memory.list(namespace=ALICE).items == tuple(
        world.memory.get(item.id) for item in items
    )
    assert world.memory.add_many([]) == []


class Broken(Hashing):
    """An embedder of someone else's making."""

    def __init__(self, answer: object) -> None:
        super().__init__(dimension=8)
        self.answer = answer

    def embed(self, texts: Sequence[str]) -> Floats:
        return cast(Floats, self.answer)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "must return numbers only: got object"),
        (b"abc", "must return numbers only"),
        ([["1.0"] * 8], "must return numbers only"),
        ([[10**400] + [0] * 7], "must return numbers only"),
        (np.eye(1, 8) * 1j, "must return numbers only: got complex128"),
        (np.eye(1, 8, dtype=bool), "must return numbers only: got bool"),
        ([[1e300] * 8], "must return vectors of length 1"),
        ([[math.inf] * 8], "must return vectors of length 1"),
        ([], r"must return vectors of shape \(1, 8\), got \(0,\)"),
        (5.0, r"must return vectors of shape \(1, 8\), got \(\)"),
        ([["a"] * 8], "must return numbers only"),
        ([[1.0, 0.0], [1.0]], "must return numbers only"),
        ([1.0] * 8, r"must return vectors of shape \(1, 8\), got \(8,\)"),
        ([[1.0] * 7], r"must return vectors of shape \(1, 8\), got \(1, 7\)"),
        (np.eye(8), r"must return vectors of shape \(1, 8\), got \(8, 8\)"),
        ([[0.0] * 8], "must return vectors of length 1"),
        ([[math.nan] * 8], "must return vectors of length 1"),
        ([[1.0] * 8], "must return vectors of length 1"),
    ],
)
def test_an_embedder_that_breaks_its_promise_changes_nothing(
    store: Store, answer: object, problem: str
) -> None:
    """What it returned would be kept, and every other vector be compared with it."""
    world = World(store, embedder=Broken(answer))

    with pytest.raises(EmbedderError, match=f"embedder 'hashing-8' {problem}"):
        world.add("x")
    with pytest.raises(EmbedderError):
        world.found("x")
    assert world.memory.namespaces() == []
    world.embedder = Broken(np.eye(8)[:1])
    assert world.another().add("x", namespace=ALICE).content == "x"


# ---------------------------------------------------------------- changing


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "update needs one of content, context, expires_at, metadata"),
        ({"content": ""}, "content must hold"),
        ({"content": None}, "content must be a string"),
        ({"context": 7}, "context must be a string"),
        ({"metadata": 5}, "metadata must be a mapping, got int"),
        ({"source_trust": None}, "source_trust must be a number"),
        ({"valid_until": "never"}, "valid_until must be an ISO 8601 time"),
        ({"expires_at": []}, "expires_at must be a datetime"),
        ({"expires_at": 5}, r"expires_at must be later than now .* forget\(\)"),
        ({"claim": Claim("a", "b", 1)}, "'claim' can't be changed; update takes content, context"),
        ({"id": "other"}, "'id' can't be changed"),
        ({"owner": "bob"}, "'owner' can't be changed"),
        ({"created_at": 0}, "'created_at' can't be changed"),
        ({"source": "me"}, "'source' can't be changed"),
        ({"pinned": True}, "'pinned' can't be changed"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    world: World, fields: dict[str, Any], problem: str
) -> None:
    """Owner and birth of an item are not for changing at all."""
    item = world.add("x")

    with pytest.raises(InvalidInput, match=problem):
        world.memory.update(item.id, **fields)
    assert world.memory.get(item.id) == item


def test_an_item_cannot_be_moved_to_another_owner(world: World) -> None:
    """The namespace of an update says whose item is meant; it is never a change."""
    item = world.add("x")

    with pytest.raises(LookupError, match="an item never changes its namespace"):
        world.memory.update(item.id, namespace=("bob",), content="y")
    assert world.memory.get(item.id) == item


# ---------------------------------------------------------------- asking


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"k": 0}, r"k must be a whole number from 1 to 256 \(k_max\), got 0"),
        ({"k": -3}, "k must be"),
        ({"k": 257}, "k must be .* got 257"),
        ({"k": 2.0}, "k must be"),
        ({"k": True}, "k must be"),
        ({"k": None}, "k must be"),
        ({"query": None}, "a search needs a query text, a vector, or both"),
        ({"query": 5}, "a query must be a string"),
        ({"query": "\x00"}, "a query must not hold a NUL"),
        ({"query": "\ud800"}, "a query must be well-formed"),
        ({"query": "x" * (intake.QUERY_BYTES_MAX + 1)}, "a query must take at most"),
        ({"cold": 0}, "cold must be True, False or None, got 0"),
        ({"cold": "yes"}, "cold must be"),
        ({"vector": [1.0]}, "has shape"),
        ({"vector": [0.0] * DIMENSION}, "not all zero"),
        (
            {"filter": {"a": {"like": "x%"}}},
            "need one of eq, ne, gt, gte, lt, lte, in .*got 'like'",
        ),
        ({"filter": [1]}, "need a filter as a non-empty mapping"),
        ({"filter": {"a": object()}}, "need a string, finite number"),
        ({"as_of": "long ago"}, "as_of must be an ISO 8601 time"),
        ({"namespace": ()}, "a namespace has 1 to 8 parts"),
        ({"namespace": None}, "a namespace is a tuple"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    world: World, arguments: dict[str, Any], problem: str
) -> None:
    """Before it reads or counts anything; with a blank query, too."""
    world.fill(2)

    for query in ("thing1", ""):
        with pytest.raises(InvalidInput, match=problem):
            world.memory.search(**{"query": query, "namespace": ALICE, **arguments})
    assert world.memory.flush() == 0


def test_a_search_without_a_namespace_is_an_error(world: World) -> None:
    """Never everyone's items."""
    with pytest.raises(TypeError, match="namespace"):
        world.memory.search("x")  # type: ignore[call-arg]


@pytest.mark.parametrize("key", ["'", '"', "%", "*", "a' OR 1=1 --", "a.b", "ключ", "a\x1fb"])
def test_no_character_of_a_filter_key_is_more_than_a_character(world: World, key: str) -> None:
    """Neither a quote nor a wildcard finds what is under another key."""
    item = world.add("x", metadata={key: 1})
    world.add("x", metadata={"other": 1})
    world.add("x", metadata={"": 1})

    assert world.found("x", filter={key: 1}) == [item.id]
    assert world.found("x", filter={key + " ": 1}) == []


def test_a_query_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents repeat themselves; the last ones are remembered, not all."""
    monkeypatch.setattr(intake, "QUERIES_CACHED", 2)
    world = World(MemoryStore(), embedder=(embedder := Counting()))
    world.fill(1)
    embedder.batches.clear()
    for query in ("one", "two", "one", "three", "one", "two"):
        world.found(query)

    assert embedder.batches == [["one"], ["two"], ["three"], ["two"]]


def test_a_query_of_exactly_the_limit_is_asked(world: World) -> None:
    world.fill(1)

    assert world.found("x " * (intake.QUERY_BYTES_MAX // 2)) == ["i1"]


# ---------------------------------------------------------------- other calls


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda m: m.context("x", namespace=ALICE, token_budget=0),
            "token_budget must be a whole number",
        ),
        (lambda m: m.context("x", namespace=ALICE, token_budget=1.5), "token_budget must be"),
        (lambda m: m.context("x", namespace=ALICE, count_tokens=4), "must be a function, got 4"),
        (lambda m: m.reinforce("i1", namespace=ALICE), "several ids, got the string 'i1'"),
        (lambda m: m.reinforce(5), "several ids, got 5"),
        (lambda m: m.reinforce(None), "several ids, got None"),
        (lambda m: m.reinforce([["i1"]]), "an item id must be a string, got list"),
        (lambda m: m.reinforce(["i1"], contributed="no"), "contributed must be True or False"),
        (lambda m: m.reinforce(["i1"], negative="no"), "negative must be True or False, got 'no'"),
        (lambda m: m.reinforce([""]), "an item id must hold"),
        (lambda m: m.reinforce(["i1"], namespace=()), "a namespace has 1 to 8"),
        (lambda m: m.get(""), "an item id must hold"),
        (lambda m: m.get(None), "an item id must be a string"),
        (lambda m: m.get("i1", namespace="alice"), "a namespace is a tuple"),
        (lambda m: m.pin("i1", 1), "pinned must be True or False, got 1"),
        (lambda m: m.list(namespace=ALICE, limit=0), "limit must be 1 to 10000, got 0"),
        (lambda m: m.list(namespace=ALICE, limit=10_001), "limit must be"),
        (lambda m: m.list(namespace=ALICE, limit=True), "limit must be"),
        (lambda m: m.list(namespace=("nobody",), limit=0), "limit must be"),
        (lambda m: m.list(namespace=ALICE, cursor="next"), "a cursor comes from an earlier page"),
        (lambda m: m.list(namespace=()), "a namespace has 1 to 8"),
        (
            lambda m: m.list(namespace=ALICE, status="bogus"),
            "status must be one of live, superseded, refuted or None, got 'bogus'",
        ),
        (lambda m: m.list(namespace=("nobody",), status=5), "status must be one of .* got 5"),
        (lambda m: m.list(namespace=ALICE, status=["live"]), "status must be one of"),
        (lambda m: m.stats(()), "a namespace has 1 to 8"),
        (lambda m: m.find_claim((), "a", "b"), "a namespace has 1 to 8"),
        (lambda m: m.forget_namespace(()), "a namespace has 1 to 8"),
        (lambda m: m.forget_many(["i1"], namespace=()), "a namespace has 1 to 8"),
        (lambda m: m.forget_many("i1", namespace=ALICE), "several ids, got the string 'i1'"),
        (lambda m: m.forget_many([""], namespace=ALICE), "an item id must hold"),
        (lambda m: m.forget_many(5, namespace=ALICE), "several ids, got 5"),
        (lambda m: m.forget_many(None, namespace=ALICE), "several ids, got None"),
        (lambda m: m.forget_many([["i1"]], namespace=ALICE), "an item id must be a string"),
        (lambda m: m.forget_many([{}], namespace=ALICE), "an item id must be a string, got dict"),
        (lambda m: m.sweep(dry_run="no"), "dry_run must be True or False, got 'no'"),
        (lambda m: list(m.export_items(vectors=1)), "vectors must be True or False, got 1"),
        (lambda m: m.sweep(namespace=()), "a namespace has 1 to 8"),
        (lambda m: m.rebuild_index(()), "a namespace has 1 to 8"),
        (lambda m: list(m.export_items(namespace=())), "a namespace has 1 to 8"),
    ],
)
def test_every_call_checks_what_it_is_given(
    world: World, call: Callable[[MemoryService], object], problem: str
) -> None:
    item = world.add("x")

    with pytest.raises(InvalidInput, match=problem):
        call(world.memory)
    assert world.memory.get("i1") == item


HUGE: Any = 10**5000
"""Python refuses to write it down, so a careless message about it is a ValueError."""


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda m, name=name: m.add("x", **{"namespace": ALICE, name: HUGE})
            for name in sorted(intake._ADD_KEYS - {"content", "namespace"})
        ),
        lambda m: m.add(HUGE, namespace=ALICE),
        lambda m: m.add("x", namespace=HUGE),
        lambda m: m.add("x", namespace=(HUGE,)),
        lambda m: m.add("x", namespace=ALICE, metadata={"n": [HUGE]}),
        lambda m: m.add("x", namespace=ALICE, metadata={HUGE: 1}),
        lambda m: m.add_many(HUGE),
        lambda m: m.add_many([HUGE]),
        *(
            lambda m, name=name: m.update("i1", **{name: HUGE})
            for name in sorted(intake._CHANGE_KEYS)
        ),
        *(
            lambda m, name=name: m.search(**{"query": "x", "namespace": ALICE, name: HUGE})
            for name in ("query", "namespace", "k", "vector", "filter", "as_of", "cold")
        ),
        lambda m: m.search("x", namespace=ALICE, filter={"n": HUGE}),
        lambda m: m.search("x", namespace=ALICE, filter={"n": {"gt": HUGE}}),
        lambda m: m.search("x", namespace=ALICE, filter={"n": {HUGE: 1}}),
        lambda m: m.search("x", namespace=ALICE, filter={HUGE: 1}),
        lambda m: m.search("x", namespace=ALICE, filter={"n": {"in": HUGE}}),
        lambda m: m.search("x", namespace=ALICE, filter={"and": HUGE}),
        lambda m: m.context("x", namespace=ALICE, token_budget=-HUGE),
        lambda m: m.context("x", namespace=ALICE, count_tokens=HUGE),
        lambda m: m.context("x", namespace=ALICE, filter=HUGE),
        lambda m: m.get(HUGE),
        lambda m: m.get("i1", namespace=HUGE),
        lambda m: m.pin("i1", HUGE),
        lambda m: m.confirm(HUGE),
        lambda m: m.refute(HUGE),
        lambda m: m.refute("claim", HUGE),
        *(
            lambda m, name=name: m.list(**{"namespace": ALICE, name: HUGE})
            for name in ("namespace", "source", "cursor", "limit", "status")
        ),
        lambda m: m.find_claim(ALICE, HUGE, "b"),
        lambda m: m.find_claim(ALICE, "a", HUGE),
        lambda m: m.history(HUGE),
        lambda m: m.reinforce(HUGE),
        lambda m: m.reinforce([HUGE]),
        lambda m: m.reinforce(["i1"], negative=HUGE),
        lambda m: m.forget(HUGE),
        lambda m: m.forget_many([HUGE], namespace=ALICE),
        lambda m: m.forget_namespace(HUGE),
        lambda m: m.stats(HUGE),
        lambda m: m.sweep(namespace=HUGE),
        lambda m: m.sweep(dry_run=HUGE),
        lambda m: m.rebuild_index(HUGE),
        lambda m: list(m.export_items(vectors=HUGE)),
        lambda m: m.restore(HUGE),
        lambda m: m.restore([HUGE]),
        lambda m: m.restore([{"amv": HUGE}]),
        lambda m: Claim("a", "b", HUGE),
        lambda m: Claim(HUGE, "b", 1),
    ],
)
def test_a_number_too_long_to_be_written_is_refused_like_any_other(
    world: World, call: Callable[[MemoryService], object]
) -> None:
    world.add("x")
    world.add("y", id="claim", claim=Claim("a", "b", 1))
    before = list(world.memory.export_items())

    with pytest.raises(InvalidInput) as caught:
        call(world.memory)
    assert len(str(caught.value)) < 500
    assert list(world.memory.export_items()) == before


def test_a_correction_too_long_to_be_written_of_what_has_no_value(world: World) -> None:
    world.add("x")

    with pytest.raises(Conflict, match="no claim whose value could be an integer of 16610 bits"):
        world.memory.refute("i1", HUGE)


def test_a_status_can_be_told_by_its_name(world: World) -> None:
    """As it stands in an export."""
    item = world.add("x")

    assert world.memory.list(namespace=ALICE, status=cast(Status, "live")).items == (item,)
    assert world.memory.list(namespace=ALICE, status=cast(Status, "refuted")).items == ()


def _told(memory: MemoryService) -> None:
    with memory.telling([Checked("i1", holds=False, value=3)], namespace=ALICE) as tell:
        memory.store.write(tell)


CALLS: dict[str, Callable[[MemoryService], object]] = {
    "add": lambda m: m.add("x", namespace=ALICE),
    "search": lambda m: m.search("x", namespace=ALICE),
    "find": lambda m: m.find("x", namespace=ALICE),
    "search for nothing": lambda m: m.search("", namespace=ALICE),
    "context": lambda m: m.context("x", namespace=ALICE),
    "get": lambda m: m.get("i1"),
    "list": lambda m: m.list(namespace=ALICE),
    "history": lambda m: m.history("i1"),
    "contradicting": lambda m: m.contradicting("i1"),
    "find_claim": lambda m: m.find_claim(ALICE, "a", "b"),
    "claim_row": lambda m: m.claim_row(None, ALICE, "a", "b"),
    "update": lambda m: m.update("i1", content="y"),
    "telling": lambda m: _told(m),
    "pin": lambda m: m.pin("i1"),
    "confirm": lambda m: m.confirm("i1"),
    "refute": lambda m: m.refute("i1"),
    "reinforce": lambda m: m.reinforce(["i1"]),
    "forget": lambda m: m.forget("i1"),
    "forget_many": lambda m: m.forget_many(["x"], namespace=ALICE),
    "forget_namespace": lambda m: m.forget_namespace(ALICE),
    "flush": lambda m: m.flush(),
    "sweep": lambda m: m.sweep(),
    "activity": lambda m: m.activity(),
    "maintain": lambda m: m.maintain(),
    "stats": lambda m: m.stats(),
    "namespaces": lambda m: m.namespaces(),
    "check": lambda m: m.check(),
    "unindexed": lambda m: m.unindexed(),
    "export_items": lambda m: list(m.export_items()),
    "restore": lambda m: m.restore([]),
    "add_many none": lambda m: m.add_many([]),
    "add_under": lambda m: m.add_under([({"content": "x", "namespace": ALICE}, "made")]),
    "rebuild_index": lambda m: m.rebuild_index(ALICE),
}


@pytest.mark.parametrize("name", CALLS)
def test_use_after_close_is_an_error(world: World, name: str) -> None:
    """Also where the call would find nothing to do, and where a view is in RAM still."""
    world.add("x")
    world.found("x")
    world.memory.close()

    with pytest.raises(StoreClosed):
        CALLS[name](world.memory)


def test_closing_twice_is_fine(world: World) -> None:
    """A context manager closes what its body may have closed already."""
    world.memory.close()
    world.memory.close()


def test_every_public_call_is_tried_after_close() -> None:
    """A method that is added needs a line above, or nobody knows what it does then."""
    public = {name for name in dir(MemoryService) if not name.startswith("_")}

    # What tells of RAM or asks to be told, or is the store itself, which answers for itself.
    unaffected = {"close", "store", "is_resident", "watch_reads"}
    assert public - unaffected == {name.split()[0] for name in CALLS}


# ---------------------------------------------------------------- clocks that fail


def _broken() -> float:
    raise OSError("no clock")


TIMELESS = {"activity", "forget_namespace", "stats", "namespaces", "check", "unindexed"}
"""Calls that ask no clock."""

BAD_CLOCKS: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "text": lambda: "2026-11-30",
    "None": lambda: None,
    "bool": lambda: True,
    "datetime": lambda: datetime(2026, 11, 30, tzinfo=UTC),
    "list": lambda: [5.0],
    "huge": lambda: HUGE,
    "after the year 9999": lambda: 1e12,
    "raises": _broken,
    "takes an argument": cast(Callable[[], Any], abs),
    "is none": cast(Callable[[], Any], 5),
}


@pytest.mark.parametrize("clock", BAD_CLOCKS)
@pytest.mark.parametrize("good_for", [0, 1, 2])
def test_a_clock_that_fails_is_told_of_and_nothing_changes(clock: str, good_for: int) -> None:
    """By every call, also if it fails between two looks at it."""
    for name in sorted(CALLS.keys() - TIMELESS):
        world = World(MemoryStore())
        world.add("x")
        world.found("x")
        before = list(world.another().export_items())
        readings = iter([world.clock] * good_for)
        memory = MemoryService(
            world.store,
            world.embedder,
            SMALL,
            clock=lambda r=readings: next(r, BAD_CLOCKS[clock])(),  # type: ignore[misc]
            new_id=lambda: "new",
        )
        try:
            CALLS[name](memory)
        except InvalidInput as error:
            assert "clock" in str(error)  # noqa: PT017
            assert list(world.another().export_items()) == before
        except (ItemNotFound, Conflict):
            assert good_for or name == "forget_many"
        else:
            assert good_for or name == "flush", name


def test_events_are_folded_once_the_clock_is_mended(world: World) -> None:
    """What was logged is not lost by a fold that failed."""
    world.add("x")
    world.memory.reinforce(["i1"])
    bad = MemoryService(
        world.store, world.embedder, SMALL, clock=lambda: math.nan, new_id=lambda: "new"
    )

    with pytest.raises(InvalidInput, match="what the clock returns must lie in years 1 to 9999"):
        bad.flush()
    assert world.memory.get("i1").contributed_count == 0
    assert world.memory.flush() == 1
    assert world.memory.get("i1").contributed_count == 1


def test_the_cause_of_a_clock_that_fails_is_kept(world: World) -> None:
    memory = MemoryService(world.store, world.embedder, SMALL, clock=_broken, new_id=lambda: "new")

    with pytest.raises(InvalidInput, match=r"it raised OSError\('no clock'\)") as caught:
        memory.add("x", namespace=ALICE)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_add_is_told_as_done_though_the_clock_failed_after_it() -> None:
    """It is durable by then, so an error would say what is not true."""
    world = World(MemoryStore())
    readings = iter([world.clock] * 2)
    memory = MemoryService(
        world.store,
        world.embedder,
        SMALL,
        clock=lambda: next(readings, _broken)(),
        new_id=lambda: "new",
    )

    items = [{"content": f"thing {i}", "namespace": ALICE, "id": f"x{i}"} for i in range(60)]
    assert len(memory.add_many(items)) == 60


# ---------------------------------------------------------------- embedders that fail


class Cutting(Hashing):
    """An embedder that answers whatever it is told to, or raises it."""

    def __init__(self, answer: object) -> None:
        super().__init__(dimension=8)
        self.answer = answer

    def passages(self, text: str) -> list[tuple[int, int]]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return cast(list[tuple[int, int]], self.answer)


TEXT = "one two three"


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([], "cover a text of 13 characters"),
        ([(0, 0)], "cover"),
        ([(0, 7)], r"cover a text of 13 characters, got \[\(0, 7\)\]"),
        ([(4, 13)], "cover"),
        ([(0, 3), (8, 13)], "cover"),
        ([(0, 14)], "cover"),
        ([(-1, 13)], "cover"),
        ([(0, 13), (-5, 2)], "cover"),
        ([(0, 13), (13, 13)], "cover"),
        ([(0, 13), (5, 4)], "cover"),
        ([(0, HUGE)], "got .*an integer of 16610 bits"),
        (None, "failed to split a text into passages: TypeError"),
        (5, "failed to split"),
        ("abc", "failed to split"),
        ([0, 13], "failed to split"),
        ([(0, 5, 13)], "failed to split"),
        ([(0.0, 13.0)], "failed to split"),
        ([("0", "13")], "failed to split"),
        ([(0, None)], "failed to split"),
        (RuntimeError("torn"), r"failed to split a text into passages: RuntimeError\('torn'\)"),
        (KeyError(HUGE), "failed to split"),
    ],
)
def test_passages_that_are_none_of_the_text_are_refused_and_nothing_changes(
    store: Store, spans: object, problem: str
) -> None:
    """Words in none of them would be found by no vector."""
    world = World(store, embedder=(embedder := Cutting([(0, 13)])))
    world.add(TEXT)
    before = list(world.memory.export_items())
    embedder.answer = spans

    for call in (
        lambda: world.add(TEXT),
        lambda: world.memory.update("i1", content=TEXT),
        lambda: world.memory.restore([{**before[0], "id": "other"}]),
    ):
        with pytest.raises(EmbedderError, match=f"embedder 'hashing-8' .*{problem}") as caught:
            call()
        cause = caught.value.__cause__
        assert (cause is not None) == ("failed" in problem)
        assert not isinstance(spans, BaseException) or cause is spans
    assert list(world.memory.export_items()) == before


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 13)],
        ((0, 13),),
        [[0, 13]],
        iter([(0, 4), (4, 13)]),
        [(8, 13), (0, 3), (4, 7)],
        [(0, 9), (2, 13)],
        [(0, 13), (4, 7)],
        np.array([[0, 7], [7, 13]]),
    ],
)
def test_passages_may_overlap_and_leave_white_space_out(spans: object) -> None:
    """All that counts is that every word is in one."""
    world = World(MemoryStore(), embedder=Cutting(spans))

    assert world.add(TEXT).content == TEXT


class Raising(Hashing):
    """An embedder whose model raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(dimension=8)
        self.error = error

    def embed(self, texts: Sequence[str]) -> Floats:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA"),
        ValueError("x"),
        TypeError("x"),
        OSError("x"),
        MemoryError(),
        OverflowError(HUGE),
        ConnectionError("no network"),
    ],
)
def test_what_an_embedder_raises_is_the_cause_of_an_error_of_ours(
    store: Store, error: Exception
) -> None:
    """Whoever catches AmvError catches it, and still sees what went wrong."""
    world = World(store, embedder=Raising(error))

    for call in (lambda: world.add("x"), lambda: world.found("x")):
        with pytest.raises(EmbedderError, match="embedder 'hashing-8' failed to embed") as caught:
            call()
        assert caught.value.__cause__ is error
    assert world.memory.namespaces() == []


@pytest.mark.parametrize("error", [EmbedderError("the model is gone"), KeyboardInterrupt()])
def test_an_error_of_ours_and_an_interrupt_pass_as_they_are(error: BaseException) -> None:
    world = World(MemoryStore(), embedder=Raising(error))

    with pytest.raises(type(error)) as caught:
        world.add("x")
    assert caught.value is error


def test_a_vector_is_kept_though_the_embedder_uses_its_array_again() -> None:
    """Many models write into one buffer, call after call."""
    buffer = np.eye(1, 8, dtype=np.float32)
    world = World(MemoryStore(), embedder=Broken(buffer))
    item = world.add("x")
    assert world.found("first") == [item.id]
    buffer[:] = np.eye(1, 8, 1)
    world.found("second")

    (hit,) = world.memory.search("first", namespace=ALICE).hits
    assert hit.similarity == pytest.approx(1.0)


class Named(Hashing):
    """An embedder of any id and dimension, or of none."""

    def __init__(self, **said: object) -> None:
        super().__init__(dimension=8)
        self.said = said

    @property
    def id(self) -> str:
        return cast(str, self._tell("id", "mine"))

    @property
    def dimension(self) -> int:
        return cast(int, self._tell("dimension", 8))

    def _tell(self, name: str, fine: object) -> object:
        told = self.said.get(name, fine)
        if isinstance(told, Exception):
            raise told
        return told


@pytest.mark.parametrize(
    "said",
    [
        {"id": None},
        {"id": 5},
        {"id": ""},
        {"id": "\x00"},
        {"id": "x" * 257},
        {"id": RuntimeError("x")},
        {"dimension": None},
        {"dimension": "8"},
        {"dimension": 8.0},
        {"dimension": True},
        {"dimension": 0},
        {"dimension": -HUGE},
        {"dimension": AttributeError("x")},
    ],
)
def test_an_embedder_has_an_id_and_a_dimension(said: dict[str, object]) -> None:
    """They are written down with its vectors."""
    with pytest.raises(EmbedderError, match="dimension"):
        lookup.embedder_mark(Named(**said))
    assert lookup.embedder_mark(Named()) == "mine (8 dimensions)"
