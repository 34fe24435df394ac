"""Reading: by index, at one moment, and with the answers that the filters define."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amv
from amv.errors import StoreClosed, StoreError, StoreUnavailable
from amv.memory import filters
from amv.memory.filters import Compare
from amv.memory.item import Status
from amv.memory.ports import Writer
from amv.stores.sqlite import SqliteStore, filters_sql, postings, reader, writer
from amv.stores.sqlite.rows import SELECT_NAMESPACES, SELECT_ROWS
from amv.testing.samples import NOW_S, plain


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("reads") / "amv.db")


@pytest.fixture(scope="module")
def store(path: str) -> Iterator[SqliteStore]:
    store = SqliteStore.open(path, readers_max=2, busy_timeout_s=0.3)
    yield store
    store.close()


# ---------------------------------------------------------------- plans


def statements(module: ModuleType) -> list[str]:
    """Return the complete statements that a module holds."""
    found: list[str] = []
    for value in vars(module).values():
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and re.match(r"(SELECT|WITH|UPDATE|DELETE)\b", text):
                found.append(text + " e.value = ?" if text.endswith("AND ") else text)
    return found


def plan(connection: apsw.Connection, statement: str) -> list[str]:
    # Half a statement, as other statements begin, is completed by its parenthesis.
    statement += ")" * (statement.count("(") - statement.count(")"))
    numbers = [int(number) for number in re.findall(r"\?(\d)", statement)]
    count = max(numbers) if numbers else statement.count("?")
    found = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * count)
    return [str(row[3]) for row in found]


WHOLE = (SELECT_ROWS, SELECT_NAMESPACES, reader._KEYS)
"""What is narrowed down by those who use it, or meant to list all namespaces or keys."""


@pytest.mark.parametrize("module", [reader, writer, filters_sql, postings])
def test_no_statement_reads_a_table_from_end_to_end(
    store: SqliteStore, path: str, module: ModuleType
) -> None:
    """A store of any size: what one request reads depends on what it asks for alone."""
    checked = [one for one in statements(module) if one not in WHOLE]
    with closing(apsw.Connection(path)) as connection:
        scans = {
            statement: step
            for statement in checked
            for step in plan(connection, statement)
            if re.match(r"SCAN (?!a\b|carray|owner|\(subquery)", step)
        }
        control = plan(connection, SELECT_ROWS)

    assert len(checked) > 3
    assert scans == {}
    assert any(step.startswith("SCAN") for step in control)


ALL_OF_ONE = "SEARCH item USING INDEX item_by_namespace (ns_id=?)"


@pytest.mark.parametrize("module", [reader, writer, filters_sql, postings])
def test_no_statement_goes_through_a_whole_namespace(
    store: SqliteStore, path: str, module: ModuleType
) -> None:
    """An index that gives the order may look cheaper than the one that finds what is asked for."""
    with closing(apsw.Connection(path)) as connection:
        whole = [one for one in statements(module) if ALL_OF_ONE in plan(connection, one)]
        control = plan(connection, "SELECT key FROM item WHERE ns_id = ?")

    assert whole == []
    assert control == [ALL_OF_ONE.replace("INDEX", "COVERING INDEX")]


@pytest.fixture
def steps() -> Iterator[list[int]]:
    """Count the steps of SQLite's machine on all connections opened meanwhile, by tens."""
    counted = [0]

    def tick() -> bool:
        counted[0] += 1
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_progress_handler(tick, 10)

    apsw.connection_hooks.append(hook)
    yield counted
    apsw.connection_hooks.remove(hook)


CALLS: dict[str, Callable[[amv.Memory], object]] = {
    "add": lambda m: m.add("the rain falls on hills", namespace=("a",)),
    "add again": lambda m: m.add("thing 7 is kept", namespace=("a",)),
    "add lines": lambda m: m.add("thing 8 is kept\nthing 9 is kept", namespace=("a",)),
    "add with an id": lambda m: m.add("the sun", namespace=("a",), id="mine"),
    "add a claim": lambda m: m.add("x", namespace=("a",), claim=amv.Claim("s5", "is", "new")),
    "get": lambda m: m.get("i3", namespace=("a",)),
    "find a claim": lambda m: m.find_claim(("a",), "s6", "is"),
    "history": lambda m: m.history("i3", namespace=("a",)),
    "what contradicts": lambda m: m.contradicting("i4", namespace=("a",)),
    "list": lambda m: m.list(namespace=("a",), limit=5),
    "confirm": lambda m: m.confirm("i15", namespace=("a",)),
    "refute": lambda m: m.refute("i6", namespace=("a",)),
    "update": lambda m: m.update("i7", namespace=("a",), content="other words now"),
    "pin": lambda m: m.pin("i8", namespace=("a",)),
    "forget": lambda m: m.forget("i9", namespace=("a",)),
    "flush": lambda m: (m.reinforce(["i10"], namespace=("a",)), m.flush()),
}


def test_what_a_call_does_is_the_same_in_a_namespace_of_any_size(
    tmp_path: Path, steps: list[int]
) -> None:
    """Four times as many items make no call work harder."""
    took: dict[int, dict[str, int]] = {}
    for size in (1500, 6000):
        with amv.Memory.open(str(tmp_path / f"{size}.db"), embedder="hashing:8") as memory:
            for start in range(0, size, 500):
                memory.add_many(
                    {
                        "content": f"thing {n} is kept",
                        "namespace": ("a",),
                        "id": f"i{n}",
                        "claim": amv.Claim(f"s{n}", "is", "old") if n % 2 else None,
                    }
                    for n in range(start, start + 500)
                )
            memory.search("thing 5", namespace=("a",))
            took[size] = {}
            for name, call in CALLS.items():
                before = steps[0]
                call(memory)
                took[size][name] = steps[0] - before

    assert {
        name: (few, took[6000][name])
        for name, few in took[1500].items()
        if took[6000][name] > 1.5 * few + 100
    } == {}


# ---------------------------------------------------------------- filters

SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -0.0, 1.5, 2**53, -3, 1e308])
    | st.sampled_from(["", "0", "1", "a", "A", "ä", "\U0001f600", "\uffff", "%", "a'b"])
)
PATHS = st.sampled_from(["p", "q", "r.s", "", "p'"])
METADATA = st.dictionaries(
    PATHS,
    SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from(["s"]), SCALARS),
    max_size=3,
)
COMPARES = st.one_of(
    st.builds(Compare, PATHS, st.just("eq"), SCALARS),
    st.builds(
        Compare,
        PATHS,
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        SCALARS.filter(lambda value: value is not None and not isinstance(value, bool)),
    ),
    st.builds(Compare, PATHS, st.just("in"), st.lists(SCALARS, min_size=1, max_size=3).map(tuple)),
)
NODES = st.recursive(
    COMPARES,
    lambda parts: (
        st.builds(filters.Not, parts)
        | st.builds(filters.And, st.lists(parts, max_size=3).map(tuple))
        | st.builds(filters.Or, st.lists(parts, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
numbers = iter(range(1_000_000))


@settings(max_examples=150, deadline=None)
@given(st.lists(METADATA, max_size=12), st.lists(NODES, min_size=1, max_size=4))
def test_a_filter_finds_what_its_definition_says(
    store: SqliteStore, metadata: list[dict[str, object]], nodes: list[filters.Node]
) -> None:
    """Whichever ranges of the index are read to get there."""

    def add(writer: Writer) -> tuple[int, list[int]]:
        ns_id = writer.create_namespace((f"filters{next(numbers)}",), 1.0).ns_id
        rows = [replace(plain(ns_id, str(i)), metadata=one) for i, one in enumerate(metadata)]
        gone = [
            replace(plain(ns_id, f"expired{i}"), metadata=one, expires_s=NOW_S)
            for i, one in enumerate(metadata)
        ]
        old = [
            replace(plain(ns_id, f"old{i}"), metadata=one, status=Status.SUPERSEDED)
            for i, one in enumerate(metadata)
        ]
        return ns_id, writer.insert(rows + gone + old)[: len(rows)]

    ns_id, keys = store.write(add)

    with store.read() as snapshot:
        for node in nodes:
            expected = [
                key for key, one in zip(keys, metadata, strict=True) if filters.matches(node, one)
            ]
            assert snapshot.matching(ns_id, node, NOW_S, 1000) == expected
            some = snapshot.matching(ns_id, node, NOW_S, 2)
            assert len(some) == min(2, len(expected))
            assert set(some) <= set(expected)


@pytest.fixture(scope="module")
def mostly_expired(store: SqliteStore) -> int:
    """Return a namespace of 5 live items among 20,000 that have expired."""

    def add(writer: Writer) -> int:
        ns_id = writer.create_namespace(("mostly expired",), 1.0).ns_id
        row = replace(plain(ns_id, ""), metadata={"kind": "note"})
        writer.insert([replace(row, id=str(i), expires_s=NOW_S - i) for i in range(20_000)])
        writer.insert([replace(row, id=f"live{i}", expires_s=None) for i in range(3)])
        writer.insert([replace(row, id=f"later{i}", expires_s=NOW_S + 1) for i in range(2)])
        return ns_id

    return store.write(add)


@pytest.mark.parametrize(
    "node",
    [
        None,
        Compare("kind", "eq", "note"),
        Compare("kind", "gte", "a"),
        filters.Not(Compare("kind", "eq", "x")),
        filters.And((Compare("kind", "eq", "note"), Compare("kind", "lt", "z"))),
    ],
)
def test_live_items_are_found_without_reading_the_expired(
    store: SqliteStore, mostly_expired: int, node: filters.Node | None
) -> None:
    """Counted in steps of SQLite's machine: the expired alone would take 200,000."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    with store.read() as snapshot:
        connection = snapshot._connection  # type: ignore[attr-defined]
        connection.set_progress_handler(count, 10)
        found = snapshot.matching(mostly_expired, node, NOW_S, 100)
        connection.set_progress_handler(None)

    assert len(found) == 5
    assert steps * 10 < 30_000


def test_a_filter_looks_at_a_bounded_number_of_candidates(
    store: SqliteStore, mostly_expired: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then says less than there is, rather than working on."""
    monkeypatch.setattr(filters_sql, "VISITED_MAX", 4)

    with store.read() as snapshot:
        node = filters.Not(Compare("kind", "eq", "x"))
        assert len(snapshot.matching(mostly_expired, node, NOW_S, 100)) == 4


# ---------------------------------------------------------------- snapshots


def test_a_snapshot_does_not_move(store: SqliteStore) -> None:
    store.write(lambda writer: writer.set_meta("name", "before"))

    with store.read() as snapshot:
        assert snapshot.meta("name") == "before"
        store.write(lambda writer: writer.set_meta("name", "after"))
        assert snapshot.meta("name") == "before"

    with store.read() as snapshot:
        assert snapshot.meta("name") == "after"


def test_more_readers_than_connections_take_turns(store: SqliteStore) -> None:
    """Two connections, eight threads."""

    def read(_: int) -> str | None:
        with store.read() as snapshot:
            time.sleep(0.01)
            return snapshot.meta("absent")

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(read, range(40))) == [None] * 40


def test_when_all_readers_stay_in_use_the_next_is_told(store: SqliteStore) -> None:
    with (
        store.read(),
        store.read(),
        pytest.raises(StoreUnavailable, match="2 readers"),
        store.read(),
    ):
        pass

    with store.read() as snapshot:
        assert snapshot.meta("absent") is None


def test_a_reader_that_failed_is_usable_by_the_next(store: SqliteStore) -> None:
    """And the driver's error is the cause of ours."""
    for _ in range(4):
        with pytest.raises(StoreError) as caught, store.read() as snapshot:
            snapshot.execute("SELECT * FROM absent")  # type: ignore[attr-defined]
        assert isinstance(caught.value.__cause__, apsw.SQLError)
    with pytest.raises(ZeroDivisionError), store.read():
        raise ZeroDivisionError

    with store.read() as snapshot:
        assert snapshot.meta("absent") is None


def test_closing_while_a_snapshot_is_open_lets_it_finish(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "amv.db")
    store.write(lambda writer: writer.set_meta("name", "kept"))
    with store.read() as snapshot:
        snapshot.meta("name")
        thread = threading.Thread(target=store.close)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert snapshot.meta("name") == "kept"

    with pytest.raises(StoreClosed), store.read():
        pass


def test_the_row_of_a_namespace_is_the_same_object_until_it_changes(store: SqliteStore) -> None:
    """A search asks for it each time, so it is not built each time."""
    row = store.write(lambda writer: writer.create_namespace(("same",), 1.0))
    with store.read() as snapshot:
        first = snapshot.namespace(("same",))
    with store.read() as snapshot:
        assert snapshot.namespace(("same",)) is first

    store.write(lambda writer: writer.put_namespace(replace(row, live=7)))

    with store.read() as snapshot:
        assert snapshot.namespace(("same",)) == replace(row, live=7)
