"""What a run shows, by its raw rows: harm, coverage, cost and loss, each with an interval.

Intervals hold 95 % of 2,000 bootstrap samples of the instances, or of the groups
they belong to, such as one real write that several instances were made from.
All policies are measured on the same samples, so that differences are paired.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bench.guard.arms import Setting
from bench.store_rows import Row

SAMPLES = 2_000
SEED = 5

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Interval(NamedTuple):
    """A figure and between which bounds it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def setting_named(name: str) -> Setting:
    """Return the setting that a row names."""
    return Setting(*map(float, name.split("/")))


class Cases:
    """The instances of a world: what was so of each, and how they are sampled."""

    def __init__(self, row: Row) -> None:
        self.world: str = row["world"]
        self.families = np.asarray(row["families"])
        self.tools = np.asarray(row["tools"])
        self.is_seen = np.asarray(row["is_seen"])
        self.is_right = np.asarray(row["as_given"]) == "right"
        self.is_harmful = np.asarray(row["as_given"]) == "harmful"
        self.is_doable = np.asarray(row["is_doable"])
        self._groups = row["groups"]

    def __len__(self) -> int:
        return len(self.families)

    @cached_property
    def weights(self) -> Floats:
        """How often each sample holds each instance, of shape (samples, instances)."""
        rng, n = np.random.default_rng(SEED), len(self)
        names = [name or str(place) for place, name in enumerate(self._groups)]
        _, group = np.unique(names, return_inverse=True)
        groups = int(group.max()) + 1
        drawn = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=SAMPLES)
        weights: Floats = drawn[:, group].astype(np.float64)
        assert weights.shape == (SAMPLES, n)
        return weights

    def ratio(self, part: npt.ArrayLike, whole: npt.ArrayLike | None = None) -> Interval:
        """Return the mean of *part*, or its sum over that of *whole*, with its interval."""
        top = np.asarray(part, dtype=np.float64)
        bottom = np.ones(len(self)) if whole is None else np.asarray(whole, dtype=np.float64)
        if not bottom.any():
            return Interval(np.nan, np.nan, np.nan)
        sampled = (self.weights @ top) / np.maximum(self.weights @ bottom, 1e-12)
        low, high = np.quantile(sampled, [0.025, 0.975])
        return Interval(float(top.sum() / bottom.sum()), float(low), float(high))


class Result:
    """What one policy did at one price, instance by instance."""

    def __init__(self, cases: Cases, arm: str, setting: Setting, rows: Sequence[Row]) -> None:
        self.cases, self.arm, self.setting = cases, arm, setting
        each = sorted(rows, key=lambda row: row["start"])
        codes = np.asarray(list("".join(row["codes"] for row in each)))
        self.firsts = np.asarray(list("".join(row["firsts"] for row in each)))
        self.calls = np.concatenate([row["calls"] for row in each]).astype(np.float64)
        repairs = "".join(row["repairs"] for row in each)
        self.repairs = np.asarray(list(map(int, repairs)), dtype=np.float64)
        self.said: list[list[float]] = [said for row in each for said in row["said"]]
        self.was: list[list[bool]] = [
            [so == "1" for so in was] for row in each for was in row["was"]
        ]
        self.right, self.harmful = codes == "E", codes == "H"
        self.failed, self.abstained = codes == "F", codes == "A"

    @property
    def executed(self) -> Bools:
        """Which actions went ahead, whatever came of them."""
        executed: Bools = ~self.abstained
        return executed

    @property
    def cost(self) -> Floats:
        """What checks cost, by instance."""
        return self.calls * self.setting.cost

    @property
    def loss(self) -> Floats:
        """The total loss, by instance."""
        return self._loss(self.abstained | self.failed)

    @property
    def loss_where_right(self) -> Floats:
        """The total loss where abstaining costs only if executing was right."""
        return self._loss((self.abstained & self.cases.is_right) | self.failed)

    def _loss(self, idle: Bools) -> Floats:
        kappa = self.setting.kappa
        found: Floats = (
            self.setting.theta * self.harmful
            + kappa * idle
            + self.setting.rho * self.repairs
            + self.cost
        )
        return found

    @property
    def covers(self) -> Bools:
        """Which actions that were right as they were went ahead rightly."""
        covers: Bools = self.right & self.cases.is_right
        return covers

    @property
    def covered(self) -> Interval:
        """The share of actions that were right as they were, which went ahead rightly."""
        return self.cases.ratio(self.covers, self.cases.is_right)

    def figures(self) -> dict[str, Interval]:
        """Return every figure of the table."""
        ratio = self.cases.ratio
        return {
            "harmful": ratio(self.harmful),
            "harmful_of_executed": ratio(self.harmful, self.executed),
            "executed": ratio(self.executed),
            "covered": self.covered,
            "covered_of_doable": ratio(self.right, self.cases.is_doable),
            "failed": ratio(self.failed),
            "repaired": ratio(self.repairs),
            "calls": ratio(self.calls),
            "cost": ratio(self.cost),
            "loss": ratio(self.loss),
            "loss_where_right": ratio(self.loss_where_right),
        }


class Run:
    """All results of a run, by world, policy and price."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.about = rows[0]
        self.cases = {row["world"]: Cases(row) for row in rows if row["measure"] == "cases"}
        self.digests = {row["world"]: row["digest"] for row in rows if row["measure"] == "cases"}
        self.extra: dict[str, list[Row]] = {}
        for row in rows:
            if row["measure"] in ("stress", "timelines"):
                self.extra.setdefault(row["measure"], []).append(row)
        self.taught = {row["world"]: row for row in rows if row["measure"] == "taught"}
        parts: dict[tuple[str, str, str], dict[int, Row]] = {}
        for row in rows:
            if row["measure"] == "trial":
                key = (row["world"], row["arm"], row["setting"])
                parts.setdefault(key, {})[row["start"]] = row
        # What is not done yet of a run that was stopped is no result.
        self.results = {
            key: Result(self.cases[key[0]], key[1], setting_named(key[2]), list(own.values()))
            for key, own in parts.items()
            if sum(len(row["codes"]) for row in own.values()) == len(self.cases[key[0]])
        }

    def of(self, world: str, arm: str, setting: Setting) -> Result | None:
        """Return what a policy did, if it was run."""
        return self.results.get((world, arm, setting.name))


def compared(one: Floats, other: Floats, cases: Cases) -> Interval:
    """Return how much more *one* is on average, paired by instance."""
    return cases.ratio(one - other)


def columns_of(figures: Mapping[str, Interval]) -> dict[str, Any]:
    """Return figures with their bounds as the columns of a CSV."""
    return {
        f"{name}{end}": value
        for name, figure in figures.items()
        for end, value in zip(("", "_low", "_high"), figure, strict=True)
    }
