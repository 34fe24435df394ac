"""Rows and blobs that can't be decoded: an error of the store, and a sentence of the check."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
import pytest

from amv.errors import StoreError
from amv.memory.filters import Compare, Not
from amv.memory.item import Claim
from amv.memory.ports import PASSAGES_MAX, Change, HistoryRow, Members, NewPostings, Vectors, Writer
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.reader import SqliteReader
from amv.testing.samples import NOW_S, plain

KEYS = (1, 2)
IDS = np.array([key * PASSAGES_MAX for key in KEYS], dtype=np.int64)
MATRIX = np.eye(2, 8, dtype=np.float32)
EVERY_VALUE = Not(Compare("n", "eq", 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a closed file with two items in each of two namespaces; only the first is indexed.

    Each of its two vectors is in all three cells.
    """
    path = tmp_path / "amv.db"
    with closing(SqliteStore.open(path)) as store:
        store.write(_fill)
        assert not [line for line in store.check() if "says" not in line]
    return path


def _fill(writer: Writer) -> None:
    for name in ("alice", "bob"):
        ns = writer.create_namespace((name,), 1.0)
        row = replace(plain(ns.ns_id, ""), metadata={"n": 2}, claim=Claim("s", "a", 1))
        writer.insert([replace(row, id=f"{name}{number}") for number in range(2)])
        writer.put_namespace(replace(ns, version=1, live=2))
        writer.log_change(ns.ns_id, 1, Change(items=[1]))
    writer.add_history(1, HistoryRow(NOW_S, "edited", "before", Claim("s", "a", 0)))
    writer.add_vectors(1, Vectors(IDS, MATRIX))
    writer.stage_vectors(Vectors(IDS, MATRIX))
    members = Members(IDS, np.arange(8, dtype=np.uint8).reshape(2, 4))
    cells = [writer.add_cell(1, row, members) for row in np.eye(3, 8, dtype=np.float32)]
    writer.place(IDS, np.full((2, 3), cells))
    writer.add_postings(1, [NewPostings(key, {"word": 1}, 1) for key in KEYS])


def execute(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
        assert connection.total_changes() > 0


@pytest.fixture
def store(path: Path, damage: str) -> Iterator[SqliteStore]:
    execute(path, damage)
    with closing(SqliteStore.open(path)) as store:
        yield store


@pytest.mark.parametrize(
    ("damage", "what", "read"),
    [
        ("item SET metadata = '{'", "items", lambda r: r.rows(KEYS)),
        ("item SET metadata = '1'", "items", lambda r: r.matching(1, EVERY_VALUE, NOW_S, 9)),
        (
            "item SET metadata = CAST(x'ff' AS TEXT)",
            "items",
            lambda r: r.matching(1, EVERY_VALUE, NOW_S, 9),
        ),
        ("item SET content = CAST(x'ff' AS TEXT)", "items", lambda r: r.rows_with_id("alice0")),
        ("item SET status = -1", "items", lambda r: r.rows(KEYS)),
        ("item SET subject = ''", "items", lambda r: r.claim_rows(1, "", "a")),
        ("item_state SET protection = 99", "items", lambda r: r.rows(KEYS)),
        ("item_state SET protection = 99", "items", lambda r: r.states(1, KEYS)),
        ("history SET claim = '[1]'", "entries of histories", lambda r: r.history(1)),
        ("namespace SET name = ns_id", "namespaces", lambda r: r.namespace_by_id(1)),
        (
            "namespace SET name = CAST(x'ff' || ns_id AS TEXT)",
            "namespaces",
            lambda r: r.namespaces(),
        ),
        ("change SET payload = x'c1'", "changes", lambda r: r.changes(1, 0)),
        ("change SET payload = x'90'", "changes", lambda r: r.changes(1, 0)),
        ("vector_data SET data = x'00'", "vectors", lambda r: r.vectors(IDS)),
        ("staged_vector SET data = x''", "staged vectors", lambda r: r.staged(IDS)),
        ("cell_part SET data = x'00'", "parts of cells", lambda r: r.members(np.array([1]))),
        ("cell_part SET members = 0", "parts of cells", lambda r: r.members(np.array([1]))),
        ("cell_part SET members = -1", "parts of cells", lambda r: r.members(np.array([1]))),
        ("cell_part SET members = 1 << 61", "parts of cells", lambda r: r.members(np.array([1]))),
        (
            "cell_part SET data = CAST(data || x'00' AS BLOB)",
            "parts of cells",
            lambda r: r.members(np.array([1])),
        ),
        ("cell SET centroid = x'00'", "centroids", lambda r: r.centroids(np.array([1]))),
        ("term SET tail = x'00'", "lists of postings", lambda r: r.postings(1, "word", 9)),
    ],
)
def test_what_can_not_be_decoded_is_an_error_and_reported(
    path: Path, damage: str, what: str, read: Callable[[SqliteReader], object]
) -> None:
    execute(path, f"UPDATE {damage}")

    with closing(SqliteStore.open(path)) as store:
        with pytest.raises(StoreError, match="is damaged; run `amv doctor`"), store.read() as r:
            read(r)  # type: ignore[arg-type]
        assert any(line.endswith(f"{what} that can't be read") for line in store.check())


@pytest.mark.parametrize("damage", ["UPDATE vector_data SET data = x'0000' WHERE id < 5000"])
def test_the_error_has_its_cause_and_a_writer_raises_it_too(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="several dimensions"):
        store.write(lambda writer: writer.vectors(IDS))

    with pytest.raises(StoreError) as caught:
        store.write(lambda writer: writer.vectors(IDS[:1]))

    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("damage", ["UPDATE term SET tail = x'00'"])
def test_nothing_is_appended_to_half_a_posting(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="damaged"):
        store.write(lambda w: w.add_postings(1, [NewPostings(9, {"word": 1}, 1)]))


@pytest.mark.parametrize("damage", ["UPDATE item SET metadata = '{'"])
@pytest.mark.parametrize(
    "error", [ValueError, TypeError, UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_what_the_caller_raises_stays_what_it_is(
    store: SqliteStore, error: type[Exception] | Exception
) -> None:
    def work(_writer: object) -> None:
        raise error

    kind = error if isinstance(error, type) else type(error)
    with pytest.raises(kind):
        store.write(work)
    with pytest.raises(kind), store.read():
        raise error


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE item SET ns_id = 2 WHERE key = 1", "1 postings that lead to an item of another"),
        ("UPDATE item SET ns_id = 2 WHERE key = 1", "1 vectors placed in another namespace than"),
        ("UPDATE term SET base = base + 2", "2 postings that lead to an item of another namespace"),
        ("UPDATE term SET base = 90", "2 postings that lead to an item that is gone"),
        ("UPDATE placement SET ns_id = 2", "2 vectors placed in another namespace than that of"),
    ],
)
def test_what_leads_into_another_namespace_is_reported(store: SqliteStore, problem: str) -> None:
    assert any(problem in line for line in store.check())


WIDER = "CAST(data || zeroblob(members) AS BLOB)"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (f"UPDATE cell_part SET data = {WIDER}", "3 parts of cells whose length is not"),
        ("UPDATE cell_part SET members = 1", "3 parts of cells whose length is not"),
        ("UPDATE cell_part SET members = 3", "3 parts of cells whose length is not"),
        ("DELETE FROM cell_part WHERE id / 256 = 1", "2 vectors that are not in just the cells"),
        ("DELETE FROM cell_part WHERE id / 256 = 2", "2 vectors that are not in just the cells"),
        ("DELETE FROM cell_part WHERE id / 256 = 3", "2 vectors that are not in just the cells"),
        ("UPDATE placement SET second_id = 0", "2 vectors that are not in just the cells"),
        ("UPDATE placement SET third_id = 0", "2 vectors that are not in just the cells"),
        ("UPDATE placement SET second_id = 1", "4 vectors that are not in just the cells"),
        ("UPDATE placement SET third_id = 2", "4 vectors that are not in just the cells"),
        ("UPDATE placement SET cell_id = 7", "2 vectors placed in cells that are gone"),
        ("UPDATE placement SET second_id = 7", "2 vectors placed in cells that are gone"),
        ("UPDATE placement SET third_id = 7", "2 vectors placed in cells that are gone"),
        ("DELETE FROM cell WHERE cell_id = 1", "2 vectors placed in cells that are gone"),
        ("DELETE FROM cell WHERE cell_id = 2", "2 vectors placed in cells that are gone"),
        ("DELETE FROM cell WHERE cell_id = 3", "2 vectors placed in cells that are gone"),
    ],
)
def test_what_cells_hold_is_compared_with_where_vectors_are(
    store: SqliteStore, problem: str
) -> None:
    """All cells of each, and whether there is a code for each member."""
    assert any(problem in line for line in store.check())


@pytest.mark.parametrize("damage", [f"UPDATE cell_part SET data = {WIDER} WHERE id < 512"])
def test_a_cell_is_not_extended_by_codes_of_another_width(store: SqliteStore) -> None:
    """Those put together would be cut up at the wrong places."""
    members = Members(IDS, np.arange(8, dtype=np.uint8).reshape(2, 4))

    with pytest.raises(StoreError, match="several dimensions"):
        store.write(lambda writer: writer.extend_cells({1: members}))


@pytest.mark.parametrize(
    "damage", ["DELETE FROM cell; DELETE FROM term; INSERT INTO posting VALUES (7, 1, x'00')"]
)
def test_clearing_an_index_removes_what_has_no_cell_or_term(store: SqliteStore) -> None:
    store.write(lambda writer: writer.clear_index(1))

    with store.read() as reader:
        assert isinstance(reader, SqliteReader)
        for table in ("cell_part", "posting"):
            assert reader.execute(f"SELECT count(*) FROM {table}").get == 0
