"""The tokenizer gives the ids that HuggingFace's `tokenizers` gave for the same texts."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.embedders import wordpiece
from amv.embedders.wordpiece import WordPiece, bert

UNKNOWN = 100

# Written by `tokenizers` 0.23.3 from the tokenizer.json of all-MiniLM-L6-v2.
EXPECTED = [
    ("", []),
    (" \t\r\n ", []),
    ("Hello, World!", [7592, 1010, 2088, 999]),
    (
        "unaffable tokenization of embeddings",
        [14477, 20961, 3468, 19204, 3989, 1997, 7861, 8270, 4667, 2015],
    ),
    (
        "don't e-mail $3.50 + tax <at> 10:30~",
        [
            2123,
            1005,
            1056,
            1041,
            1011,
            5653,
            1002,
            1017,
            1012,
            2753,
            1009,
            4171,
            1026,
            2012,
            1028,
            2184,
            1024,
            2382,
            1066,
        ],
    ),
    ("order #4711/B_2 cancelled", [2344, 1001, 4700, 14526, 1013, 1038, 1035, 1016, 8014]),
    (
        "Crème brûlée à la façon d'Évry",
        [13675, 21382, 7987, 9307, 2063, 1037, 2474, 6904, 8663, 1040, 1005, 23408, 2854],
    ),
    ("cafe\u0301 = café", [7668, 1027, 7668]),
    ("Ærø Straße İstanbul ıĞ", [1097, 2099, 16415, 2358, 27807, 9960, 1104, 2290]),
    (
        "ΣΊΣΥΦ\u039fΣ σίγμα",
        [1173, 18199, 29733, 29735, 29736, 29730, 29733, 1173, 18199, 29721, 29728, 14608],
    ),
    (
        "П\u0440ив\u0435т, ми\u0440",
        [1194, 16856, 10325, 25529, 15290, 22919, 1010, 1191, 10325, 16856],
    ),
    ("naïve\xa0coöperation\u3000wide", [15743, 6792, 2898]),
    ("我喜歡Python編程。", [1855, 100, 100, 18750, 100, 100, 1636]),
    (
        "東京タワー へ ようこそ!",
        [1879, 1755, 1709, 30262, 30265, 1675, 1684, 30174, 30181, 30186, 999],
    ),
    ("\uf900𠀀 ext", [100, 100, 4654, 2102]),
    (
        "안녕하세요 세계",
        [1463, 30006, 30021, 29992, 30010, 30025, 30005, 30006, 29997, 30009, 29999, 30013, 100],
    ),
    (
        "ש\u05b8\u05c1ל\u05d5\u05b9ם ע\u05d5לם",
        [1266, 29799, 29792, 29800, 1259, 29792, 29799, 29800],
    ),
    (
        "مرحبا بالعالم؟",
        [1295, 17149, 29820, 29816, 25573, 1271, 25573, 23673, 29830, 25573, 23673, 22192, 100],
    ),
    (
        "नमस\u094dत\u0947 द\u0941न\u093fय\u093e।",
        [1327, 29867, 29874, 29859, 1325, 29863, 29877, 29868, 29876, 1344],
    ),
    ("สว\u0e31สด\u0e35", [100]),
    ("🙂", [100]),
    ("ship it 🚀🚀 now👍🏽", [2911, 2009, 100, 100]),
    ("zero\u200bwidth so\xadft \ufeffbom", [5717, 9148, 11927, 2232, 3730, 8945, 2213]),
    ("a\x00b\x07c\x0bd\x85e�f", [5925, 3207, 2546]),
    ("tab\tline\u2028para\u2029end", [21628, 2240, 11498, 2203]),
    ("x" * 100, [22038] + [20348] * 49),
    ("x" * 101, [100]),
    ("“quotes” — dashes… «gui»", [1523, 16614, 1524, 1517, 11454, 2229, 1529, 1077, 26458, 1090]),
    ("ﬁne ½ ² ™ ①", [1984, 2638, 1092, 1082, 1580, 100]),
]


@pytest.mark.parametrize(("text", "ids"), EXPECTED)
def test_ids_are_those_of_the_reference_tokenizer(text: str, ids: list[int]) -> None:
    """The model was trained on these ids; any other makes it read another text."""
    assert bert().encode(text, 1000) == ids
    assert bert().count(text) == len(ids)


@pytest.mark.parametrize("token", ["[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"])
def test_control_tokens_cannot_be_written_in_a_text(token: str) -> None:
    """Content from outside must not be able to end the text the model reads."""
    ids = bert().encode(f"a {token} b", 1000)

    assert len(ids) > 3
    assert not {0, 100, 101, 102, 103} & set(ids)


@given(words=st.lists(st.text(max_size=12), max_size=6))
def test_tokens_of_a_text_are_those_of_its_words(words: list[str]) -> None:
    """Both the memory of words and the cutting of passages rest on this."""
    apart = [number for word in words for number in bert().encode(word, 1000)]

    assert bert().encode(" ".join(words), 1000) == apart


@given(text=st.text(), limit=st.integers(min_value=1, max_value=20))
def test_a_limit_keeps_the_first_ids(text: str, limit: int) -> None:
    whole = bert().encode(text, 10_000)

    assert bert().encode(text, limit) == whole[:limit]


def test_a_lone_surrogate_is_dropped() -> None:
    """It cannot be encoded, so it must not get as far as something that encodes."""
    assert bert().encode("a\ud800b", 10) == bert().encode("ab", 10)


def test_what_is_remembered_is_bounded_and_changes_nothing() -> None:
    """An agent that runs for months must not keep every number it ever read."""
    tokenizer = WordPiece(["[UNK]", "[CLS]", "[SEP]", "a", "##0", "##1", "##2", "##3"])
    limit = wordpiece._REMEMBERED_WORDS_MAX
    words = [f"a{number:b}" for number in range(limit + 10)]

    before = [tokenizer.encode(word, 100) for word in words]

    assert len(tokenizer._remembered) <= limit
    assert [tokenizer.encode(word, 100) for word in words] == before


def test_a_word_that_no_pieces_cover_is_unknown_as_a_whole() -> None:
    tokenizer = WordPiece(["[UNK]", "[CLS]", "[SEP]", "ab", "##c"])

    assert tokenizer.encode("abc abd", 10) == [3, 4, 0]


def test_threads_get_the_same_ids() -> None:
    """They share what is remembered."""
    texts = [text for text, _ in EXPECTED] * 20
    tokenizer = WordPiece(wordpiece.VOCABULARY.read_text("utf-8").split("\n")[:-1])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: tokenizer.encode(text, 1000), texts))

    assert found == [ids for _, ids in EXPECTED] * 20


def test_the_vocabulary_is_the_pinned_one() -> None:
    """One line more or less shifts every id behind it."""
    content = wordpiece.VOCABULARY.read_bytes()

    assert hashlib.sha256(content).hexdigest() == wordpiece.VOCABULARY_SHA256
    assert content.count(b"\n") == 30_522
