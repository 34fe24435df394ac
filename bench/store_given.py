"""An embedder for vectors that are given; imports no more than the program measured would."""

from collections.abc import Sequence

import amv
from amv.memory.ports import Floats

NAMESPACE = ("bench",)


class Given:
    """An embedder that refuses to embed: its vectors come from elsewhere."""

    def __init__(self, embedder_id: str, dimension: int) -> None:
        self._id = embedder_id
        self._dimension = dimension

    @property
    def id(self) -> str:
        """Name of what made the vectors."""
        return self._id

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """No text is read, so any number would do."""
        return 256

    def embed(self, texts: Sequence[str]) -> Floats:
        """Raise: a benchmark of the store that embeds measures something else."""
        raise amv.EmbedderError(f"vectors are given here, got {len(texts)} texts to embed")

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return the whole text, as it has one vector."""
        return [(0, len(text))]
