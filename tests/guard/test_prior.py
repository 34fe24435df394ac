"""How likely a claim is wrong, before anything was checked."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.errors import InvalidInput
from amv.guard.prior import P_MAX, P_MIN, Features, LogisticPrior, clipped, logit, sigmoid

REFERENCE = [
    (0.9, 0, 0.8, False, 0.004451),
    (0.9, 720, 0.8, False, 0.036967),
    (0.7, 360, 0.5, True, 0.650636),
    (0.6, 720, 0.5, False, 0.456173),
    (1, 0, 0.8, False, 0.001),
]


@pytest.mark.parametrize(("confidence", "age_h", "trust", "is_contradicted", "p"), REFERENCE)
def test_the_reference_probabilities(
    confidence: float, age_h: float, trust: float, is_contradicted: bool, p: float
) -> None:
    """Those of the published coefficients, to the last digit given."""
    features = Features(
        confidence=confidence, age_h=age_h, trust=trust, is_contradicted=is_contradicted
    )

    assert LogisticPrior()(features) == pytest.approx(p, abs=5e-7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", 1.1),
        ("trust", -0.1),
        ("trust", math.nan),
        ("age_h", -1.0),
        ("age_h", math.inf),
        ("age_h", math.nan),
    ],
)
def test_features_out_of_range_are_refused(field: str, value: float) -> None:
    fine: dict[str, Any] = {"confidence": 0.9, "age_h": 1.0, "trust": 0.5}
    with pytest.raises(InvalidInput, match=field):
        Features(**{**fine, field: value})


@given(st.floats(min_value=-1e6, max_value=1e6))
def test_nothing_is_certain(z: float) -> None:
    assert P_MIN <= clipped(sigmoid(z)) <= P_MAX


@given(st.floats(min_value=-10, max_value=10))
def test_logit_undoes_sigmoid(z: float) -> None:
    assert logit(sigmoid(z)) == pytest.approx(z, abs=1e-6)
