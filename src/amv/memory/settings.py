"""The numbers a memory runs by.  All are data; none is read from the environment here."""

from dataclasses import dataclass, field

from amv.checks import check_fields
from amv.errors import InvalidInput
from amv.memory.ranking import RankWeights
from amv.memory.value import PRESETS, ValueModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most a search may score or read, per part; see `amv.memory.search`.

    *hot*, *warm* and *cold* count query-vector distances, those to centroids
    among them; *postings* counts postings read and the vectors scored because
    of them.
    """

    hot: int = 1024
    warm: int = 3072
    cold: int = 3072
    postings: int = 1024

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.hot, self.warm, self.cold, self.postings) < 256:
            raise InvalidInput(f"each part of the budget must be at least 256, got {self!r}")

    @property
    def total(self) -> int:
        """The most one search may scan."""
        return self.hot + self.warm + self.cold + self.postings


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """When vectors are put into cells, and how large cells are.

    A namespace with at most *from_vectors* vectors has no cells and is scanned
    exactly; after that, *drain_at* vectors may wait outside the cells.  A cell
    is split into ones of about *target* when it outgrows *split_above*.
    *probes_warm* and *probes_cold* are how many of the nearest cells the two
    parts of a search look at, before the budget cuts them.
    """

    from_vectors: int = 2048
    drain_at: int = 512
    target: int = 20
    split_above: int = 60
    probes_warm: int = 100
    probes_cold: int = 220

    def __post_init__(self) -> None:
        check_fields(self)
        if not 2 <= self.target < self.split_above <= 96:
            raise InvalidInput(f"need 2 <= target < split_above <= 96, got {self!r}")
        if min(self.from_vectors, self.drain_at, self.probes_warm, self.probes_cold) < 1:
            raise InvalidInput(f"counts of vectors and probes must be at least 1, got {self!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How one memory behaves.

    *cold_below* is the similarity under which the best match so far counts as
    poor, so that a search goes on into cold cells by itself.  *cache_bytes*
    bounds the vectors and cells kept in RAM over all namespaces.  *keep_repeats* makes
    an item of all that is told, also where it tells nothing new (see `repeats`);
    *flag_contradictions* compares new texts with those there (see `contradiction`).
    """

    value_model: ValueModel = field(default_factory=lambda: PRESETS["default"])
    hot_max: int = 1024
    probation_max: int = 32
    budget: Budget = field(default_factory=Budget)
    cells: CellSettings = field(default_factory=CellSettings)
    weights: RankWeights = field(default_factory=RankWeights)
    cold_below: float = 0.5
    rerank: int = 64
    k_max: int = 256
    content_bytes_max: int = 1 << 20
    evict: bool = False
    keep_repeats: bool = False
    flag_contradictions: bool = True
    cache_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.hot_max <= self.budget.hot:
            raise InvalidInput(
                f"hot_max must be 1 to the hot budget of {self.budget.hot}, got {self.hot_max}"
            )
        if not 0 <= self.probation_max <= self.hot_max // 2:
            raise InvalidInput(
                f"probation_max must be 0 to half of hot_max ({self.hot_max // 2}), "
                f"got {self.probation_max}"
            )
        if not -1.0 <= self.cold_below <= 1.0:
            raise InvalidInput(f"cold_below must be -1 to 1, got {self.cold_below!r}")
        for name, least in (
            ("rerank", 0),
            ("k_max", 1),
            ("content_bytes_max", 1),
            ("cache_bytes", 0),
        ):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be at least {least}, got {getattr(self, name)}")

    def rerank_for(self, k: int) -> int:
        """Return how many of the best candidates a search for *k* scores again exactly."""
        return min(max(self.rerank, 2 * k), self.budget.warm // 2)
