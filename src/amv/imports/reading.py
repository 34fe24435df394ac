"""Reading a file that may hold one JSON object a line, or be one JSON document.

Lines are read one after the other.  A document is read whole, since its end closes what its
beginning opens; but its elements are taken apart one at a time, so that the objects Python makes
of them, ten times as large, are never all there at once.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import msgspec

from amv.errors import InvalidInput
from amv.imports import lines
from amv.imports.fields import Wrong
from amv.imports.strict import strict_json, why_not
from amv.imports.writing import BadLine

T = TypeVar("T")
V = TypeVar("V")

DOCUMENT_BYTES_MAX = 2 << 30
"""The largest document; a file of lines may be of any size."""

_ZIP = b"PK\x03\x04"


class Piece(NamedTuple):
    """One line, or one element of a document: what it says, and where that stands."""

    number: int
    where: str
    value: object


def bad(piece: Piece, error: Wrong) -> BadLine:
    """Return an error as one of a place in the file."""
    return BadLine(piece.number, error.why, error.where)


def each(
    pieces: Iterable[Piece | BadLine], read: Callable[[Piece], Iterator[T | BadLine]]
) -> Iterator[T | BadLine]:
    """Yield what *read* makes of each piece, or why nothing more can be made of it."""
    for piece in pieces:
        if isinstance(piece, BadLine):
            yield piece
            continue
        try:
            yield from read(piece)
        except Wrong as error:
            yield bad(piece, error)


def each_of(
    piece: Piece, values: Iterable[V], read: Callable[[V], T | None]
) -> Iterator[T | BadLine]:
    """Yield what *read* makes of each part of a piece, where it makes anything of it."""
    for value in values:
        try:
            found = read(value)
        except Wrong as error:
            yield bad(piece, error)
            continue
        if found is not None:
            yield found


class Source:
    """A stream, of which as much is read as tells lines from a document.

    *first* is what its first line or element says; None if it says nothing that can be read.
    *count* and *bytes_read* are how many have been given, and their size.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.first: object = None
        self.bytes_read = self.count = 0
        self._stream = stream
        self._head: list[bytes] = []
        self._elements: list[Any] | None = None
        self._is_single = False
        self._size = 0
        self._begin()

    @property
    def is_document(self) -> bool:
        """Whether it is one JSON document, rather than lines."""
        return self._elements is not None

    @property
    def is_empty(self) -> bool:
        """Whether it is a document without elements."""
        return self._elements == []

    def lines(self) -> BinaryIO:
        """Return the stream from its beginning, for whoever reads lines himself."""
        return cast(BinaryIO, Replayed(self._head, self._stream))

    def pieces(self) -> Iterator[Piece | BadLine]:
        """Yield what the stream holds, or why a line of it can't be read."""
        if self._elements is not None:
            for place, element in enumerate(self._elements):
                self.count = place + 1
                self.bytes_read = self._size * self.count // len(self._elements)
                yield _element(place, element, is_only=self._is_single)
            return
        for number, text in enumerate(lines.texts(self.lines()), start=1):
            self.bytes_read += len(text)
            self.count = number
            piece = _line(number, text)
            if piece is not None:
                yield piece

    def _begin(self) -> None:
        text = b""
        while not text:
            line = self._stream.readline(lines.LINE_BYTES_MAX + 1)
            if not line:
                return
            self._head.append(line)
            text = (line.removeprefix(lines.BOM) if len(self._head) == 1 else line).strip()
        if text.startswith(_ZIP):
            raise InvalidInput("this is a zip archive; unpack it, and import the JSON file in it")
        piece = _line(len(self._head), text)
        if isinstance(piece, Piece):
            self.first = piece.value
        if text.startswith(b"[") or (text.startswith(b"{") and not isinstance(piece, Piece)):
            self._read_document(is_line=isinstance(piece, Piece))

    def _read_document(self, *, is_line: bool) -> None:
        """Read the rest, and take it for a document if it is one."""
        rest = self._stream.read(DOCUMENT_BYTES_MAX + 1 - sum(map(len, self._head)))
        data = b"".join([*self._head, rest])
        if len(data) > DOCUMENT_BYTES_MAX:
            raise InvalidInput(
                f"a JSON document may take {DOCUMENT_BYTES_MAX} bytes; one object a line may take "
                "any number"
            )
        self._head, self._stream, self._size = [], io.BytesIO(data), len(data)
        document = data.removeprefix(lines.BOM).strip()
        try:
            self._elements = _split(document)
        except ValueError as error:
            # An array a line makes lines; and so does what begins with one bad line.
            if is_line or document.startswith(b"{"):
                return
            raise InvalidInput(f"need a whole JSON document in UTF-8: {error}") from error
        self._is_single = document.startswith(b"{")
        self.first = None
        for place, element in enumerate(self._elements[:1]):
            piece = _element(place, element, is_only=self._is_single)
            self.first = piece.value if isinstance(piece, Piece) else None


class Replayed(io.RawIOBase):
    """A stream of which the first lines have been read already."""

    def __init__(self, head: list[bytes], stream: BinaryIO) -> None:
        super().__init__()
        self._head = list(head)
        self._stream = stream

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line, as it was read before or comes now."""
        if self._head:
            return self._head.pop(0)
        return self._stream.readline(-1 if size is None else size)


def _split(document: bytes) -> list[Any]:
    """Return the elements of a document, still as JSON if that is possible; raises ValueError."""
    try:
        if document.startswith(b"["):
            return msgspec.json.decode(document, type=list[msgspec.Raw])
        return [msgspec.json.decode(document, type=msgspec.Raw)]
    except (msgspec.DecodeError, RecursionError):
        # Half an emoji, which some programs write, is no reason to refuse all the rest.
        value = strict_json(document.decode())
        return value if isinstance(value, list) else [value]


def _line(number: int, text: bytes) -> Piece | BadLine | None:
    if len(text) > lines.LINE_BYTES_MAX:
        return BadLine(number, f"a line takes at most {lines.LINE_BYTES_MAX} bytes")
    text = (text.removeprefix(lines.BOM) if number == 1 else text).strip()
    if not text:
        return None
    try:
        return Piece(number, f"line {number}", strict_json(text.decode()))
    except ValueError as error:
        return BadLine(number, why_not(error))


def _element(place: int, element: Any, *, is_only: bool) -> Piece | BadLine:
    where = "" if is_only else f"[{place}]"
    try:
        is_json = isinstance(element, msgspec.Raw)
        value = strict_json(bytes(element).decode()) if is_json else element
    except ValueError as error:
        return BadLine(place + 1, f"need JSON in UTF-8: {error}", where or "the document")
    return Piece(place + 1, where, value)
