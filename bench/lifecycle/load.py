"""The load generator: a workload's requests in their order, over a few connections.

    python -m bench.lifecycle.load ADDRESS REQUESTS CLOCK RATE CONNECTIONS SEED OUT

With a RATE it is an open loop: arrivals are a Poisson process, and each
request is timed from when it was to be sent.  RATE 0 is a closed loop, in which
a connection sends the next request when it has its reply.  Either way, what
is sent sets the simulated time.  A question that found what it needs is followed by
telling the gateway that this was used.  It runs in a process of its own.
"""

import asyncio
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvloop

from bench.http_connection import Connection, connect, posted
from bench.lifecycle.clock import Clock
from bench.lifecycle.ops import Sent, namespace

_DRAIN_S = 120.0
_FEEDBACK = -1


class Reply(msgspec.Struct, array_like=True):
    """What came back for one request; *place* is its place in the workload, -1 for feedback.

    *tiers* has a letter for each of *ids*: h, w or c.  *tokens* are those of a
    prompt, *moves* the items a sweep moved, *held* the items per tier.
    """

    place: int
    due_s: float
    took_s: float
    status: int
    scanned: int = -1
    ids: list[str] = []
    tiers: str = ""
    tokens: int = -1
    moves: int = -1
    held: dict[str, int] = {}


class _Item(msgspec.Struct):
    id: str
    tier: str


class _Hit(msgspec.Struct):
    item: _Item


class _Scanned(msgspec.Struct):
    total: int


class _Found(msgspec.Struct):
    hits: list[_Hit]
    scanned: _Scanned


class _Packed(msgspec.Struct):
    item_ids: list[str]
    tokens: int


class _Swept(msgspec.Struct):
    moves: list[msgspec.Raw]


class _Stats(msgspec.Struct):
    tiers: dict[str, int]


_DECODE: dict[str, msgspec.json.Decoder[Any]] = {
    "recall": msgspec.json.Decoder(_Found),
    "question": msgspec.json.Decoder(_Found),
    "ask": msgspec.json.Decoder(_Packed),
    "sweep": msgspec.json.Decoder(_Swept),
    "stats": msgspec.json.Decoder(_Stats),
}


class Replay:
    """All requests of one run; at most *most* of them, from the first on."""

    def __init__(self, sent: list[Sent], clock: Clock) -> None:
        self._sent = sent
        self._clock = clock
        self._next = 0
        self._due: deque[float] = deque()
        self._told: deque[bytes] = deque()
        self._free: deque[Connection] = deque()
        self._under_way = 0
        self.is_closed = False
        self.replies: list[Reply] = []
        self.lost = 0

    @property
    def is_done(self) -> bool:
        """Whether everything was sent and answered."""
        return not (self._under_way or self._told or self._next < len(self._sent))

    def arrive(self, due_s: float) -> None:
        """Send the next request, or have it wait for a connection."""
        self._due.append(due_s)
        self._go_on()

    def is_free(self, connection: Connection) -> None:
        """Give a connection what is to be sent next."""
        self._free.append(connection)
        self._go_on()

    def is_lost(self, connection: Connection) -> None:
        """Use a connection no more."""
        self.lost += 1
        if connection in self._free:
            self._free.remove(connection)

    def _go_on(self) -> None:
        while self._free and (self._told or self._has_due()):
            connection = self._free.popleft()
            self._under_way += 1
            if self._told:
                connection.send(_FEEDBACK, self._told.popleft(), time.perf_counter())
                continue
            one = self._sent[self._next]
            self._clock.advance(one.at_s)
            method, _, path = one.line.partition(b" ")
            due_s = time.perf_counter() if self.is_closed else self._due.popleft()
            connection.send(self._next, posted(path, one.body, method), due_s)
            self._next += 1

    def _has_due(self) -> bool:
        return self._next < len(self._sent) and (self.is_closed or bool(self._due))

    def replied(self, line: int, due_s: float, status: int, reply: bytes, body_at: int) -> None:
        """Note a reply, and tell of what a question made use of."""
        took_s = time.perf_counter() - due_s
        self._under_way -= 1
        note = Reply(line, due_s, took_s, status)
        self.replies.append(note)
        if line == _FEEDBACK or status >= 300:
            return
        one = self._sent[line]
        decoder = _DECODE.get(one.kind)
        if decoder is None:
            return
        match decoder.decode(memoryview(reply)[body_at:]):
            case _Found(hits, scanned):
                note.ids = [hit.item.id for hit in hits]
                note.tiers = "".join(hit.item.tier[0].lower() for hit in hits)
                note.scanned = scanned.total
            case _Packed(ids, tokens):
                note.ids, note.tokens = ids, tokens
            case _Swept(moves):
                note.moves = len(moves)
            case _Stats(tiers):
                note.held = {tier.lower(): count for tier, count in tiers.items()}
        used = [item_id for item_id in one.needs if item_id in note.ids]
        if one.kind == "question" and used:
            body = {"ids": used, "namespace": namespace(one.user)}
            self._told.append(posted(b"/v1/feedback", msgspec.json.encode(body)))


async def run(
    address: str, sent: list[Sent], clock: Clock, rate: float, connections: int, seed: int
) -> Replay:
    """Send all requests; return what came back."""
    replay = Replay(sent, clock)
    replay.is_closed = not rate
    for connection in await connect(address, replay, connections):
        replay.is_free(connection)
    if rate:
        rng = np.random.default_rng([seed, 7])
        due_s = time.perf_counter() + 0.1 + np.cumsum(rng.exponential(1.0 / rate, len(sent)))
        for moment_s in due_s.tolist():
            while (left_s := moment_s - time.perf_counter()) > 0.0:
                await asyncio.sleep(left_s if left_s > 0.001 else 0)
            replay.arrive(moment_s)
    quiet_s, before = time.perf_counter(), 0
    while not replay.is_done and time.perf_counter() < quiet_s + _DRAIN_S:
        if len(replay.replies) != before:
            quiet_s, before = time.perf_counter(), len(replay.replies)
        await asyncio.sleep(0.005)
    return replay


def main(arguments: list[str]) -> None:
    """Run one workload and save what came back."""
    address, requests, clock, rate, connections, seed, out = arguments
    sent = msgspec.msgpack.decode(Path(requests).read_bytes(), type=list[Sent])
    began_s = time.perf_counter()
    replay = uvloop.run(
        run(address, sent, Clock(Path(clock)), float(rate), int(connections), int(seed))
    )
    if not replay.is_done:
        raise SystemExit(f"{len(sent)} requests sent, {len(replay.replies)} answered")
    found = (time.perf_counter() - began_s, replay.replies)
    Path(out).write_bytes(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main(sys.argv[1:])
