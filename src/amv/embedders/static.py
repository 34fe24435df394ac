"""A static model: one vector a token, added up.  No layer is run, so a text costs microseconds.

Each token of the vocabulary was embedded alone by the packaged MiniLM; the table was centred,
turned onto its 256 principal axes and weighted by log(1 + place in the vocabulary), which is
roughly the order of frequency.  (The idea is that of model2vec; the weighting stands in for that
of Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings".)  What it
keeps of the default's recall is told in docs/explanation/retrieval.md; `bench.distilled` makes
the table, which comes with the package: made on each machine anew, by other kernels, it would
turn its axes otherwise, and files would not be comparable.

A row is 256 integers of 8 bits and a scale of 16.  A text is the sum of scale times row: of whole
numbers below 2^53, which float64 adds without rounding, in any order.  So a text gets the same
vector alone and among others and on every machine, to the last bit.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import numpy.typing as npt

from amv.embedders import STATIC_ID, wordpiece
from amv.embedders.packaged import verified
from amv.embedders.passages import split

TABLE = Path(__file__).with_name("static_table.bin")
TABLE_SHA256 = "fac6164d048769629e6a99ed2f5e0b44db9b10a5021f263c23db9ce0eb952bdc"
DIMENSION = 256
TOKENS_MAX = 254
"""As many tokens of a text as MiniLM reads, so that both split contents alike."""

_ROWS = 30522
_SCALE_BYTES = 2
_PAD = 0
"""The row that stands for a text without words."""


class Static:
    """The embedder without a model.  Safe for use by several threads.

    The table (8 MB) is read by the first text, or by `warm_up`; *table* is another place of the
    same file.
    """

    def __init__(self, *, table: Path = TABLE) -> None:
        self._path = table
        self._lock = Lock()
        self._table: tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]] | None = None

    @property
    def id(self) -> str:
        """Name of the table and of its arithmetic."""
        return STATIC_ID

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text one vector reads."""
        return TOKENS_MAX

    def warm_up(self) -> None:
        """Read vocabulary and table now.

        Raises EmbedderError when a file is missing or not the one that is meant.
        """
        wordpiece.bert()
        self._rows()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit-length rows of shape (len(texts), 256).

        Of a longer text only the first `max_tokens` are read; see `passages`.  A text
        without words gets the vector of the empty text.  Raises EmbedderError.
        """
        rows, scales = self._rows()
        encode = wordpiece.bert().encode
        matrix = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for number, text in enumerate(texts):
            ids = encode(text, TOKENS_MAX) or [_PAD]
            total = scales[ids] @ rows[ids].astype(np.float64)
            # Rounded once, however many lanes a machine adds in.
            norm = math.sqrt(math.fsum((total * total).tolist()))
            # That tokens cancel to the last bit is possible, if only just.
            matrix[number] = total / norm if norm else self.embed([""])[0]
        return matrix

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return character spans that cover *text*, of at most `max_tokens` tokens each."""
        return split(text, capacity=TOKENS_MAX, count=wordpiece.bert().count)

    def _rows(self) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
        """Return the table: rows of shape (30522, 256), and the scale of each."""
        with self._lock:
            if self._table is None:
                self._table = _read(self._path)
            return self._table


def _read(path: Path) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Verify the file and read it."""
    content = verified(path, TABLE_SHA256)
    rows = np.frombuffer(content, np.int8, _ROWS * DIMENSION).reshape(_ROWS, DIMENSION)
    scales = np.frombuffer(content, "<u2", offset=_ROWS * DIMENSION)
    return rows, scales.astype(np.float64)
