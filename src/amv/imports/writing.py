"""Writing what is imported, so that it can be stopped anywhere and run again.

Entries are written in chunks, each wholly or not at all, in their order.  If a chunk is refused,
its halves are tried, and so on down to the entry that is to blame; all before it is kept.  What
is there already is passed over without being embedded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.memory.item import Namespace

if TYPE_CHECKING:
    from amv.memory.item import Item
    from amv.memory.results import Stats
    from amv.memory.transfer import RestoreReport

CHUNK_LINES = 500
CHUNK_BYTES = 8 << 20


class Entry(NamedTuple):
    """One thing to import: its place, and the fields of `add` or of an exported item.

    *size* is about how many bytes it takes.  An id that was made of what an entry says is the
    same in every run.
    """

    number: int
    where: str
    fields: dict[str, Any]
    size: int
    is_exported: bool = False
    has_made_id: bool = True


@dataclass(slots=True)
class Tally:
    """How far an import got: all entries up to number *lines* are dealt with, for good.

    *namespaces* has how many were added to each, of those that are not exported items.
    """

    lines: int = 0
    added: int = 0
    present: int = 0
    skipped: int = 0
    namespaces: Counter[Namespace] = field(default_factory=Counter)


class BadLine(InvalidInput):
    """A line, or another place in a file, that can't be imported."""

    def __init__(self, number: int, why: str, where: str | None = None) -> None:
        self.where = f"line {number}" if where is None else where
        super().__init__(f"{self.where}: {why}")
        self.number = number
        self.why = why


class Target(Protocol):
    """What is imported into: an `amv.Memory`, a client of one, or what pretends to be one."""

    def get(self, item_id: str, *, namespace: Sequence[str] | None = None) -> "Item":
        """Return an item, or raise ItemNotFound."""

    def add_many(self, items: Iterable[Mapping[str, Any]]) -> "Sequence[Item]":
        """Add items in one transaction."""

    def stats(self) -> "Stats":
        """Return how much is there, and of which embedder."""


@runtime_checkable
class Restoring(Protocol):
    """What takes back exported items, too: an `amv.Memory`."""

    def restore(self, items: Iterable[Mapping[str, Any]]) -> "RestoreReport":
        """Add exported items as they were."""


class Writing:
    """Gathers entries, and writes them a chunk at a time.

    *on_bad* gets each that is refused; it may raise to end the import.
    """

    def __init__(self, memory: Target, *, on_bad: Callable[[BadLine], None]) -> None:
        self.tally = Tally()
        self._memory = memory
        self._on_bad = on_bad
        self._chunk: list[Entry] = []
        self._chunk_bytes = 0

    def put(self, entry: Entry) -> bool:
        """Take an entry; return whether those before it have been written."""
        chunk = self._chunk
        is_full = bool(chunk) and (
            entry.is_exported != chunk[0].is_exported
            or len(chunk) == CHUNK_LINES
            or self._chunk_bytes + entry.size > CHUNK_BYTES
        )
        if is_full:
            self.flush()
        self._chunk.append(entry)
        self._chunk_bytes += entry.size
        return is_full

    def flush(self) -> None:
        """Write all that was put."""
        chunk, self._chunk, self._chunk_bytes = self._chunk, [], 0
        if chunk:
            self._write(chunk)

    def refuse(self, bad: BadLine) -> None:
        """Tell of what can't be imported, once all before it is written."""
        self.flush()
        self._refuse(bad)

    def _refuse(self, bad: BadLine) -> None:
        self._on_bad(bad)
        self.tally.skipped += 1
        self.tally.lines = bad.number

    def _write(self, chunk: list[Entry]) -> None:
        """Write entries of one kind; those refused go to `on_bad`."""
        try:
            self._write_whole(chunk)
        except (InvalidInput, Conflict) as error:
            if len(chunk) == 1:
                self._refuse(BadLine(chunk[0].number, str(error), chunk[0].where))
                return
            half = len(chunk) // 2
            self._write(chunk[:half])
            self._write(chunk[half:])
            return
        self.tally.lines = chunk[-1].number

    def _write_whole(self, chunk: list[Entry]) -> None:
        """Write entries in one transaction; those that are there are passed over unread."""
        new = [entry for entry in chunk if not self._is_present(entry)]
        added = len(new)
        if new and new[0].is_exported:
            if not isinstance(self._memory, Restoring):
                raise InvalidInput("exported items are restored into an amv.Memory itself")
            added = self._memory.restore([entry.fields for entry in new]).added
        elif new:
            self._memory.add_many([entry.fields for entry in new])
            # The same id may stand in several entries, of which one adds it.
            distinct = dict.fromkeys((tuple(x.fields["namespace"]), x.fields["id"]) for x in new)
            added = len(distinct)
            self.tally.namespaces.update(name for name, _ in distinct)
        self.tally.added += added
        self.tally.present += len(chunk) - added

    def _is_present(self, entry: Entry) -> bool:
        """Return whether an entry is there already, so that it need not be embedded again."""
        fields = entry.fields
        try:
            item = self._memory.get(fields["id"], namespace=fields["namespace"])
        except (KeyError, InvalidInput, ItemNotFound):
            # What is wrong with it, if anything is, will be said when it is added.
            return False
        if entry.has_made_id:
            # It came from this very entry, whatever has been made of it since.
            return True
        return _says(item, fields, is_exported=entry.is_exported)


def _says(item: "Item", fields: dict[str, Any], *, is_exported: bool) -> bool:
    """Return whether adding *fields* would surely be passed over, since *item* is there."""
    if item.content != fields.get("content"):
        return False
    return is_exported or (
        item.claim == fields["claim"] and item.metadata == (fields.get("metadata") or {})
    )
