"""The SQLite store.

`SqliteStore` joins a `Committer` (the one connection that writes), a
`ReaderPool`, and an `EventLog`.  `SqliteReader` and `SqliteWriter` hold the
statements, `codec` and `rows` the formats.
"""

from amv.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
