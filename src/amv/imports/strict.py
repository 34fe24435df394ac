"""JSON as it is defined: no NaN, no Infinity, no key twice, no nesting that Python can't follow."""

import json
from typing import NoReturn

from amv.checks import shown, twice


def strict_json(text: str | bytes) -> object:
    """Return what *text* says as JSON; ValueError for anything else, NaN and Infinity too.

    A key that stands twice in an object is refused: one of its values would be lost.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def why_not(error: ValueError) -> str:
    """Return what is wrong with one line that is no JSON."""
    # The parser counts lines from the beginning of this one.
    if isinstance(error, json.JSONDecodeError):
        return f"need JSON in UTF-8: {error.msg} at column {error.colno}"
    return f"need JSON in UTF-8: {error}"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if (name := twice(pairs)) is not None:
        raise ValueError(f"the key {shown(name)} stands twice in one object")
    return dict(pairs)
