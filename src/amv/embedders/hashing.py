"""Feature hashing: vectors without a model, for tests and for those who want none.

Every word and every pair of neighbouring words is a feature, which a hash sends
to one of `dimension` buckets with a sign; a bucket sums the square roots of its
features' counts (Weinberger et al. 2009, arXiv 0902.2206).  The sign makes what
collides cancel on average, so that the dot product of two vectors estimates
how many words their texts share.  It knows no synonyms.

The hash is BLAKE2b, not Python's own, which differs from process to process.
"""

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from amv.checks import shown
from amv.embedders.passages import split
from amv.errors import InvalidInput

DIMENSION_MIN = 8
DIMENSION_MAX = 4096
WORDS_MAX = 256

_WORD = re.compile(r"\w+")


class Hashing:
    """An embedder that hashes words.  It keeps no state."""

    def __init__(self, *, dimension: int = 256) -> None:
        is_integer = isinstance(dimension, int) and not isinstance(dimension, bool)
        if not (is_integer and DIMENSION_MIN <= dimension <= DIMENSION_MAX):
            raise InvalidInput(
                f"need a dimension of {DIMENSION_MIN} to {DIMENSION_MAX}, got {shown(dimension)}"
            )
        self._dimension = dimension

    @property
    def id(self) -> str:
        """Name of the method and its size."""
        return f"hashing-{self._dimension}"

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """How many words of a text one vector reads."""
        return WORDS_MAX

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit-length rows of shape (len(texts), dimension).

        A text without words gets the first unit vector, as does one whose words
        cancel out.
        """
        matrix = np.zeros((len(texts), self._dimension), dtype=np.float32)
        for row, text in zip(matrix, texts, strict=True):
            self._add_features(row, text)
            length = float(np.linalg.norm(row))
            if length > 0.0:
                row /= length
            else:
                row[0] = 1.0
        return matrix

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return character spans that cover *text*, of at most `max_tokens` words each."""
        return split(text, capacity=WORDS_MAX, count=lambda piece: len(_WORD.findall(piece)))

    def _add_features(self, row: npt.NDArray[np.float32], text: str) -> None:
        words = [match[0] for _, match in zip(range(WORDS_MAX), _WORD.finditer(text), strict=False)]
        words = [word.casefold() for word in words]
        # No word holds a space, so a pair is never taken for a word.
        features = Counter(words)
        features.update(f"{first} {second}" for first, second in pairwise(words))
        for feature, count in features.items():
            digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            number = int.from_bytes(digest, "little")
            sign = 1.0 if number & 1 else -1.0
            row[(number >> 1) % self._dimension] += sign * count**0.5
