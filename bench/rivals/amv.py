"""AMV itself: `Memory` in the process, one SQLite file, vectors given.

``all`` is one namespace with every item, ``owner`` a namespace for each owner:
that is how AMV keeps apart what belongs to different people.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import amv
from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class Amv:
    """A memory as `Memory.open` makes it; of the settings, only the cache is named."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        self._in_one = task.workloads == [ALL]
        self._settings = amv.Settings()
        self._memory = amv.Memory.open(
            str(work / "amv.db"), embedder="hashing:384", settings=self._settings
        )

    def add(self, batch: Batch) -> None:
        """Add with `add_many`, which returns once the batch is on disk."""
        self._memory.add_many(
            {
                "content": batch.contents[place],
                "namespace": ("all",) if self._in_one else (f"owner-{owner}",),
                "vector": batch.vectors[place],
            }
            for place, owner in enumerate(batch.owners)
        )

    def finish(self) -> None:
        """Do nothing: an add has indexed what it added."""

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the default search."""
        yield "default", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return settings that matter."""
        return {
            "kept": f"SQLite, synchronous={self._settings.synchronous}",
            "cache_bytes": self._settings.memory.cache_bytes,
        }

    def close(self) -> None:
        """Close the file."""
        self._memory.close()

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        return self._search(query, "all")

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        return self._search(query, f"owner-{owner}")

    def _search(self, query: Floats, name: str) -> list[str]:
        result = self._memory.search(namespace=(name,), vector=query, k=self._k)
        return [hit.item.content for hit in result.hits]


if __name__ == "__main__":
    run(Amv, ("apsw", "numkong", "numpy", "usearch"))
