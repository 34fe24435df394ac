"""The pictures of the report: latencies, scanned by retained, recall by age, tiers over time."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.guard.pictures import INK, OURS, STYLE
from bench.lifecycle.arms import BY_NAME
from bench.lifecycle.measures import AGES, READS, Of
from bench.lifecycle.run import BIN
from bench.lifecycle.targets import Groups, sizes

_COLOURS = {"amv-default": OURS, "amv-paper": "#7fb89f", "lru": "#c0392b", "ttl": INK,
            "ttl-hnsw": "#2c6fbb", "exact": "#555555", "hnsw": "#2c6fbb", "lfu": "#e0a800",
            "clairvoyant": "#8e44ad"}  # fmt: skip
_OTHER = "#b5b5b5"
_AGE_NAMES = ["< 1 d", "< 7 d", "< 30 d", "< 60 d", "older"]


def draw(groups: Groups, folder: Path) -> list[Path]:
    """Draw every picture the rows allow into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Callable[[], Figure | None]] = {
        "latencies": lambda: latencies(groups),
        "scanned": lambda: scanned(groups),
        "recall-by-age": lambda: by_age(groups),
        "tiers": lambda: tiers(groups),
    }
    found = []
    with rc_context(STYLE):
        for name, make in pictures.items():
            figure = make()
            if figure is not None:
                path = folder / f"{name}.png"
                figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
                found.append(path)
    return found


def _colour(arm: str) -> str:
    return _COLOURS.get(arm, _OTHER)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(3, count)
    figure = Figure(figsize=(4.2 * columns, 3.2 * -(-count // columns)))
    figure.subplots_adjust(hspace=0.45, wspace=0.28)
    rows = -(-count // columns)
    return figure, [figure.add_subplot(rows, columns, n + 1) for n in range(count)]


def latencies(groups: Groups) -> Figure | None:
    """Draw which share of reads took longer than a time, at a fixed rate."""
    paced = {name: ways["paced"] for name, ways in groups.items() if "paced" in ways}
    if not paced:
        return None
    figure, panels = _panels(len(paced))
    for axes, (name, arms) in zip(panels, paced.items(), strict=True):
        for arm, one in arms.items():
            counts = one.took(READS)
            over = 1 - np.cumsum(list(counts.values())) / sum(counts.values())
            took_ms = [BIN**place / 1e3 for place in counts]
            axes.step(took_ms, np.maximum(over, 1e-5), color=_colour(arm), label=BY_NAME[arm].says)
        axes.set(xscale="log", yscale="log", xlabel="ms from the intended moment", title=name)
        axes.set_ylabel("share of reads that took longer")
        axes.legend(fontsize=7)
    return figure


def scanned(groups: Groups) -> Figure | None:
    """Draw how much a read scanned by how much was retained."""
    each = sizes(groups)
    if len(each) < 2:
        return None
    figure, (axes,) = _panels(1)
    arms = list(dict.fromkeys(a for n in each for w in groups[f"scale-{n}"].values() for a in w))
    for arm in arms:
        points = [
            (size, one.scanned()[2])
            for size in each
            if (one := groups[f"scale-{size}"].get("closed", {}).get(arm)) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "-o", color=_colour(arm), label=BY_NAME[arm].says)
    axes.set(xscale="log", yscale="log", xlabel="items retained", ylabel="scanned, 95th percentile")
    axes.legend(fontsize=7)
    return figure


def by_age(groups: Groups) -> Figure | None:
    """Draw how many of the needed facts were found, and were hot, by their age."""
    names = [name for name, ways in groups.items() if "closed" in ways and "scale" not in name]
    if not names:
        return None
    figure, panels = _panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        for arm, one in groups[name]["closed"].items():
            solid, dotted = _ages(one)
            axes.plot(_AGE_NAMES, solid, ":", color=_colour(arm), lw=1)
            if BY_NAME[arm].has_tiers:
                axes.plot(
                    _AGE_NAMES, dotted, "-o", ms=3, color=_colour(arm), label=BY_NAME[arm].says
                )
        axes.set(title=name, ylim=(-0.03, 1.03), xlabel="age of the fact")
        axes.set_ylabel("found in hot (dotted: found at all)")
    panels[0].legend(fontsize=6)
    return figure


def _ages(one: Of) -> tuple[list[float], list[float]]:
    bounds = [0.0, *AGES, np.inf]
    spans = list(pairwise(bounds))
    return (
        [one.recall(over_days=low, under_days=high) for low, high in spans],
        [one.hot_recall(over_days=low, under_days=high) for low, high in spans],
    )


def tiers(groups: Groups) -> Figure | None:
    """Draw the items in each tier over simulated time, of one seed under the default."""
    names = [
        n for n, w in groups.items() if "amv-default" in w.get("closed", {}) and "scale" not in n
    ]
    if not names:
        return None
    figure, panels = _panels(len(names))
    for axes, name in zip(panels, names, strict=True):
        rows = np.asarray(groups[name]["closed"]["amv-default"].rows[0]["tiers"], float)
        if len(rows):
            axes.stackplot(rows[:, 0], rows[:, 1:].T, labels=("hot", "warm", "cold"),
                           colors=("#c0392b", "#e0a800", "#7f9fbf"))  # fmt: skip
        axes.set(title=name, xlabel="simulated days", ylabel="items")
    panels[0].legend(fontsize=7)
    return figure
