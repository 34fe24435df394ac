"""What the memory needs from the outside: a store and an embedder.

A store keeps rows, vectors, cells, postings and a change log, and knows
nothing of values, tiers or ranking.  Reads happen in a `Reader`, a consistent
snapshot; writes in a function handed to `Store.write`, which returns once the
change is durable.  The same contract suite runs over every store
(`amv.testing`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from amv.memory.filters import Node
from amv.memory.item import Claim, Namespace, Protection, Row, State
from amv.memory.tiers import Tier
from amv.memory.value import SCALE_BEFORE, EventKind, Scale

T = TypeVar("T")

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

PASSAGES_MAX = 4096
"""A vector's id is its item's key times this, plus the number of the passage."""

RANK_MAX = 255
"""The last place in a prompt that an event can tell; those after it are told as this."""

PENDING = 0
"""The cell of a vector that is in none yet: it is scanned exactly."""

RETIRED = -1
"""The cell of a vector that left the index but is kept for searches of the past."""


def owners(vector_ids: Ids) -> Ids:
    """Return the item key behind each vector id."""
    return vector_ids // PASSAGES_MAX


def ascending(ids: Ids) -> Ids:
    """Return ids in order, each once; `numpy.unique` would import a good part of numpy first."""
    ordered = np.sort(ids)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


class Vectors(NamedTuple):
    """*n* vectors: ids of shape (n,), unit-length float32 rows of shape (n, d)."""

    ids: Ids
    matrix: Floats


class Members(NamedTuple):
    """What one cell holds: ids of shape (n,), codes of shape (n, width); see `cells`."""

    ids: Ids
    codes: Codes


class Place(NamedTuple):
    """Where a vector is: in its nearest cell (or PENDING, or RETIRED), and in two more.

    Of those, PENDING stands where there is none.
    """

    cell_id: int
    second_id: int = PENDING
    third_id: int = PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRow:
    """One namespace and its running totals, kept in the transaction that changes them.

    *version* grows with every change; *live* and *length* count live items and
    their terms; *hot*, *vectors* and *pending* count hot items, indexed vectors
    and those of them in no cell; *cells* and *cells_changed* count cells, and
    cells added or dropped since the last snapshot of the centroid index;
    *next_due_s* is the earliest moment at which an item crosses a threshold.
    *half_life_s* and *scale* are those that its value keys were made with.
    """

    ns_id: int
    name: Namespace
    version: int
    half_life_s: float
    live: int = 0
    length: int = 0
    hot: int = 0
    pinned: int = 0
    vectors: int = 0
    pending: int = 0
    cells: int = 0
    cells_changed: int = 0
    next_due_s: float | None = None
    scale: Scale = SCALE_BEFORE


@dataclass(slots=True, kw_only=True)
class Change:
    """What one transaction did to a namespace, for caches that follow it.

    Item keys in *hot_in*, *hot_out*, *items* (cached copies out of date) and *used*
    (out of date in value and counts alone);
    vector ids in *vectors_in* (pending now), *placed* (now in a cell) and
    *vectors_out*; cell ids in *cells_in*, *cells_out* and *cells_touched*.
    """

    hot_in: list[int] = field(default_factory=list)
    hot_out: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    vectors_in: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    vectors_out: list[int] = field(default_factory=list)
    cells_in: list[int] = field(default_factory=list)
    cells_out: list[int] = field(default_factory=list)
    cells_touched: list[int] = field(default_factory=list)
    used: list[int] = field(default_factory=list)

    def as_lists(self) -> list[list[int]]:
        """Return the fields in their order, for a store to serialise."""
        return [getattr(self, f.name) for f in fields(self)]

    @classmethod
    def from_lists(cls, lists: Sequence[list[int]]) -> "Change":
        """Return the change that `as_lists` was called on."""
        return cls(**dict(zip((f.name for f in fields(cls)), lists, strict=True)))


class Event(NamedTuple):
    """Something that happened to an item's value: no content, so no secret.

    *rank* is its place in the prompt it was put into, from 0 for the best, at most `RANK_MAX`.
    """

    ns_id: int
    key: int
    kind: EventKind
    at_s: float
    rank: int = 0


class HistoryRow(NamedTuple):
    """One thing that happened to an item; *content* and *claim* are what it said before."""

    at_s: float
    event: str
    content: str
    claim: Claim | None


class KeyRow(NamedTuple):
    """What is kept of a key to the gateway: its HMAC, and how far it reaches.

    It reaches namespaces that begin with *namespace*, up to *level*; see
    `amv.server.access`.
    """

    key_id: str
    mac: bytes
    namespace: Namespace
    level: int
    created_s: float
    revoked_s: float | None


class NewPostings(NamedTuple):
    """The terms of one item, for the lexical index."""

    key: int
    counts: Mapping[str, int]
    length: int


class Reader(Protocol):
    """A consistent snapshot of a store.  Missing keys and ids are left out of answers."""

    def meta(self, name: str) -> str | None:
        """Return a setting kept with the data."""

    def namespace(self, name: Namespace) -> NamespaceRow | None:
        """Return a namespace by name."""

    def namespace_by_id(self, ns_id: int) -> NamespaceRow | None:
        """Return a namespace by the store's own id."""

    def namespaces(self, *, due_s: float | None = None) -> list[NamespaceRow]:
        """Return all namespaces in order of name, or those with next_due_s <= *due_s*."""

    def changes(self, ns_id: int, since_version: int) -> list[Change] | None:
        """Return the changes after *since_version*, oldest first; None if some are gone."""

    def rows(self, keys: Sequence[int]) -> dict[int, Row]:
        """Return rows by key."""

    def states(self, ns_id: int, keys: Sequence[int]) -> dict[int, State]:
        """Return the states of live items of a namespace, by key; reads nothing else of them."""

    def rows_with_id(self, item_id: str, ns_id: int | None = None) -> list[Row]:
        """Return the row of this id in one namespace, or in every one that has it."""

    def page(self, ns_id: int, *, source: str | None, after_key: int, limit: int) -> list[Row]:
        """Return rows with a larger key than *after_key*, in order of key."""

    def claim_rows(self, ns_id: int, subject: str, attribute: str) -> list[Row]:
        """Return live rows that claim this, in order of key; reads no others."""

    def claims_in(self, name: Namespace, subject: str, attribute: str) -> list[Row]:
        """Return the same of a namespace by its name, in one look-up; none if there is none."""

    def told(self, ns_id: int, digests: Sequence[int]) -> dict[int, list[int]]:
        """Return keys, ascending, of live items by the digest of their content (see `repeats`)."""

    def linked_rows(self, ns_id: int, item_id: str) -> list[Row]:
        """Return rows that name *item_id* as what they supersede or are superseded by."""

    def history(self, key: int) -> list[HistoryRow]:
        """Return what happened to an item, oldest first."""

    def tier_range(
        self,
        ns_id: int,
        protection: Protection,
        tier: Tier,
        *,
        low: float | None = None,
        high: float | None = None,
        descending: bool = False,
        limit: int = -1,
    ) -> list[tuple[float, int]]:
        """Return (value_key, key) with low <= value_key < high, ordered; a scan of an index.

        It visits no row outside the range.
        """

    def protected_keys(self, ns_id: int, protection: Protection) -> list[int]:
        """Return the keys of items so protected, in order of key."""

    def hot_keys(self, ns_id: int) -> list[int]:
        """Return the keys of all hot items."""

    def tier_counts(self, ns_id: int) -> dict[Tier, int]:
        """Return how many live items each tier holds."""

    def vector_ids(self, keys: Sequence[int]) -> Ids:
        """Return the ids of all vectors of these items, ascending."""

    def vectors(self, vector_ids: Ids) -> Vectors:
        """Return vectors by id, ascending."""

    def pending_ids(self, ns_id: int) -> Ids:
        """Return the ids of vectors that are in no cell, ascending."""

    def indexed_ids(self, ns_id: int) -> Ids:
        """Return the ids of all vectors that are pending or in a cell, ascending."""

    def placements(self, vector_ids: Ids) -> dict[int, Place]:
        """Return where each vector is."""

    def cell_ids(self, ns_id: int) -> Ids:
        """Return the ids of all cells, ascending."""

    def centroids(self, cell_ids: Ids) -> Vectors:
        """Return centroids by cell id, ascending; kept as float16."""

    def cell_snapshot(self, ns_id: int) -> bytes | None:
        """Return the saved index over centroids."""

    def members(self, cell_ids: Ids) -> dict[int, Members]:
        """Return what cells hold."""

    def cell_sizes(self, cell_ids: Ids) -> dict[int, int]:
        """Return how many members cells have; reads no codes."""

    def frequencies(self, ns_id: int, terms: Sequence[str]) -> dict[str, int]:
        """Return in how many items each term stands; terms in none are left out."""

    def postings(self, ns_id: int, term: str, limit: int) -> npt.NDArray[np.void]:
        """Return at most *limit* postings (`lexical.POSTING`), those of the newest items."""

    def matching(self, ns_id: int, node: Node | None, now_s: float, limit: int) -> list[int]:
        """Return keys of at most *limit* live, unexpired items whose metadata match *node*."""

    def expiring(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        """Return (expires_s, key) of items of any status with expires_s <= *until_s*, in order."""

    def doubted_ends(self, ns_id: int, until_s: float, limit: int) -> list[tuple[float, int]]:
        """Return (valid_until_s, key) of live, flagged items that end by *until_s*, in order."""

    def unstaged_keys(self, after_key: int, limit: int) -> list[int]:
        """Return keys of items, of any namespace, with vectors but none staged; ascending."""

    def staged(self, vector_ids: Ids) -> Vectors:
        """Return staged vectors by id, ascending."""

    def staged_ids(self, keys: Sequence[int]) -> Ids:
        """Return the ids of all vectors staged for these items, ascending."""

    def past_keys(self, ns_id: int, at_s: float, limit: int) -> list[int]:
        """Return keys of superseded items that were valid at *at_s*, newest first."""

    def key(self, key_id: str) -> KeyRow | None:
        """Return a key to the gateway by its id."""

    def keys(self) -> list[KeyRow]:
        """Return all keys to the gateway, oldest first."""


class Writer(Reader, Protocol):
    """A transaction.  What it does is seen by itself at once, by others once durable."""

    def set_meta(self, name: str, value: str | None) -> None:
        """Keep a setting with the data; None removes it."""

    def put_key(self, key: KeyRow) -> None:
        """Add a key to the gateway, or replace the one of its id."""

    def create_namespace(self, name: Namespace, half_life_s: float) -> NamespaceRow:
        """Add a namespace that does not exist yet, at version 0."""

    def put_namespace(self, row: NamespaceRow) -> None:
        """Store totals and version."""

    def rekey(self, ns_id: int, shift: float) -> None:
        """Add *shift* to the value_key of every item that is valid already, in one statement."""

    def rescale(self, ns_id: int, old: Scale, new: Scale) -> None:
        """Add its `rescaling` to the value_key of every item that is valid already."""

    def drop_namespace(self, ns_id: int) -> None:
        """Remove a namespace and all that belongs to it, beside the memory too."""

    def drop_beside(self, name: Namespace) -> bool:
        """Remove what stands beside the memory under a name that is no namespace.

        Returns whether there may have been anything; writes nothing if there was not.
        """

    def log_change(self, ns_id: int, version: int, change: Change) -> None:
        """Append to the change log, which keeps at least the last 256 versions."""

    def insert(self, rows: Sequence[Row]) -> list[int]:
        """Add rows; their *key* is ignored.  Return new keys, never used before, ascending."""

    def update(self, row: Row) -> None:
        """Replace a row, state included."""

    def put_states(self, states: Sequence[tuple[int, State]]) -> None:
        """Replace the states of rows, by key."""

    def delete(self, keys: Sequence[int]) -> None:
        """Remove rows with their state, metadata entries and history."""

    def add_history(self, key: int, entry: HistoryRow) -> None:
        """Append to an item's history."""

    def stage_vectors(self, vectors: Vectors) -> None:
        """Keep vectors of another embedder aside; those already staged are replaced."""

    def clear_stage(self) -> None:
        """Remove everything staged."""

    def add_vectors(self, ns_id: int, vectors: Vectors) -> None:
        """Add vectors as pending."""

    def retire_vectors(self, vector_ids: Ids) -> None:
        """Take vectors out of the index and keep them for searches of the past."""

    def drop_vectors(self, vector_ids: Ids) -> None:
        """Remove vectors and their placements, and what is staged for the same items."""

    def place(self, vector_ids: Ids, cell_ids: Ids) -> None:
        """Note in which cells each vector is; *cell_ids* has shape (n, 3), see `Place`."""

    def move_vectors(self, vector_ids: Ids, moves: Ids) -> None:
        """Note that each vector left one cell for another, and is still in its others.

        *moves*, of shape (n, 2), holds the cell it was in and the one it is in now.
        """

    def add_cell(self, ns_id: int, centroid: Floats, members: Members) -> int:
        """Add a cell; return its id, never used before."""

    def extend_cells(self, members: Mapping[int, Members]) -> None:
        """Add members to cells, by cell id."""

    def remove_members(self, cell_id: int, vector_ids: Ids) -> None:
        """Erase members of a cell in place."""

    def drop_cell(self, cell_id: int) -> None:
        """Remove a cell with its centroid and members."""

    def put_cell_snapshot(self, ns_id: int, snapshot: bytes | None) -> None:
        """Save the index over centroids; None removes it."""

    def add_postings(self, ns_id: int, postings: Sequence[NewPostings]) -> None:
        """Add items to the lexical index."""

    def remove_postings(self, ns_id: int, key: int, terms: Sequence[str]) -> None:
        """Take one item out of the lexical index; a term in no item is gone."""

    def clear_index(self, ns_id: int) -> None:
        """Drop the cells, snapshot and postings of a namespace; its vectors become pending."""


class Store(Protocol):
    """Where memories are kept."""

    def read(self) -> AbstractContextManager[Reader]:
        """Open a snapshot.  Cheap; for use by one thread."""

    def write(self, work: Callable[[Writer], T]) -> T:
        """Run *work* in a transaction; return its result once the change is durable.

        An exception from *work* undoes all it did and is raised here.
        """

    def log(self, events: Sequence[Event]) -> None:
        """Append value events to the log of this process, off the request path."""

    def fold(self, apply: Callable[[Writer, Sequence[Event]], None]) -> int:
        """Apply logged events, each exactly once; return how many were folded.

        Those of one namespace come in order.  Takes up logs of processes that are gone.
        Then tries to erase what was deleted, and not erased, since the last time.
        """

    def unfolded(self) -> int:
        """Return how many events that this process logged wait to be folded."""

    def erase(self) -> bool:
        """Return True once the bytes of what was deleted are gone from every file."""

    def size_bytes(self) -> int:
        """Return how much the store takes on disk (or in memory)."""

    def check(self) -> list[str]:
        """Return what is wrong with the stored data, in plain sentences; empty if sound."""

    def close(self) -> None:
        """Release everything; a closed store raises StoreClosed."""


class Embedder(Protocol):
    """Turns texts into vectors.  Safe for use by several threads."""

    @property
    def id(self) -> str:
        """Name of model and arithmetic; stored with the vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return unit-length rows of shape (len(texts), dimension)."""

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return character spans that cover *text*, each short enough for one vector."""
