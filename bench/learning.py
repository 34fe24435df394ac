"""How far what the gate learns can be trusted, where the truth is known.

    python -m bench.learning                     # everything: about a minute
    python -m bench.learning --repeats 100

Certificates are made a thousand times, each of 1,000 actions drawn anew, and
compared with what is true of all such actions.  Calibrators are fitted beside
the libraries' own models to the same labels, and both are judged by 20,000
others.  Audits and hazards are drawn from a known rate.
"""

import math
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from betacal import BetaCalibration
from rich.console import Console
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from amv.guard.calibration import Label, Sort, fit, fitted, log_loss
from amv.guard.certificate import THRESHOLDS, Trial, certified
from amv.guard.prior import P_MAX, P_MIN, Features, LogisticPrior, logit, sigmoid
from amv.guard.survival import Aged, at_start, fit_survival
from bench import machine
from bench.planners import Figure, table
from bench.store_rows import Row, Sink, now, read

SEED = 6
EPSILON, DELTA = 0.05, 0.1
INSTANCES = 1_000
VIOLATIONS_MAX = 137
"""With a true rate of 0.1, more of 1,000 happen in fewer than one of 10,000 sets of repeats."""

AUDIT = 0.2
SORTS: tuple[Sort, ...] = ("platt", "beta", "isotonic")
HAZARDS = {"status": 1 / 40.0, "price": 1 / 300.0, "address": 1 / 4000.0}


class World:
    """Actions of a score u, log-uniform, of which more than u harm: the gate is too sure."""

    low, high, excess = 0.001, 0.5, 1.5

    def draw(self, rng: np.random.Generator, instances: int = INSTANCES) -> list[Trial]:
        """Draw instances, and return what each threshold leads to."""
        u = self.low * (self.high / self.low) ** rng.random(instances)
        is_harmful = rng.random(instances) < np.minimum(1.0, self.excess * u)
        goes = u[None, :] <= np.asarray(THRESHOLDS)[:, None]
        return [
            Trial(t, int(executed), int(harmed), float(largest))
            for t, executed, harmed, largest in zip(
                THRESHOLDS,
                goes.sum(1),
                (goes & is_harmful).sum(1),
                np.where(goes, u, 0.0).max(1),
                strict=True,
            )
        ]

    def harm(self, threshold: float) -> float:
        """Return P(harm | u <= threshold), where no u harms for sure."""
        return self.excess * (threshold - self.low) / math.log(threshold / self.low)

    def coverage(self, threshold: float) -> float:
        """Return P(u <= threshold)."""
        return math.log(threshold / self.low) / math.log(self.high / self.low)


class Repeated(NamedTuple):
    """How often certificates were wrong, and how much of what could go ahead did."""

    violations: int
    coverage: float
    naive_violations: int


def certificates(repeats: int) -> Repeated:
    """Certify so often, each time on data of its own; the control takes what only looks good."""
    world, violations, naive, covered = World(), 0, 0, 0.0
    best = max(world.coverage(t) for t in THRESHOLDS[1:] if world.harm(t) <= EPSILON)
    for seed in range(repeats):
        found = world.draw(np.random.default_rng([seed, SEED]))
        made = certified(found, epsilon=EPSILON, delta=DELTA, instances=INSTANCES)
        if made.threshold is not None:
            violations += world.harm(made.threshold) > EPSILON
            covered += world.coverage(made.threshold) / best
        loosest = max(t.threshold for t in found if t.harmed <= EPSILON * t.executed)
        naive += world.harm(loosest) > EPSILON
    return Repeated(violations, covered / repeats, naive)


def labels(count: int, seed: int) -> list[Label]:
    """Draw labels of a prior that is too sure and too flat, some of them from audits."""
    rng = np.random.default_rng([seed, SEED, count])
    z = rng.normal(-2.0, 1.5, count)
    is_violated = rng.random(count) < 1.0 / (1.0 + np.exp(-(0.5 * z + 1.0)))
    weights = rng.choice([1.0, 4.0], count)
    columns = zip(z.tolist(), is_violated.tolist(), weights.tolist(), strict=True)
    return [Label(sigmoid(one), bool(was), float(weight)) for one, was, weight in columns]


def of_library(sort: Sort, given: list[Label], asked: list[Label]) -> float:
    """Return the log loss on *asked* of the library's own model, fitted to *given*."""
    p, q = (np.asarray([label.p for label in some]) for some in (given, asked))
    y = np.asarray([label.is_violated for label in given], dtype=int)
    weights = np.asarray([label.weight for label in given])
    if sort == "platt":
        x, at = (np.asarray([[logit(one)] for one in some.tolist()]) for some in (p, q))
        model: Any = LogisticRegression(C=1e6, max_iter=1000).fit(x, y, sample_weight=weights)
        said = model.predict_proba(at)[:, 1]
    elif sort == "beta":
        model = BetaCalibration(parameters="abm")
        model.fit(p.reshape(-1, 1), y, sample_weight=weights)
        said = model.predict(q.reshape(-1, 1))
    else:
        said = IsotonicRegression(out_of_bounds="clip").fit(p, y, weights).predict(q)
    by_p = dict(zip(q.tolist(), np.clip(said, P_MIN, P_MAX).tolist(), strict=True))
    return log_loss(asked, by_p.__getitem__)


def calibrators(count: int, repeats: int, sink: Sink) -> None:
    """Compare calibrators with the libraries' on labels that neither was fitted to."""
    asked = labels(20_000, 999)
    own: dict[str, list[float]] = {sort: [] for sort in (*SORTS, "chosen")}
    theirs: dict[str, list[float]] = {sort: [] for sort in SORTS}
    for seed in range(repeats):
        given = labels(count, seed)
        for sort in SORTS:
            own[sort].append(log_loss(asked, fitted(given, sort)))
            theirs[sort].append(of_library(sort, given, asked))
        own["chosen"].append(log_loss(asked, fit(given).calibrator))
    sink.add("calibrators", count=count, own=own, theirs=theirs)


def audits(repeats: int, sink: Sink) -> None:
    """Estimate how many claims are wrong, where the doubtful are checked and few of the others."""
    rng = np.random.default_rng([SEED, 1])
    weighted, plain = [], []
    for _ in range(repeats):
        doubtful = rng.random(INSTANCES) < 1 / 3
        wrong = rng.random(INSTANCES) < np.where(doubtful, 0.5, 0.1)
        seen = doubtful | (rng.random(INSTANCES) < AUDIT)
        weight = np.where(doubtful, 1.0, 1.0 / AUDIT)
        weighted.append(float((weight * wrong)[seen].sum() / weight[seen].sum()))
        plain.append(float(wrong[seen].mean()))
    sink.add("audits", true=(0.5 + 2 * 0.1) / 3, weighted=weighted, plain=plain)


def hazards(count: int, repeats: int, sink: Sink) -> None:
    """Learn the hazards of three kinds from so many labels; note what was found of each."""
    prior, found = LogisticPrior(), list[dict[str, float]]()
    for seed in range(repeats):
        rng, seen = np.random.default_rng([seed, SEED, 2]), []
        for kind in rng.choice(sorted(HAZARDS), count).tolist():
            features = Features(age_h=float(rng.uniform(0.0, 1.5 / HAZARDS[kind])), trust=0.6)
            start = prior(at_start(features))
            p = 1.0 - (1.0 - start) * math.exp(-HAZARDS[kind] * features.age_h)
            seen.append(Aged(features, kind, bool(rng.random() < p)))
        found.append(fit_survival(seen, prior).kinds)
    sink.add("hazards", count=count, true=HAZARDS, found=found)


def figures(rows: list[Row]) -> list[Figure]:
    """Return the lines of the table, by the rows of one run."""
    found = []
    for row in rows:
        if row["measure"] == "certificates":
            repeats = row["repeats"]
            limit = float(VIOLATIONS_MAX) if repeats == INSTANCES else None
            what = f"certificates of {repeats:,} that do not hold"
            found.append(Figure(what, row["violations"], "", limit))
            found.append(Figure("  where only what looks good is taken", row["naive"], ""))
            covered = 100.0 * row["coverage"]
            what = f"coverage of the best threshold's, {INSTANCES:,} actions"
            found.append(Figure(what, covered, "%", 80.0, at_least=True))
        elif row["measure"] == "calibrators":
            found += _losses(row)
        elif row["measure"] == "audits":
            true = row["true"]
            off = [100.0 * abs(float(np.mean(row[name])) - true) for name in ("weighted", "plain")]
            found.append(Figure("wrong claims by weighted audits, off by", off[0], "points", 0.5))
            found.append(Figure("  without the weights, off by", off[1], "points"))
        else:
            off = [
                abs(math.log(one[kind] / rate))
                for one in row["found"]
                for kind, rate in row["true"].items()
            ]
            what = f"hazard per kind, {row['count']:,} labels, typically off by"
            found.append(Figure(what, 100.0 * math.expm1(float(np.median(off))), "%"))
    return found


def _losses(row: Row) -> list[Figure]:
    """Return how much more is lost than by the libraries, of each sort; at most rounding."""
    found = []
    for sort in row["theirs"]:
        more = np.asarray(row["own"][sort]) - np.asarray(row["theirs"][sort])
        what = f"log loss of {sort} above the library's, {row['count']:,} labels, worst"
        found.append(Figure(what, float(more.max()), "nats", 1e-4))
    best = np.min([row["theirs"][sort] for sort in row["theirs"]], axis=0)
    more = np.asarray(row["own"]["chosen"]) - best
    what = f"  of the one chosen above the best of theirs, {row['count']:,} labels, mean"
    found.append(Figure(what, float(more.mean()), "nats"))
    return found


def run(sink: Sink, *, repeats: int) -> None:
    """Take every measure."""
    sink = sink.naming(seed=SEED)
    made = certificates(repeats)
    sink.add(
        "certificates",
        repeats=repeats,
        violations=made.violations,
        coverage=made.coverage,
        naive=made.naive_violations,
    )
    few = max(1, repeats // 50)
    for count in (200, 1_000, 5_000):
        calibrators(count, few, sink)
    audits(repeats, sink)
    hazards(1_000, few, sink)


def main(
    repeats: Annotated[int, typer.Option(metavar="N", help="Certificates to make.")] = 1_000,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure what the gate learns, and print the table."""
    path = out or machine.RESULTS / f"learning-{now()[:8]}.jsonl"
    run(Sink(path=path), repeats=repeats)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(figures(read(path))))
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
