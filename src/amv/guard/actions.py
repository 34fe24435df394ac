"""Actions: what an agent is about to do, and what identifies it.

The digest of an action is the SHA-256 of its principal, namespace, tool and final
arguments as canonical JSON (RFC 8785).  A permit is
bound to it: 5 is not "5", and an argument that is absent is not one that is
null.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import rfc8785

from amv.checks import several, shown
from amv.errors import InvalidInput

TOOL_CHARS_MAX = 256
WHO_CHARS_MAX = 256
ARGUMENTS_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call of a tool with its final arguments.

    *namespace* says whose memory the action rests on, *principal* for whom it
    is done.  *session* groups the decisions of one task.  The arguments are a
    copy of those given, so that nobody who holds a list of them changes them.
    """

    tool: str = field(kw_only=False)
    arguments: Mapping[str, Any] = field(default_factory=dict, kw_only=False)
    namespace: tuple[str, ...] = ()
    session: str = ""
    principal: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.tool, str) or not 0 < len(self.tool.strip()) <= TOOL_CHARS_MAX:
            raise InvalidInput(
                f"an action needs the name of a tool, of at most {TOOL_CHARS_MAX} characters, "
                f"got {shown(self.tool)}"
            )
        if not isinstance(self.arguments, Mapping):
            raise InvalidInput(f"arguments must be a mapping, got {shown(self.arguments)}")
        object.__setattr__(self, "arguments", held(self.arguments))
        object.__setattr__(self, "namespace", _parts(self.namespace))
        for what, text in (("session", self.session), ("principal", self.principal)):
            if not isinstance(text, str):
                raise InvalidInput(f"{what} must be a string, got {shown(text)}")
            canonical(text, what)
        if len(_as_json(self.arguments)) > ARGUMENTS_BYTES_MAX:
            raise InvalidInput(f"the arguments take more than {ARGUMENTS_BYTES_MAX} bytes as JSON")

    def digest(self) -> str:
        """Return what identifies the action."""
        parts = {
            "arguments": dict(self.arguments),
            "namespace": list(self.namespace),
            "principal": self.principal,
            "tool": self.tool,
        }
        return sha256(canonical(parts, "an action")).hexdigest()


def _parts(namespace: object) -> tuple[str, ...]:
    what = "a namespace must be a tuple of strings"
    parts: tuple[object, ...] = tuple(several(namespace, what))  # type: ignore[arg-type]
    for part in parts:
        if not isinstance(part, str):
            raise InvalidInput(f"{what}, got {shown(namespace)}")
        canonical(part, "a namespace")
    return parts  # type: ignore[return-value]


def held(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of what in arguments is JSON, so that nobody else can change it."""
    try:
        return {name: copied(value) for name, value in arguments.items()}
    except RecursionError:
        # They are nested too deeply to be those of an action, which is told where that is judged.
        return dict(arguments)


def copied(value: Any) -> Any:
    """Return a copy of a value as far as it is JSON; raises RecursionError if it is too deep.

    Text and numbers of other types, such as members of an Enum, are what they are as JSON.
    """
    if isinstance(value, dict):
        return {name: copied(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [copied(one) for one in value]
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind) and not isinstance(value, bool):
            return plain(value)
    return value


_PLAIN: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    float: float.__float__,
    int: int.__int__,
}
"""What of these is JSON; a type of one's own says itself how it is shown, and compared."""


def _as_json(arguments: Mapping[str, Any]) -> bytes:
    """Return arguments as canonical JSON; raises InvalidInput, naming the one that is none."""
    try:
        return canonical(dict(arguments), "the arguments")
    except InvalidInput:
        for name, value in arguments.items():
            canonical(value, f"the argument {shown(name)}")
        raise


def canonical(value: object, what: str) -> bytes:
    """Return a value as canonical JSON; raises InvalidInput if it is none."""
    try:
        found: bytes = rfc8785.dumps(value)  # type: ignore[arg-type]
    except (ValueError, RecursionError) as error:
        # A CanonicalizationError, a lone surrogate, an integer of thousands of digits.
        raise InvalidInput(f"{what} must be JSON: {error}") from error
    return found


def check_action(action: object) -> Action:
    """Return *action*, or raise InvalidInput if it is none."""
    if isinstance(action, Action):
        return action
    raise InvalidInput(f"need an amv.Action, got {shown(action)}")


def check_named(name: object, what: str) -> str:
    """Return *name*, or raise InvalidInput unless it is a text that can be written down."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is a text, got {shown(name)}")
    canonical(name, what)
    return name


def check_count(count: object, what: str) -> int:
    """Return *count*, or raise InvalidInput unless it is a whole number from 0 on."""
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63:
        return count
    raise InvalidInput(f"{what} must be a whole number from 0 on, got {shown(count)}")


def check_who(by: object, *, is_needed: bool = False) -> None:
    """Raise InvalidInput unless *by* names who says something, in at most 256 characters."""
    if isinstance(by, str) and len(by) <= WHO_CHARS_MAX and (by.strip() or not is_needed):
        canonical(by, "the name of who says so")
        return
    raise InvalidInput(
        f"need the name of who says so, of at most {WHO_CHARS_MAX} characters, got {shown(by)}"
    )


def equal(one: object, other: object) -> bool:
    """Return whether two values are the same JSON, of the same types."""
    return canonical(one, "a value") == canonical(other, "a value")
