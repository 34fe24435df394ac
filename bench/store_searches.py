"""What searches by vector find, scan and cost, against an exhaustive float32 search.

Queries are held out: none is stored.  There are two truths.  *Nearest* are the
ten items of highest cosine.  *Ranked* are the ten that an exhaustive search
would show: ordered as AMV orders, by similarity and a small value prior.  A
memory whose items differ in value shows other items than the nearest on
purpose, so the index alone is measured with the prior switched off (`prior`
False), where both truths are the same.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

import amv
from amv.memory.ports import Floats, Ids
from bench.store_given import NAMESPACE
from bench.store_memory import Placed, Subject
from bench.store_rows import Sink

K = 10
COLD = {"default": None, "cold": True, "no_cold": False}
"""What is passed as `cold`, by the name it has in rows."""

BUDGET_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_WARM_UP = 50
_QUERIES_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Places of the right answers, of shape (queries, K)."""

    nearest: Ids
    ranked: Ids


def truth(subject: Subject, where: Placed, queries: int) -> Truth:
    """Search exhaustively in float32."""
    weights = subject.settings.weights
    prior = (weights.value / weights.vector) * where.values
    wanted, vectors = subject.dataset.queries[:queries], subject.dataset.vectors
    nearest, ranked = [], []
    for start in range(0, len(wanted), _QUERIES_AT_ONCE):
        similarities = wanted[start : start + _QUERIES_AT_ONCE] @ vectors.T
        nearest.append(_best(similarities))
        ranked.append(_best(similarities + prior))
    return Truth(nearest=np.concatenate(nearest), ranked=np.concatenate(ranked))


def _best(scores: Floats) -> Ids:
    k = min(K, scores.shape[1])
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return np.asarray(best, dtype=np.int64)


def without_prior(settings: amv.MemorySettings) -> amv.MemorySettings:
    """Return settings under which similarity alone orders what a vector finds."""
    return replace(settings, weights=replace(settings.weights, value=0.0))


def passes(subject: Subject, where: Placed, right: Truth, sink: Sink) -> None:
    """Search with and without the value prior, and with each kind of going into cold cells."""
    for prior in (True, False):
        settings = subject.settings if prior else without_prior(subject.settings)
        with subject.open(settings) as memory:
            if prior:
                sink.add("reopened", prior=prior, latency_ms=_first_searches(memory, subject))
            _warm_up(memory, subject)
            for name in COLD:
                figures = one_pass(memory, subject, where, right, settings.budget, name)
                sink.add("searches", prior=prior, cold=name, **figures)


def curve(subject: Subject, where: Placed, right: Truth, sink: Sink) -> None:
    """Search with several budgets, and as many more or fewer cells looked at."""
    base = without_prior(subject.settings)
    for factor in BUDGET_FACTORS:
        budget = replace(
            base.budget,
            warm=round(base.budget.warm * factor),
            cold=round(base.budget.cold * factor),
        )
        cells = replace(
            base.cells,
            probes_warm=round(base.cells.probes_warm * factor),
            probes_cold=round(base.cells.probes_cold * factor),
        )
        settings = replace(base, budget=budget, cells=cells)
        with subject.open(settings) as memory:
            _warm_up(memory, subject)
            figures = one_pass(memory, subject, where, right, budget, "cold")
        sink.add(
            "curve",
            budget={"warm": budget.warm, "cold": budget.cold, "total": budget.total},
            probes={"warm": cells.probes_warm, "cold": cells.probes_cold},
            **figures,
        )


def _first_searches(memory: amv.Memory, subject: Subject) -> list[float]:
    """Search in a memory opened just now, which has read nothing of the namespace yet."""
    latency_ms = []
    for query in subject.dataset.queries[-_WARM_UP:]:
        start_s = time.perf_counter()
        memory.search(namespace=NAMESPACE, vector=query, k=K)
        latency_ms.append(round(1000 * (time.perf_counter() - start_s), 3))
    return latency_ms


def _warm_up(memory: amv.Memory, subject: Subject) -> None:
    for query in subject.dataset.queries[-_WARM_UP:]:
        memory.search(namespace=NAMESPACE, vector=query, k=K, cold=True)


def one_pass(
    memory: amv.Memory,
    subject: Subject,
    where: Placed,
    right: Truth,
    budget: amv.Budget,
    cold: str,
) -> dict[str, object]:
    """Run all queries once; return what they found, scanned and took, in order of the queries."""
    found_nearest, found_ranked, latency_ms, scanned = [], [], [], []
    by_tier = {tier.name: [0, 0] for tier in amv.Tier}
    results = []
    for place, nearest in enumerate(right.nearest):
        query = subject.dataset.queries[place]
        start_s = time.perf_counter()
        result = memory.search(namespace=NAMESPACE, vector=query, k=K, cold=COLD[cold])
        latency_ms.append(round(1000 * (time.perf_counter() - start_s), 3))
        results.append(result)
        shown = {where.place_of[hit.item.id] for hit in result.hits}
        for neighbour in nearest.tolist():
            counts = by_tier[amv.Tier(int(where.tiers[neighbour])).name]
            counts[0] += neighbour in shown
            counts[1] += 1
        found_nearest.append(len(shown & set(nearest.tolist())))
        found_ranked.append(len(shown & set(right.ranked[place].tolist())))
        scanned.append(result.scanned.total)
    return {
        "k": right.nearest.shape[1],
        "queries": len(results),
        "found_nearest": found_nearest,
        "found_ranked": found_ranked,
        "found_by_tier": by_tier,
        "cold_probed": sum(result.cold_probed for result in results),
        "incomplete": sum(not result.complete for result in results),
        "latency_ms": latency_ms,
        "scanned": scanned,
        "scanned_max": _most_scanned(result.scanned for result in results),
        "budget_total": budget.total,
        "over_budget": sum(_is_over(result.scanned, budget) for result in results),
    }


def _most_scanned(all_scanned: Iterable[amv.Scanned]) -> dict[str, int]:
    parts = [(s.hot, s.warm, s.cold, s.postings, s.total) for s in all_scanned]
    names = ("hot", "warm", "cold", "postings", "total")
    return dict(zip(names, map(max, zip(*parts, strict=True)), strict=True))


def _is_over(scanned: amv.Scanned, budget: amv.Budget) -> bool:
    return (
        scanned.hot > budget.hot
        or scanned.warm > budget.warm
        or scanned.cold > budget.cold
        or scanned.postings > budget.postings
        or scanned.total > budget.total
    )
