"""What a request holds besides its content: key, time allowed, query, body, host.

A web page that someone has open can send requests to this machine, too, and by
a name of its own that it points here ("DNS rebinding") also read the answers.
So while no key is asked for, both Host and Origin must be this machine's.
"""

import asyncio
import ipaddress
import json
import re
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    MutableMapping,
)
from functools import lru_cache, partial
from random import getrandbits
from types import coroutine
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from amv.checks import shown, twice
from amv.errors import InvalidInput
from amv.server import wire
from amv.server.access import Unauthorised
from amv.server.api import Route
from amv.server.replies import Message, TooLarge
from amv.server.work import DeadlineExceeded, Overloaded

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Headers = Mapping[bytes, bytes]
RawHeaders = list[tuple[bytes, bytes]]

TIMEOUT_HEADER = b"amv-timeout-ms"
KEY_CHARS_MAX = 256
BODIES_MAX = 4
"""How many bodies of the largest size may be on their way at once, all requests together."""

LARGE_BYTES = 64 << 10
"""Bodies above this are read where they are worked on, not on the event loop."""

_REQUEST_ID = re.compile(rb"[!-~]{1,64}")


class Gone(Exception):
    """Whoever asked has closed the connection."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id a request came with, or a fresh one."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return b"%016x" % getrandbits(64)


def is_of_this_machine(headers: Headers, host: str) -> bool:
    """Return whether Host and Origin are loopback names or *host*, which the server listens on."""
    if not _is_loopback(headers.get(b"host", b"").decode("latin-1"), host):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    try:
        return _is_loopback(urlsplit(origin.decode("latin-1")).netloc, host, may_be_empty=False)
    except ValueError:
        return False


@lru_cache(maxsize=256)
def _is_loopback(authority: str, host: str, *, may_be_empty: bool = True) -> bool:
    try:
        name = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    if not name:
        return may_be_empty
    if name in ("localhost", host.lower()):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token(headers: Headers) -> str | None:
    """Return the key in a request, None if there is none; raises Unauthorised for another sort."""
    given = headers.get(b"authorization")
    if given is None:
        return None
    scheme, _, rest = given.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthorised("send a key: Authorization: Bearer amv_...")
    return rest.strip().decode("latin-1")


def timeout_s(headers: Headers, most_s: float) -> float:
    """Return how long a request may take."""
    given = headers.get(TIMEOUT_HEADER)
    if given is None:
        return most_s
    if not given.isdigit() or len(given) > 9 or not int(given):
        raise InvalidInput(
            f"{TIMEOUT_HEADER.decode()} must be a number of milliseconds from 1 to 999999999"
        )
    return min(most_s, int(given) / 1000)


def idempotency_key(headers: Headers) -> str | None:
    """Return what names an add, so that it can be repeated without adding twice."""
    given = headers.get(b"idempotency-key")
    if given is None:
        return None
    if not 1 <= len(given) <= KEY_CHARS_MAX:
        raise InvalidInput(f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} characters")
    return given.decode("latin-1")


def path_params(given: Mapping[str, str]) -> dict[str, str]:
    """Return what stands in the path, unescaped."""
    if not given:
        return {}
    try:
        return {name: unquote(value, errors="strict") for name, value in given.items()}
    except UnicodeError as error:
        raise InvalidInput("the path must be UTF-8, percent-encoded") from error


def query(route: Route, query_string: bytes) -> dict[str, str]:
    """Return the query parameters; raises InvalidInput for one that the route doesn't take."""
    found: dict[str, str] = {}
    if query_string:
        try:
            pairs = parse_qsl(
                query_string.decode(),
                keep_blank_values=True,
                strict_parsing=True,
                errors="strict",
                max_num_fields=32,
            )
        except ValueError as error:
            raise InvalidInput(f"the query string can't be read: {error}") from error
        found = dict(pairs)
        if len(found) < len(pairs):
            raise InvalidInput("a parameter of the query string is given twice")
    if unknown := found.keys() - route.query.keys():
        known = ", ".join(route.query) or "none"
        raise InvalidInput(
            f"unknown query parameter {sorted(unknown)[0][:80]!r}; this route takes {known}"
        )
    for name in route.needs_query:
        if name not in found:
            raise InvalidInput(f"the query parameter {name!r} is needed")
    return found


def decoded(body: bytes, kind: Any) -> Any:
    """Return a request body as *kind*, or raise InvalidInput saying where it does not fit.

    A large array is read item by item, so that other threads, such as the one
    that answers `/health`, get their turn in between.
    """
    if not body.strip():
        raise InvalidInput("this route takes a body of JSON, got an empty one")
    try:
        if kind is wire.ITEMS and is_large(body) and body[:16].lstrip().startswith(b"["):
            pieces = msgspec.json.decode(body, type=list[msgspec.Raw])
            return [msgspec.json.decode(piece, type=wire.ItemIn) for piece in pieces]
        found = msgspec.json.decode(body, type=kind)
        if isinstance(found, wire.OnceBody):
            _ONCE.decode(body.decode())
        return found
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = str(error)
        is_misread = not isinstance(error, msgspec.ValidationError)
        if is_misread and _SURROGATE.search(body) and _is_json(body):
            what = "a text must not hold a lone surrogate such as \\ud800"
        raise InvalidInput(f"the body is not what this route takes: {what}") from error


def _check_once(pairs: list[tuple[str, object]]) -> None:
    """Raise InvalidInput if an object names something twice."""
    if (name := twice(pairs)) is not None:
        raise InvalidInput(f"the body names {shown(name)} twice, and either might be meant")


_ONCE = json.JSONDecoder(object_pairs_hook=_check_once, parse_int=str, parse_float=str)
"""Made once, as making it takes longer than reading a body."""


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""What may be half a pair; of that, msgspec says that data is missing."""


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def is_large(body: bytes) -> bool:
    """Return whether reading this takes long enough for others to notice."""
    return len(body) > LARGE_BYTES


class Bodies:
    """Reads bodies; bounded one by one and, as far as they come in parts, all together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = 0

    async def read(self, headers: Headers, receive: Receive, left_s: float) -> bytes:
        """Return a body.

        Raises TooLarge as soon as that is known, Overloaded if too much is on
        its way, DeadlineExceeded if it takes too long, Gone.
        """
        length = headers.get(b"content-length", b"0")
        if length == b"0" and b"transfer-encoding" not in headers:
            return b""
        if length.isdigit() and int(length[:19]) > self._bytes_max:
            raise TooLarge(f"the body may have at most {self._bytes_max} bytes")
        reading = self._read(receive)
        try:
            # Mostly all is here, and a timer would cost more than to take it.
            waits_for = reading.send(None)
        except StopIteration as read:
            return bytes(read.value)
        try:
            async with asyncio.timeout(left_s):
                return await _resumed(reading, waits_for)
        except TimeoutError as error:
            raise DeadlineExceeded("the body took longer to arrive than allowed") from error

    async def _read(self, receive: Receive) -> bytes:
        message = await _next(receive)
        first: bytes = message.get("body", b"")
        if message.get("more_body", False):
            return await self._rest(first, receive)
        self._check(len(first))
        return first

    async def _rest(self, first: bytes, receive: Receive) -> bytes:
        parts, size, more = [first], len(first), True
        self._held += size
        try:
            while more:
                message = await _next(receive)
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                self._held += len(part)
                self._check(size)
                if self._held > BODIES_MAX * self._bytes_max:
                    raise Overloaded("too many large bodies are on their way")
                parts.append(part)
            return b"".join(parts)
        finally:
            self._held -= size

    def _check(self, size: int) -> None:
        if size > self._bytes_max:
            raise TooLarge(f"the body may have at most {self._bytes_max} bytes")


@coroutine
def _resumed(begun: Coroutine[Any, Any, bytes], waits_for: Any) -> Generator[Any, Any, bytes]:
    """Go on with a coroutine that was begun by hand and now waits for something."""
    while True:
        try:
            got = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, which is the coroutine's
            resume = partial(begun.throw, error)
        else:
            resume = partial(begun.send, got)
        try:
            waits_for = resume()
        except StopIteration as read:
            return bytes(read.value)


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message
