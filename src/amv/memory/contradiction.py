"""Contradiction: a guess at which two short texts can't both hold, with no model but the embedder.

    "Data Team allocated to Project Phoenix"    "Data Team reallocated to Project Alpha"
    "The server listens on port 8080"           "The server listens on port 8081"
    "Ann eats meat"                             "Ann doesn't eat meat"

Of two claims it is known: they name subject and attribute.  Of free text it is
guessed, and so nothing is retired by it; both texts are flagged, which a reader sees.
What counts is what is said of a subject, not that two texts have one: that Ida has a
dog and that Ida works at Novo go together.  Two texts are taken to contradict each
other if each is one short statement (see `statement`), their vectors are not unlike,
no two speakers say them, and

- they begin with one subject, and of it they say
  - the same, but just one denies it; or
  - states that exclude each other: "pending" and "shipped", "open" and "closed"; or
  - the same but for one value, of at most `VALUE_WORDS_MAX` words, with one
    preposition before it: numbers and times differ, or, besides the value, a word is
    the same that is no name and no value, and is no verb for what one does with many
    things ("speaks French", "runs Debian", "is allergic to nuts"), or the subject has
    one such value at a time ("The gate code is ...", "The office is in ...");
- or they begin with other words, share `SHARED_LEAST` of all, among them one that is no
  name or value, and the same names, and just one denies: "approved the renewal", "do not
  renew".

Names in which they differ are values at the end, and not behind "for" or "of": "20 % off
for Ann" and "20 % off for Bo" go together, "order 17" and "order 18" are two subjects.
All this is English, as stop words and stems are; of other languages it finds little.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from amv.memory import lexical
from amv.memory.item import Row, Status
from amv.memory.ports import Reader
from amv.memory.statement import ATTRIBUTES, Statement, Word, statement

SIMILARITY_LEAST = 0.4
SHARED_LEAST = 0.4
"""Which share of the words of both must be common (twice those shared, by those there are)."""

BATCH_MAX = 256
"""A batch of more is not compared: it is history that is brought along, and no news."""

POSTINGS_MAX = 512
ROWS_MAX = 64
CANDIDATES_MAX = 16
"""How many postings and rows are read for a new text; with how many statements it is compared."""

_STATE_TEXT = """
    pending waiting queued processing confirmed shipped delivered returned refunded cancelled
    open opened closed resolved reopened blocked
    approved allowed rejected revoked declined denied forbidden cancelled prohibited
    planned scheduled postponed cancelled
    up down
    on off
    online offline
    enabled disabled
    active inactive suspended
    paid unpaid overdue
    pass passes passed fail fails failed broken
    single married divorced widowed engaged
    available unavailable sold
    like likes love loves hate hates dislike dislikes
    true false
    yes no
    full empty
    draft final
"""
_STATES = [frozenset(line.split()) for line in _STATE_TEXT.strip().splitlines()]
"""Of the states of one line, a thing is in one at a time."""

_ONE = frozenset(lexical.query_terms("call called drive head lead marry named rent renamed titled"))
"""What is done with one thing at a time, where most is done with many: "Ann reads a book".
"""

_MANY = frozenset(
    lexical.query_terms("""
    admire afraid allergic ask attend belong close collect complain complete deliver drink eat
    enjoy fond good interested knew know learn learned like liked link linked love loved meet met
    own play played read saw see speak study talk teach think took visit visited want watch
    watched write wrote
    """)
)
_MANY_BY = frozenset(
    lexical.query_terms("""
    afraid allergic ask asked belong complain connect flew fond go good interested linked meet
    reported subscribe talk think travelled went
    """)
)
"""What is done with many things: without, and with a preposition ("Ann is allergic to nuts")."""

VALUE_WORDS_MAX = 4
DENIED_LEAST = 0.6
"""Which share of what is said must be common where just one denies it."""

_DIGITS = re.compile("[0-9]+")


def may_contradict(one: Statement, other: Statement) -> bool:
    """Return whether two statements can't both hold, by their words."""
    if one.speaker and other.speaker and one.speaker != other.speaker:
        return False
    if _begin_alike(one, other):
        return _say_otherwise(one, other)
    return _denies_much_of(one, other)


def _begin_alike(one: Statement, other: Statement) -> bool:
    """Return whether two statements have one subject, a name and its beginning being one."""
    ours, theirs = _stems(one.subject), _stems(other.subject)
    if one.pronoun and other.pronoun and one.pronoun != other.pronoun:
        return False
    if not (ours and theirs):
        return ours == theirs and one.pronoun == other.pronoun
    least = min(len(ours), len(theirs))
    return ours == theirs or (
        ours[:least] == theirs[:least]
        and all(w.is_name for w in one.subject + other.subject)
        and not any(w.is_owner for w in one.subject + other.subject)
    )


def _stems(words: Sequence[Word]) -> list[str]:
    return [word.stem for word in words]


def _renewed(words: Sequence[Word], others: Sequence[Word]) -> list[Word]:
    """Return words without a "re" before what is among the others: "reallocated", "allocated"."""
    known = {word.stem for word in others}
    return [
        word._replace(stem=word.stem[2:])
        if word.stem.startswith("re") and word.stem[2:] in known
        else word
        for word in words
    ]


def _placed(words: list[Word], others: Sequence[Word]) -> list[Word]:
    """Return words without that of a move to somewhere, where the others only say "is in"."""
    is_move = bool(words) and words[0].stem == "live" != words[0].raw.casefold()[:4]
    return words[1:] if is_move and "live" not in _stems(others) else words


def _say_otherwise(one: Statement, other: Statement) -> bool:
    """Return whether two statements of one subject say of it what can't both hold."""
    ours, theirs = _renewed(one.rest, other.rest), _renewed(other.rest, one.rest)
    ours, theirs = _placed(ours, theirs), _placed(theirs, ours)
    if one.denies != other.denies:
        return _is_denied(set(_stems(ours)), set(_stems(theirs)))
    first, last = _shared_ends(ours, theirs)
    our_value, their_value = ours[first : len(ours) - last], theirs[first : len(theirs) - last]
    if not (our_value and their_value):
        return False
    if _are_states(ours, theirs):
        return not _have_owners(our_value, their_value)
    is_of_one_verb = bool(one.verb) and one.verb == other.verb
    if _are_of_one_kind(our_value, their_value):
        tells_news = one.tells_news or other.tells_news
        return bool(first or last) or is_of_one_verb or tells_news
    if not _are_rivals(our_value, their_value):
        return False
    ends = ours[len(ours) - last :]
    if all(word.is_value or word.is_name for word in (*ours[:first], *ends)):
        return is_of_one_verb and _is_attribute(one, our_value, their_value)
    is_within = bool(ends) and not ends[0].before
    if is_within and _are_names(our_value) and _are_names(their_value):
        return False
    if first == 0:
        return is_of_one_verb and is_within
    return _is_of_one(ours[:first], our_value, last)


def _are_rivals(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether two values stand alike, and are of no kinds that go together."""
    if _kind(ours) or _kind(theirs) or max(len(ours), len(theirs)) > VALUE_WORDS_MAX:
        return False
    return ours[0].before == theirs[0].before and not _have_owners(ours, theirs)


def _is_denied(ours: set[str], theirs: set[str]) -> bool:
    """Return whether what one denies is about what the other says."""
    shared = len(ours & theirs)
    if not (ours and theirs):
        return ours == theirs
    is_whole = shared == min(len(ours), len(theirs))
    return is_whole or 2 * shared >= DENIED_LEAST * (len(ours) + len(theirs))


def _shared_ends(ours: Sequence[Word], theirs: Sequence[Word]) -> tuple[int, int]:
    """Return how many words two texts begin with alike, and how many they end with alike."""
    most = min(len(ours), len(theirs))
    first = 0
    while first < most and _are_same(ours[first], theirs[first]):
        first += 1
    last = 0
    while last < most - first and _are_same(ours[-1 - last], theirs[-1 - last]):
        last += 1
    return first, last


def _are_same(one: Word, other: Word) -> bool:
    return one.stem == other.stem and (one.before == other.before or one.is_value)


def _are_states(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether two texts name different states of those that exclude each other."""
    said = [{word.raw.casefold() for word in words} for words in (ours, theirs)]
    for group in _STATES:
        in_ours, in_theirs = group & said[0], group & said[1]
        if in_ours and in_theirs and not in_ours & in_theirs:
            return True
    return False


def _have_owners(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether two values are names behind "for" or the like: other things, then."""
    found = [
        {word.stem for word in words if word.is_name and word.before in ("for", "of", "with")}
        for words in (ours, theirs)
    ]
    return bool(found[0] and found[1] and not found[0] & found[1])


def _kind(words: Sequence[Word]) -> str:
    """Return "number" or "time" if words are nothing else, or ""."""
    if all(word.is_number for word in words):
        return "number"
    return "time" if all(word.is_value for word in words) else ""


def _are_of_one_kind(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether two values are numbers, times, or differ in digits alone ("v2", "v3")."""
    masked = [[_DIGITS.sub("0", word.stem) for word in words] for words in (ours, theirs)]
    return masked[0] == masked[1] or _kind(ours) == _kind(theirs) != ""


def _are_names(words: Sequence[Word]) -> bool:
    return all(word.is_name for word in words)


def _is_attribute(one: Statement, ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether what is said by "is" alone is one value of what a thing has one of."""
    if one.verb not in ("be", ":"):
        return False
    if any(word.stem in ATTRIBUTES for word in one.subject):
        return True
    if ours[0].before:
        return True
    is_noun = one.verb == ":" or not any(w.is_name and not w.is_owner for w in one.subject)
    return is_noun and bool(one.subject) and _are_names(ours) and _are_names(theirs)


def _is_of_one(said: Sequence[Word], value: Sequence[Word], last: int) -> bool:
    """Return whether what is said before a value is said of one value at a time."""
    verb = said[-1].stem
    if value[0].before:
        return verb not in _MANY_BY
    if verb in _MANY:
        return False
    return len(said) > 1 or last > 0 or value[0].is_parted or verb in _ONE


def _denies_much_of(one: Statement, other: Statement) -> bool:
    """Return whether just one of two that begin with other words denies what both speak of.

    That is a word which is no name and no value; and the names are no other ones.
    """
    if one.denies == other.denies or (one.pronoun and other.pronoun):
        return False
    ours, theirs = Counter(_stems(one.words)), Counter(_stems(other.words))
    shared = ours & theirs
    if 2 * shared.total() < SHARED_LEAST * (ours.total() + theirs.total()):
        return False
    if any(word.is_value or word.is_owner for word in one.subject + other.subject):
        return False
    names = {word.stem for word in one.words + other.words if word.is_name}
    values = {word.stem for word in one.words + other.words if word.is_value}
    our_names, their_names = names & set(ours), names & set(theirs)
    return bool(set(shared) - names - values) and our_names == their_names


def contradicted_by(reader: Reader, new: Row, now_s: float) -> list[Row]:
    """Return the live rows that *new*, which is among them, contradicts by its text.

    Of two claims that is not for a guess to say; what is over by now contradicts nothing.
    """
    said = statement(new.content)
    if said is None or _is_over(new, now_s):
        return []
    return [
        row
        for row, other in _candidates(reader, new)
        if not (row.claim is not None and new.claim is not None)
        and not _is_over(row, now_s)
        and row.overlaps(new)
        and may_contradict(said, other)
        and _are_like(reader, row, new)
    ]


def _is_over(row: Row, now_s: float) -> bool:
    """Return whether a row has expired or is not valid any more."""
    return row.is_expired(now_s) or (row.valid_until_s is not None and row.valid_until_s <= now_s)


def rival_claims(reader: Reader, row: Row, now_s: float) -> list[Row]:
    """Return the live rows, not over by now, that claim another value of what *row* claims."""
    claim = row.claim
    if claim is None:
        return []
    return [
        rival
        for rival in reader.claim_rows(row.ns_id, *claim.key)
        if rival.status is Status.LIVE
        and not _is_over(rival, now_s)
        and rival.claim is not None
        and not rival.claim.says_the_same_as(claim)
    ]


def against(reader: Reader, row: Row, now_s: float, *, guesses: bool) -> list[Row]:
    """Return the live rows that a flagged *row* contradicts: claims and, if it *guesses*, texts."""
    if row.status is not Status.LIVE or not row.contradicted or _is_over(row, now_s):
        return []
    claims = [rival for rival in rival_claims(reader, row, now_s) if row.overlaps(rival)]
    return [*claims, *(contradicted_by(reader, row, now_s) if guesses else ())]


def _candidates(reader: Reader, new: Row) -> list[tuple[Row, Statement]]:
    """Return the statements that share most words with *new*, as far as its rarest ones tell."""
    frequencies = reader.frequencies(new.ns_id, lexical.query_terms(new.content))
    plan = lexical.read_plan(frequencies, POSTINGS_MAX)
    read = [reader.postings(new.ns_id, term, count)["key"] for term, count in plan]
    keys, counts = np.unique(np.concatenate([*read, np.zeros(0, np.int64)]), return_counts=True)
    best = [key for key in keys[np.lexsort((-keys, -counts))].tolist() if key != new.key]
    found: list[tuple[Row, Statement]] = []
    for start in range(0, min(len(best), ROWS_MAX), CANDIDATES_MAX):
        keys_read = best[start : start + CANDIDATES_MAX]
        rows = reader.rows(keys_read)
        said = [(rows[key], statement(rows[key].content)) for key in keys_read if key in rows]
        found += [(row, one) for row, one in said if one is not None]
        if len(found) >= CANDIDATES_MAX:
            break
    return found[:CANDIDATES_MAX]


def _are_like(reader: Reader, one: Row, other: Row) -> bool:
    """Return whether any vectors of two rows are not unlike."""
    held = (reader.vectors(reader.vector_ids([row.key])).matrix for row in (one, other))
    ours, theirs = held
    return bool((ours @ theirs.T).max(initial=-1.0) >= SIMILARITY_LEAST)
