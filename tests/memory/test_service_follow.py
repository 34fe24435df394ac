"""A memory follows what others do to its store: what is in RAM is what a fresh look would load."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.memory import service as services
from amv.memory.hot import View
from amv.memory.item import Claim
from amv.memory.ports import Members, Store
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from tests.memory.worlds import ALICE, BOB, DIMENSION, MONTH_S, SMALL, WordByWord, World

WIDE = replace(SMALL, cells=replace(SMALL.cells, probes_warm=64, probes_cold=64))
"""Settings under which a search looks at every cell, so that results can be compared."""

QUERIES = ("thing1", "kind3 colour2", "note 7", "zanzibar")


def seen(view: View) -> dict[str, object]:
    """Return what a view holds, as plain values."""
    return {
        "hot": sorted(view.hot.ids.tolist()),
        "pending": sorted(view.pending.ids.tolist()),
        "cells": None if view.index is None else sorted(view.index.ids()),
    }


def members_of(members: Members) -> dict[int, list[int]]:
    """Return the codes of each member of a cell."""
    return dict(zip(members.ids.tolist(), members.codes.tolist(), strict=True))


def vectors(view: View) -> dict[int, list[float]]:
    """Return the vectors a view holds, by id, to a few digits."""
    found = dict[int, list[float]]()
    for block in (view.pending, view.hot):
        places = np.arange(len(block))
        columns = [block.exact(places, unit) for unit in np.eye(DIMENSION, dtype=np.float32)]
        matrix = np.stack(columns, axis=1).round(4)
        found |= dict(zip(block.ids.tolist(), matrix.tolist(), strict=True))
    return found


def assert_follows(world: World, follower: MemoryService) -> None:
    """See that a memory that has been open all the time answers as a new one does."""
    fresh = world.another()
    for query in QUERIES:
        mine = follower.search(query, namespace=ALICE, cold=True)
        theirs = fresh.search(query, namespace=ALICE, cold=True)
        assert [hit.item for hit in mine.hits] == [hit.item for hit in theirs.hits]
        assert [hit.rank for hit in mine.hits] == pytest.approx(
            [hit.rank for hit in theirs.hits], abs=1e-6
        )
    mine_view, their_view = follower._views.of(ALICE), fresh._views.of(ALICE)
    if world.memory.namespaces():
        assert seen(mine_view) == seen(their_view)
        assert vectors(mine_view) == vectors(their_view)
    with world.store.read() as reader:
        kept_rows = reader.rows(list(mine_view._cards))
        kept = reader.members(np.array(list(mine_view._cells), dtype=np.int64))
    cards = mine_view._cards.items()
    assert {key: replace(card.row, state=card.state) for key, card in cards} == kept_rows
    assert {i: members_of(one) for i, one in mine_view._cells.items()} == {
        i: members_of(one) for i, one in kept.items()
    }


def forget_some(world: World, ids: list[str], chance: Random) -> None:
    """Forget a handful of items."""
    for item_id in chance.sample(ids, min(len(ids), 6)):
        world.memory.forget(item_id)


def use_some(world: World, ids: list[str], chance: Random) -> None:
    """Make a handful of items worth hot."""
    world.use(*chance.sample(ids, min(len(ids), 9)), times=2)
    world.memory.sweep()


def let_time_pass(world: World, ids: list[str], chance: Random) -> None:
    """Have values decay, and items move down."""
    world.clock.advance(MONTH_S)
    world.memory.sweep()


ACTS: tuple[Callable[[World, list[str], Random], object], ...] = (
    lambda world, ids, chance: world.fill(chance.choice([1, 5, 45])),
    lambda world, ids, chance: world.add(
        f"note {chance.randrange(9)}", claim=Claim("a", "b", chance.randrange(3))
    ),
    lambda world, ids, chance: world.memory.update(
        chance.choice(ids), content=f"note {chance.randrange(9)} zanzibar"
    ),
    lambda world, ids, chance: world.memory.pin(chance.choice(ids), world.row().pinned < 3),
    lambda world, ids, chance: world.memory.refute(chance.choice(ids)),
    lambda world, ids, chance: world.memory.rebuild_index(ALICE),
    lambda world, ids, chance: world.memory.forget_namespace(ALICE),
    forget_some,
    use_some,
    let_time_pass,
)
"""What can be done to Alice's memory."""


def act(world: World, kind: int, chance: Random) -> None:
    """Do one of those things, or add items if there are none."""
    ids = [item.id for item in world.memory.list(namespace=ALICE).items]
    ACTS[kind if ids else 0](world, ids, chance)


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(ACTS) - 1), st.integers(0, 2**16), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_a_memory_follows_whatever_another_one_does(steps: list[tuple[int, int, bool]]) -> None:
    """After each step or after several; hot, waiting, cells and rows, and so every result."""
    world = World(MemoryStore(), WIDE)
    world.fill(20)
    follower = world.another()
    follower.search("thing1", namespace=ALICE)
    for kind, number, looks in steps:
        act(world, kind, Random(number))
        if looks:
            assert_follows(world, follower)
    assert_follows(world, follower)
    assert world.store.check() == []


@pytest.mark.parametrize("kind", range(len(ACTS)))
def test_each_kind_of_change_is_followed(store: Store, kind: int) -> None:
    """On a file as well, where the change log is bytes."""
    world = World(store, WIDE)
    world.fill(60)
    follower = world.another()
    assert_follows(world, follower)

    act(world, kind, Random(kind))

    assert_follows(world, follower)
    act(world, 0, Random(3))
    assert_follows(world, follower)
    assert store.check() == []


def test_two_memories_take_turns(store: Store) -> None:
    """Both write, both follow; neither overwrites what the other did."""
    world = World(store, WIDE)
    memories = (world.memory, world.another())
    for turn in range(40):
        memory = memories[turn % 2]
        memory.add(f"thing{turn} note {turn % 10}", namespace=ALICE)
        if turn % 7 == 0:
            memories[1 - turn % 2].forget(f"i{turn + 1}")

    for memory in memories:
        assert_follows(world, memory)
    assert world.row().live == 34
    assert store.check() == []


def test_a_namespace_of_the_same_name_is_another_one(store: Store) -> None:
    """Nothing of the old one is left in a follower, whichever version the new one has reached."""
    world = World(store, WIDE)
    follower = world.another()
    for size in (60, 60, 5):
        world.fill(size)
        assert_follows(world, follower)
        world.memory.forget_namespace(ALICE)
        assert follower.search("thing1", namespace=ALICE).hits == ()


def test_who_was_away_for_long_loads_anew(store: Store) -> None:
    """The change log is trimmed; what it no longer tells is read as a whole."""
    world = World(store, WIDE)
    world.fill(50)
    follower = world.another()
    follower.search("thing1", namespace=ALICE)
    behind = follower._views.of(ALICE).version
    for turn in range(1200):
        world.memory.pin("i1", turn % 2 == 0)
    with store.read() as reader:
        assert reader.changes(world.row().ns_id, behind) is None
    world.memory.forget("i2")

    assert_follows(world, follower)


def test_a_follower_that_fell_behind_an_update_shows_the_new_words(store: Store) -> None:
    """Rows are cached; an old one would show content that was changed or forgotten."""
    world = World(store, WIDE)
    world.add("likes jazz", metadata={"x": 1})
    follower = world.another()
    assert follower.search("jazz", namespace=ALICE).hits[0].item.content == "likes jazz"

    world.memory.update("i1", content="likes opera", metadata={"x": 2})

    (hit,) = follower.search("jazz", namespace=ALICE).hits
    assert (hit.item.content, hit.lexical) == ("likes opera", 0.0)
    assert follower.search("jazz", namespace=ALICE, filter={"x": 1}).hits == ()


def test_counts_that_were_folded_elsewhere_are_shown(store: Store) -> None:
    world = World(store, WIDE)
    world.add("x")
    follower = world.another()
    follower.search("x", namespace=ALICE)
    world.use("i1")

    (hit,) = follower.search("x", namespace=ALICE).hits

    assert hit.item.contributed_count == 1


def test_long_items_are_followed_passage_by_passage(store: Store) -> None:
    world = World(store, WIDE, embedder=WordByWord(dimension=DIMENSION))
    follower = world.another()
    for i in range(20):
        world.add(f"thing{i} kind{i % 3} note {i}")
    assert_follows(world, follower)
    world.memory.update("i1", content="short")
    world.memory.update("i2", content="zanzibar is a very long item by now and in many cells")
    world.memory.forget("i3")

    assert_follows(world, follower)
    assert store.check() == []


def test_memory_in_ram_is_bounded_over_all_namespaces(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views used longest ago go; asked again, they are loaded again and find the same."""
    world = World(store, replace(WIDE, cache_bytes=200_000))
    for name in "abcdefgh":
        world.memory.add_many(
            [{"content": f"thing{i} of {name}", "namespace": (name,)} for i in range(60)]
        )
    for _ in range(2):
        for name in "abcdefgh":
            found = world.memory.search("thing7", namespace=(name,), k=1)
            assert found.hits[0].item.content == f"thing7 of {name}"
            views = world.memory._views._views.values()
            assert len(views) < 8
            assert sum(view.size_bytes for view in views) <= 200_000 or len(views) == 1


def test_one_large_namespace_keeps_its_cells_within_the_bound(store: Store) -> None:
    """Its vectors stay; of the cells, those used last."""
    world = World(store, replace(WIDE, cache_bytes=1000))
    world.fill(90)

    assert world.found("thing7 kind2 colour0", k=1, cold=True) == ["i8"]
    assert world.memory._views.of(ALICE)._cells_bytes <= 250
    assert world.found("thing7 kind2 colour0", k=1, cold=True) == ["i8"]


def test_the_caches_of_one_namespace_say_nothing_to_another(store: Store) -> None:
    """Equal ids, equal words, searched in turn."""
    world = World(store, WIDE)
    for namespace in (ALICE, BOB):
        world.memory.add(f"{namespace[0]} likes jazz", namespace=namespace, id="a")
    for _ in range(2):
        for namespace in (ALICE, BOB):
            (hit,) = world.memory.search("jazz", namespace=namespace).hits
            assert hit.item.content == f"{namespace[0]} likes jazz"


def test_adds_are_chunked_by_a_known_number() -> None:
    """The size of a transaction is a promise to whoever waits for the next one."""
    assert services.ADD_CHUNK == 4096
