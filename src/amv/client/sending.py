"""Sending a client's requests: again where that is safe, and errors as a memory raises them.

A request is repeated where nothing was sent or the gateway says that nothing
was done (429, 503).  Where the connection failed in between, only what can be
done twice is repeated: a read, or a write that names itself.
"""

import json
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import httpx
import msgspec

from amv.checks import check_independent
from amv.errors import (
    AmvError,
    Conflict,
    DimensionMismatch,
    EmbedderChanged,
    EmbedderError,
    InvalidInput,
    InvalidNamespace,
    ItemNotFound,
    MemoryChanged,
    OutcomeUnknown,
    PermitRefused,
    PolicyChanged,
    StoreClosed,
    StoreUnavailable,
)
from amv.server import wire

R = TypeVar("R", bound=msgspec.Struct)

LOCAL = "http://127.0.0.1:8420"
TRIES = 4
TIMEOUT_MAX_S = 86_400.0
BACK_OFF_S = 0.2
_BACK_OFF_MAX_S = 10.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

_BY_CODE: Mapping[str, type[AmvError]] = {
    "invalid_namespace": InvalidNamespace,
    "dimension_mismatch": DimensionMismatch,
    "embedder_changed": EmbedderChanged,
    "embedder_failed": EmbedderError,
    "outcome_unknown": OutcomeUnknown,
    "permit_refused": PermitRefused,
    "policy_changed": PolicyChanged,
    "memory_changed": MemoryChanged,
    "no_such_route": AmvError,
}
_BY_STATUS: Mapping[int, type[AmvError]] = {
    400: InvalidInput,
    404: ItemNotFound,
    409: Conflict,
    413: InvalidInput,
    429: StoreUnavailable,
    503: StoreUnavailable,
    504: OutcomeUnknown,
}


class Refused(AmvError):
    """The gateway wants a key, or one that reaches further."""


class Sender:
    """Sends requests to one gateway, and closes the connections to it."""

    def __init__(
        self, url: str, key: str | None, timeout_s: float, sleep: Callable[[float], None]
    ) -> None:
        if not (isinstance(timeout_s, int | float) and 0.0 < timeout_s <= TIMEOUT_MAX_S):
            raise InvalidInput(
                f"timeout_s must be positive, at most {TIMEOUT_MAX_S:g}, got {timeout_s!r}"
            )
        if key is not None and not (key and key.isascii() and key.isprintable()):
            raise InvalidInput("a key is what `amv keys create` has shown, and this is none")
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        try:
            base = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise InvalidInput(f"need the URL of a gateway, got {url!r}") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise InvalidInput(f"need the URL of a gateway, such as {LOCAL}, got {url!r}")
        self._http = httpx.Client(
            base_url=base,
            headers=headers,
            timeout=timeout_s,
            # No proxy leads to this machine; and what isn't TLS needs no certificates read.
            trust_env=base.host not in _THIS_MACHINE,
            verify=base.scheme == "https",
        )
        self._timeout_s = timeout_s
        self._sleep = sleep

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def check_open(self) -> None:
        """Raise StoreClosed after `close`."""
        if self._http.is_closed:
            raise StoreClosed("this client was closed")

    def send(
        self,
        method: str,
        path: str,
        gives: type[R],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        is_read: bool = False,
        is_repeatable: bool = False,
    ) -> R:
        """Send a request, again where that is safe and may help; return what it gives.

        Raises Conflict within a verifier: it must ask the world, not a memory.
        """
        check_independent()
        self.check_open()
        deadline_s = time.monotonic() + self._timeout_s
        content = None if body is None else _json(body)
        sent = {**({} if content is None else _SENDS_JSON), **(headers or {})}
        is_read = is_read or method == "GET"
        for tried in range(1, TRIES + 1):
            left_s = max(0.001, deadline_s - time.monotonic())
            sent["amv-timeout-ms"] = str(math.ceil(left_s * 1e3))
            reply: httpx.Response | None = None
            failure: AmvError
            try:
                reply = self._http.request(
                    method, path, params=query, content=content, headers=sent, timeout=left_s
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent, so nothing was done.
                failure = StoreUnavailable(f"the gateway can't be reached: {error}")
                failure.__cause__, may_repeat = error, True
            except httpx.HTTPError as error:
                failure = _unanswered(error, is_read=is_read)
                failure.__cause__, may_repeat = error, is_read or is_repeatable
            else:
                if reply.is_success:
                    return _decoded(reply.content, gives)
                failure = _error_of(reply, is_read=is_read)
                is_undone = is_repeatable or isinstance(failure, StoreUnavailable)
                # A gateway whose file was given other vectors needs a restart, and no patience.
                is_undone = is_undone and not isinstance(failure, EmbedderChanged)
                may_repeat = is_undone and reply.status_code in (429, 502, 503)
            wait_s = _wait_s(tried, reply)
            if not may_repeat or tried == TRIES or time.monotonic() + wait_s >= deadline_s:
                raise failure
            self._sleep(wait_s)
        raise AssertionError("the last try returns or raises")


_SENDS_JSON = {"content-type": "application/json"}


def _json(body: object) -> bytes:
    # Of the standard library, as that refuses bytes, sets and the like instead of guessing.
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"this can't be sent as JSON: {error}") from error


def _decoded(content: bytes, gives: type[R]) -> R:
    try:
        return msgspec.json.decode(content, type=gives)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise AmvError(f"the gateway's answer can't be read: {error}") from error


def _error_of(reply: httpx.Response, *, is_read: bool) -> AmvError:
    try:
        problem = msgspec.json.decode(reply.content, type=wire.ErrorOut).error
    except (msgspec.DecodeError, UnicodeError):
        return _bare_error(reply.status_code, is_read=is_read)
    if reply.status_code in (401, 403):
        return Refused(problem.message)
    if reply.status_code == 504 and is_read:
        return StoreUnavailable(problem.message)
    by_status = _BY_STATUS.get(reply.status_code, AmvError)
    return _BY_CODE.get(problem.code, by_status)(problem.message)


def _bare_error(status: int, *, is_read: bool) -> AmvError:
    """Return the error for an answer that is not the gateway's: something stands in between."""
    message = f"there was an answer with status {status}, which does not come from a gateway"
    if status == 429 or (status >= 500 and is_read):
        return StoreUnavailable(message)
    return OutcomeUnknown(message) if status >= 500 else AmvError(message)


def _unanswered(error: httpx.HTTPError, *, is_read: bool) -> AmvError:
    what = str(error) or type(error).__name__
    if is_read:
        return StoreUnavailable(f"the gateway did not answer: {what}")
    return OutcomeUnknown(f"the connection failed before the answer came: {what}")


def _wait_s(tried: int, reply: httpx.Response | None) -> float:
    """Return how long to wait: as the gateway says, or longer each time; never all at once."""
    told = reply.headers.get("retry-after", "") if reply is not None else ""
    least_s = float(told) if told.isdecimal() else BACK_OFF_S * 2 ** (tried - 1)
    return min(_BACK_OFF_MAX_S, least_s) * (1.0 + random.random() / 4)
