"""How vectors, cells and postings look as bytes.

A vector is kept in 16-bit fixed point, scaled by its largest component: two
bytes a component instead of four.  A component is off by at most 1/65,534 of
the largest one, and the errors of many cancel: a cosine of 384 dimensions is
off by about 2e-6, where float32 itself adds up to 1e-7.  Ten such vectors fill
a page of 8 KB.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from amv.errors import StoreError
from amv.memory.lexical import POSTING, TF_MAX
from amv.memory.ports import Floats, Members
from amv.stores.sqlite.damage import UNDECODABLE, damaged

_STEPS = 32_767

Entries = npt.NDArray[np.void]

#: One posting as stored; its key is counted from that of its chunk.
ENTRY = np.dtype([("offset", "<u4"), ("tf", "u1"), ("length", "<u2")])
_WIDE_ENTRY = np.dtype([("offset", "<u4"), ("tf", "<u2"), ("length", "<u2")])

OFFSET_MAX = 2**32 - 1


@lru_cache(maxsize=16)
def _layout(dimension: int) -> np.dtype[np.void]:
    return np.dtype([("fixed", "<i2", (dimension,)), ("scale", "<f4")])


def encode_vectors(matrix: Floats) -> list[bytes]:
    """Return each row of *matrix*, of finite numbers, as bytes.

    >>> [len(data) for data in encode_vectors(np.ones((2, 384), np.float32))]
    [772, 772]
    """
    scale = np.abs(matrix).max(axis=1, initial=0.0).astype(np.float32)
    # A row of zeros has no scale; anything positive does.
    divisor = np.where(scale > 0.0, scale, 1.0).astype(np.float64)
    rows = np.empty(len(matrix), dtype=_layout(matrix.shape[1]))
    rows["fixed"] = np.rint(matrix * (_STEPS / divisor)[:, None])
    rows["scale"] = scale
    size = rows.dtype.itemsize
    data = rows.tobytes()
    return [data[start : start + size] for start in range(0, len(data), size)]


def vector_bytes(dimension: int) -> int:
    """Return how long the blob of a vector is."""
    return _layout(dimension).itemsize


def decode_vectors(blobs: Sequence[bytes]) -> Floats:
    """Return what `encode_vectors` was given, of shape (len(blobs), dimension)."""
    if not blobs:
        return np.empty((0, 0), dtype=np.float32)
    try:
        size = len(blobs[0])
        data = b"".join(blobs)
        if len(data) != size * len(blobs):
            raise StoreError("vectors of several dimensions were read together; run `amv doctor`")
        rows = np.frombuffer(data, dtype=_layout((size - 4) // 2))
    except UNDECODABLE as error:
        raise damaged("a vector") from error
    matrix: Floats = rows["fixed"].astype(np.float32)
    matrix *= (rows["scale"] / np.float32(_STEPS))[:, None]
    return matrix


def encode_members(members: Members) -> bytes:
    """Return the members of a cell as bytes: ids, then codes."""
    return (
        np.ascontiguousarray(members.ids, dtype="<i8").tobytes()
        + np.ascontiguousarray(members.codes).tobytes()
    )


def decode_members(count: int, data: bytes) -> Members:
    """Return the *count* members that `encode_members` was given; the arrays are read-only."""
    try:
        ids = np.frombuffer(data, np.int64, count)
        codes = np.frombuffer(data, np.uint8, len(data) - 8 * count, 8 * count)
        return Members(ids, codes.reshape(count, -1))
    except UNDECODABLE as error:
        raise damaged("a cell") from error


def extended(parts: Iterable[tuple[int, bytes]], more: Members) -> tuple[bytes, bytes]:
    """Return the ids and the codes, as bytes, of parts of a cell (count, data) and of *more*."""
    ids = codes = b""
    width = more.codes.shape[1]
    for count, data in parts:
        if type(count) is not int or type(data) is not bytes or len(data) != count * (8 + width):
            raise damaged("a cell with parts of several dimensions")
        ids += data[: 8 * count]
        codes += data[8 * count :]
    return ids + more.ids.tobytes(), codes + more.codes.tobytes()


def join_members(parts: Sequence[Members]) -> Members:
    """Return the members of all parts of a cell as one."""
    if len(parts) == 1:
        return parts[0]
    try:
        return Members(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.codes for part in parts]),
        )
    except ValueError as error:
        raise damaged("a cell with parts of several dimensions") from error


def decode_centroids(blobs: Sequence[bytes]) -> Floats:
    """Return the centroids of cells, of shape (len(blobs), dimension)."""
    if not blobs:
        return np.empty((0, 0), dtype=np.float32)
    try:
        data = np.frombuffer(b"".join(blobs), np.float16).reshape(len(blobs), -1)
        if any(len(blob) != len(blobs[0]) for blob in blobs):
            raise ValueError("centroids of several dimensions")
    except UNDECODABLE as error:
        raise damaged("the centroid of a cell") from error
    return data.astype(np.float32)


def narrowed(data: bytes) -> bytes:
    """Return postings as they are stored, of what was stored by schemas before the seventh."""
    wide = np.frombuffer(data, _WIDE_ENTRY, len(data) // _WIDE_ENTRY.itemsize)
    entries = np.empty(len(wide), dtype=ENTRY)
    entries["offset"], entries["length"] = wide["offset"], wide["length"]
    entries["tf"] = np.minimum(wide["tf"], TF_MAX)
    return entries.tobytes()


def decode_entries(data: bytes) -> Entries:
    """Return a copy of stored postings, with keys still counted from their chunk's."""
    try:
        return np.frombuffer(data, ENTRY).copy()
    except UNDECODABLE as error:
        raise damaged("a list of postings") from error


def decode_postings(chunks: Sequence[tuple[int, bytes]]) -> npt.NDArray[np.void]:
    """Return the postings of chunks (first key, bytes), in the order given."""
    try:
        entries = np.frombuffer(b"".join([data for _, data in chunks]), ENTRY)
        counts = [len(data) // ENTRY.itemsize for _, data in chunks]
        postings = np.empty(len(entries), dtype=POSTING)
        postings["key"] = np.repeat(np.array([first for first, _ in chunks], np.int64), counts)
    except UNDECODABLE as error:
        raise damaged("a list of postings") from error
    postings["key"] += entries["offset"]
    postings["tf"] = entries["tf"]
    postings["length"] = entries["length"]
    return postings
