"""The pictures of a report: fronts, reliability, the regimes with instances on them, families."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from amv.guard.calibration import Label, reliability
from amv.guard.loss import regimes
from amv.guard.prior import clipped
from bench.guard.arms import ALL, DEFAULT, HEADLINE, REFERENCE, SETTINGS
from bench.guard.families import FAMILIES, RELEVANT, UNCHANGED
from bench.guard.measures import Result, Run
from bench.guard.targets import FRONT, front

INK, OURS, OTHER = "#222222", "#0b6e4f", "#9a9a9a"
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "figure.dpi": 150,
    "svg.hashsalt": "amv",
}
_COLOURS = {"P": "#c0392b", "V": OURS, "A": "#34495e", "R": "#e0a800"}
_VERDICTS = {"P": "PROCEED", "V": "VERIFY", "A": "ABSTAIN", "R": "REPAIR"}


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw every picture the results allow into *folder*."""
    found = []
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        for world in run.cases:
            pictures = {
                f"fronts-{world}": fronts(run, world),
                f"families-{world}": families(run, world),
                f"regimes-{world}": regime_map(run, world),
            }
            if run.of(world, DEFAULT, HEADLINE) is not None:
                pictures[f"reliability-{world}"] = reliability_diagram(run, world)
            for name, figure in pictures.items():
                path = folder / f"{name}.png"
                figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
                found.append(path)
    return found


def fronts(run: Run, world: str) -> Figure:
    """Draw harm against calls, and total loss against cost; a point is a policy at a screen."""
    figure = Figure(figsize=(12, 4.5))
    figure.subplots_adjust(wspace=0.25)
    panels = (
        ("calls", "harmful", "checks per instance", "harmful executions, % of instances", 100.0),
        ("cost", "loss", "cost of checks per instance", "total loss per instance", 1.0),
    )
    by_arm: dict[str, list[Result]] = {}
    for one in front(run, world):
        by_arm.setdefault(one.arm, []).append(one)
    names = [name for name in FRONT if name in by_arm]
    for place, (x_of, y_of, x_says, y_says, times) in enumerate(panels, 1):
        axes, large = figure.add_subplot(1, 2, place), list[Point]()
        for count, arm in enumerate(names, 1):
            each = sorted(by_arm[arm], key=lambda one: one.setting.epsilon)
            x = [float(np.mean(getattr(one, x_of))) for one in each]
            y = [times * float(np.mean(getattr(one, y_of))) for one in each]
            colour = OURS if ALL[arm].plans else OTHER
            says = f"{count} {ALL[arm].says}"
            axes.plot(x, y, "-o", ms=3, lw=1, color=colour, label=says)
            best = min(range(len(each)), key=lambda i: abs(each[i].setting.epsilon - 0.05))
            axes.plot(x[best], y[best], "o", ms=11, color=colour, zorder=3)
            large.append(Point(count, x[best], y[best]))
        axes.set(xlabel=x_says, ylabel=y_says)
        axes.set_yscale("symlog", linthresh=1.0 if times > 1 else 0.5)
        axes.yaxis.set_major_locator(FixedLocator(_TICKS[times > 1]))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        write_numbers(axes, large)
    axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle(f"{world}: what a policy pays for what it prevents (large: ε = 0.05)")
    return figure


class Point(NamedTuple):
    """A policy's large point."""

    number: int
    x: float
    y: float


def write_numbers(axes: Axes, points: Sequence[Point]) -> None:
    """Write into each point its number; above it those of all, where several are the same."""
    axes.get_ylim()  # Has what is drawn so far be scaled.
    place = axes.transData.transform([(one.x, one.y) for one in points])
    groups: list[list[int]] = []
    for i, here in enumerate(place):
        near = (own for own in groups if np.hypot(*(place[own[0]] - here)) < _SAME)
        own = next(near, None)
        groups.append([i]) if own is None else own.append(i)
    for own in groups:
        first, numbers = points[own[0]], ", ".join(str(points[i].number) for i in own)
        is_one = len(own) == 1
        axes.annotate(
            numbers, (first.x, first.y), xytext=(0, 0) if is_one else (0, 7), fontsize=7, zorder=4,
            textcoords="offset points", color="white" if is_one else INK,
            ha="center", va="center_baseline" if is_one else "bottom",
        )  # fmt: skip


_SAME = 12.0
"""Points that are nearer than this, in dots at 100 an inch, are numbered together."""

_TICKS = (
    (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0),
    (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0),
)
"""Where total loss is marked, and harm in per cent."""


def reliability_diagram(run: Run, world: str) -> Figure:
    """Draw what was said of premises before any check, and how often it was so."""
    figure = Figure(figsize=(5, 4.5))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=OTHER, lw=1)
    for arm, colour in ((DEFAULT, OURS), (REFERENCE, "#c0392b")):
        result = run.of(world, arm, HEADLINE)
        if result is None:
            continue
        pairs = [
            Label(clipped(p), so)
            for said, was in zip(result.said, result.was, strict=True)
            for p, so in zip(said, was, strict=True)
        ]
        bins = reliability(pairs)
        low = [max(0.0, one.was - one.low) for one in bins]
        high = [max(0.0, one.high - one.was) for one in bins]
        axes.errorbar(
            [one.said for one in bins], [one.was for one in bins], yerr=[low, high],
            fmt="o-", ms=4, lw=1, color=colour, label=ALL[arm].says, capsize=2,
        )  # fmt: skip
    axes.set(xlabel="said: P(violated)", ylabel="was: share violated", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    axes.set_title(f"{world}: what was said of memories, and what was")
    return figure


def regime_map(run: Run, world: str) -> Figure:
    """Draw theta against p: the three regimes of one premise, and what was done first.

    An instance stands at the probability that any of its premises is violated.
    The curves are those of a check with s = t = 0.95 at the prices of the headline;
    a point in another unit of kappa is scaled to it.
    """
    figure = Figure(figsize=(7, 4.8))
    axes = figure.add_subplot()
    p = np.linspace(0.005, 0.995, 200)
    curves = [
        regimes(p=float(x), abstain_cost=1.0, verify_cost=0.1, sensitivity=0.95, specificity=0.95)
        for x in p
    ]
    axes.plot(p, [low for low, _ in curves], color=INK, lw=1.2, label="θ₁: check from here")
    axes.plot(p, [high for _, high in curves], color=INK, lw=1.2, ls="--", label="θ₂: abstain")
    rng = np.random.default_rng(0)
    for setting in SETTINGS:
        result = run.of(world, DEFAULT, setting)
        if result is None:
            continue
        x = np.asarray([1.0 - np.prod([1.0 - one for one in said]) for said in result.said])
        theta = setting.theta / setting.kappa * np.exp(rng.uniform(-0.12, 0.12, len(x)))
        for code, colour in _COLOURS.items():
            mine = result.firsts == code
            axes.scatter(x[mine], theta[mine], s=2, color=colour, alpha=0.35, lw=0)
    for code, colour in _COLOURS.items():
        axes.scatter([], [], s=14, color=colour, label=_VERDICTS[code])
    axes.set(xlabel="P(some premise is violated), as learned", ylabel="θ / κ", yscale="log")
    axes.set_ylim(1.0, 400.0)
    axes.legend(frameon=False, fontsize=7, loc="upper right")
    axes.set_title(f"{world}: what is done first")
    return figure


def families(run: Run, world: str) -> Figure:
    """Draw what checks cost and what was lost, by how the world changed."""
    figure = Figure(figsize=(9, 4.2))
    result = run.of(world, DEFAULT, HEADLINE)
    if result is None:
        return figure
    names = [n for n in (UNCHANGED, RELEVANT, *FAMILIES) if (result.cases.families == n).any()]
    panels = (("calls", result.calls), ("total loss", result.loss))
    for place, (what, values) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 2, place)
        each = [values[result.cases.families == name].mean() for name in names]
        axes.barh(names[::-1], each[::-1], color=OURS)
        axes.set_xlabel(f"{what} per instance")
        axes.tick_params(labelleft=place == 1)
    figure.suptitle(f"{world}: {ALL[DEFAULT].says}, by what changed")
    return figure
