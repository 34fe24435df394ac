"""The reliability plot: what was said against what was, before and after calibration.

Drawn for a phone held upright, as PNG or as a page of its own that loads nothing.
"""

import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from amv.errors import ConfigError
from amv.guard.calibration import Bin, Calibrator, Label, reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE, AFTER, INK, PALE = "#d1662b", "#2b6cb0", "#222222", "#9a9a9a"
_SPANS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_BARS = 10
_INCHES = (5.0, 6.4)


class Picture(NamedTuple):
    """What a plot shows; *span* is the largest probability on its axes."""

    title: str
    words: str
    before: list[Bin]
    after: list[Bin]
    span: float


def picture(labels: Sequence[Label], calibrator: Calibrator) -> Picture:
    """Return what is to be drawn of labels, in numbers and words; there must be some."""
    weight = sum(label.weight for label in labels)
    was = sum(label.weight for label in labels if label.is_violated) / weight
    said, now = (
        sum(label.weight * p for label, p in zip(labels, row, strict=True)) / weight
        for row in ([x.p for x in labels], [calibrator(x.p) for x in labels])
    )
    # Two standard errors of a share: less than that may be chance.
    slack = 2.0 * (max(was * (1.0 - was), 1e-9) / len(labels)) ** 0.5
    if abs(was - said) <= slack:
        title = "What the gate says is about what happens"
    elif was > said:
        title = "Memories are wrong more often than the gate says"
    else:
        title = "Memories are wrong less often than the gate says"
    most = max(max(label.p, calibrator(label.p)) for label in labels)
    span = next(one for one in _SPANS if one >= most)
    bins = round(_BARS / span)
    return Picture(
        title=title,
        words=(
            f"Of {len(labels):,} memories that were checked, {_percent(was)} were wrong. "
            f"The gate had said {_percent(said)}; calibrated, it says {_percent(now)}."
        ),
        before=reliability(labels, lambda p: p, bins),
        after=reliability(labels, calibrator, bins),
        span=span,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def png(shown: Picture) -> bytes:
    """Return the plot as PNG."""
    return _saved(shown, "png")


def page(shown: Picture) -> bytes:
    """Return the plot as an HTML page that needs nothing else."""
    svg = _saved(shown, "svg").decode()
    svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{shown.title}"', 1)
    rows = "".join(
        f"<tr><td>{when}</td><td>{_percent(one.said)}</td><td>{_percent(one.was)}</td>"
        f"<td>{one.weight:,.0f}</td></tr>"
        for when, bins in (("before", shown.before), ("after", shown.after))
        for one in bins
    )
    return _PAGE.format(
        title=escape(shown.title), words=escape(shown.words), svg=svg, rows=rows
    ).encode()


def _saved(shown: Picture, kind: str) -> bytes:
    try:
        import matplotlib as plotting
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plotting needs matplotlib: pip install 'amv[guard]'") from error
    with plotting.rc_context({"font.size": 10, "axes.edgecolor": PALE, "svg.hashsalt": "amv"}):
        figure = Figure(figsize=_INCHES, layout="constrained", facecolor="white")
        _draw(figure, shown, is_whole=kind == "png")
        held = io.BytesIO()
        when = {"Date": None} if kind == "svg" else None
        figure.savefig(held, format=kind, dpi=200, metadata=when)
    return held.getvalue()


def _draw(figure: "Figure", shown: Picture, *, is_whole: bool) -> None:
    """Draw both panels; with title and words if the picture stands alone."""
    import textwrap

    top, bottom = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    if is_whole:
        figure.suptitle(f"\n{shown.title}", fontsize=11, fontweight="bold", color=INK)
        top.set_title("\n".join(textwrap.wrap(shown.words, 62)), fontsize=8.5, color=INK)
    ends = [0, shown.span]
    top.plot(ends, ends, color=PALE, linestyle="--", linewidth=1, label="as often as said")
    height = max(shown.span, *(one.was for one in [*shown.before, *shown.after])) * 1.08
    for bins, color, mark, name in (
        (shown.before, BEFORE, "o", "before"),
        (shown.after, AFTER, "s", "after calibration"),
    ):
        said, was = [one.said for one in bins], [one.was for one in bins]
        # What chance alone may do, up and down.
        low = [min(one.was, _error(one)) for one in bins]
        high = [min(1.0 - one.was, _error(one)) for one in bins]
        top.errorbar(
            said, was, yerr=[low, high], color=color, marker=mark, markersize=6, label=name,
            linewidth=1.5, elinewidth=0.8, alpha=0.9,
        )  # fmt: skip
    top.set(xlim=(0, shown.span), ylim=(0, height), ylabel="was wrong")
    top.legend(frameon=False, loc="lower right", fontsize=9)
    _bars(bottom, shown)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
    top.yaxis.set_major_formatter(lambda share, _: _tick(share))
    bottom.xaxis.set_major_formatter(lambda share, _: _tick(share))


def _error(one: Bin) -> float:
    return float(2.0 * (max(one.was * (1.0 - one.was), 0.25 / one.weight) / one.weight) ** 0.5)


def _bars(axes: "Axes", shown: Picture) -> None:
    """Draw how many memories stand behind each point."""
    wide = 0.42 * shown.span / _BARS
    for bins, color, shift in ((shown.before, BEFORE, -0.5), (shown.after, AFTER, 0.5)):
        places = [(one.low + one.high) / 2 + shift * wide for one in bins]
        axes.bar(places, [one.weight for one in bins], width=wide, color=color, alpha=0.85)
    axes.set(xlabel="said to be wrong", ylabel="memories")


def _tick(share: float) -> str:
    return f"{100 * share:.3g} %"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff }}
body {{ max-width: 36rem; margin: 1.5rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.35rem; line-height: 1.25; margin: 0 0 .5rem }}
svg {{ width: 100%; height: auto }}
summary {{ cursor: pointer; padding: .5rem 0 }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: right; padding: .2rem .5rem; border-bottom: 1px solid #eee }}
th:first-child, td:first-child {{ text-align: left }}
</style></head><body>
<h1>{title}</h1>
<p>{words}</p>
{svg}
<p>A point on the dashed line means that what was said to happen in so many of a hundred cases
did. Points above it: memories are wrong more often than said. The thin lines are what chance
alone may do; the bars below count the memories.</p>
<details><summary>The numbers</summary>
<table><tr><th></th><th>said</th><th>was</th><th>memories</th></tr>{rows}</table></details>
</body></html>
"""
