"""Cells: small groups of similar vectors, so that a search scores a bounded number.

Warm and cold items share one index.  Its unit is the cell, a score of vectors
near one centroid, kept in the store as codes of four bits a dimension.  In RAM
are the centroids, in a small approximate graph (HNSW, by usearch), and the
cells last used.  A search asks the graph for the nearest cells and scores their
codes until its budget is spent; a cell that outgrows its limit is split by
spherical k-means (after SPFresh, arXiv 2410.14452, which keeps an inverted file
balanced in place by splitting).

Each vector is in three cells: the nearest, and two more that are near the query
in just those cases in which the nearest is not (SOAR, arXiv 2404.00774, whose
rule for a second is applied once more; `spill`).  On real text this is what lets
a search find the tenth neighbour within its budget; see
docs/explanation/benchmarks.md.

A cell's centroid never changes: a split drops the old cell and adds new ones.
So a saved graph is brought up to date by comparing ids alone.

All of this happens in a rotated space (`rotate`), in which the components of a
vector are alike in size, so that four bits serve each equally well.  The ten
nearest vectors are then among the 26 nearest by code (measured on 100,000
vectors of three kinds), which the rerank in full precision puts in order.
Cells are divided by the vectors themselves.
"""

from functools import lru_cache
from hashlib import sha256, shake_256
from typing import NamedTuple

import numkong
import numpy as np
from usearch.index import Index

from amv.errors import StoreError
from amv.memory.ports import Codes, Floats, Ids

CONNECTIVITY = 13
"""Neighbours a centroid keeps in the graph; twice as many on its lowest level."""

DESCENT = 200
"""Distances set aside for the way down to the lowest level of the graph."""

EXPANSION_ADD = 128
"""How many candidates are looked at to place a centroid in the graph."""

EXPANSION_SEARCH = 80
"""How many at least are looked at to find the cells a vector belongs in."""

STALE_SHARE = 0.25
"""The graph is made anew when this share of its nodes are cells that were dropped."""

ANEW_STEP = 512
"""How many cells one call adds to a graph that is made anew: about 30 ms of work."""

ANEW_AT_ONCE = 4096
"""A graph of up to so many cells is made anew at once: about a quarter of a second of work."""

PLACES = 3
"""In how many cells a vector is, where there are as many."""

_LOOK = 16
_SPILL = 2.0
_SPILLED = 256
_LEVELS = 7
_CLIP = 2.7
_KMEANS_ROUNDS = 6
_FANOUT = 16
_DIGEST_BYTES = 32


class Probe(NamedTuple):
    """The nearest cells, nearest first, and how many distances finding them took."""

    cell_ids: Ids
    distances: int


@lru_cache(maxsize=4)
def _rotation(dimension: int) -> Floats:
    """Return an orthogonal matrix: signs that look random, then a cosine transform."""
    signs = np.unpackbits(np.frombuffer(shake_256(b"amv").digest(dimension), np.uint8))[:dimension]
    k = np.arange(dimension)
    cosines = np.cos(np.pi * np.outer(2 * k + 1, k) / (2 * dimension)) * np.sqrt(2 / dimension)
    cosines[:, 0] /= np.sqrt(2)
    matrix: Floats = (cosines * (1.0 - 2.0 * signs)[:, None]).astype(np.float32)
    return matrix


def rotate(matrix: Floats) -> Floats:
    """Return vectors, of shape (n, d) or (d,), in the space of cells; angles stay."""
    if not matrix.size:
        return matrix
    rotated: Floats = matrix @ _rotation(matrix.shape[-1])
    return rotated


def rotate_back(matrix: Floats) -> Floats:
    """Return vectors, of shape (n, d), of the space of cells as they were before `rotate`."""
    if not matrix.size:
        return matrix
    turned: Floats = matrix @ _rotation(matrix.shape[-1]).T
    return turned


def code_width(dimension: int) -> int:
    """Return how many bytes a code takes: half of one a component."""
    return (dimension + 1) // 2


def quantise(matrix: Floats) -> Codes:
    """Return codes of rotated vectors of shape (n, d), two components a byte.

    A component becomes one of 15 levels, the outermost at 2.7 times the root
    mean square of its vector; of an odd dimension the last byte is half empty.
    """
    n, dimension = matrix.shape
    spread = np.sqrt(np.mean(np.square(matrix), axis=1, keepdims=True, dtype=np.float32))
    steps = matrix * (np.float32(_LEVELS / _CLIP) / np.maximum(spread, np.float32(1e-12)))
    levels = np.zeros((n, 2 * code_width(dimension)), dtype=np.int8)
    levels[:, :dimension] = np.clip(np.rint(steps), -_LEVELS, _LEVELS)
    halves = levels.view(np.uint8) & np.uint8(15)
    codes: Codes = halves[:, 0::2] | (halves[:, 1::2] << np.uint8(4))
    return codes


def unit(matrix: Floats) -> Floats:
    """Return the rows scaled to length 1; a zero row stays zero."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Floats = (matrix / np.maximum(norms, np.float32(1e-12))).astype(np.float32)
    return scaled


def code_similarities(query: Floats, codes: Codes) -> Floats:
    """Return the cosine of a rotated *query*, shape (d,), with each of n codes, roughly."""
    if not len(codes):
        return np.zeros(0, dtype=np.float32)
    distances = numkong.cdist(quantise(query[None, :]), codes, metric="angular", dtype="int4")
    return 1.0 - np.asarray(distances, dtype=np.float32).reshape(-1)


def spill(matrix: Floats, near: Ids, centroids: Floats) -> Ids:
    """Return the cells each of n vectors belongs in, as columns of *near*, its nearest first.

    *near*, of shape (n, k), names rows of *centroids*, each vector's nearest
    first.  The result has `PLACES` columns, -1 where there is no cell.  With r = x - c
    for a vector x and a centroid c that it has, each next is the c' that minimises

        |x - c'|^2 + 2 (r . (x - c') / |r|)^2, the last term added up over all c

    A query misses x where r points away from it; what is left over of x at c'
    should then not point the same way.  Source: SOAR, arXiv 2404.00774, which has
    one c' for each x.
    """
    rows = np.arange(len(matrix))
    gathered = centroids[near]
    similarity = np.matmul(gathered, matrix[:, :, None])[:, :, 0]
    loss = 2.0 - 2.0 * similarity
    columns = np.full((len(matrix), PLACES), -1, dtype=np.int64)
    columns[:, 0] = 0
    for place in range(1, min(PLACES, near.shape[1])):
        last = columns[:, place - 1]
        between = np.matmul(gathered, gathered[rows, last][:, :, None])[:, :, 0]
        closeness = similarity[rows, last][:, None]
        # Of unit vectors: r.(x - c') = 1 - x.c' - c.x + c.c', and |x - c|^2 = 2 - 2 x.c.
        along = 1.0 - similarity - closeness + between
        loss += _SPILL * np.square(along) / np.maximum(2.0 - 2.0 * closeness, np.float32(1e-6))
        loss[rows, last] = np.inf
        columns[:, place] = np.argmin(loss, axis=1)
    return columns


def cluster(matrix: Floats, count: int) -> list[Ids]:
    """Divide unit vectors into at most *count* groups of similar ones; return row numbers.

    Spherical k-means with a deterministic start: each next seed is the vector
    least similar to all seeds so far.  Identical vectors can't be told apart
    by similarity, so groups that stay oversized are cut by row number.
    """
    n = len(matrix)
    count = min(count, n)
    if count <= 1:
        return [np.arange(n)]
    seeds = [int(np.argmin(matrix @ unit(matrix.mean(axis=0, keepdims=True))[0]))]
    nearest = matrix @ matrix[seeds[0]]
    while len(seeds) < count:
        seeds.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, matrix @ matrix[seeds[-1]])
    centroids = matrix[seeds]
    labels = np.full(n, -1, dtype=np.int64)
    for _ in range(_KMEANS_ROUNDS):
        before, labels = labels, np.argmax(matrix @ centroids.T, axis=1)
        if np.array_equal(before, labels):
            break
        chosen = labels[None, :] == np.arange(count)[:, None]
        sums = chosen.astype(np.float32) @ matrix
        centroids = np.where(chosen.any(axis=1)[:, None], unit(sums), centroids)
    groups = [np.flatnonzero(labels == label) for label in range(count)]
    return [group for group in groups if len(group)]


def centroid_of(members: Floats, around: Floats) -> Floats:
    """Return the centroid of unit vectors of shape (n, d), a direction of shape (d,).

    Of one vector, or of equal ones, it lies halfway to the middle of those
    *around* it: a centroid must not be a copy of what may be forgotten.
    """
    middle = members.mean(axis=0)
    if not np.any(members != members[0]):
        middle = middle + unit(around.mean(axis=0, keepdims=True))[0]
    centroid: Floats = unit(middle[None, :])[0]
    return centroid


def divide(matrix: Floats, *, target: int, limit: int) -> list[Ids]:
    """Divide unit vectors into groups of about *target* and at most *limit*; row numbers.

    Works top down, a few groups at a time, so that its cost grows as n log n.
    """
    done: list[Ids] = []
    todo = [np.arange(len(matrix))]
    while todo:
        rows = todo.pop()
        if len(rows) <= limit:
            done.append(rows)
            continue
        parts = cluster(matrix[rows], min(_FANOUT, round(len(rows) / target)))
        if len(parts) == 1:
            parts = [np.asarray(half) for half in np.array_split(np.arange(len(rows)), 2)]
        todo.extend(rows[part] for part in parts)
    return done


class CentroidIndex:
    """An approximate index over centroids that counts its distances.

    A cell that is dropped stays in the graph as a waypoint, and is passed over
    in results: taking nodes out and reusing their place, as usearch does, cuts
    paths (measured: a third of the searches then miss near cells).  When a
    quarter of the nodes are such, the graph is made anew, beside the old one and
    in steps, as whoever uses the index meanwhile waits for each.

    Not safe for use by several threads at once: its owner holds a lock.
    """

    def __init__(self, dimension: int, snapshot: bytes | None = None) -> None:
        """Make an empty index, or load one that `snapshot` returned.

        Raises StoreError if the snapshot is damaged or of another dimension.
        """
        self._dimension = dimension
        self._index = self._graph()
        self._next: Index | None = None
        self._todo: list[int] = []
        self._live: set[int] = set()
        self._measured_nodes = -1
        self._measured_bytes = 0
        if snapshot is not None:
            self._load(snapshot)

    def _graph(self) -> Index:
        return Index(
            ndim=self._dimension,
            metric="ip",
            dtype="f16",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
            expansion_search=EXPANSION_SEARCH,
        )

    def _load(self, snapshot: bytes) -> None:
        # The checksum comes first: a graph with broken links would crash the process.
        if sha256(snapshot[_DIGEST_BYTES:]).digest() != snapshot[:_DIGEST_BYTES]:
            raise StoreError("the saved centroid index is damaged: its checksum differs")
        try:
            self._index.load(snapshot[_DIGEST_BYTES:])
        except (RuntimeError, ValueError) as error:
            raise StoreError(f"the saved centroid index can't be read: {error}") from error
        if self._index.ndim != self._dimension:
            raise StoreError(
                f"the saved centroid index has {self._index.ndim} dimensions, "
                f"needed {self._dimension}"
            )
        # One by one, usearch would look for each key anew.
        self._live = set(np.asarray(self._index.keys).tolist())

    def __len__(self) -> int:
        return len(self._live)

    @property
    def size_bytes(self) -> int:
        """Memory the index takes, as of when it last grew by a sixteenth.

        Adding up is not free: usearch goes through all nodes.
        """
        nodes = len(self._index)
        if not 16 * self._measured_nodes <= 16 * nodes <= 17 * self._measured_nodes:
            self._measured_nodes, self._measured_bytes = nodes, int(self._index.memory_usage)
        beside = 0 if self._next is None else len(self._next)
        return self._measured_bytes * (nodes + beside) // max(1, nodes)

    def ids(self) -> set[int]:
        """Return the ids of all cells in the index."""
        return set(self._live)

    def add(self, cell_ids: Ids, centroids: Floats) -> None:
        """Add cells, whose ids were never in the index."""
        if not len(cell_ids):
            return
        if centroids.shape[1] != self._dimension:
            raise StoreError(
                f"a stored centroid has {centroids.shape[1]} dimensions, needed "
                f"{self._dimension}: the store is damaged; run `amv doctor --rebuild`"
            )
        self._index.add(cell_ids.astype(np.uint64), centroids, threads=1)
        self._live.update(cell_ids.tolist())
        if self._next is not None:
            self._todo += cell_ids.tolist()

    def remove(self, cell_ids: Ids) -> None:
        """Remove cells; ids that are not in the index are passed over."""
        self._live.difference_update(cell_ids.tolist())

    def tidy(self, share: float = STALE_SHARE, *, is_whole: bool = False) -> bool:
        """Make the graph anew if more than a *share* of its nodes are cells that were dropped.

        Does four steps of it, or, if there are few cells or *is_whole*, all.  Returns
        whether it is done by that.
        """
        nodes = len(self._index)
        is_due = nodes - len(self._live) > max(16, share * nodes)
        if not is_due and self._next is None:
            return False
        at_once = is_whole or len(self._live) <= ANEW_AT_ONCE
        return self._make_anew(len(self._live) if at_once else 4 * ANEW_STEP)

    def _make_anew(self, most: int) -> bool:
        """Add up to *most* cells to the graph to come; return whether it has taken over."""
        if self._next is None:
            self._next, self._todo = self._graph(), sorted(self._live)
        step, self._todo = self._todo[:most], self._todo[most:]
        keys = np.asarray([i for i in step if i in self._live], dtype=np.uint64)
        if len(keys):
            # One thread: several make another graph each time, and may leave nodes unlinked.
            self._next.add(keys, np.asarray(self._index.get(keys, "f32")), threads=1)
        if self._todo:
            return False
        self._index, self._next = self._next, None
        return True

    def probe(self, query: Floats, count: int, distances_max: int) -> Probe:
        """Return up to *count* of the cells nearest to *query*, of shape (d,).

        Fewer where more could take more than *distances_max* distances: no node is
        measured twice, and each one looked at has at most 2 * `CONNECTIVITY` neighbours.
        """
        count = min(count, len(self._live))
        if not count:
            return Probe(np.zeros(0, dtype=np.int64), 0)
        if self._next is not None:
            self._make_anew(ANEW_STEP)
        nodes = len(self._index)
        room = distances_max - min(DESCENT, 16 + nodes // 4)
        most = nodes if nodes <= room else max(1, room // (2 * CONNECTIVITY))
        found, distances = self._probed(query, count, most)
        if 2 * len(found) < min(count, most) and len(self._live) < len(self._index):
            # What was dropped lies just here: a topic that was forgotten.
            is_small = len(self._live) <= ANEW_AT_ONCE
            if self._make_anew(len(self._live) if is_small else ANEW_STEP):
                found, distances = self._probed(query, count, most)
        return Probe(np.asarray(found, dtype=np.int64), distances)

    def _probed(self, query: Floats, count: int, most: int) -> tuple[list[int], int]:
        share = len(self._index) / len(self._live)
        wanted = min(int(count * share) + 1, most)
        # It looks at no fewer nodes than this, however few are wanted.  Can be set, by its
        # documentation; its decorators hide that.
        self._index.expansion_search = min(EXPANSION_SEARCH, most)  # type: ignore[misc]
        matches = self._index.search(query, wanted, threads=1)
        self._index.expansion_search = EXPANSION_SEARCH  # type: ignore[misc]
        found = [i for i in matches.keys.tolist() if i in self._live][:count]
        return found, int(matches.computed_distances)

    def nearest(self, matrix: Floats) -> Ids:
        """Return the cells each of n vectors belongs in, of shape (n, `PLACES`); see `spill`.

        The nearest is first; 0 stands where there are no more.  The index must not be empty.
        """
        found = np.zeros((len(matrix), PLACES), dtype=np.int64)
        if not len(matrix):
            return found
        near = self._near(matrix, min(_LOOK, len(self._live)), 2 * _LOOK)
        found[:, 0] = near[:, 0]
        if near.shape[1] > 1:
            cell_ids, places = np.unique(near, return_inverse=True)
            centroids = np.asarray(self._index.get(cell_ids.astype(np.uint64), "f32"))
            places = places.reshape(near.shape)
            # A few at a time, so that what is gathered fits the processor's cache.
            for start in range(0, len(matrix), _SPILLED):
                some = slice(start, start + _SPILLED)
                chosen = spill(matrix[some], places[some], centroids)
                cell = np.take_along_axis(near[some], np.maximum(chosen, 0), axis=1)
                found[some] = np.where(chosen < 0, 0, cell)
        return found

    def _near(self, matrix: Floats, count: int, look: int) -> Ids:
        """Return the *count* cells nearest to each vector, of shape (n, count).

        Looks at *look* nodes for each, and at more for those of which too many were dropped.
        """
        is_all = look >= len(self._index)
        # Exact in the end, as no path may lead to some node.
        matches = self._index.search(matrix, min(look, len(self._index)), threads=0, exact=is_all)
        keys = np.asarray(matches.keys).reshape(len(matrix), -1).astype(np.int64)
        is_live = np.isin(keys, np.fromiter(self._live, np.int64, len(self._live)))
        rank = np.cumsum(is_live, axis=1)
        is_full = rank[:, -1] >= count
        near = np.empty((len(matrix), count), dtype=np.int64)
        near[is_full] = keys[is_live & (rank <= count) & is_full[:, None]].reshape(-1, count)
        if not is_full.all():
            near[~is_full] = self._near(matrix[~is_full], count, 4 * look)
        return near

    def snapshot(self) -> bytes:
        """Return the index as bytes, behind their checksum; dropped cells are still in it.

        Whoever loads it removes the cells that are no more.
        """
        data = bytes(self._index.save() or b"")
        return sha256(data).digest() + data
