"""The short way of a search: by vector alone, where all vectors of a namespace are in RAM.

Most searches of agents are such.  They find what the long way would find, or
say that it must be gone.
"""

import numpy as np

from amv.memory.edit import model_of
from amv.memory.facts import ENDS, values
from amv.memory.hot import View
from amv.memory.ports import NamespaceRow, Reader, owners
from amv.memory.query import Match, Outcome, Query
from amv.memory.ranking import fuse
from amv.memory.results import Scanned
from amv.memory.settings import MemorySettings

_NO_WORDS = np.zeros(1, dtype=np.float32)


def run_resident(
    reader: Reader, view: View, row: NamespaceRow, query: Query, settings: MemorySettings
) -> Outcome | None:
    """Search a view that is whole; the caller holds its lock.

    None where that is not the whole story: among the best are several passages
    of one item, or items not valid yet or past their time, more vectors are
    equally similar than are looked at, or more wait than may be scanned.

    The scan has just emptied the processor's caches, so that each further step
    costs more than it looks: they are few.
    """
    block, k, budget = view.pending, query.k, settings.budget
    pool = max(k + 16, settings.rerank_for(k))
    n = len(block)
    scanned_warm = max(0, n - budget.hot) + min(n, pool)
    if scanned_warm > budget.warm:
        return None
    rough = block.scan(query.vector, n)
    if n > pool:
        # The first of the best is the least similar one.
        best = np.argpartition(rough, n - pool)[n - pool :]
        if np.count_nonzero(rough >= rough[best[0]]) > pool:
            return None
    else:
        best = np.arange(n)
    exact = block.exact(best, query.vector)
    keys = owners(block.ids[best])
    facts = view.facts(reader, best, query.at_s)
    if facts is None or len(set(keys.tolist())) < len(keys):
        return None
    shown = facts[:, ENDS] > query.at_s
    if not shown.all():
        rest = view.cards(reader, keys[~shown].tolist()).values()
        if n > pool or any(card.is_visible(query.at_s, query.now_s) for card in rest):
            return None
        keys, exact, facts = keys[shown], exact[shown], facts[shown]
    worth = values(facts, query.now_s, model_of(row, settings.value_model))
    ranks = fuse(exact, _NO_WORDS, np.asarray(worth, dtype=np.float32), settings.weights)
    order = np.lexsort((-keys, -ranks))[:k]
    cards = view.cards(reader, keys[order].tolist()).values()
    similar, ranked = exact[order].tolist(), ranks[order].tolist()
    matches = [
        Match(card, similarity, 0.0, rank, worth[place])
        for card, similarity, rank, place in zip(
            cards, similar, ranked, order.tolist(), strict=True
        )
    ]
    scanned = Scanned(hot=min(n, budget.hot), warm=scanned_warm)
    return Outcome(matches, scanned, "", cold_probed=False)
