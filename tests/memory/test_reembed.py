"""Changing the embedder: interrupted anywhere it goes on, and nobody sees half of it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from amv.embedders.hashing import Hashing
from amv.errors import Conflict, DimensionMismatch, EmbedderError
from amv.memory import reembed as reembedding
from amv.memory.lookup import EMBEDDER_META, embedder_mark
from amv.memory.ports import Embedder, Floats, Reader, Store
from amv.memory.reembed import STAGE_META, reembed
from amv.memory.service import MemoryService
from amv.stores.memory import MemoryStore
from amv.wiring import adopt_embedder
from tests.memory.worlds import ALICE, BOB, DAY_S, DIMENSION, SMALL, Interrupted, World

OLD = Hashing(dimension=DIMENSION)
QUERIES = ("thing3 kind3", "colour5", "lives in", "of Bob", "long")
PAGE = 4

WHOLE = replace(SMALL, cells=replace(SMALL.cells, probes_cold=64))
"""With cold=True a search looks at every cell there is, so that it finds all there is to find."""


class Renamed(Hashing):
    """Another embedder of the same dimension: its vectors are the old ones turned round."""

    @property
    def id(self) -> str:
        return f"renamed-{self.dimension}"

    def embed(self, texts: Sequence[str]) -> Floats:
        return super().embed(texts)[:, ::-1].copy()


class Failing:
    """An embedder that fails at one call, and remembers what it embedded."""

    def __init__(self, embedder: Embedder, fails_at: int) -> None:
        self._embedder = embedder
        self._fails_at = fails_at
        self.id, self.dimension = embedder.id, embedder.dimension
        self.passages = embedder.passages
        self.calls = 0
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Floats:
        self.calls += 1
        if self.calls == self._fails_at:
            raise EmbedderError("the model is gone")
        self.texts += texts
        return self._embedder.embed(texts)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few dozen items take several pages."""
    monkeypatch.setattr(reembedding, "PAGE", PAGE)


@pytest.fixture(params=[Hashing(dimension=32), Renamed(dimension=DIMENSION)], ids=lambda e: e.id)
def new(request: pytest.FixtureRequest) -> Embedder:
    """Give an embedder of another dimension, then one of the same."""
    embedder: Embedder = request.param
    return embedder


def fill(world: World) -> None:
    """Give a memory cells, superseded, refuted and long items, in two namespaces."""
    world.fill(60)
    for city in ("rome", "oslo"):
        world.claim(city, id=city)
        world.clock.advance(DAY_S)
    world.add("wrong", id="wrong")
    world.memory.refute("wrong")
    world.add("a long one: " + "word " * 600, id="long")
    world.add("to come", id="to come", valid_from=world.clock() + DAY_S)
    world.add("of Bob", namespace=BOB, id="bob", pinned=True)


def filled(store: Store, embedder: Embedder = OLD) -> World:
    adopt_embedder(store, embedder)
    world = World(store, WHOLE, embedder=embedder)
    fill(world)
    return world


def changed_over(store: Store, embedder: Embedder, world: World) -> int:
    return reembed(store, embedder, WHOLE, world.clock())


def hits(memory: MemoryService, **arguments: object) -> list[list[tuple[str, float, float]]]:
    """Return what searches find, with similarities, as far as floats are the same."""
    found = []
    for name in (ALICE, BOB):
        for query in QUERIES:
            result = memory.search(query, namespace=name, k=100, cold=True, **arguments)  # type: ignore[arg-type]
            assert result.complete
            found.append(
                sorted(
                    (hit.item.id, round(hit.similarity, 4), round(hit.lexical, 4))
                    for hit in result.hits
                )
            )
    return found


def assert_as_if_made_with(world: World, embedder: Embedder) -> None:
    """See that searches of now and of the past find what they would in a store of *embedder*."""
    fresh = World(MemoryStore(), WHOLE, clock=world.clock, embedder=embedder)
    fresh.memory.restore(world.memory.export_items())
    after = World(world.store, WHOLE, clock=world.clock, embedder=embedder)
    for memory in (after.memory, after.another()):
        assert hits(memory) == hits(fresh.memory)
        past = world.clock() - 2 * DAY_S
        assert hits(memory, as_of=past) == hits(fresh.memory, as_of=past)
    for name in fresh.memory.namespaces():
        # None that is kept for the past has come back into the index.
        assert after.row(name).vectors == fresh.row(name).vectors
    assert world.store.check() == []
    with world.store.read() as reader:
        assert reader.meta(EMBEDDER_META) == embedder_mark(embedder)
        assert reader.meta(STAGE_META) is None
        assert len(reader.staged_ids(range(200))) == 0


def test_afterwards_searches_equal_those_of_a_store_made_with_it(
    store: Store, new: Embedder
) -> None:
    """Nothing of the old embedder is left, in cells, pending or kept vectors."""
    world = filled(store)
    assert world.row().cells > 0
    calls: list[tuple[int, int]] = []

    count = reembed(store, new, WHOLE, world.clock(), lambda *call: calls.append(call))

    # All but the refuted one, which has no vectors.
    assert count == 60 + 2 + 1 + 1 + 1
    assert calls == [(min(n, count), count) for n in range(PAGE, count + PAGE, PAGE)]
    assert_as_if_made_with(world, new)


def test_afterwards_there_are_cells_again(store: Store, new: Embedder) -> None:
    """Without them the first searches would be cut off, until somebody adds something."""
    world = filled(store)

    changed_over(store, new, world)

    row = world.row()
    assert row.cells > 0
    assert row.pending <= WHOLE.cells.drain_at


def test_superseded_items_are_still_found_as_of_the_past_and_only_then(
    store: Store, new: Embedder
) -> None:
    world = filled(store)
    as_of = world.clock() - 1.5 * DAY_S
    assert "rome" in world.found("lives in rome", as_of=as_of)

    changed_over(store, new, world)

    after = World(store, WHOLE, clock=world.clock, embedder=new)
    assert after.found("lives in rome", as_of=as_of)[0] == "rome"
    assert "rome" not in after.found("lives in rome", k=100)
    assert "rome" in after.found(None or "", vector=new.embed(["lives in rome"])[0], as_of=as_of)


def test_the_embedder_it_has_already_changes_nothing(store: Store) -> None:
    world = filled(store)
    version = world.row().version
    embedder = Failing(OLD, fails_at=0)

    assert changed_over(store, embedder, world) == 0
    assert embedder.texts == []
    assert world.row().version == version


def test_a_store_without_items_takes_the_new_embedder(store: Store, new: Embedder) -> None:
    adopt_embedder(store, OLD)

    assert reembed(store, new, WHOLE, 0.0) == 0
    with store.read() as reader:
        assert reader.meta(EMBEDDER_META) == embedder_mark(new)


@pytest.mark.parametrize("fails_at", [1, 2, 5, 17])
def test_a_run_that_was_interrupted_goes_on_where_it_stopped(
    store: Store, new: Embedder, fails_at: int
) -> None:
    """Embedding is what costs; until the end the memory works as before."""
    world = filled(store)
    before = hits(world.memory)
    failing = Failing(new, fails_at)

    with pytest.raises(EmbedderError):
        changed_over(store, failing, world)

    assert hits(world.memory) == before
    assert store.check() == []
    second = Failing(new, fails_at=0)
    staged = changed_over(store, second, world)
    assert staged == 65 - PAGE * (fails_at - 1)
    assert len(failing.texts) + len(second.texts) == 65 + 2  # the long one has three passages
    assert_as_if_made_with(world, new)


def interrupted(world: World, before_write: Callable[[int], None]) -> Interrupted:
    store = Interrupted(world.store)
    store.before_write = before_write
    return store


@pytest.mark.parametrize("number", [2, 3, 9, 18])
def test_what_another_memory_does_meanwhile_is_kept(
    store: Store, new: Embedder, number: int
) -> None:
    """Updated, added, forgotten, superseded or only seen: each counts as if it came before."""
    world = filled(store)

    def meddle(at: int) -> None:
        if at != number:
            return
        world.memory.update("i1", content="thing0 was changed", namespace=ALICE)
        world.memory.update("i2", context="said late", namespace=ALICE)
        world.memory.update("rome", content="lived in rome", namespace=ALICE)
        world.memory.forget("i3", namespace=ALICE)
        world.memory.forget("i50", namespace=ALICE)
        world.memory.refute("i4", namespace=ALICE)
        world.claim("lima", id="lima")
        world.add("late", namespace=("carol",))
        world.memory.forget_namespace(BOB)

    assert reembed(interrupted(world, meddle), new, WHOLE, world.clock()) > 60

    after = World(store, WHOLE, clock=world.clock, embedder=new)
    assert after.memory.get("i1").content == "thing0 was changed"
    assert after.found("thing0 changed", k=1) == ["i1"]
    assert {"i3", "i50", "i4", "oslo"}.isdisjoint(after.found("thing2 lives oslo", k=100))
    assert "lima" in after.found("lives in lima", k=3)
    assert after.found("late", namespace=("carol",)) != []
    assert_as_if_made_with(world, new)


def test_what_is_added_just_before_the_end_is_embedded_too(store: Store, new: Embedder) -> None:
    """It takes over only when nothing is missing, whoever is adding at the moment."""
    world = filled(store)
    last = 1 + -(-65 // PAGE) + 1
    late: list[str] = []

    def meddle(at: int) -> None:
        if at in (last, last + 2):
            late.append(world.add(f"late {at}").id)

    store_in_between = interrupted(world, meddle)
    count = reembed(store_in_between, new, WHOLE, world.clock())

    assert len(late) == 2
    assert count == 65 + 2
    assert_as_if_made_with(world, new)


def test_a_memory_still_open_with_the_old_embedder_is_told_at_its_next_call(
    store: Store, new: Embedder
) -> None:
    """Its vectors would be compared with ones they have nothing to do with."""
    world = filled(store)
    open_before = world.another()
    open_before.search("thing", namespace=ALICE)
    changed_over(store, new, world)

    for call in (
        lambda: open_before.search("thing", namespace=ALICE),
        lambda: open_before.search(vector=OLD.embed(["thing"])[0], namespace=BOB),
        lambda: open_before.context("thing", namespace=ALICE),
        lambda: open_before.add("x", namespace=ALICE),
        lambda: open_before.update("i1", content="x"),
        lambda: open_before.pin("i1"),
        lambda: list(open_before.export_items(vectors=True)),
    ):
        with pytest.raises(DimensionMismatch, match="amv reembed"):
            call()

    assert store.check() == []
    assert_as_if_made_with(world, new)


def test_an_add_that_was_made_is_not_told_as_failed_by_a_change_right_after(
    store: Store, new: Embedder
) -> None:
    """Between an item's commit and its move into a cell, another process may change over."""
    world = filled(store)
    behind = Interrupted(store)
    memory = world.another(store=behind)
    patient = replace(WHOLE, cells=replace(WHOLE.cells, from_vectors=1000))

    def change_over_and_read() -> AbstractContextManager[Reader]:
        # All vectors still wait to be put into cells, which the memory takes upon itself.
        behind.read = store.read
        reembed(store, new, patient, world.clock())
        return store.read()

    def begin(number: int) -> None:
        behind.read = change_over_and_read

    behind.before_write = begin

    items = memory.add_many([{"content": f"new{i}", "namespace": ALICE} for i in range(9)])

    assert len(items) == 9
    assert store.check() == []
    assert world.row().pending > 60
    with pytest.raises(DimensionMismatch):
        memory.search("new1", namespace=ALICE)


def test_a_change_there_and_back_leaves_no_old_vector_in_a_memory_that_stayed_open(
    store: Store, new: Embedder
) -> None:
    """An item added with a vector of its own gets that of its content; caches must follow."""
    world = World(store, WHOLE)
    adopt_embedder(store, OLD)
    own = OLD.embed(["something else"])[0]
    world.add("about cats", id="x", vector=own)
    assert world.memory.search(namespace=ALICE, vector=own).hits[0].similarity > 0.9

    changed_over(store, new, world)
    changed_over(store, OLD, world)

    (hit,) = world.memory.search(namespace=ALICE, vector=own).hits
    assert hit.similarity < 0.5


def test_a_second_change_to_another_embedder_stops_the_first(store: Store) -> None:
    """Both at once would undo each other's work; the last one asked for is what is wanted."""
    world = filled(store)
    first, second = Hashing(dimension=32), Renamed(dimension=DIMENSION)

    def meddle(at: int) -> None:
        if at == 4:
            changed_over(store, second, world)

    with pytest.raises(Conflict, match="another change of embedder"):
        reembed(interrupted(world, meddle), first, WHOLE, world.clock())

    assert_as_if_made_with(world, second)


def test_an_unfinished_change_to_another_embedder_is_dropped(store: Store) -> None:
    """What was staged for it would be of no use, and must not be taken for the new vectors."""
    world = filled(store)
    first, second = Hashing(dimension=32), Renamed(dimension=DIMENSION)
    with pytest.raises(EmbedderError):
        changed_over(store, Failing(first, fails_at=6), world)

    assert changed_over(store, second, world) == 65
    assert_as_if_made_with(world, second)


def test_one_forgotten_while_its_vectors_are_staged_leaves_none_behind(store: Store) -> None:
    """Staged vectors are made of the content, and go with it."""
    world = filled(store)
    with pytest.raises(EmbedderError):
        changed_over(store, Failing(Hashing(dimension=32), fails_at=6), world)
    key = world.key("i1")
    with store.read() as reader:
        assert len(reader.staged_ids([key])) == 1

    world.memory.forget("i1")

    with store.read() as reader:
        assert len(reader.staged_ids([key])) == 0
    assert store.check() == []
