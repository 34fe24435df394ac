"""Calibration: as good as the libraries it fits with, and nothing where there is too little."""

import math
import sys
from typing import Any

import numpy as np
import pytest
from betacal import BetaCalibration
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from amv.errors import ConfigError, InvalidInput
from amv.guard.calibration import (
    ISOTONIC_FROM,
    Calibrator,
    Label,
    Sort,
    fit,
    fitted,
    log_loss,
    reliability,
)
from amv.guard.prior import P_MAX, P_MIN, logit, sigmoid

SORTS: list[Sort] = ["platt", "beta", "isotonic"]


def labels(n: int, *, slope: float = 0.5, offset: float = 1.0, seed: int = 0) -> list[Label]:
    """Draw labels of a prior that says the wrong thing: the truth is sigmoid(slope z + offset)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-2.0, 1.5, n)
    is_violated = rng.random(n) < 1.0 / (1.0 + np.exp(-(slope * z + offset)))
    weights = rng.choice([1.0, 4.0], n)
    return [
        Label(sigmoid(one), bool(was), float(weight))
        for one, was, weight in zip(z.tolist(), is_violated.tolist(), weights.tolist(), strict=True)
    ]


def predicted(sort: Sort, given: list[Label]) -> list[float]:
    """Return what the library's own model says of each label, fitted to the same."""
    p = np.asarray([label.p for label in given])
    y = np.asarray([label.is_violated for label in given], dtype=int)
    weights = np.asarray([label.weight for label in given])
    if sort == "platt":
        z = np.asarray([[logit(one)] for one in p.tolist()])
        model: Any = LogisticRegression(C=1e6, max_iter=1000).fit(z, y, sample_weight=weights)
        found = model.predict_proba(z)[:, 1]
    elif sort == "beta":
        model = BetaCalibration(parameters="abm")
        model.fit(p.reshape(-1, 1), y, sample_weight=weights)
        found = model.predict(p.reshape(-1, 1))
    else:
        found = IsotonicRegression(out_of_bounds="clip").fit(p, y, weights).predict(p)
    said: list[float] = np.clip(found, P_MIN, P_MAX).tolist()
    return said


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fitted_map_says_what_the_library_says(sort: Sort, seed: int) -> None:
    """A decision then needs a few numbers, and no library."""
    given = labels(400, seed=seed)
    own = fitted(given, sort)
    theirs = predicted(sort, given)
    by_p = dict(zip([label.p for label in given], theirs, strict=True))

    assert [own(label.p) for label in given] == pytest.approx(theirs, abs=1e-5)
    assert log_loss(given, own) <= log_loss(given, by_p.__getitem__) + 1e-9


@pytest.mark.parametrize("sort", SORTS)
def test_a_label_of_weight_three_counts_as_three(sort: Sort) -> None:
    """Audited decisions stand for those that were not looked at."""
    plain = [label._replace(weight=1.0) for label in labels(300)]
    weighted = [one._replace(weight=3.0 if one.is_violated else 1.0) for one in plain]
    repeated = [one for one in plain for _ in range(3 if one.is_violated else 1)]
    grid = np.linspace(0.01, 0.9, 20).tolist()

    once, thrice = fitted(weighted, sort), fitted(repeated, sort)
    assert [once(p) for p in grid] == pytest.approx([thrice(p) for p in grid], abs=2e-3)
    assert [once(p) for p in grid] != pytest.approx(
        [fitted(plain, sort)(p) for p in grid], abs=0.05
    )


def test_the_identity_changes_nothing() -> None:
    assert Calibrator()(0.3) == 0.3
    assert fitted(labels(50), "identity") == Calibrator()


@pytest.mark.parametrize("sort", SORTS)
def test_nothing_becomes_certain(sort: Sort) -> None:
    own = fitted(labels(400), sort)

    assert all(P_MIN <= own(p) <= P_MAX for p in (0.0, 0.001, 0.5, 0.999, 1.0))


def test_what_fits_best_on_data_left_out_is_chosen() -> None:
    found = fit(labels(1000))

    assert found.labels == 1000
    assert found.losses.keys() == {"identity", "platt", "beta", "isotonic"}
    assert found.calibrator.sort == min(found.losses, key=found.losses.__getitem__)
    assert found.calibrator.sort in ("platt", "beta")
    assert found.losses["platt"] < found.losses["identity"] - 0.1
    # What it was drawn from.
    assert fitted(labels(20_000), "platt").numbers == pytest.approx((0.5, 1.0), abs=0.1)


def test_a_prior_that_is_right_stays_as_it_is() -> None:
    found = fit(labels(150, slope=1.0, offset=0.0, seed=3))

    assert found.losses["identity"] <= min(found.losses.values()) + 0.01
    assert "isotonic" not in found.losses
    assert ISOTONIC_FROM > 150


@pytest.mark.parametrize("violated", [0, 9, 91, 100])
def test_too_few_labels_of_either_kind_change_nothing(violated: int) -> None:
    given = [Label(0.2, n < violated) for n in range(100)]

    assert fit(given) == (Calibrator(), {}, 100)


@pytest.mark.parametrize(
    "label",
    [
        Label(1.1, True),
        Label(math.nan, True),
        Label(0.5, True, 0.0),
        Label(0.5, True, math.inf),
        Label(0.5, True, math.nan),
    ],
)
def test_what_is_no_label_is_refused(label: Label) -> None:
    with pytest.raises(InvalidInput, match="a probability and a positive weight"):
        fit([label])


@pytest.mark.parametrize(
    ("sort", "module"), [("platt", "sklearn.linear_model"), ("beta", "betacal")]
)
def test_without_its_library_calibrating_says_what_to_install(
    sort: Sort, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigError, match=r"pip install 'amv\[guard\]'"):
        fitted(labels(50), sort)


def test_reliability_says_how_often_what_was_said_was_so() -> None:
    given = [
        Label(0.05, False, 3.0),
        Label(0.07, True),
        Label(0.55, True),
        Label(1.0, True),
        Label(0.95, False),
    ]
    found = reliability(given, 3)

    assert [(one.weight, one.labels) for one in found] == [(3.0, 1), (2.0, 2), (2.0, 2)]
    assert [one.was for one in found] == [0.0, 1.0, 0.5]
    assert [one.said for one in found] == pytest.approx([0.05, 0.31, 0.975])
    assert all(one.low <= one.was <= one.high for one in found)
    assert reliability([]) == []


def test_what_was_said_alike_is_in_one_bin() -> None:
    """Else it would depend on the order of labels in which bin what is wrong lands."""
    (found,) = reliability([Label(0.3, n % 2 == 0) for n in range(50)], 5)

    assert (found.was, found.labels) == (0.5, 50)
    assert found.said == pytest.approx(0.3)


def test_chance_moves_what_few_labels_say_more() -> None:
    (few,), (many,) = (
        reliability([Label(0.3, n % 4 == 0) for n in range(count)], 1) for count in (8, 800)
    )

    assert few.high - few.low > 5 * (many.high - many.low)
    # One label of great weight beside others is worth little more than one.
    (heavy,) = reliability([Label(0.3, True, 100.0), *[Label(0.3, False)] * 9], 1)
    assert heavy.high - heavy.low > 0.6
