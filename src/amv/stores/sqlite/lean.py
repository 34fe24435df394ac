"""Saved indexes without the centroids in them, which stand in the table of cells as well.

A saved index begins with a checksum; then come two numbers of four bytes, how
many vectors there are and how many bytes each takes, and the vectors.  Nothing
is left out of one that looks otherwise.  What is put together again is the same
to the byte, or the checksum says that it is not.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import numpy as np

from amv.memory.ports import Codes, Ids

_COUNTS = 32
_VECTORS = 40


def without_centroids(snapshot: bytes, cells: Iterable[tuple[int, bytes]]) -> tuple[bytes, Ids]:
    """Return a saved index without the centroids of *cells*, and the id of each by its place.

    A vector that is no centroid of these stays; 0 is its id.
    """
    matrix = _vectors(snapshot)
    known = {_digest(centroid): cell_id for cell_id, centroid in cells}
    cell_ids = np.asarray([known.get(_digest(row.tobytes()), 0) for row in matrix], dtype=np.int64)
    left = matrix[cell_ids == 0].tobytes()
    return snapshot[:_VECTORS] + left + snapshot[_VECTORS + matrix.nbytes :], cell_ids


def with_centroids(data: bytes, cell_ids: Ids, centroids: Mapping[int, bytes]) -> bytes:
    """Return the saved index of which `without_centroids` left *centroids* out."""
    width = int.from_bytes(data[_COUNTS + 4 : _VECTORS], "little")
    parts, end = [data[:_VECTORS]], _VECTORS
    for cell_id in cell_ids.tolist():
        if cell_id:
            parts.append(centroids.get(cell_id, b""))
        else:
            parts.append(data[end : end + width])
            end += width
    return b"".join([*parts, data[end:]])


def _vectors(snapshot: bytes) -> Codes:
    """Return the vectors in a saved index as bytes, of shape (n, width)."""
    count = int.from_bytes(snapshot[_COUNTS : _COUNTS + 4], "little")
    width = int.from_bytes(snapshot[_COUNTS + 4 : _VECTORS], "little")
    if not 0 < count * width <= len(snapshot) - _VECTORS:
        return np.empty((0, 0), dtype=np.uint8)
    return np.frombuffer(snapshot, np.uint8, count * width, _VECTORS).reshape(count, width)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
