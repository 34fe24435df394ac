"""Embedders by name: what the store remembers and the settings say.

A name is resolved without importing what the embedder runs on, and a model is
loaded by the first text, so a program that embeds nothing pays for nothing.
"""

import re
from typing import TYPE_CHECKING

from amv.errors import InvalidInput

if TYPE_CHECKING:
    from amv.memory.ports import Embedder

NAMES = ("minilm", "hashing", "hashing:<dimension>")


def load(name: str) -> "Embedder":
    """Return the embedder called *name*; see `NAMES` for those there are.

    Raises InvalidInput for any other name.

    >>> load("hashing:64").id
    'hashing-64'
    """
    if name == "minilm":
        from amv.embedders.minilm import MiniLM

        return MiniLM()
    if match := re.fullmatch(r"hashing(?::([0-9]{1,9}))?", name):
        from amv.embedders.hashing import Hashing

        return Hashing(dimension=int(match[1])) if match[1] else Hashing()
    raise InvalidInput(f"need an embedder that exists, {' or '.join(NAMES)}, got {name!r}")
