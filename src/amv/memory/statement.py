"""Statements: what a short text says, taken apart by its words; English, as stems are.

    "Ann's dog | is | called Rex"        "User: | my dog | is | called Rex"
    "Order W1 | ships to Hamburg"        "I | live in Oslo"

A statement has a subject, the noun phrase it begins with, and says things of it.  What
is left out of both are articles and words that only tell that something is news.  There
is no grammar here, just an order of words: a subject ends before a form of "be" or
"have", a preposition, a colon or what looks like a verb; that of a name, with the name.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from amv.memory import lexical

WORDS_MAX = 16
CHARS_MAX = 200
"""A longer text has more words than that, or says more than one thing."""

_WORD = re.compile(r"[^\W_]+(?:[.,'\u2019@_/:\-][^\W_]+)*%?|[:;,(]")
_TALK = re.compile(r"[?!]")
_SPEAKER = re.compile(r"([^\W\d_][\w.'\u2019-]*(?: [^\W\d_][\w.'\u2019-]*){0,2}):\s+(?=\S)")
_DENIALS = frozenset(("cannot", "neither", "never", "no", "none", "nor", "not", "without"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHANGES = _words("""
    actually anymore changed correction corrected currently instead longer more moved new now
    only revised still update updated
""")
"""They tell that something is news, and nothing of what."""

_MOVES = _words("moved moves relocated relocates")
_CALENDAR = _words("""
    january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays
    thursdays fridays saturdays sundays
""")
_TIMES = _words("am pm midnight noon today tomorrow tonight yesterday")
_NUMBERS = _words("""
    one two three four five six seven eight nine ten eleven twelve first second third fourth
    fifth sixth seventh eighth ninth tenth once twice
""")
_ARTICLES = _words("a an her his its my our the their your this that these those")
_PRONOUNS = _words("he i it she they we you")
_BE = _words("am are be been being is was were")
_HAVE = _words("had has have having")
_PREPOSITIONS = _words("""
    about after against around as at before behind below between by during for from in inside
    into near of on over per since through to under until via with within
""")
_OWNERS_FOLLOW = _words("by for from of with")
_BARE_VERBS = _words("always avoid call do never prefer prefers please use")
"""What begins with one of them has no subject: "Prefer short answers"."""

ATTRIBUTES = frozenset(
    lexical.query_terms("""
    address age birthday budget capital city code color colour cost country currency database
    date deadline default email favorite favourite height host id language leader level limit
    location manager name nickname number owner password phone pin port price priority rate
    region role salary size speed status surname theme time timeout timezone title username
    version weight zone
    """)
)
"""What a thing has one of: "the gate code"."""


class Word(NamedTuple):
    """A word that says something: as it stands, as a stem, and the preposition before it.

    *is_parted* says that a colon, a form of "be" or "have" stands before it, too.
    """

    raw: str
    stem: str
    before: str
    is_parted: bool

    @property
    def is_number(self) -> bool:
        """Whether it counts or numbers."""
        return self.raw[0].isdigit() or self.raw.casefold() in _NUMBERS

    @property
    def is_time(self) -> bool:
        """Whether it names a day, a month or a time of day."""
        folded = self.raw.casefold()
        return folded in _TIMES or (self.raw[0].isupper() and folded in _CALENDAR)

    @property
    def is_value(self) -> bool:
        """Whether it is a number or a time, which names nothing."""
        return self.is_number or self.is_time

    @property
    def is_name(self) -> bool:
        """Whether it is spelled as a name or a code is."""
        return not self.is_value and (self.raw[0].isupper() or any(map(str.isdigit, self.raw)))

    @property
    def is_owner(self) -> bool:
        """Whether it says whose the next word is."""
        return self.raw.casefold().endswith("'s")


class Statement(NamedTuple):
    """What a text says: of what, and what of it.

    *speaker* is who says it, *pronoun* a subject such as "I"; *subject* the words of any
    other.  *verb* is "be", "have", ":" or "": what stands between that and the *rest*.
    *tells_news* says that it has a word for change.
    """

    speaker: str
    pronoun: str
    subject: tuple[Word, ...]
    verb: str
    rest: tuple[Word, ...]
    denies: bool
    tells_news: bool

    @property
    def words(self) -> tuple[Word, ...]:
        """All words, those of the subject first."""
        return self.subject + self.rest


def statement(text: str) -> Statement | None:
    """Return what *text* says; None if it is talk, too long, or says nothing."""
    if len(text) > CHARS_MAX or _TALK.search(text):
        return None
    return _stated(text)


@lru_cache(maxsize=1024)
def _stated(text: str) -> Statement | None:
    """Return what a short text says; what is told of one subject is compared again and again."""
    speaker, said = _spoken(text)
    tokens = [match[0].replace("\u2019", "'") for match in _WORD.finditer(said)]
    pronoun, start, end = _subject(tokens)
    if end == 0:
        # The capital letter that a sentence begins with makes no name of a verb.
        tokens[:1] = [token.lower() for token in tokens[:1]]
    numbers = _read(tokens[:start], 0)
    subject, after = _read(tokens[start:end], 0), _read(tokens, end)
    count = len(numbers) + len(subject) + len(after)
    if all(word.is_value for word in (*subject, *after)) and not speaker:
        return None
    if not 0 < count <= WORDS_MAX:
        return None
    folded = [token.casefold() for token in tokens]
    return Statement(
        speaker=speaker,
        pronoun=pronoun,
        subject=subject,
        verb="be" if after and after[0].raw.casefold() in _MOVES else _verb(folded[end:]),
        rest=numbers + after,
        denies=any(map(_is_denial, folded)),
        tells_news=not _CHANGES.isdisjoint(folded),
    )


def _spoken(text: str) -> tuple[str, str]:
    """Return who says a text, where it begins with that as a turn of a chat does, and the rest."""
    found = _SPEAKER.match(text)
    if found is None:
        return "", text
    said = text[found.end() :]
    words = found[1].split()
    is_named = all(word[0].isupper() for word in words) and said[0].isupper()
    is_attribute = lexical.query_terms(words[-1])[:1] in ([term] for term in ATTRIBUTES)
    if not is_named or is_attribute:
        return "", text
    return found[1].casefold(), said


def _is_denial(folded: str) -> bool:
    return folded in _DENIALS or folded.endswith("n't")


@lru_cache(maxsize=4096)
def _stems(folded: str) -> tuple[str, ...]:
    """Return the stems of a word, of which there is one as a rule; words are few and come often."""
    return tuple(lexical.query_terms(folded))


@lru_cache(maxsize=4096)
def _is_content(token: str) -> bool:
    """Return whether a word says something of its own."""
    folded = token.casefold()
    if folded in _CHANGES or folded in _PREPOSITIONS or _is_denial(folded):
        return False
    return bool(_stems(folded))


def _subject(tokens: list[str]) -> tuple[str, int, int]:
    """Return a pronoun, "" if there is none, and where the words of a subject begin and end."""
    pronoun, at = "", 0
    while at < len(tokens) and tokens[at].casefold() in _ARTICLES:
        folded = tokens[at].casefold()
        pronoun = "" if folded in ("a", "an", "the") else folded
        at += 1
    if at < len(tokens) and tokens[at].casefold() in _PRONOUNS:
        return tokens[at].casefold(), at + 1, at + 1
    if at == len(tokens) or tokens[at].casefold() in _BARE_VERBS:
        return pronoun, at, at
    while at < len(tokens) and _is_counted(tokens[at]):
        at += 1
    stop = at
    while stop < len(tokens) and _is_content(tokens[stop]):
        stop += 1
    follows = tokens[stop].casefold() if stop < len(tokens) else ""
    if follows == "of" and stop > at:
        return pronoun, at, _end_of_name(tokens, stop + 1)
    if not at and _begins_with_a_verb(tokens[:stop], follows):
        return "", 0, 0
    return pronoun, at, at + _subject_length(tokens[at:stop], follows)


def _end_of_name(tokens: list[str], at: int) -> int:
    """Return where the name ends that begins after an article, at most; or one other word."""
    while at < len(tokens) and tokens[at].casefold() in _ARTICLES:
        at += 1
    at += 1
    while at < len(tokens) and _is_content(tokens[at]) and tokens[at][0].isupper():
        at += 1
    return min(at, len(tokens))


def _begins_with_a_verb(run: list[str], follows: str) -> bool:
    """Return whether what is said has no subject: "lives in Oslo"."""
    if not run or not _looks_like_a_verb(run[0].casefold()):
        return False
    is_followed = follows in _PREPOSITIONS and follows not in _OWNERS_FOLLOW
    return (len(run) > 1 and run[0].islower()) or (len(run) == 1 and is_followed)


def _is_counted(token: str) -> bool:
    return token[0].isdigit() or token.casefold() in ("approved",)


def _subject_length(run: list[str], follows: str) -> int:
    """Return how many words of a run that begins a sentence name what it is about."""
    if not run:
        return 0
    named = 1
    if run[0][0].isupper():
        while named < len(run) and not run[named - 1].casefold().endswith("'s"):
            if not (run[named][0].isupper() or any(map(str.isdigit, run[named]))):
                break
            named += 1
        if not run[named - 1].casefold().endswith("'s"):
            return named
    elif named < len(run) and run[named][0].isdigit():
        return 2
    for place in range(named + run[named - 1].casefold().endswith("'s"), len(run)):
        if _looks_like_a_verb(run[place]) or run[place][0].isdigit():
            return place
    is_verb_last = follows in _PREPOSITIONS and follows not in _OWNERS_FOLLOW
    return len(run) - (is_verb_last and len(run) > 1)


def _looks_like_a_verb(token: str) -> bool:
    is_plain = token.islower() and "'" not in token
    return is_plain and (
        token.endswith("ed") or (token.endswith("s") and not token.endswith(("ss", "us", "is")))
    )


def _verb(folded: list[str]) -> str:
    """Return what joins a subject and the rest: "be", "have", ":" or ""."""
    for token in folded:
        if token in _BE or token in ("isn't", "aren't", "wasn't", "weren't"):
            return "be"
        if token in _HAVE or token in ("have", "hasn't", "haven't"):
            return "have"
        if token == ":":
            return ":"
        if _is_content(token) or token in _PREPOSITIONS:
            break
    return ""


def _read(tokens: list[str], start: int) -> tuple[Word, ...]:
    """Return the words from *start* on that say something."""
    found: list[Word] = []
    before, is_parted = "", False
    for place, token in enumerate(tokens[start:], start):
        folded = token.casefold()
        if _is_move(tokens, place):
            found.append(Word(token, "live", before, is_parted))
            before, is_parted = "in", False
        elif folded in _PREPOSITIONS:
            before = "in" if before == "in" and folded == "to" else folded
        elif _is_content(token):
            stems = _stems(folded)
            stem = stems[0] if len(stems) == 1 else folded
            found.append(Word(token, stem, before, is_parted))
            before, is_parted = "", False
        elif folded in _BE or folded in _HAVE or token in ":;,":
            is_parted = True
    return tuple(found)


def _is_move(tokens: list[str], place: int) -> bool:
    """Return whether somebody moves to somewhere, rather than something to another day."""
    if tokens[place].casefold() not in _MOVES:
        return False
    following = [token for token in tokens[place + 1 :] if token.casefold() not in _ARTICLES]
    if len(following) < 2 or following[0] != "to":
        return False
    return following[1][0].isupper() and following[1].casefold() not in _CALENDAR
