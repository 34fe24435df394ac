"""A server that does everything a search does except to search: what HTTP and JSON cost.

It reads the same bodies into the same types and answers ten items of usual
size, through the same uvicorn with the same settings.
"""

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import uvicorn

from amv.memory.item import Status
from amv.server import wire

_NOW = datetime(2026, 1, 1, 12, 30, 15, 123456, UTC)


def reply() -> wire.SearchOut:
    """Return a search result of ten items of 200 characters."""
    item = wire.ItemOut(
        id="1m8nfkj6hv1nqtsmwbtn",
        namespace=("n123",),
        content="x" * 200,
        context="",
        created_at=_NOW,
        valid_from=_NOW,
        valid_until=None,
        expires_at=None,
        source=None,
        source_trust=0.5,
        claim=None,
        status=Status.LIVE,
        contradicted=False,
        pinned=False,
        metadata={},
        supersedes=None,
        superseded_by=None,
        last_verified_at=None,
        tier="HOT",
        value=0.4999999581018821,
        exposed_count=0,
        contributed_count=0,
    )
    hit = wire.HitOut(item=item, similarity=0.674256742000579, lexical=0.0, rank=0.2697026968002)
    scanned = wire.ScannedOut(hot=1024, warm=26, cold=0, postings=0, total=1050)
    return wire.SearchOut(
        hits=[hit] * 10, scanned=scanned, complete=True, reason="", cold_probed=False
    )


_REPLY = reply()


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer every request with the same result."""
    body = (await receive())["body"]
    msgspec.json.decode(body, type=wire.SearchIn)
    data = msgspec.json.encode(_REPLY)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": data})


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"echo at http://127.0.0.1:{port}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    _Server(
        uvicorn.Config(
            app,
            port=0,
            loop="uvloop",
            http="httptools",
            lifespan="off",
            access_log=False,
            log_config=None,
        )
    ).run()
