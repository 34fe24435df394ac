"""faiss, by hand: an HNSW graph over all vectors, contents in a list.

An owner has a graph of its own.  Filtering the one graph by owner
(`IDSelector`) would visit a hundred vectors for each one that counts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import faiss

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run

M = 32
EF_CONSTRUCTION = 200
EF_SEARCH = (16, 32, 64, 128, 256, 512)


class Faiss:
    """One graph, or one for each owner."""

    def __init__(self, _work: Path, task: Task) -> None:
        self._k = task.k
        self._in_one = task.workloads == [ALL]
        self._owner_items = task.owner_items
        self._graphs: dict[int, Any] = {}
        self._contents: list[str] = []

    def add(self, batch: Batch) -> None:
        """Add to the graphs."""
        self._contents += batch.contents
        if self._in_one:
            self._graph(0, batch.vectors.shape[1]).add(batch.vectors)
            return
        for owner, where in batch.by_owner():
            self._graph(owner, batch.vectors.shape[1]).add(batch.vectors[where])

    def finish(self) -> None:
        """Do nothing: the graphs are complete."""

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield a search for each `efSearch`."""
        for ef_search in EF_SEARCH:
            for graph in self._graphs.values():
                graph.hnsw.efSearch = ef_search
            yield f"efSearch {ef_search}", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return how the graphs are made."""
        return {"kept": "in RAM only", "M": M, "efConstruction": EF_CONSTRUCTION}

    def close(self) -> None:
        """Do nothing."""

    def _graph(self, owner: int, dimension: int) -> Any:
        graph = self._graphs.get(owner)
        if graph is None:
            graph = faiss.IndexHNSWFlat(dimension, M, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = EF_CONSTRUCTION
            self._graphs[owner] = graph
        return graph

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        return self._search(query, 0, 0)

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        return self._search(query, owner, owner * self._owner_items)

    def _search(self, query: Floats, graph: int, start: int) -> list[str]:
        _, places = self._graphs[graph].search(query[None, :], self._k)
        return [self._contents[start + place] for place in places[0].tolist() if place >= 0]


if __name__ == "__main__":
    faiss.omp_set_num_threads(1)
    run(Faiss, ("faiss-cpu", "numpy"))
