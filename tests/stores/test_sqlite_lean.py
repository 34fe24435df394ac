"""A saved index is kept without the centroids that the store has anyway."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.memory.cells import CentroidIndex, unit
from amv.memory.ports import Floats, Ids, Members, Writer
from amv.stores.sqlite import SqliteStore
from amv.stores.sqlite.lean import with_centroids, without_centroids
from amv.stores.sqlite.writer import PART_BYTES
from tests.stores.older import SMALLER, turn_back
from tests.stores.test_sqlite_erase import stored_bytes

DIMENSION = 64
COUNT = 200
NO_IDS = np.zeros(0, dtype=np.int64)
NO_MEMBERS = Members(NO_IDS, np.zeros((0, DIMENSION // 2), dtype=np.uint8))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amv.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(path)
    yield store
    store.close()


def centroids(count: int, seed: int = 1) -> Floats:
    """Return unit vectors of components that 16 bits hold, as the store keeps them."""
    matrix = unit(np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32))
    return matrix.astype(np.float16).astype(np.float32)


def new_cells(store: SqliteStore, matrix: Floats, name: str = "a") -> tuple[int, Ids]:
    """Add a namespace with a cell for each row; return its number and theirs."""

    def work(writer: Writer) -> tuple[int, Ids]:
        ns_id = writer.create_namespace((name,), 1.0).ns_id
        found = [writer.add_cell(ns_id, row, NO_MEMBERS) for row in matrix]
        return ns_id, np.asarray(found, dtype=np.int64)

    return store.write(work)


def saved(matrix: Floats, cell_ids: Ids) -> bytes:
    """Return a saved index over centroids."""
    index = CentroidIndex(DIMENSION)
    index.add(cell_ids, matrix)
    return index.snapshot()


def kept(store: SqliteStore, ns_id: int) -> bytes | None:
    with store.read() as reader:
        return reader.cell_snapshot(ns_id)


def drop(store: SqliteStore, *cell_ids: int) -> None:
    def work(writer: Writer) -> None:
        for cell_id in cell_ids:
            writer.drop_cell(cell_id)

    store.write(work)


def extend(store: SqliteStore, cell_id: int, members: Members) -> None:
    store.write(lambda w: w.extend_cells({cell_id: members}))


def remove(store: SqliteStore, cell_id: int, gone: Ids) -> None:
    store.write(lambda w: w.remove_members(cell_id, gone))


def count(store: SqliteStore, expression: str) -> int:
    with store.read() as reader:
        return int(reader.execute(f"SELECT {expression}").get)  # type: ignore[attr-defined]


def test_a_saved_index_takes_no_second_copy_of_centroids(store: SqliteStore) -> None:
    matrix = centroids(COUNT)
    ns_id, cell_ids = new_cells(store, matrix)
    snapshot = saved(matrix, cell_ids)

    store.write(lambda w: w.put_cell_snapshot(ns_id, snapshot))

    assert kept(store, ns_id) == snapshot
    bytes_kept = count(store, "sum(length(data) + length(cell_ids)) FROM cell_snapshot")
    assert bytes_kept == len(snapshot) - COUNT * (2 * DIMENSION - 8)


def test_it_outlives_the_cells_in_it(store: SqliteStore) -> None:
    """It leads through them until it is saved anew; cells that are newer leave nothing."""
    matrix = centroids(COUNT)
    ns_id, cell_ids = new_cells(store, matrix)
    snapshot = saved(matrix, cell_ids)
    store.write(lambda w: w.put_cell_snapshot(ns_id, snapshot))
    newer = store.write(lambda w: w.add_cell(ns_id, centroids(1, seed=2)[0], NO_MEMBERS))

    drop(store, *cell_ids[::3].tolist(), newer)

    assert kept(store, ns_id) == snapshot
    assert count(store, "count(*) FROM waypoint") == len(cell_ids[::3])
    # Saved anew as it is, it holds those by itself.
    store.write(lambda w: w.put_cell_snapshot(ns_id, snapshot))
    assert kept(store, ns_id) == snapshot
    assert count(store, "count(*) FROM waypoint") == 0


def test_one_of_a_file_of_before_goes_on_outliving_them(path: Path) -> None:
    """Where waypoints had another key: none is lost, and those to come find their place."""
    matrix = centroids(COUNT)
    with closing(SqliteStore.open(path)) as store:
        ns_id, cell_ids = new_cells(store, matrix)
        snapshot = saved(matrix, cell_ids)
        store.write(lambda w: w.put_cell_snapshot(ns_id, snapshot))
        drop(store, *cell_ids[::3].tolist())
    turn_back(path, SMALLER)

    with closing(SqliteStore.open(path)) as store:
        assert kept(store, ns_id) == snapshot
        drop(store, *cell_ids[1::3].tolist())
        assert kept(store, ns_id) == snapshot
        dropped = len(cell_ids[::3]) + len(cell_ids[1::3])
        assert count(store, "count(*) FROM waypoint") == dropped


def test_another_namespace_keeps_its_own(store: SqliteStore) -> None:
    """Also where the centroids of both are the same."""
    matrix = centroids(20)
    (a, of_a), (b, of_b) = new_cells(store, matrix, "a"), new_cells(store, matrix, "b")
    store.write(lambda w: w.put_cell_snapshot(a, saved(matrix, of_a)))
    store.write(lambda w: w.put_cell_snapshot(b, saved(matrix, of_b)))
    drop(store, *of_a.tolist())

    store.write(lambda w: w.put_cell_snapshot(a, None))

    assert kept(store, a) is None
    assert kept(store, b) == saved(matrix, of_b)
    assert count(store, "count(*) FROM waypoint") == 0


@pytest.mark.parametrize("way", ["put_cell_snapshot", "clear_index", "drop_namespace"])
def test_the_centroid_of_a_dropped_cell_goes_with_the_saved_index(
    store: SqliteStore, path: Path, way: str
) -> None:
    """A centroid may be near what was forgotten."""
    matrix = centroids(20)
    ns_id, cell_ids = new_cells(store, matrix)
    canary = matrix[3].astype(np.float16).tobytes()
    store.write(lambda w: w.put_cell_snapshot(ns_id, saved(matrix, cell_ids)))
    drop(store, int(cell_ids[3]))
    assert store.erase()
    assert canary in stored_bytes(path)

    args = (None,) if way == "put_cell_snapshot" else ()
    store.write(lambda w: getattr(w, way)(ns_id, *args))

    assert store.erase()
    assert canary not in stored_bytes(path)


def test_one_with_a_centroid_missing_is_refused_by_its_checksum(store: SqliteStore) -> None:
    matrix = centroids(20)
    ns_id, cell_ids = new_cells(store, matrix)
    store.write(lambda w: w.put_cell_snapshot(ns_id, saved(matrix, cell_ids)))

    with closing(apsw.Connection(store.path)) as other:
        other.execute("UPDATE cell_snapshot SET cell_ids = substr(cell_ids, 1, 157)")

    broken = kept(store, ns_id)
    assert broken is not None
    assert broken != saved(matrix, cell_ids)


ROWS = st.lists(st.binary(min_size=4, max_size=4), max_size=6)


@given(
    start=st.binary(max_size=32),
    claimed=st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    rows=ROWS,
    rest=st.binary(max_size=9),
    cells=st.dictionaries(st.integers(1, 2**40), st.binary(min_size=4, max_size=4), max_size=6),
)
def test_whatever_it_looks_like_it_is_the_same_to_the_byte(
    start: bytes,
    claimed: tuple[int, int] | None,
    rows: list[bytes],
    rest: bytes,
    cells: dict[int, bytes],
) -> None:
    """What begins as a saved index does, and what does not."""
    cells |= {2**41 + n: row for n, row in enumerate(rows[::2])}
    counts = claimed or (len(rows), 4)
    numbers = b"".join(number.to_bytes(4, "little") for number in counts)
    snapshot = start.ljust(32 if claimed is None else 0, b"\0") + numbers + b"".join(rows) + rest

    data, cell_ids = without_centroids(snapshot, cells.items())

    assert with_centroids(data, cell_ids, cells) == snapshot
    if claimed is None:
        assert len(cell_ids) == len(rows)
        assert len(data) == len(snapshot) - 4 * np.count_nonzero(cell_ids)
        assert np.count_nonzero(cell_ids) >= len(rows[::2])


def test_members_are_kept_in_parts_of_about_one_size(store: SqliteStore) -> None:
    """However many come at a time; rows of any length would leave pages half empty."""
    _, cell_ids = new_cells(store, centroids(3))
    rng = np.random.default_rng(5)
    ids = np.arange(1, 91, dtype=np.int64) * 4096
    codes = rng.integers(0, 256, (90, 192), np.uint8)
    one_by_one, in_heaps, at_once = cell_ids.tolist()
    for i in range(90):
        extend(store, one_by_one, Members(ids[i : i + 1], codes[i : i + 1]))
    for i in range(0, 90, 17):
        extend(store, in_heaps, Members(ids[i : i + 17], codes[i : i + 17]))
    extend(store, at_once, Members(ids, codes))

    assert count(store, "count(*) FROM cell_part") == 3 * -(-90 // (PART_BYTES // 200))
    assert count(store, "max(length(data)) FROM cell_part") <= PART_BYTES
    with store.read() as reader:
        held = reader.members(cell_ids)
    for members in held.values():
        np.testing.assert_array_equal(members.ids, ids)
        np.testing.assert_array_equal(members.codes, codes)


def test_a_cell_with_much_coming_and_going_is_numbered_anew(store: SqliteStore) -> None:
    """Numbers of parts are not used again while there are later ones, and they are 256."""
    _, cell_ids = new_cells(store, centroids(2))
    cell_id, neighbour = cell_ids.tolist()
    ids = np.arange(1, 601, dtype=np.int64) * 4096
    codes = np.random.default_rng(6).integers(0, 256, (600, 700), np.uint8)
    stays = Members(ids[:1], codes[:1])
    store.write(lambda w: w.extend_cells({cell_id: stays, neighbour: stays}))

    for i in range(1, 600):
        extend(store, cell_id, Members(ids[i : i + 1], codes[i : i + 1]))
        remove(store, cell_id, ids[max(1, i - 2) : i])

    with store.read() as reader:
        held = reader.members(cell_ids)
    assert held[neighbour].ids.tolist() == ids[:1].tolist()
    assert held[cell_id].ids.tolist() == ids[[0, 599]].tolist()
    np.testing.assert_array_equal(held[cell_id].codes, codes[[0, 599]])
