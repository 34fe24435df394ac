"""Finding items without a query: by id, in pages, by claim, through their history."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import DimensionMismatch, InvalidInput, ItemNotFound, StoreError
from amv.memory.item import Claim, Status, utc
from amv.memory.lookup import (
    EMBEDDER_META,
    check_embedder,
    check_opening,
    embedder_mark,
)
from amv.memory.results import decode_cursor, encode_cursor
from amv.memory.service import MemoryService
from amv.memory.tiers import Tier
from amv.stores.memory import MemoryStore
from amv.stores.sqlite.store import SqliteStore
from tests.memory.worlds import ALICE, BOB, MONTH_S, World

# ---------------------------------------------------------------- by id


def test_an_absent_item_is_an_error_that_says_where_it_was_looked_for(world: World) -> None:
    world.add("x")

    with pytest.raises(ItemNotFound, match=r"no item has the id 'absent'$"):
        world.memory.get("absent")
    with pytest.raises(ItemNotFound, match=r"'i1' in namespace \('bob',\); an item never"):
        world.memory.get("i1", namespace=BOB)
    with pytest.raises(ItemNotFound):
        world.memory.get("i1 ")


def test_an_id_is_enough_where_it_is_one_item(world: World) -> None:
    """The namespace may be said all the same, as a list too."""
    item = world.add("x")

    assert world.memory.get(item.id) == item
    assert world.memory.get(item.id, namespace=["alice"]) == item


def test_an_item_of_a_file_that_lost_its_namespace_is_told_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        World(store).add("x")
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM namespace")

    with (
        closing(SqliteStore.open(path, synchronous="NORMAL")) as store,
        pytest.raises(StoreError, match="in no namespace: the store is damaged"),
    ):
        World(store).memory.get("i1")


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.get("i1"),
        lambda m: m.history("i1"),
        lambda m: m.update("i1", content="y"),
        lambda m: m.pin("i1"),
        lambda m: m.confirm("i1"),
        lambda m: m.refute("i1"),
        lambda m: m.refute("i1", "Rome"),
    ],
)
def test_an_expired_item_is_absent_for_every_call(
    world: World, call: Callable[[MemoryService], object]
) -> None:
    """Before any sweep ran; only `forget` reaches it still, so that its bytes can go at once."""
    world.claim("Oslo", expires_at=world.clock() + 1.0)
    world.clock.advance(1.0)

    with pytest.raises(ItemNotFound):
        call(world.memory)
    assert world.memory.forget("i1").count == 1


def test_an_expired_item_is_on_no_reading_path(world: World) -> None:
    """Neither list, search of now or then, claim, history of others, reinforcing, nor export."""
    old = world.claim("Oslo", expires_at=world.clock() + 10.0)
    world.clock.advance(1.0)
    new = world.claim("Rome")
    world.add("lives happily", expires_at=world.clock() + 5.0)
    world.clock.advance(9.0)

    assert [item.id for item in world.memory.list(namespace=ALICE, status=None).items] == [new.id]
    assert world.found("lives", cold=True) == [new.id]
    assert world.found("lives", as_of=world.clock() - 9.5) == []
    assert world.city() == "Rome"
    assert {step.item_id for step in world.memory.history(new.id)} == {new.id}
    assert world.memory.reinforce([old.id, new.id, "i3"]) == 1
    assert [data["id"] for data in world.memory.export_items()] == [new.id]


# ---------------------------------------------------------------- pages


def test_items_are_listed_in_the_order_they_were_added(world: World) -> None:
    """Whatever changed since; superseded ones only where asked for."""
    items = [world.add("a"), world.claim("Oslo"), world.claim("Rome"), world.add("b")]
    world.memory.update(items[0].id, content="a again")
    world.memory.pin(items[3].id)

    def listed(status: Status | None) -> list[str]:
        return [i.id for i in world.memory.list(namespace=ALICE, status=status).items]

    assert listed(Status.LIVE) == ["i1", "i3", "i4"]
    assert listed(None) == ["i1", "i2", "i3", "i4"]
    assert listed(Status.SUPERSEDED) == ["i2"]
    assert listed(Status.REFUTED) == []


@given(
    kinds=st.lists(st.sampled_from(["plain", "expired", "refuted", "other source"]), max_size=20),
    limit=st.integers(1, 7),
)
def test_pages_of_any_size_give_each_item_once(kinds: list[str], limit: int) -> None:
    """The last page has no cursor, so that nobody asks once more for nothing."""
    world = World(MemoryStore())
    expected = []
    for kind in kinds:
        item = world.add(
            "x",
            source="other" if kind == "other source" else "mine",
            expires_at=world.clock() + 1.0 if kind == "expired" else None,
        )
        if kind == "refuted":
            world.memory.refute(item.id)
        if kind == "plain":
            expected.append(item.id)
    world.clock.advance(1.0)

    found, cursor, pages = [], None, 0
    while True:
        page = world.memory.list(namespace=ALICE, source="mine", cursor=cursor, limit=limit)
        found += [item.id for item in page.items]
        cursor, pages = page.cursor, pages + 1
        if cursor is None:
            break
        assert len(page.items) == limit

    assert found == expected
    assert pages == max(1, -(-len(expected) // limit))


def test_a_page_goes_on_where_the_last_one_ended_though_items_went_meanwhile(
    world: World,
) -> None:
    """A cursor is a place, not a number of items to skip."""
    items = [world.add(f"n{i}") for i in range(6)]
    page = world.memory.list(namespace=ALICE, limit=3)
    for item in items[1:4]:
        world.memory.forget(item.id)
    new = world.add("new")

    rest = world.memory.list(namespace=ALICE, cursor=page.cursor)

    assert [item.id for item in rest.items] == [items[4].id, items[5].id, new.id]
    assert rest.cursor is None


def test_a_list_of_a_namespace_that_is_not_there_is_empty(world: World) -> None:
    page = world.memory.list(namespace=("nobody",))

    assert (page.items, page.cursor) == ((), None)


@given(st.integers(0, 2**63 - 1))
def test_a_cursor_gives_its_place_back(key: int) -> None:
    assert decode_cursor(encode_cursor(key)) == key


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "k5",
        "=",
        "é",
        encode_cursor(-1),
        encode_cursor(2**63),
        encode_cursor(10**400),
        encode_cursor(5) + "\n",
        encode_cursor(5).rstrip("="),
        "azA1",
        "a_-5",
        7,
        b"azU=",
    ],
)
def test_anything_else_is_no_cursor(cursor: str) -> None:
    """Also a number too large for a store, which would fail there with an error of its own."""
    with pytest.raises(InvalidInput, match="a cursor comes from an earlier page, got"):
        decode_cursor(cursor)


def test_no_cursor_begins_at_the_start() -> None:
    assert decode_cursor(None) == 0


# ---------------------------------------------------------------- claims


def test_of_several_claims_the_most_trusted_and_then_the_newest_counts(world: World) -> None:
    """Contradicting claims live side by side; an answer has to be one of them."""
    assert world.city() is None
    for city, trust in (("Oslo", 0.9), ("Rome", 0.5), ("Oslo", 0.9), ("Bonn", 0.1)):
        world.claim(city, source_trust=trust)
        world.clock.advance(1.0)

    found = world.memory.find_claim(ALICE, "alice", "city")

    assert found is not None
    assert (found.id, found.contradicted) == ("i3", True)
    assert world.memory.find_claim(ALICE, "alice", "country") is None
    assert world.memory.find_claim(BOB, "alice", "city") is None


# ---------------------------------------------------------------- history


def test_a_history_tells_what_happened_in_its_order(world: World) -> None:
    """Each step with what the item said before it; the first with what it said first."""
    start_s = world.clock()
    item = world.claim("Oslo", source_trust=0.5)
    world.clock.advance(1.0)
    world.memory.update(item.id, content="lives in Bergen")
    world.clock.advance(1.0)
    world.memory.confirm(item.id)
    world.clock.advance(1.0)
    world.memory.refute(item.id, "Rome")

    steps = world.memory.history(item.id)

    assert [(step.item_id, step.event, step.content) for step in steps] == [
        ("i1", "added", "lives in Oslo"),
        ("i1", "updated", "lives in Oslo"),
        ("i1", "confirmed", "lives in Bergen"),
        ("i1", "refuted", "lives in Bergen"),
        ("i2", "added", "alice city: Rome"),
    ]
    assert [step.at for step in steps] == [utc(start_s + s) for s in (0, 1, 2, 3, 3)]
    assert {step.claim for step in steps[:4]} == {Claim("alice", "city", "Oslo")}


def test_a_history_stays_within_its_namespace(world: World) -> None:
    """The same ids in another one are other items."""
    for namespace in (ALICE, BOB):
        for place, city in enumerate(["Oslo", "Rome"]):
            world.memory.add(
                f"{namespace[0]} lives in {city}",
                namespace=namespace,
                id=f"id{place}",
                claim=Claim("x", "city", city),
            )

    steps = world.memory.history("id1", namespace=BOB)

    assert {step.content for step in steps} == {"bob lives in Oslo", "bob lives in Rome"}


def test_a_long_chain_is_followed_to_both_ends(world: World) -> None:
    items = []
    for i in range(50):
        world.clock.advance(1.0)
        items.append(world.claim(str(i)))

    for item in (items[0], items[25], items[-1]):
        steps = world.memory.history(item.id)
        assert [s.content for s in steps if s.event == "added"] == [
            f"lives in {i}" for i in range(50)
        ]


# ---------------------------------------------------------------- totals


def test_stats_tell_of_one_namespace_or_all(world: World) -> None:
    world.fill(50)
    world.add("x", namespace=BOB, pinned=True)
    mine, all_ = world.memory.stats(ALICE), world.memory.stats()

    assert (mine.namespaces, mine.live, mine.pinned) == (1, 50, 0)
    assert (all_.namespaces, all_.live, all_.pinned) == (2, 51, 1)
    assert mine.tiers == {Tier.HOT: 2, Tier.WARM: 48, Tier.COLD: 0}
    assert all_.tiers == {Tier.HOT: 3, Tier.WARM: 48, Tier.COLD: 0}
    assert mine.vectors == 50
    assert mine.cells == world.row().cells > 0
    assert mine.pending == world.row().pending
    assert (mine.embedder, mine.dimension) == ("hashing-64", 64)
    assert mine.store_bytes > 0
    nobody = world.memory.stats(("nobody",))
    assert (nobody.namespaces, nobody.live, sum(nobody.tiers.values())) == (0, 0, 0)
    world.clock.advance(12 * MONTH_S)
    world.memory.sweep()
    assert world.memory.stats(ALICE).tiers == {Tier.HOT: 2, Tier.WARM: 0, Tier.COLD: 48}


def test_namespaces_are_listed_in_order(world: World) -> None:
    for name in (("b",), ("a", "b"), ("a",)):
        world.add("x", namespace=name)

    assert world.memory.namespaces() == [("a",), ("a", "b"), ("b",)]


# ---------------------------------------------------------------- whose vectors


def test_vectors_of_another_embedder_are_refused_by_name(world: World) -> None:
    """Also of equal dimension: they would compare, and mean nothing."""
    world.add("x")
    mark = embedder_mark(world.embedder)
    world.store.write(lambda tx: tx.set_meta(EMBEDDER_META, mark))
    world.add("y")
    world.store.write(lambda tx: tx.set_meta(EMBEDDER_META, "minilm (64 dimensions)"))

    message = r"opened with embedder hashing-64 .*to minilm \(64 dim.*amv reembed.*open it again"
    for call in (
        lambda: world.add("z"),
        lambda: world.another().search("x", namespace=ALICE),
        lambda: world.memory.update("i1", content="z"),
        lambda: world.memory.forget("i1"),
    ):
        with pytest.raises(DimensionMismatch, match=message):
            call()
    assert world.memory.get("i1").content == "x"
    with world.store.read() as reader:
        with pytest.raises(DimensionMismatch, match="open it again"):
            check_embedder(reader, world.embedder)
        with pytest.raises(DimensionMismatch, match="without naming an embedder"):
            check_opening(reader, world.embedder)


@pytest.mark.parametrize("bad", ["\ud800", "nul\x00", 10**30, [], object(), " "])
def test_what_no_store_could_hold_is_not_looked_for(world: World, bad: Any) -> None:
    """A clear error, the same over every store."""
    for call in (
        lambda: world.memory.find_claim(ALICE, bad, "city"),
        lambda: world.memory.find_claim(ALICE, "alice", bad),
        lambda: world.memory.list(namespace=ALICE, source=bad),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_a_claim_is_found_without_reading_those_it_superseded(world: World) -> None:
    """An attribute that changes every day must not get slower to read or change."""
    for n in range(30):
        world.memory.add(f"city {n}", namespace=ALICE, claim=Claim("alice", "city", n))

    with world.store.read() as reader:
        found = reader.claim_rows(world.row().ns_id, "alice", "city")

    assert [row.content for row in found] == ["city 29"]
