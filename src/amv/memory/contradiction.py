"""Contradiction: a guess at which two short texts can't both hold, with no model but the embedder.

    "Data Team allocated to Project Phoenix"    "Data Team reallocated to Project Alpha"
    "The server listens on port 8080"           "The server listens on port 8081"
    "Ann eats meat"                             "Ann doesn't eat meat"

Of two claims it is known: they name subject and attribute.  Of free text it is
guessed, and so nothing is retired by it; both texts are flagged, which a reader sees
and which makes the gate doubt.  Two texts are taken to contradict each other if

- each is one short statement: no question, no exclamation, at most `WORDS_MAX` words
  that say something (talk resembles other talk in everything and contradicts little);
- they share enough of their words, and their vectors are not unlike;
- each has words that the other has not, or just one of them denies;
- they speak of one subject: the first name of each stands in the other.  Where one of
  them names nobody, what they begin with decides.  Where no name is in both, names may
  be all that differs: "I live in Oslo" and "I live in Rome".
- names in which they differ are values: at the end, and not behind "for", "of" or the
  like.  "20 % off for Ann" and "20 % off for Bo" go together.

Names are words with a capital letter, or letters and digits.  Numbers, months and days
of the week are values, but for a number right behind what a text begins with: "order 17"
and "order 18" are two subjects.  All this is English, as stop words and stems
are; of other languages it finds what differs in names and numbers.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from amv.memory import lexical
from amv.memory.item import Row
from amv.memory.ports import Reader

WORDS_MAX = 16
CHARS_MAX = 200
"""A longer text has more words than that, or says more than one thing."""

SIMILARITY_LEAST = 0.4
SHARED_LEAST = 0.4
"""Which share of the words of both must be common (twice those shared, by those there are)."""

BATCH_MAX = 256
"""A batch of more is not compared: it is history that is brought along, and no news."""

POSTINGS_MAX = 512
CANDIDATES_MAX = 16
"""How many postings are read for a new text, and how many texts it is compared with."""

_WORD = re.compile(r"[^\W_]+(?:[.,'\u2019@_/:\-][^\W_]+)*%?")
_TALK = re.compile(r"[?!]")
_DENIALS = frozenset(("cannot", "neither", "never", "no", "none", "nor", "not", "without"))

_CHANGE_TEXT = """
    actually changed correction corrected currently instead moved new now only revised still
    update updated
"""
_CHANGES = frozenset(_CHANGE_TEXT.split())
"""They tell that something is news, and nothing of what."""

_CALENDAR_TEXT = """
    january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday
"""
_CALENDAR = frozenset(_CALENDAR_TEXT.split())
_OWNERS_FOLLOW = frozenset(("by", "for", "from", "of", "with"))


class Statement(NamedTuple):
    """What a text says, as stems: its words, what it begins with, its names in order.

    *number* is one right behind what it begins with, as in "order 17"; *owners* are
    names behind "for", "of" and the like.
    """

    words: tuple[str, ...]
    subject: str
    number: str
    names: tuple[str, ...]
    owners: frozenset[str]
    denies: bool


def statement(text: str) -> Statement | None:
    """Return what *text* says; None if it is talk, too long, or says nothing."""
    if len(text) > CHARS_MAX or _TALK.search(text):
        return None
    words, names, owners = [], [], set()
    subject, number, before, denies = "", "", "", False
    for match in _WORD.finditer(text):
        raw = match[0].replace("\u2019", "'")
        word, previous = raw.casefold(), before
        before = word
        if word in _DENIALS or word.endswith("n't"):
            denies = True
            continue
        terms = () if word in _CHANGES else lexical.query_terms(word)
        if not terms:
            continue
        stem = terms[0]
        words.append(stem)
        if raw[0].isdigit():
            number = stem if words[:-1] == [subject] else number
            continue
        if raw[0].isupper() and word in _CALENDAR:
            continue
        subject = subject or stem
        if raw[0].isupper() or any(map(str.isdigit, raw)):
            names.append(stem)
            if previous in _OWNERS_FOLLOW:
                owners.add(stem)
    if not subject or len(words) > WORDS_MAX:
        return None
    return Statement(tuple(words), subject, number, tuple(names), frozenset(owners), denies)


def may_contradict(one: Statement, other: Statement) -> bool:
    """Return whether two statements can't both hold, by their words."""
    ours, theirs = Counter(one.words), Counter(other.words)
    shared = (ours & theirs).total()
    if 2 * shared < SHARED_LEAST * (ours.total() + theirs.total()):
        return False
    if one.number and other.number and one.number != other.number:
        return False
    only_ours, only_theirs = set(ours - theirs), set(theirs - ours)
    if one.denies == other.denies and not (only_ours and only_theirs):
        return False
    our_names, their_names = only_ours & set(one.names), only_theirs & set(other.names)
    if our_names and their_names:
        # Names that differ are values at the end of a text; elsewhere they are subjects.
        at_end = one.words[-1] in only_ours and other.words[-1] in only_theirs
        if not at_end or our_names & one.owners or their_names & other.owners:
            return False
    if not (one.names and other.names):
        begin_alike = one.subject == other.subject
        return begin_alike or (one.subject in theirs and other.subject in ours)
    if one.names[0] in theirs and other.names[0] in ours:
        return True
    if set(one.names) & set(other.names) or one.subject != other.subject:
        return False
    return only_ours <= set(one.names) and only_theirs <= set(other.names)


def contradicted_by(reader: Reader, new: Row, now_s: float) -> list[Row]:
    """Return the live rows that *new*, which is among them, contradicts by its text.

    Of two claims that is not for a guess to say.
    """
    said = statement(new.content)
    if said is None:
        return []
    found = []
    for row in _candidates(reader, new):
        are_claims = row.claim is not None and new.claim is not None
        if are_claims or row.is_expired(now_s) or not row.overlaps(new):
            continue
        other = statement(row.content)
        if other is not None and may_contradict(said, other) and _are_like(reader, row, new):
            found.append(row)
    return found


def _candidates(reader: Reader, new: Row) -> list[Row]:
    """Return the rows that share most words with *new*, as far as its rarest ones tell."""
    frequencies = reader.frequencies(new.ns_id, lexical.query_terms(new.content))
    plan = lexical.read_plan(frequencies, POSTINGS_MAX)
    read = [reader.postings(new.ns_id, term, count)["key"] for term, count in plan]
    keys, counts = np.unique(np.concatenate([*read, np.zeros(0, np.int64)]), return_counts=True)
    best = [key for key in keys[np.lexsort((-keys, -counts))].tolist() if key != new.key]
    return list(reader.rows(best[:CANDIDATES_MAX]).values())


def _are_like(reader: Reader, one: Row, other: Row) -> bool:
    """Return whether any vectors of two rows are not unlike."""
    held = (reader.vectors(reader.vector_ids([row.key])).matrix for row in (one, other))
    ours, theirs = held
    return bool((ours @ theirs.T).max(initial=-1.0) >= SIMILARITY_LEAST)
