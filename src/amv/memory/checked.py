"""What checks found of items: prepared before a transaction, noted within it.

A value that was found in place of an item's becomes an item of its own, with a
text that must be embedded; so that is made ready before.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from amv.checks import shown
from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.memory import life, lookup
from amv.memory.edit import Edit
from amv.memory.given import NewItem
from amv.memory.intake import Intake
from amv.memory.item import Claim, JsonScalar, Namespace, Row, Status
from amv.memory.ports import NamespaceRow, Store


class Checked(NamedTuple):
    """What a check found of an item: it holds, or *value* does; None where nothing does.

    *by* names the source of that value, whose trust is *trust*; without it, it
    counts as said by whoever said what was found wrong.
    """

    item_id: str
    holds: bool
    value: object = None
    by: str = ""
    trust: float = 0.0


def successor(
    intake: Intake,
    row: Row,
    ns: NamespaceRow,
    value: JsonScalar,
    now_s: float,
    *,
    by: str = "",
    trust: float = 0.0,
) -> NewItem:
    """Return the item that says what a check found in place of what *row* claims.

    It is trusted as far as *row* was, or as *by* is if that is more: it takes the
    place of one that would otherwise stand against it.

    Raises Conflict for an item without a claim, InvalidInput for a value that no
    claim can hold.
    """
    if row.claim is None:
        raise Conflict(f"item {row.id!r} has no claim whose value could be {shown(value)}")
    claim = Claim(row.claim.subject, row.claim.attribute, value)
    fields = {
        "content": f"{claim.subject} {claim.attribute}: {claim.value}",
        "namespace": ns.name,
        "claim": claim,
        "source": by or row.source,
        "source_trust": max(row.source_trust, trust),
        "metadata": dict(row.metadata),
    }
    new = intake.embed([intake.check(fields, now_s)], now_s)[0]
    # What it replaces will name it, so that it must become an item of its own.
    return replace(new, id_is_given=True)


def successors(
    store: Store, intake: Intake, checks: Sequence[Checked], name: Namespace, now_s: float
) -> list[NewItem | None]:
    """Return what takes the place of each item; None where nothing does."""
    found: list[NewItem | None] = []
    for check in checks:
        new = None
        if not check.holds and isinstance(check.value, str | int | float | bool):
            with suppress(ItemNotFound, Conflict, InvalidInput):
                with store.read() as reader:
                    row, ns = lookup.find(reader, check.item_id, name, now_s)
                by, trust = check.by, check.trust
                new = successor(intake, row, ns, check.value, now_s, by=by, trust=trust)
        found.append(new)
    return found


def replaced(edit: Edit, row: Row, new: NewItem) -> Row:
    """Note that a check found the item wrong, and what holds instead; return the row of that."""
    life.refute(edit, row, new.id)
    added = life.add(edit, [new])[0]
    found = replace(added, supersedes=row.id, last_verified_s=edit.now_s)
    edit.tx.update(found)
    edit.change.items.append(found.key)
    return found


def note(edit: Edit, check: Checked, new: NewItem | None) -> Row | None:
    """Note what a check found; return the row that says so, None if the item is live no more.

    *new* takes the place of an item that was found wrong.
    """
    rows = edit.tx.rows_with_id(check.item_id, edit.row.ns_id)
    live = [r for r in rows if r.status is Status.LIVE and not r.is_expired(edit.now_s)]
    if not live:
        return None
    (row,) = live
    if check.holds:
        return life.confirm(edit, row)
    return life.refute(edit, row, None) if new is None else replaced(edit, row, new)
