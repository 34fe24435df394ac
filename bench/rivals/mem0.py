"""mem0 as it comes: Qdrant in the process on local files, texts stored as given (`infer=False`).

Its default embedder and model are services; an embedder that returns the given
vectors stands in for the one, and the other is never asked.  A search of mem0
needs a user, an agent or a run: ``all`` asks for the agent that every item has,
``owner`` for the user.  Words count only with its extras, so here they do not.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mem0 import Memory

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class Given:
    """An embedder that returns what it was handed before the call."""

    def __init__(self) -> None:
        self.vectors: dict[str, list[float]] = {}

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """Return the vector of a text."""
        return self.vectors[text]


class Mem0:
    """A memory with the default vector store, of 384 dimensions."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        client = {"api_key": "unused"}
        settings: dict[str, Any] = {
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(work / "qdrant"), "embedding_model_dims": 384},
            },
            "embedder": {"provider": "openai", "config": client},
            "llm": {"provider": "openai", "config": client},
            "history_db_path": str(work / "history.db"),
        }
        self._given = Given()
        self._memory = Memory.from_config(settings)
        self._memory.embedding_model = self._given

    def add(self, batch: Batch) -> None:
        """Add the messages of an owner in one call, which stores them one by one."""
        for owner, where in batch.by_owner():
            texts = batch.contents[where]
            self._given.vectors = dict(zip(texts, batch.vectors[where].tolist(), strict=True))
            messages = [{"role": "user", "content": text} for text in texts]
            self._memory.add(messages, user_id=f"owner-{owner}", agent_id="all", infer=False)

    def finish(self) -> None:
        """Do nothing: what was added is stored."""
        self._given.vectors = {}

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the default search."""
        yield "default", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return what it is made of."""
        return {
            "kept": "SQLite, a commit for each item and another for its history",
            "vector store": type(self._memory.vector_store.client._client).__name__,
            "owner": "user_id",
            "telemetry": os.environ["MEM0_TELEMETRY"],
        }

    def close(self) -> None:
        """Close the files."""
        self._memory.vector_store.client.close()
        self._memory.close()

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        return self._search(query, {"agent_id": "all"})

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        return self._search(query, {"user_id": f"owner-{owner}"})

    def _search(self, query: Floats, filters: dict[str, str]) -> list[str]:
        self._given.vectors["query"] = query.tolist()
        found = self._memory.search("query", top_k=self._k, filters=filters)
        return [hit["memory"] for hit in found["results"]]


if __name__ == "__main__":
    run(Mem0, ("mem0ai", "numpy", "qdrant-client"))
