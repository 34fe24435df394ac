"""Asking one verifier, and reading the value out of its reply."""

import asyncio
import http.client
import inspect
import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from amv.checks import REFUSED, VERIFIER_HEADER, shown, twice
from amv.guard.policy import URL_FIELD
from amv.guard.ports import Fault
from amv.guard.state import NOT_FOUND
from amv.verifiers.independence import NOT_INDEPENDENT

REPLY_BYTES_MAX = 1 << 20

_STEPS = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)")
"""Steps to the same place or the one above, in what takes the place of arguments."""

_STEP = re.compile(r"\.([A-Za-z0-9_\-]+)|\[([0-9]+)\]")


class Unreadable(Exception):
    """A reply that is no evidence; the message says why, *fault* in a word."""

    def __init__(self, why: str, fault: Fault = "failed") -> None:
        super().__init__(why)
        self.fault = fault


def called(function: Callable[..., Any], arguments: Mapping[str, Any]) -> object:
    """Return what a function, plain or async, gives for *arguments*."""
    reply = function(**arguments)
    if inspect.isawaitable(reply):

        async def awaited() -> object:
            return await reply

        return asyncio.run(awaited())
    return reply


def taken_by(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those arguments of an action that a function takes, by name.

    Raises Unreadable if it takes arguments, and none of these: what it would
    tell is not about the action.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Some functions written in C do not say what they take.
        return arguments
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return arguments
    taken = {name: value for name, value in arguments.items() if name in parameters}
    if parameters and not taken:
        known, there = ", ".join(parameters), ", ".join(arguments) or "none"
        raise Unreadable(
            f"the verifier takes {known}, the action has {there}: name what it gets in `args`",
            "not_asked",
        )
    return taken


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A check asks the address the policy names, and no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def _address(url: str, arguments: Mapping[str, Any]) -> str:
    """Return an address with its arguments; raises Unreadable where they lead elsewhere.

    What is empty, and the steps . and .., even escaped, would have a server answer
    for something else: the answer might be true, and not about the action.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in arguments:
            raise Unreadable(f"the address needs the argument {name!r}", "not_asked")
        given = arguments[name]
        if isinstance(given, bool) or not isinstance(given, str | int | float) or given == "":
            raise Unreadable(
                f"the address needs the argument {name!r} as a text or a number, got "
                f"{shown(given)}",
                "not_asked",
            )
        return quote(str(given), safe="")

    filled = URL_FIELD.sub(value, url)
    for template, part in zip(url.split("/"), filled.split("/"), strict=True):
        if part != template and _STEPS.search(unquote(part.partition("?")[0])):
            raise Unreadable(
                f"the address would lead elsewhere, by the steps in {shown(unquote(part))}",
                "not_asked",
            )
    return filled


def fetched(url: str, arguments: Mapping[str, Any], timeout_s: float) -> object:
    """Return the JSON that a GET of *url* answers; {name} in it stands for an argument.

    404 and 410 mean that what was asked for is not there.
    """
    url = _address(url, arguments)
    headers = {"accept": "application/json", VERIFIER_HEADER: "1"}
    data = _got(urllib.request.Request(url, headers=headers), timeout_s)
    if data is None:
        return NOT_FOUND
    try:
        return json.loads(data, object_pairs_hook=_once)
    except ValueError as error:
        raise Unreadable(f"the reply is no JSON: {shown(data[:80])}") from error


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object; raises Unreadable if it says something twice, as either might be meant."""
    if twice(pairs) is not None:
        raise Unreadable(f"the reply has a key twice: {shown(sorted(name for name, _ in pairs))}")
    return dict(pairs)


def _got(request: urllib.request.Request, timeout_s: float) -> bytes | None:
    """Return the body of a reply, None if there is no such thing."""
    try:
        with _opener.open(request, timeout=timeout_s) as reply:
            data: bytes = reply.read(REPLY_BYTES_MAX + 1)
            status, missing = reply.status, reply.length
    except urllib.error.HTTPError as error:
        if error.code in (404, 410):
            return None
        if error.headers.get(VERIFIER_HEADER) == REFUSED:
            raise Unreadable(NOT_INDEPENDENT, "refused") from error
        raise Unreadable(f"the verifier answered {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        is_late = isinstance(error, TimeoutError) or isinstance(
            getattr(error, "reason", None), TimeoutError
        )
        fault: Fault = "timed_out" if is_late else "failed"
        raise Unreadable(f"the verifier can't be reached: {error}", fault) from error
    if status != 200:
        raise Unreadable(f"the verifier answered {status}")
    if len(data) > REPLY_BYTES_MAX:
        raise Unreadable(f"the reply is longer than {REPLY_BYTES_MAX} bytes")
    if missing:
        raise Unreadable(f"the reply is cut off: {missing} bytes of it are missing")
    return data


def read_at(path: str, reply: object) -> object:
    """Return the value at a path such as $.status or $.items[0].price; raises Unreadable."""
    if reply is NOT_FOUND:
        return reply
    value = reply
    for name, number in _STEP.findall(path[1:]):
        if name and isinstance(value, Mapping) and name in value:
            value = value[name]
        elif number and isinstance(value, list | tuple) and int(number) < len(value):
            value = value[int(number)]
        else:
            raise Unreadable(f"the reply has nothing at {path}: {shown(reply)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable(f"the reply is not finite: {value}")
    return value
