"""Repeats: what is told again, and tells nothing new, becomes no second item.

An agent writes down what it has just recalled, a client sends a message twice, a
document is read again.  Kept each time, one sentence would fill the first ten hits
of every search near it.  So an item that comes without an id of its own is looked
for by its content first.

It is a repeat of one that is live and in force if both say the same, letter for
letter but for white space, with the same expiry and end of validity, and it says
nothing more: source and trust, metadata, context, pin and beginning must be the same
as far as it has any, and it has no claim.  What names no source is a repeat of what
one said who is trusted as much or more; so an echo of a claim does not outlive it.
That a claim was told again is an observation of its own, by which the gate learns how
long such claims last.
What differs in one digit, or comes from somebody else, or would be found by another
filter, stays an item of its own, as does all that has an id of the caller's.  An id that
a gateway made of an Idempotency-Key is none: each sending has a key of its own, and what
it tells may be old all the same.

A block of a context that is written back repeats all the items that it quotes.  It
tells nothing new if each is live, in force and of that day, whoever wrote it back:
the memory's own words are no evidence of anything.

Contents are looked up by a number of 32 bits.  Two that share it are compared.
"""

import unicodedata
import zlib

from amv.memory.item import Row
from amv.memory.ports import Floats

COPY = 0.98
"""Two vectors that are as similar as this are taken for copies of each other."""


def normal_form(content: str) -> str:
    r"""Return *content* with white space evened out; what is equal in this form says the same.

    >>> normal_form("  port\n8080 ")
    'port 8080'
    """
    return " ".join(unicodedata.normalize("NFC", content).split())


def digest(content: str) -> int:
    """Return the number under which a content is looked up, from 0 to 2^32 - 1.

    >>> digest("port 8080") == digest(" port  8080"), digest("port 8080") == digest("port 8081")
    (True, False)
    """
    return zlib.crc32(normal_form(content).encode())


def tells_nothing_new(row: Row, new: Row, now_s: float) -> bool:
    """Return whether *new*, not added yet, repeats *row*, a live one."""
    if new.claim is not None or (row.valid_until_s, row.expires_s) != (
        new.valid_until_s,
        new.expires_s,
    ):
        return False
    is_echo = new.source is None and new.source_trust <= row.source_trust
    return (
        (is_echo or (row.source, row.source_trust) == (new.source, new.source_trust))
        and normal_form(row.content) == normal_form(new.content)
        and row.is_visible(now_s, now_s)
        and new.valid_from_s in (new.created_s, row.valid_from_s)
        and new.context in ("", row.context)
        and (not new.metadata or dict(new.metadata) == dict(row.metadata))
        and new.pinned <= row.pinned
    )


def is_plain(new: Row) -> bool:
    """Return whether an item, not added yet, is its content alone, and in force."""
    said = (new.claim, new.expires_s, new.valid_until_s, new.context, new.pinned)
    return (
        said == (None, None, None, "", False)
        and not new.metadata
        and new.valid_from_s <= new.created_s
    )


def are_copies(held: Floats, given: Floats) -> bool:
    """Return whether two arrays of shape (n, d) are vectors of the same passages."""
    if held.shape != given.shape:
        return False
    return bool((held * given).sum(axis=1).min(initial=1.0) >= COPY)
