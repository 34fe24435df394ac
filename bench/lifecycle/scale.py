"""The same rate of requests, whatever is retained: from 10^4 items to 10^6.

One user, whose items are those of `bench.datasets.clusters`, written over 20
days of simulated time.  Then a tenth of the requests write and the others
search by a vector and words.
"""

from collections.abc import Callable

import amv
from amv.memory.ports import Floats
from bench import datasets
from bench.lifecycle.ops import DAY_S, START_S, Op, Workload, namespace
from bench.lifecycle.words import Words

import numpy as np  # isort: skip

BATCH = 4096
WRITTEN_DAYS = 20.0
SPENT_DAYS = 2.0
_WORDS_ASKED = 6


def scale(size: int, requests: int, seed: int) -> tuple[Workload, Floats, Callable[..., None]]:
    """Return requests, their vectors, and what fills a memory before; both know a time to live."""
    data = datasets.make("clusters", size, seed)
    rng = np.random.default_rng([seed, 44])
    words = Words(seed)
    ops, vectors = [], []
    for n in range(requests):
        at_s = (WRITTEN_DAYS + SPENT_DAYS * n / requests) * DAY_S
        query = int(rng.integers(len(data.queries)))
        vectors.append(data.queries[query])
        if n % 10 == 0:
            ops.append(Op(at_s=at_s, kind="write", ids=[f"w{n}"], texts=[words.text(n % 50)]))
        else:
            said = " ".join(data.query_texts[query].split()[:_WORDS_ASKED])
            ops.append(Op(at_s=at_s, kind="question", texts=[said]))

    def fill(memory: amv.Memory, ttl_s: float | None = None) -> None:
        for start in range(0, size, BATCH):
            stop = min(size, start + BATCH)
            memory.add_many(
                {
                    "content": data.contents[place],
                    "namespace": namespace(0),
                    "vector": data.vectors[place],
                    "id": f"i{place}",
                    **({} if ttl_s is None else {"expires_at": START_S + ttl_s}),
                }
                for place in range(start, stop)
            )
        memory.sweep()

    about: dict[str, object] = {"days": SPENT_DAYS, "items": size}
    return Workload(f"scale-{size}", seed, ops, about=about), np.asarray(vectors), fill
