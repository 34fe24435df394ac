"""What a fresh process waits for, measured in fresh processes.

The file was just written, so its pages are in the system's cache: what is
measured is AMV's own work, not the disk.  The process is `bench.store_child`.
"""

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from bench.machine import ROOT
from bench.store_memory import Subject
from bench.store_rows import Sink


def text_searches(subject: Subject, sink: Sink, processes: int) -> None:
    """Note the time from a process's start to its first text search answered, model included."""
    for text in subject.dataset.query_texts[:processes]:
        # The monotonic clock is the same in all processes of a machine.
        start_s = time.monotonic()
        told = _child("text", str(subject.path), text)
        sink.add(
            "cold_text",
            page_cache="warm",
            hits=told["hits"],
            imported_s=told["imported_s"] - start_s,
            opened_s=told["opened_s"] - start_s,
            answered_s=told["answered_s"] - start_s,
        )


def vector_searches(subject: Subject, sink: Sink, processes: int) -> None:
    """Note how much longer the first vector search takes than the second."""
    queries = subject.path.with_name("queries.npy")
    for n in range(processes):
        np.save(queries, subject.dataset.queries[2 * n : 2 * n + 2])
        told = _child("vector", str(subject.path), subject.dataset.embedder_id, str(queries))
        sink.add("cold_vector", page_cache="warm", **told)


def _child(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.store_child", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a measured process failed:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
