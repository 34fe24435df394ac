"""A gateway under one policy, whose clock is that of the workload.

    python -m bench.lifecycle.serve TASK

It is the gateway of the product with another clock, which nothing but this
script can give it.  What only the process knows is written when it ends.
"""

import sys
from pathlib import Path

import msgspec

from amv.config import ServerSettings
from amv.server.access import Gatekeeper, pepper_beside
from amv.server.app import Gateway
from amv.server.run import Listener, short_pauses
from bench.lifecycle.arms import BY_NAME, opened
from bench.lifecycle.clock import Clock


class Task(msgspec.Struct, kw_only=True):
    """What to serve: file of the memory, policy, size, clock; and where figures go in the end."""

    db: str
    arm: str
    share: float
    embedder: str
    clock: str
    needs: dict[str, list[float]]
    figures: str
    upkeep_interval_s: float | None = None


def main(path: str) -> None:
    """Serve until told to stop."""
    task = msgspec.json.decode(Path(path).read_bytes(), type=Task)
    server = ServerSettings(port=0)
    memory = opened(
        BY_NAME[task.arm],
        task.db,
        share=task.share,
        embedder=task.embedder,
        clock=Clock(Path(task.clock)),
        needs=task.needs,
        upkeep_interval_s=task.upkeep_interval_s,
    )
    with memory:
        memory.warm()
        gateway = Gateway(memory, Gatekeeper(memory.store, lambda: pepper_beside(task.db)), server)
        try:
            with short_pauses():
                Listener(gateway, server, _say).listen()
        finally:
            gateway.close()
            activity = memory.activity()
            found = {**memory.figures(), "folded": activity.folded, "moved": activity.moved}
            Path(task.figures).write_bytes(msgspec.json.encode(found))


def _say(address: str) -> None:
    print(f"serves at {address}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
