"""Indexes are kept whole by whoever comes by, and a failure of that costs time only."""

from dataclasses import replace

import pytest

from amv.errors import AmvError, StoreClosed, StoreUnavailable
from amv.memory import upkeep
from amv.memory.hot import IndexDamaged, View
from amv.memory.ports import NamespaceRow, Reader, Store
from amv.memory.service import MemoryService
from amv.memory.settings import Budget
from tests.memory.worlds import ALICE, SMALL, Interrupted, World

TIGHT = replace(SMALL, budget=Budget(hot=256, warm=256, cold=256))
WAITING = 720
"""So many vectors are more than a search may scan under TIGHT."""


class Warned:
    """A memory like that of a world, and what it warned of."""

    def __init__(self, world: World, store: Store | None = None) -> None:
        self.warnings: list[tuple[str, AmvError]] = []
        self.memory = MemoryService(
            store or world.store,
            world.embedder,
            world.settings,
            clock=world.clock,
            new_id=lambda: "new",
            warn=lambda what, error: self.warnings.append((what, error)),
        )


@pytest.fixture
def world(store: Store) -> World:
    """Give a world in which a process died as it had cleared the index to make it anew."""
    world = World(store, TIGHT)
    world.fill(WAITING)
    ns_id = world.row().ns_id
    store.write(lambda tx: upkeep.rebuild(tx, ns_id, TIGHT, world.clock()))
    assert (world.row().pending, world.row().cells) == (WAITING, 0)
    assert store.check() == []
    return world


def test_what_waits_is_put_into_cells_by_a_search_that_may_not_scan_it(world: World) -> None:
    """A namespace that nobody writes to any more would be searched in part for ever."""
    result = world.another().search("thing3", namespace=ALICE, k=2)

    assert (result.reason, result.hits[0].item.content[:7]) == ("", "thing3 ")
    assert world.row().pending <= TIGHT.cells.drain_at
    assert world.row().cells > 0
    assert world.store.check() == []


def test_a_search_shows_its_hits_once_though_it_is_made_twice(world: World) -> None:
    memory = world.another()
    hit = memory.search("thing3", namespace=ALICE).hits[0].item
    memory.flush()

    assert memory.get(hit.id).exposed_count == 1


def test_a_search_does_not_wait_for_who_is_putting_away(world: World) -> None:
    """It says that it could not look at everything."""
    memory = world.another()
    memory.search("thing3", namespace=ALICE)
    world.store.write(lambda tx: upkeep.rebuild(tx, world.row().ns_id, TIGHT, world.clock()))

    with memory._views.of(ALICE).indexing:
        result = memory.search("thing3", namespace=ALICE)

    assert (result.complete, result.reason) == (False, "new items are still being indexed")
    assert world.row().pending == WAITING


def unavailable(number: int) -> object:
    raise StoreUnavailable("the disk is full")


def closed(number: int) -> object:
    raise StoreClosed("the store was closed")


def test_a_search_goes_on_where_nothing_can_be_put_away(world: World) -> None:
    failing = Interrupted(world.store)
    failing.before_write = unavailable
    warned = Warned(world, failing)

    result = warned.memory.search("thing3", namespace=ALICE)

    assert (result.complete, len(result.hits)) == (False, 10)
    ((what, error),) = warned.warnings
    assert "wait outside the cells" in what
    assert isinstance(error, StoreUnavailable)


def test_a_search_of_a_memory_that_is_closed_meanwhile_warns_of_nothing(world: World) -> None:
    """What waits is put into cells by who opens it next."""
    closing = Interrupted(world.store)
    closing.before_write = closed
    warned = Warned(world, closing)

    result = warned.memory.search("thing3", namespace=ALICE)

    assert (result.complete, warned.warnings) == (False, [])


def test_an_item_is_added_though_it_cannot_be_put_into_a_cell(world: World) -> None:
    """It is durable by then, and an error would say that it is not."""
    failing = Interrupted(world.store)
    failing.before_write = lambda number: number > 1 and unavailable(number)
    warned = Warned(world, failing)

    item = warned.memory.add("new", namespace=ALICE)

    assert world.memory.get(item.id).content == "new"
    assert [type(error) for _, error in warned.warnings] == [StoreUnavailable]


def test_an_index_that_stays_damaged_is_made_anew_once_a_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it, an add must end."""
    rebuilt = 0
    rebuild = upkeep.rebuild

    def counted(*given: object) -> NamespaceRow | None:
        nonlocal rebuilt
        rebuilt += 1
        return rebuild(*given)  # type: ignore[arg-type]

    def damaged(view: View, reader: Reader, row: NamespaceRow) -> None:
        raise IndexDamaged("for ever")

    monkeypatch.setattr(upkeep, "rebuild", counted)
    monkeypatch.setattr(View, "follow", damaged)
    warned = Warned(world)

    warned.memory.add("new", namespace=ALICE)

    assert rebuilt == 1
    assert [type(error) for _, error in warned.warnings] == [IndexDamaged]
    with pytest.raises(IndexDamaged):
        warned.memory.search("new", namespace=ALICE)


def test_closing_warns_of_an_index_that_cannot_be_saved(store: Store) -> None:
    """What was remembered is durable; the next process makes the index anew."""
    world = World(store, SMALL)
    failing = Interrupted(store)
    warned = Warned(world, failing)
    things = [
        {"content": f"thing{i} of mine", "namespace": ALICE, "id": f"t{i}"} for i in range(60)
    ]
    warned.memory.add_many(things)
    row = replace(world.row(), cells_changed=1)
    store.write(lambda tx: tx.put_namespace(row))
    failing.before_write = unavailable
    failing.close = lambda: None

    warned.memory.close()

    ((what, error),) = warned.warnings
    assert "index is not saved" in what
    assert isinstance(error, StoreUnavailable)
    assert world.found("thing7")[0] == "t7"
