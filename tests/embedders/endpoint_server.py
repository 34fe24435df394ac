"""A server of embeddings on a socket of this machine, and what can go wrong with one."""

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from amv.embedders.hashing import Hashing

DIMENSION = 32

Fault = Callable[["Handler", list[str]], None]
"""Answers one request, whose texts are given, in the way it is named for."""


def vectors(texts: Sequence[str], dimension: int = DIMENSION) -> list[list[float]]:
    """Return what the server gives, before AMV scales it: three times as long as it keeps."""
    return [[3.0 * x for x in row] for row in Hashing(dimension=dimension).embed(texts).tolist()]


def entries(rows: Sequence[object]) -> dict[str, Any]:
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": "told otherwise", "usage": {}}


class Handler(BaseHTTPRequestHandler):
    """One request; the next fault answers it, or else what is right."""

    protocol_version = "HTTP/1.1"
    server: "Endpoints"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append((self.path, dict(self.headers.items()), body))
            fault = self.server.faults.pop(0) if self.server.faults else self.server.always
        fault(self, body["input"])

    def answer(self, body: object, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def right(request: Handler, texts: list[str]) -> None:
    request.answer(entries(vectors(texts, request.server.dimension)))


def refusing(status: int, body: object = b"no", **headers: str) -> Fault:
    return lambda request, texts: request.answer(body, status, **headers)


def giving(change: Callable[[dict[str, Any]], object]) -> Fault:
    """Answer with what *change* makes of the right answer, or returns in its place."""

    def fault(request: Handler, texts: list[str]) -> None:
        body = entries(vectors(texts))
        changed = change(body)
        request.answer(body if changed is None else changed)

    return fault


def in_base64(body: dict[str, Any]) -> None:
    for entry in body["data"]:
        entry["embedding"] = base64.b64encode(
            np.array(entry["embedding"], dtype="<f4").tobytes()
        ).decode()


def hanging(request: Handler, texts: list[str]) -> None:
    """Say nothing until the server is closed."""
    request.server.closing.wait()
    request.close_connection = True


def _drip(request: Handler, piece: bytes) -> None:
    try:
        while not request.server.closing.wait(0.01):
            request.wfile.write(piece)
            request.wfile.flush()
    except OSError:
        pass  # the client went away, as it should
    request.close_connection = True


def dripping(request: Handler, texts: list[str]) -> None:
    """Give a byte now and then, and never come to an end."""
    request.send_response(200)
    request.send_header("content-length", "1000000")
    request.end_headers()
    _drip(request, b" ")


def dripping_headers(request: Handler, texts: list[str]) -> None:
    """Give a header line now and then, and never come to the last."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    _drip(request, b"x: y\r\n")


def cut(request: Handler, texts: list[str]) -> None:
    """Break off in the middle of the answer."""
    data = json.dumps(entries(vectors(texts))).encode()
    request.send_response(200)
    request.send_header("content-length", str(len(data)))
    request.end_headers()
    request.wfile.write(data[: len(data) // 2])
    request.wfile.flush()
    request.connection.shutdown(socket.SHUT_RDWR)
    request.close_connection = True


def dropped(request: Handler, texts: list[str]) -> None:
    """Close the connection without a word."""
    request.connection.shutdown(socket.SHUT_RDWR)
    request.close_connection = True


class Endpoints(ThreadingHTTPServer):
    """The server; *faults* answer first, then *always*."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.faults: list[Fault] = []
        self.always: Fault = right
        self.dimension = DIMENSION

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def texts(self) -> list[list[str]]:
        """The texts of each request."""
        return [body["input"] for _, _, body in self.asked]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a client that went away."""


@contextmanager
def serving() -> Iterator[Endpoints]:
    """Run a server for the time of the block."""
    server = Endpoints()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
