"""Instances: an action, what is remembered for it, and the world as it is by then; frozen.

Each attribute an action rests on was read at an age of its own, and has changed
since with the probability 1 - exp(-h a) of its kind's hazard h, or with others at
once if the event came.  How it changed is drawn from its kind's families.  What
an action rested on, whether it may go ahead and what the right call would be
follow from the two states; no family is told to a policy.

A file of instances is JSON lines, gzipped; it is named by the SHA-256 of the
lines, and `rebuilt` gives the same ones again.
"""

import copy
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from math import exp
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import amv
from amv.guard.policy import ActionRule
from bench.guard.families import (
    COMMON_CAUSE,
    PRECEDENCE,
    RELEVANT,
    SINGLE,
    UNCHANGED,
    UNSEEN,
    common_cause,
)
from bench.guard.world import (
    Change,
    Fact,
    Refused,
    State,
    World,
    argument_of,
    facts_of,
    holds,
)

Split = Literal["calibration", "test"]
SOURCES = {"settings": 0.95, "sync": 0.9, "screen": 0.8, "user": 0.7, "message": 0.6}
"""Where claims were read, and how far that is trusted."""

SEED = 5


class Remembered(NamedTuple):
    """A claim as the agent read it."""

    premise: str
    subject: str
    attribute: str
    kind: str
    value: Any
    age_h: float
    source: str


class Instance(NamedTuple):
    """One action of the bench.

    *then* is the world as it was read and *now* as it is; *families* are those
    that changed what the action rests on, by premise.
    """

    id: str
    split: Split
    tool: str
    arguments: dict[str, Any]
    remembered: list[Remembered]
    then: State
    now: State
    families: dict[str, str]
    group: str = ""

    @property
    def family(self) -> str:
        """The family by which it is counted; see `PRECEDENCE`."""
        there = set(self.families.values())
        if not there:
            return UNCHANGED
        return next((name for name in PRECEDENCE if name in there), RELEVANT)

    @property
    def is_seen(self) -> bool:
        """Whether no held-out family takes part."""
        return UNSEEN.isdisjoint(self.families.values())


class Truth:
    """What the world says of an instance: the changes calls would make, and which is right."""

    def __init__(self, world: World, rule: ActionRule, instance: Instance) -> None:
        self._world, self._rule, self._one = world, rule, instance

    @cached_property
    def meant(self) -> Change:
        """The change the action would have made had all that is remembered still held."""
        return self._world.perform(self._one.then, self._one.tool, self._one.arguments)

    @cached_property
    def shown(self) -> dict[str, Any]:
        """What the world shows of each premise now."""
        return {
            one.premise: self._world.read(self._one.now, one.subject, one.attribute)
            for one in self._one.remembered
        }

    @cached_property
    def violated(self) -> dict[str, bool]:
        """Whether each premise is violated now."""
        return {
            one.premise: not holds(
                self._rule.rests_on[one.premise],
                self._one.arguments,
                one.value,
                self.shown[one.premise],
            )
            for one in self._one.remembered
        }

    @cached_property
    def corrected(self) -> dict[str, Any] | None:
        """The arguments that are right by now; None if no call would be."""
        rests_on = self._rule.rests_on
        bound = {name: argument_of(premise) for name, premise in rests_on.items()}
        excused = {below for name, b in bound.items() if b for below in rests_on[name].rests_on}
        right = dict(self._one.arguments)
        for name, is_violated in self.violated.items():
            argument, value = bound[name], self.shown[name]
            if not is_violated or name in excused or not self._is_critical(name):
                continue
            if argument is None or not isinstance(value, str | int | float):
                return None
            right[argument] = value
        return right

    def _is_critical(self, name: str) -> bool:
        wrong, loss = self._rule.rests_on[name].wrong, self._rule.loss
        return wrong is None or loss is None or wrong >= loss.abstain

    def of(self, arguments: Mapping[str, Any]) -> str:
        """Return what executing a call comes to: right, harmful or refused."""
        try:
            made = self._world.perform(self._one.now, self._one.tool, arguments)
        except Refused:
            return "refused"
        if arguments == self._one.arguments:
            return "right" if made == self.meant else "harmful"
        if self.corrected is None:
            return "harmful"
        try:
            wanted = self._world.perform(self._one.now, self._one.tool, self.corrected)
        except Refused:
            return "harmful"
        return "right" if made == wanted else "harmful"


def _changed(world: World, state: State, fact: Fact, rng: Random, *, is_upstream: bool) -> str:
    """Change what a fact speaks of, unless it is gone; return the family."""
    if world.read(state, fact.subject, fact.attribute) is amv.NOT_FOUND:
        return ""
    families = world.kinds[fact.kind].families
    (family,) = rng.choices(list(families), weights=list(families.values()))
    if is_upstream and family != "entity_deleted":
        family = "upstream_changed"
    SINGLE[family](world, state, fact, rng)
    return family


def draw(world: World, name: str, number: int, split: Split, seed: int) -> Instance:
    """Draw one instance of the scene called *name*; the same arguments give the same one."""
    rng = Random(f"{seed}:{world.name}:{split}:{number}")
    then, arguments, tool, group = world.scenes[name](rng)
    tool = tool or name
    rule = world.policy.actions[tool]
    facts = facts_of(rule, arguments)
    low, high = world.ages_h
    oldest_h = low * (high / low) ** rng.random()
    remembered = []
    for fact in facts:
        value = world.read(then, fact.subject, fact.attribute)
        age_h = round(oldest_h * rng.uniform(0.4, 1.0), 2)
        remembered.append(Remembered(*fact, value, age_h, rng.choice(sorted(SOURCES))))
    now = copy.deepcopy(then)
    families = _perturbed(world, rule, now, facts, [one.age_h for one in remembered], rng)
    return Instance(
        f"{world.name}-{split}-{number}", split, tool, arguments, remembered, then, now, families,
        group,
    )  # fmt: skip


def _perturbed(
    world: World,
    rule: ActionRule,
    now: State,
    facts: Sequence[Fact],
    ages_h: Sequence[float],
    rng: Random,
) -> dict[str, str]:
    """Change the world as time and chance have it; return the families, by premise."""
    upstream = {below for premise in rule.rests_on.values() for below in premise.rests_on}
    families: dict[str, str] = {}

    def change(world: World, state: State, fact: Fact, rng: Random) -> str:
        return _changed(world, state, fact, rng, is_upstream=fact.premise in upstream)

    hit: list[Fact] = []
    if rng.random() < world.event_chance:
        hit = [fact for fact in facts if fact.kind in world.event]
        if len(hit) > 1:
            families = {fact.premise: COMMON_CAUSE for fact in hit}
            common_cause.apply(world, now, hit, rng, change)
            hit = []
    for fact, age_h in zip(facts, ages_h, strict=True):
        is_due = rng.random() < 1.0 - exp(-world.kinds[fact.kind].hazard * age_h)
        if not (is_due or fact in hit) or fact.premise in families:
            continue
        family = change(world, now, fact, rng)
        wrong, loss = rule.rests_on[fact.premise].wrong, rule.loss
        if family:
            is_minor = wrong is not None and loss is not None and wrong < loss.abstain
            families[fact.premise] = RELEVANT if is_minor else family
    return families


def drawn(world: World, count: int, split: Split, *, seed: int = SEED) -> list[Instance]:
    """Draw *count* instances, the scenes in turn; held-out families are left out of calibration."""
    found: list[Instance] = []
    names, number = list(world.scenes), 0
    while len(found) < count:
        one = draw(world, names[number % len(names)], number, split, seed)
        number += 1
        if split == "test" or one.is_seen:
            found.append(one)
    return found


# Frozen


def lines(instances: Iterable[Instance]) -> bytes:
    """Return instances as JSON lines; of the world as it is now, only what differs."""
    found = []
    for one in instances:
        row = one._asdict() | {"remembered": [tuple(claim) for claim in one.remembered]}
        row["now"] = _delta(one.then, one.now)
        found.append(json.dumps(row, separators=(",", ":"), sort_keys=True) + "\n")
    return "".join(found).encode()


def _delta(then: State, now: State) -> dict[str, dict[str, Any]]:
    """Return the rows that differ, None for one that is gone."""
    found: dict[str, dict[str, Any]] = {}
    for table in now:
        for key in {**then[table], **now[table]}:
            row = now[table].get(key)
            if row != then[table].get(key):
                found.setdefault(table, {})[key] = row
    return found


def loaded(data: bytes) -> list[Instance]:
    """Return the instances of JSON lines."""
    found = []
    for line in data.splitlines():
        row = json.loads(line)
        now = copy.deepcopy(row["then"])
        for table, rows in row["now"].items():
            for key, fields in rows.items():
                if fields is None:
                    del now[table][key]
                else:
                    now[table][key] = fields
        remembered = [Remembered(*claim) for claim in row["remembered"]]
        found.append(Instance(**row | {"now": now, "remembered": remembered}))
    return found


def digest(data: bytes) -> str:
    """Return the SHA-256 that names a set of instances."""
    return sha256(data).hexdigest()


def write(path: Path, data: bytes) -> None:
    """Write lines to a gzipped file, the same bytes for the same lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0))


def read(path: Path) -> bytes:
    """Return the lines of a gzipped file."""
    return gzip.decompress(path.read_bytes())
