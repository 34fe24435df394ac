"""What the gateway counts, for Prometheus to read; nothing is sent anywhere.

Counts are of this process.  Totals of the store are looked up when they are
asked for, at most every few seconds.
"""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from amv.guard.certificate import ALPHA
from amv.guard.service import GuardService
from amv.memory.service import MemoryService
from amv.memory.tiers import Tier
from amv.server.found import FoundOut

FRESH_S = 5.0
_LATENCIES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_COUNTS = (0, 16, 64, 256, 1024, 2048, 4096, 6144, 8192)
_PARTS = ("hot", "warm", "cold", "postings")
_METHODS = frozenset(("GET", "POST", "PATCH", "DELETE"))


class _Histogram:
    """How often a number fell into each bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, number: float) -> None:
        """Count one number."""
        self._counts[bisect_left(self._bounds, number)] += 1
        self._sum += number

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add what was counted to a family of metrics."""
        names = [*map(str, map(float, self._bounds)), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets, self._sum)


class Metrics(Collector):
    """The counters of one gateway.

    They are kept here and only handed to the library when someone asks: its own
    counters take several locks for each number, and a search counts six.
    """

    def __init__(self, memory: MemoryService, guard: GuardService | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Totals(memory, guard))
        self._registry.register(self)
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[tuple[str, str], _Histogram] = {}
        self._scanned = {part: _Histogram(_COUNTS) for part in _PARTS}
        self._incomplete = 0

    def note_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request; *route* is a path of the API, not what was asked for."""
        method = method if method in _METHODS else "other"
        route = route or "other"
        with self._lock:
            self._requests[method, route, str(status)] += 1
            seconds = self._seconds.get((method, route))
            if seconds is None:
                seconds = self._seconds[method, route] = _Histogram(_LATENCIES_S)
            seconds.observe(took_s)

    def note_result(self, found: object) -> None:
        """Count what a search did."""
        if isinstance(found, FoundOut):
            with self._lock:
                for part, counted in self._scanned.items():
                    counted.observe(getattr(found.scanned, part))
                self._incomplete += not found.complete

    def describe(self) -> list[Metric]:
        """Leave the names to `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted so far."""
        requests = CounterMetricFamily(
            "amv_http_requests",
            "Requests by route and status.",
            labels=["method", "route", "status"],
        )
        seconds = HistogramMetricFamily(
            "amv_http_request_seconds",
            "Time from a request's arrival at the application to the end of its reply.",
            labels=["method", "route"],
        )
        scanned = HistogramMetricFamily(
            "amv_search_scanned",
            "Vectors scored and postings read by a search, by part.",
            labels=["part"],
        )
        with self._lock:
            for labels, count in self._requests.items():
                requests.add_metric(labels, count)
            for names, counted in self._seconds.items():
                counted.add_to(seconds, names)
            for part, counted in self._scanned.items():
                counted.add_to(scanned, (part,))
            incomplete = self._incomplete
        yield requests
        yield seconds
        yield scanned
        yield CounterMetricFamily(
            "amv_search_incomplete",
            "Searches that returned fewer than k although more may exist.",
            value=incomplete,
        )

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def _certificate(guard: GuardService) -> Iterator[Metric]:
    """Yield what the gate's certificate is, and what became known since it was adopted."""
    standing = guard.certificate()
    state = "none" if standing is None else standing.screen(guard.ground).state
    states = GaugeMetricFamily(
        "amv_certificate",
        "The certificate of the gate: 1 for what it is, 0 for what it is not.",
        labels=["state"],
    )
    for name in ("none", "in_force", "stale", "withdrawn"):
        states.add_metric([name], float(name == state))
    yield states
    for name, what in (
        ("executed", "Actions that went ahead as certified, and became known since."),
        ("harmed", "Those of them that did harm."),
        ("evidence", f"What the alarm has by now; at {1.0 / ALPHA:g} the certificate goes."),
    ):
        number = 0.0 if standing is None else float(getattr(standing, name))
        yield GaugeMetricFamily(f"amv_certificate_{name}", what, value=number)


class _Totals(Collector):
    """What the store holds, looked up when asked for."""

    def __init__(self, memory: MemoryService, guard: GuardService | None) -> None:
        self._memory = memory
        self._guard = guard
        self._read_s = -FRESH_S
        self._found: list[Metric] = []

    def describe(self) -> list[Metric]:
        """Say nothing of the store before someone asks."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield totals, read anew if they are older than FRESH_S."""
        now_s = time.monotonic()
        if now_s - self._read_s >= FRESH_S:
            self._found = list(self._read())
            self._read_s = now_s
        yield from self._found

    def _read(self) -> Iterator[Metric]:
        stats = self._memory.stats()
        tiers = GaugeMetricFamily("amv_items", "Live items by tier.", labels=["tier"])
        for tier in Tier:
            tiers.add_metric([tier.name.lower()], stats.tiers.get(tier, 0))
        yield tiers
        for name, what, value in (
            ("amv_namespaces", "Namespaces.", stats.namespaces),
            ("amv_vectors", "Indexed vectors.", stats.vectors),
            ("amv_vectors_pending", "Vectors that wait to be put into cells.", stats.pending),
            ("amv_cells", "Cells.", stats.cells),
            ("amv_store_bytes", "Bytes of the store's files.", stats.store_bytes),
        ):
            yield GaugeMetricFamily(name, what, value=value)
        if self._guard is not None:
            yield from _certificate(self._guard)
        yield from self._activity()

    def _activity(self) -> Iterator[Metric]:
        """Yield what this process has done."""
        did = self._memory.activity()
        lookups = CounterMetricFamily(
            "amv_lookups",
            "Cells and items that searches needed: found in RAM (hit) or read (miss).",
            labels=["of", "result"],
        )
        lookups.add_metric(["cells", "hit"], did.cells_cached)
        lookups.add_metric(["cells", "miss"], did.cells_read)
        lookups.add_metric(["items", "hit"], did.rows_cached)
        lookups.add_metric(["items", "miss"], did.rows_read)
        yield lookups
        for name, what, count in (
            ("amv_sweep_visited", "Index rows that sweeps read.", did.swept),
            ("amv_sweep_moves", "Items that sweeps moved.", did.moved),
            ("amv_events_folded", "Value events applied to items.", did.folded),
        ):
            yield CounterMetricFamily(name, what, value=count)
        for name, what, count in (
            ("amv_events_unfolded", "Value events logged and not applied yet.", did.unfolded),
            ("amv_namespaces_cached", "Namespaces held in RAM.", did.namespaces_cached),
        ):
            yield GaugeMetricFamily(name, what, value=count)
