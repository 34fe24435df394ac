"""What a static model keeps of the default one, and the making of the one that ships.

    python -m bench.distilled FILE        # src/amv/embedders/static_table.bin, made again

A static model has one vector a token, and a text is their weighted sum: no layer is run
for a query.  The vectors come from the packaged model itself: each token of the vocabulary
is embedded alone, then the table is centred and turned onto its principal axes, of which
the first *d* are kept.  How much a frequent token counts is guessed from its place in the
vocabulary, which is roughly that of its frequency: not at all (`none`), log(1 + place)
(`zipf`), or a / (a + p) with p ∝ 1 / place, a = 0.001 (`sif`; Arora et al., "A Simple but
Tough-to-Beat Baseline for Sentence Embeddings", 2017).

Distilling takes some 30 seconds of CPU once; the token vectors are kept in the cache.  Another
machine's kernels round otherwise, so a table made there may differ in some last bits: a new
table is a new embedder, with an id of its own.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track

from amv.embedders import static, wordpiece
from amv.embedders.minilm import MiniLM
from amv.memory.ports import Embedder, Floats
from bench.machine import CACHE
from bench.store_rows import Sink

DIMENSIONS = (384, 256, 128)
WEIGHTINGS = ("none", "zipf", "sif")
TOKENS_MAX = 254

_SIF = 1e-3
_SCALE_MAX = 65535
_ROW_MAX = 127
_BLOCK = 32


def token_vectors(model: MiniLM) -> Floats:
    """Return the model's vector of each token of its vocabulary alone, of shape (n, 384)."""
    path = CACHE / f"tokens-{model.id}.npy"
    if path.exists():
        found: Floats = np.load(path)
        return found
    model.warm_up()
    bert = wordpiece.bert()
    count = len(wordpiece.VOCABULARY.read_text("utf-8").removesuffix("\n").split("\n"))
    rows = [[bert.cls_id, token, bert.sep_id] for token in range(count)]
    blocks = [rows[at : at + _BLOCK] for at in range(0, count, _BLOCK)]
    matrix = np.concatenate([model._run(block) for block in track(blocks, "distilling")])
    CACHE.mkdir(parents=True, exist_ok=True)
    half_written = path.with_suffix(".tmp")
    with half_written.open("wb") as file:
        np.save(file, matrix)
    half_written.replace(path)
    return matrix


class Distilled:
    """A static model; an `Embedder`."""

    max_tokens = TOKENS_MAX

    def __init__(self, tokens: Floats, dimension: int, weighting: str) -> None:
        self.id = f"bench-distilled-{dimension}-{weighting}"
        self.dimension = dimension
        self._table = table_of(tokens, dimension, weighting)

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return unit-length rows; a text without words gets the vector of the first token."""
        encode = wordpiece.bert().encode
        rows = [encode(text, TOKENS_MAX) or [0] for text in texts]
        sums = np.stack([self._table[row].sum(axis=0) for row in rows])
        vectors: Floats = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return one passage: what is measured here is short."""
        return [(0, len(text))]


def table_of(tokens: Floats, dimension: int, weighting: str) -> Floats:
    """Return weighted rows of *dimension* numbers, one a token."""
    centred = tokens.astype(np.float64) - tokens.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    kept = axes[:, ::-1][:, :dimension]
    # An axis has no direction of its own: its largest number shall be positive.
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])])
    table: Floats = (centred @ kept * _weights(len(tokens), weighting)[:, None]).astype(np.float32)
    return table


def packed(table: Floats) -> bytes:
    """Return a table as `amv.embedders.static` reads it: rows of int8, then scales of uint16."""
    peaks = np.abs(table).max(axis=1)
    scales = np.maximum(1, np.rint(peaks / peaks.max() * _SCALE_MAX))
    unit = peaks.max() / _SCALE_MAX / _ROW_MAX
    rows = np.clip(np.rint(table / (scales * unit)[:, None]), -_ROW_MAX, _ROW_MAX)
    return bytes(rows.astype(np.int8)) + bytes(scales.astype("<u2"))


def _weights(count: int, weighting: str) -> Floats:
    place = np.arange(1, count + 1, dtype=np.float64)
    share = 1.0 / (place * np.log(count))
    by_name = {
        "none": np.ones(count),
        "zipf": np.log1p(place),
        "sif": _SIF / (_SIF + share),
    }
    chosen: Floats = by_name[weighting].astype(np.float32)
    return chosen


def cost(model: Embedder, queries: Sequence[str], sink: Sink) -> None:
    """Measure the CPU that queries take one at a time, threads of the model's included."""
    model.embed(queries[:8])
    took_us = []
    for query in queries:
        began_s = time.process_time()
        model.embed([query])
        took_us.append(round(1e6 * (time.process_time() - began_s), 1))
    sink.add("embedding", model=model.id, cpu_us=took_us)


def main(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where it is written.")],
) -> None:
    """Make the table of the static embedder from the packaged model."""
    content = packed(table_of(token_vectors(MiniLM()), static.DIMENSION, "zipf"))
    path.write_bytes(content)
    typer.echo(f"sha256 {hashlib.sha256(content).hexdigest()}, need {static.TABLE_SHA256}")


if __name__ == "__main__":
    typer.run(main)
