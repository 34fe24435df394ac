"""What is the in-process store's own: sizes, read-only arrays, and what its check finds."""

from collections.abc import Iterator

import numpy as np
import pytest

from amv.memory.ports import Writer
from amv.stores.memory import MemoryStore
from amv.testing.samples import ids, members, populated, unit, vector_id, vectors


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


def test_the_size_of_nothing_is_zero_and_becomes_so_again(store: MemoryStore) -> None:
    """The estimate counts payload alone, so an emptied store weighs nothing."""
    assert store.size_bytes() == 0
    scene = populated(store, "alice")
    assert store.size_bytes() > 0

    store.write(lambda w: w.drop_namespace(scene.ns_id))

    assert store.size_bytes() == 0


def test_arrays_of_a_cell_cannot_be_written_to(store: MemoryStore) -> None:
    """They are the store's own, given out without a copy."""
    scene = populated(store, "alice")

    with store.read() as reader:
        held = reader.members(ids(scene.cell_id))[scene.cell_id]
    with pytest.raises(ValueError, match="read-only"):
        held.codes[:] = 0


def test_a_write_within_a_write_is_part_of_it(store: MemoryStore) -> None:
    """The lock is re-entrant; what the inner one did and undid stays consistent."""

    def fail(writer: Writer) -> None:
        writer.set_meta("a", "inner")
        raise ValueError("inner")

    def work(writer: Writer) -> None:
        writer.set_meta("a", "outer")
        with pytest.raises(ValueError, match="inner"):
            store.write(fail)

    store.write(work)

    with store.read() as reader:
        assert reader.meta("a") == "outer"


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        ("lost member", "which lacks it"),
        ("stray member", "placed elsewhere"),
        ("orphan vector", "belongs to no item"),
        ("orphan posting", "which is gone"),
    ],
)
def test_the_check_finds_what_does_not_agree(
    store: MemoryStore, sabotage: str, problem: str
) -> None:
    """The service under test keeps these in step; here is the control that a slip is seen."""
    scene = populated(store, "alice")
    first, hot = vector_id(scene.keys[0]), vector_id(scene.keys[1])

    def work(writer: Writer) -> None:
        if sabotage == "lost member":
            writer.remove_members(scene.cell_id, ids(first))
        elif sabotage == "stray member":
            writer.extend_cells({scene.cell_id: members(hot)})
        elif sabotage == "orphan vector":
            writer.add_vectors(scene.ns_id, vectors(vector_id(10**6)))
        else:
            writer.drop_vectors(writer.vector_ids(scene.keys[:1]))
            writer.delete(scene.keys[:1])

    store.write(work)

    assert any(problem in found for found in store.check())


def test_a_centroid_is_as_coarse_as_on_disk(store: MemoryStore) -> None:
    """It is kept as float16, so that a search here and on a file probes the same cells."""
    scene = populated(store, "alice")

    with store.read() as reader:
        matrix = reader.centroids(ids(scene.cell_id)).matrix
    np.testing.assert_array_equal(matrix, matrix.astype(np.float16).astype(np.float32))
    assert not np.array_equal(matrix[0], unit(1))
