"""Running one workload under one policy, and what a row keeps of it.

A latency is kept as a count in bins of 2 %, so that any quantile can be read
from a row; of each read that needs items a row keeps their age, how many there
are, how many it found, and how many of those were hot.
"""

import math
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

import amv
from amv import embedders
from amv.memory.ports import Floats
from bench import embedding, machine
from bench.latency import Server, serving
from bench.lifecycle.arms import Arm, opened
from bench.lifecycle.clock import Clock
from bench.lifecycle.load import Reply
from bench.lifecycle.ops import DAY_S, START_S, Op, Workload, sent
from bench.lifecycle.serve import Task

CONNECTIONS = 12
BIN = 1.02
_READS = ("recall", "ask", "question")

Ids = dict[int, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a workload is run: limits of the memory, requests a second (0: a closed loop), upkeep."""

    share: float
    rate: float = 0.0
    upkeep_interval_s: float | None = None


def vectors_of(workload: Workload) -> Floats:
    """Return the vectors of all texts of a workload."""
    texts = list(workload.texts())
    embedder = embedders.load(workload.embedder)
    if workload.embedder.startswith("hashing"):
        return embedder.embed(texts)
    return embedding.embed(texts, embedder)


def run(
    arm: Arm,
    workload: Workload,
    vectors: Floats | None,
    way: Way,
    exact: Ids | None = None,
    filled: Path | None = None,
) -> tuple[dict[str, object], Ids]:
    """Run a workload; return its figures and what each read found.

    *exact* is what an exhaustive search of all that is kept found for each read.
    *filled* is a file of what is there before the first request.
    """
    with tempfile.TemporaryDirectory(prefix="amv-lifecycle-") as folder:
        home = Path(folder)
        task = Task(
            db=str(home / "amv.db"),
            arm=arm.name,
            share=way.share,
            embedder=workload.embedder if vectors is not None else "minilm",
            clock=str(home / "clock"),
            needs=workload.needs if arm.is_clairvoyant else {},
            figures=str(home / "figures"),
            upkeep_interval_s=way.upkeep_interval_s,
        )
        Clock.at(home / "clock", START_S)
        if filled is not None:
            shutil.copy(filled, task.db)
        (home / "task").write_bytes(msgspec.json.encode(task))
        requests = msgspec.msgpack.encode(sent(workload, vectors, arm.ttl_s))
        (home / "requests").write_bytes(requests)
        command = [sys.executable, "-m", "bench.lifecycle.serve", str(home / "task")]
        with serving(command, {}) as server:
            idle_bytes, idle_s = server.rss_bytes(), server.cpu_s()
            took_s, replies = _replay(server, home, workload.seed, way)
            spent: dict[str, object] = {
                "wall_s": round(took_s, 3),
                "cpu_s": round(server.cpu_s() - idle_s, 3),
                "idle_rss_bytes": idle_bytes,
                "rss_bytes": server.rss_bytes(),
                "rss_peak_bytes": server.rss_peak_bytes(),
                "disk_bytes": sum(p.stat().st_size for p in home.glob("amv.db*")),
            }
        told = msgspec.json.decode((home / "figures").read_bytes())
    return figures(workload, replies, exact) | spent | {"server": told}, _ids(replies)


def fill_file(arm: Arm, db: Path, workload: Workload, fill: Callable[[amv.Memory], None]) -> None:
    """Make a file with what is there before the first request of a workload."""
    clock = Clock.at(db.with_name("clock"), START_S)
    with opened(
        arm,
        str(db),
        share=1.0,
        embedder=workload.embedder,
        clock=clock,
        needs={},
        upkeep_interval_s=None,
    ) as memory:
        fill(memory)


def _replay(server: Server, home: Path, seed: int, way: Way) -> tuple[float, list[Reply]]:
    given = [server.address, home / "requests", home / "clock", way.rate, CONNECTIONS, seed]
    command = [sys.executable, "-m", "bench.lifecycle.load", *map(str, given), str(home / "out")]
    subprocess.run(command, check=True, cwd=machine.ROOT)
    took_s, replies = msgspec.msgpack.decode(
        (home / "out").read_bytes(), type=tuple[float, list[Reply]]
    )
    return took_s, replies


def _ids(replies: Sequence[Reply]) -> Ids:
    return {reply.place: reply.ids for reply in replies if reply.ids and reply.place >= 0}


def figures(workload: Workload, replies: Sequence[Reply], exact: Ids | None) -> dict[str, object]:
    """Return what replies say, as a row keeps it."""
    by_kind: dict[str, list[Reply]] = {}
    for reply in replies:
        kind = "feedback" if reply.place < 0 else workload.ops[reply.place].kind
        by_kind.setdefault(kind, []).append(reply)
    found: dict[str, object] = {
        "took": {kind: bins(own) for kind, own in by_kind.items()},
        "late": {kind: late(own) for kind, own in by_kind.items()},
        "refused": dict(Counter(str(r.status) for r in replies if r.status >= 300)),
    }
    reads = sorted(
        (r for kind in _READS for r in by_kind.get(kind, [])), key=lambda reply: reply.place
    )
    found["scanned"] = spread([reply.scanned for reply in reads if reply.scanned >= 0])
    found["tokens"] = spread([reply.tokens for reply in reads if reply.tokens >= 0])
    found["injected"] = spread([len(reply.ids) for reply in reads])
    found["needed"] = needed(workload.ops, reads)
    found["watched"] = watched(workload.ops, reads)
    found["moves"] = sum(reply.moves for reply in by_kind.get("sweep", []) if reply.moves > 0)
    found["tiers"] = [
        [round(workload.ops[r.place].at_s / DAY_S, 2), *(r.held.get(t, 0) for t in TIERS)]
        for r in sorted(by_kind.get("stats", []), key=lambda reply: reply.place)
    ]
    if exact is not None:
        shares = [
            len(set(exact[r.place]) & set(r.ids)) / len(exact[r.place])
            for r in reads
            if r.place in exact
        ]
        found["overlap"] = [round(float(np.mean(shares)), 5), len(shares)] if shares else []
    return found


TIERS = ("hot", "warm", "cold")


def bins(replies: Sequence[Reply]) -> dict[str, int]:
    """Return how many replies took how long, by bins of microseconds."""
    counts = Counter(_bin(reply.took_s) for reply in replies)
    return {str(place): counts[place] for place in sorted(counts)}


def _bin(took_s: float) -> int:
    return max(0, round(math.log(max(took_s * 1e6, 1.0)) / math.log(BIN)))


def late(replies: Sequence[Reply]) -> list[int]:
    """Return how many replies took over ten times the median, and how many over two seconds."""
    took_s = np.asarray([reply.took_s for reply in replies])
    return [int((took_s > 10 * np.median(took_s)).sum()), int((took_s > 2.0).sum())]


def spread(counts: Sequence[int]) -> list[float]:
    """Return number, mean, median, 95th percentile and most."""
    if not counts:
        return []
    each = np.asarray(counts)
    return [len(each), round(float(each.mean()), 1), *np.quantile(each, [0.5, 0.95, 1.0]).tolist()]


def needed(ops: Sequence[Op], reads: Sequence[Reply]) -> list[list[float]]:
    """Return age in days, needed, found, and found hot, of each read that needs something."""
    rows = []
    for reply in reads:
        op = ops[reply.place]
        if not op.needs:
            continue
        hot = {i for i, tier in zip(reply.ids, reply.tiers, strict=False) if tier == "h"}
        here = set(reply.ids)
        tiers_told = len(hot & set(op.needs)) if reply.tiers or not reply.ids else -1
        rows.append(
            [round(op.age_s / DAY_S, 2), len(op.needs), len(here & set(op.needs)), tiers_told]
        )
    return rows


def watched(ops: Sequence[Op], reads: Sequence[Reply]) -> list[list[float]]:
    """Return age in days, and whether it was hot, of each watched item that came back."""
    return [
        [round(ops[r.place].age_s / DAY_S, 2), int(tier == "h")]
        for r in reads
        for item_id, tier in zip(r.ids, r.tiers, strict=False)
        if item_id in ops[r.place].watch
    ]


def merged(parts: Sequence[Mapping[str, int]]) -> dict[int, int]:
    """Return the bins of several runs together."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update({int(place): count for place, count in part.items()})
    return dict(sorted(total.items()))


def quantile(counts: Mapping[int, int], q: float) -> float:
    """Return a quantile in milliseconds, off by at most a bin."""
    left = q * sum(counts.values())
    for place, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return float(BIN**place / 1e3)
    return math.nan
