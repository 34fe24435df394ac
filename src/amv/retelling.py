"""What a memory was told again of claims: the same value, or another.

That, too, says how long claims stay true.  What checks found is not among it,
as the log of decisions has that.
"""

from collections.abc import Iterator

from amv.guard.actions import equal
from amv.guard.bind import kind_of
from amv.guard.policy import Policy
from amv.guard.prior import TRUSTED_FROM, Features
from amv.guard.survival import Aged
from amv.memory.item import Item, Status
from amv.memory.service import MemoryService

LISTED_MAX = 1000
"""How many items are read at once where all are."""


def retold(memory: MemoryService, policy: Policy, *, namespace: tuple[str, ...] = ()) -> list[Aged]:
    """Return what was told again in namespaces that begin so.

    Only of attributes that the policy speaks of.
    """
    kinds = {
        premise.claim.rpartition("/")[2]: kind_of(premise)
        for rule in policy.actions.values()
        for premise in rule.rests_on.values()
    }
    return [
        one._replace(kind=kinds[one.kind])
        for name in memory.namespaces()
        if name[: len(namespace)] == namespace
        for one in _retold(memory, name)
        if one.kind in kinds
    ]


def all_items(
    memory: MemoryService, namespace: tuple[str, ...], *, status: Status | None
) -> Iterator[Item]:
    """Return the items of a namespace, a page at a time: those with a status, or all if None."""
    cursor = None
    while True:
        page = memory.list(namespace=namespace, cursor=cursor, limit=LISTED_MAX, status=status)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            break


def _retold(memory: MemoryService, namespace: tuple[str, ...]) -> Iterator[Aged]:
    """Return of each claim told again how old it was, and whether the value was another.

    The kind of each is its attribute.
    """
    before: dict[tuple[str, str], Item] = {}
    items = all_items(memory, namespace, status=None)
    for item in sorted(items, key=lambda one: (one.valid_from, one.created_at)):
        if item.claim is None or item.source_trust < TRUSTED_FROM:
            continue
        claim = item.claim
        old = before.get((claim.subject, claim.attribute))
        before[claim.subject, claim.attribute] = item
        if old is None or old.claim is None or old.status is Status.REFUTED:
            continue
        age_s = (item.valid_from - (old.last_verified_at or old.valid_from)).total_seconds()
        if age_s > 0.0:
            yield Aged(
                Features(age_h=age_s / 3600.0, trust=old.source_trust),
                claim.attribute,
                not equal(claim.value, old.claim.value),
            )
