"""Turns of conversations become items, each found by the words of its neighbours, too.

What somebody said often makes sense only beside what was said before and after.  So an item's
`context`, which is searched by its words and not shown, holds the turns around it.

Ids are made so that every run gives a turn the same.  Where a conversation and a message have
ids, from those and the text; else from all that was said in the conversation up to it.  So a
conversation that has grown since keeps the ids it had, and one that begins as another does shares
with it what they share.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from amv.errors import InvalidInput
from amv.imports import NEIGHBOURS
from amv.imports.fields import SPEAKER_CHARS_MAX, TITLE_CHARS_MAX, Wrong, needed
from amv.imports.writing import BadLine, Entry
from amv.memory.item import check_namespace, check_text

NEIGHBOUR_CHARS_MAX = 4000
"""How much of one neighbour goes into the context: the end of an earlier one, the beginning of a
later one."""

CONTENT_BYTES_MAX = 1 << 20


class Turn(NamedTuple):
    """One thing said.  Turns of one *stretch* are neighbours; of one *thread*, one conversation.

    Both are numbers that only grow.
    """

    number: int
    where: str
    stretch: int
    thread: int
    speaker: str
    text: str
    at_s: float | None
    conversation: str
    message: str
    metadata: Mapping[str, Any]


@dataclass(slots=True)
class Mapper:
    """How what a file holds becomes items, and what of it is left out."""

    format: str
    namespace: tuple[str, ...] | None
    neighbours: int = NEIGHBOURS
    by_conversation: bool = False
    left_out: Counter[str] = field(default_factory=Counter)

    def entries(self, turns: Iterable[Turn | BadLine]) -> Iterator[Entry | BadLine]:
        """Yield the items that turns become, in their order."""
        chain = _Chain(self.format)
        around: list[tuple[Turn, str]] = []
        begun = 0
        for turn in turns:
            if isinstance(turn, BadLine):
                yield turn
                continue
            if around and around[-1][0].stretch != turn.stretch:
                for place in range(begun, len(around)):
                    yield self._entry(around, place)
                around, begun = [], 0
            around.append((turn, chain.id_of(turn)))
            while begun + self.neighbours < len(around):
                yield self._entry(around, begun)
                begun += 1
            gone = max(0, begun - self.neighbours)
            around, begun = around[gone:], begun - gone
        for place in range(begun, len(around)):
            yield self._entry(around, place)

    def _entry(self, around: list[tuple[Turn, str]], place: int) -> Entry | BadLine:
        turn, item_id = around[place]
        earlier = [t for t, _ in around[max(0, place - self.neighbours) : place]]
        later = [t for t, _ in around[place + 1 : place + 1 + self.neighbours]]
        context = [_said(t)[-NEIGHBOUR_CHARS_MAX:] for t in earlier]
        context += [_said(t)[:NEIGHBOUR_CHARS_MAX] for t in later]
        try:
            name = self.owner(turn)
            fields: dict[str, Any] = {
                "id": item_id,
                "namespace": name,
                "content": _said(turn),
                "context": "\n".join(context),
                "valid_from": turn.at_s,
                "source": self.format,
                "metadata": {
                    **({"conversation": turn.conversation} if turn.conversation else {}),
                    **({"message": turn.message} if turn.message else {}),
                    **turn.metadata,
                },
                "claim": None,
            }
        except InvalidInput as error:
            return BadLine(turn.number, str(error), turn.where)
        return Entry(turn.number, turn.where, fields, 2 * len(turn.text) + len(fields["context"]))

    def owner(self, turn: Turn) -> tuple[str, ...]:
        """Return whose memory a turn becomes."""
        if self.namespace is None:
            raise InvalidInput("need --namespace (namespace=): whose memory the turns become")
        if not self.by_conversation:
            return self.namespace
        if not turn.conversation:
            raise InvalidInput("this conversation has no id that its namespace could end with")
        return check_namespace((*self.namespace, turn.conversation))


class _Chain:
    """Makes ids: a digest of the ids there are, or of all that was said up to a turn."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._said: dict[str, str] = {}
        self._thread = -1

    def id_of(self, turn: Turn) -> str:
        if turn.conversation and turn.message:
            return made_id(self._format, turn.conversation, turn.message, _said(turn))
        key = turn.conversation
        if not key and turn.thread != self._thread:
            # Only conversations with an id can go on later in the file.
            self._said.pop("", None)
            self._thread = turn.thread
        before = self._said.get(key, "")
        found = made_id(self._format, key, before, _said(turn), turn.message, turn.at_s)
        self._said[key] = found
        return found


def made_id(*parts: object) -> str:
    """Return an id made of what tells an item from others; the same in every run."""
    said = json.dumps(parts, separators=(",", ":")).encode()
    return hashlib.sha256(said).hexdigest()[:24]


def _said(turn: Turn) -> str:
    return f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text


def turn_of(
    place: tuple[int, str],
    threads: tuple[int, int],
    text: str,
    *,
    role: str = "",
    speaker: str = "",
    at_s: float | None = None,
    conversation: str = "",
    message: str = "",
    title: str = "",
    **metadata: Any,
) -> Turn:
    """Return a turn; *threads* are the numbers of its stretch and its thread."""
    number, where = place
    name = speaker or role.capitalize()
    if len(name) > SPEAKER_CHARS_MAX:
        raise needed(where, f"a speaker's name of at most {SPEAKER_CHARS_MAX} characters", name)
    text = text.strip()
    try:
        check_text(f"{name}: {text}", "what was said", CONTENT_BYTES_MAX)
    except InvalidInput as error:
        raise Wrong(where, str(error)) from error
    told = {"title": title[:TITLE_CHARS_MAX], "role": role, "speaker": speaker, **metadata}
    return Turn(
        number=number,
        where=where,
        stretch=threads[0],
        thread=threads[1],
        speaker=name,
        text=text,
        at_s=at_s,
        conversation=conversation,
        message=message,
        metadata={name: value for name, value in told.items() if value not in ("", None)},
    )
