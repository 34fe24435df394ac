"""Passages: a long text cut into spans that an embedder can read whole.

An embedder reads the first few hundred tokens of a text and is blind to the
rest, so a longer text gets one vector a passage.  A passage is filled until
the next word does not fit, then ends at the last end of a sentence if that
wastes less than half of it, else before that word.

A word here is what stands between whitespace.  Tokenizers don't look across
whitespace, so the tokens of a passage are the sum over its words, and one
pass is enough.  A word too long for one passage (text in a script without
spaces, a data URL) is cut by characters; there the sum doesn't hold, so each
piece is counted as it is, and all but the last stand alone.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

WORD = re.compile("[^\t\n\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Unicode's whitespace less the control characters, as BERT sees it."""

_SENTENCE_END = re.compile(r"[.!?…。！？؟।]['\"”’»)\]]{0,3}$")  # noqa: RUF001
_TAIL_CHARS = 4
_UNSPACED_ENDS = "。！？"  # noqa: RUF001
"""Ends of sentences after which no space is written."""

_CHARS_PER_TOKEN = 4
"""First guess at the size of a piece; English has about five, Chinese one."""


class _Unit(NamedTuple):
    begin: int
    end: int
    tokens: int


def split(text: str, *, capacity: int, count: Callable[[str], int]) -> list[tuple[int, int]]:
    """Return spans that follow each other from 0 to len(text), of at most *capacity* tokens.

    *count* says how many tokens a piece of text has.  Whitespace belongs to the
    span before it.

    >>> split("One two. Three four.", capacity=3, count=lambda piece: len(piece.split()))
    [(0, 9), (9, 20)]
    """
    spans: list[tuple[int, int]] = []
    start = used = 0
    sentence_at = sentence_used = 0
    previous_end = 0
    for begin, end, tokens in _units(text, capacity, count):
        if _ends_sentence(text, previous_end, begin):
            sentence_at, sentence_used = begin, used
        while used and used + tokens > capacity:
            at, closed = begin, used
            if 2 * sentence_used >= capacity:
                at, closed = sentence_at, sentence_used
            spans.append((start, at))
            start, used, sentence_used = at, used - closed, 0
        used += tokens
        previous_end = end
    spans.append((start, len(text)))
    return spans


def _ends_sentence(text: str, end: int, begin: int) -> bool:
    """Say whether a sentence or line ends in the word before *end*, the next being at *begin*."""
    if "\n" in text[end:begin]:
        return True
    return end < begin and bool(_SENTENCE_END.search(text, max(0, end - _TAIL_CHARS), end))


def _units(text: str, capacity: int, count: Callable[[str], int]) -> Iterator[_Unit]:
    probe = _CHARS_PER_TOKEN * capacity
    for match in WORD.finditer(text):
        word = match[0]
        # A megabyte without a space is counted whole only if its beginning leaves that open.
        tokens = count(word[:probe])
        if tokens <= capacity and len(word) > probe:
            tokens = count(word)
        if tokens <= capacity:
            yield _Unit(match.start(), match.end(), tokens)
        else:
            yield from _pieces(text, match.start(), match.end(), capacity, count)


def _pieces(
    text: str, begin: int, end: int, capacity: int, count: Callable[[str], int]
) -> Iterator[_Unit]:
    """Cut a word into pieces that fit, each sized by how dense the one before was."""
    largest = _CHARS_PER_TOKEN * capacity
    width = largest
    while begin < end:
        stop = min(end, begin + width)
        tokens = count(text[begin:stop])
        while tokens > capacity and stop - begin > 1:
            stop = begin + max(1, (stop - begin) * capacity // tokens)
            tokens = count(text[begin:stop])
        width = min(largest, max(1, (stop - begin) * capacity // max(1, tokens)))
        if stop < end:
            half = begin + (stop - begin) // 2
            sentence_at = max(text.rfind(mark, half, stop) for mark in _UNSPACED_ENDS) + 1
            stop, tokens = sentence_at or stop, capacity
        yield _Unit(begin, stop, tokens)
        begin = stop
