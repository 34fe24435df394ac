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
- they speak of one subject: the first name of each stands in the other, and what one
  begins with, too.  Where one of them names nobody, what they begin with decides.  Where
  no name is in both, names may be all that differs: "I live in Oslo" and "I live in
  Rome".  "Ann's sister" and "Ann's brother" are two subjects.
- names in which they differ are values: at the end, and not behind "for", "of" or the
  like.  "20 % off for Ann" and "20 % off for Bo" go together;
- unless just one of them denies, they are not what holds side by side: what somebody
  likes, knows, speaks or otherwise does with many things ("Ann speaks French", "Ann
  speaks German"), or two relations of one name to another ("Ida owns Heron", "Ida looks
  after Heron").

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
from amv.memory.item import Row, Status
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

_MANY_TEXT = """
    admire allergic attend collect drink eat enjoy knew know learn learned like liked love loved
    meet met own play played read speak study studies teach visit visited watch watches watched
    write wrote
"""
_MANY = frozenset(_MANY_TEXT.split())
"""What one does with many things; with an s at the end, too."""

_OBJECT_FOLLOWS = frozenset(("a", "an", "her", "his", "my", "our", "the", "their", "to", "your"))


class Statement(NamedTuple):
    """What a text says, as stems: its words, what it begins with, its names in order.

    *number* is one right behind what it begins with, as in "order 17"; *owners* are
    names behind "for", "of" and the like; *owned* is what follows on "Ann's"; *many*
    are words for what one does with many things, each with that thing.
    """

    words: tuple[str, ...]
    subject: str
    number: str
    names: tuple[str, ...]
    owners: frozenset[str]
    owned: str
    many: frozenset[tuple[str, str]]
    denies: bool


class _Word(NamedTuple):
    """A word that says something: as it stands, as a stem, and what it stands behind.

    *owner* is "Ann's", if that is right before it; *does* a word of `_MANY` whose object it is.
    """

    raw: str
    stem: str
    before: str
    owner: str
    does: str

    @property
    def is_number(self) -> bool:
        return self.raw[0].isdigit()

    @property
    def is_day(self) -> bool:
        return self.raw[0].isupper() and self.raw.casefold() in _CALENDAR

    @property
    def is_name(self) -> bool:
        return self.raw[0].isupper() or any(map(str.isdigit, self.raw))


def _words(text: str) -> tuple[list[_Word], bool]:
    """Return the words of *text* that say something, and whether others deny it."""
    found: list[_Word] = []
    before, owner, does, denies = "", "", "", False
    for match in _WORD.finditer(text):
        raw = match[0].replace("\u2019", "'")
        word = raw.casefold()
        is_denial = word in _DENIALS or word.endswith("n't")
        terms = () if is_denial or word in _CHANGES else lexical.query_terms(word)
        if terms:
            found.append(_Word(raw, terms[0], before, owner, does))
            does = terms[0] if word in _MANY or word.removesuffix("s") in _MANY else ""
        elif word not in _OBJECT_FOLLOWS:
            does = ""
        before, owner = word, word if terms and word.endswith("'s") else ""
        denies = denies or is_denial
    return found, denies


def statement(text: str) -> Statement | None:
    """Return what *text* says; None if it is talk, too long, or says nothing."""
    if len(text) > CHARS_MAX or _TALK.search(text):
        return None
    words, denies = _words(text)
    things = [word for word in words if not (word.is_number or word.is_day)]
    if not things or len(words) > WORDS_MAX:
        return None
    is_numbered = words[0] is things[0] and len(words) > 1 and words[1].is_number
    names = [word for word in things if word.is_name]
    return Statement(
        words=tuple(word.stem for word in words),
        subject=things[0].stem,
        number=words[1].stem if is_numbered else "",
        names=tuple(word.stem for word in names),
        owners=frozenset(word.stem for word in names if word.before in _OWNERS_FOLLOW),
        owned=next((word.stem for word in words if word.owner), ""),
        many=frozenset((word.does, word.stem) for word in words if word.does),
        denies=denies,
    )


def may_contradict(one: Statement, other: Statement) -> bool:
    """Return whether two statements can't both hold, by their words."""
    ours, theirs = Counter(one.words), Counter(other.words)
    shared = (ours & theirs).total()
    if 2 * shared < SHARED_LEAST * (ours.total() + theirs.total()):
        return False
    only_ours, only_theirs = set(ours - theirs), set(theirs - ours)
    says_more = not (only_ours and only_theirs)
    if one.denies == other.denies and (says_more or _stand_side_by_side(one, other)):
        return False
    our_names, their_names = only_ours & set(one.names), only_theirs & set(other.names)
    if our_names and their_names:
        # Names that differ are values at the end of a text; elsewhere they are subjects.
        at_end = one.words[-1] in only_ours and other.words[-1] in only_theirs
        if not at_end or our_names & one.owners or their_names & other.owners:
            return False
    return _are_of_one_subject(one, other, only_ours, only_theirs)


def _stand_side_by_side(one: Statement, other: Statement) -> bool:
    """Return whether two statements are such as hold of one subject at once."""
    if one.many and other.many and one.many != other.many:
        return True
    first, last = one.words[0], one.words[-1]
    named = set(one.names) & set(other.names)
    return (first, last) == (other.words[0], other.words[-1]) and {first, last} <= named


def _are_of_one_subject(
    one: Statement, other: Statement, only_ours: set[str], only_theirs: set[str]
) -> bool:
    """Return whether two statements speak of the same; *only_ours* and the like: their words."""
    if one.number and other.number and one.number != other.number:
        return False
    if one.owned and other.owned and one.owned != other.owned:
        return False
    if not (one.names and other.names):
        begin_alike = one.subject == other.subject
        return begin_alike or (one.subject in other.words and other.subject in one.words)
    if one.names[0] in other.words and other.names[0] in one.words:
        return one.subject in other.words or other.subject in one.words
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


def rival_claims(reader: Reader, row: Row, now_s: float) -> list[Row]:
    """Return the live rows, not over by now, that claim another value of what *row* claims."""
    claim = row.claim
    if claim is None:
        return []
    return [
        rival
        for rival in reader.claim_rows(row.ns_id, *claim.key)
        if rival.status is Status.LIVE
        and not rival.is_expired(now_s)
        and (rival.valid_until_s is None or rival.valid_until_s > now_s)
        and rival.claim is not None
        and not rival.claim.says_the_same_as(claim)
    ]


def against(reader: Reader, row: Row, now_s: float, *, guesses: bool) -> list[Row]:
    """Return the live rows that a flagged *row* contradicts: claims and, if it *guesses*, texts."""
    if row.status is not Status.LIVE or not row.contradicted:
        return []
    claims = [rival for rival in rival_claims(reader, row, now_s) if row.overlaps(rival)]
    return [*claims, *(contradicted_by(reader, row, now_s) if guesses else ())]


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
