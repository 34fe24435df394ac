"""Import: a file of JSON lines becomes items, so that it can be stopped and run again.

A line is an exported item, restored as it was, or the fields of `Memory.add`.
A plain line without an id gets one made of what it says and how often the file
said so before: the next run gives it the same id, and passes it over, since
it is there.

Lines are written in chunks, each wholly or not at all.  If one is refused, its
halves are tried, and so on down to the line that is to blame; all before it is
kept.  So only a chunk is in memory, besides 100 bytes for each line without an
id.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from amv.cli.options import strict_json
from amv.errors import Conflict, InvalidInput, ItemNotFound

if TYPE_CHECKING:
    from amv.memory.item import Item
    from amv.wiring import Memory

CHUNK_LINES = 500
CHUNK_BYTES = 8 << 20
LINE_BYTES_MAX = 64 << 20

_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line that could be read; *fields* are those of an exported item or of `add`."""

    number: int
    fields: dict[str, Any]
    is_exported: bool
    has_made_id: bool


@dataclass(slots=True)
class Tally:
    """How far an import got: all lines up to *lines* are dealt with, for good."""

    lines: int = 0
    added: int = 0
    present: int = 0
    skipped: int = 0


class BadLine(InvalidInput):
    """A line can't be imported."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")
        self.number = number
        self.why = why


class LineImport:
    """One run of an import.

    *on_bad* gets each line that can't be imported; it may raise to end the run.
    *on_progress* gets how many bytes have been read.
    """

    def __init__(
        self,
        memory: "Memory",
        namespace: tuple[str, ...] | None,
        *,
        on_bad: Callable[[BadLine], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.tally = Tally()
        self._memory = memory
        self._namespace = namespace
        self._on_bad = on_bad
        self._on_progress = on_progress
        self._seen: dict[bytes, int] = {}

    def run(self, stream: BinaryIO) -> None:
        """Import all of *stream*."""
        chunk: list[Line] = []
        chunk_bytes = bytes_read = number = 0
        for number, text in enumerate(_texts(stream), start=1):
            bytes_read += len(text)
            try:
                line = self._line(number, text)
            except InvalidInput as error:
                self._write(chunk)
                chunk, chunk_bytes = [], 0
                self._refuse(number, error)
                continue
            if line is None:
                continue
            if chunk and (
                line.is_exported != chunk[0].is_exported
                or len(chunk) == CHUNK_LINES
                or chunk_bytes + len(text) > CHUNK_BYTES
            ):
                self._write(chunk)
                self._on_progress(bytes_read)
                chunk, chunk_bytes = [], 0
            chunk.append(line)
            chunk_bytes += len(text)
        self._write(chunk)
        self.tally.lines = number
        self._on_progress(bytes_read)

    def _line(self, number: int, text: bytes) -> Line | None:
        """Return a line that was read, None for a blank one; InvalidInput for any other."""
        if len(text) > LINE_BYTES_MAX:
            raise InvalidInput(f"a line takes at most {LINE_BYTES_MAX} bytes")
        text = (text.removeprefix(_BOM) if number == 1 else text).strip()
        if not text:
            return None
        try:
            fields = strict_json(text.decode())
        except ValueError as error:
            # The parser counts lines from the beginning of this one.
            why = str(error)
            if isinstance(error, json.JSONDecodeError):
                why = f"{error.msg} at column {error.colno}"
            raise InvalidInput(f"need JSON in UTF-8: {why}") from error
        if not isinstance(fields, dict):
            raise InvalidInput(
                f"need a JSON object with the fields of an item, got {type(fields).__name__}"
            )
        if "amv" in fields:
            return Line(number, fields, is_exported=True, has_made_id=False)
        if fields.get("namespace") is None:
            if self._namespace is None:
                raise InvalidInput("need a namespace in the line, or one for all with --namespace")
            fields["namespace"] = list(self._namespace)
        has_made_id = fields.get("id") is None
        if has_made_id:
            fields["id"] = self._made_id(fields)
        fields["claim"] = _claim(fields.get("claim"))
        return Line(number, fields, is_exported=False, has_made_id=has_made_id)

    def _made_id(self, fields: dict[str, Any]) -> str:
        """Return the same id for the same fields, said for the same time, in every run.

        Only a prefix of the digest is kept to count by: two lines that share
        one would get numbers as if they were equal, and still ids of their own.
        """
        said = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        prefix = hashlib.sha256(said).digest()[:8]
        times = self._seen[prefix] = self._seen.get(prefix, 0) + 1
        return hashlib.sha256(b"%s\n%d" % (said, times)).hexdigest()[:24]

    def _write(self, chunk: list[Line]) -> None:
        """Write lines of one kind; those refused go to `on_bad`."""
        if not chunk:
            return
        try:
            self._write_whole(chunk)
        except (InvalidInput, Conflict) as error:
            if len(chunk) == 1:
                self._refuse(chunk[0].number, error)
                return
            half = len(chunk) // 2
            self._write(chunk[:half])
            self._write(chunk[half:])
            return
        self.tally.lines = chunk[-1].number

    def _write_whole(self, chunk: list[Line]) -> None:
        """Write lines in one transaction; those that are there are passed over unread."""
        new = [line for line in chunk if not self._is_present(line)]
        added = len(new)
        if new and new[0].is_exported:
            added = self._memory.restore([line.fields for line in new]).added
        elif new:
            # The same id may stand in several lines, of which one adds it.
            added = len({(str(x.fields["namespace"]), str(x.fields["id"])) for x in new})
            self._memory.add_many([line.fields for line in new])
        self.tally.added += added
        self.tally.present += len(chunk) - added

    def _is_present(self, line: Line) -> bool:
        """Return whether a line is there already, so that it need not be embedded again."""
        fields = line.fields
        try:
            item = self._memory.get(fields["id"], namespace=fields["namespace"])
        except (KeyError, InvalidInput, ItemNotFound):
            # What is wrong with it, if anything is, will be said when it is added.
            return False
        if line.has_made_id:
            # It came from this very line, whatever has been made of it since.
            return True
        return _says(item, fields, is_exported=line.is_exported)

    def _refuse(self, number: int, error: Exception) -> None:
        bad = BadLine(number, str(error))
        self._on_bad(bad)
        self.tally.skipped += 1
        self.tally.lines = number


def _says(item: "Item", fields: dict[str, Any], *, is_exported: bool) -> bool:
    """Return whether adding *fields* would surely be passed over, since *item* is there."""
    if item.content != fields.get("content"):
        return False
    return is_exported or (
        item.claim == fields["claim"] and item.metadata == (fields.get("metadata") or {})
    )


def _claim(parts: Any) -> object:
    """Return the claim in a plain line: an array of three, or an object."""
    from amv.memory.item import Claim

    match parts:
        case None:
            return None
        case [subject, attribute, value]:
            return Claim(subject, attribute, value)
        case {"subject": subject, "attribute": attribute, "value": value, **rest} if not rest:
            return Claim(subject, attribute, value)
    raise InvalidInput(
        "need a claim as [subject, attribute, value] or "
        f'{{"subject": ..., "attribute": ..., "value": ...}}, got {json.dumps(parts)}'
    )


def _texts(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of one that is too long, its beginning, one byte longer than allowed."""
    while text := stream.readline(LINE_BYTES_MAX + 1):
        yield text
        while len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
            text = stream.readline(LINE_BYTES_MAX + 1)
