"""What is kept in RAM: blocks of vectors, views that follow a store, and their bound."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import StoreError
from amv.memory.block import Block
from amv.memory.cells import CentroidIndex, unit
from amv.memory.hot import (
    IndexDamaged,
    View,
    Views,
    load_index,
)
from amv.memory.item import Namespace, Row
from amv.memory.ports import Floats, Ids, Members, Reader, Vectors
from amv.memory.settings import Budget
from amv.stores.memory import MemoryStore
from amv.testing.samples import plain
from tests.memory.worlds import ALICE, DIMENSION, SMALL, WordByWord, World

NO_CELLS = replace(SMALL, cells=replace(SMALL.cells, from_vectors=1000, drain_at=1000))


def numbered(*ids: int) -> Vectors:
    """Return vectors that can be told apart: (id, 1, 0)."""
    return Vectors(
        np.array(ids, dtype=np.int64),
        np.array([[i, 1.0, 0.0] for i in ids], dtype=np.float32).reshape(-1, 3),
    )


def test_a_vector_of_another_dimension_is_a_damaged_store() -> None:
    """Only a damaged row can be one: what comes in is checked."""
    with pytest.raises(StoreError, match="3 dimensions, needed 4"):
        Block(4).add(numbered(1))


FIRST = np.array([1.0, 0.0, 0.0], dtype=np.float32)


def contents(block: Block) -> dict[int, float]:
    """Return the first number of each vector, by id, in full precision."""
    products = block.exact(np.arange(len(block)), FIRST)
    return dict(zip(block.ids.tolist(), products.tolist(), strict=True))


# ---------------------------------------------------------------- blocks


@given(
    st.lists(
        st.tuples(st.booleans(), st.sets(st.integers(1, 300), min_size=1, max_size=100)),
        max_size=12,
    )
)
def test_a_block_holds_what_was_added_and_not_removed(steps: list[tuple[bool, set[int]]]) -> None:
    """The place of a removed vector is taken by the last; none may be lost or doubled by that."""
    block, model = Block(3), set[int]()
    for is_added, ids in steps:
        if is_added:
            block.add(numbered(*sorted(ids - model)))
            model |= ids
        else:
            block.remove(ids)
            model -= ids

        assert contents(block) == {i: float(i) for i in model}
        assert len(block) == len(model)
        assert set(block.ids.tolist()) == model
        assert all((i in block) == (i in model) for i in range(301))
        assert block.places(block.ids).tolist() == list(range(len(model)))
        absent = np.asarray(sorted(set(range(301)) - model), dtype=np.int64)
        assert set(block.places(absent).tolist()) == {-1}
        # A code is a 127th of the largest number in its vector, which is the first one here.
        assert block.scan(FIRST, 301).tolist() == pytest.approx(block.ids.tolist(), rel=1e-5)


def test_a_scan_reads_no_more_than_its_limit() -> None:
    """That count is what a search reports."""
    block = Block(3)
    block.add(numbered(*range(1, 101)))

    assert len(block.scan(FIRST, 7)) == 7
    assert len(block.scan(FIRST, 0)) == 0


def test_what_is_scanned_often_is_packed_until_it_changes() -> None:
    """Packed codes are read faster; what they say must be what the block holds now."""
    block = Block(3)
    block.add(numbered(1, 2, 3))
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: block.remove([1]),
        lambda: block.add(numbered(9)),
    ]
    for change in changes:
        change()
        first, second, third = (block.scan(FIRST, 10).tolist() for _ in range(3))
        assert first == second == third == pytest.approx(block.ids.tolist(), rel=1e-5)

    block.clear()
    assert block.scan(FIRST, 10).tolist() == []


def test_a_scan_stays_as_it_was_when_the_block_changes() -> None:
    """Its result is walked after the lock that guards the block was given back."""
    block = Block(3)
    block.add(numbered(1, 2, 3))
    found = block.scan(FIRST, 10)

    block.remove([1])
    block.add(numbered(9))

    assert found.tolist() == pytest.approx([1.0, 2.0, 3.0], rel=1e-5)


def gaussian(rng: np.random.Generator, n: int, dimension: int) -> Floats:
    """Return unit vectors in all directions."""
    return unit(rng.standard_normal((n, dimension)).astype(np.float32))


def spiky(rng: np.random.Generator, n: int, dimension: int) -> Floats:
    """Return unit vectors in which a few numbers are far larger than all others."""
    return unit(rng.standard_cauchy((n, dimension)).astype(np.float32))


def peaked(rng: np.random.Generator, n: int, dimension: int) -> Floats:
    """Return unit vectors that all have the same one large number, as some models make them."""
    matrix = rng.standard_normal((n, dimension)).astype(np.float32)
    matrix[:, 3] += np.float32(50.0)
    return unit(matrix)


def zeros(rng: np.random.Generator, n: int, dimension: int) -> Floats:
    """Return vectors of length zero, which an embedder may make of nothing."""
    return np.zeros((n, dimension), dtype=np.float32)


Kind = Callable[[np.random.Generator, int, int], Floats]


@pytest.mark.parametrize(
    ("rows", "queries", "off_by"),
    [
        (gaussian, gaussian, 0.005),
        (zeros, gaussian, 0.0),
        (gaussian, zeros, 0.0),
        (spiky, gaussian, 0.015),
        (gaussian, spiky, 0.015),
        (spiky, spiky, 0.015),
        (peaked, peaked, 0.015),
    ],
)
@pytest.mark.parametrize("dimension", [3, 64, 384])
def test_a_scan_is_rough_and_a_second_look_exact(
    rows: Kind, queries: Kind, off_by: float, dimension: int
) -> None:
    """Whatever was removed, and however often the block grew, in between."""
    rng = np.random.default_rng(dimension)
    if dimension == 3:
        off_by *= 2
    matrix = rows(rng, 1500, dimension + 1)[:, :dimension]
    ids = rng.permutation(10_000)[:1500]
    block, held = Block(dimension), dict[int, Floats]()
    for start in range(0, 1500, 60):
        added, vectors = ids[start : start + 60], matrix[start : start + 60]
        block.add(Vectors(added, vectors))
        held |= dict(zip(added.tolist(), vectors, strict=True))
        gone = rng.choice(list(held), 20, replace=False).tolist()
        block.remove(gone)
        for vector_id in gone:
            del held[vector_id]

    assert set(block.ids.tolist()) == set(held)
    there = np.stack([held[i] for i in block.ids.tolist()])
    some = rng.permutation(len(there))[:200]
    for query in queries(rng, 50, dimension + 1)[:, :dimension]:
        rough = block.scan(query, 10**6)
        exact = there.astype(np.float64) @ query.astype(np.float64)
        assert np.abs(rough - exact).max() <= off_by
        assert block.exact(some, query) == pytest.approx(there[some] @ query, abs=1e-6)
        assert block.exact(some, query) == pytest.approx(exact[some], abs=1e-6)


def in_clusters(rng: np.random.Generator, n: int, dimension: int) -> Floats:
    """Return unit vectors around 32 centres, always the same ones."""
    centres = np.random.default_rng(0).standard_normal((32, dimension))
    noise = rng.standard_normal((n, dimension)) * 0.7
    return unit((centres[rng.integers(0, 32, n)] + noise).astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "share"), [(gaussian, 0.999), (in_clusters, 0.999), (spiky, 0.999), (peaked, 0.995)]
)
def test_a_scan_and_a_second_look_at_its_best_lose_nearly_nothing(kind: Kind, share: float) -> None:
    """Of the ten nearest, counted: a search for ten looks again at 26."""
    rng = np.random.default_rng(20)
    matrix, queries = kind(rng, 1024, 384), kind(rng, 200, 384)
    block = Block(384)
    block.add(Vectors(np.arange(1024), matrix))
    found = 0
    for query in queries:
        looked_at = np.argsort(-block.scan(query, 1024))[:26]
        again = looked_at[np.argsort(-block.exact(looked_at, query))][:10]
        found += len(set(again.tolist()) & set(np.argsort(-(matrix @ query))[:10].tolist()))

    assert found >= share * 10 * len(queries)


def test_a_cleared_block_takes_no_memory() -> None:
    """A namespace that was reloaded must not keep its old size."""
    block = Block(3)
    block.add(numbered(*range(1, 1001)))
    assert block.size_bytes >= 1000 * 3 * 4

    block.clear()

    assert (len(block), block.size_bytes, contents(block)) == (0, 0, {})


def test_a_block_grows_by_half() -> None:
    """Grown by one each time, n adds would copy n² vectors; doubled, half might stand empty."""
    block, sizes = Block(3), list[int]()
    for i in range(1, 2001):
        block.add(numbered(i))
        sizes.append(block.size_bytes // i)

    grown = [n for n in range(1, 2000) if sizes[n] > sizes[n - 1]]
    assert len(grown) <= 10
    assert max(sizes[64:]) <= 1.5 * min(sizes)


# ---------------------------------------------------------------- views


def fresh_view(reader: Reader, world: World) -> View:
    """Return a view of Alice's namespace that was just loaded."""
    view = View(DIMENSION, world.settings.budget.hot)
    row = reader.namespace(ALICE)
    assert row is not None
    view.follow(reader, row)
    return view


def test_hot_items_with_more_passages_than_fit_are_left_to_their_cells() -> None:
    """The hot part of the budget holds however long the hot items are."""
    settings = replace(SMALL, budget=Budget(hot=256))
    world = World(MemoryStore(), settings, embedder=WordByWord(dimension=DIMENSION))
    for start in ("a", "b"):
        world.add(" ".join(f"{start}{i}" for i in range(200)))
    assert world.row().cells > 0
    with world.store.read() as reader:
        view = fresh_view(reader, world)

    assert len(view.hot) == 256
    result = world.memory.search("b199", namespace=ALICE)
    assert result.scanned.hot == 256
    assert [hit.item.id for hit in result.hits] == ["i2", "i1"]


def test_without_cells_hot_vectors_are_kept_once() -> None:
    """They all wait for a cell then, and are scanned as such; later what is hot stays at hand."""
    world = World(MemoryStore())
    follower = world.another()

    def look() -> tuple[int, int, bool]:
        """Say how many vectors are kept as hot and as waiting, and if there are cells."""
        follower.search("thing1", namespace=ALICE)
        view = follower._views.of(ALICE)
        return len(view.hot), len(view.pending), view.index is not None

    first = world.fill(30)
    assert world.row().hot > 0
    assert look() == (0, 30, False)
    second = world.fill(30)
    hot, waiting, has_cells = look()
    assert (hot, has_cells) == (world.row().hot, True)
    assert waiting == world.row().pending < 60
    world.memory.forget_many([item.id for item in first + second], namespace=ALICE)
    assert world.row().cells == 0
    world.fill(3)

    assert look() == (0, 3, False)


def test_a_view_that_is_up_to_date_reads_nothing() -> None:
    """Following costs a comparison of two numbers."""
    world = World(MemoryStore())
    world.fill(3)
    with world.store.read() as reader:
        view = fresh_view(reader, world)
        row = reader.namespace(ALICE)
        assert row is not None

        view.follow(cast(Reader, None), row)


class Rows:
    """A reader of rows that says which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def rows(self, keys: list[int]) -> dict[int, Row]:
        self.asked = list(keys)
        return {key: plain(1 + key // 20_000, f"i{key}") for key in keys if key != 10_000}


def test_a_view_reads_rows_once_and_keeps_only_so_many() -> None:
    """The cache of rows is bounded by number; what falls out is read anew."""
    view, rows = View(8, 8), Rows()
    view.ns_id = 1
    reader = cast(Reader, rows)
    view.cards(reader, [1, 2])
    view.cards(reader, [2, 3])
    assert rows.asked == [3]

    many = list(range(1, 5001))
    assert list(view.cards(reader, many)) == many

    assert view.cards(reader, [5000, 1, 10_000])[1].row.id == "i1"
    assert rows.asked == [1, 10_000]


def test_a_view_shows_no_row_of_another_namespace() -> None:
    """Whatever a damaged index leads to."""
    view = View(8, 8)
    view.ns_id = 1

    assert list(view.cards(cast(Reader, Rows()), [1, 20_000])) == [1]


def test_cells_that_are_gone_are_left_out() -> None:
    """A store may have dropped them since the index was asked."""
    world = World(MemoryStore())
    world.fill(60)
    with world.store.read() as reader:
        view = fresh_view(reader, world)
        ids = reader.cell_ids(world.row().ns_id)[:2]
        asked = np.concatenate([ids[:1], np.array([10**9]), ids[1:]])

        found = view.members(reader, asked)

    assert len(found) == 2


class Wide:
    """A reader whose cells have codes of 32 bytes."""

    def members(self, cell_ids: Ids) -> dict[int, Members]:
        ids = np.asarray([1], dtype=np.int64)
        return {i: Members(ids, np.zeros((1, 32), dtype=np.uint8)) for i in cell_ids.tolist()}


def test_a_cell_of_codes_of_another_width_is_a_damaged_store() -> None:
    """Scored all the same, it would read past its end or rank at random."""
    cell_ids, reader = np.asarray([7], dtype=np.int64), cast(Reader, Wide())

    assert len(View(64, 8).members(reader, cell_ids)) == 1
    with pytest.raises(StoreError, match=r"cell 7 have 32 bytes, needed 33: .* --rebuild"):
        View(65, 8).members(reader, cell_ids)


def test_a_bound_on_cells_keeps_those_used_last() -> None:
    world = World(MemoryStore())
    world.fill(60)
    with world.store.read() as reader:
        view = fresh_view(reader, world)
        ids = reader.cell_ids(world.row().ns_id)
        view.members(reader, ids)
        before = view.size_bytes

        view.trim_cells(0)

        assert view.size_bytes < before
        view.members(reader, ids[:3])
        (first, *_) = view.members(reader, ids[:1])
        view.trim_cells(first.codes.nbytes + first.ids.nbytes)
        assert list(view._cells) == ids[:1].tolist()


def test_an_index_that_lacks_something_is_called_damaged() -> None:
    """Going on with it would lose items from every search without a word."""
    world = World(MemoryStore())
    world.fill(60)
    ns_id = world.row().ns_id
    world.store.write(lambda tx: tx.drop_cell(int(tx.cell_ids(ns_id)[0])))

    with world.store.read() as reader, pytest.raises(IndexDamaged, match=r"1 cells; .*--rebuild"):
        fresh_view(reader, world)


# ---------------------------------------------------------------- the saved index


def probed(reader: Reader, ns_id: int, query: Floats) -> list[int]:
    """Return the cells that the index, loaded anew, finds nearest."""
    found: list[int] = (
        load_index(reader, ns_id, DIMENSION).probe(query, 5, 10_000).cell_ids.tolist()
    )
    return found


@pytest.mark.parametrize("damage", ["missing", "damaged", "other dimension", "stale"])
def test_a_saved_index_that_is_no_use_is_built_anew(damage: str) -> None:
    """It is derived data: losing it costs time, and changes no result."""
    world = World(MemoryStore())
    world.fill(90)
    ns_id = world.row().ns_id
    query = world.embedder.embed(["thing5 kind0 colour5"])[0]
    with world.store.read() as reader:
        saved = reader.cell_snapshot(ns_id)
        assert saved is not None
        expected = probed(reader, ns_id, query)

    broken = {
        "missing": None,
        "damaged": saved[:-1] + bytes([saved[-1] ^ 1]),
        "other dimension": _snapshot_of_dimension(8),
        "stale": _snapshot_of_dimension(DIMENSION),
    }[damage]
    world.store.write(lambda tx: tx.put_cell_snapshot(ns_id, broken))

    with world.store.read() as reader:
        assert probed(reader, ns_id, query) == expected
        index = load_index(reader, ns_id, DIMENSION)
        assert index.ids() == set(reader.cell_ids(ns_id).tolist())


def _snapshot_of_dimension(dimension: int) -> bytes:
    """Return the saved index of other cells, all of them gone by now."""
    index = CentroidIndex(dimension)
    index.add(np.array([10**6, 10**6 + 1]), np.eye(dimension, dtype=np.float32)[:2])
    return index.snapshot()


# ---------------------------------------------------------------- all views


class Sized(View):
    """A view of which only the size matters."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(8, 8)
        self._size_bytes = size_bytes
        self.trimmed_to: list[int] = []
        self.measured = 0

    @property
    def size_bytes(self) -> int:
        self.measured += 1
        return self._size_bytes

    def trim_cells(self, bytes_max: int) -> None:
        assert self.lock.locked()
        self.trimmed_to.append(bytes_max)


def views_of_sizes(bytes_max: int, **sizes: int) -> tuple[Views, dict[Namespace, Sized]]:
    """Return views of these namespaces, used in this order."""
    made: dict[Namespace, Sized] = {(name,): Sized(size) for name, size in sizes.items()}
    waiting = iter(made.values())
    views = Views(lambda: next(waiting), bytes_max)
    for name in made:
        views.of(name)
    return views, made


def kept(views: Views) -> list[Namespace]:
    """Return whose views are there, least recently used first."""
    return list(views._views)


def test_a_namespace_has_one_view() -> None:
    views, made = views_of_sizes(100, a=1, b=1)

    assert views.of(("a",)) is made["a",]
    views.drop(("a",))
    views.drop(("absent",))
    assert kept(views) == [("b",)]


def test_the_views_used_longest_ago_go_first() -> None:
    views, made = views_of_sizes(100, a=40, b=40, c=40)
    views.of(("a",))

    for name in made:
        views.trim(name)

    assert kept(views) == [("c",), ("a",)]


def test_views_that_fit_stay() -> None:
    views, made = views_of_sizes(100, a=50, b=50)

    for name in (*made, *made):
        views.trim(name)

    assert kept(views) == [("a",), ("b",)]
    assert [view.trimmed_to for view in made.values()] == [[], []]


def test_what_is_gone_takes_no_room() -> None:
    """Dropped or trimmed away, it must not be counted for ever."""
    views, made = views_of_sizes(100, a=60, b=40, c=60)
    for name in list(made)[:2]:
        views.trim(name)
    views.drop(("a",))

    views.trim(("c",))

    assert kept(views) == [("b",), ("c",)]


def test_the_last_view_keeps_its_vectors_and_gives_up_cells() -> None:
    """It is in use; under its lock, since a search may be reading those cells."""
    views, made = views_of_sizes(100, a=500, b=500)

    views.trim(("b",))

    assert kept(views) == [("b",)]
    assert made["b",].trimmed_to == [25]


def test_only_the_view_that_was_used_is_measured() -> None:
    """With ten thousand namespaces in use, adding up all would be most of a search."""
    views, made = views_of_sizes(100, a=1, b=1)

    views.trim(("a",))

    assert [view.measured for view in made.values()] == [1, 0]


def test_no_views_are_fine() -> None:
    Views(lambda: View(8, 8), 0).trim(("absent",))


# ---------------------------------------------------------------- what is in RAM as a whole


def test_a_namespace_is_resident_once_it_was_searched_and_until_it_has_cells() -> None:
    """Only then does a search by vector wait for nothing."""
    world = World(MemoryStore())
    world.fill(30)
    other = world.another()
    seen = [other.is_resident(ALICE)]
    other.search("thing1", namespace=ALICE)
    seen.append(other.is_resident(ALICE))
    world.fill(30)
    other.search("thing1", namespace=ALICE)

    seen.append(other.is_resident(ALICE))

    assert seen == [False, True, False]
    assert world.row().cells > 0


def test_what_a_memory_did_is_counted() -> None:
    """Hits and misses of both caches, events and sweeps, each from nothing."""
    world = World(MemoryStore())
    world.fill(60)
    other = world.another()
    blank = other.activity()
    other.search("thing1", namespace=ALICE, k=5, cold=True)
    first = other.activity()
    other.search("thing1", namespace=ALICE, k=5, cold=True)
    second = other.activity()
    dry = other.sweep(dry_run=True)
    other.sweep()
    third = other.activity()

    assert (blank.rows_read, blank.cells_read, blank.namespaces_cached) == (0, 0, 0)
    assert min(first.rows_read, first.cells_read) > 0
    assert first.namespaces_cached == 1
    assert (second.rows_read, second.cells_read) == (first.rows_read, first.cells_read)
    assert second.rows_cached == first.rows_cached + first.rows_read
    assert second.cells_cached == first.cells_cached + first.cells_read
    assert (second.folded, second.unfolded, third.folded, third.unfolded) == (0, 10, 10, 0)
    assert third.swept >= dry.visited
    assert third.moved == len(dry.moves)
    assert other.store is world.store
