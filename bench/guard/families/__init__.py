"""How worlds change behind an agent: ten families, each a module with its definition."""

from collections.abc import Callable, Mapping
from random import Random

from bench.guard.families import (
    common_cause,
    deadline_passed,
    entity_deleted,
    entity_duplicated,
    owner_transferred,
    permission_revoked,
    precondition_flipped,
    unit_changed,
    upstream_changed,
    value_changed,
)
from bench.guard.world import Fact, State, World

Family = Callable[[World, State, Fact, Random], None]

SINGLE: Mapping[str, Family] = {
    "value_changed": value_changed.apply,
    "entity_deleted": entity_deleted.apply,
    "entity_duplicated": entity_duplicated.apply,
    "permission_revoked": permission_revoked.apply,
    "precondition_flipped": precondition_flipped.apply,
    "owner_transferred": owner_transferred.apply,
    "deadline_passed": deadline_passed.apply,
    "unit_changed": unit_changed.apply,
    "upstream_changed": upstream_changed.apply,
}
"""The families that change one attribute at a time."""

COMMON_CAUSE = "common_cause"
FAMILIES = (*SINGLE, COMMON_CAUSE)

PRECEDENCE = (
    COMMON_CAUSE,
    "upstream_changed",
    "entity_duplicated",
    "unit_changed",
    "deadline_passed",
    "permission_revoked",
    "owner_transferred",
    "entity_deleted",
    "precondition_flipped",
    "value_changed",
)
"""By which family an instance is counted in which several take part: the rarest comes first."""

UNSEEN = frozenset({"entity_duplicated", "owner_transferred", COMMON_CAUSE})
"""Families that are held out of calibration; chosen before anything was measured."""

UNCHANGED, RELEVANT = "unchanged", "relevant_only"
"""Controls: nothing changed, or only what the action does not depend on."""

__all__ = [
    "COMMON_CAUSE",
    "FAMILIES",
    "PRECEDENCE",
    "RELEVANT",
    "SINGLE",
    "UNCHANGED",
    "UNSEEN",
    "common_cause",
]
