"""`amv serve` as a process that faults are injected into; run as a module, under strace.

Like `child.py` it forks for each job, but what the fork runs is the command, and
its steps come from outside, over HTTP.  A fault is aimed at one of two threads:
the "loop", which opens the file, answers, and closes it, or the one that
"writes".  There is one of these here instead of several, so that the n-th call
is the same call in every run.
"""

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

from amv.cli import output
from amv.cli.app import main
from amv.server import work
from tests.faults.child import say, serve_jobs, take_aim

IMPORTED_LATE = (
    "amv.server.logs",
    "amv.server.run",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)
"""What the command imports once it runs; here, once for all forks."""


def serve(*, path: str, aim: str, call: str, nth: int) -> None:
    """Serve a file until told to stop, or struck."""

    def pool(_threads: int, **how: Any) -> ThreadPoolExecutor:
        aims = (call, nth) if aim == "write" else (call, 0)
        return ThreadPoolExecutor(1, initializer=take_aim, initargs=aims, **how)

    def remark(text: str) -> None:
        say(url=text.rpartition(" ")[2], pid=os.getpid())

    if aim == "loop":
        take_aim(call, nth)
    with patch.object(work, "ThreadPoolExecutor", pool), patch.object(output, "remark", remark):
        code = main(["--db", path, "serve", "--port", "0"])
    assert code == 0, f"amv serve ended with {code}"


if __name__ == "__main__":
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    serve_jobs(lambda given: serve(**given))
