"""What rows say: figures of one policy on one workload, over all seeds that were run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.lifecycle.ops import DAY_S
from bench.lifecycle.run import merged, quantile
from bench.store_rows import Row

READS, WRITES = ("recall", "ask", "question"), ("write",)
AGES = (1, 7, 30, 60)
"""Bounds of the ages of facts, in days."""

HALF_LIFE_DAYS = 30.0

Rows = list[Row]


@dataclass(frozen=True, slots=True)
class Of:
    """All rows of one policy on one workload, run in one way."""

    rows: Rows

    def took(self, kinds: Sequence[str]) -> dict[int, int]:
        """Return the latencies of requests of some kinds, in bins."""
        return merged(
            [row["took"][kind] for row in self.rows for kind in kinds if kind in row["took"]]
        )

    def ms(self, kinds: Sequence[str], q: float) -> float:
        """Return a quantile of the latencies, in milliseconds."""
        return quantile(self.took(kinds), q)

    def late(self, kinds: Sequence[str]) -> tuple[float, float]:
        """Return the shares of requests above ten times their median, and above two seconds."""
        counts = [row["late"][kind] for row in self.rows for kind in kinds if kind in row["late"]]
        total = sum(self.took(kinds).values())
        return (
            (
                sum(ten for ten, _ in counts) / total,
                sum(two for _, two in counts) / total,
            )
            if total
            else (0.0, 0.0)
        )

    @property
    def requests(self) -> int:
        """How many requests of the workload were answered, upkeep left out."""
        return sum(self.took((*READS, *WRITES)).values())

    @property
    def per_s(self) -> float:
        """Requests a second by the clock."""
        return self.requests / float(sum(row["wall_s"] for row in self.rows))

    @property
    def per_cpu_s(self) -> float:
        """Requests a second of the server's processor time, upkeep included."""
        return self.requests / float(sum(row["cpu_s"] for row in self.rows))

    @property
    def refused(self) -> int:
        """Requests that were answered with an error."""
        return sum(sum(row["refused"].values()) for row in self.rows)

    def scanned(self) -> list[float]:
        """Return mean, median, 95th percentile and most of what reads scanned."""
        return self._spread("scanned")

    def tokens(self) -> float:
        """Return the mean tokens of a prompt, NaN if none was made."""
        spread = self._spread("tokens")
        return spread[0] if spread else float("nan")

    def _spread(self, name: str) -> list[float]:
        each = [row[name] for row in self.rows if row[name]]
        if not each:
            return []
        weights = [one[0] for one in each]
        mean, p50, p95 = (
            float(np.average([one[place] for one in each], weights=weights)) for place in (1, 2, 3)
        )
        return [mean, p50, p95, max(one[4] for one in each)]

    def needed(self) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """Return age, needed, found, found hot of every read that needed something, all seeds."""
        each = [np.asarray(row["needed"], float).reshape(-1, 4) for row in self.rows]
        return np.concatenate(each) if each else np.zeros((0, 4))

    def recall(self, *, over_days: float = 0.0, under_days: float = np.inf) -> float:
        """Return the share of the facts needed that were found, of facts of an age."""
        some = self.needed()
        some = some[(some[:, 0] >= over_days) & (some[:, 0] < under_days)]
        return float(some[:, 2].sum() / some[:, 1].sum()) if len(some) else float("nan")

    def hot_recall(self, *, over_days: float = 0.0, under_days: float = np.inf) -> float:
        """Return the share of the facts needed that were found and hot, where tiers are told."""
        some = self.needed()
        some = some[(some[:, 3] >= 0) & (some[:, 0] >= over_days) & (some[:, 0] < under_days)]
        return float(some[:, 3].sum() / some[:, 1].sum()) if len(some) else float("nan")

    def overlap(self) -> float:
        """Return the mean share of what an exhaustive search finds that was found."""
        each = [row["overlap"] for row in self.rows if row.get("overlap")]
        if not each:
            return float("nan")
        return float(np.average([one[0] for one in each], weights=[one[1] for one in each]))

    def watched_hot(self) -> float:
        """Return how often a watched item that came back was hot, two half-lives on and later."""
        each = [np.asarray(row["watched"], float).reshape(-1, 2) for row in self.rows]
        some = np.concatenate(each)
        some = some[some[:, 0] >= 2 * HALF_LIFE_DAYS]
        return float(some[:, 1].mean()) if len(some) else float("nan")

    @property
    def moves(self) -> float:
        """Moves between tiers for a thousand requests."""
        return float(1000 * sum(row["moves"] for row in self.rows) / self.requests)

    @property
    def rss_mb(self) -> float:
        """Megabytes of the process at the end, above those of an idle one, mean over seeds."""
        return float(np.mean([row["rss_bytes"] - row["idle_rss_bytes"] for row in self.rows])) / 1e6

    @property
    def disk_mb(self) -> float:
        """Megabytes of files at the end, mean over seeds."""
        return float(np.mean([row["disk_bytes"] for row in self.rows])) / 1e6

    def lag_s(self) -> tuple[float, float]:
        """Return how long value events waited, median and most, in seconds of a clock."""
        each = [
            [lag / row["factor"] for lag in row["server"]["lags_s"]]
            for row in self.rows
            if row["server"]["lags_s"]
        ]
        if not each:
            return float("nan"), float("nan")
        return float(np.mean([one[0] for one in each])), max(one[2] for one in each)

    def spread_of(self, figure: Callable[["Of"], float]) -> tuple[float, float]:
        """Return the least and the most of a figure over seeds."""
        each = [figure(Of([row])) for row in self.rows]
        return min(each), max(each)


def grouped(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Of]]]:
    """Return what was measured by workload, way and policy."""
    found: dict[str, dict[str, dict[str, Rows]]] = {}
    for row in rows:
        if row["measure"] == "lifecycle":
            ways = found.setdefault(row["workload"], {})
            ways.setdefault(row["way"], {}).setdefault(row["arm"], []).append(row)
    return {
        workload: {way: {a: Of(own) for a, own in arms.items()} for way, arms in ways.items()}
        for workload, ways in found.items()
    }


def factor(about: Mapping[str, Any], wall_s: float) -> float:
    """Return how many times faster than a clock simulated time ran."""
    return float(about["days"]) * DAY_S / wall_s
