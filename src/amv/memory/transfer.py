"""Export and import: an item as one JSON object, with nothing lost on the way.

An exported object holds what a row holds: id, namespace, content, times (ISO
8601, UTC), metadata, claim, links, tier, value key, counts and history.
Restoring it puts back exactly that, whatever the clock says; an id that is
there already with the same content is passed over, so an interrupted import is
simply run again.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from amv.errors import Conflict, InvalidInput
from amv.memory import filters, life
from amv.memory.edit import Edit
from amv.memory.item import (
    NAME_CHARS_MAX,
    Claim,
    Namespace,
    Protection,
    Row,
    State,
    Status,
    check_id,
    check_namespace,
    check_text,
    check_time,
    check_trust,
    utc,
)
from amv.memory.ports import PASSAGES_MAX, Floats, HistoryRow, NamespaceRow, Reader, Vectors
from amv.memory.tiers import Tier
from amv.memory.value import ValueModel, rekey

FORMAT = 1
"""The version of the format, under the key "amv" of every exported object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """How many items an import added, and how many were there already."""

    added: int
    present: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A checked exported object, before it has a key; *vectors* None asks for embedding."""

    namespace: Namespace
    row: Row
    half_life_s: float
    history: tuple[HistoryRow, ...]
    vectors: Floats | None


def exported(
    reader: Reader, ns: NamespaceRow, row: Row, *, with_vectors: bool
) -> dict[str, object]:
    """Return a row as one JSON-safe object."""
    data: dict[str, object] = {
        "amv": FORMAT,
        "id": row.id,
        "namespace": list(ns.name),
        "content": row.content,
        "context": row.context,
        "created_at": _iso(row.created_s),
        "valid_from": _iso(row.valid_from_s),
        "valid_until": _iso(row.valid_until_s),
        "expires_at": _iso(row.expires_s),
        "source": row.source,
        "source_trust": row.source_trust,
        "claim": _claim_out(row.claim),
        "status": row.status.value,
        "contradicted": row.contradicted,
        "pinned": row.pinned,
        "metadata": dict(row.metadata),
        "supersedes": row.supersedes,
        "superseded_by": row.superseded_by,
        "last_verified_at": _iso(row.last_verified_s),
        "state": {
            "tier": row.state.tier.name,
            "protection": row.state.protection.name,
            "value_key": row.state.value_key,
            "half_life_s": ns.half_life_s,
            "exposed_count": row.state.exposed_count,
            "contributed_count": row.state.contributed_count,
        },
        "history": [
            {
                "at": _iso(step.at_s),
                "event": step.event,
                "content": step.content,
                "claim": _claim_out(step.claim),
            }
            for step in reader.history(row.key)
        ],
    }
    if with_vectors:
        matrix = reader.vectors(reader.vector_ids([row.key])).matrix
        data["vectors"] = [base64.b64encode(v.astype("<f4").tobytes()).decode() for v in matrix]
    return data


def _iso(moment_s: float | None) -> str | None:
    return None if moment_s is None else utc(moment_s).isoformat()


def _claim_out(claim: Claim | None) -> list[object] | None:
    return None if claim is None else [claim.subject, claim.attribute, claim.value]


def parsed(data: Mapping[str, Any], *, dimension: int, content_bytes_max: int) -> Restored:
    """Check an exported object.  Raises InvalidInput naming the field that can't be read."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"an exported item is an object, got {type(data).__name__}")
    if data.get("amv") != FORMAT:
        raise InvalidInput(f"an exported item has amv={FORMAT}, got {data.get('amv')!r}")
    try:
        return _parsed(data, dimension, content_bytes_max)
    except KeyError as error:
        raise InvalidInput(f"an exported item has the field {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, binascii.Error) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"an exported item can't be read: {error}") from error


def _parsed(data: Mapping[str, Any], dimension: int, content_bytes_max: int) -> Restored:
    state = data["state"]
    row = Row(
        key=0,
        ns_id=0,
        id=check_id(data["id"]),
        content=check_text(data["content"], "content", content_bytes_max),
        context=check_text(data["context"], "context", content_bytes_max, blank_is_fine=True),
        length=0,
        created_s=_moment(data, "created_at"),
        valid_from_s=_moment(data, "valid_from"),
        valid_until_s=check_time(data["valid_until"], "valid_until"),
        expires_s=check_time(data["expires_at"], "expires_at"),
        source=_text(data, "source", NAME_CHARS_MAX),
        source_trust=check_trust(data["source_trust"]),
        claim=_claim_in(data["claim"]),
        status=Status(data["status"]),
        contradicted=_flag(data, "contradicted"),
        pinned=_flag(data, "pinned"),
        metadata=filters.check_metadata(data["metadata"]),
        supersedes=_text(data, "supersedes", NAME_CHARS_MAX),
        superseded_by=_text(data, "superseded_by", NAME_CHARS_MAX),
        last_verified_s=check_time(data["last_verified_at"], "last_verified_at"),
        state=State(
            tier=Tier[state["tier"]],
            protection=Protection[state["protection"]],
            value_key=_finite(state, "value_key"),
            exposed_count=_count(state, "exposed_count"),
            contributed_count=_count(state, "contributed_count"),
        ),
    )
    if not _is_consistent(row):
        raise InvalidInput(
            f"an exported item of status {row.status.value!r} and pinned={row.pinned} can't be in "
            f"tier {row.state.tier.name} with protection {row.state.protection.name}"
        )
    return Restored(
        namespace=check_namespace(data["namespace"]),
        row=row,
        half_life_s=_finite(state, "half_life_s"),
        history=tuple(
            HistoryRow(
                _moment(step, "at"),
                check_text(step["event"], "event", NAME_CHARS_MAX),
                check_text(step["content"], "content", content_bytes_max),
                _claim_in(step["claim"]),
            )
            for step in data["history"]
        ),
        vectors=_vectors_in(data["vectors"], dimension) if data.get("vectors") else None,
    )


def _moment(data: Mapping[str, Any], name: str) -> float:
    moment_s = check_time(data[name], name)
    if moment_s is None:
        raise InvalidInput(f"an exported item needs a time in {name!r}")
    return moment_s


def _text(data: Mapping[str, Any], name: str, bytes_max: int) -> str | None:
    return None if data[name] is None else check_text(data[name], name, bytes_max)


def _flag(data: Mapping[str, Any], name: str) -> bool:
    flag = data[name]
    if isinstance(flag, bool):
        return flag
    raise InvalidInput(f"{name} must be true or false, got {flag!r:.80}")


def _count(data: Mapping[str, Any], name: str) -> int:
    count = data[name]
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63:
        return count
    raise InvalidInput(f"{name} must be a whole number from 0, got {count!r:.80}")


def _is_consistent(row: Row) -> bool:
    """Return whether tier, protection and pin are of a kind that the memory itself makes."""
    tier, protection = row.state.tier, row.state.protection
    if row.status is not Status.LIVE:
        return (tier, protection, row.pinned) == (Tier.COLD, Protection.NONE, False)
    if protection is Protection.NOT_YET_VALID:
        return tier is Tier.COLD
    if protection is Protection.NONE:
        return not row.pinned
    return tier is Tier.HOT and row.pinned == (protection is Protection.PINNED)


def _finite(data: Mapping[str, Any], name: str) -> float:
    number = float(data[name])
    if not np.isfinite(number):
        raise InvalidInput(f"{name} must be finite, got {number!r}")
    return number


def _claim_in(parts: Sequence[Any] | None) -> Claim | None:
    return None if parts is None else Claim(*parts)


def _vectors_in(texts: Sequence[str], dimension: int) -> Floats:
    if len(texts) > PASSAGES_MAX:
        raise InvalidInput(f"an exported item has at most {PASSAGES_MAX} vectors, got {len(texts)}")
    matrix = np.stack([np.frombuffer(base64.b64decode(t, validate=True), "<f4") for t in texts])
    if matrix.shape[1] != dimension or not np.isfinite(matrix).all():
        raise InvalidInput(
            f"exported vectors must be finite and have {dimension} dimensions, "
            f"got {matrix.shape[1]}; export without vectors to have the texts embedded anew"
        )
    return matrix.astype(np.float32)


def restore(edit: Edit, items: Sequence[Restored], vectors: Sequence[Vectors]) -> RestoreReport:
    """Add exported items to a namespace as they were; what is there already is passed over.

    Raises Conflict if an id is taken by other content.
    """
    added = 0
    for item, own in zip(items, vectors, strict=True):
        present = edit.tx.rows_with_id(item.row.id, edit.row.ns_id)
        if present and present[0].is_expired(edit.now_s):
            life.delete(edit, present)
        elif present:
            if present[0].content != item.row.content:
                raise Conflict(f"an item with id {item.row.id!r} is there with other content")
            continue
        if item.row.pinned:
            life.check_pinned_room(edit, 1)
        row = life.counted(replace(item.row, ns_id=edit.row.ns_id))
        row = replace(row, state=_state(edit.model, item, edit.now_s))
        if row.status is Status.LIVE:
            key = edit.insert([row], [own])[0].key
        else:
            key = life.insert_aside(edit, row, own).key
        for step in item.history:
            edit.tx.add_history(key, step)
        added += 1
    edit.settle_probation()
    return RestoreReport(added=added, present=len(items) - added)


def _state(model: ValueModel, item: Restored, now_s: float) -> State:
    """Return the state under this store's half-life; the value as of now stays the same."""
    state = item.row.state
    if state.protection is Protection.NOT_YET_VALID:
        return replace(state, value_key=item.row.valid_from_s)
    if item.half_life_s == model.half_life_s:
        return state
    old = replace(model, half_life_s=item.half_life_s)
    return replace(state, value_key=rekey(state.value_key, now_s, old, model))
