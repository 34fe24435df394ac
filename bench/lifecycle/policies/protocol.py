"""What a policy is told, and what it answers."""

from collections.abc import Collection
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """An item as a policy sees it."""

    key: int
    item_id: str
    size: int


class Policy(Protocol):
    """Chooses which items are kept near, at most as many as it was made for.

    All that happens is told in its order.  A policy holds nothing but what it
    needs to choose.
    """

    def add(self, entry: Entry) -> None:
        """Take note of an item that was written."""

    def use(self, entry: Entry) -> None:
        """Take note of an item that was found or used, near or not."""

    def near(self, now_s: float) -> Collection[int]:
        """Return the keys of the items kept near."""
