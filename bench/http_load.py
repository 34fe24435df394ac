"""A load generator: requests at given moments, each timed from when it was to be sent.

    python -m bench.http_load ADDRESS BODIES PATH RATE SECONDS CONNECTIONS SEED OUT

An open loop: arrivals are a Poisson process and do not wait for replies, so
that a server that stalls is seen to stall (no coordinated omission).  RATE 0
is a closed loop: each connection sends its next request when it has its reply,
and the generator polls all the time: to wake a process that sleeps on the same
machine is charged to whoever wakes it, and no server over a network pays that.
It runs in a process of its own.  BODIES is a file of JSON bodies, one a line,
taken in a random order; a line may begin with a path of its own and a space.
OUT gets one array each, with an entry a reply, of the intended moment in
seconds since the first, of seconds since that moment, of statuses, of scanned
totals and of which line was sent.
"""

import asyncio
import re
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import uvloop

from bench.http_connection import Connection, connect, posted

_TOTAL = re.compile(rb'"total":(\d+)')
_DRAIN_S = 30.0


class _Load:
    """All requests of one run."""

    def __init__(self, requests: list[bytes], rng: np.random.Generator) -> None:
        self._requests = requests
        self._order = rng.integers(0, len(requests), 1 << 16).tolist()
        self._waiting: deque[tuple[int, bytes, float]] = deque()
        # The one idle for longest is used first, so that none is idle until it is closed.
        self._free: deque[Connection] = deque()
        self._sent = 0
        self.closed_until_s: float | None = None
        self.lost = 0
        self.lines: list[int] = []
        self.due_s: list[float] = []
        self.took_s: list[float] = []
        self.statuses: list[int] = []
        self.totals: list[int] = []

    def replied(self, line: int, due_s: float, status: int, reply: bytes, body_at: int) -> None:
        """Note one reply."""
        total = _TOTAL.search(reply, body_at)
        self.took_s.append(time.perf_counter() - due_s)
        self.lines.append(line)
        self.due_s.append(due_s)
        self.statuses.append(status)
        self.totals.append(int(total[1]) if total else -1)

    def is_free(self, connection: Connection) -> None:
        """Give a connection its next request, if one is due."""
        if self._waiting:
            connection.send(*self._waiting.popleft())
        elif self.closed_until_s is not None and time.perf_counter() < self.closed_until_s:
            connection.send(*self._next(), time.perf_counter())
        else:
            self._free.append(connection)

    def is_lost(self, connection: Connection) -> None:
        """Use a connection no more: a server closes one that was idle for long."""
        self.lost += 1
        if connection in self._free:
            self._free.remove(connection)

    def arrive(self, due_s: float) -> None:
        """Send a request, or have it wait for a connection."""
        if self._free:
            self._free.popleft().send(*self._next(), due_s)
        else:
            self._waiting.append((*self._next(), due_s))

    def _next(self) -> tuple[int, bytes]:
        line = self._order[self._sent & 0xFFFF]
        self._sent += 1
        return line, self._requests[line]

    @property
    def under_way(self) -> int:
        """How many requests have no reply yet."""
        return self._sent - len(self.took_s)


async def _run(
    address: str, requests: list[bytes], rate: float, seconds: float, connections: int, seed: int
) -> _Load:
    rng = np.random.default_rng(seed)
    load = _Load(requests, rng)
    for connection in await connect(address, load, connections):
        load.is_free(connection)
    begin_s = time.perf_counter() + 0.1
    if not rate:
        load.closed_until_s = begin_s + seconds
        for _ in range(connections):
            load.arrive(time.perf_counter())
        while time.perf_counter() < load.closed_until_s + 0.1:
            await asyncio.sleep(0)
    else:
        due_s = begin_s + np.cumsum(rng.exponential(1.0 / rate, int(rate * seconds)))
        for moment_s in due_s.tolist():
            while (left_s := moment_s - time.perf_counter()) > 0.0:
                await asyncio.sleep(left_s if left_s > 0.001 else 0)
            load.arrive(moment_s)
    end_s = time.perf_counter() + _DRAIN_S
    while load.under_way and time.perf_counter() < end_s:
        await asyncio.sleep(0.01)
    return load


def _request(line: bytes, path: str) -> bytes:
    own, _, body = line.partition(b" ") if line.startswith(b"/") else (path.encode(), b"", line)
    return posted(own, body)


def main(arguments: list[str]) -> None:
    """Run one load and save what it measured."""
    address, bodies, path, rate, seconds, connections, seed, out = arguments
    requests = [_request(line, path) for line in Path(bodies).read_bytes().splitlines()]
    load = uvloop.run(
        _run(address, requests, float(rate), float(seconds), int(connections), int(seed))
    )
    np.savez(
        out,
        lines=np.asarray(load.lines, dtype=np.int32),
        due_s=np.asarray(load.due_s) - min(load.due_s, default=0.0),
        took_s=np.asarray(load.took_s),
        statuses=np.asarray(load.statuses, dtype=np.int16),
        totals=np.asarray(load.totals, dtype=np.int32),
        unanswered=load.under_way,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
