"""How items and namespaces become rows of tables, and back."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from typing import Any, TypeVar, cast

import msgspec.json
import msgspec.msgpack

from amv.memory.item import Claim, JsonScalar, Namespace, Protection, Row, State, Status
from amv.memory.ports import Change, HistoryRow, KeyRow, NamespaceRow, Place
from amv.memory.repeats import digest
from amv.memory.tiers import Tier
from amv.memory.value import Scale
from amv.stores.sqlite.damage import UNDECODABLE, damaged

T = TypeVar("T")

Params = tuple[Any, ...]

_STATUS = (Status.LIVE, Status.SUPERSEDED, Status.REFUTED)
_STATUS_NUMBER = {status: number for number, status in enumerate(_STATUS)}
LIVE = _STATUS_NUMBER[Status.LIVE]
SUPERSEDED = _STATUS_NUMBER[Status.SUPERSEDED]

# By number, not by place: of a damaged one there is none, where a tuple takes -1.
_STATUS_OF = dict(enumerate(_STATUS))
_TIER_OF = {tier.value: tier for tier in Tier}
_PROTECTION_OF = {protection.value: protection for protection in Protection}

_METADATA = msgspec.json.Decoder(dict[str, Any])
_NAME = msgspec.json.Decoder(tuple[str, ...])

ITEM_COLUMNS = (
    "key",
    "ns_id",
    "id",
    "status",
    "expires_s",
    "created_s",
    "valid_from_s",
    "valid_until_s",
    "last_verified_s",
    "contradicted",
    "pinned",
    "length",
    "source",
    "source_trust",
    "supersedes",
    "superseded_by",
    "subject",
    "attribute",
    "claim_value",
    "metadata",
    "context",
    "content",
)

#: What is written: what is read, and the number by which a content is looked up.
STORED_COLUMNS = (*ITEM_COLUMNS, "digest")

#: What `row_of` reads, to be followed by what narrows it down.
SELECT_ROWS = f"""
    SELECT {", ".join("i." + name for name in ITEM_COLUMNS)},
        s.tier, s.protection, s.value_key, s.exposed, s.contributed
    FROM item i JOIN item_state s ON s.key = i.key
"""


_KINDS: dict[str, frozenset[type]] = {
    "i": frozenset([int]),
    "f": frozenset([float]),
    "t": frozenset([str]),
    "F": frozenset([float, type(None)]),
    "I": frozenset([int, type(None)]),
    "T": frozenset([str, type(None)]),
    "b": frozenset([bytes]),
}


def kinds(letters: str) -> frozenset[tuple[type, ...]]:
    """Return what `check_kinds` takes: i integer, f float, t text, b bytes; F, I, T or null."""
    return frozenset(product(*(_KINDS[letter] for letter in letters)))


def check_kinds(columns: Params, expected: frozenset[tuple[type, ...]]) -> None:
    """Raise TypeError unless each column is of its type: damage can put anything anywhere."""
    if tuple(map(type, columns)) not in expected:
        raise TypeError("a column is not of its type")


def decoded(decode: Callable[[Params], T], found: Iterable[Params], what: str) -> list[T]:
    """Return what *decode* makes of each row *found*; StoreError if one is damaged.

    *found* is a cursor, so that text that is not UTF-8 is met here too.
    """
    try:
        return [decode(columns) for columns in found]
    except UNDECODABLE as error:
        raise damaged(what) from error


def rows_of(found: Iterable[Params]) -> list[Row]:
    """Return the rows behind what SELECT_ROWS gave."""
    return decoded(row_of, found, "an item")


def item_params(key: int, row: Row) -> Params:
    """Return the values of STORED_COLUMNS."""
    claim = row.claim
    return (
        key,
        row.ns_id,
        row.id,
        _STATUS_NUMBER[row.status],
        row.expires_s,
        row.created_s,
        None if row.valid_from_s == row.created_s else row.valid_from_s,
        row.valid_until_s,
        row.last_verified_s,
        int(row.contradicted),
        int(row.pinned),
        row.length,
        row.source,
        row.source_trust,
        row.supersedes,
        row.superseded_by,
        None if claim is None else claim.subject,
        None if claim is None else claim.attribute,
        None if claim is None else msgspec.json.encode(claim.value).decode(),
        msgspec.json.encode(row.metadata).decode() if row.metadata else None,
        row.context,
        row.content,
        digest(row.content),
    )


def state_params(key: int, row: Row) -> Params:
    """Return the values of all columns of item_state."""
    state = row.state
    return (
        key,
        row.ns_id,
        int(row.status is Status.LIVE),
        state.protection.value,
        state.tier.value,
        state.value_key,
        state.exposed_count,
        state.contributed_count,
    )


_ROW = kinds("iitiFfFFFiiiTfTTTTTTtt" + "iifii")


def row_of(columns: Params) -> Row:
    """Return the row behind one of what SELECT_ROWS gave; see `rows_of`."""
    (
        key,
        ns_id,
        item_id,
        status,
        expires_s,
        created_s,
        valid_from_s,
        valid_until_s,
        last_verified_s,
        contradicted,
        pinned,
        length,
        source,
        source_trust,
        supersedes,
        superseded_by,
        subject,
        attribute,
        claim_value,
        metadata,
        context,
        content,
        tier,
        protection,
        value_key,
        exposed,
        contributed,
    ) = columns
    check_kinds(columns, _ROW)
    return Row(
        key=key,
        ns_id=ns_id,
        id=item_id,
        content=content,
        context=context,
        length=length,
        created_s=created_s,
        valid_from_s=created_s if valid_from_s is None else valid_from_s,
        valid_until_s=valid_until_s,
        expires_s=expires_s,
        source=source,
        source_trust=source_trust,
        claim=None if subject is None else _claim(subject, attribute, claim_value),
        status=_STATUS_OF[status],
        contradicted=contradicted == 1,
        pinned=pinned == 1,
        metadata={} if metadata is None else metadata_of(metadata),
        supersedes=supersedes,
        superseded_by=superseded_by,
        last_verified_s=last_verified_s,
        state=State(
            tier=_TIER_OF[tier],
            protection=_PROTECTION_OF[protection],
            value_key=value_key,
            exposed_count=exposed,
            contributed_count=contributed,
        ),
    )


_STATE = kinds("iiifii")


def state_of(columns: Params) -> tuple[int, State]:
    """Return a key and the state of its item, from key, tier, ..., contributed."""
    check_kinds(columns, _STATE)
    key, tier, protection, value_key, exposed, contributed = columns
    state = State(
        tier=_TIER_OF[tier],
        protection=_PROTECTION_OF[protection],
        value_key=value_key,
        exposed_count=exposed,
        contributed_count=contributed,
    )
    return key, state


def metadata_of(text: str) -> dict[str, object]:
    """Return metadata from its JSON."""
    try:
        return _METADATA.decode(text)
    except UNDECODABLE as error:
        raise damaged("the metadata of an item") from error


def _claim(subject: str, attribute: str, value: str) -> Claim:
    return Claim(subject, attribute, cast(JsonScalar, msgspec.json.decode(value)))


# ---------------------------------------------------------------- history


def history_params(entry: HistoryRow) -> Params:
    """Return at_s, event, content and claim as stored."""
    claim = entry.claim
    text = None
    if claim is not None:
        text = msgspec.json.encode((claim.subject, claim.attribute, claim.value)).decode()
    return entry.at_s, entry.event, entry.content, text


_HISTORY = kinds("fttT")


def history_of(columns: Params) -> HistoryRow:
    """Return the entry that `history_params` stored."""
    check_kinds(columns, _HISTORY)
    at_s, event, content, text = columns
    return HistoryRow(at_s, event, content, None if text is None else _claim_of(text))


def _claim_of(text: str) -> Claim:
    subject, attribute, value = msgspec.json.decode(text)
    return Claim(subject, attribute, value)


# ---------------------------------------------------------------- namespaces


NAMESPACE_COLUMNS = (
    "ns_id",
    "name",
    "version",
    "half_life_s",
    "live",
    "length",
    "hot",
    "pinned",
    "vectors",
    "pending",
    "cells",
    "cells_changed",
    "next_due_s",
    "value_max",
    "initial",
    "contributed_gain",
)

SELECT_NAMESPACES = f"SELECT {', '.join(NAMESPACE_COLUMNS)} FROM namespace"


@lru_cache(maxsize=4096)
def namespace_text(name: Namespace) -> str:
    """Return a namespace as the JSON array that identifies it."""
    return msgspec.json.encode(name).decode()


def namespace_of_text(text: str) -> Namespace:
    """Return the namespace that a JSON array identifies."""
    return _NAME.decode(text)


def namespace_params(row: NamespaceRow) -> Params:
    """Return the values of NAMESPACE_COLUMNS."""
    return (
        row.ns_id,
        namespace_text(row.name),
        row.version,
        row.half_life_s,
        row.live,
        row.length,
        row.hot,
        row.pinned,
        row.vectors,
        row.pending,
        row.cells,
        row.cells_changed,
        row.next_due_s,
        *row.scale,
    )


_NAMESPACE = kinds("itifiiiiiiiiFfff")


def namespace_of(columns: Params) -> NamespaceRow:
    """Return the row behind NAMESPACE_COLUMNS."""
    check_kinds(columns, _NAMESPACE)
    *own, value_max, initial, contributed_gain = columns
    values = dict(zip(NAMESPACE_COLUMNS, own, strict=False))
    values["name"] = _NAME.decode(columns[1])
    return NamespaceRow(**values, scale=Scale(value_max, initial, contributed_gain))


def key_of(columns: Params) -> KeyRow:
    """Return the key to the gateway that was stored."""
    key_id, mac, namespace, *rest = columns
    return KeyRow(key_id, mac, _NAME.decode(namespace), *rest)


# ---------------------------------------------------------------- changes


def change_data(change: Change) -> bytes:
    """Return a change as bytes."""
    return msgspec.msgpack.encode(change.as_lists())


def change_of(data: bytes) -> Change:
    """Return the change that `change_data` was given."""
    return Change.from_lists(msgspec.msgpack.decode(data, type=list[list[int]]))


# ---------------------------------------------------------------- placements


_PLACE = kinds("iiii")


def place_of(columns: Params) -> tuple[int, Place]:
    """Return the id of a vector and where it is."""
    check_kinds(columns, _PLACE)
    vector_id, *cells = columns
    return vector_id, Place(*cells)
