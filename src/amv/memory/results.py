"""What calls of a memory return, besides items."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from amv.checks import shown
from amv.errors import InvalidInput, StoreClosed, StoreError
from amv.memory.item import Claim, Item, Namespace
from amv.memory.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """How many vectors (or postings) a search scored (or read), by part."""

    hot: int = 0
    warm: int = 0
    cold: int = 0
    postings: int = 0

    @property
    def total(self) -> int:
        """All parts together; at most `Budget.total`."""
        return self.hot + self.warm + self.cold + self.postings


class Hit(NamedTuple):
    """One item found.

    *similarity* is a cosine (0 without a query vector), *lexical* a word match
    in [0, 1), *rank* what orders hits.
    """

    item: Item
    similarity: float
    lexical: float
    rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found, best first, and what it cost.

    *complete* is False when fewer than k came back although more may exist;
    *reason* then says why.
    """

    hits: tuple[Hit, ...]
    scanned: Scanned
    complete: bool = True
    reason: str = ""
    cold_probed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some items of a namespace, oldest first; *cursor* gets the next ones, None at the end."""

    items: tuple[Item, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A block for a prompt, the items in it, and its length by the counter used."""

    text: str
    item_ids: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One step in the life of what an item says; *content* and *claim* are as before the step.

    *event* is "added", "updated", "superseded", "confirmed" or "refuted"; for
    "added" they are what the item said first.
    """

    item_id: str
    at: datetime
    event: str
    content: str
    claim: Claim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMove:
    """One item that a sweep moved, or would move; *to* is None where it is deleted."""

    item_id: str
    namespace: Namespace
    was: Tier
    to: Tier | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep did or, on a dry run, would do; *visited* counts index rows read.

    *erased* is False while bytes of what it deleted are left on disk; see
    `ForgetReceipt`.  Later sweeps try again.
    """

    moves: tuple[TierMove, ...]
    visited: int
    namespaces: int
    dry_run: bool
    erased: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Totals of one namespace, or of all."""

    namespaces: int
    live: int
    tiers: dict[Tier, int]
    pinned: int
    vectors: int
    pending: int
    cells: int
    store_bytes: int
    embedder: str
    dimension: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a memory has done in this process since it was opened.

    *cells_cached* and *cells_read* count cells that searches found in RAM and
    read from the store, *rows_cached* and *rows_read* items likewise;
    *swept* and *moved* rows that sweeps visited and items they moved; *folded*
    value events applied, *unfolded* those that wait.
    """

    cells_cached: int
    cells_read: int
    rows_cached: int
    rows_read: int
    namespaces_cached: int
    swept: int
    moved: int
    folded: int
    unfolded: int


_IN_USE = (
    "what is forgotten is gone for every reader, but bytes of it stay on disk until what another "
    "one has begun ends; sweeps try again"
)


@dataclass(slots=True, kw_only=True)
class ForgetReceipt:
    """Proof of a forget: the items are unreachable on every path.

    `erased` turns true once their bytes are gone from every file of the store,
    too; it is looked up anew until then, since another process's open read can
    put that off by a moment, and a full disk for longer.  *reason* says, once it
    was looked up, why they are not gone yet.  A sweep tries again by itself.

    A copy looks it up likewise.  One that was pickled has no store: it says for ever what
    was known then.
    """

    item_ids: tuple[str, ...]
    namespace: Namespace
    erase: Callable[[], bool] = field(repr=False, compare=False)
    reason: str = ""
    _erased: bool = field(default=False, repr=False)

    @property
    def count(self) -> int:
        """How many items were forgotten."""
        return len(self.item_ids)

    @property
    def erased(self) -> bool:
        """Whether no byte of the forgotten items is left on disk; raises StoreClosed."""
        if self._erased:
            return True
        try:
            self._erased = self.erase()
            self.reason = "" if self._erased else self.reason or _IN_USE
        except StoreClosed:
            raise
        except StoreError as error:
            # Forgotten it is, whatever becomes of its bytes.
            self.reason = str(error)
        return self._erased

    def __copy__(self) -> "ForgetReceipt":
        return replace(self)

    def __deepcopy__(self, memo: object) -> "ForgetReceipt":
        # The store that erases stays the one there is.
        return replace(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _receipt_of, (self.item_ids, self.namespace, self.reason, self._erased)


def _receipt_of(
    item_ids: tuple[str, ...], namespace: Namespace, reason: str, is_erased: bool
) -> ForgetReceipt:
    """Return a receipt as it was when it was pickled."""
    return ForgetReceipt(
        item_ids=item_ids,
        namespace=namespace,
        erase=lambda: is_erased,
        reason=reason,
        _erased=is_erased,
    )


def encode_cursor(key: int) -> str:
    """Return an opaque cursor for the items after *key*."""
    return base64.urlsafe_b64encode(f"k{key}".encode()).decode()


def decode_cursor(cursor: str | None) -> int:
    """Return the key behind a cursor; 0 for None.  Raises InvalidInput on any other text."""
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor.encode()).decode()
        key = int(text[1:])
        if 0 <= key < 1 << 63 and encode_cursor(key) == cursor:
            return key
    except (binascii.Error, ValueError, AttributeError) as error:
        raise InvalidInput(f"a cursor comes from an earlier page, got {shown(cursor)}") from error
    raise InvalidInput(f"a cursor comes from an earlier page, got {shown(cursor)}")
