"""Labels: what checks have shown of claims, for calibrating what was said of them.

A label is a remembered claim that supported its action, with the probability
that was said of it before any check, and whether the first check that told
anything refuted it.  A check is not the truth, but as near to it as the gate
comes by itself.  What was unknown, or came from a source that is not trusted,
was given no probability of its own and makes no label.
"""

from typing import NamedTuple

from amv.guard.calibration import Label
from amv.guard.prior import UNKNOWN
from amv.guard.state import Deciding


class Told(NamedTuple):
    """A label, and the digest of the calibration under which its probability was said."""

    calibration: str
    label: Label


def labels_of(state: Deciding) -> list[Told]:
    """Return the labels of one decision; none where its words were forgotten."""
    if state.opened.case is None:
        return []
    by_name = {premise.name: premise for premise in state.words.premises}
    checks = {check.name: check for check in state.case.checks}
    shown: dict[int, bool] = {}
    for evidence in state.evidence:
        about = checks[evidence.check].premises
        for place, outcome in zip(about, evidence.outcomes, strict=True):
            if outcome != "inconclusive":
                shown.setdefault(place, outcome == "refuted")
    found = []
    for place, is_violated in shown.items():
        said = state.case.premises[place]
        premise = by_name.get(said.name)
        if premise is None or not premise.is_remembered or said.p == UNKNOWN:
            continue
        if premise.holds_for(premise.remembered):
            found.append(Told(state.opened.calibration, Label(said.p, is_violated)))
    return found
