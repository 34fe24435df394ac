"""What is accepted as an item, and when one is visible."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput, InvalidNamespace
from amv.memory.item import (
    CLAIM_CHARS_MAX,
    NAME_CHARS_MAX,
    Claim,
    Protection,
    State,
    Status,
    check_id,
    check_interval,
    check_namespace,
    check_text,
    check_time,
    check_trust,
    item_of,
    utc,
)
from amv.memory.tiers import Tier
from amv.testing.samples import NOW_S, plain, rich

LATER = timezone(timedelta(hours=5))
EARLIER = timezone(timedelta(hours=-5))


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "👩‍👩‍👧 🇮🇹",
        "\u202e\u05e2\u05d1\u05e8\u05d9\u05ea\u202c mixed with \u0639\u0631\u0628",
        "e\u0301 is not \u00e9",
        " leading and trailing \n",
        "' OR 1=1; -- % * _ \\",
        "\ufeff\u200b\x7f\x01",
        "\U0010ffff",
    ],
)
def test_any_well_formed_text_is_kept_byte_for_byte(text: str) -> None:
    """Normalising or trimming would change what someone said."""
    assert check_text(text, "content", 1000) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "more than white space, got ''"),
        (" \t\n\u3000", "more than white space"),
        ("a\x00b", r"NUL character \(at 1\)"),
        ("a\ud800", "lone surrogate at 1"),
        ("\udfffb", "lone surrogate at 0"),
        ("x" * 11, "at most 10 bytes, got 11"),
        ("é" * 6, "at most 10 bytes, got 12"),
        (5, "be a string, got int"),
        (None, "be a string, got NoneType"),
        (b"bytes", "be a string, got bytes"),
    ],
)
def test_text_that_cannot_be_kept_is_refused_with_the_reason(text: object, problem: str) -> None:
    """The message says what was needed and what came."""
    with pytest.raises(InvalidInput, match=f"^content must .*{problem}"):
        check_text(text, "content", 10)


def test_a_text_of_exactly_the_limit_is_kept() -> None:
    """The limit counts bytes as stored, and is not a silent cap."""
    assert check_text("é" * 5, "content", 10) == "é" * 5


def test_blank_is_fine_where_the_caller_says_so() -> None:
    """A context may be empty; it must still be text that can be kept."""
    assert check_text(" ", "context", 10, blank_is_fine=True) == " "
    with pytest.raises(InvalidInput, match="NUL"):
        check_text("\x00", "context", 10, blank_is_fine=True)


# ---------------------------------------------------------------- namespaces, ids, trust


@pytest.mark.parametrize(
    "namespace", [("a",), ["a", "b"], ("a/b",), tuple("abcdefgh"), ("x" * NAME_CHARS_MAX,)]
)
def test_a_namespace_is_one_to_eight_names(namespace: Any) -> None:
    """Returned as a tuple, so that it can be compared and hashed."""
    assert check_namespace(namespace) == tuple(namespace)


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [
        ((), "1 to 8 parts, got 0"),
        (tuple("abcdefghi"), "1 to 8 parts, got 9"),
        ("alice", r"a tuple of strings such as \('alice',\), got 'alice'"),
        (None, "a tuple of strings"),
        (7, "a tuple of strings"),
        ({"a": 1}, "a tuple of strings"),
        (("a", ""), "a namespace part must hold more"),
        (("a", None), "a namespace part must be a string"),
        (("\x00",), "NUL"),
        (("x" * (NAME_CHARS_MAX + 1),), "at most 256 bytes"),
    ],
)
def test_anything_else_is_no_namespace(namespace: object, problem: str) -> None:
    """A bare string would be taken for a tuple of its letters."""
    with pytest.raises(InvalidNamespace, match=problem):
        check_namespace(namespace)


def test_an_id_is_a_name() -> None:
    """Quotes and wildcards in it are only characters."""
    assert check_id("it's 100 % *") == "it's 100 % *"
    with pytest.raises(InvalidInput, match="an item id must"):
        check_id("")


@pytest.mark.parametrize("trust", [0, 0.0, 0.5, 1, 1.0])
def test_trust_is_a_number_from_zero_to_one(trust: float) -> None:
    assert check_trust(trust) == trust
    assert isinstance(check_trust(trust), float)


@pytest.mark.parametrize("trust", [-0.1, 1.1, math.nan, math.inf, "0.5", True, None])
def test_any_other_trust_is_refused(trust: object) -> None:
    """NaN most of all: it would compare false with everything, so nothing would outrank it."""
    with pytest.raises(InvalidInput, match="source_trust must be a number from 0 to 1, got"):
        check_trust(trust)


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (1.25, 1.25),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:00:01+00:00", 1.0),
        ("1970-01-01T05:00:00+05:00", 0.0),
        ("1970-01-01T00:00:01Z", 1.0),
        (datetime(1970, 1, 1, 0, 0, 2), 2.0),  # noqa: DTZ001
        (datetime(1970, 1, 1, 5, tzinfo=LATER), 0.0),
    ],
)
def test_times_of_every_form_become_unix_seconds(moment: object, seconds: float | None) -> None:
    """Naive times are read as UTC, wherever this runs."""
    assert check_time(moment, "valid_from") == seconds


@given(st.datetimes(timezones=st.sampled_from([UTC, LATER, EARLIER])))
def test_a_time_that_was_shown_can_be_passed_back(moment: datetime) -> None:
    """What is accepted can be shown, and what is shown names the same moment again."""
    try:
        seconds = check_time(moment, "as_of")
    except InvalidInput:
        assert not datetime.min.replace(tzinfo=UTC) <= moment <= datetime.max.replace(tzinfo=UTC)
        return
    assert seconds is not None

    assert check_time(utc(seconds), "as_of") == seconds
    assert abs(utc(seconds) - moment) <= timedelta(microseconds=31)


@given(st.floats(-62_135_596_800.0, 253_402_300_799.0))
def test_seconds_are_kept_to_the_microsecond(seconds: float) -> None:
    """As precise as a datetime is, so that nothing is lost by an export."""
    kept = check_time(seconds, "as_of")
    assert kept is not None

    assert abs(kept - seconds) <= 1e-6 + abs(seconds) * 1e-15
    assert check_time(utc(kept).isoformat(), "as_of") == kept


def test_the_last_moment_of_all_stands_for_ever() -> None:
    """Rounded to a float it would lie in the year 10000, which no datetime can show."""
    seconds = check_time(datetime.max, "valid_until")  # noqa: DTZ901
    assert seconds is not None

    assert utc(seconds).year == 9999


@pytest.mark.parametrize(
    ("moment", "problem"),
    [
        ("yesterday", "an ISO 8601 time, got 'yesterday'"),
        ("2024-13-01", "an ISO 8601 time"),
        (math.nan, "years 1 to 9999, got nan"),
        (math.inf, "years 1 to 9999, got inf"),
        (1e30, "years 1 to 9999"),
        (10**400, "years 1 to 9999, got 1000"),
        (datetime.min.replace(tzinfo=LATER), "years 1 to 9999, got datetime"),
        (datetime.max.replace(tzinfo=EARLIER), "years 1 to 9999"),
        (datetime(2024, 1, 1, tzinfo=tzinfo()), "of a time zone that works"),  # type: ignore[abstract]
        (True, "a datetime, an ISO 8601 string or unix seconds, got bool"),
        ([], "got list"),
    ],
)
def test_a_moment_that_cannot_be_shown_is_refused(moment: object, problem: str) -> None:
    """Accepted, it would fail at every later read."""
    with pytest.raises(InvalidInput, match=f"as_of must (be|lie in) .*{problem}"):
        check_time(moment, "as_of")


def test_an_error_about_a_time_stays_short() -> None:
    """A number of a million digits must not fill the log."""
    with pytest.raises(InvalidInput) as caught:
        check_time(10**4000, "as_of")

    assert len(str(caught.value)) < 200


def test_an_interval_that_ends_before_it_begins_is_refused() -> None:
    """Such an item would be stored and never be found."""
    check_interval(1.0, None)
    check_interval(1.0, 1.5)
    for until_s in (1.0, 0.5):
        with pytest.raises(InvalidInput, match=r"later than valid_from \(1970-01-01T00:00:01"):
            check_interval(1.0, until_s)


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize("value", ["", "Rome", 0, -1.5, True, None, 2**53])
def test_a_claim_takes_any_json_scalar(value: Any) -> None:
    assert Claim("alice", "city", value).value == value


@pytest.mark.parametrize(
    ("subject", "attribute", "value", "problem"),
    [
        ("", "city", "Rome", "claim subject must hold"),
        ("alice", " ", "Rome", "claim attribute must hold"),
        (None, "city", "Rome", "claim subject must be a string"),
        ("alice", "x" * (NAME_CHARS_MAX + 1), "Rome", "claim attribute must take at most"),
        ("alice", "city", "a\x00", "claim value must not hold a NUL"),
        ("alice", "city", "x" * (CLAIM_CHARS_MAX + 1), "claim value must take at most"),
        ("alice", "city", math.nan, "finite number, got nan"),
        ("alice", "city", -math.inf, "finite number, got -inf"),
        ("alice", "city", 2**53 + 1, "an integer within ±2\\^53 or a string"),
        ("alice", "city", ["Rome"], "a string, number, boolean or None, got list"),
        ("alice", "city", {}, "got dict"),
    ],
)
def test_a_claim_that_json_cannot_carry_is_refused(
    subject: Any, attribute: Any, value: Any, problem: str
) -> None:
    """Values are compared and exported as JSON."""
    with pytest.raises(InvalidInput, match=problem):
        Claim(subject, attribute, value)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Rome", "Rome", True),
        ("Rome", "rome", False),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("1", 1, False),
        (None, None, True),
        (None, "", False),
    ],
)
def test_claims_say_the_same_if_their_values_are_equal_as_json(
    one: Any, other: Any, same: bool
) -> None:
    """1 and 1.0 are one JSON number; 1 and true are not, though Python has them equal."""
    assert Claim("a", "b", one).says_the_same_as(Claim("a", "b", other)) is same
    assert Claim("a", "b", other).says_the_same_as(Claim("a", "b", one)) is same


def test_claims_about_different_things_never_say_the_same() -> None:
    assert not Claim("a", "b", 1).says_the_same_as(Claim("a", "c", 1))
    assert not Claim("a", "b", 1).says_the_same_as(Claim("x", "b", 1))


# ---------------------------------------------------------------- visibility

PAST_S, FUTURE_S = NOW_S - 100.0, NOW_S + 100.0
TO_COME = State(tier=Tier.COLD, protection=Protection.NOT_YET_VALID, value_key=FUTURE_S)


@pytest.mark.parametrize(
    ("changes", "at_s", "visible"),
    [
        ({}, NOW_S, True),
        ({"expires_s": NOW_S}, NOW_S, False),
        ({"expires_s": NOW_S}, NOW_S - 1.0, False),
        ({"expires_s": FUTURE_S}, NOW_S, True),
        ({"valid_from_s": FUTURE_S, "state": TO_COME}, NOW_S, False),
        ({"valid_from_s": FUTURE_S, "state": TO_COME}, FUTURE_S - 1.0, False),
        ({"valid_from_s": FUTURE_S, "state": TO_COME}, FUTURE_S, True),
        ({"valid_from_s": FUTURE_S}, NOW_S, True),  # the clock was set back since it began
        ({"valid_from_s": FUTURE_S}, NOW_S - 1.0, False),
        ({"valid_until_s": NOW_S}, NOW_S, False),
        ({"valid_until_s": NOW_S}, NOW_S - 1.0, True),
        ({"valid_until_s": FUTURE_S}, NOW_S, True),
        ({"status": Status.SUPERSEDED}, NOW_S, False),
        ({"status": Status.SUPERSEDED}, NOW_S - 1.0, True),
        ({"status": Status.SUPERSEDED}, FUTURE_S, False),
        ({"status": Status.REFUTED}, NOW_S, False),
        ({"status": Status.REFUTED}, NOW_S - 1.0, False),
    ],
)
def test_what_a_search_as_of_a_moment_may_show(
    changes: dict[str, Any], at_s: float, visible: bool
) -> None:
    """Expiry counts as of now, also for the past: what has expired is gone."""
    row = replace(replace(plain(1, "a"), valid_from_s=PAST_S), **changes)

    assert row.is_visible(at_s, NOW_S) is visible


@pytest.mark.parametrize("make", [plain, rich])
def test_an_item_shows_what_its_row_holds(make: Callable[[int, str], Any]) -> None:
    """All times in UTC; nothing is left out."""
    row = make(1, "a")
    item = item_of(row, ("alice",), 0.25)

    for name in ("id", "content", "context", "source", "source_trust", "claim", "status"):
        assert getattr(item, name) == getattr(row, name)
    for name in ("contradicted", "pinned", "metadata", "supersedes", "superseded_by"):
        assert getattr(item, name) == getattr(row, name)
    for shown, kept in (
        (item.created_at, row.created_s),
        (item.valid_from, row.valid_from_s),
        (item.valid_until, row.valid_until_s),
        (item.expires_at, row.expires_s),
        (item.last_verified_at, row.last_verified_s),
    ):
        assert shown == (None if kept is None else utc(kept))
        assert shown is None or shown.tzinfo is UTC
    assert (item.namespace, item.value) == (("alice",), 0.25)
    assert item.tier is row.state.tier
    assert item.exposed_count == row.state.exposed_count
    assert item.contributed_count == row.state.contributed_count
    assert "said in Rome" not in repr(item)
