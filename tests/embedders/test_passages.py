"""Cutting a long text into what an embedder can read."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.embedders.passages import split
from amv.embedders.wordpiece import bert

CAPACITY = 254
MIB = 1 << 20


def words(text: str) -> int:
    return len(text.split())


def cut(text: str, capacity: int) -> list[str]:
    return [text[a:b] for a, b in split(text, capacity=capacity, count=words)]


LETTERS = st.sampled_from("ab.! \n\u4e2d\u3002-\u0301\u200b\u00e9\U0001f642")


@given(text=st.text(LETTERS, max_size=200), capacity=st.integers(min_value=3, max_value=12))
def test_spans_follow_each_other_and_each_fits(text: str, capacity: int) -> None:
    """A gap would be a part of the memory that no search can find."""
    count = bert().count

    spans = split(text, capacity=capacity, count=count)

    assert "".join(text[begin:end] for begin, end in spans) == text
    assert all(begin < end for begin, end in spans) or spans == [(0, 0)]
    assert all(count(text[begin:end]) <= capacity for begin, end in spans)


@pytest.mark.parametrize("text", ["", "   \n", "Short.", " One. Two? \n\nThree "])
def test_a_text_that_fits_is_one_passage(text: str) -> None:
    assert split(text, capacity=8, count=words) == [(0, len(text))]


def test_a_passage_ends_with_a_sentence_if_half_of_it_is_used() -> None:
    assert cut("One two three. Four five six.", 5) == ["One two three. ", "Four five six."]


def test_a_passage_ends_with_a_line_as_with_a_sentence() -> None:
    """Lists and code have no full stops."""
    assert cut("one two three\nfour five six", 5) == ["one two three\n", "four five six"]


def test_a_full_stop_inside_a_quotation_or_bracket_ends_a_sentence() -> None:
    assert cut('"One two three." Four five six.', 5) == ['"One two three." ', "Four five six."]


def test_a_sentence_that_ends_early_does_not_waste_the_passage() -> None:
    """Otherwise many short sentences after one another would make many short passages."""
    assert cut("One. Two three four five six.", 5) == ["One. Two three four five ", "six."]


def test_a_word_too_long_is_cut_by_characters() -> None:
    """Chinese has no spaces, and what is not embedded is not found."""
    text = "".join(chr(0x4E00 + number) for number in range(1000))

    spans = split(text, capacity=CAPACITY, count=bert().count)

    assert [end - begin for begin, end in spans] == [254, 254, 254, 238]


def test_a_word_too_long_is_cut_after_a_sentence_where_it_has_one() -> None:
    text = ("\u4e2d" * 199 + "\u3002") * 3

    spans = split(text, capacity=CAPACITY, count=bert().count)

    assert spans == [(0, 200), (200, 400), (400, 600)]


def test_a_long_word_that_is_one_unknown_token_stays_whole() -> None:
    """A thousand vectors of [UNK] would say no more than one."""
    assert split("a" * MIB, capacity=CAPACITY, count=bert().count) == [(0, MIB)]


WORK = 1 << 17
"""Characters whose work is counted: a hundred times as much as one vector reads."""


def prose() -> str:
    rng = random.Random(7)
    letters = "etaoinshrdlu"
    lexicon = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5000)]
    return " ".join(rng.choice(lexicon) + rng.choice(["", "", "", ".", ","]) for _ in range(WORK))


@pytest.mark.parametrize(
    "text",
    [prose()[:WORK], "/".join(f"{number:x}" for number in range(WORK // 6)), "!" * WORK],
    ids=["prose", "no spaces", "punctuation"],
)
def test_the_work_grows_with_the_text_only(text: str) -> None:
    """Characters counted are the measure; a quadratic cut would count them a hundredfold."""
    counted = 0

    def count(piece: str) -> int:
        nonlocal counted
        counted += len(piece)
        return bert().count(piece)

    spans = split(text, capacity=CAPACITY, count=count)

    assert counted <= 4 * len(text)
    assert sum(end - begin for begin, end in spans) == len(text)
    assert len(spans) <= 1 + len(text) // (CAPACITY // 2)
