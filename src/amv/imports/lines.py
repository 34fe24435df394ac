"""Lines of items: exported ones, or the fields of `Memory.add`, one JSON object a line.

An exported item is restored as it was.  A plain line without an id gets one made of what it says
and how often the file said so before: the next run gives it the same id, and passes it over, since
it is there.  So only a chunk is in memory, besides 100 bytes for each line without an id.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from amv.errors import InvalidInput
from amv.imports.strict import strict_json, why_not
from amv.imports.writing import BadLine, Entry, Tally, Target, Writing

LINE_BYTES_MAX = 64 << 20

BOM = b"\xef\xbb\xbf"


class LineImport:
    """One run of an import.

    *on_bad* gets each line that can't be imported; it may raise to end the run.
    *on_progress* gets how many bytes have been read.
    """

    def __init__(
        self,
        memory: Target,
        namespace: tuple[str, ...] | None,
        *,
        on_bad: Callable[[BadLine], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self._writing = Writing(memory, on_bad=on_bad)
        self._namespace = namespace
        self._on_progress = on_progress
        self._seen: dict[bytes, int] = {}

    @property
    def tally(self) -> Tally:
        """How far it got."""
        return self._writing.tally

    def run(self, stream: BinaryIO) -> None:
        """Import all of *stream*."""
        bytes_read = number = 0
        for number, text in enumerate(texts(stream), start=1):
            bytes_read += len(text)
            try:
                line = self._line(number, text)
            except InvalidInput as error:
                self._writing.refuse(BadLine(number, str(error)))
                continue
            if line is not None and self._writing.put(line):
                self._on_progress(bytes_read)
        self._writing.flush()
        self.tally.lines = number
        self._on_progress(bytes_read)

    def _line(self, number: int, text: bytes) -> Entry | None:
        """Return a line that was read, None for a blank one; InvalidInput for any other."""
        if len(text) > LINE_BYTES_MAX:
            raise InvalidInput(f"a line takes at most {LINE_BYTES_MAX} bytes")
        text = (text.removeprefix(BOM) if number == 1 else text).strip()
        if not text:
            return None
        try:
            fields = strict_json(text.decode())
        except ValueError as error:
            raise InvalidInput(why_not(error)) from error
        if not isinstance(fields, dict):
            raise InvalidInput(
                f"need a JSON object with the fields of an item, got {type(fields).__name__}"
            )
        where, size = f"line {number}", len(text)
        if "amv" in fields:
            return Entry(number, where, fields, size, is_exported=True, has_made_id=False)
        if fields.get("namespace") is None:
            if self._namespace is None:
                raise InvalidInput("need a namespace in the line, or one for all with --namespace")
            fields["namespace"] = list(self._namespace)
        has_made_id = fields.get("id") is None
        if has_made_id:
            fields["id"] = self._made_id(fields)
        fields["claim"] = _claim(fields.get("claim"))
        return Entry(number, where, fields, size, has_made_id=has_made_id)

    def _made_id(self, fields: dict[str, Any]) -> str:
        """Return the same id for the same fields, said for the same time, in every run.

        Only a prefix of the digest is kept to count by: two lines that share
        one would get numbers as if they were equal, and still ids of their own.
        """
        said = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        prefix = hashlib.sha256(said).digest()[:8]
        times = self._seen[prefix] = self._seen.get(prefix, 0) + 1
        return hashlib.sha256(b"%s\n%d" % (said, times)).hexdigest()[:24]


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


def texts(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of one that is too long, its beginning, one byte longer than allowed."""
    while text := stream.readline(LINE_BYTES_MAX + 1):
        yield text
        while len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
            text = stream.readline(LINE_BYTES_MAX + 1)
