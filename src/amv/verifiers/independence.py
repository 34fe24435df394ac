"""Independence: a verifier asks the world, and not the memory that is to be verified.

Within a verifier the stores refuse to answer (`amv.checks`).  They know it by
its context; code that it runs in a thread of its own has none of that, so the
threads a verifier starts are noted as well, until it has ended.  What it hands
to a thread that was there before, or to another process, is not seen.
"""

import threading
from functools import cache, wraps
from typing import Any

from amv.checks import verifier_here, verifying_threads

NOT_INDEPENDENT = "the verifier reads AMV's own memory, so it is not independent"


@cache
def follow_threads() -> None:
    """Note the threads that verifiers start, from now on.

    Nothing in Python 3.11 tells which thread started another, so
    `threading.Thread.start` is wrapped, once in a process, when the first
    function is registered as a verifier.
    """
    start = threading.Thread.start

    @wraps(start)
    def noted(thread: threading.Thread) -> None:
        running = verifier_here()
        if running is not None:
            verifying_threads[thread] = running
        start(thread)

    kind: Any = threading.Thread
    kind.start = noted
