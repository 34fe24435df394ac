"""LanceDB: a local table, scanned, or with the index its users make of it.

The variant ``index`` has an IVF_HNSW_SQ index by cosine, made with its default
settings once everything is added.  Both have a scalar index on the owner, which
is a prefilter.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
from lancedb.index import BTree, HnswSq

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run

REFINED = {"ef": 256, "refine_factor": 4}
"""A second effort: more of the graph is visited, and more candidates are scored exactly."""


class LanceDb:
    """A table of vector, owner and content."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        self._is_indexed = task.variant == "index"
        self._table: Any = None
        self._database = lancedb.connect(work / "lance")

    def add(self, batch: Batch) -> None:
        """Write a fragment of the batch."""
        values = pa.array(batch.vectors.reshape(-1))
        rows = pa.table(
            {
                "vector": pa.FixedSizeListArray.from_arrays(values, batch.vectors.shape[1]),
                "owner": pa.array(batch.owners, pa.int32()),
                "content": pa.array(batch.contents),
            }
        )
        if self._table is None:
            self._table = self._database.create_table("item", rows)
        else:
            self._table.add(rows)

    def finish(self) -> None:
        """Make the indexes, merge the fragments, and drop what is merged, kept a week otherwise."""
        self._table.create_index("owner", config=BTree())
        if self._is_indexed:
            self._table.create_index("vector", config=HnswSq(distance_type="cosine"))
        self._table.optimize(cleanup_older_than=timedelta(0))

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield a scan, or searches of the index at two efforts."""
        if not self._is_indexed:
            yield "scan", self._search(workload, {})
            return
        yield "IVF_HNSW_SQ", self._search(workload, {})
        yield "IVF_HNSW_SQ, refined", self._search(workload, REFINED)

    def about(self) -> Mapping[str, object]:
        """Return how an add is kept and what a search does."""
        return {
            "kept": "files of the Lance format",
            "owner": "where() as prefilter, BTREE index",
            "refined": REFINED,
        }

    def close(self) -> None:
        """Do nothing: files are closed with the process."""

    def _search(self, workload: str, effort: Mapping[str, int]) -> Search:
        def search(query: Floats, owner: int) -> list[str]:
            request = self._table.search(query).distance_type("cosine").select(["content"])
            for setting, value in effort.items():
                request = getattr(request, setting)(value)
            if workload != ALL:
                request = request.where(f"owner = {owner}", prefilter=True)
            contents: list[str] = request.limit(self._k).to_arrow()["content"].to_pylist()
            return contents

        return search


if __name__ == "__main__":
    run(LanceDb, ("lancedb", "numpy", "pyarrow"))
