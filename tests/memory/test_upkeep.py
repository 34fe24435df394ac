"""Upkeep: value events, indexes made anew, and vectors put into cells while others write."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amv.embedders.hashing import Hashing
from amv.errors import StoreError, StoreUnavailable
from amv.memory import indexing, upkeep
from amv.memory.cells import CentroidIndex, quantise, rotate, unit
from amv.memory.edit import Edit
from amv.memory.hot import IndexDamaged, View
from amv.memory.item import Status
from amv.memory.ports import (
    PASSAGES_MAX,
    PENDING,
    Event,
    Floats,
    Members,
    NamespaceRow,
    Place,
    Store,
    Writer,
)
from amv.memory.settings import CellSettings
from amv.memory.tiers import Tier
from amv.memory.value import PRESETS, EventKind, apply_event, value_at, value_key
from amv.stores.memory import MemoryStore
from amv.stores.memory.writer import MemoryWriter
from amv.stores.sqlite import SqliteStore
from tests.memory.worlds import (
    ALICE,
    BOB,
    DAY_S,
    DIMENSION,
    MONTH_S,
    SMALL,
    YEAR_S,
    Interrupted,
    World,
)

MODEL = SMALL.value_model
EAGER = SMALL
LAZY = replace(SMALL, cells=replace(SMALL.cells, from_vectors=10**6, drain_at=10**6))
"""Settings under which nothing is ever put into cells."""

# ---------------------------------------------------------------- value events


@given(
    st.lists(
        st.tuples(st.sampled_from(EventKind), st.floats(0.0, MONTH_S)), min_size=1, max_size=12
    )
)
def test_events_count_in_their_order_at_their_time(events: list[tuple[EventKind, float]]) -> None:
    """Value is capped and floored along the way, so neither order nor moment may be lost."""
    world = World(MemoryStore())
    item = world.add("x")
    key = value_key(MODEL.initial, world.clock(), MODEL)
    for kind, later_s in events:
        world.clock.advance(later_s)
        key = apply_event(key, world.clock(), kind, MODEL)
        world.memory.reinforce(
            [item.id],
            contributed=kind is EventKind.CONTRIBUTED,
            negative=kind is EventKind.NEGATIVE,
        )

    assert world.memory.flush() == len(events)

    kept = world.memory.get(item.id)
    assert kept.value == pytest.approx(value_at(key, world.clock(), MODEL), rel=1e-9)
    kinds = [kind for kind, _ in events]
    assert kept.exposed_count == kinds.count(EventKind.EXPOSED)
    assert kept.contributed_count == kinds.count(EventKind.CONTRIBUTED)
    assert world.memory.flush() == 0


def test_a_fold_reads_states_and_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a namespace, whatever happened there; contents are what takes long to read."""
    world = World(MemoryStore())
    names = (ALICE, BOB)
    items = {name: [world.add(f"x{i}", namespace=name) for i in range(5)] for name in names}
    for _ in range(3):
        for name in names:
            world.memory.reinforce([item.id for item in items[name]], namespace=name)
    calls: list[tuple[str, int]] = []
    for method in ("rows", "states", "put_states", "put_namespace", "log_change"):
        whole = getattr(MemoryWriter, method)

        def noted(
            writer: MemoryWriter, *given: Any, method: str = method, whole: Any = whole
        ) -> Any:
            calls.append((method, len(given[-1]) if "states" in method else 1))
            return whole(writer, *given)

        monkeypatch.setattr(MemoryWriter, method, noted)

    assert world.memory.flush() == 30

    of_one = [("states", 5), ("put_states", 5), ("put_namespace", 1), ("log_change", 1)]
    assert calls == of_one * 2


def test_a_row_in_ram_outlives_a_fold(world: World) -> None:
    """What it says is shown as it is by then, and not one row is read again."""
    world.fill(30)
    query = np.ones(DIMENSION, dtype=np.float32)
    ways: list[dict[str, Any]] = [{"vector": query}, {"query": "thing1"}]
    for way in ways:
        world.memory.search(namespace=ALICE, k=5, **way)
    world.memory.flush()
    read = world.memory.activity().rows_read

    hits = [hit for way in ways for hit in world.memory.search(namespace=ALICE, k=5, **way).hits]

    assert world.memory.activity().rows_read == read
    for hit in hits:
        assert hit.item == world.memory.get(hit.item.id)
        assert hit.item.exposed_count > 0


def test_exposure_alone_never_makes_an_item_hot(world: World) -> None:
    """However often it is returned; being used is what counts."""
    items = world.fill(4)
    for _ in range(50):
        world.found("thing1", k=4)
        world.clock.advance(DAY_S)
        world.memory.maintain()

    assert [world.tier(item.id) for item in items[:2]] == [Tier.WARM, Tier.WARM]
    assert world.memory.get(items[0].id).exposed_count == 50
    world.use(items[0].id)
    world.memory.sweep()
    assert world.tier(items[0].id) is Tier.HOT


def test_a_hot_item_that_is_only_ever_returned_does_not_stay_hot(world: World) -> None:
    """Exposure lifts a value just short of what hot needs."""
    (item,) = world.fill(1)
    world.fill(2)
    world.use(item.id, times=2)
    world.memory.sweep()
    assert world.tier(item.id) is Tier.HOT
    for _ in range(60):
        world.found("thing0", k=1)
        world.clock.advance(DAY_S)
        world.memory.maintain()

    assert world.tier(item.id) is Tier.WARM


def test_what_misled_is_worth_less(world: World) -> None:
    """One bad turn undoes one good one; the next sweep comes in time for what that means."""
    items = world.fill(5)
    world.use(items[0].id, times=2)
    world.memory.sweep()
    assert world.tier(items[0].id) is Tier.HOT
    due_s = world.row().next_due_s
    assert due_s is not None

    world.memory.reinforce([items[0].id], negative=True)
    world.memory.flush()

    assert world.memory.get(items[0].id).value == pytest.approx(0.7, abs=1e-6)
    sooner_s = world.row().next_due_s
    assert sooner_s is not None
    assert sooner_s < due_s
    world.clock.advance(sooner_s - world.clock() + 1e-6)
    assert [move.item_id for move in world.memory.sweep().moves] == [items[0].id]


def test_an_item_that_crossed_is_swept_at_once(world: World) -> None:
    """Folding an event that lifts it over a threshold makes its namespace due."""
    items = world.fill(5)
    world.memory.sweep()
    assert world.memory.sweep().namespaces == 0

    world.use(items[0].id, times=2)

    assert [move.to for move in world.memory.sweep().moves] == [Tier.HOT]


def test_an_event_for_something_that_is_gone_is_dropped(world: World) -> None:
    """Forgotten, refuted, superseded, another namespace's: the rest of the log counts."""
    kept, gone, refuted = world.fill(3)
    other = world.add("x", namespace=BOB)
    world.memory.reinforce([kept.id, gone.id, refuted.id])
    row = world.row()
    stranger = Event(row.ns_id, world.key(other.id), EventKind.CONTRIBUTED, world.clock())
    nowhere = Event(10**6, 10**6, EventKind.CONTRIBUTED, world.clock())
    world.store.log([stranger, nowhere])
    world.memory.forget(gone.id)
    world.memory.refute(refuted.id)
    before = world.memory.get(refuted.id)

    assert world.memory.flush() == 5

    assert world.memory.get(kept.id).contributed_count == 1
    assert world.memory.get(other.id).contributed_count == 0
    assert world.memory.get(refuted.id) == before
    assert world.store.check() == []


def test_what_is_not_valid_yet_is_counted_and_gains_no_value(world: World) -> None:
    """Its value begins with it."""
    item = world.add("x", valid_from=world.clock() + 10.0)
    world.use(item.id, times=3)
    world.clock.advance(10.0)
    world.memory.sweep()
    kept = world.memory.get(item.id)

    assert kept.contributed_count == 3
    assert kept.value == pytest.approx(MODEL.initial)


def test_ids_of_absent_items_are_passed_over(world: World) -> None:
    """A model may name what it likes; what is there is counted."""
    item = world.add("x")

    assert world.memory.reinforce(["absent", item.id, item.id]) == 2
    assert world.memory.reinforce(["absent"]) == 0
    assert world.memory.reinforce([]) == 0
    assert world.memory.reinforce([item.id], namespace=BOB) == 0
    assert world.memory.flush() == 2


def test_an_id_of_several_namespaces_reinforces_none_by_guess(world: World) -> None:
    """It would be a write into another owner's memory."""
    for namespace in (ALICE, BOB):
        world.add("x", id="a", namespace=namespace)

    with pytest.raises(ValueError, match="2 namespaces have an item with the id 'a'"):
        world.memory.reinforce(["a"])
    assert world.memory.reinforce(["a"], namespace=BOB) == 1
    world.memory.flush()
    assert world.memory.get("a", namespace=BOB).contributed_count == 1
    assert world.memory.get("a", namespace=ALICE).contributed_count == 0


def test_the_paper_preset_lets_exposure_make_items_hot() -> None:
    """The control of the above: there the cap on exposure is what keeps it from happening."""
    world = World(MemoryStore(), replace(SMALL, value_model=PRESETS["paper"]))
    items = world.fill(4)
    for _ in range(5):
        world.found("thing1", k=4)
    world.memory.maintain()

    assert {world.tier(item.id) for item in items} == {Tier.HOT}


# ---------------------------------------------------------------- indexes made anew


def found_everywhere(world: World) -> list[list[str]]:
    """Return what a few searches find."""
    queries = ("thing1", "kind3 colour2", "thing39 kind4", "nothing of that")
    return [world.found(query, cold=True, k=5) for query in queries]


def test_a_rebuilt_index_finds_the_same(world: World) -> None:
    """It is derived data; totals come out as they were."""
    world.fill(90)
    world.claim("Oslo")
    world.claim("Rome")
    world.memory.forget("i5")
    found = [set(ids[:1]) for ids in found_everywhere(world)]
    row = world.row()

    world.memory.rebuild_index(ALICE)

    again = world.row()
    assert [set(ids[:1]) for ids in found_everywhere(world)] == found
    for total in ("live", "length", "hot", "pinned", "vectors"):
        assert getattr(again, total) == getattr(row, total)
    assert again.cells > 0
    assert world.store.check() == []


def test_a_lost_index_is_made_anew_by_the_search_that_misses_it(world: World) -> None:
    """Whoever opens a damaged file asks, and gets an answer."""
    world.fill(60)
    best = world.found("thing7 kind2 colour0", k=1)
    ns_id = world.row().ns_id
    world.store.write(lambda tx: tx.drop_cell(int(tx.cell_ids(ns_id)[0])))
    assert world.store.check() != []

    other = world.another()

    assert [
        h.item.id for h in other.search("thing7 kind2 colour0", namespace=ALICE).hits[:1]
    ] == best
    assert world.store.check() == []


def test_a_lost_index_is_made_anew_by_the_add_that_misses_it(world: World) -> None:
    """The add is durable by then; it must not fail for the sake of derived data."""
    world.fill(60)
    ns_id = world.row().ns_id
    world.store.write(lambda tx: tx.drop_cell(int(tx.cell_ids(ns_id)[0])))

    other = world.another()
    items = other.add_many([{"content": f"new{i}", "namespace": ALICE} for i in range(20)])

    assert [item.content for item in items] == [f"new{i}" for i in range(20)]
    assert world.store.check() == []
    assert set(world.found("new7", k=1)) == {items[7].id}


def test_a_member_without_a_vector_has_the_index_made_anew(world: World) -> None:
    """By whichever add divides its cell; what is there is all found, and the stranger is gone."""
    items = world.fill(60)
    ns_id, stranger = world.row().ns_id, 999 * PASSAGES_MAX

    def damage(tx: Writer) -> None:
        code = quantise(np.ones((1, DIMENSION), np.float32))
        for cell_id in tx.cell_ids(ns_id).tolist():
            tx.extend_cells({cell_id: Members(np.asarray([stranger]), code)})

    world.store.write(damage)
    assert world.store.check() != []

    items += world.another().add_many(
        [{"content": f"new{i}", "namespace": ALICE} for i in range(20)]
    )

    assert world.store.check() == []
    wide = world.another(replace(SMALL, cells=replace(SMALL.cells, probes_cold=200)))
    hits = wide.search("x", namespace=ALICE, k=200, cold=True).hits
    assert {hit.item.id for hit in hits} == {item.id for item in items}
    assert_each_is_in_its_cells(world)


def test_a_vector_that_is_lost_costs_no_other_its_place(tmp_path: Path) -> None:
    """A page of vectors may be damaged; the index is made anew without them."""
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        world = World(store)
        items = world.fill(60)
        lost = {world.key(item.id) * PASSAGES_MAX: item.id for item in items[:5]}
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"DELETE FROM vector_data WHERE id IN {tuple(lost)}")

    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        world = World(store, replace(SMALL, cells=replace(SMALL.cells, probes_cold=200)))
        new = [{"content": f"new{i}", "namespace": ALICE, "id": f"n{i}"} for i in range(60)]
        items += world.memory.add_many(new)

        with store.read() as reader:
            waiting = reader.pending_ids(world.row().ns_id).tolist()
        assert set(lost) <= set(waiting)
        hits = world.memory.search("x", namespace=ALICE, k=200, cold=True).hits
        assert {hit.item.id for hit in hits} >= {item.id for item in items} - set(lost.values())
        assert world.memory.get("i1").content == items[0].content


def test_dividing_a_cell_with_a_member_that_has_no_vector_says_so(store: Store) -> None:
    world = World(store)
    world.fill(60)

    def split(tx: Writer) -> None:
        edit = Edit.of(tx, ALICE, SMALL, world.clock())
        code = quantise(np.ones((1, DIMENSION), np.float32))
        cell_id = int(tx.cell_ids(edit.row.ns_id)[0])
        indexing._split(edit, {cell_id: Members(np.asarray([999 * PASSAGES_MAX]), code)})

    with pytest.raises(IndexDamaged, match=r"1 members of a cell have no vector; .*--rebuild"):
        store.write(split)

    assert store.check() == []


def test_an_item_is_forgotten_though_a_cell_of_it_is_lost(world: World) -> None:
    """Derived data that is damaged must not keep anyone from being forgotten."""
    world.fill(60)
    with world.store.read() as reader:
        ids = reader.vector_ids([world.key("i7")])
        (place,) = reader.placements(ids).values()
    world.store.write(lambda tx: tx.drop_cell(place.cell_id))

    world.memory.forget("i7")

    with world.store.read() as reader:
        assert reader.placements(ids) == {}
        others = reader.members(np.array(place[1:]))
        assert sorted(others) == sorted(place[1:])
        assert all(ids[0] not in members.ids for members in others.values())
    world.memory.rebuild_index(ALICE)
    assert world.store.check() == []


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "another", "old"])
def test_a_saved_centroid_index_that_is_no_good_costs_time_only(store: Store, damage: str) -> None:
    """It is made anew from the centroids, and what it says is never taken on trust."""
    world = World(store, replace(SMALL, cells=replace(SMALL.cells, probes_cold=64)))
    world.fill(60)
    ns_id = world.row().ns_id
    with store.read() as reader:
        saved = reader.cell_snapshot(ns_id)
    assert saved is not None
    if damage == "old":
        world.fill(40)
    others = CentroidIndex(DIMENSION // 2)
    others.add(np.arange(1, 4), np.eye(3, DIMENSION // 2, dtype=np.float32))
    bad = {
        "missing": None,
        "cut": saved[:-9],
        "flipped": saved[:-1] + bytes([saved[-1] ^ 1]),
        "another": others.snapshot(),
        "old": saved,
    }[damage]
    expected = found_everywhere(world)
    store.write(lambda tx: tx.put_cell_snapshot(ns_id, bad))

    other = World(store, world.settings)

    assert found_everywhere(other) == expected
    assert len(other.found("thing", k=200, cold=True)) == world.row().live
    assert store.check() == []


def test_lost_words_come_back_with_a_rebuild(world: World) -> None:
    """And lengths that were counted by another version are counted anew."""
    world.fill(10)
    ns_id = world.row().ns_id

    def damage(tx: Writer) -> None:
        row = tx.rows([1])[1]
        tx.update(replace(row, length=row.length + 5))
        ns = tx.namespace_by_id(ns_id)
        assert ns is not None
        tx.put_namespace(replace(ns, length=ns.length + 5))
        tx.clear_index(ns_id)

    world.store.write(damage)
    with world.store.read() as reader:
        assert reader.frequencies(ns_id, ["thing1"]) == {}

    world.memory.rebuild_index(ALICE)

    with world.store.read() as reader:
        assert reader.frequencies(ns_id, ["thing1", "kind1"]) == {"thing1": 1, "kind1": 2}
    assert world.row().length == 30
    for item_id in [f"i{i}" for i in range(1, 11)]:
        world.memory.forget(item_id)
    assert world.row().length == 0
    assert world.store.check() == []


def test_rebuilding_what_is_not_there_does_nothing(world: World) -> None:
    world.memory.rebuild_index(("nobody",))

    assert world.memory.namespaces() == []
    assert world.store.write(lambda tx: upkeep.rebuild(tx, 99, SMALL, world.clock())) is None


def test_a_rebuild_leaves_retired_vectors_to_the_past(world: World) -> None:
    """They enter no index of now."""
    world.claim("Oslo")
    world.clock.advance(10.0)
    world.claim("Rome")
    world.memory.rebuild_index(ALICE)

    assert world.row().vectors == 1
    assert world.found("lives", as_of=world.clock() - 5.0) == ["i1"]
    assert world.found("lives", cold=True) == ["i2"]


# ---------------------------------------------------------------- putting into cells


def test_few_vectors_are_kept_outside_cells(world: World) -> None:
    """They are scanned exactly; only after that are cells made."""
    world.fill(40)
    assert (world.row().cells, world.row().pending) == (0, 40)
    world.fill(1)
    assert (world.row().cells > 5, world.row().pending) == (True, 0)
    world.fill(8)
    assert world.row().pending == 8
    world.fill(1)

    assert world.row().pending == 0
    assert world.store.check() == []


def test_cells_never_outgrow_their_limit(world: World) -> None:
    """Whatever comes: similar ones, equal ones."""
    for _ in range(5):
        world.fill(30)
    world.memory.add_many([{"content": "same", "namespace": ALICE}] * 60)
    with world.store.read() as reader:
        members = reader.members(reader.cell_ids(world.row().ns_id))

    sizes = [len(one.ids) for one in members.values()]
    assert max(sizes) <= SMALL.cells.split_above
    assert min(sizes) >= 1
    # Each vector that is in cells is in three.
    assert sum(sizes) == 3 * (210 - world.row().pending)
    assert world.store.check() == []


def test_equal_vectors_leave_no_cell_empty(world: World) -> None:
    """A search would pay for a look at each; all of the first cells get something."""
    world.memory.add_many([{"content": "same", "namespace": ALICE}] * 60)

    with world.store.read() as reader:
        sizes = reader.cell_sizes(reader.cell_ids(world.row().ns_id))
    assert world.row().pending == 0
    assert min(sizes.values()) >= 1
    assert max(sizes.values()) <= SMALL.cells.split_above


def assert_each_is_in_its_cells(world: World) -> None:
    """Compare what cells hold with where each vector is said to be."""
    with world.store.read() as reader:
        ns_id = world.row().ns_id
        places = reader.placements(reader.indexed_ids(ns_id))
        waiting = set(reader.pending_ids(ns_id).tolist())
        held: dict[int, list[int]] = {}
        for cell_id, members in reader.members(reader.cell_ids(ns_id)).items():
            for vector_id in members.ids.tolist():
                held.setdefault(vector_id, []).append(cell_id)
    assert waiting == {i for i, place in places.items() if place == Place(PENDING)}
    for i, place in places.items():
        inside = [cell for cell in place if cell != PENDING]
        assert len(set(inside)) == len(inside)
        # Where one is left of several, no gap is left before it.
        assert list(place) == inside + [PENDING] * (len(place) - len(inside)), i
    assert {i: sorted(cells) for i, cells in held.items()} == {
        i: sorted(cell for cell in place if cell != PENDING)
        for i, place in places.items()
        if i not in waiting
    }
    assert world.store.check() == []


STEPS = ("add", "add", "same", "claim", "forget", "forget", "update", "rebuild")


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 10**6)), max_size=25))
def test_whatever_happens_each_vector_is_in_the_cells_it_is_placed_in(
    steps: list[tuple[str, int]],
) -> None:
    """One left behind in a cell would outlive its item; one missing there would not be found."""
    world = World(MemoryStore())
    world.fill(45)
    for step, number in steps:
        there = world.memory.list(namespace=ALICE, limit=1000).items
        if step == "add":
            world.fill(1 + number % 20)
        elif step == "same":
            world.memory.add_many([{"content": "same", "namespace": ALICE}] * (1 + number % 12))
        elif step == "claim":
            world.claim(str(number))
        elif step == "rebuild":
            world.memory.rebuild_index(ALICE)
        elif there and step == "forget":
            for item in there[number % len(there) :][:7]:
                world.memory.forget(item.id)
        elif there:
            world.memory.update(there[number % len(there)].id, content=f"changed {number}")

        assert_each_is_in_its_cells(world)


def test_a_bulk_add_is_put_away_a_piece_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction is longer than that."""
    monkeypatch.setattr(indexing, "DRAIN_MAX", 30)
    world.fill(100)

    assert world.row().pending <= SMALL.cells.drain_at
    assert world.store.check() == []


def test_the_centroid_index_is_saved_now_and_then(world: World) -> None:
    """When half of the cells have changed; a process that starts loads it."""
    world.fill(60)
    ns_id = world.row().ns_id
    with world.store.read() as reader:
        first = reader.cell_snapshot(ns_id)
    assert first is not None
    assert world.row().cells_changed == 0
    view = View(DIMENSION, SMALL.budget.hot)
    assert not indexing.save_index(world.store, view, ALICE, SMALL, world.clock())
    with world.store.read() as reader:
        one = reader.members(reader.cell_ids(ns_id)[:1])
    for key in {i // PASSAGES_MAX for members in one.values() for i in members.ids.tolist()}:
        world.memory.forget(f"i{key}")
    with world.store.read() as reader:
        # What it was made of may have been the vector of a single item.
        assert reader.cell_snapshot(ns_id) is None
    world.fill(60)
    assert world.row().cells_changed <= indexing.SNAPSHOT_SHARE * world.row().cells
    with world.store.read() as reader:
        assert reader.cell_snapshot(ns_id) not in (None, first)


@pytest.mark.parametrize("fails", [False, True])
def test_who_has_put_vectors_into_cells_saves_the_index_on_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The next process then loads it, and adds no centroid; one that only searched saves none."""
    world = World(SqliteStore.open(str(tmp_path / "amv.db")))
    world.fill(60)
    add_until(world, lambda: world.row().cells_changed > 0)
    other = world.another(store=SqliteStore.open(str(tmp_path / "amv.db")))
    other.search("thing1", namespace=ALICE)
    other.close()
    assert world.row().cells_changed > 0

    def refuse(*args: object, **arguments: object) -> bool:
        raise StoreUnavailable("the disk is full")

    if fails:
        monkeypatch.setattr(indexing, "save_index", refuse)
    world.memory.close()

    with closing(SqliteStore.open(str(tmp_path / "amv.db"))) as store, store.read() as reader:
        row = reader.namespace(ALICE)
        assert row is not None
        saved = CentroidIndex(DIMENSION, reader.cell_snapshot(row.ns_id)).ids()
        assert (saved >= set(reader.cell_ids(row.ns_id).tolist())) != fails
        assert (row.cells_changed == 0) != fails


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_closing_rids_the_saved_index_of_dropped_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_saved: bool, is_large: bool
) -> None:
    """Also where no cell has changed since it was saved; one that is too large is left as it is."""
    path = tmp_path / "amv.db"
    world = World(SqliteStore.open(str(path)))
    if is_saved:
        monkeypatch.setattr(indexing, "SNAPSHOT_SHARE", 0.0)
    world.fill(300)

    def is_littered() -> bool:
        index = world.memory._views.of(ALICE).index
        assert index is not None
        dropped = len(index._index) - len(index)
        return dropped > max(20, 0.08 * len(index._index)) and world.row().pending < 3

    add_until(world, is_littered)
    assert (world.row().cells_changed == 0) == is_saved
    cells = world.row().cells
    monkeypatch.setattr(indexing, "TIDIED_MAX", cells - 1 if is_large else cells)

    world.memory.close()

    with closing(SqliteStore.open(str(path))) as store, store.read() as reader:
        row = reader.namespace(ALICE)
        assert row is not None
        assert (row.cells, row.cells_changed) == (cells, 0)
        live = set(reader.cell_ids(row.ns_id).tolist())
        nodes = CentroidIndex(DIMENSION, reader.cell_snapshot(row.ns_id)).ids()
    assert nodes >= live
    assert (len(nodes - live) > indexing.TIDIED_SHARE * len(nodes)) == is_large


def test_closing_leaves_what_is_saved_as_it_is_if_nothing_changed(tmp_path: Path) -> None:
    """That it was closed changes nothing: no write, and no new version."""
    path = tmp_path / "amv.db"
    world = World(SqliteStore.open(str(path)))
    world.fill(60)
    assert world.row().cells_changed == 0
    before = world.row()

    world.memory.close()

    with closing(SqliteStore.open(str(path))) as store, store.read() as reader:
        assert reader.namespace(ALICE) == before


def add_until(world: World, is_so: Callable[[], bool]) -> None:
    """Add items one by one until something is so."""
    for n in range(1000):
        if is_so():
            return
        world.add(f"one more thing{n}")
    raise AssertionError("it never was")


def pending_world(store: Store) -> tuple[World, NamespaceRow]:
    """Return a world in which fifty vectors wait to be put into cells."""
    world = World(store, LAZY)
    world.fill(50)
    return world, world.row()


def drained(world: World, store: Store) -> int:
    """Put away what waits, through *store*."""
    view = View(DIMENSION, SMALL.budget.hot)
    return indexing.drain(store, view, ALICE, EAGER, world.clock())


@pytest.mark.parametrize("has_cells", [False, True])
def test_what_another_process_put_away_meanwhile_is_left_alone(
    store: Store, has_cells: bool
) -> None:
    """The nearest cells are looked for before the transaction; by then all may be done."""
    world, _ = pending_world(store)
    if has_cells:
        drained(world, store)
        world.fill(20)
    slow = Interrupted(store)
    slow.before_write = lambda number: drained(world, store)

    assert drained(world, slow) == 0

    assert world.row().pending == 0
    assert store.check() == []


def test_cells_that_another_process_made_meanwhile_are_not_made_twice(store: Store) -> None:
    """Some vectors came in between, and wait for the next time."""
    world, _ = pending_world(store)

    def meanwhile(number: int) -> None:
        drained(world, store)
        world.memory.update("i3", content="something else")

    slow = Interrupted(store)
    slow.before_write = meanwhile

    assert drained(world, slow) == 0
    assert world.row().pending == 1
    assert store.check() == []


def test_a_cell_that_is_gone_by_then_leaves_its_vectors_waiting(store: Store) -> None:
    world, _ = pending_world(store)
    drained(world, store)
    world.fill(20)
    slow = Interrupted(store)

    def meanwhile(number: int) -> None:
        world.memory.rebuild_index(ALICE)

    slow.before_write = meanwhile

    assert drained(world, slow) == 0
    assert world.row().pending == 70
    assert store.check() == []


def test_a_vector_that_changed_meanwhile_is_put_away_as_it_is_now(store: Store) -> None:
    """An update keeps the vector's id; the old one's code must not come back under it."""
    world, _ = pending_world(store)
    slow = Interrupted(store)
    slow.before_write = lambda number: world.memory.update("i3", content="zanzibar")

    assert drained(world, slow) == 50

    with store.read() as reader:
        (vector_id,) = reader.vector_ids([world.key("i3")]).tolist()
        place = reader.placements(np.array([vector_id]))[vector_id]
        held = reader.members(np.array(place))
    assert len(held) == 3
    code = quantise(rotate(world.embedder.embed(["zanzibar"])))
    for members in held.values():
        assert members.codes[members.ids == vector_id].tolist() == code.tolist()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_only_what_belongs_in_a_cell_that_is_gone_by_then_waits_on(
    store: Store, which: int
) -> None:
    """In any of its three; the others are put away."""
    world, row = pending_world(store)
    drained(world, store)
    world.fill(20)
    view = View(DIMENSION, SMALL.budget.hot)
    with store.read() as reader:
        view.follow(reader, world.row())
        assert view.index is not None
        waiting = reader.vectors(reader.pending_ids(row.ns_id))
        spots = view.index.nearest(rotate(waiting.matrix))
        dropped = int(spots[0, which])
        inside = reader.members(np.array([dropped]))[dropped].ids // PASSAGES_MAX
    slow = Interrupted(store)
    left = set[int]()

    def meanwhile(number: int) -> None:
        for key in inside.tolist():
            world.memory.forget(f"i{key}")
        with store.read() as reader:
            left.update(reader.cell_ids(row.ns_id).tolist())

    slow.before_write = meanwhile

    placed = drained(world, slow)

    with store.read() as reader:
        still = set(reader.pending_ids(row.ns_id).tolist()) & set(waiting.ids.tolist())
    lost = ~np.isin(spots, list(left)).all(axis=1)
    assert dropped not in left
    assert still == set(waiting.ids[lost].tolist())
    assert placed == np.count_nonzero(~lost) > 0
    assert_each_is_in_its_cells(world)


def test_vectors_lost_from_a_file_are_not_put_away(tmp_path: Path) -> None:
    """What waits is nothing but names then; the check says so."""
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        pending_world(store)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM vector_data")

    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        assert drained(World(store, LAZY), store) == 0
        assert store.check() != []


def test_a_sweep_of_a_file_that_lost_an_item_says_so(tmp_path: Path) -> None:
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        World(store, SMALL).add("x", valid_from=1_700_100_000.0)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM item")

    with closing(SqliteStore.open(path, synchronous="NORMAL")) as store:
        world = World(store, SMALL)
        world.clock.advance(YEAR_S)
        with pytest.raises(StoreError, match=r"items of 1 states are gone.*amv doctor"):
            world.memory.sweep()


@pytest.mark.parametrize("has_cells", [False, True])
def test_a_namespace_that_is_forgotten_meanwhile_does_not_come_back(
    store: Store, has_cells: bool
) -> None:
    """Not even as a name; nor does its successor of the same name get what was its."""
    world, _ = pending_world(store)
    if has_cells:
        drained(world, store)
        world.fill(20)
    slow = Interrupted(store)
    slow.before_write = lambda number: world.memory.forget_namespace(ALICE)

    assert drained(world, slow) == 0
    assert world.memory.namespaces() == []
    world.fill(50)
    slow.before_write = lambda number: (world.memory.forget_namespace(ALICE), world.add("x"))
    assert drained(world, slow) == 0
    assert world.row().vectors == 1
    assert store.check() == []


def test_an_index_is_not_saved_for_a_namespace_that_was_forgotten_meanwhile(store: Store) -> None:
    world, _ = pending_world(store)
    drained(world, store)
    view = View(DIMENSION, SMALL.budget.hot)
    slow = Interrupted(store)
    slow.before_write = lambda number: world.memory.forget_namespace(ALICE)

    assert not indexing.save_index(slow, view, ALICE, EAGER, world.clock())
    assert world.memory.namespaces() == []
    assert not indexing.save_index(slow, view, ALICE, EAGER, world.clock())
    assert drained(world, slow) == 0


def test_an_index_of_no_cells_is_not_saved(store: Store) -> None:
    """The last cell was emptied since."""
    world, _ = pending_world(store)
    drained(world, store)
    for i in range(1, 51):
        world.memory.forget(f"i{i}")
    view = View(DIMENSION, SMALL.budget.hot)

    assert world.row().cells_changed > 0
    assert not indexing.save_index(store, view, ALICE, EAGER, world.clock())


def test_an_add_goes_through_though_its_namespace_is_forgotten_before_it_is_indexed(
    store: Store,
) -> None:
    """The item was there, and is gone with the rest; nothing of it comes back."""
    for at_write in (2, 3):
        world = World(store)
        slow = Interrupted(store)

        def meanwhile(number: int, at_write: int = at_write, world: World = world) -> None:
            if number == at_write:
                world.memory.forget_namespace(ALICE)

        slow.before_write = meanwhile
        memory = world.another(store=slow)

        items = memory.add_many([{"content": f"n{i}", "namespace": ALICE} for i in range(50)])

        assert len(items) == 50
        assert slow.writes >= at_write
        assert world.memory.namespaces() == []
        assert memory.search("n1", namespace=ALICE).hits == ()


def test_what_waits_is_put_away_under_an_old_half_life_too(store: Store) -> None:
    """An edit re-keys whatever it came for."""
    world = World(store)
    model = replace(MODEL, half_life_s=MODEL.half_life_s * 2)
    other = world.another(replace(SMALL, value_model=model))
    world.fill(39)

    other.add_many([{"content": "x", "namespace": ALICE}] * 5)

    assert world.row().half_life_s == model.half_life_s
    assert world.row().cells > 0
    assert store.check() == []


# ---------------------------------------------------------------- a cell that began with one item


def put_into_cells(
    world: World, centroids: Floats, places: list[tuple[int, int, int]]
) -> list[int]:
    """Put all items of Alice's into cells by hand: numbers of centroids, from 1; 0 is none."""

    def work(tx: Writer) -> list[int]:
        edit = Edit.of(tx, ALICE, LAZY, world.clock())
        vectors = tx.vectors(tx.pending_ids(edit.row.ns_id))
        codes, spots = quantise(rotate(vectors.matrix)), np.asarray(places)
        cells = [PENDING]
        for number, centroid in enumerate(centroids, start=1):
            inside = (spots == number).any(axis=1)
            members = Members(vectors.ids[inside], codes[inside])
            cells.append(tx.add_cell(edit.row.ns_id, rotate(centroid), members))
        tx.place(vectors.ids, np.asarray(cells)[spots])
        edit.change.placed += vectors.ids.tolist()
        edit.change.cells_in += cells[1:]
        edit.add_to_totals(cells=len(centroids), pending=-len(vectors.ids))
        edit.close()
        return cells

    return world.store.write(work)


NEAR, FAR = unit(
    np.asarray([[1.0, 0.01], [1.0, 1.0]], np.float32) @ np.eye(2, DIMENSION, dtype="f4")
)
AWAY = np.eye(3, DIMENSION, dtype=np.float32)[2]


def test_a_cell_goes_with_the_item_whose_vector_its_centroid_is(store: Store) -> None:
    """Others in it stay in their other cells, in order, and wait where they have none."""
    world = World(store, LAZY)
    one = np.eye(1, DIMENSION, dtype=np.float32)[0]
    for vector in (one, FAR, FAR, AWAY, AWAY, FAR, AWAY, FAR):
        world.add("x", vector=vector)
    cells = put_into_cells(
        world,
        np.stack([one, AWAY, FAR]),
        [
            (1, 2, 3),
            (1, 0, 0),
            (3, 1, 0),
            (2, 1, 0),
            (2, 3, 1),
            (3, 1, 2),
            (1, 2, 3),
            (3, 2, 0),
        ],
    )
    follower = world.another()
    assert len(follower.search(vector=one, namespace=ALICE).hits) == 8
    assert_each_is_in_its_cells(world)

    world.memory.forget("i1")

    away, far = cells[2:]
    with store.read() as reader:
        ids = reader.vector_ids([world.key(f"i{n}") for n in range(2, 9)])
        assert list(reader.placements(ids).values()) == [
            Place(PENDING),
            Place(far),
            Place(away),
            Place(away, far),
            Place(far, away),
            Place(away, far),
            Place(far, away),
        ]
        assert reader.cell_ids(world.row().ns_id).tolist() == [away, far]
        assert reader.cell_snapshot(world.row().ns_id) is None
    assert_each_is_in_its_cells(world)
    for memory in (follower, world.another()):
        hits = memory.search(vector=one, namespace=ALICE).hits
        assert {hit.item.id for hit in hits} == {f"i{n}" for n in range(2, 9)}


def directions_of(seed: int, n: int) -> Floats:
    """Return unit vectors in all directions, the same for the same *seed*."""
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((n, DIMENSION)).astype(np.float32))


def saved_bytes(world: World) -> bytes:
    """Return the saved centroid index as it lies in the store."""
    with world.store.read() as reader:
        return reader.cell_snapshot(world.row().ns_id) or b""


@pytest.mark.parametrize("is_equal", [True, False])
def test_the_saved_index_goes_when_a_cell_of_equal_vectors_is_divided(
    store: Store, is_equal: bool
) -> None:
    """Its centroid is theirs, and would outlive them there; others are of no one item."""
    world = World(store)
    vectors = directions_of(1, 60)
    world.memory.add_many(
        [
            {"content": "x", "namespace": ALICE, "vector": vectors[0 if is_equal else i]}
            for i in range(60)
        ]
    )
    assert saved_bytes(world)

    def split(tx: Writer) -> None:
        edit = Edit.of(tx, ALICE, SMALL, world.clock())
        sizes = tx.cell_sizes(tx.cell_ids(edit.row.ns_id))
        joining = Members(np.zeros(0, np.int64), quantise(vectors[:0]))
        full = {max(sizes, key=lambda i: sizes[i]): joining}
        tx.move_vectors(*indexing._split(edit, full))
        edit.close()

    store.write(split)

    assert bool(saved_bytes(world)) != is_equal
    assert store.check() == []


def test_a_cell_stays_where_its_centroid_tells_of_another_item_too(store: Store) -> None:
    """That one has not been forgotten, so nothing is given away."""
    world = World(store, LAZY)
    one = np.eye(1, DIMENSION, dtype=np.float32)[0]
    for vector in (one, NEAR, FAR):
        world.add("x", vector=vector)
    cells = put_into_cells(world, np.stack([one, AWAY]), [(1, 2, 0), (1, 2, 0), (2, 1, 0)])

    world.memory.forget("i3")
    world.memory.forget("i1")

    with store.read() as reader:
        assert reader.cell_sizes(np.asarray(cells)) == {cells[1]: 1, cells[2]: 1}
    assert_each_is_in_its_cells(world)


# ---------------------------------------------------------------- a plain edit


def test_an_edit_that_did_nothing_still_closes_with_a_new_version(world: World) -> None:
    """Followers compare versions; an empty change costs them nothing."""
    world.fill(1)
    before = world.row()

    def work(tx: Writer) -> None:
        edit = Edit.of(tx, ALICE, SMALL, world.clock())
        edit.insert([], [], [])
        edit.close()

    world.store.write(work)

    assert world.row() == replace(before, version=before.version + 1)


def test_maintain_folds_and_sweeps(world: World) -> None:
    """What a server calls every few seconds."""
    items = world.fill(5)
    world.memory.reinforce([items[0].id])
    world.memory.reinforce([items[0].id])

    world.memory.maintain()

    assert world.tier(items[0].id) is Tier.HOT
    assert world.memory.flush() == 0


def test_a_year_of_upkeep_ends_in_a_sound_store(store: Store) -> None:
    """Adds, uses, plans and expiry, swept now and then."""
    world = World(store, replace(SMALL, evict=True))
    for month in range(12):
        items = world.fill(12, expires_at=world.clock() + YEAR_S / 4)
        world.use(*(item.id for item in items[:3]), times=2)
        world.claim(str(month), valid_from=world.clock() + 1.5 * MONTH_S)
        world.clock.advance(MONTH_S)
        world.memory.maintain()
        assert store.check() == []
        assert world.row().hot <= SMALL.hot_max

    live = world.memory.list(namespace=ALICE).items
    assert all(item.status is Status.LIVE for item in live)
    assert 0 < len(live) <= 48


def test_cell_settings_decide_when_a_namespace_is_due() -> None:
    row = NamespaceRow(ns_id=1, name=ALICE, version=1, half_life_s=1.0)
    cells = CellSettings(from_vectors=40, drain_at=8)
    due = [
        indexing.is_due(replace(row, pending=pending, cells=count), cells)
        for count in (0, 1)
        for pending in (8, 9, 40, 41)
    ]

    assert due == [False, False, False, True, False, True, True, True]


def test_a_hashing_embedder_of_other_size_is_another_one() -> None:
    assert Hashing(dimension=8).id != Hashing(dimension=16).id
