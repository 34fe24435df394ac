"""Public data that show whether a memory finds what a person would call right.

None of it comes with this package; whoever measures has it already, or gets it:

- LoCoMo (Maharana et al. 2024, arXiv 2402.17753): long conversations, and questions
  with the turns that answer them.  CC BY-NC 4.0, github.com/snap-research/locomo,
  data/locomo10.json.
- StateBench: timelines of facts that supersede one another.  MIT,
  github.com/Parslee-ai/statebench, its dev and train splits as JSONL.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""Of the questions that are asked; those of category 5 have no answer in the conversation."""

LOCOMO_WANTED = (
    "LoCoMo is needed: get data/locomo10.json of github.com/snap-research/locomo "
    "(CC BY-NC 4.0, for evaluation), and say where it is with --locomo or AMV_LOCOMO"
)
STATEBENCH_WANTED = (
    "StateBench is needed: get its JSONL splits from github.com/Parslee-ai/statebench (MIT), "
    "and say where they are with --statebench (once a file) or AMV_STATEBENCH"
)

_TURN = re.compile(r"D:?(\d+):(\d+)")


class Turn(NamedTuple):
    """What one speaker said, in which session."""

    session: int
    text: str


class Question(NamedTuple):
    """A question, and the places of the turns that answer it."""

    text: str
    evidence: tuple[int, ...]
    category: int


class Conversation(NamedTuple):
    """Some sessions of two speakers, turn by turn."""

    name: str
    turns: list[Turn]
    questions: list[Question]


def conversations(path: Path) -> list[Conversation]:
    """Return LoCoMo's conversations.

    An evidence that names no turn is passed over, as are questions that have no other.
    """
    found: list[Any] = json.loads(path.read_text("utf-8"))
    return [_conversation(data) for data in found]


def _conversation(data: Any) -> Conversation:
    said = data["conversation"]
    turns: list[Turn] = []
    places: dict[str, int] = {}
    for session in count(1):
        if f"session_{session}" not in said:
            break
        for turn in said[f"session_{session}"]:
            places[turn["dia_id"]] = len(turns)
            turns.append(Turn(session, f"{turn['speaker']}: {turn['text']}"))
    questions = []
    for asked in data["qa"]:
        # A few are written as "D:11:26" or as two in one string.
        named = [f"D{int(s)}:{int(t)}" for e in asked["evidence"] for s, t in _TURN.findall(e)]
        evidence = tuple(sorted({places[name] for name in named if name in places}))
        if evidence and asked["category"] in CATEGORIES:
            questions.append(Question(asked["question"], evidence, asked["category"]))
    return Conversation(data["sample_id"], turns, questions)


def neighbours(turns: Sequence[Turn], place: int, width: int) -> str:
    """Return up to *width* turns before and after one, of the same session."""
    near = range(max(0, place - width), min(len(turns), place + width + 1))
    own = turns[place].session
    return "\n".join(turns[i].text for i in near if i != place and turns[i].session == own)


class Told(NamedTuple):
    """One fact of a timeline: what it is about, and the text that it took the place of."""

    about: str
    text: str
    replaces: str | None


class Timeline(NamedTuple):
    """Facts in the order in which they were told."""

    name: str
    facts: list[Told]


def timelines(paths: Sequence[Path]) -> list[Timeline]:
    """Return StateBench's timelines in which something is replaced.

    They come from templates, and most repeat: one that replaces nothing that no
    earlier one does is left out.
    """
    found, seen = [], set[tuple[str, str]]()
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for data in map(json.loads, file):
                timeline = Timeline(f"{path.stem}/{data['id']}", list(_facts(data)))
                pairs = {(one.replaces, one.text) for one in timeline.facts if one.replaces}
                if not pairs <= seen:
                    found.append(timeline)
                    seen |= pairs
    return found


def _facts(data: Any) -> Iterator[Told]:
    """Yield what a timeline tells; what replaces a fact is about what that is about."""
    about: dict[str, str] = {}
    texts: dict[str, str] = {}
    for fact in data["initial_state"]["persistent_facts"]:
        about[fact["key"]], texts[fact["key"]] = fact["key"], fact["value"]
        yield Told(fact["key"], fact["value"], None)
    for event in data["events"]:
        for write in event.get("writes") or ():
            key, text, old = write["key"], write["value"], write["supersedes"]
            about[key], texts[key] = about.get(old, key), text
            replaced = texts.get(old)
            yield Told(about[key], text, replaced if replaced != text else None)
