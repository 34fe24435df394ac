"""Calls of guarded functions: which functions can be guarded, and what a call's arguments are.

The arguments of an action are JSON, as its permit and its records are bound to
them.  So the object of a method is none of them, and a function that says that
it takes what is no JSON, such as a date, is refused when it is decorated.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from amv.checks import shown
from amv.errors import InvalidInput, PolicyError
from amv.guard.actions import canonical, equal
from amv.guard.policy import ActionRule, fields_of

KEPT_BYTES_MAX = 4096
"""The most that is kept of one argument of a call that can't be judged, as JSON."""

_NO_JSON = (
    *(bytes, bytearray, memoryview, set, frozenset, complex),
    *(date, time, timedelta, Decimal, PurePath, UUID),
)


class Signature:
    """The arguments that calls of one guarded function have.

    *names* are those it names; *is_open* tells whether it takes any others.
    """

    def __init__(self, tool: str, function: Callable[..., Any]) -> None:
        """Read the signature of *function*; raises InvalidInput if it can't be guarded."""
        if isinstance(function, staticmethod | classmethod):
            raise InvalidInput(
                f"{tool!r}: @guard.action stands below @{type(function).__name__}, next to the "
                "function"
            )
        if not inspect.isroutine(function) or _yields(function):
            # Its call returns before its body has run, so that nothing could be settled.
            raise InvalidInput(
                f"{tool!r} must be a function, plain or async, that does the action when it "
                f"is called, got {shown(function)}"
            )
        self._signature = inspect.signature(function)
        parameters = list(self._signature.parameters.values())
        self._object = parameters[0].name if _is_method(function, parameters) else None
        own = [one for one in parameters if one.name != self._object]
        hints = _hints(function)
        for one in own:
            wrong = _no_json(hints.get(one.name, one.annotation))
            if wrong is not None:
                raise InvalidInput(
                    f"{tool!r} takes {one.name!r} as {wrong.__name__}, which is no JSON; an "
                    "action's arguments are text, numbers, true, false, null, lists and mappings"
                )
        self._rest = next((p.name for p in own if p.kind is p.VAR_KEYWORD), None)
        self.is_open = self._rest is not None
        self.names = frozenset(one.name for one in own if one.name != self._rest)

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the action's arguments, defaults among them; raises TypeError as a call does."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        found: dict[str, Any] = dict(bound.arguments)
        if self._object is not None:
            del found[self._object]
        if self._rest is None:
            return found
        more = found.pop(self._rest)
        if twice := found.keys() & more.keys():
            raise InvalidInput(f"a call names the argument {min(twice)!r} twice")
        return {**found, **more}

    def check(self, tool: str, rule: ActionRule) -> None:
        """Raise PolicyError if a rule speaks of an argument that the function does not take."""
        if self.is_open:
            return
        for where, name in fields_of(rule):
            if name not in self.names:
                known = ", ".join(sorted(self.names)) or "none"
                raise PolicyError(
                    f"actions.{tool}.{where} names the argument {name!r}, which the function does "
                    f"not take; there is {known}"
                )


def are_changed(arguments: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether arguments are no longer the same JSON as *before*."""
    try:
        return not equal(arguments, before)
    except InvalidInput:
        return True


def json_part(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those arguments that are JSON, and short."""
    found = {}
    for name, value in arguments.items():
        try:
            if len(canonical(value, name)) <= KEPT_BYTES_MAX:
                found[name] = value
        except InvalidInput:
            continue
    return found


def is_yielding(result: object) -> bool:
    """Return whether a call has returned what does its work only once it is iterated."""
    return inspect.isgenerator(result) or inspect.isasyncgen(result)


def _yields(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _is_method(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> bool:
    """Return whether a function is defined in a class and takes its object first."""
    place = getattr(function, "__qualname__", "").rpartition(".")[0]
    stands_in_class = bool(place) and not place.endswith("<locals>")
    return stands_in_class and bool(parameters) and parameters[0].name in ("self", "cls")


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        # Names that are there for a type checker only: what they mean is not known.
        return {}


def _no_json(hint: Any) -> type | None:
    """Return the type that an annotation names, if no value of it is JSON."""
    if typing.get_origin(hint) in (typing.Union, UnionType):
        each = [_no_json(one) for one in typing.get_args(hint) if one is not NoneType]
        return each[0] if all(each) else None
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        return None
    return kind if issubclass(kind, _NO_JSON) or is_dataclass(kind) else None
