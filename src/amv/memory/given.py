"""What an add is given: one checked item, and whether what is there already has all of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from amv.errors import Conflict
from amv.memory.item import Claim, Row, Status
from amv.memory.ports import Reader, Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """A checked request to add one item.  Times are unix seconds.

    *given* names the fields that were asked for; what others hold is a default.
    *id_is_made*: the id that is given stands for a request and not for an item of the
    caller's; it finds what the request added before, and no one else knows it.
    """

    id: str
    content: str
    context: str = ""
    created_s: float
    valid_from_s: float | None = None
    valid_until_s: float | None = None
    expires_s: float | None = None
    source: str | None = None
    source_trust: float = 0.5
    claim: Claim | None = None
    pinned: bool = False
    metadata: Mapping[str, object]
    vectors: Vectors
    terms: Mapping[str, int]
    length: int
    id_is_given: bool
    id_is_made: bool = False
    given: frozenset[str] = frozenset()

    @property
    def begins_s(self) -> float:
        """When it comes into force."""
        return self.created_s if self.valid_from_s is None else self.valid_from_s


def same_or_conflict(reader: Reader, row: Row, item: NewItem) -> Row:
    """Return what is there, if it has all that was given: nothing of it may get lost unsaid."""
    is_live = row.status is Status.LIVE
    same = {
        "content": row.content == item.content,
        "claim": item.claim is None
        or (row.claim is not None and row.claim.says_the_same_as(item.claim)),
        "metadata": dict(row.metadata) == dict(item.metadata),
        "context": row.context == item.context,
        "source": row.source == item.source,
        "source_trust": row.source_trust == item.source_trust,
        "valid_from": row.valid_from_s == item.valid_from_s,
        # What took its place, or a check, may have ended it since.
        "valid_until": row.valid_until_s == item.valid_until_s
        or not is_live
        or row.superseded_by is not None,
        "expires_at": row.expires_s == item.expires_s,
        "pinned": row.pinned or not is_live,
    }
    differing = [name for name, is_same in same.items() if name in item.given and not is_same]
    if "vector" in item.given and not _has_vectors(reader, row, item.vectors):
        differing.append("vector")
    if not differing:
        return row
    raise Conflict(
        f"an item with id {item.id!r} is there already with another {', '.join(differing)}; "
        "use update() or pin() to change it, or another id"
    )


def _has_vectors(reader: Reader, row: Row, vectors: Vectors) -> bool:
    """Return whether an item has these vectors, as precisely as a store keeps them."""
    kept = reader.vectors(reader.vector_ids([row.key])).matrix
    # One that was refuted has none any more.
    return not len(kept) or (
        kept.shape == vectors.matrix.shape and np.allclose(kept, vectors.matrix, atol=1e-3)
    )
