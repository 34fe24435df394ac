"""Intake: what a caller passes, checked and embedded before any transaction begins.

All of a batch is checked first, so that a bad item in it changes nothing; then
all texts are embedded together.
"""

import math
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from amv.checks import check_flag, shown
from amv.errors import AmvError, DimensionMismatch, EmbedderError, InvalidInput
from amv.memory import filters, lexical
from amv.memory.edit import indexed_text
from amv.memory.given import NewItem
from amv.memory.item import (
    Claim,
    Namespace,
    check_expiry,
    check_id,
    check_interval,
    check_namespace,
    check_text,
    check_time,
    check_trust,
)
from amv.memory.ports import PASSAGES_MAX, Embedder, Floats, Vectors
from amv.memory.query import Query
from amv.memory.settings import MemorySettings
from amv.memory.transfer import Restored

QUERIES_CACHED = 1024
QUERY_BYTES_MAX = 64 << 10
DEFAULT_TRUST = 0.5
UNIT_TOLERANCE = 2e-3

_ADD_KEYS = frozenset(
    [
        "content",
        "namespace",
        "id",
        "metadata",
        "context",
        "claim",
        "source",
        "source_trust",
        "valid_from",
        "valid_until",
        "expires_at",
        "pinned",
        "vector",
    ]
)

_CHANGE_KEYS = frozenset(
    ["content", "context", "metadata", "source_trust", "valid_until", "expires_at"]
)


@dataclass(frozen=True, slots=True)
class Request:
    """One checked request to add an item, not embedded yet.

    *id_is_made*: its id was made for it, so that it can be asked for again, and is not
    the caller's.
    """

    namespace: Namespace
    content: str
    context: str
    item_id: str | None
    metadata: dict[str, object]
    claim: Claim | None
    source: str | None
    source_trust: float
    valid_from_s: float | None
    valid_until_s: float | None
    expires_s: float | None
    pinned: bool
    vector: Floats | None
    given: frozenset[str]
    id_is_made: bool = False


class Intake:
    """Checks and embeds; keeps the vectors of the last queries."""

    def __init__(
        self, embedder: Embedder, settings: MemorySettings, new_id: Callable[[], str]
    ) -> None:
        self._embedder = embedder
        self._settings = settings
        self._content_bytes_max = settings.content_bytes_max
        self._new_id = new_id
        self._lock = threading.Lock()
        self._queries: OrderedDict[str, Floats] = OrderedDict()

    def check(
        self, fields: Mapping[str, object], now_s: float, made_id: str | None = None
    ) -> Request:
        """Return a checked request, or raise InvalidInput saying what is wrong with it.

        Without an id of the caller's, it is for an item of the id *made_id*, if there is one.
        """
        if not isinstance(fields, Mapping):
            raise InvalidInput(f"an item is a mapping of fields, got {type(fields).__name__}")
        if unknown := sorted(map(shown, fields.keys() - _ADD_KEYS)):
            raise InvalidInput(
                f"unknown field {unknown[0]}; an item has {', '.join(sorted(_ADD_KEYS))}"
            )
        if fields.get("namespace") is None:
            raise InvalidInput("namespace is needed: whose memory this is, such as ('alice',)")
        limit = self._content_bytes_max
        claim, source, item_id = fields.get("claim"), fields.get("source"), fields.get("id")
        if claim is not None and not isinstance(claim, Claim):
            raise InvalidInput(f"claim must be an amv.Claim, got {type(claim).__name__}")
        valid_from_s = check_time(fields.get("valid_from"), "valid_from")
        valid_until_s = check_time(fields.get("valid_until"), "valid_until")
        check_interval(now_s if valid_from_s is None else valid_from_s, valid_until_s)
        trust, vector = fields.get("source_trust"), fields.get("vector")
        return Request(
            namespace=check_namespace(fields["namespace"]),
            content=check_text(fields.get("content"), "content", limit),
            context=_context(fields.get("context"), limit),
            item_id=made_id if item_id is None else check_id(item_id),
            metadata=filters.check_metadata(_mapping(fields.get("metadata"))),
            claim=claim,
            source=None if source is None else check_text(source, "source", 256),
            source_trust=DEFAULT_TRUST if trust is None else check_trust(trust),
            valid_from_s=valid_from_s,
            valid_until_s=valid_until_s,
            expires_s=check_expiry(check_time(fields.get("expires_at"), "expires_at"), now_s),
            pinned=check_flag(fields.get("pinned", False), "pinned"),
            vector=None if vector is None else self.check_vector(vector),
            # An item is not pinned unless somebody asks for it.
            given=frozenset(
                name for name, value in fields.items() if value is not None and value is not False
            ),
            id_is_made=item_id is None and made_id is not None,
        )

    def check_changes(self, fields: Mapping[str, object], now_s: float) -> dict[str, Any]:
        """Return checked changes to an item, under their names in a `Row`."""
        known = _CHANGE_KEYS
        if unknown := sorted(map(shown, fields.keys() - known)):
            raise InvalidInput(
                f"{unknown[0]} can't be changed; update takes {', '.join(sorted(known))}"
            )
        if not fields:
            raise InvalidInput(f"update needs one of {', '.join(sorted(known))}")
        limit = self._content_bytes_max
        checks: dict[str, tuple[str, Callable[[object], object]]] = {
            "content": ("content", lambda text: check_text(text, "content", limit)),
            "context": ("context", lambda text: _context(text, limit)),
            "metadata": ("metadata", lambda data: filters.check_metadata(_mapping(data))),
            "source_trust": ("source_trust", check_trust),
            "valid_until": ("valid_until_s", lambda moment: check_time(moment, "valid_until")),
            "expires_at": (
                "expires_s",
                lambda moment: check_expiry(check_time(moment, "expires_at"), now_s),
            ),
        }
        return {checks[name][0]: checks[name][1](value) for name, value in fields.items()}

    def check_vector(self, vector: object) -> Floats:
        """Return a vector scaled to unit length, of shape (dimension,)."""
        try:
            array = _numbers(vector)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"a vector must hold numbers only: {error}") from error
        wanted = self._embedder.dimension
        if array.shape != (wanted,):
            raise DimensionMismatch(
                f"a vector of embedder {self._embedder.id!r} has shape ({wanted},), "
                f"got {array.shape}"
            )
        # Scaled first, so that the norm of very large or small numbers is finite, too.
        peak = float(np.abs(array).max())
        if not 0.0 < peak < math.inf:
            raise InvalidInput("a vector must be finite and not all zero")
        scaled = array / peak
        return (scaled / math.sqrt(scaled @ scaled)).astype(np.float32)

    def check_query(
        self,
        text: str | None,
        *,
        k: int,
        vector: object,
        filter: Mapping[str, object] | None,
        as_of: object,
        cold: bool | None,
        now_s: float,
    ) -> Query | None:
        """Return a checked search; None for a blank text without a vector, which finds nothing."""
        k_max = self._settings.k_max
        if not (isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= k_max):
            raise InvalidInput(
                f"k must be a whole number from 1 to {k_max} (k_max), got {shown(k)}"
            )
        if text is None and vector is None:
            raise InvalidInput("a search needs a query text, a vector, or both")
        if not isinstance(cold, bool | None):
            raise InvalidInput(f"cold must be True, False or None, got {shown(cold)}")
        if text is not None:
            check_text(text, "a query", QUERY_BYTES_MAX, blank_is_fine=True)
        given = None if vector is None else self.check_vector(vector)
        node = None if filter is None else filters.parse(filter)
        at_s = check_time(as_of, "as_of")
        words = (text or "").strip()
        if given is None and not words:
            return None
        return Query(
            vector=self.query(words) if given is None else given,
            terms=lexical.query_terms(words) if words else [],
            k=k,
            node=node,
            at_s=now_s if at_s is None else at_s,
            now_s=now_s,
            cold=cold,
        )

    def embed(self, requests: Sequence[Request], now_s: float) -> list[NewItem]:
        """Return items ready to be added, all their passages embedded in one batch."""
        texts = iter(self.vectors_of([r.content for r in requests if r.vector is None]))
        return [
            self._item(r, next(texts) if r.vector is None else _numbered(r.vector[None, :]), now_s)
            for r in requests
        ]

    def restored_vectors(self, items: Sequence[Restored]) -> list[Vectors]:
        """Return the vectors of exported items; embeds the texts of those that came without."""
        missing = iter(self.vectors_of([i.row.content for i in items if i.vectors is None]))
        return [next(missing) if i.vectors is None else _numbered(i.vectors) for i in items]

    def vectors_of(self, contents: Sequence[str]) -> list[Vectors]:
        """Return the vectors of several contents, each with ids counting from 0."""
        spans = [self.spans(content) for content in contents]
        texts = [c[a:b] for c, own in zip(contents, spans, strict=True) for a, b in own]
        matrix = self.embed_texts(texts)
        stops = np.cumsum([len(own) for own in spans], dtype=np.int64)
        return [_numbered(rows) for rows in np.split(matrix, stops[:-1])] if spans else []

    def spans(self, content: str) -> list[tuple[int, int]]:
        """Return the passages of a content; raises InvalidInput if they are too many."""
        with self._promised("split a text into passages"):
            spans = [(index(a), index(b)) for a, b in self._embedder.passages(content)]
        if len(spans) > PASSAGES_MAX:
            raise InvalidInput(
                f"content must split into at most {PASSAGES_MAX} passages, got {len(spans)}; "
                "add it as several items"
            )
        reached = 0
        for start, stop in sorted(spans):
            if not 0 <= start < stop <= len(content) or content[reached:start].strip():
                break
            reached = max(reached, stop)
        else:
            if not content[reached:].strip():
                return spans
        raise EmbedderError(
            f"embedder {self._embedder.id!r} must return passages that cover a text of "
            f"{len(content)} characters, got {shown(spans)}"
        )

    def embed_texts(self, texts: Sequence[str]) -> Floats:
        """Return unit vectors of shape (n, dimension).

        Raises EmbedderError where the embedder breaks its promise: what it
        returns would be kept, and its other vectors be compared with it.
        """
        wanted = (len(texts), self._embedder.dimension)
        if not texts:
            return np.zeros(wanted, dtype=np.float32)
        with self._promised("embed a text"):
            answer = self._embedder.embed(texts)
        name = self._embedder.id
        # A copy, in case the embedder uses its array again; what overflows is no unit vector.
        try:
            given = np.asarray(answer)
            if given.dtype.kind not in "fiu":
                raise TypeError(f"got {given.dtype}")
            with np.errstate(all="ignore"):
                matrix = given.astype(np.float32)
        except (TypeError, ValueError) as error:
            raise EmbedderError(f"embedder {name!r} must return numbers only: {error}") from error
        if matrix.shape != wanted:
            raise EmbedderError(
                f"embedder {name!r} must return vectors of shape {wanted}, got {matrix.shape}"
            )
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
        # Written positively, so that NaN is refused too.
        if (np.abs(squares - 1.0) < UNIT_TOLERANCE).all():
            return matrix
        raise EmbedderError(f"embedder {name!r} must return vectors of length 1")

    @contextmanager
    def _promised(self, task: str) -> Iterator[None]:
        """Tell of whatever an embedder, which may be anyone's, raises as an EmbedderError."""
        try:
            yield
        except AmvError:
            raise
        except Exception as error:
            raise EmbedderError(
                f"embedder {self._embedder.id!r} failed to {task}: {shown(error)}"
            ) from error

    def query(self, text: str) -> Floats:
        """Return the vector of a query; one seen lately is not embedded again."""
        with self._lock:
            known = self._queries.get(text)
            if known is not None:
                self._queries.move_to_end(text)
                return known
        vector: Floats = self.embed_texts([text])[0]
        with self._lock:
            self._queries[text] = vector
            while len(self._queries) > QUERIES_CACHED:
                self._queries.popitem(last=False)
        return vector

    def _item(self, request: Request, vectors: Vectors, now_s: float) -> NewItem:
        terms, length = lexical.term_counts(indexed_text(request.content, request.context))
        return NewItem(
            id=self._new_id() if request.item_id is None else request.item_id,
            id_is_given=request.item_id is not None,
            id_is_made=request.id_is_made,
            content=request.content,
            context=request.context,
            created_s=now_s,
            valid_from_s=request.valid_from_s,
            valid_until_s=request.valid_until_s,
            expires_s=request.expires_s,
            source=request.source,
            source_trust=request.source_trust,
            claim=request.claim,
            pinned=request.pinned,
            metadata=request.metadata,
            vectors=vectors,
            terms=terms,
            length=length,
            given=request.given,
        )


def _numbers(vector: object) -> npt.NDArray[np.float64]:
    if type(vector) is list:
        try:
            # A third of the time that numpy takes, which asks each number what it is.
            return np.frombuffer(struct.pack(f"{len(vector)}d", *vector))
        except struct.error:
            pass  # numpy says what it was
    given = np.asarray(vector)
    # Numpy would read texts as numbers, and drop what is imaginary.
    if given.dtype.kind in "cSUmM":
        raise TypeError(f"got {given.dtype}")
    return given.astype(np.float64)


def _numbered(matrix: npt.NDArray[np.float32]) -> Vectors:
    return Vectors(np.arange(len(matrix), dtype=np.int64), matrix)


def _context(text: object, bytes_max: int) -> str:
    return "" if text is None else check_text(text, "context", bytes_max, blank_is_fine=True)


def _mapping(metadata: object) -> Mapping[str, object]:
    if metadata is None:
        return {}
    if isinstance(metadata, Mapping):
        return metadata
    raise InvalidInput(f"metadata must be a mapping, got {type(metadata).__name__}")
