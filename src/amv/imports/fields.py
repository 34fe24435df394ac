"""Looking into JSON of another program's making: what is there, or where it is not.

Every function takes the path of what it looks at, so that an error names the place.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from amv.checks import shown
from amv.errors import InvalidInput
from amv.memory.item import check_time

TITLE_CHARS_MAX = 1000
SPEAKER_CHARS_MAX = 200
_KEY_CHARS_MAX = 80
"""How much of a key stands in a path."""

_MILLISECONDS_FROM = 1e11
"""Unix seconds reach it in the year 5138; milliseconds had it in 1973."""

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_SPOKEN_TIME = re.compile(
    r"\s*(\d{1,2}):(\d{2})\s*([ap])\.?m\.?\s+on\s+(\d{1,2})\s+([A-Za-z]+),?\s+(\d{4})\s*",
    re.IGNORECASE,
)


class Wrong(InvalidInput):
    """Something in a file is not what it should be; *where* is its path."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where or "the document"
        self.why = why
        super().__init__(f"{self.where}: {self.why}")


def needed(where: str, what: str, got: object) -> Wrong:
    """Return the error that *what* was needed at *where*, and something else came."""
    return Wrong(where, f"need {what}, got {shown(got)}")


def at(where: str, key: str | int) -> str:
    """Return the path of something in what is at *where*.

    >>> at(at(at("[2]", "mapping"), "a b"), 0), at("", "messages")
    ('[2].mapping["a b"][0]', 'messages')
    """
    if isinstance(key, int):
        return f"{where}[{key}]"
    if len(key) > _KEY_CHARS_MAX:
        key = key[: _KEY_CHARS_MAX - 1] + "…"
    if not re.fullmatch(r"\w+", key):
        return f'{where}["{key}"]'
    separator = " at " if where.startswith("line ") and " at " not in where else "."
    return f"{where}{separator}{key}" if where else key


def an_object(value: object, where: str) -> dict[str, Any]:
    """Return a JSON object."""
    if isinstance(value, dict):
        return value
    raise needed(where, "a JSON object", value)


def a_list(value: object, where: str) -> list[Any]:
    """Return an array; what is null or not there is an empty one."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise needed(where, "an array", value)


def a_text(data: Mapping[str, Any], key: str, where: str) -> str:
    """Return the text under *key*; what is null or not there is an empty one."""
    value = data.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise needed(at(where, key), "text", value)


def a_name(data: Mapping[str, Any], *keys: str) -> str:
    """Return the first of several names or ids that is one, as text; empty if none is."""
    for key in keys:
        value = data.get(key)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def a_time(data: Mapping[str, Any], where: str, *keys: str) -> float | None:
    """Return the first time there is under *keys* in unix seconds; None if there is none.

    ISO 8601 (UTC if it names no zone), unix seconds or milliseconds, also as text, and
    "1:56 pm on 8 May, 2023".
    """
    for key in keys:
        value = data.get(key)
        if value is None or value == "":
            continue
        try:
            return check_time(_time(value), key)
        except InvalidInput as error:
            raise needed(
                at(where, key), "a time (ISO 8601, unix seconds or milliseconds)", value
            ) from error
    return None


def _time(value: object) -> object:
    if isinstance(value, str):
        if spoken := _SPOKEN_TIME.fullmatch(value):
            return _spoken(spoken) or value
        try:
            value = float(value)
        except ValueError:
            return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and _MILLISECONDS_FROM <= abs(value) < math.inf:  # type: ignore[arg-type]
        return value // 1000 if isinstance(value, int) else value / 1000.0  # type: ignore[operator]
    return value


def _spoken(match: re.Match[str]) -> str | None:
    hour, minute, half, day, month, year = match.groups()
    number = _MONTHS.get(month[:3].lower())
    if number is None or not 1 <= int(hour) <= 12:
        return None
    of_day = int(hour) % 12 + (12 if half.lower() == "p" else 0)
    return f"{year}-{number:02}-{int(day):02}T{of_day:02}:{minute}"
