"""Embedders by name: what the store remembers and the settings say.

A name is resolved without importing what the embedder runs on, and a model is
loaded by the first text, so a program that embeds nothing pays for nothing.
"""

import re
from typing import TYPE_CHECKING

from amv.checks import shown
from amv.errors import InvalidInput

if TYPE_CHECKING:
    from amv.embedders.endpoint import Endpoint
    from amv.memory.ports import Embedder

MINILM_ID = "minilm-l6-v2-int8"
"""The model and its arithmetic; another of either is another embedder."""

STATIC_ID = "minilm-l6-v2-static-256-1"
"""The table of token vectors and its arithmetic; another of either is another embedder."""

REMOTE = "remote:"
"""What the name of a model behind HTTP begins with."""

NAMES = ("minilm", "static", "hashing", "hashing:<dimension>", "remote:<model>")


def name_of(embedder_id: str) -> str | None:
    """Return the name under which `load` finds an embedder; None if it is not one of ours.

    >>> name_of("hashing-64"), name_of("remote:bge-m3"), name_of("somebody-elses")
    ('hashing:64', 'remote:bge-m3', None)
    """
    if embedder_id == MINILM_ID:
        return "minilm"
    if embedder_id == STATIC_ID:
        return "static"
    if match := re.fullmatch(r"hashing-([0-9]{1,9})", embedder_id):
        return f"hashing:{match[1]}"
    return embedder_id if embedder_id.startswith(REMOTE) else None


def is_built_in(embedder_id: str) -> bool:
    """Return whether an embedder comes with the package, so that its vectors are known.

    >>> is_built_in("hashing-64"), is_built_in("remote:bge-m3")
    (True, False)
    """
    return not embedder_id.startswith(REMOTE) and name_of(embedder_id) is not None


def load(name: str, endpoint: "Endpoint | None" = None) -> "Embedder":
    """Return the embedder called *name*; see `NAMES` for those there are.

    A remote one is asked at *endpoint*, and not before it embeds.  Raises InvalidInput for any
    other name, and for a remote one without an endpoint.

    >>> load("hashing:64").id
    'hashing-64'
    """
    if not isinstance(name, str):
        raise InvalidInput(f"need the name of an embedder, {' or '.join(NAMES)}, got {shown(name)}")
    if name == "minilm":
        from amv.embedders.minilm import MiniLM

        return MiniLM()
    if name == "static":
        from amv.embedders.static import Static

        return Static()
    if match := re.fullmatch(r"hashing(?::([0-9]{1,9}))?", name):
        from amv.embedders.hashing import Hashing

        return Hashing(dimension=int(match[1])) if match[1] else Hashing()
    if name.startswith(REMOTE):
        if endpoint is None:
            raise InvalidInput(
                f"embedder {shown(name)} needs the address that serves it: AMV_EMBEDDER_URL, or "
                "amv.Settings(remote=amv.Endpoint(url=...))"
            )
        from amv.embedders.remote import RemoteEmbedder

        return RemoteEmbedder(name.removeprefix(REMOTE), endpoint)
    raise InvalidInput(f"need an embedder that exists, {' or '.join(NAMES)}, got {shown(name)}")
