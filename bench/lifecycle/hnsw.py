"""The honest rival: HNSW over everything that is retained, in RAM, in the same server.

Words, ranking and rows are those of the product; only the vectors that are
scored come from one graph over all of them instead of hot, warm and cold.
"""

from typing import Any

import numpy as np
from usearch.index import Index

from amv.memory import search
from amv.memory.hot import View
from amv.memory.item import Namespace
from amv.memory.ports import NamespaceRow, Reader, Vectors
from amv.memory.query import Outcome, Query
from amv.memory.results import Scanned
from bench.lifecycle.driven import Noted

CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 128
FOUND = 128
"""How many neighbours a search takes from the graph: more than it ranks."""


class Graph:
    """An index over the vectors of one namespace, which follows those its view holds in RAM."""

    def __init__(self, dimension: int) -> None:
        self.index: Any = Index(
            ndim=dimension,
            metric="ip",
            dtype="f32",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
            expansion_search=EXPANSION_SEARCH,
        )
        self._known: set[int] = set()
        self._version = -1

    def follow(self, reader: Reader, view: View) -> None:
        """Take in what the view took in, and let go what it let go."""
        if self._version == view.version:
            return
        now = set(view.pending.ids.tolist())
        gone, fresh = self._known - now, now - self._known
        for vector_id in gone:
            self.index.remove(vector_id)
        if fresh:
            vectors = reader.vectors(np.asarray(sorted(fresh), dtype=np.int64))
            self.index.add(vectors.ids.astype(np.uint64), vectors.matrix, threads=1)
        self._known, self._version = now, view.version

    def search(self, query: Query, count: int) -> tuple[Vectors, int]:
        """Return ids and, as a matrix of one column, similarities; and the distances computed."""
        if not self._known:
            return Vectors(np.zeros(0, np.int64), np.zeros((0, 1), np.float32)), 0
        found = self.index.search(query.vector, min(count, len(self._known)), threads=1)
        ids = np.asarray(found.keys, dtype=np.int64)
        similarities = 1.0 - np.asarray(found.distances, dtype=np.float32)
        return Vectors(ids, similarities[:, None]), int(found.computed_distances)

    @property
    def bytes(self) -> int:
        """Memory the graph takes, vectors included."""
        return int(self.index.memory_usage)


class Everything(Noted):
    """A memory that finds vectors by one graph over all of a namespace."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._graphs: dict[Namespace, Graph] = {}

    def figures(self) -> dict[str, object]:
        """Return what was noted, and what the graphs and what they make superfluous take."""
        views = [self._views.of(name) for name in self._graphs]
        return {
            **super().figures(),
            "graph_bytes": sum(graph.bytes for graph in self._graphs.values()),
            "beside_graph_bytes": sum(view.pending.size_bytes for view in views),
        }

    def _look(self, name: Namespace, request: Query | None) -> Outcome:
        if request is None:
            return super()._look(name, request)
        view = self._views.of(name)
        with view.lock, self._store.read() as reader:
            ns = reader.namespace(name)
            if ns is None:
                return Outcome([], Scanned(), "", cold_probed=False)
            view.follow(reader, ns)
            graph = self._graphs.setdefault(name, Graph(self._embedder.dimension))
            graph.follow(reader, view)
            return self._run_graph(reader, view, ns, request, graph)

    def _run_graph(
        self, reader: Reader, view: View, ns: NamespaceRow, request: Query, graph: Graph
    ) -> Outcome:
        scan = search._Scan(reader, view, ns, request, self._settings)
        search._lexical(scan, None)
        found, distances = graph.search(request, max(FOUND, 2 * request.k))
        scan.note(found.ids, found.matrix[:, 0])
        matches = search._walk(scan)
        scanned = Scanned(warm=scan.warm + distances, postings=scan.postings)
        return Outcome(matches[: request.k], scanned, "", cold_probed=False)
