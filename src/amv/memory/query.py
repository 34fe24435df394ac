"""What a search is asked, and what it found."""

from dataclasses import dataclass
from typing import NamedTuple

from amv.memory.card import Card
from amv.memory.filters import Node
from amv.memory.item import Namespace
from amv.memory.ports import Floats
from amv.memory.results import Scanned


class Query(NamedTuple):
    """One checked request.  *vector* has shape (d,), *terms* are stemmed and may be none."""

    vector: Floats
    terms: list[str]
    k: int
    node: Node | None
    at_s: float
    now_s: float
    cold: bool | None


class Match(NamedTuple):
    """An item found, before it becomes a `Hit`."""

    card: Card
    similarity: float
    lexical: float
    rank: float
    value: float


@dataclass(slots=True)
class Outcome:
    """What `run` found: matches best first, counts, and why fewer than k, if so.

    *passed_waiting* says that more vectors wait outside the cells than may be scanned.
    """

    matches: list[Match]
    scanned: Scanned
    reason: str
    cold_probed: bool
    passed_waiting: bool = False


class Found(NamedTuple):
    """What a search found in a namespace."""

    namespace: Namespace
    outcome: Outcome
