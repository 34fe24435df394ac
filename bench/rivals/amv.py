"""AMV itself: `Memory` in the process, one SQLite file, vectors given.

``all`` is one namespace with every item, ``owner`` a namespace for each owner:
that is how AMV keeps apart what belongs to different people.

By default AMV ranks by similarity and a little by value, and finding an item
raises its value, up to a cap.  So it shows other items than the nearest on
purpose, where some were found before and others were not.  A second pass
leaves value out of the rank.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import amv
from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class Amv:
    """A memory with the default settings."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        self._in_one = task.workloads == [ALL]
        self._path = work / "amv.db"
        self._settings = amv.Settings()
        self._memory = self._open()

    def _open(self) -> amv.Memory:
        return amv.Memory.open(str(self._path), embedder="hashing:384", settings=self._settings)

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
        """Yield the default search, and the one by similarity alone."""
        search = self._in_all if workload == ALL else self._in_owner
        yield "default", search
        self._memory.close()
        memory = self._settings.memory
        without = replace(memory, weights=replace(memory.weights, value=0.0))
        self._settings = replace(self._settings, memory=without)
        self._memory = self._open()
        yield "by similarity alone", search

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
