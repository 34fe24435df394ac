"""Standing in for an embedder that is not here, where nothing has to be embedded."""

from collections.abc import Sequence
from typing import NoReturn

from amv.errors import EmbedderError
from amv.memory.ports import Floats


class Absent:
    """Has the name and dimension of an embedder, and embeds nothing."""

    max_tokens = 1

    def __init__(self, name: str, dimension: int) -> None:
        self.id = name
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> Floats:
        """Raise EmbedderError."""
        self._refuse()

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Raise EmbedderError."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EmbedderError(f"nothing can be embedded: embedder {self.id!r} was not loaded")
