"""The embedder without a model: token vectors added up, the same to the last bit everywhere."""

import hashlib
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.embedders import load, name_of, wordpiece
from amv.embedders.minilm import MiniLM
from amv.embedders.static import DIMENSION, TABLE, TOKENS_MAX, Static
from amv.errors import EmbedderError

SENTENCE = "The keys to the cellar are in the blue drawer."
KNOWN_SHA256 = "3e7e9108690502cda7fff1cbf8ecacfc2180601b5c9d2e8f85109b3bccfa3b3b"
EMBEDDER = Static()


def similarity(one: str, other: str) -> float:
    first, second = EMBEDDER.embed([one, other])
    return float(first @ second)


def mixed_texts() -> list[str]:
    """Return texts of 0 to 300 words, in no order of length."""
    rng = random.Random(5)
    lexicon = ["order", "blue", "Tuesday", "refund", "naïve", "東京", "#4711", "the", "of", "🙂"]
    return [" ".join(rng.choices(lexicon, k=rng.choice([0, 1, 7, 40, 300]))) for _ in range(40)]


def test_vectors_are_known_to_the_last_bit() -> None:
    """A store keeps them for years and on any machine; a change of one is another embedder."""
    vectors = EMBEDDER.embed([SENTENCE, "", "🙂", "port 8080"])

    assert hashlib.sha256(vectors.astype("<f4").tobytes()).hexdigest() == KNOWN_SHA256


@given(texts=st.lists(st.text(), max_size=5))
def test_every_text_gets_a_unit_vector(texts: list[str]) -> None:
    """An index of unit vectors has no place for another length, nor for NaN."""
    matrix = EMBEDDER.embed(texts)

    assert matrix.shape == (len(texts), DIMENSION)
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1.0, atol=1e-6)


def test_a_text_gets_the_same_vector_alone_and_among_others() -> None:
    texts = mixed_texts()

    together = EMBEDDER.embed(texts)
    alone = np.concatenate([EMBEDDER.embed([text]) for text in texts])

    np.testing.assert_array_equal(together, alone)


@given(words=st.permutations(["naïve", "#4711", "東京", "unbelievably", "the", "🙂"]))
def test_sums_are_exact_whatever_their_order(words: list[str]) -> None:
    """Whole numbers are added, so that no kernel's order of summing can show."""
    expected = EMBEDDER.embed([" ".join(sorted(words))])

    np.testing.assert_array_equal(EMBEDDER.embed([" ".join(words)]), expected)


def test_no_sum_of_tokens_is_too_large_to_be_exact() -> None:
    rows, scales = EMBEDDER._rows()

    largest = float((np.abs(rows).max(axis=1) * scales).max())

    assert TOKENS_MAX * largest < 2**53
    assert rows.shape == (30522, DIMENSION)
    assert scales.min() >= 1.0


def test_meaning_counts_and_words_of_every_sentence_hardly_do() -> None:
    """Feature hashing knows no synonyms, and takes "the" for as good a word as any."""
    assert similarity("the car is broken", "a truck needs repair") > 0.3
    assert similarity("the car is in it", "the poem is in it") < similarity("car", "vehicle")


@pytest.mark.parametrize("text", [" \n\t", "\u200b\x00"])
def test_a_text_without_words_gets_the_vector_of_the_empty_text(text: str) -> None:
    np.testing.assert_array_equal(EMBEDDER.embed([text]), EMBEDDER.embed([""]))


def test_what_the_vocabulary_lacks_is_one_token_and_leaves_the_rest_its_meaning() -> None:
    np.testing.assert_array_equal(EMBEDDER.embed(["🙂"]), EMBEDDER.embed(["👍"]))
    assert similarity("my cat is ill 🙂", "my cat is ill") > 0.9


def test_tokens_that_cancel_leave_the_vector_of_the_empty_text() -> None:
    """No text is known that does it; NaN in an index would make every comparison false."""
    embedder = Static()
    rows, scales = EMBEDDER._rows()
    first, second = (wordpiece.bert().encode(word, 1)[0] for word in ("cat", "dog"))
    opposed = rows.copy()
    opposed[second] = -opposed[first]
    even = scales.copy()
    even[second] = even[first]
    embedder._table = (opposed, even)

    np.testing.assert_array_equal(embedder.embed(["cat dog"]), embedder.embed([""]))


def test_long_contents_have_the_passages_that_minilm_gives_them() -> None:
    text = " ".join(f"house {number % 10}." for number in range(400))

    spans = EMBEDDER.passages(text)

    whole, first = EMBEDDER.embed([text, text[slice(*spans[0])]])
    assert spans == MiniLM().passages(text)
    assert len(spans) > 3
    assert similarity(text, text[slice(*spans[0])]) > 0.99
    assert whole.shape == first.shape == (DIMENSION,)


def test_tokens_beyond_the_limit_are_not_read() -> None:
    text = " ".join(["house"] * TOKENS_MAX)

    np.testing.assert_array_equal(EMBEDDER.embed([text]), EMBEDDER.embed([f"{text} boat"]))


def test_threads_get_the_vectors_of_one() -> None:
    texts = mixed_texts()
    expected = EMBEDDER.embed(texts)
    fresh = Static()

    def embed(_: int) -> npt.NDArray[np.float32]:
        return fresh.embed(texts)

    with ThreadPoolExecutor(4) as pool:
        for matrix in pool.map(embed, range(8)):
            np.testing.assert_array_equal(matrix, expected)


def test_a_missing_table_is_reported_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"missing\.bin; install amv again") as caught:
        Static(table=tmp_path / "missing.bin").warm_up()

    assert isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize("size", [0, 1000, None])
def test_another_table_is_refused(tmp_path: Path, size: int | None) -> None:
    """Vectors of another table would sit in the store unnoticed."""
    path = tmp_path / "table.bin"
    shutil.copy(TABLE, path)
    with path.open("r+b") as file:
        if size is None:
            file.write(b"\x00")
        else:
            file.truncate(size)

    with pytest.raises(EmbedderError, match="sha256 fac6164d"):
        Static(table=path).embed(["a"])


def test_its_name_and_id_lead_to_each_other() -> None:
    assert load("static").id == "minilm-l6-v2-static-256-1"
    assert name_of(load("static").id) == "static"


def test_it_loads_no_model_runtime() -> None:
    """What it is for: a process that starts at once, and has no 200 MB for a model."""
    program = (
        "import sys\n"
        "from amv.embedders import load\n"
        "load('static').embed(['a'])\n"
        "assert 'onnxruntime' not in sys.modules"
    )

    subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )
