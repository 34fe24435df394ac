"""Budgets: what several actions come to together, however small each of them is.

Ten payments of 90 do not pass where one of 500 would not.  What an action takes
is noted in the transaction that grants it, where also the sum is read, so that
of several that are decided about at once those too many get no permit.  A grant
counts until its window is over, unless it came to nothing: it FAILED, or its
permit expired and nobody had redeemed it.
"""

from collections.abc import Mapping
from decimal import Decimal, localcontext
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from amv.errors import InvalidInput
from amv.guard.actions import canonical
from amv.guard.decision import Words
from amv.guard.loss import check_price
from amv.guard.policy import ActionRule, Budget, Policy
from amv.guard.ports import GuardReader, GuardWriter, SpentRow

DIGITS = 700
"""Enough for any sum: the largest amount has 309 digits, the smallest ends 324 behind the point."""


class Spending(NamedTuple):
    """What one grant would take of a purse."""

    name: str
    budget: Budget
    row: SpentRow

    def refusal(self, reader: GuardReader) -> str:
        """Return why it would be too much, or nothing."""
        budget, row = self.budget, self.row
        amounts = reader.spent(
            row.purse, since_s=row.at_s - budget.window_s, now_s=row.at_s, but=row.key
        )
        with localcontext(prec=DIGITS):
            spent = sum(map(_exact, amounts), Decimal(0))
            after = spent + _exact(row.amount)
        if after <= _exact(budget.limit):
            return ""
        return (
            f"it would take {row.amount:.12g} of the budget {self.name!r}, of which "
            f"{float(spent):.12g} of {budget.limit:.12g} were granted in the last "
            f"{budget.window_s:g} s"
        )

    def note(self, tx: GuardWriter) -> None:
        """Write down that it was granted."""
        tx.put_spent(self.row)


def amount_of(rule: ActionRule, arguments: Mapping[str, Any]) -> float:
    """Return what an action takes of its budget, 0 without one; raises InvalidInput."""
    if rule.budget is None:
        return 0.0
    amount = rule.budget.amount
    if isinstance(amount, Mapping):
        name = amount["argument"]
        if name not in arguments:
            raise InvalidInput(f"the budget needs the argument {name!r}, which is not there")
        return check_price(arguments[name], f"the amount in the argument {name!r}")
    if amount is msgspec.UNSET:
        return 0.0 if rule.loss is None else rule.loss.wrong
    return float(amount)


def spending_of(
    policy: Policy, rule: ActionRule, words: Words, key: str, now_s: float
) -> Spending | None:
    """Return what granting *key* would take; None if the rule names no budget."""
    if rule.budget is None:
        return None
    name = rule.budget.of
    budget = policy.budgets[name]
    holder: list[object] = [name, budget.per, list(words.namespace)]
    if budget.per != "namespace":
        holder.append(words.principal)
    if budget.per == "session":
        holder.append(words.session)
    purse = sha256(canonical(holder, "the holder of a budget")).hexdigest()
    amount = amount_of(rule, words.arguments)
    return Spending(name, budget, SpentRow(purse, key, amount, now_s))


def _exact(amount: float) -> Decimal:
    """Return the number as it was written, so that ten times 0.1 is 1."""
    return Decimal(repr(float(amount)))
