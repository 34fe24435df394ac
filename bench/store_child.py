"""A fresh process that searches once or twice and tells when; started by `bench.store_cold`.

It imports no more than a program that uses AMV would, since imports are part
of what such a program waits for.
"""

import json
import sys
import time

import numpy as np

import amv
from bench.store_given import NAMESPACE, Given


def _search_text(path: str, text: str) -> dict[str, float]:
    imported_s = time.monotonic()
    with amv.Memory.open(path) as memory:
        opened_s = time.monotonic()
        hits = len(memory.search(text, namespace=NAMESPACE).hits)
        answered_s = time.monotonic()
    return {
        "imported_s": imported_s,
        "opened_s": opened_s,
        "answered_s": answered_s,
        "hits": hits,
    }


def _search_vectors(path: str, embedder_id: str, queries: str) -> dict[str, float]:
    vectors = np.load(queries)
    with amv.Memory.open(path, embedder=Given(embedder_id, vectors.shape[1])) as memory:
        took_ms, cpu_ms = [], []
        for vector in vectors:
            start_s, cpu_s = time.perf_counter(), time.process_time()
            hits = len(memory.search(namespace=NAMESPACE, vector=vector).hits)
            took_ms.append(1000 * (time.perf_counter() - start_s))
            cpu_ms.append(1000 * (time.process_time() - cpu_s))
    return {
        "first_ms": took_ms[0],
        "second_ms": took_ms[1],
        "first_cpu_ms": cpu_ms[0],
        "second_cpu_ms": cpu_ms[1],
        "hits": hits,
    }


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    told = _search_text(*arguments) if what == "text" else _search_vectors(*arguments)
    sys.stdout.write(json.dumps(told))
