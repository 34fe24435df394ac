"""What goes back: JSON, and for each error its status and a name for programs."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

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
from amv.server.access import Forbidden, Unauthorised
from amv.server.work import DeadlineExceeded, Overloaded, TooManyRequests

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

RETRY_AFTER_S = 1
EMBEDDER_CHANGED = "embedder_changed"
_JSON = (b"content-type", b"application/json")


class TooLarge(AmvError):
    """The body is larger than the server takes."""


class UnsupportedMedia(AmvError):
    """The body is not said to be JSON."""


class WrongHost(AmvError):
    """The request was made under a name, or by a page, that is not this machine's own."""


class NotIndependent(AmvError):
    """A verifier asked a memory, which is no evidence for a memory."""


#: The status of each error, the first that fits, and a name for programs.
_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (Unauthorised, 401, "unauthorised"),
    (Forbidden, 403, "forbidden"),
    (WrongHost, 403, "wrong_host"),
    (NotIndependent, 403, "not_independent"),
    (TooLarge, 413, "too_large"),
    (UnsupportedMedia, 415, "unsupported_media_type"),
    (InvalidNamespace, 400, "invalid_namespace"),
    # Nothing the caller did: another process has given the store other vectors.
    (EmbedderChanged, 503, EMBEDDER_CHANGED),
    (DimensionMismatch, 400, "dimension_mismatch"),
    (InvalidInput, 400, "invalid_input"),
    (ItemNotFound, 404, "not_found"),
    (PolicyChanged, 409, "policy_changed"),
    (MemoryChanged, 409, "memory_changed"),
    (PermitRefused, 409, "permit_refused"),
    (Conflict, 409, "conflict"),
    (TooManyRequests, 429, "too_many_requests"),
    (Overloaded, 503, "overloaded"),
    (StoreUnavailable, 503, "store_unavailable"),
    (StoreClosed, 503, "shutting_down"),
    (DeadlineExceeded, 504, "deadline_exceeded"),
    (OutcomeUnknown, 500, "outcome_unknown"),
    (EmbedderError, 500, "embedder_failed"),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (_JSON,)

    async def send(self, send: Send, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send it, with *more* headers."""
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body)), *more]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def error_reply(error: Exception) -> Reply:
    """Return what is said of an error; of one that nobody outside can mend, no more than that."""
    for kind, status, code in _ERRORS:
        if isinstance(error, kind):
            return told(status, code, "; ".join([str(error), *getattr(error, "__notes__", ())]))
    return told(500, "internal", "the server failed; its log says more under this request's id")


def told(status: int, code: str, message: str) -> Reply:
    """Return the reply that tells of an error."""
    headers: tuple[tuple[bytes, bytes], ...] = (_JSON,)
    # Waiting is of no use where only a restart is.
    if status in (429, 503) and code != EMBEDDER_CHANGED:
        headers += ((b"retry-after", str(RETRY_AFTER_S).encode()),)
    if status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    problem = wire.ErrorOut(error=wire.ProblemOut(code=code, message=message))
    return Reply(status, wire.encoded(problem), headers)
