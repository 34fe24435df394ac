"""sqlite-vec: a `vec0` table in one SQLite file, searched exactly; owner is its partition key.

Opened with apsw, as the `sqlite3` module of many Pythons loads no extensions.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import apsw
import numpy as np
import sqlite_vec

from bench.rivals.protocol import ALL, Batch, Floats, Search, Task, run


class SqliteVec:
    """A virtual table of vectors, with contents as its auxiliary column."""

    def __init__(self, work: Path, task: Task) -> None:
        self._k = task.k
        self._connection = apsw.Connection(str(work / "vec.db"))
        self._connection.enable_load_extension(True)
        self._connection.load_extension(sqlite_vec.loadable_path())
        # The durability of AMV's adds.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE VIRTUAL TABLE item USING vec0(owner INTEGER PARTITION KEY, "
            "vector FLOAT[384] DISTANCE_METRIC=cosine, +content TEXT)"
        )

    def add(self, batch: Batch) -> None:
        """Insert in one transaction."""
        rows = zip(
            batch.owners, map(np.ndarray.tobytes, batch.vectors), batch.contents, strict=True
        )
        with self._connection:
            self._connection.executemany(
                "INSERT INTO item (owner, vector, content) VALUES (?, ?, ?)", rows
            )

    def finish(self) -> None:
        """Do nothing: there is no index."""

    def searches(self, workload: str) -> Iterator[tuple[str, Search]]:
        """Yield the only way there is."""
        yield "exact", self._in_all if workload == ALL else self._in_owner

    def about(self) -> Mapping[str, object]:
        """Return how an add is kept."""
        return {"kept": "SQLite, synchronous=FULL", "owner": "partition key"}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _in_all(self, query: Floats, _owner: int) -> list[str]:
        rows = self._connection.execute(
            "SELECT content FROM item WHERE vector MATCH ? AND k = ? ORDER BY distance",
            (query.tobytes(), self._k),
        )
        return [content for (content,) in rows]

    def _in_owner(self, query: Floats, owner: int) -> list[str]:
        rows = self._connection.execute(
            "SELECT content FROM item WHERE vector MATCH ? AND k = ? AND owner = ? "
            "ORDER BY distance",
            (query.tobytes(), self._k, owner),
        )
        return [content for (content,) in rows]


if __name__ == "__main__":
    run(SqliteVec, ("apsw", "numpy", "sqlite-vec"))
