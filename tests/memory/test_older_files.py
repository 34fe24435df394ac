"""Files that an AMV of before left: vectors that stood in two cells wait to be put away."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from amv.memory.ports import RETIRED
from amv.memory.settings import Budget, MemorySettings
from amv.memory.tiers import Tier
from amv.memory.value import PRESETS
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.migrate import migrations
from amv.testing import FakeClock
from tests.memory.worlds import ALICE, BOB, MONTH_S, SMALL, World
from tests.stores.older import SCALED, SMALLER, THIRD_CELL, turn_back

WHOLE = replace(SMALL, cells=replace(SMALL.cells, probes_warm=400, probes_cold=400))
"""Settings under which a search looks at all there is, so that what it finds is exact."""

QUERIES = ("thing1", "kind3 colour2", "thing39 kind4", "nothing of that", "lives in")

Found = list[dict[str, float]]


def opened(path: Path) -> World:
    """Open a file at one and the same moment."""
    store = SqliteStore.open(path, synchronous="NORMAL")
    return World(store, WHOLE, clock=FakeClock(1_800_000_000.0))


def found(world: World) -> Found:
    """Return what searches find of each namespace, with similarities: of now and of before."""
    searches = [
        world.memory.search(vector=vector, namespace=name, k=256, cold=True, as_of=as_of)
        for vector in world.embedder.embed(list(QUERIES))
        for name in (ALICE, BOB)
        for as_of in (None, world.clock() - 5.0)
    ]
    assert all(result.complete for result in searches)
    return [{hit.item.id: hit.similarity for hit in result.hits} for result in searches]


def kept(world: World) -> dict[object, tuple[object, ...]]:
    """Return what a memory exports, but for what a search itself changes."""
    lines: list[dict[str, Any]] = list(world.memory.export_items(vectors=True))
    names = ("namespace", "content", "status", "claim", "vectors")
    return {line["id"]: tuple(line.get(name) for name in names) for line in lines}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Found, dict[object, Any]]:
    """Give a file of before; what searches found in it, and what was in it."""
    path = tmp_path_factory.mktemp("before") / "amv.db"
    world = World(SqliteStore.open(path), WHOLE, clock=FakeClock(1_800_000_000.0 - 10.0))
    items = world.fill(150)
    world.memory.add_many([{"content": "same", "namespace": ALICE}] * 20)
    world.memory.add_many([{"content": f"of Bob {i}", "namespace": BOB} for i in range(9)])
    world.claim("Oslo")
    world.clock.advance(10.0)
    world.claim("Rome")
    world.memory.forget(items[3].id)
    world.use(items[5].id, times=3)
    world.memory.sweep()
    assert world.memory.check() == []
    assert world.row().hot > 0 < world.row().pending
    results, items_kept = found(world), kept(world)
    world.memory.close()

    turn_back(path, THIRD_CELL - 1)

    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA user_version").get == THIRD_CELL - 1
        placements: list[tuple[Any, ...]] = connection.execute("SELECT * FROM placement").fetchall()
        assert {len(place) for place in placements} == {4}
        assert {min(place[2], 1) for place in placements} == {RETIRED, 0, 1}
        for table in ("cell", "cell_part", "cell_snapshot"):
            assert connection.execute(f"SELECT count(*) FROM {table}").get > 0
    return path.read_bytes(), results, items_kept


@pytest.fixture
def path(tmp_path: Path, before: tuple[bytes, Found, object]) -> Path:
    path = tmp_path / "amv.db"
    path.write_bytes(before[0])
    return path


def assert_as_before(
    path: Path, before: tuple[bytes, Found, dict[object, Any]], besides: set[str], gone: set[str]
) -> None:
    """Search what is there now, by a process that comes after and once there are cells anew.

    See that nothing is lost, and that the file is sound all the time.
    """
    results, items_kept = before[1:]
    for adds_some in (False, False, True):
        world = opened(path)
        assert world.memory.check() == []
        if adds_some:
            besides = besides | adds(world, 1, "later")
            assert world.row().cells > 0
        now = found(world)
        for then, hits in zip(results, now, strict=True):
            others = {i: s for i, s in hits.items() if i not in besides}
            assert others == pytest.approx(
                {i: s for i, s in then.items() if i not in gone}, abs=1e-6
            )
        assert world.memory.check() == []
        there = kept(world)
        assert {i: line for i, line in there.items() if i not in besides} == {
            i: line for i, line in items_kept.items() if i not in gone
        }
        assert besides <= set(there)
        world.memory.close()
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA user_version").get == len(migrations())
        assert connection.execute("SELECT count(*) FROM placement WHERE third_id > 0").get > 0
        held: Any = connection.execute("SELECT sum(members) FROM cell_part").get
        placed = "SELECT sum((cell_id > 0) + (second_id > 0) + (third_id > 0)) FROM placement"
        assert connection.execute(placed).get == held
        assert connection.execute("SELECT max(third_id) FROM placement").get > 0


def test_opening_leaves_no_cell_of_before_and_retires_nothing_anew(path: Path) -> None:
    """Cells of before are divided otherwise; what is superseded stays in no index."""
    with closing(apsw.Connection(str(path))) as connection:
        retired = connection.execute("SELECT id FROM placement WHERE cell_id = -1").fetchall()
        others = connection.execute("SELECT id FROM placement WHERE cell_id >= 0").fetchall()

    SqliteStore.open(path).close()

    with closing(apsw.Connection(str(path))) as connection:
        for table in ("cell", "cell_part", "cell_snapshot"):
            assert connection.execute(f"SELECT count(*) FROM {table}").get == 0
        waiting = "SELECT id FROM placement WHERE (cell_id, second_id, third_id) = (0, 0, 0)"
        assert connection.execute(waiting).fetchall() == others
        gone = "SELECT id FROM placement WHERE (cell_id, second_id, third_id) = (-1, 0, 0)"
        assert connection.execute(gone).fetchall() == retired != []


def test_a_file_of_before_is_searched_as_it_was(
    path: Path, before: tuple[bytes, Found, dict[object, Any]]
) -> None:
    """To the last similarity, with nothing lost, hot, waiting and superseded ones included."""
    assert_as_before(path, before, set(), set())


def adds(world: World, number: int, start: str = "new") -> set[str]:
    names = [f"{start}{i}" for i in range(number)]
    new = [{"content": name, "namespace": ALICE, "id": name} for name in names]
    return {item.id for item in world.memory.add_many(new)}


def forgets(world: World) -> set[str]:
    world.memory.forget("i8")
    return {"i8"}


@pytest.mark.parametrize(
    ("call", "adds_some"),
    [
        (lambda world: adds(world, 1), True),
        (lambda world: adds(world, SMALL.cells.drain_at), True),
        (lambda world: adds(world, 60), True),
        (forgets, False),
        (lambda world: world.memory.sweep() and set(), False),
        (lambda world: world.memory.flush() or set(), False),
        (lambda world: world.memory.close() or set(), False),
    ],
    ids=["add", "adds", "bulk add", "forget", "sweep", "flush", "close"],
)
def test_a_file_of_before_can_be_written_to_first(
    path: Path,
    before: tuple[bytes, Found, dict[object, Any]],
    call: Callable[[World], set[str]],
    adds_some: bool,
) -> None:
    """What is written is kept, and so is what was there."""
    world = opened(path)
    changed = call(world)
    world.memory.close()

    besides, gone = (changed, set[str]()) if adds_some else (set[str](), changed)
    assert_as_before(path, before, besides, gone)


def test_totals_of_a_file_of_before_are_true_at_once(path: Path) -> None:
    """Also of one that is written to before anyone searches it, and never below nothing."""
    world = opened(path)
    assert world.memory.check() == []
    waiting = world.memory.stats().pending
    assert (waiting, world.memory.stats().cells) == (world.memory.stats().vectors, 0)

    world.memory.forget("i8")

    assert world.memory.check() == []
    assert (world.memory.stats().pending, world.memory.stats().cells) == (waiting - 1, 0)
    world.memory.close()


def by_words(world: World) -> list[list[tuple[str, float]]]:
    """Return what words find, with ranks, in order."""
    queries = ("thing1", "colour2", "thing39 kind4", "nothing of that", "ha", "Oslo")
    found = [world.memory.search(query, namespace=ALICE, k=40) for query in queries]
    return [[(hit.item.id, hit.similarity) for hit in result.hits] for result in found]


def test_a_file_with_wider_postings_finds_the_same_words_and_vectors(tmp_path: Path) -> None:
    """Its saved index is of use, too: nothing is made anew."""
    path = tmp_path / "amv.db"
    world = World(SqliteStore.open(path), WHOLE, clock=FakeClock(1_800_000_000.0))
    items = world.fill(150)
    world.memory.add("ha " * 400, namespace=ALICE, id="often")
    world.memory.add("ha ha", namespace=ALICE, id="twice")
    world.claim("Oslo")
    world.memory.forget(items[3].id)
    world.memory.close()
    world = opened(path)
    words, vectors = by_words(world), found(world)
    cells = world.row().cells
    world.memory.close()

    turn_back(path, SMALLER - 1)
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM cell_snapshot").get > 0
        assert connection.execute("SELECT max(length(tail) % 8) FROM term").get == 0

    world = opened(path)
    assert by_words(world) == words
    assert found(world) == vectors
    assert world.row().cells == cells
    assert world.memory.check() == []
    world.memory.add("new of ha", namespace=ALICE, id="new")
    assert "new" in {i for i, _ in by_words(world)[4]}
    world.memory.close()


def test_a_damaged_list_of_wider_postings_does_not_keep_a_file_from_opening(
    tmp_path: Path,
) -> None:
    """What is damaged stays so, and is told by the check."""
    path = tmp_path / "amv.db"
    world = World(SqliteStore.open(path), WHOLE, clock=FakeClock(1_800_000_000.0))
    world.fill(20)
    world.memory.close()
    turn_back(path, SMALLER - 1)
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE term SET tail = substr(tail, 1, length(tail) - 3)")

    world = opened(path)
    assert any("frequency" in problem for problem in world.memory.check())
    world.memory.close()


@pytest.mark.parametrize("version", range(1, len(migrations())))
def test_a_file_of_any_version_before_is_sound_once_it_is_open(
    tmp_path: Path, version: int
) -> None:
    """Whatever a migration drops, totals must not tell of it any more."""
    path = tmp_path / "amv.db"
    world = opened(path)
    world.fill(60)
    assert world.row().cells > 0
    world.memory.close()
    turn_back(path, version)

    with closing(SqliteStore.open(path)) as store:
        assert store.check() == []


def test_a_search_of_more_than_may_wait_puts_it_into_cells_first(tmp_path: Path) -> None:
    """A namespace that nobody writes to any more would be searched in part for ever."""
    path, tight = tmp_path / "amv.db", replace(WHOLE, budget=Budget(hot=256, warm=256, cold=256))
    world = World(SqliteStore.open(path), tight)
    world.fill(720)
    world.memory.close()
    turn_back(path, THIRD_CELL - 1)

    for _ in range(2):
        world = World(SqliteStore.open(path), tight)
        result = world.memory.search("thing719", namespace=ALICE, cold=True)
        assert (result.complete, result.hits[0].item.content[:8]) == (True, "thing719")
        assert (world.row().pending, world.row().cells > 0) == (0, True)
        assert world.memory.check() == []
        world.memory.close()


DEFAULT = replace(SMALL, value_model=PRESETS["default"], hot_max=4)
PAPER = replace(SMALL, value_model=PRESETS["paper"])
START_S = 1_800_000_000.0


def of_before(path: Path, settings: MemorySettings, *, months: int) -> World:
    """Leave a file that says nothing of constants: of six items one was used, and one shown."""
    world = World(SqliteStore.open(path), settings, clock=FakeClock(START_S))
    items = world.fill(6)
    world.use(items[2].id)
    world.memory.reinforce([items[3].id], contributed=False)
    world.add("plan", id="plan", valid_from=START_S + 2 * months * MONTH_S)
    world.clock.advance(months * MONTH_S)
    world.memory.sweep()
    world.memory.close()
    turn_back(path, SCALED - 1)
    return World(SqliteStore.open(path), settings, clock=world.clock)


def test_what_a_file_of_before_holds_competes_with_what_is_new(tmp_path: Path) -> None:
    """An item that nobody used would else be worth more than one used twenty times since.

    The constants of these worlds are those that the default had then.
    """
    world = of_before(tmp_path / "amv.db", SMALL, months=1)
    memory = world.another(DEFAULT)

    dry = memory.sweep(dry_run=True)
    assert replace(dry, dry_run=False) == memory.sweep()

    values = {item.id: item.value for item in memory.list(namespace=ALICE).items}
    assert values.pop("plan") == DEFAULT.value_model.initial
    assert values.pop("i3") == pytest.approx(0.0125, rel=1e-6)
    # 0.58 is what it was worth when it had been shown.
    assert values.pop("i4") == pytest.approx(0.0029, rel=1e-6)
    assert list(values.values()) == pytest.approx([0.0025] * 4, rel=1e-6)
    new = [memory.add(f"new{i}", namespace=ALICE, id=f"new{i}").id for i in range(6)]
    memory.reinforce([new[0]])
    memory.flush()
    memory.sweep()
    hot = {i.id for i in memory.list(namespace=ALICE).items if i.tier is Tier.HOT}
    assert hot == {"i3", new[0], *new[-2:]}
    assert memory.check() == []
    assert world.row().scale == DEFAULT.value_model.scale
    world.store.close()


def test_whoever_keeps_the_constants_of_before_finds_the_values_of_before(tmp_path: Path) -> None:
    """Opening a file changes none of them."""
    settings = PAPER
    world = of_before(tmp_path / "amv.db", settings, months=1)
    values = [item.value for item in world.memory.list(namespace=ALICE).items]

    world.memory.sweep()

    assert [i.value for i in world.memory.list(namespace=ALICE).items] == values
    assert values[:4] == pytest.approx([0.25, 0.25, 0.35, 0.29], rel=1e-6)
    assert world.row().scale == settings.value_model.scale
    world.store.close()


@pytest.mark.parametrize("half_life_s", [60.0, MONTH_S])
def test_a_file_that_had_the_constants_of_now_without_saying_so_keeps_its_values(
    tmp_path: Path, half_life_s: float
) -> None:
    """What is new there tells; made anew they would all be next to nothing."""
    model = replace(DEFAULT.value_model, half_life_s=half_life_s)
    path = tmp_path / "amv.db"
    world = of_before(path, replace(DEFAULT, value_model=model), months=0)
    values = [item.value for item in world.memory.list(namespace=ALICE).items]
    assert values[:4] == pytest.approx([0.005, 0.005, 0.025, 0.005], rel=1e-3)

    world.memory.sweep()
    world.add("later", id="later")

    assert [i.value for i in world.memory.list(namespace=ALICE).items][: len(values)] == values
    assert world.row().scale == model.scale
    world.store.close()
