"""Facts: what a search must know of many items to choose among them, as columns.

Cards are objects, each somewhere else in memory; to look at one for every
vector that might be among the best costs more than to score it.  Of a namespace
whose vectors are scanned whole, what decides is therefore kept beside the
vectors, in their order: one look-up tells it of all that are left after the
scan, and only those that are returned need a card.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from amv.memory.card import Card
from amv.memory.item import State
from amv.memory.ports import Floats, Ids, ascending, owners
from amv.memory.value import ValueModel, values_at

Columns = npt.NDArray[np.float64]

VALUE_KEY, BEGINS, ENDS = range(3)
"""What each holds: the value key, valid_from, and `Card.ends_s`; NaN where nothing is known."""


class Facts:
    """Columns of shape (3, n) for the n vectors of a block.

    *are_single* tells whether no item has several vectors among them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._ids: Ids = np.zeros(0, dtype=np.int64)
        self._keys: Ids = self._ids
        self._columns: Columns = np.zeros((3, 0))
        self.are_single = True

    @property
    def size_bytes(self) -> int:
        """Memory they take."""
        return self._ids.nbytes + self._keys.nbytes + self._columns.nbytes

    def at(self, places: Ids) -> Columns:
        """Return a copy of the columns at *n* places, of shape (3, n)."""
        return self._columns.take(places, axis=1)

    def keys_at(self, places: Ids) -> Ids:
        """Return the keys of the items at *places*."""
        return self._keys.take(places)

    def align(self, ids: Ids) -> None:
        """Follow the order of vectors, of which some are new or gone."""
        if np.array_equal(ids, self._ids):
            return
        columns = np.full((3, len(ids)), np.nan)
        if len(self._ids):
            order = np.argsort(self._ids)
            known = self._ids[order]
            places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
            stays = known[places] == ids
            columns[:, stays] = self._columns[:, order[places[stays]]]
        self._ids, self._keys, self._columns = ids.copy(), owners(ids), columns
        self.are_single = len(ascending(self._keys)) == len(ids)

    def learn(self, places: Ids, cards: Sequence[Card]) -> None:
        """Note what the cards of the items at *places* say."""
        found = [(c.state.value_key, c.row.valid_from_s, c.ends_s) for c in cards]
        self._columns[:, places] = np.asarray(found, dtype=np.float64).reshape(-1, 3).T

    def forget(self, keys: Collection[int]) -> None:
        """Forget items."""
        if keys:
            gone = np.isin(self._keys, np.asarray(list(keys), dtype=np.int64))
            self._columns[:, gone] = np.nan

    def follow(self, states: Mapping[int, State]) -> None:
        """Take over values that changed; of what is not known they tell nothing."""
        if not states or not len(self._keys):
            return
        keys = np.asarray(sorted(states), dtype=np.int64)
        value_keys = np.asarray([states[key].value_key for key in keys.tolist()])
        places = np.minimum(np.searchsorted(keys, self._keys), len(keys) - 1)
        found = keys[places] == self._keys
        self._columns[VALUE_KEY, found] = value_keys[places[found]]


def values(columns: Columns, now_s: float, model: ValueModel) -> list[float]:
    """Return what `card.values_of` does, of items that have begun."""
    found = values_at(columns[VALUE_KEY].tolist(), now_s, model)
    return [
        model.initial if begins_s > now_s else value
        for begins_s, value in zip(columns[BEGINS].tolist(), found, strict=True)
    ]


def worth(columns: Columns, now_s: float, model: ValueModel) -> Floats:
    """Return `values` in half the precision: enough to rank by, and in a tenth of the time."""
    exponents = columns[VALUE_KEY] - model.decay_rate * now_s
    found = np.exp(np.minimum(exponents, math.log(model.value_max), out=exponents))
    begins_s = columns[BEGINS]
    if begins_s.max(initial=-np.inf) > now_s:
        found[begins_s > now_s] = model.initial
    halved: Floats = found.astype(np.float32)
    return halved
