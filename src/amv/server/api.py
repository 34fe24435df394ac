"""What each route does with the memory, once who asks is known and the body is read.

A handler is an ordinary function from a `Call` to what the reply holds, run in
a thread or, where all is in memory, on the event loop.  What the gate's routes
do is in `guarding`; all are listed in `routes`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from amv.errors import InvalidInput
from amv.guard.service import GuardService
from amv.memory.item import ID_ALPHABET, Namespace, Status
from amv.memory.service import MemoryService
from amv.server import cursors, wire
from amv.server.access import Forbidden, Level, Principal
from amv.server.found import found_out

PAGE_LIMIT = 100
ITEMS_MAX = 4096
"""How many items one request may add."""

_ID_CHARS = 26


class Call(NamedTuple):
    """One request, checked as far as HTTP goes."""

    memory: MemoryService
    guard: GuardService | None
    principal: Principal
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    idempotency_key: str | None = None
    cursor_secret: bytes | None = None

    def namespace(self, given: object) -> Namespace | None:
        """Return the namespace a request means, None if it names none and needs none."""
        asked = None if given is UNSET or given is None else wire.namespace_of(given)
        return self.principal.namespace(asked)

    def one_namespace(self, given: object) -> Namespace:
        """Return the namespace a request means; raises InvalidInput if it names none."""
        name = self.namespace(given)
        if name is None:
            raise InvalidInput('namespace is needed: whose memory this is, such as ["alice"]')
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path.

    *query* names the query parameters it takes, each with what it is for;
    *needs_query* those without which it is an error.
    """

    method: str
    path: str
    handler: Callable[[Call], Struct]
    level: Level
    summary: str
    gives: type[Struct] | tuple[type[Struct], ...]
    takes: Any = None
    body_is_optional: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    needs_query: tuple[str, ...] = ()
    writes: bool = False
    status: int = 200


class _Param(StrEnum):
    NAMESPACE = "Parts joined by /, or a JSON array where a part holds a /."
    SOURCE = "Only items of this source."
    CURSOR = "Where an earlier page ended."
    LIMIT = f"How many at most; {PAGE_LIMIT} if not given."
    STATUS = "live (if not given), superseded, refuted or all."
    SUBJECT = "Whom or what the claim is about."
    ATTRIBUTE = "Which attribute of it."


# ---------------------------------------------------------------- items


def add_items(call: Call) -> Struct:
    """Add one item, or several at once."""
    body = call.body
    items = body if isinstance(body, list) else [body]
    if len(items) > ITEMS_MAX:
        raise InvalidInput(f"a request adds at most {ITEMS_MAX} items, got {len(items)}")
    fields = [_fields(call, item) for item in items]
    added = call.memory.add_under(
        (one, _made_id(call.idempotency_key, one["namespace"], place))
        for place, one in enumerate(fields)
    )
    if isinstance(body, list):
        return wire.items_out(added)
    return wire.item_out(added[0])


def _fields(call: Call, item: wire.ItemIn) -> dict[str, Any]:
    fields = wire.given_fields(item, "namespace", "claim")
    fields["namespace"] = call.one_namespace(item.namespace)
    if item.claim is not UNSET and item.claim is not None:
        fields["claim"] = wire.claim_of(item.claim)
    if isinstance(item.vector, bytes):
        fields["vector"] = wire.vector_of(item.vector)
    return fields


def _made_id(key: str | None, namespace: Namespace, place: int) -> str | None:
    """Return the id of the item at a place in a request, the same each time it is repeated."""
    if key is None:
        return None
    named = json.dumps([key, namespace, place]).encode()
    number = int.from_bytes(sha256(named).digest()[:17], "big")
    return "".join(ID_ALPHABET[number >> 5 * n & 31] for n in range(_ID_CHARS))


def list_items(call: Call) -> Struct:
    """List the items of a namespace, oldest first."""
    limit = call.query.get("limit", str(PAGE_LIMIT))
    if not limit.isascii() or not limit.isdecimal():
        raise InvalidInput(f"limit must be a whole number, got {limit[:40]!r}")
    name, secret = call.one_namespace(call.query.get("namespace")), call.cursor_secret
    cursor, status = call.query.get("cursor"), call.query.get("status", Status.LIVE)
    if cursor is not None and secret is not None:
        cursor = cursors.opened(cursor, name, secret)
    page = call.memory.list(
        namespace=name,
        source=call.query.get("source"),
        cursor=cursor,
        limit=int(limit[:9]),
        status=None if status == "all" else status,  # type: ignore[arg-type]
    )
    following = page.cursor
    if following is not None and secret is not None:
        following = cursors.sealed(following, name, secret)
    return wire.page_out(page, following)


def _item_and_namespace(call: Call) -> tuple[str, Namespace | None]:
    return call.path["id"], call.namespace(call.query.get("namespace"))


def get_item(call: Call) -> Struct:
    """Read one item."""
    item_id, name = _item_and_namespace(call)
    return wire.item_out(call.memory.get(item_id, namespace=name))


def update_item(call: Call) -> Struct:
    """Change an item; what it said stays in its history."""
    item_id, name = _item_and_namespace(call)
    changes = wire.given_fields(call.body)
    return wire.item_out(call.memory.update(item_id, namespace=name, **changes))


def forget_item(call: Call) -> Struct:
    """Forget an item for ever."""
    item_id, name = _item_and_namespace(call)
    return wire.receipt_out(call.memory.forget(item_id, namespace=name))


def item_history(call: Call) -> Struct:
    """Read what happened to an item, and to the claims before it."""
    item_id, name = _item_and_namespace(call)
    return wire.history_out(call.memory.history(item_id, namespace=name))


def contradicting_items(call: Call) -> Struct:
    """Read what an item that is flagged as contradicted seems to contradict."""
    item_id, name = _item_and_namespace(call)
    return wire.items_out(call.memory.contradicting(item_id, namespace=name))


def pin_item(call: Call) -> Struct:
    """Keep an item hot, or no longer."""
    item_id, name = _item_and_namespace(call)
    pinned = True if call.body is None else call.body.pinned
    return wire.item_out(call.memory.pin(item_id, pinned, namespace=name))


def confirm_item(call: Call) -> Struct:
    """Note that an item was found to be true."""
    item_id, name = _item_and_namespace(call)
    return wire.item_out(call.memory.confirm(item_id, namespace=name))


def refute_item(call: Call) -> Struct:
    """Note that an item is wrong; with a value, the corrected claim takes its place."""
    item_id, name = _item_and_namespace(call)
    value = None if call.body is None else call.body.value
    return wire.item_out(call.memory.refute(item_id, value, namespace=name))


# ---------------------------------------------------------------- finding


def search(call: Call) -> Struct:
    """Find the best items for a text, a vector, or both."""
    body = call.body
    found = call.memory.find(
        body.query,
        namespace=call.one_namespace(body.namespace),
        k=body.k,
        vector=wire.vector_of(body.vector),
        filter=body.filter,
        as_of=body.as_of,
        cold=body.cold,
    )
    return found_out(found)


def context(call: Call) -> Struct:
    """Pack the best items into a block for a prompt."""
    body = call.body
    found = call.memory.context(
        body.query,
        namespace=call.one_namespace(body.namespace),
        token_budget=body.token_budget,
        filter=body.filter,
        vector=wire.vector_of(body.vector),
    )
    return wire.context_out(found)


def feedback(call: Call) -> Struct:
    """Note which items were used, only seen, or misled."""
    body = call.body
    noted = call.memory.reinforce(
        body.ids,
        contributed=body.contributed,
        negative=body.negative,
        namespace=call.namespace(body.namespace),
    )
    return wire.FeedbackOut(noted=noted)


def find_claim(call: Call) -> Struct:
    """Read the live claim about a subject's attribute."""
    name = call.one_namespace(call.query.get("namespace"))
    item = call.memory.find_claim(name, call.query["subject"], call.query["attribute"])
    return wire.ClaimOut(item=None if item is None else wire.item_out(item))


# ---------------------------------------------------------------- the whole


def list_namespaces(call: Call) -> Struct:
    """List the namespaces this key reaches."""
    prefix = call.principal.prefix
    names = call.memory.namespaces()
    own = [name for name in names if name[: len(prefix)] == prefix]
    return wire.NamespacesOut(namespaces=own)


def forget_namespace(call: Call) -> Struct:
    """Forget a namespace and everything in it."""
    name = call.one_namespace(call.path["ns"])
    return wire.receipt_out(call.memory.forget_namespace(name))


def stats(call: Call) -> Struct:
    """Count what a namespace holds, or all together."""
    name = call.namespace(call.query.get("namespace"))
    return wire.stats_out(call.memory.stats(name), of_all=not call.principal.prefix)


def sweep(call: Call) -> Struct:
    """Move items between tiers by their value now."""
    if call.principal.prefix:
        raise Forbidden("a sweep goes over all namespaces; this needs a key that reaches them")
    dry_run = False if call.body is None else call.body.dry_run
    return wire.sweep_out(call.memory.sweep(dry_run=dry_run))


_NAMED = {"namespace": _Param.NAMESPACE}
_ITEM = "/v1/items/{id}"

ROUTES = (
    Route(
        method="POST",
        path="/v1/search",
        handler=search,
        gives=wire.SearchOut,
        level=Level.READ,
        summary="Find items",
        takes=wire.SearchIn,
    ),
    Route(
        method="POST",
        path="/v1/context",
        handler=context,
        gives=wire.ContextOut,
        level=Level.READ,
        summary="Pack a block for a prompt",
        takes=wire.ContextIn,
    ),
    Route(
        method="POST",
        path="/v1/feedback",
        handler=feedback,
        gives=wire.FeedbackOut,
        level=Level.WRITE,
        summary="Note what was used",
        takes=wire.FeedbackIn,
    ),
    Route(
        method="POST",
        path="/v1/items",
        handler=add_items,
        gives=(wire.ItemOut, wire.ItemsOut),
        level=Level.WRITE,
        summary="Add an item, or an array of them",
        takes=wire.ITEMS,
        writes=True,
        status=201,
    ),
    Route(
        method="GET",
        path="/v1/items",
        handler=list_items,
        gives=wire.PageOut,
        level=Level.READ,
        summary="List items",
        query={
            **_NAMED,
            "source": _Param.SOURCE,
            "cursor": _Param.CURSOR,
            "limit": _Param.LIMIT,
            "status": _Param.STATUS,
        },
    ),
    Route(
        method="GET",
        path=_ITEM,
        handler=get_item,
        gives=wire.ItemOut,
        level=Level.READ,
        summary="Read an item",
        query=_NAMED,
    ),
    Route(
        method="PATCH",
        path=_ITEM,
        handler=update_item,
        gives=wire.ItemOut,
        level=Level.WRITE,
        summary="Change an item",
        takes=wire.ChangesIn,
        query=_NAMED,
        writes=True,
    ),
    Route(
        method="DELETE",
        path=_ITEM,
        handler=forget_item,
        gives=wire.ReceiptOut,
        level=Level.WRITE,
        summary="Forget an item",
        query=_NAMED,
        writes=True,
    ),
    Route(
        method="GET",
        path=f"{_ITEM}/history",
        handler=item_history,
        gives=wire.HistoryOut,
        level=Level.READ,
        summary="Read an item's history",
        query=_NAMED,
    ),
    Route(
        method="GET",
        path=f"{_ITEM}/contradicting",
        handler=contradicting_items,
        gives=wire.ItemsOut,
        level=Level.READ,
        summary="Read what stands against an item",
        query=_NAMED,
    ),
    Route(
        method="POST",
        path=f"{_ITEM}/pin",
        handler=pin_item,
        gives=wire.ItemOut,
        level=Level.WRITE,
        summary="Pin or unpin an item",
        takes=wire.PinIn,
        body_is_optional=True,
        query=_NAMED,
        writes=True,
    ),
    Route(
        method="POST",
        path=f"{_ITEM}/confirm",
        handler=confirm_item,
        gives=wire.ItemOut,
        level=Level.WRITE,
        summary="Confirm an item",
        query=_NAMED,
        writes=True,
    ),
    Route(
        method="POST",
        path=f"{_ITEM}/refute",
        handler=refute_item,
        gives=wire.ItemOut,
        level=Level.WRITE,
        summary="Refute an item",
        takes=wire.RefuteIn,
        body_is_optional=True,
        query=_NAMED,
        writes=True,
    ),
    Route(
        method="GET",
        path="/v1/claims",
        handler=find_claim,
        gives=wire.ClaimOut,
        level=Level.READ,
        summary="Read a claim",
        query={**_NAMED, "subject": _Param.SUBJECT, "attribute": _Param.ATTRIBUTE},
        needs_query=("subject", "attribute"),
    ),
    Route(
        method="GET",
        path="/v1/namespaces",
        handler=list_namespaces,
        gives=wire.NamespacesOut,
        level=Level.READ,
        summary="List namespaces",
    ),
    Route(
        method="DELETE",
        path="/v1/namespaces/{ns}",
        handler=forget_namespace,
        gives=wire.ReceiptOut,
        level=Level.ADMIN,
        summary="Forget a namespace",
        writes=True,
    ),
    Route(
        method="GET",
        path="/v1/stats",
        handler=stats,
        gives=wire.StatsOut,
        level=Level.READ,
        summary="Count what is kept",
        query=_NAMED,
    ),
    Route(
        method="POST",
        path="/v1/sweep",
        handler=sweep,
        gives=wire.SweepOut,
        level=Level.ADMIN,
        summary="Sweep",
        takes=wire.SweepIn,
        body_is_optional=True,
        writes=True,
    ),
)
