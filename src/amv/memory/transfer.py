"""Export and import: an item as one JSON object, with nothing lost on the way.

An exported object holds what a row holds: id, namespace, content, times (ISO
8601, UTC), metadata, claim, links, tier, value key, counts and history.
Restoring it puts back exactly that, whatever the clock says; an id that is
there already with the same content is passed over, so an interrupted import is
simply run again.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from amv.checks import shown
from amv.errors import Conflict, DimensionMismatch, InvalidInput
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
from amv.memory.lookup import embedder_mark
from amv.memory.ports import (
    PASSAGES_MAX,
    Embedder,
    Floats,
    HistoryRow,
    NamespaceRow,
    Reader,
    Vectors,
)
from amv.memory.settings import MemorySettings
from amv.memory.tiers import Tier
from amv.memory.value import (
    SCALE_BEFORE,
    VALUE_FLOOR,
    Scale,
    ValueModel,
    rekey,
    rescaling,
    value_key,
)

T = TypeVar("T")

FORMAT = 1
"""The version of the format, under the key "amv" of every exported object."""

CLOCK_SKEW_S = 86_400.0
"""How far the clock that an item was exported by may be ahead of this one."""

# The largest number taken: with it, no moment computed from a value key overflows.
_MOST = 1e15


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
    scale: Scale
    history: tuple[HistoryRow, ...]
    vectors: Floats | None


def exported(
    reader: Reader, ns: NamespaceRow, row: Row, *, vectors_of: Embedder | None
) -> dict[str, object]:
    """Return a row as one JSON-safe object, with its vectors if told whose they are."""
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
            "scale": list(ns.scale),
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
    if vectors_of is not None:
        data["embedder"] = embedder_mark(vectors_of)
        matrix = reader.vectors(reader.vector_ids([row.key])).matrix
        data["vectors"] = [base64.b64encode(v.astype("<f4").tobytes()).decode() for v in matrix]
    return data


def _iso(moment_s: float | None) -> str | None:
    return None if moment_s is None else utc(moment_s).isoformat()


def _claim_out(claim: Claim | None) -> list[object] | None:
    return None if claim is None else [claim.subject, claim.attribute, claim.value]


def parsed(
    data: Mapping[str, Any], *, embedder: Embedder, settings: MemorySettings, now_s: float
) -> Restored:
    """Check an exported object.  Raises InvalidInput naming the field that can't be read."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"an exported item is an object, got {type(data).__name__}")
    if not (isinstance(data.get("amv"), int) and data["amv"] == FORMAT):
        raise InvalidInput(f"an exported item has amv={FORMAT}, got {shown(data.get('amv'))}")
    try:
        return _parsed(data, embedder, settings, now_s)
    except KeyError as error:
        raise InvalidInput(f"an exported item has the field {error.args[0]!r}") from error


def _parsed(
    data: Mapping[str, Any], embedder: Embedder, settings: MemorySettings, now_s: float
) -> Restored:
    limit = settings.content_bytes_max
    state = _object(data["state"], "state")
    half_life_s = _number(state, "half_life_s", least=1.0)
    model = replace(settings.value_model, half_life_s=half_life_s)
    row = Row(
        key=0,
        ns_id=0,
        id=check_id(data["id"]),
        content=check_text(data["content"], "content", limit),
        context=check_text(data["context"], "context", limit, blank_is_fine=True),
        length=0,
        created_s=_moment(data, "created_at"),
        valid_from_s=_moment(data, "valid_from"),
        valid_until_s=check_time(data["valid_until"], "valid_until"),
        expires_s=check_time(data["expires_at"], "expires_at"),
        source=_text(data, "source", NAME_CHARS_MAX),
        source_trust=check_trust(data["source_trust"]),
        claim=_claim_in(data["claim"]),
        status=_one_of({status.value: status for status in Status}, data, "status"),
        contradicted=_flag(data, "contradicted"),
        pinned=_flag(data, "pinned"),
        metadata=filters.check_metadata(data["metadata"]),
        supersedes=_text(data, "supersedes", NAME_CHARS_MAX),
        superseded_by=_text(data, "superseded_by", NAME_CHARS_MAX),
        last_verified_s=check_time(data["last_verified_at"], "last_verified_at"),
        state=State(
            tier=_one_of(Tier.__members__, state, "tier"),
            protection=_one_of(Protection.__members__, state, "protection"),
            value_key=_value_key(state, model, now_s),
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
        half_life_s=half_life_s,
        scale=_scale(state),
        history=tuple(_step(step, limit) for step in _list(data["history"], "history")),
        vectors=_vectors_of(data, row.status, embedder),
    )


def _scale(state: Mapping[str, Any]) -> Scale:
    """Return what the value key was made of; exports of before don't say, as there was one."""
    if "scale" not in state:
        return SCALE_BEFORE
    given = _list(state["scale"], "scale")
    if len(given) == len(Scale._fields):
        numbers = [_number({"scale": number}, "scale", least=VALUE_FLOOR) for number in given]
        scale = Scale(*numbers)
        if scale.initial <= scale.value_max:
            return scale
    raise InvalidInput(
        f"scale must be value_max, initial up to that, and contributed_gain, got {shown(given)}"
    )


def _object(value: object, name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise InvalidInput(f"{name} must be an object, got {shown(value)}")


def _list(value: object, name: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise InvalidInput(f"{name} must be a list, got {shown(value)}")


def _one_of(choices: Mapping[str, T], data: Mapping[str, Any], name: str) -> T:
    value = data[name]
    if isinstance(value, str) and value in choices:
        return choices[value]
    raise InvalidInput(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")


def _step(step: object, content_bytes_max: int) -> HistoryRow:
    data = _object(step, "a step of history")
    return HistoryRow(
        _moment(data, "at"),
        check_text(data["event"], "event", NAME_CHARS_MAX),
        check_text(data["content"], "content", content_bytes_max),
        _claim_in(data["claim"]),
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
    raise InvalidInput(f"{name} must be true or false, got {shown(flag)}")


def _count(data: Mapping[str, Any], name: str) -> int:
    count = data[name]
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63:
        return count
    raise InvalidInput(f"{name} must be a whole number from 0, got {shown(count)}")


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


def _number(data: Mapping[str, Any], name: str, *, least: float) -> float:
    number = data[name]
    # Compared before it is converted, since an integer may be too large for a float.
    if (
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and least <= number <= _MOST
    ):
        return float(number)
    raise InvalidInput(f"{name} must be a number from {least:g} to {_MOST:g}, got {shown(number)}")


def _value_key(state: Mapping[str, Any], model: ValueModel, now_s: float) -> float:
    """Return the value key, unless it stands for more than the largest value there is."""
    key = _number(state, "value_key", least=-_MOST)
    if state["protection"] == Protection.NOT_YET_VALID.name:
        return key  # it is the moment at which the item begins
    if key > value_key(model.value_max, now_s + CLOCK_SKEW_S, model):
        raise InvalidInput(f"value_key must mean a value of at most {model.value_max}, got {key!r}")
    return key


def _claim_in(parts: object) -> Claim | None:
    if parts is None:
        return None
    if len(three := _list(parts, "claim")) != 3:
        raise InvalidInput(f"claim must be subject, attribute and value, got {shown(parts)}")
    return Claim(*three)


def _vectors_of(data: Mapping[str, Any], status: Status, embedder: Embedder) -> Floats | None:
    """Return the vectors of an exported item; None if its content is to be embedded."""
    if status is Status.REFUTED:
        # It is in no index, neither of now nor of the past.
        return np.zeros((0, embedder.dimension), dtype=np.float32)
    texts = data.get("vectors")
    if texts is None or not _list(texts, "vectors"):
        return None
    return _vectors_in(data, embedder)


def _vectors_in(data: Mapping[str, Any], embedder: Embedder) -> Floats:
    texts = _list(data["vectors"], "vectors")
    if len(texts) > PASSAGES_MAX:
        raise InvalidInput(f"an exported item has at most {PASSAGES_MAX} vectors, got {len(texts)}")
    mark, hint = embedder_mark(embedder), "export without vectors to have the texts embedded anew"
    if not (isinstance(data["embedder"], str) and data["embedder"] == mark):
        raise DimensionMismatch(
            f"exported vectors must come from embedder {mark}, "
            f"got {shown(data['embedder'])}; {hint}"
        )
    try:
        vectors = [base64.b64decode(text, validate=True) for text in texts]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"vectors must be base64: {error}") from error
    if sizes := {len(vector) for vector in vectors} - {4 * embedder.dimension}:
        raise DimensionMismatch(
            f"vectors must have {embedder.dimension} dimensions of 4 bytes, "
            f"got {min(sizes)} bytes; {hint}"
        )
    matrix = np.frombuffer(b"".join(vectors), "<f4").reshape(len(texts), -1).astype(np.float32)
    if np.isfinite(matrix).all():
        lengths = np.linalg.norm(matrix.astype(np.float64), axis=1)
        if (np.abs(lengths - 1.0) < 1e-3).all():
            return matrix
    raise InvalidInput(f"vectors must be finite and of length 1; {hint}")


def is_present(reader: Reader, item: Restored, now_s: float) -> bool:
    """Return whether an item is there already, with this content."""
    ns = reader.namespace(item.namespace)
    rows = [] if ns is None else reader.rows_with_id(item.row.id, ns.ns_id)
    return any(not row.is_expired(now_s) and row.content == item.row.content for row in rows)


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
        state = _state(edit.model, item, edit.now_s)
        row, terms = life.counted(replace(item.row, ns_id=edit.row.ns_id, state=state))
        if row.status is Status.LIVE:
            edit.insert([row], [own], [terms])
        else:
            row = life.insert_aside(edit, row, own)
        for step in item.history:
            edit.tx.add_history(row.key, step)
        added += 1
    edit.settle_probation()
    return RestoreReport(added=added, present=len(items) - added)


def _state(model: ValueModel, item: Restored, now_s: float) -> State:
    """Return the state under this store's half-life, as of now, and constants."""
    state = item.row.state
    if state.protection is Protection.NOT_YET_VALID:
        return replace(state, value_key=item.row.valid_from_s)
    key = state.value_key
    if item.half_life_s != model.half_life_s:
        key = rekey(key, now_s, replace(model, half_life_s=item.half_life_s), model)
    if item.scale != model.scale:
        key += rescaling(state.contributed_count, item.scale, model.scale)
    return replace(state, value_key=key)
