"""Timelines of facts without any world: what was superseded must never justify an action.

StateBench (Parslee-ai/statebench, MIT) has timelines in which facts supersede one
another.  Each is told to a memory in its order, a namespace a timeline.  Then an
action is asked about that rests on a fact as it once was, and one that rests on
it as it is now; there is nothing to check either by.  As a control, a memory to
which nobody says which fact supersedes which is asked the same.

The files are not part of this project: put `statebench-*.jsonl` of that
repository's release into a folder, and name it with --data.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import amv
from amv.gate import Guard
from amv.testing import FakeClock

TRUST = {
    "policy": 0.95,
    "executive": 0.95,
    "system": 0.9,
    "manager": 0.9,
    "peer": 0.7,
    "subordinate": 0.6,
}
"""How far a source is trusted, by its authority."""

POLICY = {
    "version": 1,
    "actions": {
        "rely_on": {
            "loss": {"wrong": 10.0, "abstain": 1.0},
            "rests_on": {"fact": {"claim": "fact/{key}/value", "require": {"argument": "value"}}},
        }
    },
}


class Fact(NamedTuple):
    """A fact as it was told: *root* is the first one of those that supersede one another."""

    root: str
    key: str
    value: str
    trust: float
    at_s: float


class Timeline(NamedTuple):
    """The facts of one timeline, in the order in which they were told."""

    facts: tuple[Fact, ...]

    @property
    def superseded(self) -> list[Fact]:
        """Facts of which another one, of another value, has taken the place."""
        now = {fact.root: fact.value for fact in self.facts}
        return [fact for fact in self.facts if fact.value != now[fact.root]]

    @property
    def current(self) -> list[Fact]:
        """The facts that took the place of another."""
        now = {fact.root: fact for fact in self.facts}
        return [now[root] for root in dict.fromkeys(fact.root for fact in self.superseded)]


def read(paths: Sequence[Path]) -> tuple[int, list[Timeline]]:
    """Return how many timelines there are, and those that differ in what they tell."""
    lines = [line for path in paths for line in path.read_text("utf-8").splitlines()]
    found: dict[tuple[tuple[str, str, float], ...], Timeline] = {}
    for line in lines:
        facts = tuple(_facts(json.loads(line)))
        # Many repeat, but for names, ids and times.
        found.setdefault(tuple((f.root, f.value, f.trust) for f in facts), Timeline(facts))
    return len(lines), list(found.values())


def _facts(row: Mapping[str, Any]) -> Iterator[Fact]:
    told = list(row["initial_state"]["persistent_facts"])
    for event in row["events"]:
        told += [{**write, "ts": event["ts"]} for write in event.get("writes", ())]
    roots: dict[str, str] = {}
    for fact in told:
        key, before = fact["key"], fact["supersedes"]
        # Named by its key; one that is not of this timeline is superseded by nothing.
        roots[key] = roots.get(before, roots.get(key, key))
        at_s = datetime.fromisoformat(fact["ts"]).replace(tzinfo=UTC).timestamp()
        trust = TRUST[fact["source"]["authority"]]
        yield Fact(roots[key], key, str(fact["value"]), trust, at_s)


class Asked(NamedTuple):
    """How many actions were asked about, and how many went ahead."""

    asked: int
    went: int


def ask(timelines: Sequence[Timeline], *, knows: bool = True) -> tuple[Asked, Asked]:
    """Return what came of actions that rest on superseded facts, and on current ones.

    *knows*: the memory is told which fact supersedes which.
    """
    clock = FakeClock(0.0)
    settings = amv.Settings(upkeep_interval_s=None)
    counts = {"superseded": [0, 0], "current": [0, 0]}
    with Guard.open(
        ":memory:", policy=POLICY, embedder="hashing:64", settings=settings, clock=clock
    ) as guard:
        for number, timeline in enumerate(timelines):
            namespace = ("timeline", str(number))
            for fact in timeline.facts:
                clock.advance(fact.at_s + 1.0 - clock())
                guard.memory.add(
                    fact.value or "nothing",
                    namespace=namespace,
                    claim=amv.Claim(_subject(fact, knows=knows), "value", fact.value),
                    source_trust=fact.trust,
                )
            clock.advance(3600.0)
            parts = {"superseded": timeline.superseded, "current": timeline.current}
            for name, facts in parts.items():
                for fact in facts:
                    key = _subject(fact, knows=knows).removeprefix("fact/")
                    arguments = {"key": key, "value": fact.value}
                    action = amv.Action("rely_on", arguments, namespace=namespace)
                    counts[name][0] += 1
                    counts[name][1] += guard.decide(action).verdict == "PROCEED"
    return Asked(*counts["superseded"]), Asked(*counts["current"])


def _subject(fact: Fact, *, knows: bool) -> str:
    return f"fact/{fact.root if knows else fact.key}"


def cells(folder: Path) -> list[list[str]]:
    """Return the table of the files in a folder."""
    paths = sorted(folder.glob("statebench-*.jsonl"))
    count, timelines = read(paths)
    old, now = ask(timelines)
    control, _ = ask(timelines, knows=False)
    of_two = sum(1 for one in timelines if one.superseded)
    return [
        ["StateBench", "timelines read", f"{count:,}"],
        ["StateBench", "that differ in what they tell", f"{len(timelines):,}"],
        ["StateBench", "of these with a superseded fact", f"{of_two:,}"],
        ["StateBench", "actions on superseded facts that went ahead", _of(old)],
        ["StateBench", "actions on current facts that went ahead", _of(now)],
        ["control", "actions on superseded facts that went ahead", _of(control)],
    ]


def _of(one: Asked) -> str:
    return f"{one.went:,} of {one.asked:,}"
