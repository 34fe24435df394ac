"""Embedders by name: what the store remembers and the settings say.

A name is resolved without importing what the embedder runs on, and a model is
loaded by the first text, so a program that embeds nothing pays for nothing.
"""

import re
from typing import TYPE_CHECKING

from amv.checks import shown
from amv.errors import InvalidInput

if TYPE_CHECKING:
    from amv.memory.ports import Embedder

MINILM_ID = "minilm-l6-v2-int8"
"""The model and its arithmetic; another of either is another embedder."""

NAMES = ("minilm", "hashing", "hashing:<dimension>")


def name_of(embedder_id: str) -> str | None:
    """Return the name under which `load` finds an embedder; None if it is not one of ours.

    >>> name_of("hashing-64"), name_of("somebody-elses")
    ('hashing:64', None)
    """
    if embedder_id == MINILM_ID:
        return "minilm"
    if match := re.fullmatch(r"hashing-([0-9]{1,9})", embedder_id):
        return f"hashing:{match[1]}"
    return None


def load(name: str) -> "Embedder":
    """Return the embedder called *name*; see `NAMES` for those there are.

    Raises InvalidInput for any other name.

    >>> load("hashing:64").id
    'hashing-64'
    """
    if not isinstance(name, str):
        raise InvalidInput(f"need the name of an embedder, {' or '.join(NAMES)}, got {shown(name)}")
    if name == "minilm":
        from amv.embedders.minilm import MiniLM

        return MiniLM()
    if match := re.fullmatch(r"hashing(?::([0-9]{1,9}))?", name):
        from amv.embedders.hashing import Hashing

        return Hashing(dimension=int(match[1])) if match[1] else Hashing()
    raise InvalidInput(f"need an embedder that exists, {' or '.join(NAMES)}, got {shown(name)}")
