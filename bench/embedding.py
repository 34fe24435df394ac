"""Vectors of the corpus, embedded once a machine and kept in the cache.

A hundred thousand sentences take the default embedder five minutes on two
cores.  The cache is keyed by the texts and by the embedder's id, in blocks, so
that a small run embeds only what it needs and a later, larger one goes on from
there.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.progress import track

from amv.memory.ports import Embedder, Floats
from bench.machine import CACHE

_BLOCK = 2048


def embed(texts: Sequence[str], embedder: Embedder) -> Floats:
    """Return the vectors of *texts*, of shape (n, dimension); reads and fills the cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    blocks = list(_blocks(texts))
    missing = [b for b in blocks if not _path(b, embedder).exists()]
    for block in track(missing, "embedding passages", disable=len(missing) < 2):
        path = _path(block, embedder)
        half_written = path.with_suffix(".tmp")
        with half_written.open("wb") as file:
            np.save(file, embedder.embed(block))
        half_written.replace(path)
    return np.concatenate([np.load(_path(block, embedder)) for block in blocks])


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _BLOCK):
        yield texts[start : start + _BLOCK]


def _path(block: Sequence[str], embedder: Embedder) -> Path:
    digest = hashlib.sha256("\0".join([embedder.id, *block]).encode()).hexdigest()
    return CACHE / f"vectors-{digest[:24]}.npy"
