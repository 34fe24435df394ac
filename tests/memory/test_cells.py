"""Cells: codes that keep angles, groups that stay small, and the graph over their centroids."""

from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from usearch.index import Index

from amv.errors import StoreError
from amv.memory import cells as cells_module
from amv.memory.cells import (
    PLACES,
    CentroidIndex,
    centroid_of,
    cluster,
    code_similarities,
    code_width,
    divide,
    quantise,
    rotate,
    rotate_back,
    spill,
    unit,
)
from amv.memory.ports import Codes, Floats, Ids

DIMENSIONS = (1, 2, 3, 7, 64, 383, 384)


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


# ---------------------------------------------------------------- the space of cells


def unpacked(codes: Codes, dimension: int) -> Floats:
    """Return the levels that codes hold, -7 to 7, taken apart one by one."""
    halves = [[half for byte in row for half in (byte & 15, byte >> 4)] for row in codes.tolist()]
    levels = np.asarray(halves).reshape(len(codes), -1)
    assert not levels[:, dimension:].any()
    return np.where(levels > 7, levels - 16, levels)[:, :dimension].astype(np.float32)


def rows_of(kind: str, dimension: int) -> Floats:
    """Return at most 200 unit vectors of a kind."""
    spikes = np.eye(dimension, dtype=np.float32)[:200]
    noise = random_units(25, len(spikes), dimension)
    return {
        "gaussian": random_units(1, 200, dimension),
        "one-hot": spikes,
        "spiky": unit(spikes + np.float32(0.3) * noise),
    }[kind]


def degrees(cosines: Floats) -> float:
    """Return the largest of the angles that have these cosines."""
    return float(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0)).max()))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_rotating_keeps_every_angle(dimension: int) -> None:
    """The centroid nearest in that space is the nearest; a matrix is turned as its rows are."""
    matrix = np.concatenate([rows_of("gaussian", dimension), rows_of("one-hot", dimension)])

    turned = rotate(matrix)

    assert turned.dtype == np.float32
    np.testing.assert_allclose(turned @ turned.T, matrix @ matrix.T, rtol=0, atol=2e-5)
    np.testing.assert_allclose(rotate(matrix[0]), turned[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(rotate_back(turned), matrix, rtol=0, atol=1e-5)
    assert rotate(matrix[:0]).shape == rotate_back(matrix[:0]).shape == (0, dimension)


def test_rotating_makes_the_components_of_any_vector_alike() -> None:
    """Of a vector with one large component, four bits would keep nothing else."""
    spikes = rows_of("one-hot", 384)

    assert float(np.abs(rotate(spikes)).max()) <= 1.5 / np.sqrt(384)


def test_a_rotation_is_the_same_in_every_process() -> None:
    """Codes are kept for years: these stand in files."""
    assert quantise(rotate(np.eye(3, 6, dtype=np.float32))).tolist() == [
        [67, 51, 18],
        [221, 48, 52],
        [253, 51, 206],
    ]


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("kind", ["gaussian", "one-hot", "spiky"])
def test_a_code_stands_for_its_vector_to_within_12_degrees(kind: str, dimension: int) -> None:
    """Also one of a single large component."""
    turned = rotate(rows_of(kind, dimension))

    codes = quantise(turned)
    again = unit(unpacked(codes, dimension))

    assert codes.shape == (len(turned), code_width(dimension))
    assert codes.dtype == np.uint8
    assert degrees((again * turned).sum(axis=1)) < 12.0


@pytest.mark.parametrize("dimension", [7, 64, 383, 384])
def test_the_length_of_a_vector_is_not_in_its_code(dimension: int) -> None:
    """An embedder may return vectors of any; only their direction counts."""
    turned = rotate(rows_of("gaussian", dimension))

    assert quantise(turned * np.float32(1024)).tolist() == quantise(turned).tolist()


def test_a_row_of_zeros_has_a_code_of_zeros() -> None:
    """An embedder may return one for a text without words; it is like nothing."""
    codes = quantise(np.zeros((2, 7), np.float32))

    assert codes.tolist() == [[0] * 4] * 2
    assert code_similarities(random_units(2, 1, 7)[0], codes).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_similarities_are_the_cosines_of_what_codes_hold(dimension: int) -> None:
    """Computed two components a byte, also where the last byte is half empty."""
    query, matrix = rotate(random_units(2, 1, dimension)), rotate(random_units(1, 200, dimension))
    codes = quantise(matrix)

    similarities = code_similarities(query[0], codes)

    asked = unit(unpacked(quantise(query), dimension))[0]
    expected = unit(unpacked(codes, dimension)) @ asked
    assert similarities.dtype == np.float32
    np.testing.assert_allclose(similarities, expected, rtol=0, atol=1e-6)


def test_codes_keep_angles() -> None:
    """A search ranks cells' members by codes alone; what is left is for the rerank to take out."""
    matrix = random_units(1, 2000, 384)
    query = random_units(2, 1, 384)[0]

    error = code_similarities(rotate(query), quantise(rotate(matrix))) - matrix @ query

    assert float(np.sqrt(np.mean(error**2))) < 0.012
    assert float(np.abs(error).max()) < 0.05


@pytest.mark.parametrize("cosine", [0.3, 0.6, 0.9])
def test_codes_make_nothing_look_less_alike(cosine: float) -> None:
    """They compete with exact cosines, and decide whether cold cells are looked into."""
    near, away = random_units(31, 300, 384), random_units(32, 300, 384)
    query = random_units(33, 1, 384)
    away -= (away @ query[0])[:, None] * query
    matrix = np.float32(cosine) * query + np.float32(np.sqrt(1 - cosine**2)) * unit(away)

    similarities = code_similarities(rotate(query[0]), quantise(rotate(matrix)))

    assert abs(float(similarities.mean()) - cosine) < 0.015
    assert float(code_similarities(rotate(near[0]), quantise(rotate(near[:1])))[0]) > 0.98


def test_a_vector_is_its_own_nearest_code() -> None:
    matrix = rotate(random_units(3, 100, 384))

    for place in (0, 17, 99):
        similarities = code_similarities(matrix[place], quantise(matrix))
        assert int(np.argmax(similarities)) == place


def test_codes_of_nothing_are_nothing() -> None:
    """An empty cell costs no special case."""
    nothing = quantise(np.zeros((0, 8), np.float32))

    assert nothing.shape == (0, 4)
    assert code_similarities(np.ones(8, np.float32), nothing).shape == (0,)


def test_a_zero_row_stays_zero() -> None:
    """Division by its length would make it NaN, which compares as nothing."""
    assert unit(np.zeros((1, 4), np.float32)).tolist() == [[0.0] * 4]


# ---------------------------------------------------------------- the other cells


def loss(x: Floats, chosen: list[Floats], other: Floats) -> float:
    """Return what `spill` minimises, as its docstring has it, in double precision."""
    left_over = x.astype(np.float64) - other
    total = float(left_over @ left_over)
    for centroid in chosen:
        r = x.astype(np.float64) - centroid
        total += 2.0 * (float(r @ left_over) / max(float(np.linalg.norm(r)), 1e-3)) ** 2
    return total


@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 12), k=st.integers(1, 9), spread=st.floats(0.0, 2)
)
@example(seed=0, n=3, k=2, spread=0.0)
@example(seed=0, n=3, k=3, spread=0.0)
def test_the_other_cells_are_those_the_formula_says(
    seed: int, n: int, k: int, spread: float
) -> None:
    """Against every centroid one by one; none is chosen twice, and none is made up."""
    middle, *noise = random_units(seed, n + k + 3, 6)
    scattered = unit(middle + np.float32(spread) * np.asarray(noise))
    matrix, centroids = scattered[:n], scattered[n:]
    near = np.argsort(-(matrix @ centroids.T), axis=1, kind="stable")[:, :k]

    chosen = spill(matrix, near, centroids)

    assert chosen.shape == (n, PLACES) == (n, 3)
    assert (chosen[:, 0] == 0).all()
    for x, cells, columns in zip(matrix, near.tolist(), chosen.tolist(), strict=True):
        there = columns[: min(k, 3)]
        assert columns[len(there) :] == [-1] * (3 - len(there))
        assert len(set(there)) == len(there)
        for place in range(1, len(there)):
            before = [centroids[cells[column]] for column in there[:place]]
            losses = [loss(x, before, centroids[i]) for i in cells]
            others = [losses[column] for column in range(k) if column not in there[:place]]
            assert 0 <= there[place] < k
            assert losses[there[place]] <= min(others) + 1e-4


def test_the_other_cells_lie_to_the_other_sides() -> None:
    """Farther centroids are chosen where the next ones miss in a direction already missed."""
    x, nearest, beside, across, below, far = unit(
        np.asarray(
            [
                [1, 0, 0, 0],
                [1, 0.3, 0, 0],
                [1, 0.35, 0, 0],
                [1, 0, 0.34, 0],
                [1, 0, 0.36, 0],
                [1, 0, 0, 0.4],
            ],
            np.float32,
        )
    )
    centroids = np.asarray([nearest, beside, across, below, far])

    assert spill(x[None, :], np.asarray([[0, 1, 2, 3, 4]]), centroids).tolist() == [[0, 2, 4]]
    assert spill(x[None, :], np.asarray([[0, 1, 2]]), centroids).tolist() == [[0, 2, 1]]


def test_a_vector_at_its_centroid_has_its_second_cell_next_to_it() -> None:
    """Nothing is left over there, and nothing may be divided by it."""
    centroids = clustered_units(26, 20, 1)
    near = np.argsort(-(centroids @ centroids.T), axis=1)[:, :8]

    chosen = spill(centroids, near, centroids)

    assert chosen[:, :2].tolist() == [[0, 1]] * 20
    assert ((chosen[:, 2] > 1) & (chosen[:, 2] < 8)).all()


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
    """Of so few, little more than looking at all of them would take; never nothing."""
    matrix = random_units(8, 50)
    probe = index_of(matrix).probe(matrix[20], 5, 10_000)

    best = np.argsort(-(matrix @ matrix[20]))[:5] + 1
    assert probe.cell_ids.tolist() == best.tolist()
    assert 5 <= probe.distances <= 75


def test_fewer_cells_than_asked_for_are_all_of_them() -> None:
    probe = index_of(random_units(9, 3)).probe(random_units(10, 1)[0], 20, 10_000)

    assert sorted(probe.cell_ids.tolist()) == [1, 2, 3]


def test_a_large_index_is_not_scanned_whole() -> None:
    """That is what it is for: work grows with its logarithm."""
    index = index_of(clustered_units(11, 4000, 100))

    assert index.probe(random_units(12, 1)[0], 16, 10_000).distances < 1500


def test_removed_cells_are_found_no_more() -> None:
    matrix = random_units(13, 40)
    index = index_of(matrix)

    index.remove(np.arange(1, 31, dtype=np.int64))
    index.remove(np.zeros(0, dtype=np.int64))

    assert index.ids() == set(range(31, 41))
    assert len(index) == 10
    assert sorted(index.probe(matrix[3], 40, 10_000).cell_ids.tolist()) == list(range(31, 41))


def test_an_index_finds_its_cells_after_most_others_were_dropped() -> None:
    """As when cells of near-equal vectors keep being split: none may become unreachable."""
    matrix = clustered_units(18, 600, 3)
    index = index_of(matrix[:20])
    for start in range(20, 600, 20):
        index.add(np.arange(start + 1, start + 21, dtype=np.int64), matrix[start : start + 20])
        index.remove(np.arange(start - 19, start - 4, dtype=np.int64))

    live = sorted(index.ids())
    assert sorted(index.probe(matrix[0], len(live), 10**6).cell_ids.tolist()) == live
    own = [i for i in live if int(index.nearest(matrix[i - 1 : i])[0, 0]) == i]
    assert len(own) >= 0.98 * len(live)


@pytest.mark.parametrize("dropped", [12, 40])
def test_a_vector_whose_nearest_cells_were_all_dropped_finds_the_next(dropped: int) -> None:
    """Also where the graph shows nothing but dropped ones, and all nodes are looked at."""
    near = unit(np.ones((dropped, 32), np.float32) + 0.001 * random_units(19, dropped))
    far = random_units(20, 200)
    index = index_of(np.concatenate([near, far]))

    index.remove(np.arange(1, dropped + 1, dtype=np.int64))

    asked = np.concatenate([near[:1], far[:1]])
    ranked = np.argsort(-(asked @ far.T), axis=1)[:, :16]
    expected = np.take_along_axis(ranked, spill(asked, ranked, far), axis=1).tolist()
    assert (index.nearest(asked) - dropped - 1).tolist() == expected
    assert (index.nearest(asked[:1]) - dropped - 1).tolist() == expected[:1]


def test_an_empty_index_has_no_nearest_cells() -> None:
    index = index_of(random_units(21, 3))
    index.remove(np.arange(1, 4, dtype=np.int64))

    assert index.probe(random_units(22, 1)[0], 5, 10_000).cell_ids.tolist() == []


def test_what_is_dropped_goes_from_the_graph_once_there_is_much_of_it() -> None:
    """A saved graph is smaller then, and finds the rest as before."""
    matrix = random_units(23, 80)
    index = index_of(matrix)
    whole = len(index.snapshot())
    index.remove(np.arange(1, 11, dtype=np.int64))
    assert not index.tidy()
    assert len(index.snapshot()) == whole

    index.remove(np.arange(11, 41, dtype=np.int64))
    assert index.tidy()
    assert not index.tidy()

    assert len(index.snapshot()) < 0.6 * whole
    again = CentroidIndex(matrix.shape[1], index.snapshot())
    assert again.ids() == index.ids() == set(range(41, 81))
    assert (again.nearest(matrix[50:51]) == index.nearest(matrix[50:51])).all()
    index.remove(np.arange(41, 81, dtype=np.int64))
    assert index.tidy()
    assert CentroidIndex(matrix.shape[1], index.snapshot()).ids() == set()


def test_which_share_of_dropped_ones_is_too_much_can_be_said() -> None:
    """A memory that closes has more time than one that searches."""
    matrix = random_units(29, 400)
    for dropped, is_due in ((16, False), (20, False), (21, True)):
        index = index_of(matrix)
        index.remove(np.arange(1, dropped + 1, dtype=np.int64))

        assert not index.tidy()
        assert index.tidy(0.05) == is_due
        live = set(range(dropped + 1, 401))
        assert index.ids() == live
        nodes = set(np.asarray(index._index.keys).tolist())
        assert nodes == (live if is_due else set(range(1, 401)))


def test_a_centroid_is_no_copy_of_one_vector() -> None:
    """Of equal ones it leans to those around them; of several it is their middle."""
    matrix = random_units(25, 30)
    one = centroid_of(matrix[:1], matrix)
    equal = centroid_of(matrix[[0, 0, 0]], matrix)
    several = centroid_of(matrix[:5], matrix)

    np.testing.assert_allclose(one, equal, atol=1e-6)
    assert 0.5 < float(one @ matrix[0]) < 0.95
    np.testing.assert_allclose(several, unit(matrix[:5].mean(axis=0)[None, :])[0], atol=1e-6)
    np.testing.assert_allclose(centroid_of(matrix[[0, 0]], matrix[[0, 0]]), matrix[0], atol=1e-6)


def test_a_centroid_of_another_dimension_is_a_damaged_store() -> None:
    with pytest.raises(StoreError, match="16 dimensions, needed 32"):
        CentroidIndex(32).add(np.asarray([1], dtype=np.int64), random_units(24, 1, 16))


def test_each_vector_finds_its_three_cells() -> None:
    """One by one and many at once: the nearest, and the two `spill` chooses among 16."""
    centroids, matrix = random_units(14, 60), random_units(28, 60)
    index = index_of(centroids)
    ranked = np.argsort(-(matrix @ centroids.T), axis=1)[:, :16]
    columns = spill(matrix, ranked, centroids)

    found = index.nearest(matrix)

    assert (found[:, 0] - 1).tolist() == ranked[:, 0].tolist()
    assert (found - 1).tolist() == np.take_along_axis(ranked, columns, axis=1).tolist()
    assert len(set(columns[:, 1].tolist())) > 3 < len(set(columns[:, 2].tolist()))
    assert index.nearest(centroids)[:, 0].tolist() == list(range(1, 61))
    assert index.nearest(matrix[7:8]).tolist() == found[7:8].tolist()
    assert index.nearest(matrix[:0]).shape == (0, 3)


@given(seed=st.integers(0, 2**32), cells=st.integers(3, 40), dropped=st.integers(0, 37))
def test_the_three_cells_of_a_vector_differ_and_are_there(
    seed: int, cells: int, dropped: int
) -> None:
    """A vector put twice into one cell would be scored twice, one in a dropped cell never."""
    matrix = clustered_units(seed, cells, 3, 8)
    index = index_of(matrix)
    index.remove(np.arange(1, min(dropped, cells - 3) + 1, dtype=np.int64))

    found = index.nearest(clustered_units(seed + 1, 30, 3, 8))

    assert all(len(set(row)) == 3 for row in found.tolist())
    assert set(found.reshape(-1).tolist()) <= index.ids()


def test_where_fewer_cells_are_left_there_are_no_others() -> None:
    """With two left each vector is in both, its own nearest first."""
    matrix = random_units(27, 20)
    index = index_of(matrix)
    index.remove(np.arange(3, 21, dtype=np.int64))

    assert index.nearest(matrix[:2]).tolist() == [[1, 2, 0], [2, 1, 0]]

    index.remove(np.asarray([2]))
    assert index.nearest(matrix[:3]).tolist() == [[1, 0, 0]] * 3


def test_a_snapshot_gives_the_same_index_again() -> None:
    matrix = random_units(15, 60)
    index = index_of(matrix)
    query = random_units(16, 1)[0]

    again = CentroidIndex(32, index.snapshot())

    assert again.ids() == index.ids()
    assert (
        again.probe(query, 8, 10_000).cell_ids.tolist()
        == index.probe(query, 8, 10_000).cell_ids.tolist()
    )
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


class Steps:
    """Counts how many nodes each call adds to a graph, of however many graphs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.added: list[int] = []
        steps = self

        class Counting(Index):
            def add(self, keys: Any, *vectors: Any, **options: Any) -> Any:
                steps.added.append(len(keys))
                return super().add(keys, *vectors, **options)

        monkeypatch.setattr(cells_module, "Index", Counting)
        monkeypatch.setattr(cells_module, "ANEW_STEP", 10)
        monkeypatch.setattr(cells_module, "ANEW_AT_ONCE", 100)


def nodes_of(index: CentroidIndex) -> set[int]:
    return set(np.asarray(index._index.keys).tolist())


def test_a_large_graph_is_made_anew_in_steps_beside_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every search of the namespace waits while one step is made, whichever call makes it."""
    steps = Steps(monkeypatch)
    matrix = random_units(51, 600)
    index = index_of(matrix[:500])
    index.remove(np.arange(1, 201, dtype=np.int64))
    before = index.size_bytes
    steps.added.clear()

    calls = 1
    assert not index.tidy()
    assert index.size_bytes > before
    while 1 in nodes_of(index):
        # What comes and goes meanwhile is not lost, nor does it come back.
        if calls in (2, 3):
            index.remove(np.asarray([200 + calls, 500 + calls - 1], dtype=np.int64))
            index.add(np.asarray([500 + calls], dtype=np.int64), matrix[499 + calls : 500 + calls])
        found = index.probe(matrix[300], 10, 10_000).cell_ids.tolist()
        assert found[0] == 301
        assert set(found) <= index.ids()
        calls += 1

    live = {*range(201, 501), 503} - {202, 203}
    assert index.ids() == live
    assert nodes_of(index) - {202, 203, 502} == live
    # The first call is of upkeep, which takes longer steps than a search.
    assert calls == 2 + (300 - 40) // 10
    assert max(steps.added) == 40
    assert CentroidIndex(matrix.shape[1], index.snapshot()).ids() >= live
    assert not index.tidy()


def test_a_graph_is_made_anew_whole_where_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On closing; also one that was begun."""
    Steps(monkeypatch)
    index = index_of(random_units(52, 500))
    index.remove(np.arange(1, 201, dtype=np.int64))
    assert not index.tidy()

    assert index.tidy(is_whole=True)

    assert nodes_of(index) == set(range(201, 501))


def test_a_topic_that_was_forgotten_costs_a_probe_of_a_large_graph_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It finds less for a few searches, and makes none of them wait for a whole graph."""
    steps = Steps(monkeypatch)
    topics = clustered_units(42, 3_000, 10)[np.argsort(np.arange(3_000) % 10, kind="stable")]
    index = index_of(topics)
    index.remove(np.arange(1, 301, dtype=np.int64))
    steps.added.clear()

    for _ in range(2_700 // 10):
        index.probe(topics[0], 20, 10_000)

    assert max(steps.added) == 10
    assert nodes_of(index) == set(range(301, 3_001))
    assert len(index.probe(topics[0], 20, 10_000).cell_ids) == 20


def test_a_graph_without_dropped_cells_is_never_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little a probe finds, there would be nothing to gain."""
    steps = Steps(monkeypatch)
    index = index_of(random_units(53, 200))
    steps.added.clear()
    monkeypatch.setattr(index, "_probed", lambda query, count, most: ([], 1))

    assert index.probe(random_units(54, 1)[0], 20, 10_000).distances == 1

    assert steps.added == []


def test_the_size_is_measured_anew_when_the_graph_has_grown_by_a_sixteenth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Measuring goes through all nodes, and is asked for whenever a view has followed a change."""

    class Graph:
        nodes = asked = 0

        def __len__(self) -> int:
            return self.nodes

        @property
        def memory_usage(self) -> int:
            self.asked += 1
            return 100 * self.nodes

    index, graph = CentroidIndex(8), Graph()
    monkeypatch.setattr(index, "_index", graph)
    for graph.nodes, size in ((160, 16_000), (160, 16_000), (170, 16_000), (171, 17_100)):
        assert index.size_bytes == size
    assert graph.asked == 2
    graph.nodes = 80
    assert index.size_bytes == 8_000


def test_a_probe_takes_no_more_distances_than_it_may() -> None:
    """However many cells are asked for: what it may not pay for is not looked at."""
    matrix = clustered_units(41, 4_000, 100)
    index = index_of(matrix)

    for most in (260, 500, 1_000, 3_000):
        for place in range(0, 4_000, 97):
            found = index.probe(matrix[place], 2_000, most)
            assert 0 < len(found.cell_ids) <= found.distances <= most


@pytest.mark.parametrize("count", [20, 220])
def test_where_a_topic_was_forgotten_a_probe_finds_the_next_cells(count: int) -> None:
    """Dropped cells all lie around it there, too few of all for the graph to be made anew."""
    topics = clustered_units(42, 3_000, 10)[np.argsort(np.arange(3_000) % 10, kind="stable")]
    index = index_of(topics)
    index.remove(np.arange(1, 301, dtype=np.int64))
    index.tidy()

    found = index.probe(topics[0], count, 10_000).cell_ids

    assert len(found) == count
    assert min(found.tolist()) > 300
    nearest = np.argsort(-(topics[300:] @ topics[0]))[:count] + 301
    assert len(set(found.tolist()) & set(nearest.tolist())) > 0.3 * count
