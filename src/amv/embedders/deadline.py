"""One time-out for a whole exchange over HTTP, where httpx has one for each read alone.

A server that gives a byte of its header now and then would otherwise be waited for as long as it
likes.  httpx leaves no other place to say so: the backend that opens connections is put around
the one its pools have.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any

import httpcore
import httpx


class Deadline(threading.local):
    """How many seconds a thread has left for what it is doing; any number, unless it is set."""

    left_s: Callable[[], float] | None = None

    @contextmanager
    def set(self, left_s: Callable[[], float]) -> Iterator[None]:
        """Bound what this thread does in the block by what *left_s* returns."""
        self.left_s = left_s
        try:
            yield
        finally:
            self.left_s = None

    def bound(self, timeout_s: float | None) -> float | None:
        """Return how long one step may take; raises httpcore.ReadTimeout if time is up."""
        if self.left_s is None:
            return timeout_s
        left_s = self.left_s()
        if left_s <= 0.0:
            raise httpcore.ReadTimeout("the time for the whole answer is up")
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def hold(self, client: httpx.Client) -> None:
        """Have all that *client* reads and writes keep to this deadline."""
        for transport in (vars(client)["_transport"], *vars(client)["_mounts"].values()):
            pool = vars(transport)["_pool"] if isinstance(transport, httpx.HTTPTransport) else None
            if pool is not None:
                vars(pool)["_network_backend"] = _Backend(vars(pool)["_network_backend"], self)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend, deadline: Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._backend.connect_tcp(
            host, port, self._deadline.bound(timeout), local_address, socket_options
        )
        return _Stream(stream, self._deadline)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.bound(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.bound(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        bounded = self._deadline.bound(timeout)
        stream = self._stream.start_tls(ssl_context, server_hostname, bounded)
        return _Stream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
