"""Context: packing found items into a block of a prompt, under a cap of tokens.

What a search returns and what a prompt can hold are different limits.  Items
are taken in the order given, best first; one that does not fit is skipped and
the next is tried, so a long item does not cost the short ones behind it.  An
item is never cut: half a memory can say the opposite of the whole.

Each item is one list entry, its further lines indented, so that no content can
pass itself off as another entry:

    - [2026-11-30] Prefers window seats.
    - [2026-12-01] (contradicted?) Prefers aisle seats.

The mark stands where something else that is known seems to say otherwise, so
that whoever reads it asks rather than relies on it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from amv.checks import shown
from amv.errors import InvalidInput

SENTENCE_WORDS = 3
"""A line of fewer words is part of a list, which says more than its parts do."""

IN_DOUBT = "(contradicted?)"
"""What stands before a content that something else seems to contradict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """One item to pack; *valid_from* is aware and is shown as a date in UTC.

    That is when it began to hold: of what was imported, not the day it was imported on.
    *contradicted* marks it as in doubt.
    """

    id: str
    content: str
    valid_from: datetime
    contradicted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The block, the items in it in their order, and its length by the counter used."""

    text: str
    item_ids: tuple[str, ...]
    tokens: int


def pack(
    entries: Sequence[ContextEntry], token_budget: int, count_tokens: Callable[[str], int]
) -> Packed:
    """Return as many of *entries*, in their order, as fit into *token_budget*.

    The whole block is measured with *count_tokens*, never a sum of its parts,
    since tokens join across a border.  Nothing fitting is an empty block.

    Raises:
        InvalidInput: when *token_budget* is below 1.
    """
    if not token_budget >= 1:
        raise InvalidInput(f"need a token budget of at least 1, got {shown(token_budget)}")
    count = _Blocks() if count_tokens is estimate_tokens else None
    packed = Packed(text="", item_ids=(), tokens=0)
    for entry in entries:
        block = _block(entry)
        text = f"{packed.text}\n{block}" if packed.item_ids else block
        tokens = count_tokens(text) if count is None else count.with_block(block)
        if tokens <= token_budget:
            packed = Packed(text=text, item_ids=(*packed.item_ids, entry.id), tokens=tokens)
            if count is not None:
                count.take()
    return packed


class _Blocks:
    """What `estimate_tokens` says of a growing text, counting each block once.

    A block begins with a dash, which is a piece of its own, so that none reaches
    across from what stands before: the sum over the blocks, each with its end of
    line, is that of the text.
    """

    def __init__(self) -> None:
        self._before = self._ended = 0

    def with_block(self, block: str) -> int:
        """Return the tokens of the text with *block* at its end."""
        self._ended = estimate_tokens(block + "\n")
        # The end of the line is one more, unless it joins white space before it.
        last = estimate_tokens(block) if block[-1].isspace() else self._ended - 1
        return self._before + last

    def take(self) -> None:
        """Add the last block to the text."""
        self._before += self._ended


def date_of(moment: datetime) -> str:
    """Return the day of an aware time in UTC, as a block shows it."""
    return moment.astimezone(UTC).date().isoformat()


def _block(entry: ContextEntry) -> str:
    mark = f"{IN_DOUBT} " if entry.contradicted else ""
    return f"- [{date_of(entry.valid_from)}] {mark}" + "\n  ".join(entry.content.splitlines())


_BEGINNING = re.compile(r"^- \[(\d{4}-\d\d-\d\d)\] ", re.MULTILINE)


def quoted(text: str) -> list[tuple[str, str]]:
    r"""Return date and content of each entry of a block that `pack` made.

    A content's lines may still be indented, and `IN_DOUBT` stand before it.  Of several
    sentences below each other, as hits are joined, each is an entry, without a date.  Of
    anything else, nothing.

    >>> quoted("- [2026-11-30] Likes windows.\n- [2026-12-01] Flies\n  early.")
    [('2026-11-30', 'Likes windows.\n'), ('2026-12-01', 'Flies\n  early.')]
    >>> quoted("Ann likes tea.\nAnn lives in Rome."), quoted("tea\nrice"), quoted("Ann likes tea.")
    ([('', 'Ann likes tea.'), ('', 'Ann lives in Rome.')], [], [])
    """
    text = text.lstrip().removeprefix("\ufeff")
    if _BEGINNING.match(text):
        _, *parts = _BEGINNING.split(text)
        return list(zip(parts[::2], parts[1::2], strict=True))
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    is_prose = len(lines) > 1 and all(len(line.split()) >= SENTENCE_WORDS for line in lines)
    return [("", line) for line in lines] if is_prose else []


_PIECE = re.compile(r"[A-Za-z]+|[^\x00-\x7f]+|\s+|[!-~]|.", re.DOTALL)
_LETTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return a careful estimate of how many tokens a language model reads for *text*.

    For want of the model's own tokenizer, which is better passed to `pack`.
    Counted are: a word of lower case, one for every four letters begun (two in
    capitals or mixed case); each digit and punctuation mark; each run of white
    space but a single space; of anything beyond ASCII, its bytes in UTF-8 less
    one a character, plus one for the run.

    Compared with four tokenizers (cl100k, o200k, DeepSeek's, Anthropic's older
    one) that is 1.3 to 1.5 times the true count for English prose and source
    code, more for digits and most other languages.  It is too low, by up to a
    half, only for random letters and some rare scripts.
    """
    return sum(_piece_tokens(piece) for piece in _PIECE.findall(text))


def _piece_tokens(piece: str) -> int:
    if not piece.isascii():
        return 1 + len(piece.encode("utf-8", "replace")) - len(piece)
    if piece.isalpha():
        plain = len(piece) == 1 or piece[1:].islower()
        return -(-len(piece) // (_LETTERS_PER_TOKEN if plain else 2))
    return 0 if piece == " " else 1
