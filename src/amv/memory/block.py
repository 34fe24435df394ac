"""A block: vectors in RAM, scanned whole.

Most of what a scan costs is reading memory, so that it goes by int8 codes; what
came out best is then read in full precision.
"""

import math
from collections.abc import Iterable

import numkong
import numpy as np
import numpy.typing as npt

from amv.errors import StoreError
from amv.memory.ports import Floats, Ids, Vectors

_BLOCK_MIN = 64
_PEAK_MIN = 1e-12


def _coded(matrix: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Return the int8 codes of vectors of shape (n, d), and what to multiply each by."""
    peak = np.maximum(np.abs(matrix).max(axis=1), np.float32(_PEAK_MIN))
    codes = np.rint(matrix * (np.float32(127.0) / peak)[:, None]).astype(np.int8)
    return codes, peak / np.float32(127.0)


class Block:
    """Vectors in RAM, scanned whole: as int8 codes first, the best again in full precision.

    A code is round(127 x / max|x|), a quarter of the bytes to read.  Codes are
    kept twice once they are read often: as they are, and packed.  Order is
    arbitrary: the places of removed vectors are taken by the last ones.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._place: dict[int, int] = {}
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        self._rows: Floats = np.empty((capacity, self._dimension), dtype=np.float32)
        self._codes = np.empty((capacity, self._dimension), dtype=np.int8)
        self._scales: Floats = np.empty(capacity, dtype=np.float32)
        self._ids: Ids = np.empty(capacity, dtype=np.int64)
        self._packed: numkong.PackedMatrix | None
        self._is_settled: bool
        self._step_max = 0.0
        self._unsettle()

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, vector_id: int) -> bool:
        return vector_id in self._place

    @property
    def ids(self) -> Ids:
        """Ids of shape (n,), in the order of `scan`."""
        return self._ids[: len(self)]

    @property
    def size_bytes(self) -> int:
        """Memory the vectors take."""
        codes_bytes = 2 * self._codes.nbytes  # as they are, and packed
        return self._rows.nbytes + codes_bytes + self._scales.nbytes + self._ids.nbytes

    def scan(self, query: Floats, limit: int) -> Floats:
        """Return rough dot products with *query*, of shape (d,), of at most *limit* vectors.

        They are in the order of `ids`, and off by about a thousandth; by a hundredth
        where few of a vector's numbers are much larger than all others.
        """
        return self.rough(query, limit)[0]

    def rough(self, query: Floats, limit: int) -> tuple[Floats, float]:
        """Return what `scan` does, and by how much two of them may be off in opposite directions.

        That is eight standard deviations, for numbers rounded independently of each
        other: of one of them to a step is step / √12, and so that of its product with
        a unit vector.
        """
        n = min(len(self), limit)
        if not n:
            return np.empty(0, dtype=np.float32), 0.0
        step = max(float(np.abs(query).max()), _PEAK_MIN) / 127.0
        code = np.rint(query * (1.0 / step)).astype(np.int8)[None, :]
        if n < len(self) or not self._is_settled:
            self._is_settled = True
            products = np.asarray(numkong.cdist(code, self._codes[:n], metric="dot"))
        else:
            products = np.asarray(numkong.dots_packed(code, self._packed_codes()))
        found: Floats = products[0].astype(np.float32)
        found *= self._scales[:n]
        found *= step
        return found, 8.0 * math.hypot(step, self._step_max) / math.sqrt(12.0)

    def _packed_codes(self) -> numkong.PackedMatrix:
        """Return the codes in the order in which they are read fastest.

        Packing them takes as long as two scans, so it waits for the second one
        after a change.
        """
        if self._packed is None:
            self._packed = numkong.dots_pack(self._codes[: len(self)])
        return self._packed

    def _unsettle(self) -> None:
        self._packed, self._is_settled = None, False

    def exact(self, places: Ids, query: Floats) -> Floats:
        """Return the dot products of *query* with the vectors at *places*, as `ids` has them."""
        products: Floats = self._rows.take(places, axis=0) @ query
        return products

    def places(self, vector_ids: Ids) -> Ids:
        """Return where vectors stand in `ids`; -1 for those that are not in here."""
        known = self._place
        return np.asarray([known.get(i, -1) for i in vector_ids.tolist()], dtype=np.int64)

    def add(self, vectors: Vectors) -> None:
        """Add vectors whose ids are not in here yet."""
        n, more = len(self), len(vectors.ids)
        if not more:
            return
        if vectors.matrix.shape[1] != self._dimension:
            raise StoreError(
                f"a stored vector has {vectors.matrix.shape[1]} dimensions, needed "
                f"{self._dimension}: the store is damaged; run `amv doctor`"
            )
        if n + more > len(self._ids):
            self._grow(max(_BLOCK_MIN, n + more, 3 * n // 2))
        new = slice(n, n + more)
        self._rows[new] = vectors.matrix
        self._codes[new], self._scales[new] = _coded(vectors.matrix)
        self._ids[new] = vectors.ids
        self._step_max = max(self._step_max, float(self._scales[new].max()))
        self._unsettle()
        self._place.update(zip(vectors.ids.tolist(), range(n, n + more), strict=True))

    def _grow(self, capacity: int) -> None:
        n, rows, codes, scales, ids = len(self), self._rows, self._codes, self._scales, self._ids
        step_max = self._step_max
        self._allocate(capacity)
        self._step_max = step_max
        self._rows[:n], self._codes[:n] = rows[:n], codes[:n]
        self._scales[:n], self._ids[:n] = scales[:n], ids[:n]

    def oldest(self, limit: int) -> Vectors:
        """Return at most *limit* of the vectors, those with the lowest ids."""
        order = np.argsort(self.ids)[:limit]
        return Vectors(self.ids[order], self._rows[order])

    def remove(self, vector_ids: Iterable[int]) -> None:
        """Remove vectors; ids that are not in here are passed over."""
        places = [self._place.pop(i) for i in vector_ids if i in self._place]
        n = len(self._place)
        gone = np.asarray(places, dtype=np.int64)
        holes = gone[gone < n]
        last = np.setdiff1d(np.arange(n, n + len(gone)), gone, assume_unique=True)
        self._rows[holes], self._codes[holes] = self._rows[last], self._codes[last]
        self._scales[holes], self._ids[holes] = self._scales[last], self._ids[last]
        self._unsettle()
        self._place.update(zip(self._ids[holes].tolist(), holes.tolist(), strict=True))

    def clear(self) -> None:
        """Remove everything and free the memory."""
        self._place.clear()
        self._allocate(0)
