"""Vectors in one numpy array, all of them multiplied with the query: exact, and no index."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class ByHand:
    """An array and a list; an owner is a slice of both, as its items stand in a row."""

    def __init__(self, _work: Path, task: Task) -> None:
        self._k = task.k
        self._owner_items = task.owner_items
        self._parts: list[Floats] = []
        self._vectors: Floats = np.empty((0, 0), dtype=np.float32)
        self._contents: list[str] = []

    def add(self, batch: Batch) -> None:
        """Keep the batch."""
        self._parts.append(batch.vectors)
        self._contents += batch.contents

    def finish(self) -> None:
        """Make one array of all batches."""
        self._vectors = np.concatenate(self._parts)
        self._parts.clear()

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the only way there is."""
        yield "float32 scan", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return what an add means here."""
        return {"kept": "in RAM only"}

    def close(self) -> None:
        """Do nothing."""

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        return self._best(query, 0, len(self._vectors))

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        start = owner * self._owner_items
        return self._best(query, start, min(start + self._owner_items, len(self._vectors)))

    def _best(self, query: Floats, start: int, stop: int) -> list[str]:
        products = self._vectors[start:stop] @ query
        k = min(self._k, stop - start)
        best = np.argpartition(-products, k - 1)[:k]
        best = best[np.argsort(-products[best])]
        return [self._contents[start + place] for place in best.tolist()]


if __name__ == "__main__":
    run(ByHand, ("numpy",))
