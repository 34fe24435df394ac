"""The bytes of vectors, cells and postings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from amv.errors import StoreError
from amv.memory.ports import Members
from amv.stores.sqlite.codec import (
    decode_members,
    decode_vectors,
    encode_members,
    encode_vectors,
)

MATRICES = npst.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 40)),
    # Unit rows have a component of 1/√d at least; near 1e-38 float32 itself gives out.
    elements=st.floats(-1e6, 1e6, width=32).map(lambda value: value if abs(value) > 1e-20 else 0.0),
)


@given(MATRICES)
def test_a_component_is_off_by_half_a_step_of_the_largest_at_most(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    again = decode_vectors(encode_vectors(matrix))

    largest = np.abs(matrix).max(axis=1, keepdims=True).astype(np.float64)
    # Half a step of the fixed point, and two roundings to float32.
    allowed = largest * (0.5 / 32_767 + 2.0**-22)
    assert again.dtype == np.float32
    assert (np.abs(again.astype(np.float64) - matrix) <= allowed).all()


@given(MATRICES)
def test_encoding_what_was_decoded_changes_nothing(
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    """So a vector that is moved or staged any number of times does not drift."""
    once = decode_vectors(encode_vectors(matrix))

    assert np.allclose(decode_vectors(encode_vectors(once)), once, rtol=2.0**-22, atol=0.0)


def test_rows_of_zeros_and_no_rows_are_kept() -> None:
    zeros = np.zeros((2, 3), np.float32)

    assert decode_vectors(encode_vectors(zeros)).tolist() == zeros.tolist()
    assert encode_vectors(np.empty((0, 3), np.float32)) == []
    assert decode_vectors([]).shape == (0, 0)


def test_a_cosine_is_kept_to_within_a_hundred_thousandth() -> None:
    """Which of two items is nearer is decided on these, so they must be as good as exact."""
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((2000, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = vectors[0]

    kept = decode_vectors(encode_vectors(vectors))

    assert np.abs(kept @ query - vectors @ query).max() < 1e-5


def test_ten_vectors_of_the_default_model_fit_a_page() -> None:
    """8,192 bytes hold a header of 8 and cells of the blob, 9 bytes of its own and a pointer."""
    (data,) = encode_vectors(np.ones((1, 384), np.float32))

    assert 8 + 10 * (len(data) + 4 + 7 + 2) <= 8192


def test_vectors_of_two_dimensions_are_not_read_as_one_matrix() -> None:
    short, long = np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)

    with pytest.raises(StoreError, match="several dimensions"):
        decode_vectors([*encode_vectors(short), *encode_vectors(long)])


@given(
    npst.arrays(np.int64, st.integers(1, 70)),
    st.integers(1, 20),
    st.integers(0, 2**32 - 1),
)
def test_members_come_back_exactly(
    ids: np.ndarray[tuple[int], np.dtype[np.int64]], width: int, seed: int
) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, (len(ids), width), np.uint8)

    again = decode_members(len(ids), encode_members(Members(ids, codes)))

    assert again.ids.tolist() == ids.tolist()
    assert again.codes.tolist() == codes.tolist()
