"""The gate: whether an action may go ahead on what is remembered, and what to check first."""

from amv.guard.loss import regimes

__all__ = ["regimes"]
