"""LangGraph's `InMemoryStore`, with an index whose embedder returns the given vectors.

An owner is a namespace below ``items``; ``all`` searches with the prefix that
all of them share.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run

ROOT = "items"


class LangGraph:
    """A store of contents by namespace and key."""

    def __init__(self, _work: Path, task: Task) -> None:
        self._k = task.k
        self._given: dict[str, list[float]] = {}
        self._count = 0
        self._store = InMemoryStore(
            index={"dims": 384, "embed": self._embed, "fields": ["content"]},
        )

    def add(self, batch: Batch) -> None:
        """Put all items in one `batch` call."""
        self._given = dict(zip(batch.contents, batch.vectors.tolist(), strict=True))
        self._store.batch(
            PutOp((ROOT, f"owner-{owner}"), str(self._count + place), {"content": content})
            for place, (owner, content) in enumerate(zip(batch.owners, batch.contents, strict=True))
        )
        self._count += len(batch.contents)

    def finish(self) -> None:
        """Forget the last batch."""
        self._given = {}

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the only way there is."""
        yield "default", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return how an item is kept."""
        return {"kept": "in RAM only", "owner": "namespace"}

    def close(self) -> None:
        """Do nothing."""

    def _embed(self, texts: list[str]) -> list[list[float]]:
        return [self._given[text] for text in texts]

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        return self._search(query, (ROOT,))

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        return self._search(query, (ROOT, f"owner-{owner}"))

    def _search(self, query: Floats, namespace: tuple[str, ...]) -> list[str]:
        self._given["query"] = query.tolist()
        found = self._store.search(namespace, query="query", limit=self._k)
        return [item.value["content"] for item in found]


if __name__ == "__main__":
    run(LangGraph, ("langgraph", "langgraph-checkpoint", "numpy"))
