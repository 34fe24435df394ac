"""Chroma: a persistent client in the process, one collection, cosine, otherwise its defaults.

An owner is metadata, and a search within one a `where` filter.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import chromadb
from chromadb.config import Settings

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class Chroma:
    """A collection of vectors, contents and owners."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        self._count = 0
        client = chromadb.PersistentClient(
            path=str(work / "chroma"), settings=Settings(anonymized_telemetry=False)
        )
        self._collection = client.create_collection(
            "item", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    def add(self, batch: Batch) -> None:
        """Add in one call."""
        places = range(self._count, self._count + len(batch.contents))
        self._collection.add(
            ids=[str(place) for place in places],
            embeddings=batch.vectors,
            documents=batch.contents,
            metadatas=[{"owner": owner} for owner in batch.owners],
        )
        self._count += len(batch.contents)

    def finish(self) -> None:
        """Do nothing: an add has indexed what it added."""

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the default search."""
        yield "default", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return how an item is kept."""
        return {
            "kept": "SQLite and files of the graph",
            "owner": "metadata, where filter",
            "configuration": str(self._collection.configuration),
        }

    def close(self) -> None:
        """Do nothing: files are closed with the process."""

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        found = self._collection.query(
            query_embeddings=[query], n_results=self._k, include=["documents"]
        )
        return list(found["documents"][0])

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        found = self._collection.query(
            query_embeddings=[query],
            n_results=self._k,
            where={"owner": owner},
            include=["documents"],
        )
        return list(found["documents"][0])


if __name__ == "__main__":
    run(Chroma, ("chromadb", "numpy"))
