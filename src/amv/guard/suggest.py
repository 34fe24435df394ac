"""Suggestions: claims that an argument nobody checks seems to have come from.

An argument of which no part of a rule speaks is a premise that nobody verified.
Often it was read a moment before: the same value stands in a claim of an item
that the session has seen, or names the subject of one.  Such a match is a hint
to whoever writes the policy.  It is never a premise: equal values are no proof
of where an argument came from, so a match must not let an action go ahead.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from amv.guard.actions import Action
from amv.guard.bind import unbound_arguments
from amv.guard.policy import ActionRule

SUGGESTED_MAX = 32
"""The most suggestions that one decision carries."""


class Seen(NamedTuple):
    """A claim of an item that was read in the session."""

    item_id: str
    subject: str
    attribute: str
    value: object


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that *argument* may rest on, as a policy would name it.

    *claim* is a template of a premise.  If *is_required* is true, the claim's
    value is the argument's, and the premise says `require: {argument: NAME}`;
    otherwise the argument names the claim's subject.  *match* is "exact" or, but
    for case, space around it, or 5 against "5", "normalised".
    """

    argument: str
    claim: str
    is_required: bool
    match: str
    item_id: str


def suggested(
    action: Action, rule: ActionRule | None, seen: Sequence[Seen]
) -> tuple[Suggestion, ...]:
    """Return what the unbound arguments of an action match, of what was *seen*, the newest first.

    For a tool without a rule, that is any argument.
    """
    unbound = list(action.arguments) if rule is None else unbound_arguments(action, rule)
    found: dict[tuple[str, str, bool], Suggestion] = {}
    for name in unbound:
        value = action.arguments[name]
        for item in seen:
            for claim, is_required, match in _matches(name, value, item):
                hint = Suggestion(
                    argument=name,
                    claim=claim,
                    is_required=is_required,
                    match=match,
                    item_id=item.item_id,
                )
                found.setdefault((name, claim, is_required), hint)
    return tuple(found.values())[:SUGGESTED_MAX]


def _matches(name: str, value: object, item: Seen) -> list[tuple[str, bool, str]]:
    found = []
    if match := _match(value, item.value):
        found.append((_written(f"{item.subject}/{item.attribute}"), True, match))
    parts = item.subject.split("/")
    for place, part in enumerate(parts):
        match = _match(value, part)
        if match and name.isidentifier():
            subject = [*map(_written, parts[:place]), f"{{{name}}}"]
            subject += map(_written, parts[place + 1 :])
            found.append((f"{'/'.join(subject)}/{_written(item.attribute)}", False, match))
    return found


def _match(one: object, other: object) -> str:
    """Return how two values match, or nothing; truth values and empty texts match nothing."""
    if isinstance(one, bool) or isinstance(other, bool):
        return ""
    if type(one) is type(other) and one == other and _normal(one):
        return "exact"
    return "normalised" if _normal(one) and _normal(one) == _normal(other) else ""


def _normal(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().casefold() if isinstance(value, str | int | float) else ""


def _written(text: str) -> str:
    """Return a text as a template stands for it."""
    return text.replace("{", "{{").replace("}", "}}")
