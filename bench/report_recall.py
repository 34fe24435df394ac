"""The tables of `bench.recall`, recomputed from its raw rows.

python -m bench.report_recall bench/results/recall-20261201.jsonl --markdown
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import typer
from rich.console import Console

from bench.conversations import CATEGORIES
from bench.report_command import as_markdown, as_printed, report_command
from bench.store_rows import Row

KS = (5, 10, 20)
PLACES = {"own": "each in its own namespace", "one": "all in one namespace"}


class Line(NamedTuple):
    """One figure; *target* says what is asked of it, and *is_met* whether it is so."""

    what: str
    value: str
    target: str = ""
    is_met: bool | None = None


def shares(ranks: Sequence[Sequence[int]], k: int) -> list[float]:
    """Return which share of each question's evidence is among the first *k*."""
    return [float(np.mean([0 < rank <= k for rank in evidence])) for evidence in ranks]


def recall_at(ranks: Mapping[str, Sequence[Sequence[int]]], k: int) -> float:
    """Return the mean over all questions."""
    return float(np.mean(list(chain.from_iterable(shares(own, k) for own in ranks.values()))))


class Chosen(NamedTuple):
    """What cross-validation chose without one conversation, and what that gives on it."""

    conversation: str
    width: int
    lexical: float
    held_out: list[float]


def cross_validated(rows: Sequence[Row], k: int = 10) -> list[Chosen]:
    """Choose width and weights on all conversations but one, for each in turn."""
    tried = [row for row in rows if row["measure"] == "fusion"]
    found = []
    for name in tried[0]["ranks"] if tried else ():
        others = [
            (recall_at({n: r for n, r in row["ranks"].items() if n != name}, k), row)
            for row in tried
        ]
        best = max(others, key=lambda one: one[0])[1]
        found.append(Chosen(name, best["width"], best["lexical"], shares(best["ranks"][name], k)))
    return found


def recall_table(rows: Sequence[Row]) -> list[list[str]]:
    """Return recall of every way to search, a row each, under a heading."""
    found = [["items", "ranked by", "context turns", "search", *(f"R@{k}" for k in KS)]]
    for row in rows:
        if row["measure"] == "recall":
            figures = [f"{recall_at(row['ranks'], k):.3f}" for k in KS]
            width = "–" if not row["width"] else f"±{row['width']}"
            found.append([PLACES[row["place"]], row["kind"], width, row["search"], *figures])
    return found


def category_table(rows: Sequence[Row]) -> list[list[str]]:
    """Return recall by category of question, of searches as shipped."""
    found = [["context turns", *CATEGORIES.values()]]
    for asked in (row for row in rows if row["measure"] == "questions"):
        for row in _shipped(rows, "own"):
            by: dict[int, list[float]] = {}
            for name, own in row["ranks"].items():
                for category, share in zip(asked["categories"][name], shares(own, 10), strict=True):
                    by.setdefault(category, []).append(share)
            means = [f"{np.mean(by[c]):.3f} ({len(by[c])})" if c in by else "" for c in CATEGORIES]
            found.append([f"±{row['width']}" if row["width"] else "–", *means])
    return found


def fusion_table(rows: Sequence[Row]) -> list[list[str]]:
    """Return R@10 by width of context and share of the words."""
    tried = {(r["width"], r["lexical"]): r for r in rows if r["measure"] == "fusion"}
    widths, weights = (sorted({key[i] for key in tried}) for i in (0, 1))
    found = [["context turns", *(f"words {weight:g}" for weight in weights)]]
    for width in widths:
        means = [f"{recall_at(tried[width, weight]['ranks'], 10):.3f}" for weight in weights]
        found.append([f"±{width}" if width else "–", *means])
    return found


def distilled_table(rows: Sequence[Row]) -> list[list[str]]:
    """Return what static models keep of the fused recall, and what a query costs.

    The default model is timed first, and then each static one before it is searched with.
    """
    found = [["model", "R@10, fused, ±2", "of the default's", "CPU a query, median"]]
    took = [f"{np.median(r['cpu_us']) / 1e3:.3f} ms" for r in rows if r["measure"] == "embedding"]
    shipped = [recall_at(r["ranks"], 10) for r in _shipped(rows, "own") if r["width"] == 2]
    if not took or not shipped:
        return found
    found.append(["default", f"{shipped[0]:.3f}", "1", took[0]])
    statics = [row for row in rows if row["measure"] == "distilled"]
    for row, cost in zip(statics, took[1:], strict=True):
        own = recall_at(row["ranks"], 10)
        name = f"static, {row['dimension']} dimensions, {row['weighting']}"
        found.append([name, f"{own:.3f}", f"{own / shipped[0]:.3f}", cost])
    return found


def _shipped(rows: Sequence[Row], place: str) -> list[Row]:
    return [
        row
        for row in rows
        if row["measure"] == "recall"
        and (row["place"], row["search"], row["kind"]) == (place, "bounded", "fused")
    ]


def lines(rows: Sequence[Row]) -> list[Line]:
    """Return what is asked of a run, and what it gave."""
    found: list[Line] = []
    own = [recall_at(r["ranks"], 10) for r in _shipped(rows, "own") if r["width"] == 2]
    together = [recall_at(r["ranks"], 10) for r in _shipped(rows, "one") if r["width"] == 2]
    found += [Line("R@10, own namespace", f"{r:.3f}", "≥ 0.72", r >= 0.72) for r in own]
    if gaps := _gaps(rows):
        text = f"{max(gaps):.3f}"
        found.append(Line("exhaustive − bounded, at most", text, "≤ 0.01", max(gaps) <= 0.01))
    for apart, joint in zip(own, together, strict=False):
        lost = apart - joint
        found.append(Line("own − all in one", f"{lost:.3f}", "≤ 0.05", lost <= 0.05))
    return found + _held_out(rows) + _updates(rows)


def _gaps(rows: Sequence[Row]) -> list[float]:
    """Return by how much R@10 of each way to search is less where the search is bounded."""
    by_way: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        if row["measure"] == "recall":
            way = by_way.setdefault((row["place"], row["kind"], row["width"]), {})
            way[row["search"]] = recall_at(row["ranks"], 10)
    return [way["exhaustive"] - way["bounded"] for way in by_way.values() if len(way) == 2]


def _held_out(rows: Sequence[Row]) -> list[Line]:
    found = []
    if chosen := cross_validated(rows):
        held = float(np.mean([share for one in chosen for share in one.held_out]))
        found.append(Line("R@10 held out, cross-validated", f"{held:.3f}"))
        picks = ", ".join(
            f"±{w} / {x:g}" for w, x in sorted({(c.width, c.lexical) for c in chosen})
        )
        found.append(Line("  context / words it chose", picks))
    return found


def _updates(rows: Sequence[Row]) -> list[Line]:
    """Return what became of updates and of what was told again."""
    found: list[Line] = []
    for row in rows:
        if row["measure"] == "claims":
            for name, what, least in (
                ("first", "claims: the current one is first of its kind", 0.99),
                ("absent", "claims: the superseded one is absent", 0.99),
                ("first_of_all", "  the current one is first of everything", None),
            ):
                found.append(_share(what, row[name], least=least))
        elif row["measure"] == "updates":
            found.append(_share("free text: updates flagged", row["flagged"], least=0.7))
        elif row["measure"] == "unrelated":
            if row["kind"] == "drawn":
                found.append(
                    _share("free text: unrelated pairs flagged", row["flagged"], most=0.05)
                )
            else:
                found.append(_share("  of the most similar of these", row["flagged"]))
        elif row["measure"] == "talk":
            turns = [flag for flags in row["flagged"].values() for flag in flags]
            found.append(_share("  turns of conversations flagged", turns))
        elif row["measure"] == "retired":
            lost = row["added"] - row["live"]
            of = f"{lost} of {row['added']} ({row['contradicted']} flagged)"
            found.append(Line("unrelated items retired", of, "none", lost == 0))
        elif row["measure"] == "junk":
            told, (before, after) = row["told"], row["live"]
            stays = before == after == told and row["same_order"]
            text = f"{before} → {after}, order {'the same' if row['same_order'] else 'changed'}"
            found.append(
                Line("items after recalled text was added 50 times", text, "the same", stays)
            )
            both = len({*row["ports"]}) == 2 and row["ports"][0].endswith("8081")
            found.append(Line("port 8080 and port 8081 both stay", str(both), "both", both))
    return found


def _share(
    what: str, flags: Sequence[int], *, least: float | None = None, most: float | None = None
) -> Line:
    share = float(np.mean(flags))
    text = f"{100 * share:.1f} % of {len(flags)}"
    if least is not None:
        return Line(what, text, f"≥ {100 * least:.0f} %", share >= least)
    if most is not None:
        return Line(what, text, f"≤ {100 * most:.0f} %", share <= most)
    return Line(what, text)


def lines_table(rows: Sequence[Row]) -> list[list[str]]:
    """Return targets and figures as a table."""
    verdicts = {None: "", True: "pass", False: "FAIL"}
    found = [["figure", "measured", "target", ""]]
    found += [[one.what, one.value, one.target, verdicts[one.is_met]] for one in lines(rows)]
    return found


TABLES = (lines_table, recall_table, category_table, fusion_table, distilled_table)


def _filled(rows: Sequence[Row]) -> list[list[list[str]]]:
    """Return the tables that have more than their headings."""
    return [table for make in TABLES if len(table := make(rows)) > 1]


def markdown(rows: Sequence[Row]) -> str:
    """Return all tables as Markdown."""
    return "\n\n".join(map(as_markdown, _filled(rows)))


def show(rows: Sequence[Row], console: Console) -> None:
    """Print all tables."""
    for table in _filled(rows):
        console.print(as_printed(table))


main = report_command(markdown, show, 120)

if __name__ == "__main__":
    typer.run(main)
