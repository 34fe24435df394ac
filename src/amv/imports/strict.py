"""JSON as it is defined: no NaN, no Infinity, and no nesting that Python can't follow."""

import json
from typing import NoReturn


def strict_json(text: str | bytes) -> object:
    """Return what *text* says as JSON; ValueError for anything else, NaN and Infinity too."""
    try:
        return json.loads(text, parse_constant=_no_constant)
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
