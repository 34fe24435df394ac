"""Connections of the load generators: each kept alive, with one request under way at most."""

import asyncio
import re
from typing import Protocol, cast

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Load(Protocol):
    """Who sends requests over connections, and is told of the replies."""

    def replied(self, line: int, due_s: float, status: int, reply: bytes, body_at: int) -> None:
        """Take a whole reply to request *line*, which was due at *due_s*."""

    def is_free(self, connection: "Connection") -> None:
        """Take back a connection that has its reply."""

    def is_lost(self, connection: "Connection") -> None:
        """Take note that a connection was closed."""


class Connection(asyncio.Protocol):
    """One connection to a gateway."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._due_s = 0.0
        self._line = 0
        self._got = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what bytes are written to."""
        # That of uvloop is one by what it does, not by its class.
        self._transport = cast(asyncio.Transport, transport)

    def send(self, line: int, request: bytes, due_s: float) -> None:
        """Send one request, called *line*, which was due at *due_s*."""
        assert self._transport is not None
        self._line, self._due_s, self._got = line, due_s, b""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Take a part of a reply, and pass the reply on once it is whole."""
        self._got = self._got + data if self._got else data
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return
        found = _LENGTH.search(self._got, 0, end)
        if found is None or len(self._got) < end + 4 + int(found[1]):
            return
        self._load.replied(self._line, self._due_s, int(self._got[9:12]), self._got, end + 4)
        self._load.is_free(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell that this is of no more use."""
        self._load.is_lost(self)


async def connect(address: str, load: Load, count: int) -> list[Connection]:
    """Open connections to the server at *address*."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition("/")[2].rpartition(":")
    made = [
        await loop.create_connection(lambda: Connection(load), host, int(port))
        for _ in range(count)
    ]
    return [connection for _, connection in made]


def posted(path: bytes, body: bytes, method: bytes = b"POST") -> bytes:
    """Return a request with a JSON body."""
    return (
        b"%b %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (method, path, len(body), body)
    )
