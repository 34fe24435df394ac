"""What commands take: the options several share, and how their texts are read.

A text that can't be read is a usage error, told with the option's name.  What
it means is checked by the memory, not here.
"""

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, NoReturn

import typer

from amv.checks import shown
from amv.imports.strict import strict_json

_PYTHON_TUPLE = re.compile(r"""\s*\(\s*['"].*\)\s*$""", re.DOTALL)

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs; errors too, on stderr.")
]
ItemId = Annotated[str, typer.Argument(metavar="ID", help="The item's id.")]
Needed = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help='Whose memory: a/b, or as JSON \'["a/b", "c"]\'.',
    ),
]
OrAll = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help='Whose memory: a/b, or as JSON \'["a/b", "c"]\'; all if not given.',
    ),
]
Filter = Annotated[
    str | None,
    typer.Option("--filter", metavar="JSON", help='Condition on metadata: {"city": "Rome"}.'),
]
Metadata = Annotated[str | None, typer.Option("--metadata", metavar="JSON", help="JSON object.")]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="TEXT", help="Words it is found by, besides the content's."),
]
Trust = Annotated[
    float | None, typer.Option("--trust", metavar="0..1", help="Trust in the source.")
]
ValidUntil = Annotated[
    str | None, typer.Option("--valid-until", metavar="TIME", help="It holds until then.")
]
ExpiresAt = Annotated[
    str | None, typer.Option("--expires-at", metavar="TIME", help="It is deleted then.")
]


def refuse(option: str, why: str) -> NoReturn:
    """Raise the usage error that *option* can't be used."""
    raise typer.BadParameter(why, param_hint=option)


def namespace(text: str) -> tuple[str, ...]:
    """Return the namespace that *text* names: a JSON array, or parts joined by /."""
    if _PYTHON_TUPLE.match(text):
        refuse(
            "--namespace",
            f"need a/b, or a JSON array of strings, got a Python tuple: {shown(text)}",
        )
    if not text.startswith("["):
        return tuple(text.split("/"))
    parts = _json(text, "--namespace")
    if not (isinstance(parts, list) and all(isinstance(part, str) for part in parts)):
        refuse("--namespace", f"need a JSON array of strings, got {shown(text)}")
    return tuple(parts)


def namespace_or_all(text: str | None) -> tuple[str, ...] | None:
    """Return the namespace that *text* names; None, for all, if there is none."""
    return None if text is None else namespace(text)


def json_array(text: str, option: str) -> list[object]:
    """Return the JSON array in *text*."""
    data = _json(text, option)
    if not isinstance(data, list):
        refuse(option, f"need a JSON array, got {shown(text)}")
    return data


def json_object(text: str | None, option: str) -> dict[str, object] | None:
    """Return the JSON object in *text*; None if there is none."""
    if text is None:
        return None
    data = _json(text, option)
    if not isinstance(data, dict):
        refuse(option, f'need a JSON object such as {{"city": "Rome"}}, got {shown(text)}')
    return data


def _json(text: str, option: str) -> object:
    try:
        return strict_json(text)
    except ValueError as error:
        refuse(option, f"need JSON, got {shown(text)}: {error}")


def json_or_text(text: str) -> object:
    """Return what *text* says as JSON, or else itself.

    >>> json_or_text("5"), json_or_text("true"), json_or_text('"5"'), json_or_text("Rome")
    (5, True, '5', 'Rome')
    """
    try:
        return strict_json(text)
    except ValueError:
        return text


def moment(text: str | None) -> str | float | None:
    """Return ISO 8601 text as it is and unix seconds as a number; None if there is none."""
    if text is None:
        return None
    try:
        datetime.fromisoformat(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            # Whoever checks times says what is wrong with it.
            return text
    return text


def moment_or_none(text: str) -> str | float | None:
    """Return a moment; None, which takes away the one that is there, for "none"."""
    return None if text == "none" else moment(text)


def content_or_stdin(text: str) -> str:
    """Return *text*, or what stdin holds for "-", without the line break at its end."""
    if text != "-":
        return text
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        refuse("CONTENT", f"need UTF-8 on stdin, got {error}")


def one_of(given: Sequence[bool], what: str) -> None:
    """Raise a usage error unless exactly one of several is given."""
    if sum(given) != 1:
        raise typer.BadParameter(f"need exactly one of {what}")
