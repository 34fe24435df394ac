"""Cells: codes that keep angles, groups that stay small, and the graph over their centroids."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import StoreError
from amv.memory.cells import (
    CentroidIndex,
    cluster,
    code_similarities,
    directions,
    divide,
    quantise,
    unit,
)
from amv.memory.ports import Floats, Ids


def random_units(seed: int, n: int, dimension: int = 32) -> Floats:
    """Return unit vectors that are always the same for *seed*."""
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((n, dimension)).astype(np.float32))


def clustered_units(seed: int, n: int, centres: int, dimension: int = 32) -> Floats:
    """Return unit vectors scattered around a few centres."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((centres, dimension))
    noise = rng.standard_normal((n, dimension)) * 0.3
    return unit((middles[np.arange(n) % centres] + noise).astype(np.float32))


def index_of(matrix: Floats) -> CentroidIndex:
    """Return an index with cells 1, 2, ... at these centroids."""
    index = CentroidIndex(matrix.shape[1])
    index.add(np.arange(1, len(matrix) + 1, dtype=np.int64), matrix)
    return index


def everything(groups: list[Ids]) -> list[int]:
    """Return the members of all groups, in order."""
    return sorted(int(i) for group in groups for i in group)


# ---------------------------------------------------------------- codes


def test_codes_keep_angles() -> None:
    """A search ranks cells' members by codes alone; what is left is for the rerank to take out."""
    matrix = random_units(1, 200, 384)
    query = random_units(2, 1, 384)[0]

    error = np.abs(code_similarities(query, quantise(matrix)) - matrix @ query)

    assert float(error.max()) < 0.005


def test_a_vector_is_its_own_nearest_code() -> None:
    matrix = random_units(3, 100, 384)

    for place in (0, 17, 99):
        similarities = code_similarities(matrix[place], quantise(matrix))
        assert int(np.argmax(similarities)) == place


def test_codes_of_nothing_are_nothing() -> None:
    """An empty cell costs no special case."""
    assert code_similarities(np.ones(8, np.float32), np.zeros((0, 8), np.int8)).shape == (0,)
    assert quantise(np.zeros((2, 8), np.float32)).tolist() == [[0] * 8] * 2


def test_codes_stand_for_directions() -> None:
    """A split takes them for the vectors it no longer has at hand."""
    matrix = random_units(4, 50, 384)
    again = directions(quantise(matrix))

    assert float((again * matrix).sum(axis=1).min()) > 0.9999


def test_a_zero_row_stays_zero() -> None:
    """Division by its length would make it NaN, which compares as nothing."""
    assert unit(np.zeros((1, 4), np.float32)).tolist() == [[0.0] * 4]


# ---------------------------------------------------------------- groups


@given(seed=st.integers(0, 2**32), n=st.integers(1, 80), count=st.integers(1, 12))
def test_clusters_divide_the_vectors_among_them(seed: int, n: int, count: int) -> None:
    """None is lost, none is doubled, none of the groups is empty."""
    groups = cluster(random_units(seed, n, 8), count)

    assert everything(groups) == list(range(n))
    assert 1 <= len(groups) <= min(count, n)
    assert all(len(group) for group in groups)


def test_clustering_finds_what_belongs_together() -> None:
    """Otherwise a cell's centroid says nothing about its members."""
    matrix = clustered_units(5, 60, 6)

    groups = cluster(matrix, 6)

    assert {frozenset((group % 6).tolist()) for group in groups} == {
        frozenset([centre]) for centre in range(6)
    }


def test_clustering_gives_the_same_each_time() -> None:
    """A rebuilt index is the same index."""
    matrix = random_units(6, 70)

    first, again = (cluster(matrix, 7) for _ in range(2))

    assert [group.tolist() for group in first] == [group.tolist() for group in again]


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 200),
    copies=st.integers(1, 60),
    target=st.integers(2, 8),
)
def test_no_group_is_larger_than_the_limit(seed: int, n: int, copies: int, target: int) -> None:
    """Also where vectors are equal, which no centroid can tell apart: a cell's cost is its size."""
    limit = 2 * target
    matrix = np.repeat(random_units(seed, -(-n // copies), 8), copies, axis=0)[:n]

    groups = divide(matrix, target=target, limit=limit)

    assert everything(groups) == list(range(n))
    assert all(1 <= len(group) <= limit for group in groups)


def test_groups_are_not_much_smaller_than_asked_for() -> None:
    """Every group costs a distance to its centroid."""
    groups = divide(random_units(7, 2000), target=16, limit=40)

    assert 10 <= 2000 / len(groups) <= 40


# ---------------------------------------------------------------- centroids


def test_the_nearest_cells_come_first_and_their_cost_is_counted() -> None:
    """At most what looking at all of them would take, and not nothing."""
    matrix = random_units(8, 50)
    probe = index_of(matrix).probe(matrix[20], 5)

    best = np.argsort(-(matrix @ matrix[20]))[:5] + 1
    assert probe.cell_ids.tolist() == best.tolist()
    assert 5 <= probe.distances <= 60


def test_fewer_cells_than_asked_for_are_all_of_them() -> None:
    probe = index_of(random_units(9, 3)).probe(random_units(10, 1)[0], 20)

    assert sorted(probe.cell_ids.tolist()) == [1, 2, 3]


def test_a_large_index_is_not_scanned_whole() -> None:
    """That is what it is for: work grows with its logarithm."""
    index = index_of(clustered_units(11, 4000, 100))

    assert index.probe(random_units(12, 1)[0], 16).distances < 1500


def test_removed_cells_are_found_no_more() -> None:
    matrix = random_units(13, 40)
    index = index_of(matrix)

    index.remove(np.arange(1, 31, dtype=np.int64))
    index.remove(np.zeros(0, dtype=np.int64))

    assert index.ids() == set(range(31, 41))
    assert len(index) == 10
    assert sorted(index.probe(matrix[3], 40).cell_ids.tolist()) == list(range(31, 41))


def test_an_index_finds_its_cells_after_most_others_were_dropped() -> None:
    """As when cells of near-equal vectors keep being split: none may become unreachable."""
    matrix = clustered_units(18, 600, 3)
    index = index_of(matrix[:20])
    for start in range(20, 600, 20):
        index.add(np.arange(start + 1, start + 21, dtype=np.int64), matrix[start : start + 20])
        index.remove(np.arange(start - 19, start - 4, dtype=np.int64))

    live = sorted(index.ids())
    assert sorted(index.probe(matrix[0], len(live)).cell_ids.tolist()) == live
    own = [i for i in live if int(index.nearest(matrix[i - 1 : i])[0]) == i]
    assert len(own) >= 0.98 * len(live)


def test_a_vector_whose_nearest_cells_were_all_dropped_finds_the_next() -> None:
    near = unit(np.ones((12, 32), np.float32) + 0.001 * random_units(19, 12))
    far = random_units(20, 60)
    index = index_of(np.concatenate([near, far]))

    index.remove(np.arange(1, 13, dtype=np.int64))

    expected = int(np.argmax(far @ near[0])) + 13
    assert index.nearest(near[:1]).tolist() == [expected]


def test_an_empty_index_has_no_nearest_cells() -> None:
    index = index_of(random_units(21, 3))
    index.remove(np.arange(1, 4, dtype=np.int64))

    assert index.probe(random_units(22, 1)[0], 5).cell_ids.tolist() == []


def test_nothing_of_a_dropped_cell_is_saved() -> None:
    """Its centroid may be the vector of an item that was forgotten."""
    matrix = random_units(23, 40)
    index = index_of(matrix)
    gone = matrix[4].astype(np.float16).tobytes()
    assert gone in index.snapshot()

    index.remove(np.asarray([5], dtype=np.int64))

    assert gone not in index.snapshot()
    index.remove(np.arange(1, 41, dtype=np.int64))
    assert matrix[7].astype(np.float16).tobytes() not in index.snapshot()


def test_a_centroid_of_another_dimension_is_a_damaged_store() -> None:
    with pytest.raises(StoreError, match="16 dimensions, needed 32"):
        CentroidIndex(32).add(np.asarray([1], dtype=np.int64), random_units(24, 1, 16))


def test_each_vector_finds_its_nearest_cell() -> None:
    """One by one and many at once."""
    matrix = random_units(14, 60)
    index = index_of(matrix)

    assert index.nearest(matrix).tolist() == list(range(1, 61))
    assert index.nearest(matrix[7:8]).tolist() == [8]


def test_a_snapshot_gives_the_same_index_again() -> None:
    matrix = random_units(15, 60)
    index = index_of(matrix)
    query = random_units(16, 1)[0]

    again = CentroidIndex(32, index.snapshot())

    assert again.ids() == index.ids()
    assert again.probe(query, 8).cell_ids.tolist() == index.probe(query, 8).cell_ids.tolist()
    assert again.size_bytes > 0


def test_an_empty_index_has_a_snapshot_too() -> None:
    assert len(CentroidIndex(8, CentroidIndex(8).snapshot())) == 0


@pytest.mark.parametrize("place", [0, 31, 32, 100, -1])
def test_a_damaged_snapshot_is_refused_before_it_is_read(place: int) -> None:
    """A graph with a broken link would take the process down with it."""
    data = bytearray(index_of(random_units(17, 20)).snapshot())
    data[place] ^= 1

    with pytest.raises(StoreError, match="checksum differs"):
        CentroidIndex(32, bytes(data))


@pytest.mark.parametrize("size", [0, 5, 31, 32, 50])
def test_a_truncated_snapshot_is_refused(size: int) -> None:
    data = index_of(random_units(18, 20)).snapshot()

    with pytest.raises(StoreError, match="damaged"):
        CentroidIndex(32, data[:size])


def test_a_snapshot_of_something_else_is_refused() -> None:
    """Whole, but no index."""
    data = b"something else, of no particular length"

    with pytest.raises(StoreError, match="can't be read"):
        CentroidIndex(32, sha256(data).digest() + data)


def test_a_snapshot_of_another_dimension_is_refused() -> None:
    """As is left behind by a change of the embedder."""
    data = index_of(random_units(19, 20, 16)).snapshot()

    with pytest.raises(StoreError, match="16 dimensions, needed 32"):
        CentroidIndex(32, data)
