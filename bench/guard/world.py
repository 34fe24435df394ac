"""What a world is: a state, tools that really change it, and attributes that can be read.

A state is tables of rows.  The claim "contact/c1" "number" is the field of a row;
some are computed, such as whether a deadline is over.  A tool changes a state or
refuses to; the *change* it made is every field that differs, and a tool writes
down with it whom it reached and on which terms, so that two changes are the same
only if they mean the same.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

import amv
from amv.guard.actions import equal
from amv.guard.bind import filled, kind_of, required_by
from amv.guard.policy import ActionRule, Policy, PremiseRule, parse

State = dict[str, dict[str, dict[str, Any]]]
Change = dict[str, Any]


class Refused(Exception):
    """A tool refused a call: nothing was changed."""


class Scene(NamedTuple):
    """What an agent found earlier, and what it is about to do.

    *tool* is that of the scene's name if it is not told; scenes of one *group*
    are made from the same call.
    """

    state: State
    arguments: dict[str, Any]
    tool: str = ""
    group: str = ""


class Fact(NamedTuple):
    """A premise of an action, bound to the attribute it speaks of."""

    premise: str
    subject: str
    attribute: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A sort of attribute: its hazard per hour, and how it changes, by weight."""

    hazard: float
    families: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class World:
    """One world; *pools* holds other values a field may take, by table and field.

    *computed* are attributes that follow from others unless a row holds them,
    *written* says how such a one is changed where that is not by writing it into
    its row, *indexes* tables that find rows of another by a field.  *event* are
    kinds that one cause changes at once, with the probability *event_chance*.
    *ages_h* is the span from which ages are drawn.
    """

    name: str
    policy_path: Path
    tools: Mapping[str, Callable[..., None]]
    scenes: Mapping[str, Callable[[Random], Scene]]
    kinds: Mapping[str, Kind]
    pools: Mapping[tuple[str, str], Sequence[Any]]
    computed: Mapping[tuple[str, str], Callable[[State, str], Any]] = field(default_factory=dict)
    written: Mapping[tuple[str, str], Callable[[State, str, Any], None]] = field(
        default_factory=dict
    )
    indexes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    event: frozenset[str] = frozenset()
    event_chance: float = 0.0
    ages_h: tuple[float, float] = (1.0, 1000.0)

    def policy_data(self) -> dict[str, Any]:
        """Return the world's policy as plain data, at the headline's prices."""
        data: dict[str, Any] = yaml.safe_load(self.policy_path.read_text("utf-8"))
        return data

    @cached_property
    def policy(self) -> Policy:
        """The world's policy."""
        return parse(self.policy_data())

    def read(self, state: State, subject: str, attribute: str) -> Any:
        """Return what the world shows of an attribute; NOT_FOUND where there is no such thing."""
        table, _, key = subject.partition("/")
        if table in self.indexes:
            rows, by = self.indexes[table]
            found = sorted(k for k, row in state.get(rows, {}).items() if row.get(by) == key)
            return amv.NOT_FOUND if not found else found[0] if len(found) == 1 else found
        row = state.get(table, {}).get(key)
        if row is None:
            return amv.NOT_FOUND
        compute = self.computed.get((table, attribute))
        if attribute in row or compute is None:
            return row.get(attribute, amv.NOT_FOUND)
        return compute(state, key)

    def change(self, state: State, subject: str, attribute: str, rng: Random) -> None:
        """Give an attribute another value."""
        table, _, _ = subject.partition("/")
        old = self.read(state, subject, attribute)
        self.write(state, subject, attribute, self.other(table, attribute, old, rng))

    def write(self, state: State, subject: str, attribute: str, value: Any) -> None:
        """Have the world show a value of an attribute."""
        table, _, key = subject.partition("/")
        if (table, attribute) in self.written:
            self.written[table, attribute](state, key, value)
        else:
            state[table][key][attribute] = value

    def perform(self, state: State, tool: str, arguments: Mapping[str, Any]) -> Change:
        """Return the change a call makes to a copy of *state*; raises Refused."""
        after = copy.deepcopy(state)
        self.tools[tool](after, **arguments)
        return difference(state, after)

    def other(self, table: str, attribute: str, value: Any, rng: Random) -> Any:
        """Return another value that an attribute may have."""
        pool = [one for one in self.pools[table, attribute] if one != value]
        return rng.choice(pool)


def difference(before: State, after: State) -> Change:
    """Return every field that differs, by table, key and name; None for what is gone."""
    found: Change = {}
    for table in sorted({*before, *after}):
        old, new = before.get(table, {}), after.get(table, {})
        for key in sorted({*old, *new}):
            was, now = old.get(key, {}), new.get(key, {})
            if key in old and key not in new:
                found[f"{table}/{key}"] = None
            for name in sorted({*was, *now}):
                if key in new and was.get(name) != now.get(name):
                    found[f"{table}/{key}/{name}"] = now.get(name)
    return found


def facts_of(rule: ActionRule, arguments: Mapping[str, Any]) -> list[Fact]:
    """Return the premises of an action as a policy's rule binds them."""
    return [
        Fact(name, *filled(premise.claim, arguments), kind_of(premise))
        for name, premise in rule.rests_on.items()
    ]


def holds(premise: PremiseRule, arguments: Mapping[str, Any], remembered: Any, shown: Any) -> bool:
    """Return whether a premise holds if the world shows a value."""
    if shown is amv.NOT_FOUND:
        return False
    required = required_by(premise, arguments)
    if not isinstance(required, tuple):
        return equal(shown, remembered)
    return any(equal(shown, one) for one in required)


def argument_of(premise: PremiseRule) -> str | None:
    """Return the argument that a premise must agree with, if it speaks of one."""
    require = premise.require
    return require["argument"] if isinstance(require, Mapping) and "argument" in require else None


# What tools are made of


def row_of(state: State, table: str, key: str) -> dict[str, Any]:
    """Return a row; a tool refuses to go on without it."""
    if key not in state[table]:
        raise Refused(f"there is no {table} {key}")
    return state[table][key]


def need(is_so: bool, what: str) -> None:
    """Refuse unless something is so."""
    if not is_so:
        raise Refused(what)


def note(state: State, table: str, **fields: Any) -> None:
    """Write a new row of what a tool did, and on which terms."""
    state[table][f"{table}{len(state[table]) + 1}"] = fields


def is_over(state: State, table: str, key: str) -> bool:
    """Return whether a row's time is over."""
    return bool(state[table][key]["until_h"] < state["clock"]["now"]["h"])
