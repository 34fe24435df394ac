"""Lexical search: the terms of a text, and BM25 over postings already read.

An embedding blurs what is rare: names, ids, numbers.  Words find exactly those,
so every item is also indexed by its terms, and a query reads the postings of
its rarest terms first, which say most and are shortest, until a budget is spent.

A term is a stemmed word.  A compound such as `john_doe`, `order-123`,
`ann@example.com` or `10.0.0.1` is a term as a whole and in its parts, so it is
found by either, and one with another last digit is another term.  Scripts that
write no spaces (Chinese, Japanese, Thai, ...) give overlapping pairs of
characters.  The commonest English words are left out, from queries and from
items, so a query of nothing else has no terms and finds nothing here.

Ranking is BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond", 2009), with the idf that stays positive for common terms.
"""

import hashlib
import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import Stemmer

#: One posting: the item's key, how often the term occurs in it, its length in terms.
POSTING = np.dtype([("key", "<i8"), ("tf", "u1"), ("length", "<u2")])

#: What stands for counts that POSTING can't hold; more of them says hardly more.
TF_MAX = 255
LENGTH_MAX = 65_535

K1, B = 1.2, 0.75
"""How slowly repetition of a term saturates, and how much a long item is discounted."""

MAX_TERM_CHARS = 64
_CACHED_TOKENS = 32_768

# Short on purpose: a word that may be a name or carry the question ("will",
# "may", "us", "no", "not") stays.
_STOP_TEXT = """
    a about am an and any are as at be been being but by can could did do does doing for from had
    has have having he her hers him his how i if in into is it its me my of on or our ours she
    should so some such than that the their theirs them then there these they this those to too was
    we were what when where which who whom whose why with would you your yours aren't can't couldn't
    didn't doesn't don't hadn't hasn't haven't isn't shouldn't wasn't weren't won't wouldn't
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())

# Written without spaces between words: Thai and Lao, Myanmar, Khmer, kana, CJK
# ideographs (also in the supplementary planes); Hangul glues its particles on.
_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = f"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\uac00-\ud7af{_HAN}"
# Dropped, since invisible inside a word: soft hyphen, joiners, byte order mark.
_CLEANED = {0xAD: "", 0x200C: "", 0x200D: "", 0x2060: "", 0xFEFF: "", 0x2019: "'", 0x02BC: "'"}

_IS_HAN = re.compile(f"[{_HAN}]")
_STARTS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_PART = re.compile(r"[._\-@']")
_CONTRACTION = re.compile(r"'(?:s|re|ve|ll|d|m)$")


def _compounds(word: str) -> str:
    """Return the pattern for *word*s joined by single joiners, or by a thousands comma."""
    return rf"{word}+(?:(?:[._\-@']|(?<=[0-9]),(?=[0-9]{{3}}(?![0-9]))){word}+)*"


_ASCII_TOKEN = re.compile(_compounds("[a-z0-9]"))


@lru_cache(maxsize=1)
def _unicode_token() -> re.Pattern[str]:
    r"""Return the token pattern for any text; made on first use, since it takes some 20 ms.

    Python's `\w` leaves out combining marks, without which Hindi or Tamil falls to pieces.
    """
    characters = map(chr, range(0x300, 0x12000))
    marks = "".join(char for char in characters if unicodedata.category(char).startswith("M"))
    word = rf"[^\W_{_UNSPACED}]|[{marks}]"
    # An unspaced run may contain marks as well, Thai vowels for one.
    return re.compile(rf"[{_UNSPACED}]+|{_compounds(f'(?:{word})')}")


class _Stemmers(threading.local):
    """One stemmer a thread: a Snowball object must not be shared."""

    def __init__(self) -> None:
        # No cache of its own; `_token_terms` has one for all threads.
        self.english = Stemmer.Stemmer("english", 0)


_stemmers = _Stemmers()


def term_counts(text: str) -> tuple[dict[str, int], int]:
    """Return how often each term occurs in *text*, and the text's length in terms.

    Both are capped at 65,535, the most a posting can hold.

    >>> term_counts("Order #W2378156: orders of John_Doe")
    ({'order': 2, 'w2378156': 1, 'john_doe': 1, 'john': 1, 'doe': 1}, 6)
    """
    counts: dict[str, int] = {}
    length = 0
    is_ascii = text.isascii()
    for token, times in Counter(_tokens(text)).items():
        if is_ascii and len(token) <= MAX_TERM_CHARS:
            terms = _token_terms(token)
        else:
            terms = _terms(token, single_characters=True)
        length += times * len(terms)
        for term in terms:
            counts[term] = counts.get(term, 0) + times
    if length > TF_MAX:
        counts = {term: min(TF_MAX, count) for term, count in counts.items()}
    return counts, min(LENGTH_MAX, length)


def query_terms(text: str) -> list[str]:
    """Return the distinct terms to look up for *text*, in order of appearance.

    >>> query_terms("Where is the order of the orders?")
    ['order']
    >>> query_terms("who is it?")
    []
    """
    terms: dict[str, None] = {}
    for token in dict.fromkeys(_tokens(text)):
        terms.update(dict.fromkeys(_terms(token, single_characters=False)))
    return list(terms)


def _tokens(text: str) -> list[str]:
    """Split *text* into case-folded words, compounds, and runs of an unspaced script."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text.lower())
    # Folding can undo the normal form, so it is restored.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _unicode_token().findall(folded.translate(_CLEANED))


def _terms(token: str, *, single_characters: bool) -> tuple[str, ...]:
    """Return the terms of one token, repeated where they repeat.

    *single_characters* adds each ideograph, so that a query of just one finds it.
    """
    if not token.isascii() and _STARTS_UNSPACED.match(token):
        return tuple(_character_terms(token, single_characters=single_characters))
    if len(token) > MAX_TERM_CHARS:
        # Not cached: a cache of long strings would have no useful bound.
        return tuple(_word_terms(token))
    return _token_terms(token)


def _character_terms(run: str, *, single_characters: bool) -> Iterator[str]:
    if len(run) == 1:
        yield run
        return
    for first, second in pairwise(run):
        yield first + second
    if single_characters:
        yield from _IS_HAN.findall(run)


@lru_cache(maxsize=_CACHED_TOKENS)
def _token_terms(token: str) -> tuple[str, ...]:
    return tuple(_word_terms(token))


def _word_terms(token: str) -> Iterator[str]:
    """Yield the compound as a whole, then its parts; stop words are left out."""
    if token in _STOP_WORDS:
        return
    token = _CONTRACTION.sub("", token)
    parts = _PART.split(token)
    if len(parts) > 1:
        yield _short(token.replace(",", ""))
    for part in parts:
        digits = part.replace(",", "")
        if digits not in _STOP_WORDS:
            yield _short(_stem(digits))


def _stem(word: str) -> str:
    """Stem a word; an id or number, which has digits, is left alone."""
    if not word.isalpha():
        return word
    stem: str = _stemmers.english.stemWord(word)
    return stem


def _short(term: str) -> str:
    """Replace a term that is too long to index by its hash; no word contains a `~`."""
    if len(term) <= MAX_TERM_CHARS:
        return term
    return "~" + hashlib.blake2b(term.encode(), digest_size=12).hexdigest()


def read_plan(document_frequencies: Mapping[str, int], budget: int) -> list[tuple[str, int]]:
    """Return how many postings of each term to read, rarest term first, *budget* in total.

    Ties are read in the order of the terms, so that a plan can be repeated.

    >>> read_plan({"rome": 3, "trip": 500, "absent": 0}, 100)
    [('rome', 3), ('trip', 97)]
    """
    plan: list[tuple[str, int]] = []
    for frequency, term in sorted((count, term) for term, count in document_frequencies.items()):
        if frequency > 0 and budget > 0:
            plan.append((term, min(frequency, budget)))
            budget -= frequency
    return plan


def whole_terms(plan: Sequence[tuple[str, int]], frequencies: Mapping[str, int]) -> int:
    """Return how many terms of a plan to read: those read whole, or else the first.

    A common term of which only the newest postings are read lifts what is new over
    what is old.  It is better looked up in the few items that are left in the end
    (see `completed`), unless there is no rarer one to find any by.

    >>> whole_terms([("rome", 3), ("trip", 97)], {"rome": 3, "trip": 500})
    1
    >>> whole_terms([("trip", 100)], {"trip": 500})
    1
    """
    return max(1, sum(count == frequencies[term] for term, count in plan)) if plan else 0


def completed(
    scores: npt.NDArray[np.float32],
    read_weight: float,
    unread: Mapping[str, float],
    texts: Sequence[str],
    mean_length: float,
) -> npt.NDArray[np.float32]:
    """Return scores of `bm25` as they are with terms whose postings were not read.

    Args:
        scores: of n items, best first, with the terms read.
        read_weight: the sum of the idf of these.
        unread: the idf of each other term.
        texts: what the first of the items are indexed by; these terms are counted in
            them, and taken to be absent from the others.
        mean_length: as for `bm25`.
    """
    reached = scores.astype(np.float64) * read_weight
    for place, text in enumerate(texts):
        counts, length = term_counts(text)
        discount = K1 * (1.0 - B + B * length / max(1.0, mean_length))
        for term, weight in unread.items():
            tf = counts.get(term, 0)
            reached[place] += weight * tf / (tf + discount)
    whole: npt.NDArray[np.float64] = reached / (read_weight + sum(unread.values()))
    return whole.astype(np.float32)


def bm25(
    parts: Sequence[tuple[int, npt.NDArray[np.void]]],
    n_items: int,
    mean_length: float,
    k1: float = K1,
    b: float = B,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the keys of the items that match, and their scores in [0, 1), best first.

    A score is divided by the highest that any item could reach for these terms,
    Σ idf · (k1 + 1), so that queries of any length compare; equal scores are
    ordered by key, highest first.  A term that no item holds is left out of the
    sum, since none can reach it (on LoCoMo, counting it cost 0.01 to 0.02 of
    recall after fusion).

    Args:
        parts: for each query term, how many items hold it and its postings that
            were read, of dtype POSTING.
        n_items: items in the namespace.
        mean_length: their mean length in terms.
        k1: how slowly repetition of a term saturates.
        b: how much a long item is discounted, 0..1.
    """
    parts = [part for part in parts if part[0] > 0]
    if not any(len(postings) for _, postings in parts):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    mean_length = mean_length if mean_length > 0.0 else 1.0
    weights = [idf(frequency, n_items) for frequency, _ in parts]
    read = np.concatenate([postings for _, postings in parts])
    weight = np.repeat(weights, [len(postings) for _, postings in parts])

    tf = read["tf"].astype(np.float64)
    discount = k1 * (1.0 - b + b * read["length"].astype(np.float64) / mean_length)
    keys, slot = np.unique(read["key"], return_inverse=True)
    reached = np.bincount(slot, weights=weight * tf * (k1 + 1.0) / (tf + discount))
    scores = (reached / (sum(weights) * (k1 + 1.0))).astype(np.float32)
    # Keys ascend and the sort is stable, so reading it backwards breaks ties as promised.
    order = np.argsort(scores, kind="stable")[::-1]
    return keys[order].astype(np.int64), scores[order]


def idf(frequency: int, n_items: int) -> float:
    """Return how much a term says that stands in *frequency* of *n_items* items."""
    frequency = min(frequency, n_items)
    return math.log1p((n_items - frequency + 0.5) / (frequency + 0.5))
