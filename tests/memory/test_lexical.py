"""Terms, reading plans and BM25."""

import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.memory.lexical import (
    MAX_TERM_CHARS,
    POSTING,
    bm25,
    completed,
    idf,
    query_terms,
    read_plan,
    term_counts,
    whole_terms,
)

Part = tuple[int, npt.NDArray[np.void]]


def terms(text: str) -> set[str]:
    """Return the distinct terms an item with this text is indexed by."""
    return set(term_counts(text)[0])


def finds(query: str, text: str) -> bool:
    """Tell whether *query* shares a term with *text*."""
    return not terms(text).isdisjoint(query_terms(query))


# ---------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("running", "She runs every morning"),
        ("ROME", "a trip to Rome"),
        ("W2378156", "Order #W2378156 was late"),
        ("#w2378156", "Order W2378156 was late"),
        ("john_doe", "user john_doe logged in"),
        ("doe", "user john_doe logged in"),
        ("123", "order-123"),
        ("order-123", "Order-123 arrived"),
        ("example", "write to ann.b@example.com"),
        ("ann.b@example.com", "write to Ann.B@Example.com."),
        ("10.0.0.1", "server at http://10.0.0.1:8080/status"),
        ("8080", "server at http://10.0.0.1:8080/status"),
        ("1000000", "it cost 1,000,000 euro"),
        ("1,000,000", "it cost 1000000 euro"),
        ("John", "John\u2019s dog"),
        ("O'Brien", "Mr. O'Brien called"),
        ("brien", "Mr. O'Brien called"),
        ("STRASSE", "die lange Straße"),
        ("ABC123", "\uff21\uff22\uff23\uff11\uff12\uff13"),
        ("fine", "ﬁne"),
        ("café", "cafe\u0301"),
        ("cooperate", "co\u00adoperate"),
        ("東京", "東京タワーは高い"),
        ("猫", "黒猫がいる"),
        ("เมือง", "ผมรักเมืองไทย"),
        ("한국어", "한국어를 배운다"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("tower", "東京tower"),
        ("end", "the end.Next one"),
    ],
)
def test_a_query_finds_what_a_reader_would_expect(query: str, text: str) -> None:
    """Names, ids, numbers and inflected words are what the lexical probe is for."""
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("8081", "port 8080"),
        ("W2378156", "W2378157"),
        ("10.0.0.2", "a.b"),
        ("doe", "john_doedoe"),
        ("100", "1,000"),
        ("हिन", "हिन्दी"),
        ("東京", "京東"),
        ("is it the", "it is the one"),
    ],
)
def test_a_query_does_not_find_something_else(query: str, text: str) -> None:
    """An id is never stemmed or cut, and a stop word finds nothing."""
    assert not finds(query, text)


def test_a_version_ranks_above_its_neighbour() -> None:
    """Both share the parts 1 and 2; only one shares the whole."""
    assert "1.2.3" in set(query_terms("1.2.3")) & terms("release 1.2.3")
    assert "1.2.3" not in terms("release 1.2.4")


def test_terms_are_counted_and_the_length_is_their_sum() -> None:
    """BM25 needs both."""
    counts, length = term_counts("Rome, Rome and the roads to Rome: order-12")

    assert counts == {"rome": 3, "road": 1, "order-12": 1, "order": 1, "12": 1}
    assert length == 7


@given(st.text())
def test_the_length_is_the_sum_of_the_counts_of_any_text(text: str) -> None:
    """Also of text that is no language, with surrogates and marks out of place."""
    counts, length = term_counts(text)

    assert length == sum(counts.values())
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in counts)
    for term in counts:
        term.encode()


@given(st.text())
def test_a_text_is_found_by_itself(text: str) -> None:
    """Every term that is looked up for a text is one the text is indexed by."""
    assert set(query_terms(text)) <= terms(text)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_ascii_text_has_the_same_terms_on_both_paths(text: str) -> None:
    """The fast path must not be a different tokeniser; the emoji forces the general one."""
    assert query_terms(text) == query_terms(text + " 🙂")
    assert term_counts(text) == term_counts("🙂 " + text)


def test_counts_stop_at_what_a_posting_can_hold() -> None:
    """65,536 would wrap to 0 in a posting, as would 256 of one term."""
    counts, length = term_counts("rome " * 65_536)

    assert counts == {"rome": 255}
    assert length == 65_535
    np.array([(1, counts["rome"], length)], dtype=POSTING)


@pytest.mark.parametrize("text", ["x" * 65, "x" * 1_000_000, "a." * 100 + "b"])
def test_a_long_term_is_replaced_by_a_short_one(text: str) -> None:
    """A key of the index stays small, and the text is still found by all of it."""
    assert max(map(len, terms(text))) <= MAX_TERM_CHARS
    assert finds(text, f"before {text} after")
    assert query_terms("x" * 66) != query_terms("x" * 65)
    assert query_terms("x" * 64) == ["x" * 64]


def test_query_terms_come_once_and_in_order() -> None:
    """The order is what makes a plan of reads the same every time."""
    assert query_terms("Where did Ann meet Bob, and did Bob meet Ann in Rome?") == [
        "ann",
        "meet",
        "bob",
        "rome",
    ]


@pytest.mark.parametrize("query", ["", "   ", "?!", "who is it", "don't", "🙂", "\ud800"])
def test_a_query_of_nothing_but_stop_words_has_no_terms(query: str) -> None:
    """Defined, and no error: the vector part of the search still answers."""
    assert query_terms(query) == []


def test_ideographs_are_indexed_alone_but_not_looked_up_alone() -> None:
    """A query of several would otherwise match every text that shares one."""
    assert terms("東京") == {"東京", "東", "京"}
    assert query_terms("東京") == ["東京"]
    assert query_terms("京") == ["京"]


def test_threads_get_the_same_terms() -> None:
    """A Snowball object shared by threads would return garbage or crash."""
    texts = [
        " ".join(f"{root}{end}" for root in ("walk", "nation", f"plant{chr(97 + i)}"))
        for i in range(26)
        for end in ("ing", "al", "ations", "ed")
    ]
    expected = [term_counts(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(term_counts, texts * 20))

    assert found == expected * 20


# ---------------------------------------------------------------- reading plan


frequencies = st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=8)


@given(frequencies, st.integers(-5, 100))
def test_a_plan_spends_the_budget_on_the_rarest_terms(
    document_frequencies: dict[str, int], budget: int
) -> None:
    """As if all postings were laid out, rarest term first, and the first *budget* were read."""
    rarest_first = sorted(document_frequencies, key=lambda term: (document_frequencies[term], term))
    laid_out = [term for term in rarest_first for _ in range(document_frequencies[term])]
    read = Counter(laid_out[: max(0, budget)])

    assert read_plan(document_frequencies, budget) == list(read.items())


@given(frequencies, st.integers(0, 100))
def test_a_plan_does_not_depend_on_the_order_of_the_terms(
    document_frequencies: dict[str, int], budget: int
) -> None:
    """Two replicas with the same data read the same postings."""
    backwards = dict(reversed(document_frequencies.items()))

    assert read_plan(backwards, budget) == read_plan(document_frequencies, budget)


# ---------------------------------------------------------------- BM25


def postings(*rows: tuple[int, int, int]) -> npt.NDArray[np.void]:
    """Return rows of (key, tf, length)."""
    return np.array(list(rows), dtype=POSTING)


def naive_bm25(
    parts: Sequence[Part], n_items: int, mean_length: float, k1: float, b: float
) -> dict[int, float]:
    """BM25 from its formula, one posting at a time."""
    scores: dict[int, float] = {}
    highest = 0.0
    for frequency, read in parts:
        if not frequency:
            continue
        idf = math.log(1 + (n_items - frequency + 0.5) / (frequency + 0.5))
        highest += idf * (k1 + 1)
        for key, tf, length in read.tolist():
            gained = idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean_length))
            scores[key] = scores.get(key, 0.0) + gained
    return {key: score / highest for key, score in scores.items()}


@st.composite
def indexes(draw: st.DrawFn) -> tuple[list[Part], int]:
    """Return postings of a few terms over a few items, and the number of items."""
    n_items = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 300), min_size=n_items, max_size=n_items))
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        keys = draw(st.lists(st.integers(0, n_items - 1), unique=True))
        rows = [(key, draw(st.integers(1, 200)), lengths[key]) for key in keys]
        unread = draw(st.integers(0, n_items - len(keys)))
        parts.append((len(keys) + unread, postings(*rows)))
    return parts, n_items


@given(
    index=indexes(), mean_length=st.floats(0.5, 500), k1=st.floats(0.1, 3.0), b=st.floats(0.0, 1.0)
)
def test_scores_are_those_of_the_formula_best_first(
    index: tuple[list[Part], int], mean_length: float, k1: float, b: float
) -> None:
    """Against the formula, written plainly."""
    parts, n_items = index
    keys, scores = bm25(parts, n_items, mean_length, k1, b)
    expected = naive_bm25(parts, n_items, mean_length, k1, b)

    assert dict(zip(keys.tolist(), scores.tolist(), strict=True)) == pytest.approx(expected)
    assert keys.dtype == np.int64
    assert scores.dtype == np.float32
    ranks = list(zip(scores.tolist(), keys.tolist(), strict=True))
    assert ranks == sorted(ranks, reverse=True)


@given(index=indexes(), mean_length=st.floats(0.5, 500))
def test_scores_lie_between_zero_and_one(index: tuple[list[Part], int], mean_length: float) -> None:
    """They are fused with similarities, so their scale may not depend on the query."""
    _, scores = bm25(*index, mean_length)

    assert np.all(scores > 0.0)
    assert np.all(scores < 1.0)


def test_a_rarer_term_counts_more() -> None:
    """Or names and ids would drown in common words."""
    keys, _ = bm25([(90, postings((1, 1, 9))), (2, postings((2, 1, 9)))], 100, 9.0)

    assert keys.tolist() == [2, 1]


def test_a_term_that_nobody_holds_changes_no_score() -> None:
    """No item could reach it; counted, it would weaken words against similarity."""
    known = (2, postings((2, 1, 9)))
    _, alone = bm25([known], 100, 9.0)
    _, beside_absent = bm25([known, (0, postings())], 100, 9.0)

    assert beside_absent[0] == alone[0]


def test_a_term_that_was_not_read_lowers_every_score() -> None:
    """Some item holds it, and might have reached more than those that were read."""
    known = (2, postings((2, 1, 9)))
    _, alone = bm25([known], 100, 9.0)
    _, beside_unread = bm25([known, (50, postings())], 100, 9.0)

    assert beside_unread[0] < alone[0]


def test_equal_scores_are_ordered_by_key_newest_first() -> None:
    """A fixed order keeps results the same from call to call."""
    keys, _ = bm25([(3, postings((5, 1, 9), (900, 1, 9), (77, 1, 9)))], 10, 9.0)

    assert keys.tolist() == [900, 77, 5]


@pytest.mark.parametrize("parts", [[], [(4, postings())]])
def test_nothing_read_is_nothing_found(parts: list[Part]) -> None:
    """Empty arrays of the right types, no division by zero."""
    keys, scores = bm25(parts, 0, 0.0)

    assert keys.dtype == np.int64
    assert scores.dtype == np.float32
    assert len(keys) == len(scores) == 0


def test_totals_that_lag_behind_the_postings_do_no_harm() -> None:
    """A count of items below a term's frequency, or a mean of 0, must not give NaN."""
    _, scores = bm25([(5, postings((1, 1, 9)))], 3, 0.0)

    assert 0.0 < scores[0] < 1.0


def test_terms_looked_up_in_texts_count_as_if_their_postings_had_been_read() -> None:
    """Too many items hold them to read all; what is left in the end is looked through."""
    texts = ["rome trip trip", "rome and a long trip by train", "rome", "a trip"]
    counted = [term_counts(text) for text in texts]
    mean = sum(length for _, length in counted) / len(texts)

    def part(term: str) -> Part:
        rows = [(k, n[term], length) for k, (n, length) in enumerate(counted) if term in n]
        return len(rows), postings(*rows)

    keys, whole = bm25([part(term) for term in ("rome", "trip", "train")], 4, mean)
    whole_of = dict(zip(keys.tolist(), whole.tolist(), strict=True))
    some, scores = bm25([part("rome")], 4, mean)
    unread = {term: idf(part(term)[0], 4) for term in ("trip", "train")}
    of_some = [texts[key] for key in some.tolist()]
    found = completed(scores, idf(3, 4), unread, of_some, mean)

    assert found.tolist() == pytest.approx([whole_of[key] for key in some.tolist()])
    first = completed(scores, idf(3, 4), unread, of_some[:1], mean)
    assert first[0] == found[0]
    assert (first[1:] < scores[1:]).all()


def test_a_plan_is_cut_to_the_terms_it_reads_whole() -> None:
    """Or else to the first: by something the items must be found."""
    frequencies = {"rome": 3, "trip": 500, "go": 900}

    assert whole_terms(read_plan(frequencies, 1000), frequencies) == 2
    assert whole_terms(read_plan(frequencies, 2000), frequencies) == 3
    assert whole_terms(read_plan({"go": 900}, 100), frequencies) == 1
    assert whole_terms([], frequencies) == 0
