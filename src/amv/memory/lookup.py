"""Finding items without a query: by id, by claim, in order, through their history."""

import math
import re
from collections.abc import Sequence

from amv.checks import shown
from amv.errors import EmbedderChanged, EmbedderError, InvalidInput, ItemNotFound, StoreError
from amv.memory.item import (
    NAME_CHARS_MAX,
    Namespace,
    Row,
    Status,
    check_id,
    check_namespace,
    check_text,
    utc,
)
from amv.memory.ports import Embedder, NamespaceRow, Reader
from amv.memory.results import HistoryEntry
from amv.memory.tiers import Tier

EMBEDDER_META = "embedder"
PAGE_MAX = 10_000


def embedder_mark(embedder: Embedder) -> str:
    """Return the name and dimension under which a store remembers its embedder.

    Raises EmbedderError if it has no such.
    """
    try:
        name, dimension = check_text(embedder.id, "its id", NAME_CHARS_MAX), embedder.dimension
    except EmbedderError:
        # It has them, but the server that knows its dimension can't be asked, say.
        raise
    except Exception as error:
        raise EmbedderError(f"need an embedder with an id and a dimension: {error}") from error
    if isinstance(dimension, int) and not isinstance(dimension, bool) and dimension >= 1:
        return f"{name} ({dimension} dimensions)"
    raise EmbedderError(
        f"the dimension of embedder {name!r} must be a whole number from 1, got {shown(dimension)}"
    )


def check_methods(embedder: Embedder) -> None:
    """Raise EmbedderError unless an embedder, which may be anyone's, has what is called of it."""
    for name in ("embed", "passages"):
        if not callable(getattr(embedder, name, None)):
            raise EmbedderError(
                "need an embedder with id, dimension, embed(texts) and passages(text), "
                f"got {shown(embedder)} without {name}"
            )


def marked(mark: str) -> tuple[str, int] | None:
    """Return the name and dimension of an embedder from its mark; None if it is no such.

    >>> marked("minilm-l6-v2-int8 (384 dimensions)")
    ('minilm-l6-v2-int8', 384)
    """
    match = re.fullmatch(r"(.+) \(([1-9][0-9]{0,8}) dimensions\)", mark, re.DOTALL)
    return None if match is None else (match[1], int(match[2]))


def check_embedder(reader: Reader, embedder: Embedder) -> None:
    """Raise EmbedderChanged if the store got another's vectors since it was opened."""
    stored, ours = reader.meta(EMBEDDER_META), embedder_mark(embedder)
    if stored is not None and stored != ours:
        raise EmbedderChanged(
            f"this store was opened with embedder {ours}, and changed over to {stored} since "
            "(`amv reembed`); close it and open it again, or restart what serves it"
        )


def check_opening(reader: Reader, embedder: Embedder) -> None:
    """Raise EmbedderChanged unless a store that is being opened is of *embedder*, or of none."""
    stored, ours = reader.meta(EMBEDDER_META), embedder_mark(embedder)
    if stored is not None and stored != ours:
        raise EmbedderChanged(
            f"this store holds vectors of embedder {stored}, opened with {ours}; "
            "open it without naming an embedder (AMV_EMBEDDER, --embedder, embedder=) to use "
            "its own, or run `amv reembed` to change over"
        )


def find(
    reader: Reader, item_id: str, namespace: Sequence[str] | None, now_s: float
) -> tuple[Row, NamespaceRow]:
    """Return the one unexpired item with this id.

    Raises ItemNotFound if there is none, InvalidInput if several namespaces
    have one and *namespace* does not say which is meant.
    """
    check_id(item_id)
    ns: NamespaceRow | None = None
    if namespace is not None:
        ns = reader.namespace(check_namespace(namespace))
        rows = [] if ns is None else reader.rows_with_id(item_id, ns.ns_id)
    else:
        rows = reader.rows_with_id(item_id)
    rows = [row for row in rows if not row.is_expired(now_s)]
    if not rows:
        where = ""
        if namespace is not None:
            where = f" in namespace {tuple(namespace)!r}; an item never changes its namespace"
        raise ItemNotFound(f"no item has the id {item_id!r}{where}")
    if len(rows) > 1:
        raise InvalidInput(
            f"{len(rows)} namespaces have an item with the id {item_id!r}; "
            "say which with namespace="
        )
    ns = ns or reader.namespace_by_id(rows[0].ns_id)
    if ns is None:
        raise StoreError("an item is in no namespace: the store is damaged; run `amv doctor`")
    return rows[0], ns


def check_limit(limit: object) -> int:
    """Return how many items a page may have, or raise InvalidInput."""
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= PAGE_MAX:
        return limit
    raise InvalidInput(f"limit must be 1 to {PAGE_MAX}, got {shown(limit)}")


def check_status(status: object) -> Status | None:
    """Return which items are asked for, None for all, or raise InvalidInput."""
    if status is None or isinstance(status, Status):
        return status
    if isinstance(status, str) and status in set(Status):
        return Status(status)
    raise InvalidInput(f"status must be one of {', '.join(Status)} or None, got {shown(status)}")


def page(
    reader: Reader,
    ns: NamespaceRow,
    *,
    source: str | None,
    after_key: int,
    limit: int,
    status: Status | None,
    now_s: float,
) -> tuple[list[Row], int | None]:
    """Return up to *limit* rows after a key, and the key to go on from; None at the end."""
    found: list[Row] = []
    while True:
        # One more than asked for tells whether anything follows.
        rows = reader.page(ns.ns_id, source=source, after_key=after_key, limit=limit + 1)
        for row in rows:
            if row.is_expired(now_s) or status not in (None, row.status):
                continue
            if len(found) == limit:
                return found, found[-1].key
            found.append(row)
        if len(rows) <= limit:
            return found, None
        after_key = rows[-1].key


def best_claim(
    reader: Reader, name: Namespace, subject: str, attribute: str, now_s: float
) -> Row | None:
    """Return the row that says what holds now: the most trusted and, among those, the newest."""
    rows = reader.claims_in(name, subject, attribute)
    in_force = [row for row in rows if row.is_visible(now_s, now_s)]
    return max(
        in_force, key=lambda row: (row.source_trust, row.valid_from_s, row.key), default=None
    )


def history(reader: Reader, ns: NamespaceRow, row: Row, now_s: float) -> list[HistoryEntry]:
    """Return what happened to an item and to those linked with it by supersession."""
    chain, todo = {row.key: row}, [row]
    while todo:
        for other in reader.linked_rows(ns.ns_id, todo.pop().id):
            if other.key not in chain and not other.is_expired(now_s):
                chain[other.key] = other
                todo.append(other)
    entries: list[tuple[float, int, int, HistoryEntry]] = []
    # Nothing is told before what it came after, though the clock was set back in between.
    added_s = latest_s = -math.inf
    for _, link in sorted(chain.items()):
        steps = reader.history(link.key)
        first = steps[0] if steps else None
        added = HistoryEntry(
            item_id=link.id,
            at=utc(link.created_s),
            event="added",
            content=link.content if first is None else first.content,
            claim=link.claim if first is None else first.claim,
        )
        added_s = latest_s = max(added_s, link.created_s)
        entries.append((added_s, link.key, 0, added))
        for number, step in enumerate(steps, start=1):
            entry = HistoryEntry(
                item_id=link.id,
                at=utc(step.at_s),
                event=step.event,
                content=step.content,
                claim=step.claim,
            )
            latest_s = max(latest_s, step.at_s)
            entries.append((latest_s, link.key, number, entry))
    entries.sort(key=lambda entry: entry[:3])
    return [entry for *_, entry in entries]


def count_tiers(reader: Reader, rows: Sequence[NamespaceRow]) -> dict[Tier, int]:
    """Return how many live items each tier holds, over several namespaces."""
    totals = dict.fromkeys(Tier, 0)
    for ns in rows:
        for tier, count in reader.tier_counts(ns.ns_id).items():
            totals[tier] += count
    return totals
