"""How workloads are written: items about topics, reads that need one of them, and upkeep between.

Which item a read needs follows from what was read before: with a chance of
`AGAIN` it is one that a read of the same user needed already, drawn from all
those reads, so that what was needed often is needed more (Simon's process);
otherwise any item written long enough ago.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.lifecycle.ops import DAY_S, Kind, Op, Workload
from bench.lifecycle.words import TOPICS, Words

AGAIN = 0.6
UPKEEP_S = DAY_S / 2
SETTLED = 60
"""How many requests lie between a write and a read that needs it: it must be acknowledged."""


@dataclass(slots=True)
class Fact:
    """An item that was written."""

    id: str
    user: int
    topic: int
    text: str
    at_s: float
    place: int


@dataclass
class Script:
    """A workload in the making; moments must not go back."""

    name: str
    seed: int
    ops: list[Op] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 42])
        self.words = Words(self.seed)
        self._needed: dict[int, list[Fact]] = {}
        self._of_user: dict[int, list[Fact]] = {}
        self._upkeep_s = UPKEEP_S

    def workload(self, **about: object) -> Workload:
        """Return what was written."""
        days = self.ops[-1].at_s / DAY_S
        return Workload(self.name, self.seed, self.ops, about={**about, "days": round(days, 1)})

    def _add(self, op: Op) -> None:
        while op.at_s >= self._upkeep_s:
            self.ops.append(Op(at_s=self._upkeep_s, kind="stats"))
            self.ops.append(Op(at_s=self._upkeep_s, kind="sweep"))
            self._upkeep_s += UPKEEP_S
        self.ops.append(op)

    def topic(self, among: Sequence[int] = range(TOPICS)) -> int:
        """Return a topic."""
        return int(self.rng.choice(np.asarray(among)))

    def write(
        self, at_s: float, user: int, topics: Sequence[int], *, pinned: bool = False
    ) -> list[Fact]:
        """Write an item about each topic, all in one request."""
        new = [
            Fact(f"i{len(self.facts) + n}", user, topic, self.words.text(topic), at_s, 0)
            for n, topic in enumerate(topics)
        ]
        self._add(
            Op(
                at_s=at_s,
                kind="write",
                user=user,
                ids=[fact.id for fact in new],
                texts=[fact.text for fact in new],
                pinned=pinned,
            )
        )
        for fact in new:
            fact.place = len(self.ops)
        self.facts += new
        self._of_user.setdefault(user, []).extend(new)
        return new

    def read(self, at_s: float, kind: Kind, fact: Fact, *, watch: bool = False) -> None:
        """Ask for what *fact* says; one that is only watched is not needed."""
        self._add(
            Op(
                at_s=at_s,
                kind=kind,
                user=fact.user,
                texts=[self.words.question(fact.text, fact.topic)],
                needs=[] if watch else [fact.id],
                age_s=at_s - fact.at_s,
                watch=[fact.id] if watch else [],
            )
        )
        if not watch:
            self._needed.setdefault(fact.user, []).append(fact)

    def chosen(self, user: int) -> Fact | None:
        """Return an item that a read may need now; None if none was written long enough ago."""
        needed, own = self._needed.get(user, []), self._of_user.get(user, [])
        if needed and self.rng.random() < AGAIN:
            return needed[int(self.rng.integers(len(needed)))]
        settled = len(own)
        while settled and own[settled - 1].place > len(self.ops) - SETTLED:
            settled -= 1
        return own[int(self.rng.integers(settled))] if settled else None

    def needed_before(self, user: int, at_s: float) -> list[Fact]:
        """Return what reads needed that was written before a moment, as often as it was needed."""
        return [fact for fact in self._needed.get(user, []) if fact.at_s < at_s]
