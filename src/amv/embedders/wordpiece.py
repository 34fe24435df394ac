"""BERT's uncased tokenizer: from text to the token ids that the model was trained on.

A text is cleaned (control characters dropped, accents and case folded), split
at whitespace, punctuation and around each Chinese character, and every word is
covered from the left by the longest pieces in the vocabulary (Devlin et al.
2018, arXiv 1810.04805; the code it follows is HuggingFace's `tokenizers`).

None of that looks across whitespace.  So the unit of work is what stands
between whitespace, raw, and its ids are remembered: a text costs little more
than one dictionary look-up a word.

Two things differ from `tokenizers` on purpose.  "[SEP]" and its like in a text
are ordinary characters: content must not be able to write the model's control
tokens.  And what is an accent or a punctuation mark is asked of this Python's
Unicode data, where `tokenizers` has tables of 2015, so that marks added to
Unicode since are folded too.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from amv.embedders.packaged import verified
from amv.embedders.passages import WORD

VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
VOCABULARY = Path(__file__).with_name("bert_vocab.txt")

WORD_CHARS_MAX = 100
"""A longer word is [UNK], as in the model's training."""

_REMEMBERED_WORDS_MAX = 1 << 15
_REMEMBERED_CHARS_MAX = 32
_REMEMBERED_FOLDS_MAX = 1 << 15

_CONTINUES = "##"

# The fifth range begins 0x100 late in `tokenizers`; those characters are [UNK] either way.
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _Folds(dict[int, str]):
    """A table for `str.translate` that is filled as characters turn up, to a limit."""

    def __init__(self, fold: Callable[[str], str]) -> None:
        super().__init__()
        self._fold = fold

    def __missing__(self, code: int) -> str:
        folded = self._fold(chr(code))
        if len(self) < _REMEMBERED_FOLDS_MAX:
            self[code] = folded
        return folded


def _clean(char: str) -> str:
    """Drop what is no text, and set Chinese characters apart."""
    if char == "\ufffd" or unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"}:
        return ""
    if any(first <= ord(char) <= last for first, last in _CHINESE):
        return f" {char} "
    return char


def _fold(char: str) -> str:
    """Drop accents of decomposed text, lower case, and set punctuation apart."""
    category = unicodedata.category(char)
    # Of ASCII, all signs count as punctuation; controls, if any, come here uncleaned.
    if category == "Mn" or category == "Cc":
        return ""
    if category[0] == "P" or (char.isascii() and category[0] == "S"):
        return f" {char} "
    return char.lower()


_CLEANED = _Folds(_clean)
_FOLDED = _Folds(_fold)


class WordPiece:
    """The tokenizer over a vocabulary: one piece a line, its id the number of the line.

    Safe for use by several threads: what is remembered is only ever added or
    dropped, and adding the same word twice changes nothing.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.cls_id = ids["[CLS]"]
        self.sep_id = ids["[SEP]"]
        self._unknown = (ids["[UNK]"],)
        self._heads = ids
        self._tails = {
            piece.removeprefix(_CONTINUES): number
            for piece, number in ids.items()
            if piece.startswith(_CONTINUES)
        }
        self._piece_chars_max = max(map(len, ids))
        self._remembered: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int) -> list[int]:
        """Return the first *limit* token ids of *text*, without [CLS] and [SEP]."""
        ids: list[int] = []
        for match in WORD.finditer(text):
            ids += self._ids(match[0])
            if len(ids) >= limit:
                break
        return ids[:limit]

    def count(self, text: str) -> int:
        """Return how many tokens *text* has, without [CLS] and [SEP]."""
        return sum(len(self._ids(raw)) for raw in WORD.findall(text))

    def _ids(self, raw: str) -> tuple[int, ...]:
        """Return the ids of what stands between whitespace."""
        ids = self._remembered.get(raw)
        if ids is not None:
            return ids
        ids = tuple(number for word in _words(raw) for number in self._cover(word))
        if len(raw) <= _REMEMBERED_CHARS_MAX:
            if len(self._remembered) >= _REMEMBERED_WORDS_MAX:
                self._remembered.clear()
            self._remembered[raw] = ids
        return ids

    def _cover(self, word: str) -> Sequence[int]:
        """Cover *word* from the left by the longest pieces; [UNK] if that leaves a gap."""
        if len(word) > WORD_CHARS_MAX:
            return self._unknown
        ids: list[int] = []
        pieces = self._heads
        start = 0
        while start < len(word):
            for end in range(min(len(word), start + self._piece_chars_max), start, -1):
                number = pieces.get(word[start:end])
                if number is not None:
                    break
            else:
                return self._unknown
            ids.append(number)
            start = end
            pieces = self._tails
        return ids


def _words(raw: str) -> list[str]:
    if not raw.isascii():
        raw = unicodedata.normalize("NFD", raw.translate(_CLEANED))
    return raw.translate(_FOLDED).split()


@cache
def bert() -> WordPiece:
    """Return the tokenizer over BERT's own vocabulary, which comes with this package.

    Raises EmbedderError when the file is missing or is not that vocabulary.
    """
    content = verified(VOCABULARY, VOCABULARY_SHA256)
    return WordPiece(content.decode("utf-8").removesuffix("\n").split("\n"))
