"""What one memory is, and what input is accepted as one.

An `Item` is what callers get: times in UTC, value and tier as of the moment it
was read.  A `Row` is what a store keeps: times in unix seconds, value as the
constant `value_key` (see `value`).  Every text, time and namespace a caller
passes goes through one of the `check_*` functions here, once; inside, they are
trusted.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from functools import lru_cache

from amv.checks import shown
from amv.errors import InvalidInput, InvalidNamespace
from amv.memory.tiers import Tier

Namespace = tuple[str, ...]

ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""What made-up ids and keys are spelled with: 32 letters and digits, none like another."""
"""The owner an item belongs to: one to eight non-empty strings."""

JsonScalar = str | int | float | bool | None

NAMESPACE_DEPTH_MAX = 8
NAME_CHARS_MAX = 256
CLAIM_CHARS_MAX = 4096
CLAIM_INTEGER_MAX = 2**53  # beyond it, neighbouring integers are the same JSON number
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LAST = datetime.max.replace(tzinfo=UTC)
_LAST_S = math.nextafter(_LAST.timestamp(), 0.0)


class Status(StrEnum):
    """Whether an item is believed; only live ones are found by a search of now."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    REFUTED = "refuted"


class Protection(IntEnum):
    """Why a sweep leaves an item alone; the first column of the sweep's index."""

    NONE = 0
    PROBATION = 1
    PINNED = 2
    NOT_YET_VALID = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """The structured form of a memory: *subject*'s *attribute* is *value*.

    Two live claims of one subject and attribute contradict each other unless
    their values are equal as JSON.  *value* is a string, finite number,
    boolean or None.
    """

    subject: str
    attribute: str
    value: JsonScalar

    def __post_init__(self) -> None:
        check_text(self.subject, "claim subject", NAME_CHARS_MAX)
        check_text(self.attribute, "claim attribute", NAME_CHARS_MAX)
        if isinstance(self.value, str):
            check_text(self.value, "claim value", CLAIM_CHARS_MAX, blank_is_fine=True)
        elif isinstance(self.value, float) and not math.isfinite(self.value):
            raise InvalidInput(f"a claim value must be a finite number, got {self.value!r}")
        elif isinstance(self.value, int) and abs(self.value) > CLAIM_INTEGER_MAX:
            raise InvalidInput("a claim value must be an integer within ±2^53 or a string")
        elif not isinstance(self.value, str | int | float | bool | None):
            raise InvalidInput(
                "a claim value must be a string, number, boolean or None, "
                f"got {type(self.value).__name__}"
            )

    def says_the_same_as(self, other: "Claim") -> bool:
        """Return whether both name one value of one attribute of one subject."""
        # 1 and 1.0 are one JSON number; 1 and True are not, though Python has them equal.
        kinds = isinstance(self.value, bool), isinstance(other.value, bool)
        return self.key == other.key and kinds[0] == kinds[1] and self.value == other.value

    @property
    def key(self) -> tuple[str, str]:
        """Subject and attribute: what a newer claim must share to supersede this one."""
        return self.subject, self.attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The narrow, often-written part of a stored item."""

    tier: Tier
    protection: Protection
    value_key: float
    exposed_count: int = 0
    contributed_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item as a store keeps it.  Times are unix seconds; *key* is the store's own.

    *length* counts the terms of content and context, for BM25.
    """

    key: int
    ns_id: int
    id: str
    content: str
    context: str
    length: int
    created_s: float
    valid_from_s: float
    valid_until_s: float | None
    expires_s: float | None
    source: str | None
    source_trust: float
    claim: Claim | None
    status: Status
    contradicted: bool
    pinned: bool
    metadata: Mapping[str, object]
    supersedes: str | None
    superseded_by: str | None
    last_verified_s: float | None
    state: State

    def give_key(self, key: int) -> None:
        """Set the key that a store gave this row, which nobody else may hold yet.

        Each add needs it, and `replace` takes sixty times as long.
        """
        object.__setattr__(self, "key", key)

    def is_expired(self, now_s: float) -> bool:
        """Return whether expires_at has come; no path shows the item any more."""
        return self.expires_s is not None and self.expires_s <= now_s

    def overlaps(self, other: "Row") -> bool:
        """Return whether there is a moment at which both are valid."""
        return (self.valid_until_s is None or self.valid_until_s > other.valid_from_s) and (
            other.valid_until_s is None or other.valid_until_s > self.valid_from_s
        )

    def is_visible(self, at_s: float, now_s: float) -> bool:
        """Return whether a search as of *at_s*, run at *now_s*, may show this item.

        Expiry is honoured here, before any sweep ran.  A search of the past
        also shows what has been superseded since.  What has begun stays begun
        for a search of now, though the clock was set back since.
        """
        if self.is_expired(now_s):
            return False
        is_to_come = self.state.protection is Protection.NOT_YET_VALID
        if self.valid_from_s > at_s and (at_s < now_s or is_to_come):
            return False
        if self.valid_until_s is not None and self.valid_until_s <= at_s:
            return False
        return self.status is Status.LIVE or (self.status is Status.SUPERSEDED and at_s < now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One stored memory, as of the moment it was read.  All times are UTC."""

    id: str
    namespace: Namespace
    content: str
    created_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    expires_at: datetime | None
    source: str | None
    source_trust: float
    claim: Claim | None
    status: Status
    contradicted: bool
    pinned: bool
    metadata: Mapping[str, object]
    supersedes: str | None
    superseded_by: str | None
    last_verified_at: datetime | None
    tier: Tier
    value: float
    exposed_count: int
    contributed_count: int
    context: str = field(default="", repr=False)


def item_of(row: Row, namespace: Namespace, value: float, state: State | None = None) -> Item:
    """Return the public view of *row*, with another *state* if one is given."""
    state = row.state if state is None else state
    created_at = utc(row.created_s)
    return Item(
        id=row.id,
        namespace=namespace,
        content=row.content,
        context=row.context,
        created_at=created_at,
        valid_from=created_at if row.valid_from_s == row.created_s else utc(row.valid_from_s),
        valid_until=None if row.valid_until_s is None else utc(row.valid_until_s),
        expires_at=None if row.expires_s is None else utc(row.expires_s),
        source=row.source,
        source_trust=row.source_trust,
        claim=row.claim,
        status=row.status,
        contradicted=row.contradicted,
        pinned=row.pinned,
        metadata=row.metadata,
        supersedes=row.supersedes,
        superseded_by=row.superseded_by,
        last_verified_at=None if row.last_verified_s is None else utc(row.last_verified_s),
        tier=state.tier,
        value=value,
        exposed_count=state.exposed_count,
        contributed_count=state.contributed_count,
    )


def utc(at_s: float) -> datetime:
    """Return unix seconds as an aware datetime in UTC."""
    return datetime.fromtimestamp(at_s, tz=UTC)


def check_text(text: object, what: str, bytes_max: int, *, blank_is_fine: bool = False) -> str:
    """Return *text* unchanged, or raise InvalidInput saying why it can't be kept.

    Emoji, right-to-left and any other well-formed text is kept byte for byte.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a string, got {type(text).__name__}")
    if not blank_is_fine and not text.strip():
        raise InvalidInput(f"{what} must hold more than white space, got {shown(text)}")
    if "\x00" in text:
        raise InvalidInput(f"{what} must not hold a NUL character (at {text.index(chr(0))})")
    if (lone := _LONE_SURROGATE.search(text)) is not None:
        raise InvalidInput(
            f"{what} must be well-formed Unicode, got a lone surrogate at {lone.start()}"
        )
    size = len(text) if text.isascii() else len(text.encode())
    if size > bytes_max:
        raise InvalidInput(f"{what} must take at most {bytes_max} bytes, got {size}")
    return text


def check_namespace(namespace: object) -> Namespace:
    """Return *namespace* as a tuple of strings, or raise InvalidNamespace."""
    try:
        return _checked_namespace(namespace)
    except TypeError:
        # A list can't be looked up.
        return _checked_namespace.__wrapped__(namespace)


@lru_cache(maxsize=4096)
def _checked_namespace(namespace: object) -> Namespace:
    """Do so; the namespace of one request is checked several times, and most come again."""
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        raise InvalidNamespace(
            f"a namespace is a tuple of strings such as ('alice',), got {shown(namespace)}"
        )
    if not 1 <= len(namespace) <= NAMESPACE_DEPTH_MAX:
        raise InvalidNamespace(
            f"a namespace has 1 to {NAMESPACE_DEPTH_MAX} parts, got {len(namespace)}"
        )
    try:
        return tuple(check_text(part, "a namespace part", NAME_CHARS_MAX) for part in namespace)
    except InvalidInput as error:
        raise InvalidNamespace(str(error)) from error


def check_id(item_id: object) -> str:
    """Return *item_id*, or raise InvalidInput."""
    return check_text(item_id, "an item id", NAME_CHARS_MAX)


def check_trust(trust: object) -> float:
    """Return *trust* as a float in [0, 1], or raise InvalidInput."""
    if isinstance(trust, int | float) and not isinstance(trust, bool) and 0.0 <= trust <= 1.0:
        return float(trust)
    raise InvalidInput(f"source_trust must be a number from 0 to 1, got {shown(trust)}")


def check_time(moment: object, what: str) -> float | None:
    """Return a moment as unix seconds; None stays None.

    Takes a datetime (a naive one is read as UTC), an ISO 8601 string or unix
    seconds.
    """
    if moment is None:
        return None
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as error:
            raise InvalidInput(f"{what} must be an ISO 8601 time, got {shown(moment)}") from error
    if isinstance(moment, datetime):
        try:
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            # As floats the last microseconds of all would round up into the year 10000.
            seconds = aware.timestamp() if aware > _LAST else min(aware.timestamp(), _LAST_S)
        except Exception as error:
            raise InvalidInput(f"{what} must be of a time zone that works: {error}") from error
        return _within_calendar(seconds, moment, what)
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return _within_calendar(moment, moment, what)
    raise InvalidInput(
        f"{what} must be a datetime, an ISO 8601 string or unix seconds, "
        f"got {type(moment).__name__}"
    )


def read_clock(clock: Callable[[], float]) -> float:
    """Return the unix seconds that a clock tells, as precise as a datetime is.

    Raises InvalidInput if it tells anything else, or fails.
    """
    try:
        now_s = clock()
    except Exception as error:
        raise InvalidInput(
            f"the clock must return unix seconds, it raised {shown(error)}"
        ) from error
    if isinstance(now_s, int | float) and not isinstance(now_s, bool):
        return _within_calendar(now_s, now_s, "what the clock returns")
    raise InvalidInput(f"the clock must return unix seconds, got {shown(now_s)}")


def check_interval(valid_from_s: float, valid_until_s: float | None) -> None:
    """Raise InvalidInput if an item would never be valid."""
    if valid_until_s is not None and valid_until_s <= valid_from_s:
        raise InvalidInput(
            f"valid_until must be later than valid_from ({utc(valid_from_s).isoformat()}), "
            f"got {utc(valid_until_s).isoformat()}"
        )


def check_expiry(expires_s: float | None, now_s: float) -> float | None:
    """Return when an item expires, or raise InvalidInput if nobody would ever see it."""
    if expires_s is not None and expires_s <= now_s:
        raise InvalidInput(
            f"expires_at must be later than now ({utc(now_s).isoformat()}), "
            f"got {utc(expires_s).isoformat()}; forget() deletes an item at once"
        )
    return expires_s


def _within_calendar(seconds: float, given: object, what: str) -> float:
    """Return *seconds* as precise as a datetime is, so that what is shown can be passed back."""
    try:
        return utc(float(seconds)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{what} must lie in years 1 to 9999, got {shown(given)}") from error
