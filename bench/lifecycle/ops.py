"""What a workload is made of: requests in their order, each at a moment of simulated time.

A request is kept apart from the form it is sent in, as that differs: a policy
with a time to live gives its writes an end, and vectors may be given or not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from amv.memory.ports import Floats

DAY_S = 86_400.0
START_S = 1_750_000_000.0
"""When simulated time begins, in unix seconds."""

RECALL_K = 24
QUESTION_K = 10
ASK_TOKENS = 16_384
"""So many that all 48 items which a context packs at most always fit: the cap is that of items."""

Kind = Literal["write", "recall", "ask", "question", "sweep", "stats", "feedback"]


@dataclass(slots=True, kw_only=True)
class Op:
    """One request of a workload; *at_s* counts from `START_S`.

    A ``write`` adds *texts* under *ids* in one request.  A ``recall`` finds
    many items, an ``ask`` has them packed into a prompt, and a ``question``
    finds few and then says which of its *needs* it used.  *needs* are ids of
    items without which a read can't be answered; *age_s* is the age of the
    first.  *watch* are ids whose tier is noted wherever they come back.
    """

    at_s: float
    kind: Kind
    user: int = 0
    ids: Sequence[str] = ()
    texts: Sequence[str] = ()
    pinned: bool = False
    needs: Sequence[str] = ()
    age_s: float = 0.0
    watch: Sequence[str] = ()


@dataclass(slots=True)
class Workload:
    """Requests in the order of their moments, and where the vectors of their texts come from.

    *factor_says* tells how much faster than a clock simulated time runs; it is
    computed from how long the run took.
    """

    name: str
    seed: int
    ops: list[Op]
    embedder: str = "hashing:384"
    about: dict[str, object] = field(default_factory=dict)

    def texts(self) -> Iterator[str]:
        """Yield every text in order: those written and those asked."""
        for op in self.ops:
            yield from op.texts

    @property
    def needs(self) -> dict[str, list[float]]:
        """When each item is needed, in simulated seconds: what a clairvoyant knows."""
        found: dict[str, list[float]] = {}
        for op in self.ops:
            for item_id in op.needs:
                found.setdefault(item_id, []).append(op.at_s)
        return found


class Sent(msgspec.Struct, array_like=True):
    """A request as the load generator sends it."""

    at_s: float
    kind: str
    line: bytes
    body: bytes
    user: int
    needs: list[str]
    age_s: float
    watch: list[str]


def namespace(user: int) -> list[str]:
    """Return where a user's items are."""
    return [f"user-{user}"]


def sent(workload: Workload, vectors: Floats | None, ttl_s: float | None) -> list[Sent]:
    """Return requests as they are sent; *vectors* has a row a text, None: the server embeds."""
    found, row = [], 0
    for op in workload.ops:
        own = [None] * len(op.texts) if vectors is None else list(vectors[row:][: len(op.texts)])
        row += len(op.texts)
        line, body = _request(op, own, ttl_s)
        found.append(
            Sent(
                START_S + op.at_s,
                op.kind,
                line,
                b"" if body is None else msgspec.json.encode(body),
                op.user,
                list(op.needs),
                op.age_s,
                list(op.watch),
            )
        )
    return found


def _request(op: Op, vectors: Sequence[Any], ttl_s: float | None) -> tuple[bytes, Any]:
    where = namespace(op.user)
    if op.kind == "write":
        # As bytes a vector becomes base64.
        items = [
            {
                "id": item_id,
                "content": text,
                "namespace": where,
                **({} if vector is None else {"vector": vector.astype("<f4").tobytes()}),
                **({"pinned": True} if op.pinned else {}),
                **({} if ttl_s is None else {"expires_at": START_S + op.at_s + ttl_s}),
            }
            for item_id, text, vector in zip(op.ids, op.texts, vectors, strict=True)
        ]
        return b"POST /v1/items", items
    if op.kind == "sweep":
        return b"POST /v1/sweep", {"dry_run": False}
    if op.kind == "stats":
        return b"GET /v1/stats", None
    asked: dict[str, Any] = {"namespace": where, "query": op.texts[0]}
    if vectors[0] is not None:
        asked["vector"] = vectors[0].astype("<f4").tobytes()
    if op.kind == "ask":
        return b"POST /v1/context", {**asked, "token_budget": ASK_TOKENS}
    return b"POST /v1/search", {**asked, "k": RECALL_K if op.kind == "recall" else QUESTION_K}
