"""The reliability plot: what was said against what was, before and after calibration.

Drawn for a phone held upright, as PNG or as a page of its own that loads
nothing.  A finding stands above it in a sentence, and each thing drawn is named
where it is, so that nobody has to look up a legend.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from amv.errors import ConfigError
from amv.guard.calibration import Bin, Label, reliability, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE, AFTER, INK, QUIET, PALE = "#c8511b", "#1f5fa8", "#1d1d1f", "#6e6e73", "#d9d9de"
WORSE, BETTER = "#fdf1ea", "#f1f6fc"
_KINDS_MAX = 8
_SPANS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_TICKS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_TIMES = (
    (1.0 / 60.0, "1 min"), (1.0, "1 h"), (24.0, "1 day"), (168.0, "1 week"), (730.5, "1 month"),
    (8766.0, "1 year"), (87660.0, "10 years"), (876600.0, "100 years"),
)  # fmt: skip
_WIDE, _LEFT, _RIGHT = 5.0, 0.2, 0.25
"""Inches: a sheet, and its margins."""


class Picture(NamedTuple):
    """What a plot shows; *span* is the largest probability on its axes.

    *kinds* are the half-lives of memories by kind, in hours, shortest first.
    """

    title: str
    words: str
    before: list[Bin]
    after: list[Bin]
    span: float
    kinds: list[tuple[str, float]]


def picture(
    before: Sequence[Label], after: Sequence[Label], hazards: Mapping[str, float]
) -> Picture:
    """Return what is to be drawn of labels, in numbers and words; there must be some.

    *before* and *after* are the same labels, as said and as calibrated.
    """
    weight = sum(label.weight for label in before)
    was = sum(label.weight for label in before if label.is_violated) / weight
    said, now = (
        sum(label.weight * label.p for label in labels) / weight for labels in (before, after)
    )
    worth = weight**2 / sum(label.weight**2 for label in before)
    low, high = wilson(was, worth)
    if low <= said <= high:
        title = "What the gate says is about what happens"
    elif was > said:
        title = "Memories are wrong more often than the gate says"
    else:
        title = "Memories are wrong less often than the gate says"
    # Enough in each that its share says something.
    rarer = min(sum(label.is_violated is so for label in before) for so in (True, False))
    bins = min(8, max(2, min(len(before) // 25, rarer // 4)))
    drawn = [reliability(labels, bins) for labels in (before, after)]
    most = max(max(one.said, one.was) for row in drawn for one in row)
    halves = [(_short(name), half_h(rate)) for name, rate in hazards.items()]
    return Picture(
        title=title,
        words=(
            f"Of {len(before):,} memories that were checked, {_percent(was)} were wrong. "
            f"The gate had said {_percent(said)}; calibrated, it says {_percent(now)}."
        ),
        before=drawn[0],
        after=drawn[1],
        span=next((one for one in _SPANS if one >= most), 1.0),
        kinds=sorted(halves, key=lambda half: half[1])[:_KINDS_MAX],
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _short(kind: str) -> str:
    return (kind if len(kind) <= 24 else f"{kind[:23]}…") or "no kind"


def half_h(hazard: float) -> float:
    """Return after how many hours half have changed that change at so many per hour."""
    return math.log(2.0) / hazard


def lasting(hours: float) -> str:
    """Return a time for people: 30 min, 7 h, 12 days, 3 years."""
    for size, name in ((1.0, "min"), (48.0, "h"), (730 * 24.0, "days")):
        if hours < size:
            unit = {"min": 1.0 / 60.0, "h": 1.0, "days": 24.0}[name]
            return (
                f"{hours / unit:.2g} {name}" if hours / unit < 10 else f"{hours / unit:.0f} {name}"
            )
    return f"{hours / (365.25 * 24.0):,.0f} years"


def png(shown: Picture) -> bytes:
    """Return the plot as PNG."""
    return _saved(shown, "png")


def page(shown: Picture) -> bytes:
    """Return the plot as an HTML page that needs nothing else."""
    svg = _saved(shown, "svg").decode()
    svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{shown.title}"', 1)
    rows = "".join(
        f"<tr><td>{when}</td><td>{_percent(one.said)}</td><td>{_percent(one.was)}</td>"
        f"<td>{_percent(one.low)} – {_percent(one.high)}</td><td>{one.labels:,}</td></tr>"
        for when, bins in (("as said", shown.before), ("calibrated", shown.after))
        for one in bins
    )
    kinds = "".join(
        f"<tr><td>{escape(name)}</td><td>{lasting(half_h)}</td></tr>"
        for name, half_h in shown.kinds
    )
    return _PAGE.format(
        title=escape(shown.title),
        words=escape(shown.words),
        svg=svg,
        rows=rows,
        kinds=_KINDS_TABLE.format(rows=kinds) if kinds else "",
    ).encode()


def _saved(shown: Picture, kind: str) -> bytes:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plotting needs matplotlib: pip install 'amv[guard]'") from error
    look: dict[Any, Any] = {
        "font.size": 9.5, "axes.labelcolor": QUIET, "text.color": INK, "text.parse_math": False,
        "xtick.color": QUIET, "ytick.color": QUIET, "xtick.major.size": 0, "ytick.major.size": 0,
        "svg.hashsalt": "amv",
    }  # fmt: skip
    with rc_context(look):
        sheet = _Sheet(Figure(facecolor="white"), _parts(shown, is_whole=kind == "png"))
        for part in sheet.parts:
            part.draw(sheet)
        held = io.BytesIO()
        when = {"Date": None} if kind == "svg" else None
        sheet.figure.savefig(held, format=kind, dpi=200, metadata=when)
    return held.getvalue()


class _Part(NamedTuple):
    """A piece of the sheet, so many inches high."""

    tall: float
    draw: Callable[["_Sheet"], None]


class _Sheet:
    """A figure that is filled from the top down, in inches, so that nothing lies on another."""

    def __init__(self, figure: "Figure", parts: list[_Part]) -> None:
        self.figure, self.parts = figure, parts
        self.tall = sum(part.tall for part in parts)
        self._used = 0.0
        figure.set_size_inches(_WIDE, self.tall)

    def text(self, tall: float, words: str, **look: Any) -> None:
        """Write lines below what is there."""
        at = 1.0 - self._used / self.tall
        self.figure.text(_LEFT / _WIDE, at, words, va="top", linespacing=1.35, **look)
        self._used += tall

    def axes(self, tall: float, *, left: float, below: float) -> "Axes":
        """Return a panel below what is there, with room for its axis *below* it."""
        self._used += tall + below
        wide = (_WIDE - left - _RIGHT) / _WIDE
        place = (left / _WIDE, 1.0 - (self._used - below) / self.tall, wide, tall / self.tall)
        axes = self.figure.add_axes(place)
        axes.spines[:].set_visible(False)
        return axes

    def skip(self, tall: float) -> None:
        """Leave so much free."""
        self._used += tall


def _parts(shown: Picture, *, is_whole: bool) -> list[_Part]:
    """Return what stands on the sheet: with title and words, if it stands alone."""
    parts = [_Part(0.15, lambda sheet: sheet.skip(0.15))]
    if is_whole:
        title, words = wrap(shown.title, 50), wrap(shown.words, 62)
        parts += [
            _lines(title, 0.23, fontsize=11.5, fontweight="bold"),
            _lines(words, 0.19, fontsize=9.5, color=QUIET),
        ]
    parts.append(_Part(5.05, lambda sheet: _reliability(sheet, shown)))
    if shown.kinds:
        tall = 0.27 * len(shown.kinds)
        heading = ["Half of the memories stay true for"]
        parts.append(_lines(heading, 0.2, fontsize=10.5, fontweight="bold"))
        parts.append(_Part(tall + 0.4, lambda sheet: _halves(sheet, shown.kinds, tall)))
    return parts


def _lines(lines: list[str], tall: float, **look: Any) -> _Part:
    whole = tall * len(lines) + 0.07
    return _Part(whole, lambda sheet: sheet.text(whole, "\n".join(lines), **look))


def _reliability(sheet: _Sheet, shown: Picture) -> None:
    """Draw what was said against what was; on axes that stretch the small shares."""
    from matplotlib.ticker import NullLocator

    sheet.skip(0.25)
    axes, top = sheet.axes(4.15, left=_LEFT + 0.55, below=0.65), shown.span
    places = [top * (n / 100) ** 2 for n in range(101)]
    axes.fill_between(places, places, top, color=WORSE, linewidth=0)
    axes.fill_between(places, 0, places, color=BETTER, linewidth=0)
    axes.plot([0, top], [0, top], color=QUIET, linestyle=(0, (4, 3)), linewidth=1)
    for bins, color, fill in ((shown.before, BEFORE, "white"), (shown.after, AFTER, AFTER)):
        for one in bins:
            axes.plot([one.said] * 2, [one.low, min(one.high, top)], color=color, linewidth=5,
                      alpha=0.2, solid_capstyle="butt")  # fmt: skip
        axes.plot([one.said for one in bins], [one.was for one in bins], color=color,
                  linewidth=1.6, marker="o", markersize=6.5, markerfacecolor=fill,
                  markeredgewidth=1.6, clip_on=False, zorder=3)  # fmt: skip
    axes.set_xscale("function", functions=(_root, _square))
    axes.set_yscale("function", functions=(_root, _square))
    # One 0 is enough.
    ticks = _apart([(_root(tick / top), tick) for tick in _TICKS if 0.0 < tick <= top], 0.085)
    for axis, marks in ((axes.xaxis, [0.0, *ticks]), (axes.yaxis, ticks)):
        axis.set_ticks(marks, [_tick(tick) for tick in marks])
        axis.set_minor_locator(NullLocator())
    axes.set(xlim=(0, top), ylim=(0, top))
    axes.set_xlabel("said to be wrong", labelpad=6)
    axes.set_ylabel("were wrong", labelpad=6)
    for x, side, word, color, behind in (
        (0.03, "left", "more", "#a8683f", WORSE),
        (0.97, "right", "less", "#5f82ab", BETTER),
    ):
        y = 0.97 if word == "more" else 0.03
        axes.text(x, y, f"wrong {word} often than said", transform=axes.transAxes, ha=side,
                  va="top" if word == "more" else "bottom", color=color, fontsize=9, zorder=4,
                  bbox={"facecolor": behind, "edgecolor": "none", "pad": 2})  # fmt: skip
    _named(axes)


def _named(axes: "Axes") -> None:
    """Name the two lines above the diagram, in their colours."""
    for place, color, name in ((0.0, BEFORE, "○ before"), (0.24, AFTER, "● calibrated")):
        axes.text(place, 1.015, name, transform=axes.transAxes, color=color, fontweight="bold",
                  fontsize=9.5)  # fmt: skip
    axes.text(1.0, 1.015, "– – –  as often as said", transform=axes.transAxes, color=QUIET,
              ha="right", fontsize=9)  # fmt: skip


def _halves(sheet: _Sheet, kinds: Sequence[tuple[str, float]], tall: float) -> None:
    """Draw for how long half of the memories of each kind stay true; times by their ratio."""
    from matplotlib.ticker import NullLocator

    axes = sheet.axes(tall, left=_LEFT + 1.35, below=0.4)
    times = [half for _, half in kinds]
    # Room for what is written behind the longest.
    low, high = min(times) / 3.0, max(times) * (max(times) / min(times) * 3.0) ** 0.35
    rows = range(len(kinds))
    axes.hlines(rows, low, times, color=AFTER, linewidth=2.5, alpha=0.35)
    axes.plot(times, rows, color=AFTER, marker="o", markersize=6.5, linestyle="none")
    for row, half in zip(rows, times, strict=True):
        axes.annotate(lasting(half), (half, row), xytext=(8, 0), textcoords="offset points",
                      va="center", color=INK, fontweight="bold")  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlim=(low, high), ylim=(len(kinds) - 0.5, -0.5))
    axes.yaxis.set_ticks(list(rows), [name for name, _ in kinds])
    names = {size: name for size, name in _TIMES if low <= size <= high}
    wide = math.log(high / low)
    marks = _apart([(math.log(size / low) / wide, size) for size in names], 0.2)
    axes.xaxis.set_ticks(marks, [names[mark] for mark in marks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


def _apart(marks: list[tuple[float, float]], least: float) -> list[float]:
    """Return marks, given with their place from 0 to 1, without those whose texts would touch."""
    kept: list[tuple[float, float]] = []
    for place, mark in reversed(marks):
        if not kept or kept[-1][0] - place >= least:
            kept.append((place, mark))
    return [mark for _, mark in reversed(kept)]


def _root(x: Any) -> Any:
    return abs(x) ** 0.5


def _square(x: Any) -> Any:
    return x**2


def _tick(share: float) -> str:
    return f"{100 * share:.3g} %"


_KINDS_TABLE = "<table><tr><th>kind</th><th>half stay true for</th></tr>{rows}</table>"

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1d1d1f; background: #fff }}
body {{ max-width: 36rem; margin: 1.5rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.45rem; line-height: 1.2; margin: 0 0 .5rem }}
p {{ color: #444 }}
svg {{ width: 100%; height: auto }}
summary {{ cursor: pointer; padding: .5rem 0 }}
table {{ border-collapse: collapse; width: 100%; margin-bottom: 1rem }}
th, td {{ text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #eee }}
th:first-child, td:first-child {{ text-align: left }}
</style></head><body>
<h1>{title}</h1>
<p>{words}</p>
{svg}
<p>A point stands for memories of which about the same was said: further right, said to be wrong
more often; further up, wrong more often. On the dashed line, what was said is what happened. The
bars behind the points are what chance alone may do (95 %). Small shares are stretched.</p>
<details><summary>The numbers</summary>
<table><tr><th></th><th>said</th><th>was</th><th>by chance</th><th>memories</th></tr>{rows}</table>
{kinds}</details>
</body></html>
"""
