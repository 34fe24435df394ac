"""A card: what a search keeps of one item between two searches.

Most of what changes about an item is its value and how often it was used, each
time it is returned.  A card keeps that apart from the row, so that the row, and
what was made of it, outlives such a change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from amv.memory.edit import begun_key
from amv.memory.item import Item, Namespace, Protection, Row, State, Status, item_of
from amv.memory.value import ValueModel, values_at


@dataclass(slots=True)
class Card:
    """One item as of a view; made anew when its state changes, and else the same.

    *state* is the item's; that in *row* may be older, in value and counts alone.
    A search of now shows it before *ends_s*; later, or where that is -inf, the
    row must be asked.  *rendered* is for whoever shows the row: what it made of
    it without the state, empty until then.
    """

    row: Row
    state: State
    ends_s: float
    rendered: bytes = b""

    def is_visible(self, at_s: float, now_s: float) -> bool:
        """Return what `Row.is_visible` does."""
        return now_s <= at_s < self.ends_s or self.row.is_visible(at_s, now_s)

    def with_state(self, state: State) -> "Card":
        """Return the card of the same item after value and counts have changed."""
        return Card(self.row, state, self.ends_s, self.rendered)

    def item(self, namespace: Namespace, value: float) -> Item:
        """Return the public view of the item."""
        return item_of(self.row, namespace, value, self.state)


def card_of(row: Row) -> Card:
    """Return the card of a row."""
    ends_s = -math.inf
    if row.status is Status.LIVE and row.state.protection is not Protection.NOT_YET_VALID:
        until_s = math.inf if row.valid_until_s is None else row.valid_until_s
        ends_s = until_s if row.expires_s is None else min(until_s, row.expires_s)
    return Card(row, row.state, ends_s)


def values_of(cards: Sequence[Card], now_s: float, model: ValueModel) -> list[float]:
    """Return what items are worth; one that begins later is worth what it will begin with."""
    keys = [
        begun_key(card.row, model)
        if card.state.protection is Protection.NOT_YET_VALID
        else card.state.value_key
        for card in cards
    ]
    return [
        model.initial if card.row.valid_from_s > now_s else value
        for card, value in zip(cards, values_at(keys, now_s, model), strict=True)
    ]
