"""What goes over the wire: request bodies as types, results as JSON.

Requests are decoded and checked by msgspec against the structs below, which
also are the schemas of the OpenAPI document.  A field that is left out is
UNSET, and the memory's own default holds.  What the memory must check anyway
(blank contents, times, dimensions) is left to it, so that both surfaces refuse
the same things in the same words.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from amv.errors import InvalidInput, InvalidNamespace
from amv.memory.item import Claim, Item, Namespace, Status
from amv.memory.ports import Floats
from amv.memory.results import (
    Context,
    ForgetReceipt,
    HistoryEntry,
    Page,
    Stats,
    SweepReport,
    TierMove,
)
from amv.memory.tiers import Tier

NamespaceIn = list[str] | str
Moment = str | int | float | None
VectorIn = list[float] | bytes
"""Numbers, or float32 numbers (little-endian) in base64, which take a tenth of the time to read."""


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body; a field it doesn't know is an error, not a silent nothing."""


class OnceBody(Body):
    """One in which no name may stand twice: whoever sent it might go by the other one."""


class ClaimWire(Body):
    """The structured form of a memory: subject's attribute is value."""

    subject: str
    attribute: str
    value: str | int | float | bool | None


class ItemIn(Body):
    """One item to add."""

    content: str
    namespace: NamespaceIn | UnsetType = UNSET
    id: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    claim: ClaimWire | UnsetType | None = UNSET
    source: str | UnsetType | None = UNSET
    source_trust: float | UnsetType = UNSET
    valid_from: Moment | UnsetType = UNSET
    valid_until: Moment | UnsetType = UNSET
    expires_at: Moment | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    vector: VectorIn | UnsetType | None = UNSET


ITEMS = ItemIn | list[ItemIn]


class ChangesIn(Body):
    """What to change of an item."""

    content: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    source_trust: float | UnsetType = UNSET
    valid_until: Moment | UnsetType = UNSET
    expires_at: Moment | UnsetType = UNSET


class PinIn(Body):
    """Whether an item is pinned."""

    pinned: bool = True


class RefuteIn(Body):
    """That an item is wrong, and perhaps the right value of its claim."""

    value: str | int | float | bool | None = None


class SearchIn(Body):
    """A search by text, by vector, or by both."""

    namespace: NamespaceIn | UnsetType = UNSET
    query: str | None = None
    vector: VectorIn | None = None
    k: int = 10
    filter: dict[str, Any] | None = None
    as_of: Moment = None
    cold: bool | None = None


class ContextIn(Body):
    """A block for a prompt, under a cap of tokens."""

    query: str
    namespace: NamespaceIn | UnsetType = UNSET
    token_budget: int = 800
    filter: dict[str, Any] | None = None
    vector: VectorIn | None = None


class FeedbackIn(Body):
    """Which items were used, only seen, or misled."""

    ids: list[str]
    namespace: NamespaceIn | UnsetType = UNSET
    contributed: bool = True
    negative: bool = False


class SweepIn(Body):
    """Whether to say only what a sweep would do."""

    dry_run: bool = False


# ---------------------------------------------------------------- in


def namespace_of(given: object) -> Namespace:
    """Return a namespace given as an array of strings, or as a text.

    A text is parts joined by "/", or a JSON array where a part holds a "/".

    >>> namespace_of("team/alice"), namespace_of('["a/b", "c"]'), namespace_of(["a/b"])
    (('team', 'alice'), ('a/b', 'c'), ('a/b',))
    """
    if isinstance(given, str):
        if not given.startswith("["):
            return tuple(given.split("/"))
        try:
            given = msgspec.json.decode(given, type=list[str])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidNamespace(
                f"a namespace that begins with [ must be a JSON array of strings: {error}"
            ) from error
    assert isinstance(given, list)
    return tuple(given)


def vector_of(given: VectorIn | None) -> list[float] | Floats | None:
    """Return a vector that was given in either form.

    >>> vector_of(bytes.fromhex("0000803f000000c0")).tolist()
    [1.0, -2.0]
    """
    if not isinstance(given, bytes):
        return given
    if len(given) % 4:
        raise InvalidInput(
            f"a vector in base64 holds float32 numbers of 4 bytes each, got {len(given)} bytes"
        )
    return np.frombuffer(given, dtype="<f4")


def given_fields(body: Struct, *but: str) -> dict[str, Any]:
    """Return the fields of a body that were given, by name, without those named *but*."""
    fields = {name: getattr(body, name) for name in body.__struct_fields__ if name not in but}
    return {name: value for name, value in fields.items() if value is not UNSET}


def claim_of(body: ClaimWire | None) -> Claim | None:
    """Return the claim a body stands for."""
    return None if body is None else Claim(body.subject, body.attribute, body.value)


# ---------------------------------------------------------------- out


class Result(Struct, kw_only=True):
    """What a route returns.  A reader passes over fields that it doesn't know."""


class ItemOut(Result):
    """One item, with every field of it; see `amv.Item`."""

    id: str
    namespace: tuple[str, ...]
    content: str
    context: str
    created_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    expires_at: datetime | None
    source: str | None
    source_trust: float
    claim: ClaimWire | None
    status: Status
    contradicted: bool
    pinned: bool
    metadata: dict[str, Any]
    supersedes: str | None
    superseded_by: str | None
    last_verified_at: datetime | None
    tier: str
    value: float
    exposed_count: int
    contributed_count: int


class ItemsOut(Result):
    """Some items, all there are: those added, in the order of the request, or those found."""

    items: list[ItemOut]


class PageOut(Result):
    """Some items, oldest first; *cursor* gets the next ones, null at the end."""

    items: list[ItemOut]
    cursor: str | None


class HitOut(Result):
    """One item found; *rank* is what orders hits."""

    item: ItemOut
    similarity: float
    lexical: float
    rank: float


class ScannedOut(Result):
    """How many vectors a search scored, or postings it read, by part."""

    hot: int
    warm: int
    cold: int
    postings: int
    total: int


class SearchOut(Result):
    """What a search found, best first, and what it cost."""

    hits: list[HitOut]
    scanned: ScannedOut
    complete: bool
    reason: str
    cold_probed: bool


class ContextOut(Result):
    """A block for a prompt, the items in it, and its length in tokens."""

    text: str
    item_ids: tuple[str, ...]
    tokens: int


class FeedbackOut(Result):
    """How many of the items are there."""

    noted: int


class ClaimOut(Result):
    """The item that holds a claim, null if none does."""

    item: ItemOut | None


class HistoryEntryOut(Result):
    """One step in the life of what an item says."""

    item_id: str
    at: datetime
    event: str
    content: str
    claim: ClaimWire | None


class HistoryOut(Result):
    """What happened, oldest first."""

    entries: list[HistoryEntryOut]


class NamespacesOut(Result):
    """Names of namespaces, in order."""

    namespaces: list[tuple[str, ...]]


class ReceiptOut(Result):
    """What was forgotten; *erased* tells whether its bytes are gone from disk, too.

    *reason* says why they are not.
    """

    item_ids: tuple[str, ...]
    namespace: tuple[str, ...]
    count: int
    erased: bool
    reason: str


class StatsOut(Result):
    """Totals; *store_bytes* is null where a key reaches only some namespaces."""

    namespaces: int
    live: int
    tiers: dict[str, int]
    pinned: int
    vectors: int
    pending: int
    cells: int
    store_bytes: int | None
    embedder: str
    dimension: int


class MoveOut(Result):
    """One item that a sweep moved; *to* is null where it was deleted."""

    item_id: str
    namespace: tuple[str, ...]
    was: str
    to: str | None
    why: str


class SweepOut(Result):
    """What a sweep did, or would do; *erased* is false while bytes of what it deleted are left."""

    moves: list[MoveOut]
    visited: int
    namespaces: int
    dry_run: bool
    erased: bool


class HealthOut(Result):
    """That the server answers."""

    status: str


class ProblemOut(Result):
    """What went wrong: a name for programs and a sentence for people."""

    code: str
    message: str


class ErrorOut(Result):
    """An error."""

    error: ProblemOut


def encoded(value: Struct | list[float]) -> bytes:
    """Return JSON in UTF-8."""
    return msgspec.json.encode(value)


def item_out(item: Item) -> ItemOut:
    """Return every field of an item."""
    return ItemOut(
        id=item.id,
        namespace=item.namespace,
        content=item.content,
        context=item.context,
        created_at=item.created_at,
        valid_from=item.valid_from,
        valid_until=item.valid_until,
        expires_at=item.expires_at,
        source=item.source,
        source_trust=item.source_trust,
        claim=claim_out(item.claim),
        status=item.status,
        contradicted=item.contradicted,
        pinned=item.pinned,
        metadata=dict(item.metadata),
        supersedes=item.supersedes,
        superseded_by=item.superseded_by,
        last_verified_at=item.last_verified_at,
        tier=item.tier.name,
        value=item.value,
        exposed_count=item.exposed_count,
        contributed_count=item.contributed_count,
    )


def item_in(wired: ItemOut) -> Item:
    """Return the item that `item_out` was given, at the other end of the wire."""
    fields = {name: getattr(wired, name) for name in wired.__struct_fields__}
    return Item(**{**fields, "claim": claim_of(wired.claim), "tier": Tier[wired.tier]})


def claim_out(claim: Claim | None) -> ClaimWire | None:
    """Return a claim as an object."""
    if claim is None:
        return None
    return ClaimWire(subject=claim.subject, attribute=claim.attribute, value=claim.value)


def items_out(items: Sequence[Item]) -> ItemsOut:
    """Return several items."""
    return ItemsOut(items=[item_out(item) for item in items])


def page_out(page: Page, cursor: str | None) -> PageOut:
    """Return a page of items, with the cursor that the gateway gives for the next one."""
    return PageOut(items=[item_out(item) for item in page.items], cursor=cursor)


def context_out(context: Context) -> ContextOut:
    """Return a block for a prompt."""
    return ContextOut(text=context.text, item_ids=context.item_ids, tokens=context.tokens)


def history_out(entries: Sequence[HistoryEntry]) -> HistoryOut:
    """Return the steps of a history."""
    return HistoryOut(
        entries=[
            HistoryEntryOut(
                item_id=entry.item_id,
                at=entry.at,
                event=entry.event,
                content=entry.content,
                claim=claim_out(entry.claim),
            )
            for entry in entries
        ]
    )


def receipt_out(receipt: ForgetReceipt) -> ReceiptOut:
    """Return what was forgotten."""
    return ReceiptOut(
        item_ids=receipt.item_ids,
        namespace=receipt.namespace,
        count=receipt.count,
        erased=receipt.erased,
        reason=receipt.reason,
    )


def stats_out(stats: Stats, *, of_all: bool) -> StatsOut:
    """Return totals; the size of the store, which tells of others too, only to who sees all."""
    return StatsOut(
        namespaces=stats.namespaces,
        live=stats.live,
        tiers={tier.name: stats.tiers.get(tier, 0) for tier in Tier},
        pinned=stats.pinned,
        vectors=stats.vectors,
        pending=stats.pending,
        cells=stats.cells,
        store_bytes=stats.store_bytes if of_all else None,
        embedder=stats.embedder,
        dimension=stats.dimension,
    )


def sweep_out(report: SweepReport) -> SweepOut:
    """Return what a sweep did."""
    return SweepOut(
        moves=[_move_out(move) for move in report.moves],
        visited=report.visited,
        namespaces=report.namespaces,
        dry_run=report.dry_run,
        erased=report.erased,
    )


def _move_out(move: TierMove) -> MoveOut:
    return MoveOut(
        item_id=move.item_id,
        namespace=move.namespace,
        was=move.was.name,
        to=None if move.to is None else move.to.name,
        why=move.why,
    )
