"""Checks that memory and gate share, and how an error shows what came.

A settings object says in its annotations what each field holds; `check_fields`
holds it to that, so that what is compared, added and stored later is known to
be of its kind.  A range is the business of the object itself.
"""

import reprlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin
from weakref import WeakKeyDictionary

from amv.errors import AmvError, Conflict, InvalidInput

T = TypeVar("T")


class Verifying:
    """A verifier under way; *has_read* is set once it asked AMV's own memory."""

    has_read = False
    has_ended = False


VERIFIER_HEADER = "amv-verifier"
"""Goes with each GET of a verifier, so that a gateway knows it, and refuses it by `REFUSED`."""

REFUSED = "refused"


verifying: ContextVar[Verifying | None] = ContextVar("amv_verifying", default=None)
"""The verifier that runs in this context."""

verifying_threads: WeakKeyDictionary[threading.Thread, Verifying] = WeakKeyDictionary()
"""The threads that verifiers have started; a new thread takes over no context."""


def verifier_here() -> Verifying | None:
    """Return the verifier that this code runs for, if any, until that has ended."""
    running = verifying.get()
    if running is None and verifying_threads:
        running = verifying_threads.get(threading.current_thread())
    return None if running is None or running.has_ended else running


def check_independent() -> None:
    """Raise Conflict inside a verifier: what the memory says is no evidence for the memory."""
    running = verifier_here()
    if running is not None:
        running.has_read = True
        raise Conflict("a verifier must ask the world, not AMV's own memory")


INTEGER_BITS = 64
"""No setting takes an integer that needs more: neither floats nor a store would."""


class _Shown(reprlib.Repr):
    """A repr for messages: short, and of anything, also of what has no repr that works."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, level: int) -> str:
        """Show an integer; Python refuses to write down one of thousands of digits."""
        bits = x.bit_length()
        return super().repr_int(x, level) if bits <= 2048 else f"an integer of {bits} bits"


_SHOWN = _Shown()


def shown(value: object) -> str:
    """Return a value as a message shows it.

    >>> shown({"a": [10**5000, "short"]})
    "{'a': [an integer of 16610 bits, 'short']}"
    """
    return _SHOWN.repr(value)


def check_fields(settings: Any, error: type[AmvError] = InvalidInput) -> None:
    """Raise *error* unless each field of a dataclass holds what its annotation says.

    A bool is no number, an int is a float as well, and NaN is left to the
    comparisons that follow.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not _fits(value, field.type):
            raise error(f"{field.name} must be {_named(field.type)}, got {shown(value)}")


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind is float and isinstance(value, float):
        return True
    if kind in (int, float):
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return value.bit_length() < INTEGER_BITS
    return isinstance(value, kind)


def _named(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_named, get_args(kind)))
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    plain = {
        int: f"a whole number of less than {INTEGER_BITS} bits",
        float: "a number",
        bool: "True or False",
        str: "a string",
        NoneType: "None",
    }
    return plain.get(kind, f"of type {kind.__name__}")


def check_flag(flag: object, what: str) -> bool:
    """Return *flag*, or raise InvalidInput; a text such as "no" would count as true."""
    if isinstance(flag, bool):
        return flag
    raise InvalidInput(f"{what} must be True or False, got {shown(flag)}")


def twice(pairs: Sequence[tuple[str, object]]) -> str | None:
    """Return a name that stands twice in a JSON object, None if each stands once."""
    if len(dict(pairs)) == len(pairs):
        return None
    [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
    return name


def several(values: Iterable[T], what: str) -> Iterator[T]:
    """Return an iterator over *values*, or raise InvalidInput; a string is not several."""
    if isinstance(values, str):
        raise InvalidInput(f"{what}, got the string {shown(values)}")
    try:
        return iter(values)
    except TypeError as error:
        raise InvalidInput(f"{what}, got {shown(values)}") from error
