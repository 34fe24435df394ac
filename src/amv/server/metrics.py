"""What the gateway counts, for Prometheus to read; nothing is sent anywhere.

Counts are of this process.  Totals of the store are looked up when they are
asked for, at most every few seconds.
"""

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from amv.memory.service import MemoryService
from amv.memory.tiers import Tier
from amv.server import wire

FRESH_S = 5.0
_LATENCIES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_COUNTS = (0, 16, 64, 256, 1024, 2048, 4096, 6144, 8192)


class Metrics:
    """The counters of one gateway."""

    def __init__(self, memory: MemoryService) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Totals(memory))
        self._requests = Counter(
            "amv_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "amv_http_request_seconds",
            "Time from a request's arrival at the application to the end of its reply.",
            ["method", "route"],
            buckets=_LATENCIES_S,
            registry=self._registry,
        )
        self._scanned = Histogram(
            "amv_search_scanned",
            "Vectors scored and postings read by a search, by part.",
            ["part"],
            buckets=_COUNTS,
            registry=self._registry,
        )
        self._incomplete = Counter(
            "amv_search_incomplete",
            "Searches that returned fewer than k although more may exist.",
            registry=self._registry,
        )
        self._parts = {
            part: self._scanned.labels(part) for part in ("hot", "warm", "cold", "postings")
        }
        self._known: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def note_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request; *route* is a path of the API, not what was asked for."""
        known = self._known.get((method, route, status))
        if known is None:
            method = method if method in ("GET", "POST", "PATCH", "DELETE") else "other"
            known = (
                self._requests.labels(method, route or "other", str(status)),
                self._seconds.labels(method, route or "other"),
            )
            if route:
                self._known[(method, route, status)] = known
        known[0].inc()
        known[1].observe(took_s)

    def note_result(self, found: object) -> None:
        """Count what a search or a sweep did."""
        if isinstance(found, wire.SearchOut):
            for part, counted in self._parts.items():
                counted.observe(getattr(found.scanned, part))
            if not found.complete:
                self._incomplete.inc()

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Totals(Collector):
    """What the store holds, looked up when asked for."""

    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
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
