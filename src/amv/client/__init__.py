"""A client of the gateway: what a `Memory` does with items, and what its gate does.

    client = Client("http://127.0.0.1:8420", key="amv_...")
    client.add("Alice moved to Rome", namespace=("alice",))

It gives the same items and raises the same errors as a `Memory` does.  What
failed is tried again only where that is safe: reads, and adds, which carry ids
or an Idempotency-Key.
"""

import base64
import builtins
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import numpy as np

from amv.checks import several
from amv.client.guarding import GuardClient
from amv.client.sending import LOCAL, Refused, Sender
from amv.closing import Closing
from amv.errors import InvalidInput
from amv.memory.filters import check_metadata
from amv.memory.item import (
    Claim,
    Item,
    JsonScalar,
    Namespace,
    Status,
    check_id,
    check_namespace,
)
from amv.memory.results import (
    Context,
    ForgetReceipt,
    HistoryEntry,
    Hit,
    Page,
    Scanned,
    SearchResult,
    Stats,
    SweepReport,
    TierMove,
)
from amv.memory.tiers import Tier
from amv.server import wire

__all__ = ["Client", "Refused"]


class Client(GuardClient, Closing):
    """A memory behind a gateway, and its gate.

    Safe for use by several threads; close it when done.

    *timeout_s* is how long one call may take, tries again included.
    """

    def __init__(
        self,
        url: str = LOCAL,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sender = Sender(url, key, timeout_s, sleep)

    def _check_open(self) -> None:
        """Raise StoreClosed once the client is closed."""
        self._sender.check_open()

    def close(self) -> None:
        """Close all connections."""
        self._sender.close()

    # Adding and changing

    def add(self, content: str, *, namespace: Sequence[str], **fields: Any) -> Item:
        """Remember *content*; see `Memory.add`."""
        return self.add_many([{"content": content, "namespace": namespace, **fields}])[0]

    def add_many(self, items: Iterable[Mapping[str, Any]]) -> builtins.list[Item]:
        """Remember many items; see `Memory.add_many`.  Each request's items are written whole."""
        each = several(items, "items must be several mappings of fields")
        bodies = [_item_body(item) for item in each]
        added: builtins.list[Item] = []
        if not bodies:
            self._check_open()
        for start in range(0, len(bodies), _ITEMS_MAX):
            found = self._sender.send(
                "POST",
                "/v1/items",
                wire.ItemsOut,
                body=bodies[start : start + _ITEMS_MAX],
                is_repeatable=True,
                headers={"idempotency-key": secrets.token_hex(16)},
            )
            added += [wire.item_in(item) for item in found.items]
        return added

    def update(
        self, item_id: str, *, namespace: Sequence[str] | None = None, **fields: Any
    ) -> Item:
        """Change an item; see `Memory.update`."""
        changes = {name: _plain_value(name, value) for name, value in fields.items()}
        return self._item("PATCH", item_id, "", namespace, body=changes)

    def pin(
        self, item_id: str, pinned: bool = True, *, namespace: Sequence[str] | None = None
    ) -> Item:
        """Keep an item hot, or no longer; see `Memory.pin`."""
        body = {"pinned": pinned}
        return self._item("POST", item_id, "/pin", namespace, body=body, is_repeatable=True)

    def confirm(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Item:
        """Note that an item was found to be true; see `Memory.confirm`."""
        return self._item("POST", item_id, "/confirm", namespace)

    def refute(
        self,
        item_id: str,
        value: JsonScalar = None,
        *,
        namespace: Sequence[str] | None = None,
    ) -> Item:
        """Note that an item is wrong; see `Memory.refute`."""
        return self._item("POST", item_id, "/refute", namespace, body={"value": value})

    def forget(self, item_id: str, *, namespace: Sequence[str] | None = None) -> ForgetReceipt:
        """Forget an item for ever; see `Memory.forget`."""
        return self._forget(_path(item_id), _query(namespace=namespace))

    def forget_namespace(self, namespace: Sequence[str]) -> ForgetReceipt:
        """Forget a namespace and everything in it; see `Memory.forget_namespace`."""
        name = _part(json.dumps(check_namespace(namespace)))
        return self._forget(f"/v1/namespaces/{name}", None)

    def _forget(self, path: str, query: Mapping[str, str] | None) -> ForgetReceipt:
        found = self._sender.send("DELETE", path, wire.ReceiptOut, query=query)
        return ForgetReceipt(
            item_ids=found.item_ids,
            namespace=found.namespace,
            erase=lambda: found.erased,
            reason=found.reason,
        )

    def reinforce(
        self,
        item_ids: Iterable[str],
        *,
        contributed: bool = True,
        negative: bool = False,
        namespace: Sequence[str] | None = None,
    ) -> int:
        """Note that items were used, only seen, or misled; see `Memory.reinforce`."""
        ids = list(several(item_ids, "item_ids must be several ids"))
        body: dict[str, object] = {"ids": ids, "contributed": contributed, "negative": negative}
        if namespace is not None:
            body["namespace"] = list(check_namespace(namespace))
        return self._sender.send("POST", "/v1/feedback", wire.FeedbackOut, body=body).noted

    # Reading

    def get(self, item_id: str, *, namespace: Sequence[str] | None = None) -> Item:
        """Return an item; see `Memory.get`."""
        return self._item("GET", item_id, "", namespace)

    def history(
        self, item_id: str, *, namespace: Sequence[str] | None = None
    ) -> builtins.list[HistoryEntry]:
        """Return what happened to an item; see `Memory.history`."""
        found = self._sender.send(
            "GET", _path(item_id, "/history"), wire.HistoryOut, query=_query(namespace=namespace)
        )
        return [
            HistoryEntry(
                item_id=entry.item_id,
                at=entry.at,
                event=entry.event,
                content=entry.content,
                claim=wire.claim_of(entry.claim),
            )
            for entry in found.entries
        ]

    def contradicting(
        self, item_id: str, *, namespace: Sequence[str] | None = None
    ) -> builtins.list[Item]:
        """Return what an item seems to contradict; see `Memory.contradicting`."""
        path, query = _path(item_id, "/contradicting"), _query(namespace=namespace)
        found = self._sender.send("GET", path, wire.ItemsOut, query=query)
        return [wire.item_in(item) for item in found.items]

    def list(
        self,
        *,
        namespace: Sequence[str],
        source: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        status: str | None = Status.LIVE,
    ) -> Page:
        """Return a page of items; see `Memory.list`."""
        status = "all" if status is None else status
        query = _query(
            namespace=namespace, source=source, cursor=cursor, limit=limit, status=status
        )
        found = self._sender.send("GET", "/v1/items", wire.PageOut, query=query)
        return Page(items=tuple(map(wire.item_in, found.items)), cursor=found.cursor)

    def find_claim(self, namespace: Sequence[str], subject: str, attribute: str) -> Item | None:
        """Return the item that holds a claim; see `Memory.find_claim`."""
        query = _query(namespace=namespace, subject=subject, attribute=attribute)
        found = self._sender.send("GET", "/v1/claims", wire.ClaimOut, query=query)
        return None if found.item is None else wire.item_in(found.item)

    def search(
        self,
        query: str | None = None,
        *,
        namespace: Sequence[str],
        k: int = 10,
        vector: object = None,
        filter: Mapping[str, object] | None = None,
        as_of: object = None,
        cold: bool | None = None,
    ) -> SearchResult:
        """Return the best items for a query; see `Memory.search`."""
        given = {
            "namespace": check_namespace(namespace),
            "query": query,
            "k": k,
            "vector": vector,
            "filter": filter,
            "as_of": as_of,
            "cold": cold,
        }
        body = _plain(given)
        found = self._sender.send("POST", "/v1/search", wire.SearchOut, body=body, is_read=True)
        return SearchResult(
            hits=tuple(
                Hit(wire.item_in(hit.item), hit.similarity, hit.lexical, hit.rank)
                for hit in found.hits
            ),
            scanned=Scanned(
                hot=found.scanned.hot,
                warm=found.scanned.warm,
                cold=found.scanned.cold,
                postings=found.scanned.postings,
            ),
            complete=found.complete,
            reason=found.reason,
            cold_probed=found.cold_probed,
        )

    def context(
        self,
        query: str,
        *,
        namespace: Sequence[str],
        token_budget: int = 800,
        filter: Mapping[str, object] | None = None,
        vector: object = None,
    ) -> Context:
        """Return a block for a prompt; see `Memory.context`."""
        given = {
            "namespace": check_namespace(namespace),
            "query": query,
            "token_budget": token_budget,
            "filter": filter,
            "vector": vector,
        }
        found = self._sender.send("POST", "/v1/context", wire.ContextOut, body=_plain(given))
        return Context(text=found.text, item_ids=found.item_ids, tokens=found.tokens)

    def namespaces(self) -> builtins.list[Namespace]:
        """Return the namespaces this key reaches."""
        return self._sender.send("GET", "/v1/namespaces", wire.NamespacesOut).namespaces

    def stats(self, namespace: Sequence[str] | None = None) -> Stats:
        """Return totals; see `Memory.stats`.  The size of the store is 0 where it isn't told."""
        query = _query(namespace=namespace)
        found = self._sender.send("GET", "/v1/stats", wire.StatsOut, query=query)
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        tiers = {Tier[name]: count for name, count in found.tiers.items()}
        return Stats(**{**fields, "tiers": tiers, "store_bytes": found.store_bytes or 0})

    def sweep(self, *, dry_run: bool = False) -> SweepReport:
        """Move items between tiers by their value now; see `Memory.sweep`."""
        found = self._sender.send("POST", "/v1/sweep", wire.SweepOut, body={"dry_run": dry_run})
        return SweepReport(
            moves=tuple(
                TierMove(
                    item_id=move.item_id,
                    namespace=move.namespace,
                    was=Tier[move.was],
                    to=None if move.to is None else Tier[move.to],
                    why=move.why,
                )
                for move in found.moves
            ),
            visited=found.visited,
            namespaces=found.namespaces,
            dry_run=found.dry_run,
            erased=found.erased,
        )

    def _item(
        self,
        method: str,
        item_id: str,
        rest: str,
        namespace: Sequence[str] | None,
        *,
        body: object = None,
        is_repeatable: bool = False,
    ) -> Item:
        found = self._sender.send(
            method,
            _path(item_id, rest),
            wire.ItemOut,
            query=_query(namespace=namespace),
            body=body,
            is_repeatable=is_repeatable,
        )
        return wire.item_in(found)


_ITEMS_MAX = 1000


def _path(item_id: str, rest: str = "") -> str:
    return f"/v1/items/{_part(check_id(item_id))}{rest}"


def _part(text: str) -> str:
    """Return a text as one part of a path; a dot alone would mean the part before it."""
    return quote(text, safe="").replace(".", "%2E")


def _query(*, namespace: Sequence[str] | None = None, **rest: object) -> dict[str, str]:
    query = {name: str(value) for name, value in rest.items() if value is not None}
    if namespace is not None:
        query["namespace"] = json.dumps(check_namespace(namespace))
    return query


def _item_body(item: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an item is a mapping of fields, got {type(item).__name__}")
    body = _plain(item)
    if "namespace" in body:
        body["namespace"] = check_namespace(body["namespace"])
    return body


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are given as what JSON has; the rest is left for `_json` to refuse."""
    return {name: _plain_value(name, v) for name, v in fields.items() if v is not None}


def _plain_value(name: str, value: Any) -> Any:
    if name == "claim" and isinstance(value, Claim):
        return {"subject": value.subject, "attribute": value.attribute, "value": value.value}
    if name == "metadata" and isinstance(value, Mapping):
        return check_metadata(value)
    if name == "vector" and value is not None:
        return _vector(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _vector(vector: object) -> object:
    """Return a vector as JSON has it: in base64, if it loses nothing as float32."""
    try:
        numbers = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"a vector must hold numbers only: {error}") from error
    with np.errstate(over="ignore"):
        halved = numbers.astype("<f4")
    if numbers.ndim == 1 and np.array_equal(numbers, halved) and np.isfinite(halved).all():
        return base64.b64encode(halved.tobytes()).decode()
    return numbers.tolist()
