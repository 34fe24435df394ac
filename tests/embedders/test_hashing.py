"""Feature hashing: a vector from words alone, the same on every machine."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.checks import shown
from amv.embedders import load
from amv.embedders.hashing import WORDS_MAX, Hashing
from amv.errors import InvalidInput

KNOWN = [0.0, -0.57735, -0.57735, 0.0, 0.0, 0.0, 0.0, -0.57735]


def similarity(one: str, other: str) -> float:
    first, second = Hashing().embed([one, other])
    return float(first @ second)


@given(texts=st.lists(st.text(), max_size=5), dimension=st.integers(min_value=8, max_value=300))
def test_every_text_gets_a_unit_vector(texts: list[str], dimension: int) -> None:
    """An index of unit vectors has no place for another length, nor for NaN."""
    matrix = Hashing(dimension=dimension).embed(texts)

    assert matrix.shape == (len(texts), dimension)
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1.0, atol=1e-6)


def test_vectors_are_the_same_in_every_process() -> None:
    """Python's own hash is not; a store would forget everything at a restart."""
    program = (
        "from amv.embedders import load\n"
        "print(load('hashing').embed(['the red fox', '']).tobytes().hex())"
    )

    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert outputs == {Hashing().embed(["the red fox", ""]).tobytes().hex()}


def test_the_vector_of_a_text_is_known() -> None:
    """A change of it would orphan the vectors that are stored."""
    (vector,) = Hashing(dimension=8).embed(["the red fox"])

    np.testing.assert_allclose(vector, KNOWN, atol=1e-6)


def test_shared_words_make_texts_similar_and_order_matters_a_little() -> None:
    same = similarity("the dog bit the man", "The dog bit the man!")
    turned = similarity("the dog bit the man", "the man bit the dog")
    other = similarity("the dog bit the man", "quarterly revenue grew")

    assert same == pytest.approx(1.0)
    assert other < turned < 0.999


@pytest.mark.parametrize("text", ["", " \n", "!?", "\U0001f642"])
def test_a_text_without_words_gets_the_first_unit_vector(text: str) -> None:
    (vector,) = Hashing(dimension=8).embed([text])

    assert vector.tolist() == [1.0] + [0.0] * 7


def test_words_beyond_the_limit_are_in_the_next_passage() -> None:
    text = " ".join(f"w{number}" for number in range(2 * WORDS_MAX))
    embedder = Hashing()

    (first, second) = embedder.passages(text)

    whole, part = embedder.embed([text, text[slice(*first)]])
    np.testing.assert_array_equal(whole, part)
    assert first[1] == second[0]
    assert second[1] == len(text)


@pytest.mark.parametrize(
    "dimension", [-1, 0, 7, 4097, "8", None, 8.0, True, float("nan"), 10**5000], ids=shown
)
def test_a_dimension_out_of_range_is_refused(dimension: Any) -> None:
    with pytest.raises(InvalidInput, match="8 to 4096"):
        Hashing(dimension=dimension)


def test_names_load_what_they_say() -> None:
    assert load("hashing").id == "hashing-256"
    assert load("hashing:64").dimension == 64
    assert load("minilm").id == "minilm-l6-v2-int8"


@pytest.mark.parametrize(
    "name",
    ["", "MiniLM", "hashing:", "hashing:x", "hashing:-8", "hashing:8\n", None, 5, 10**5000],
    ids=shown,
)
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(name: Any) -> None:
    with pytest.raises(InvalidInput, match="minilm or static or hashing or hashing:<dimension>"):
        load(name)


def test_loading_by_name_imports_no_model_runtime() -> None:
    """A command that embeds nothing should not wait for it."""
    program = (
        "import sys, amv.embedders\n"
        "amv.embedders.load('minilm')\n"
        "assert 'onnxruntime' not in sys.modules"
    )

    subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=True
    )
