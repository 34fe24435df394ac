"""How often the rule for contradictions is right, on everyday texts about one subject."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest

import amv
from amv import embedders
from amv.memory.contradiction import SIMILARITY_LEAST, may_contradict
from amv.memory.statement import statement
from tests.memory.everyday import ALIKE, FACTS, FURTHER_FACTS, FURTHER_UPDATES, UPDATES

EMBEDDERS = ("minilm", "static")


@lru_cache
def similarities(embedder: str, pairs: tuple[tuple[str, str], ...]) -> list[float]:
    """Return how similar the texts of each pair are, as a memory with an embedder has it."""
    texts = sorted({text for pair in pairs for text in pair})
    matrix = np.asarray(embedders.load(embedder).embed(texts))
    place = {text: n for n, text in enumerate(texts)}
    return [float(matrix[place[one]] @ matrix[place[other]]) for one, other in pairs]


def flagged(embedder: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs that are taken to contradict each other."""
    found = []
    for pair, similarity in zip(pairs, similarities(embedder, tuple(pairs)), strict=True):
        one, other = map(statement, pair)
        if one and other and may_contradict(one, other) and similarity >= SIMILARITY_LEAST:
            assert may_contradict(other, one)
            found.append(pair)
    return found


def compatible(facts: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Return every two facts of one list."""
    return [pair for one in facts.values() for pair in combinations(one, 2)]


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_facts_that_hold_together_are_no_contradictions(embedder: str) -> None:
    """That they speak of one subject says nothing: of 1,289 pairs, none is flagged."""
    assert len(compatible(FACTS)) == 962
    assert len(compatible(FURTHER_FACTS)) == 327
    assert flagged(embedder, compatible(FACTS)) == []
    assert flagged(embedder, compatible(FURTHER_FACTS)) == []


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_updates_are_contradictions(embedder: str) -> None:
    """Most of them: 62 of 64, and 28 of 30 further ones."""
    assert (len(flagged(embedder, UPDATES)), len(UPDATES)) == (62, 64)
    assert (len(flagged(embedder, FURTHER_UPDATES)), len(FURTHER_UPDATES)) == (28, 30)


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_what_has_the_form_of_an_update_can_be_taken_for_one(embedder: str) -> None:
    """Six of the forty that look most like it, though both hold."""
    assert (len(flagged(embedder, ALIKE)), len(ALIKE)) == (6, 40)


@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_a_memory_of_one_subject_has_no_doubts(embedder: str) -> None:
    """Facts of one namespace, told one by one, are left alone; so is what README begins with."""
    readme = ("Alice moved to Rome", "Alice is allergic to peanuts", "Alice lives in Lisbon now")
    with amv.Memory.open(embedder=embedder) as memory:
        for name, facts in FACTS.items():
            for text in facts:
                memory.add(text, namespace=(name,))
        claims = [amv.Claim("alice", "city", "Rome"), None, amv.Claim("alice", "city", "Lisbon")]
        for text, claim in zip(readme, claims, strict=True):
            memory.add(text, namespace=("alice",), claim=claim)

        for name in (*FACTS, "alice"):
            items = memory.list(namespace=(name,), limit=100).items
            assert [item.content for item in items if item.contradicted] == []
