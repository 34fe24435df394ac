"""Losses: what each way to end a decision costs, and when a check is worth its price.

An action can be executed, abstained from (kappa), or repaired (rho).  Executing
it while a premise is violated loses theta, the largest of those of the violated
premises.  A check costs lambda * c.  All are in one unit, such as euros.

    H = P(some critical premise is violated)      R = expected loss of executing
    V_stop = R   if R <= min(delta, kappa) and H <= epsilon,   else kappa

The screen (delta, epsilon) holds at every history that executes.  V_stop jumps
to kappa where H passes epsilon, so that evidence can make a plan worse, and the
screen itself costs loss where theta < kappa / epsilon: it is a constraint, not
part of the trade-off.

Source: DESIGN sections 4.1 and 4.2; arXiv 2610.31446.
"""

import math
from dataclasses import dataclass

from amv.checks import shown
from amv.errors import InvalidInput

PRICE_MAX = 1e100
"""The largest price: whatever is added and multiplied of such stays finite."""

EPSILON = 0.05
"""The default bound on the probability that an executed action rests on a violated premise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What ends a decision costs, and what screens executing; see the module.

    *repair* is None where nothing can be repaired.  *check_weight* is lambda,
    by which the costs of checks are multiplied.
    """

    abstain: float
    repair: float | None = None
    risk_max: float = math.inf
    harm_max: float = EPSILON
    check_weight: float = 1.0

    def __post_init__(self) -> None:
        check_price(self.abstain, "the loss 'abstain'")
        if self.repair is not None:
            check_price(self.repair, "the loss 'repair'")
        if not self.risk_max >= 0.0:
            raise InvalidInput(f"risk_max (delta) must be at least 0, got {self.risk_max}")
        if not 0.0 <= self.harm_max <= 1.0:
            raise InvalidInput(f"harm_max (epsilon) must be from 0 to 1, got {self.harm_max}")
        check_price(self.check_weight, "check_weight (lambda)")

    @property
    def critical_above(self) -> float:
        """The theta above which a premise is critical: min(delta, kappa)."""
        return min(self.risk_max, self.abstain)

    def may_execute(self, risk: float, harm: float) -> bool:
        """Return whether the screen lets an action of this R and H go ahead."""
        # Written positively, so that NaN never executes.
        return risk <= self.critical_above and harm <= self.harm_max

    def stopping_value(self, risk: float, harm: float) -> float:
        """Return V_stop: what ending the decision now loses, without repair."""
        return risk if self.may_execute(risk, harm) else self.abstain


def check_probability(p: float, what: str) -> float:
    """Return *p*, or raise InvalidInput unless it is from 0 to 1."""
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0:
        raise InvalidInput(f"{what} must be a probability from 0 to 1, got {shown(p)}")
    return float(p)


def check_price(price: float, what: str) -> float:
    """Return *price*, or raise InvalidInput unless it is from 0 to `PRICE_MAX`."""
    is_number = isinstance(price, int | float) and not isinstance(price, bool)
    if not is_number or not 0.0 <= price <= PRICE_MAX:
        raise InvalidInput(
            f"{what} must be at least 0 and finite (at most {PRICE_MAX:g}), got {shown(price)}"
        )
    return float(price)


def check_informative(sensitivity: float, specificity: float) -> None:
    """Raise InvalidInput unless a verifier says more than chance: s + t > 1."""
    s = check_probability(sensitivity, "sensitivity")
    t = check_probability(specificity, "specificity")
    if s + t <= 1.0:
        raise InvalidInput(
            "a verifier must be right more often than chance, sensitivity + specificity > 1; "
            f"got {s} + {t}"
        )


def regimes(
    *,
    p: float,
    abstain_cost: float,
    verify_cost: float,
    sensitivity: float,
    specificity: float,
    repair_cost: float | None = None,
) -> tuple[float, float]:
    """Return (theta_1, theta_2) of an action with one premise and one verifier, unscreened.

    With a loss theta of a wrong action below theta_1 it is best to PROCEED, from
    theta_2 up to ABSTAIN, and in between to VERIFY.  Where no theta makes the
    check worth its price, both are the same.  *p* is the probability that the
    premise is violated, *sensitivity* P(refute | violated), *specificity*
    P(confirm | holds), *verify_cost* the price of the check (lambda * c).  With
    *repair_cost*, a refuted action can be repaired at that price.

    Raises InvalidInput on a value out of range, or sensitivity + specificity <= 1.

    >>> one, two = regimes(
    ...     p=0.2, abstain_cost=1, verify_cost=0.05, sensitivity=0.9, specificity=0.9
    ... )
    >>> round(one, 5), round(two, 5)
    (1.72222, 34.5)
    """
    p = check_probability(p, "p")
    check_informative(sensitivity, specificity)
    kappa, price = (
        check_price(abstain_cost, "abstain_cost"),
        check_price(verify_cost, "verify_cost"),
    )
    rho = kappa if repair_cost is None else min(kappa, check_price(repair_cost, "repair_cost"))
    s, t = sensitivity, specificity
    if p * s == 0.0:
        return math.inf, math.inf
    confirmed = (1.0 - p) * t + p * (1.0 - s)
    # What is left of theta when a confirmed action goes ahead wrongly.
    missed = p * (1.0 - s)
    after_refuting = (1.0 - confirmed) * rho
    lower = (after_refuting + price) / (p * s)
    if lower >= kappa / p:
        return kappa / p, kappa / p
    spare = kappa - price - after_refuting
    if missed == 0.0 or price < (1.0 - confirmed) * (kappa - rho):
        return lower, math.inf
    return lower, spare / missed
