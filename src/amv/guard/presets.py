"""Presets: losses for common sorts of action, to start from.

The numbers are proportions rather than money: what a wrong execution costs,
measured in how much it costs to abstain, which asks a person for a minute of
attention.  Whoever knows the real prices of an action sets those instead.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # A payment can seldom be called back.
        "payment": {
            "loss": {"wrong": 200.0, "abstain": 1.0, "repair": 0.5},
            "harm_max": 0.01,
            "permit_s": 30.0,
            "approval": True,
        },
        # A mail can't be called back, and costs an apology as a rule.
        "email": {"loss": {"wrong": 20.0, "abstain": 1.0, "repair": 0.2}, "harm_max": 0.05},
        # What is deleted is gone.
        "delete": {
            "loss": {"wrong": 100.0, "abstain": 1.0},
            "harm_max": 0.02,
            "approval": True,
        },
        # An appointment can be moved again.
        "calendar": {"loss": {"wrong": 5.0, "abstain": 1.0, "repair": 0.2}, "harm_max": 0.2},
        # A deployment can be rolled back, after an outage.
        "deploy": {
            "loss": {"wrong": 150.0, "abstain": 1.0, "repair": 0.5},
            "harm_max": 0.02,
            "approval": True,
        },
    }
)
"""Fields of an action's rule, by the name of the preset."""


def with_preset(rule: Mapping[str, Any], preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule in which what it does not say comes from a preset."""
    merged = {**preset, **{name: value for name, value in rule.items() if name != "preset"}}
    if isinstance(rule.get("loss"), Mapping) and "loss" in preset:
        merged["loss"] = {**preset["loss"], **rule["loss"]}
    return merged
