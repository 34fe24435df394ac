"""What the bench must show: each target with what was measured, and whether it was reached.

A target of which a part was not run says so, and counts as not reached.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.lifecycle.measures import READS, WRITES, Of

Groups = Mapping[str, Mapping[str, Mapping[str, Of]]]

OURS, LRU, TTL, HNSW, EXACT = "amv-default", "lru", "ttl", "ttl-hnsw", "exact"
SIMPLE = ("lru", "fifo", "lfu", "w-tinylfu", "s3-fifo", "gdsf")
FORTNIGHT = 14.0

#: Of the paper (arXiv 2603.04443), AMV-L against the other: times the throughput, times lower
#: latencies at 50, 95 and 99 %, and shares of requests above two seconds.
PUBLISHED_TTL = {"per_s": 3.1, "p50": 4.2, "p95": 4.7, "p99": 4.4}
PUBLISHED_OVER_2S = (0.138, 0.00007)
PUBLISHED_LRU = {"p50": 1 / 1.26, "p99": 1 / 0.85, "tokens": 0.94}


class Verdict(NamedTuple):
    """One target: what is asked, what was found, and whether that is enough."""

    asked: str
    found: str
    holds: bool


def verdicts(groups: Groups) -> list[Verdict]:
    """Judge every target of which anything was run."""
    found: list[Verdict] = []
    for judge in (_against_ttl, _against_lru, _against_hnsw, _bounded, _poison, _critical, _simple):
        found += judge(groups)
    return found


def of(groups: Groups, workload: str, way: str, *arms: str) -> list[Of] | None:
    """Return what was measured of some policies by seeds that all have; None if there is none."""
    own = groups.get(workload, {}).get(way, {})
    if not all(arm in own for arm in arms):
        return None
    seeds = set.intersection(*({row["seed"] for row in own[arm].rows} for arm in arms))
    if not seeds:
        return None
    return [Of([row for row in own[arm].rows if row["seed"] in seeds]) for arm in arms]


def sizes(groups: Groups) -> list[int]:
    """Return the numbers of retained items that were measured, ascending."""
    names = [name for name in groups if name.startswith("scale-")]
    return sorted(int(name.removeprefix("scale-")) for name in names)


class _AtScale(NamedTuple):
    """Ours and a rival at one size: in a closed loop and paced, and what throughput ours has."""

    size: int
    closed: list[Of]
    paced: list[Of]
    rate: float
    says: str


def _at_scale(groups: Groups, rival: str) -> Iterator[_AtScale]:
    for size in sizes(groups):
        closed = of(groups, f"scale-{size}", "closed", OURS, rival)
        paced = of(groups, f"scale-{size}", "paced", OURS, rival)
        if size < 100_000 or closed is None or paced is None:
            continue
        rate = closed[0].per_s / closed[1].per_s
        by_cpu = closed[0].per_cpu_s / closed[1].per_cpu_s
        says = f"{rate:.2f} times ({by_cpu:.2f} by processor time)"
        yield _AtScale(size, closed, paced, rate, says)


def _against_ttl(groups: Groups) -> list[Verdict]:
    out = []
    for size, _, paced, rate, says in _at_scale(groups, TTL):
        p99 = paced[1].ms(READS, 0.99) / paced[0].ms(READS, 0.99)
        late = paced[0].late(READS)[1]
        out += [
            Verdict(f"{size:,} retained: ≥ 10 times the throughput of TTL scan", says, rate >= 10),
            Verdict(f"{size:,}: p99 ≥ 20 times lower than TTL scan", f"{p99:.2f} times", p99 >= 20),
            Verdict(f"{size:,}: none above 2 s", f"{late:.4%}", late == 0),
        ]
    return out


def _against_lru(groups: Groups) -> list[Verdict]:
    out = []
    paced = of(groups, "paper", "paced", OURS, LRU)
    if paced is not None:
        p99 = paced[0].ms(READS, 0.99) / paced[1].ms(READS, 0.99)
        out.append(Verdict("paper: p99 no worse than LRU's", f"{p99:.2f} times", p99 <= 1))
    counted = of(groups, "paper", "closed", OURS, LRU)
    if counted is not None:
        tokens = counted[0].tokens() / counted[1].tokens() - 1
        out.append(Verdict("paper: ≥ 6 % fewer prompt tokens", f"{tokens:+.1%}", tokens <= -0.06))
    for name in ("phases", "aged", "critical"):
        both = of(groups, name, "closed", OURS, LRU)
        if both is None:
            continue
        ours, theirs = both[0].recall(), both[1].recall()
        says = f"{ours:.4f} against {theirs:.4f}"
        out.append(Verdict(f"{name}: more of the needed facts found than LRU", says, ours > theirs))
        days = FORTNIGHT
        hot, lru = (one.hot_recall(over_days=days) for one in both)
        out.append(
            Verdict(
                f"{name}: of facts older than {days:.0f} days ≥ 15 points more in hot than LRU",
                f"{100 * (hot - lru):+.1f} points ({hot:.3f} against {lru:.3f})",
                hot - lru >= 0.15,
            )
        )
    return out


def _against_hnsw(groups: Groups) -> list[Verdict]:
    out = []
    for name in ("paper", "phases", "bursts"):
        both = of(groups, name, "closed", OURS, "hnsw")
        if both is not None:
            gap = both[0].recall() - both[1].recall()
            asked = f"{name}: recall within a point of HNSW over everything"
            out.append(Verdict(asked, f"{100 * gap:+.2f} points", gap >= -0.01))
    for size, closed, paced, rate, says in _at_scale(groups, HNSW):
        p99 = paced[0].ms(READS, 0.99) / paced[1].ms(READS, 0.99)
        graph = closed[1].rows[-1]["server"]["graph_bytes"] / 1e6
        ram = closed[0].rss_mb / graph
        out += [
            Verdict(f"{size:,}: ≥ 2 times the throughput of HNSW", says, rate >= 2),
            Verdict(f"{size:,}: p99 no worse than HNSW's", f"{p99:.2f} times", p99 <= 1),
            Verdict(
                f"{size:,}: ≤ 1/5 of the graph's RAM", f"{ram:.2f} of {graph:.0f} MB", ram <= 0.2
            ),
        ]
    return out


def _bounded(groups: Groups) -> list[Verdict]:
    each = sizes(groups)
    if len(each) < 2:
        return []
    small, large = (of(groups, f"scale-{size}", "paced", OURS) for size in (each[0], each[-1]))
    if small is None or large is None:
        return []
    out = []
    for what, kinds in (("reads", READS), ("writes", WRITES)):
        ratio = large[0].ms(kinds, 0.99) / small[0].ms(kinds, 0.99)
        asked = f"p99 of {what} at {each[-1]:,} ≤ 1.2 times that at {each[0]:,}"
        out.append(Verdict(asked, f"{ratio:.2f} times", ratio <= 1.2))
    return out


def _poison(groups: Groups) -> list[Verdict]:
    both = of(groups, "poisoned", "closed", OURS)
    if both is None:
        return []
    share = both[0].watched_hot()
    asked = "poisoned: out of hot within two half-lives"
    return [Verdict(asked, f"hot in {share:.1%} of later finds", share == 0)]


def _critical(groups: Groups) -> list[Verdict]:
    both = of(groups, "critical", "closed", OURS, EXACT)
    if both is None:
        return []
    ours, exact = (one.recall(over_days=50) for one in both)
    says = f"{ours:.4f} found, {exact:.4f} by a scan of all"
    return [Verdict("critical: no fact lost that a scan of all finds", says, ours >= exact)]


def _simple(groups: Groups) -> list[Verdict]:
    """Hot-only, on every workload, against the best of the simple policies."""
    out = []
    for name, ways in groups.items():
        arms = ways.get("closed", {})
        if OURS not in arms or name.startswith("scale"):
            continue
        pairs = {arm: of(groups, name, "closed", OURS, arm) for arm in SIMPLE if arm in arms}
        gaps = {
            arm: (pair[0].hot_recall(), pair[1].hot_recall()) for arm, pair in pairs.items() if pair
        }
        if not gaps:
            continue
        best = min(gaps, key=lambda arm: gaps[arm][0] - gaps[arm][1])
        ours, theirs = gaps[best]
        asked = f"{name}: in hot no less than the best simple policy"
        out.append(Verdict(asked, f"{ours:.3f} against {theirs:.3f} of {best}", ours >= theirs))
    return out
