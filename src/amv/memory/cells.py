"""Cells: small groups of similar vectors, so that a search scores a bounded number.

Warm and cold items share one index.  Its unit is the cell, about 16 vectors
near one centroid, kept in the store as int8 codes.  In RAM are the centroids,
in a small approximate graph (HNSW, by usearch), and the cells last used.  A
search asks the graph for the nearest cells and scores their codes until its
budget is spent; a cell that outgrows its limit is split by spherical k-means
(after SPFresh, arXiv 2410.14452, which keeps an inverted file balanced in
place by splitting).

A cell's centroid never changes: a split drops the old cell and adds new ones.
So a saved graph is brought up to date by comparing ids alone.

An int8 code of a unit vector x is round(127 x / max|x|); the angle between two
codes differs from the exact one by about 0.2 degrees at 384 dimensions, which
the rerank of the best candidates in full precision takes out again.
"""

from hashlib import sha256
from typing import NamedTuple

import numkong
import numpy as np
from usearch.index import Index

from amv.errors import StoreError
from amv.memory.ports import Codes, Floats, Ids

CONNECTIVITY = 16
"""Neighbours a centroid keeps in the graph; twice as many on its lowest level."""

EXPANSION = 128
"""How many candidates are looked at to place a centroid in the graph."""

STALE_SHARE = 0.25
"""The graph is made anew when this share of its nodes are cells that were dropped."""

_LOOK = 8
_KMEANS_ROUNDS = 6
_FANOUT = 16
_DIGEST_BYTES = 32


class Probe(NamedTuple):
    """The nearest cells, nearest first, and how many distances finding them took."""

    cell_ids: Ids
    distances: int


def quantise(matrix: Floats) -> Codes:
    """Return int8 codes of shape (n, d) for vectors of that shape."""
    peak = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), np.float32(1e-12))
    codes: Codes = np.rint(matrix * (np.float32(127.0) / peak)).astype(np.int8)
    return codes


def directions(codes: Codes) -> Floats:
    """Return the unit vectors that codes stand for."""
    return unit(codes.astype(np.float32))


def unit(matrix: Floats) -> Floats:
    """Return the rows scaled to length 1; a zero row stays zero."""
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Floats = (matrix / np.maximum(norms, np.float32(1e-12))).astype(np.float32)
    return scaled


def code_similarities(query: Floats, codes: Codes) -> Floats:
    """Return the cosine of *query*, shape (d,), with each code of shape (n, d)."""
    if not len(codes):
        return np.zeros(0, dtype=np.float32)
    distances = numkong.cdist(quantise(query[None, :]), codes, metric="angular")
    return 1.0 - np.asarray(distances, dtype=np.float32).reshape(-1)


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
    labels = np.zeros(n, dtype=np.int64)
    for _ in range(_KMEANS_ROUNDS):
        labels = np.argmax(matrix @ centroids.T, axis=1)
        chosen = labels[None, :] == np.arange(count)[:, None]
        sums = chosen.astype(np.float32) @ matrix
        centroids = np.where(chosen.any(axis=1)[:, None], unit(sums), centroids)
    groups = [np.flatnonzero(labels == label) for label in range(count)]
    return [group for group in groups if len(group)]


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
    quarter of the nodes are such, the graph is made anew.

    Not safe for use by several threads at once: its owner holds a lock.
    """

    def __init__(self, dimension: int, snapshot: bytes | None = None) -> None:
        """Make an empty index, or load one that `snapshot` returned.

        Raises StoreError if the snapshot is damaged or of another dimension.
        """
        self._dimension = dimension
        self._index = self._graph()
        self._live: set[int] = set()
        if snapshot is not None:
            self._load(snapshot)

    def _graph(self) -> Index:
        return Index(
            ndim=self._dimension,
            metric="ip",
            dtype="f16",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION,
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
        self._live = {int(cell_id) for cell_id in self._index.keys}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def size_bytes(self) -> int:
        """Memory the index takes."""
        return int(self._index.memory_usage)

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

    def remove(self, cell_ids: Ids) -> None:
        """Remove cells; ids that are not in the index are passed over."""
        self._live.difference_update(cell_ids.tolist())
        nodes = len(self._index)
        if nodes - len(self._live) > max(16, STALE_SHARE * nodes):
            self._make_anew()

    def _make_anew(self) -> None:
        old, self._index = self._index, self._graph()
        live = np.asarray(sorted(self._live), dtype=np.uint64)
        if len(live):
            # One thread: several make another graph each time, and may leave nodes unlinked.
            self._index.add(live, np.asarray(old.get(live, "f32")), threads=1)

    def probe(self, query: Floats, count: int) -> Probe:
        """Return the *count* cells nearest to *query*, of shape (d,)."""
        if not self._live:
            return Probe(np.zeros(0, dtype=np.int64), 0)
        share = len(self._index) / len(self._live)
        matches = self._index.search(query, int(count * share) + 1, threads=1)
        found = [i for i in matches.keys.tolist() if i in self._live][:count]
        return Probe(np.asarray(found, dtype=np.int64), int(matches.computed_distances))

    def nearest(self, matrix: Floats) -> Ids:
        """Return the nearest cell of each row; the index must not be empty."""
        keys = self._index.search(matrix, min(_LOOK, len(self._index)), threads=0).keys
        rows = np.asarray(keys).reshape(len(matrix), -1).tolist()
        found = [next((i for i in row if i in self._live), -1) for row in rows]
        for row in [row for row, cell_id in enumerate(found) if cell_id < 0]:
            # All those nearest were dropped; at most a quarter is, so few looks suffice.
            count = _LOOK
            while not len(near := self.probe(matrix[row], count).cell_ids):
                count *= 4
            found[row] = int(near[0])
        return np.asarray(found, dtype=np.int64)

    def snapshot(self) -> bytes:
        """Return the index as bytes, behind their checksum; of dropped cells nothing is in it."""
        if len(self._index) > len(self._live):
            self._make_anew()
        data = bytes(self._index.save() or b"")
        return sha256(data).digest() + data
