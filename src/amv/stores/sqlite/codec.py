"""How vectors, cells and postings look as bytes.

A vector is kept in 24-bit fixed point, scaled by its largest component: three
bytes a component instead of four, for an error below the float32 rounding of
that component.  The high byte and the low two stand apart, each as one array,
so that a thousand vectors are decoded by four passes of numpy; and seven
vectors of 384 components fill a page of 8 KB to the last bytes.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from amv.errors import StoreError
from amv.memory.lexical import POSTING
from amv.memory.ports import Floats, Members

_STEPS = 127 * 65_536

Entries = npt.NDArray[np.void]

#: One posting as stored; its key is counted from that of its chunk.
ENTRY = np.dtype([("offset", "<u4"), ("tf", "<u2"), ("length", "<u2")])

OFFSET_MAX = 2**32 - 1


@lru_cache(maxsize=16)
def _layout(dimension: int) -> np.dtype[np.void]:
    return np.dtype([("high", "i1", (dimension,)), ("low", "<i2", (dimension,)), ("scale", "<f4")])


def encode_vectors(matrix: Floats) -> list[bytes]:
    """Return each row of *matrix*, of finite numbers, as bytes.

    >>> [len(data) for data in encode_vectors(np.ones((2, 384), np.float32))]
    [1156, 1156]
    """
    scale = np.abs(matrix).max(axis=1, initial=0.0).astype(np.float32)
    # A row of zeros has no scale; anything positive does.
    divisor = np.where(scale > 0.0, scale, 1.0).astype(np.float64)
    fixed = np.rint(matrix * (_STEPS / divisor)[:, None]).astype(np.int32)
    high = (fixed + 32_768) >> 16
    rows = np.empty(len(matrix), dtype=_layout(matrix.shape[1]))
    rows["high"] = high
    rows["low"] = fixed - (high << 16)
    rows["scale"] = scale
    size = rows.dtype.itemsize
    data = rows.tobytes()
    return [data[start : start + size] for start in range(0, len(data), size)]


def decode_vectors(blobs: Sequence[bytes]) -> Floats:
    """Return what `encode_vectors` was given, of shape (len(blobs), dimension)."""
    if not blobs:
        return np.empty((0, 0), dtype=np.float32)
    size = len(blobs[0])
    data = b"".join(blobs)
    if len(data) != size * len(blobs):
        raise StoreError("vectors of several dimensions were read together")
    rows = np.frombuffer(data, dtype=_layout((size - 4) // 3))
    # Both halves are whole numbers below 2^24, which float32 holds exactly.
    matrix: Floats = rows["high"].astype(np.float32)
    matrix *= np.float32(65_536.0)
    matrix += rows["low"]
    matrix *= (rows["scale"] / np.float32(_STEPS))[:, None]
    return matrix


def encode_members(members: Members) -> bytes:
    """Return the members of a cell as bytes: ids, codes, count."""
    ids = np.ascontiguousarray(members.ids, dtype="<i8").tobytes()
    codes = np.ascontiguousarray(members.codes, dtype=np.int8).tobytes()
    return ids + codes + len(members.ids).to_bytes(4, "little")


def decode_members(data: bytes) -> Members:
    """Return what `encode_members` was given; the arrays are read-only."""
    count = int.from_bytes(data[-4:], "little")
    ids = np.frombuffer(data, np.int64, count)
    codes = np.frombuffer(data, np.int8, len(data) - 4 - 8 * count, 8 * count)
    return Members(ids, codes.reshape(count, -1))


def decode_entries(data: bytes) -> Entries:
    """Return a copy of stored postings, with keys still counted from their chunk's."""
    return np.frombuffer(data, ENTRY).copy()


def decode_postings(chunks: Sequence[tuple[int, bytes]]) -> npt.NDArray[np.void]:
    """Return the postings of chunks (first key, bytes), in the order given."""
    entries = np.frombuffer(b"".join([data for _, data in chunks]), ENTRY)
    counts = [len(data) // ENTRY.itemsize for _, data in chunks]
    postings = np.empty(len(entries), dtype=POSTING)
    postings["key"] = np.repeat(np.array([first for first, _ in chunks], np.int64), counts)
    postings["key"] += entries["offset"]
    postings["tf"] = entries["tf"]
    postings["length"] = entries["length"]
    return postings
