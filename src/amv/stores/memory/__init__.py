"""The in-process store: for tests, short lives, and as the model of every other store."""

from amv.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
