"""What the memory makes of knowledge that changes, and of what it is told again.

Of StateBench's timelines each is told, fact by fact, to a namespace of its own: once as
claims, once as free text.  After each update a search for the text of the old fact, to
which nothing is more similar than itself, must find the new one first of all that is said
of the same thing, and the old one not at all.  Free text keeps both and must flag them as
contradicted, by which the rule of `amv.memory.contradiction` is judged; also on pairs of
facts about different things.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import numpy as np

import amv
from amv import embedders
from bench import embedding
from bench.conversations import Conversation, Timeline, timelines
from bench.store_rows import Sink

SEED = 1
PAIRS = 400
SIMILAR_FROM = 0.5
"""From this similarity on a pair of facts about different things is one to fall for."""

REPEATS = 50
UNRELATED = 100
_CHUNK = 256


@contextmanager
def empty(embedder: str) -> Iterator[amv.Memory]:
    """Give a memory in this process, with nothing in it."""
    settings = amv.Settings(upkeep_interval_s=None)
    with amv.Memory.open(embedder=embedder, settings=settings) as memory:
        yield memory


def claims(found: Sequence[Timeline], embedder: str, sink: Sink) -> None:
    """After each update with claims: is the new fact first, and is the old one gone?

    First of what is said of the same thing; that something else in the timeline is more
    like the old text is counted apart, as *first_of_all*.
    """
    first, first_of_all, absent = [], [], []
    with empty(embedder) as memory:
        for timeline in found:
            namespace = [timeline.name]
            for fact in timeline.facts:
                memory.add(
                    fact.text,
                    namespace=namespace,
                    claim=amv.Claim(timeline.name, fact.about, fact.text),
                )
                if fact.replaces is not None:
                    hits = memory.search(fact.replaces, namespace=namespace).hits
                    texts = [hit.item.content for hit in hits]
                    own = [
                        hit.item.content
                        for hit in hits
                        if hit.item.claim is not None and hit.item.claim.attribute == fact.about
                    ]
                    first.append(own[:1] == [fact.text])
                    first_of_all.append(texts[:1] == [fact.text])
                    absent.append(fact.replaces not in texts)
    sink.add("claims", first=first, first_of_all=first_of_all, absent=absent)


def free_text(found: Sequence[Timeline], embedder: str, sink: Sink) -> None:
    """Say of each different update whether both texts are flagged, alone in a namespace."""
    pairs = {
        (fact.replaces, fact.text): timeline.name
        for timeline in found
        for fact in timeline.facts
        if fact.replaces is not None
    }
    with empty(embedder) as memory:
        flagged = [are_flagged(memory, str(n), *pair) for n, pair in enumerate(pairs)]
    sink.add("updates", timelines=list(pairs.values()), flagged=flagged)


def are_flagged(memory: amv.Memory, name: str, old: str | None, new: str) -> bool:
    """Tell a memory two texts; return whether it takes them to contradict each other."""
    items = [memory.add(text, namespace=[name]) for text in (old or "", new)]
    return all(memory.get(item.id).contradicted for item in items)


def unrelated(found: Sequence[Timeline], embedder: str, sink: Sink) -> None:
    """Say of pairs of facts about different things whether they are flagged.

    Some are drawn from all there are, some from the most similar ones: these come from one
    template, and differ in whom they speak of.
    """
    about: dict[str, set[str]] = {}
    for timeline in found:
        for fact in timeline.facts:
            about.setdefault(fact.text, set()).add(fact.about)
    texts = sorted(about)
    vectors = embedding.embed(texts, embedders.load(embedder))
    similarities = vectors @ vectors.T
    apart = [
        (a, b)
        for a, b in combinations(range(len(texts)), 2)
        if not about[texts[a]] & about[texts[b]]
    ]
    similar = [pair for pair in apart if similarities[pair] >= SIMILAR_FROM]
    rng = np.random.default_rng(SEED)
    for kind, pairs in (("drawn", apart), ("similar", similar)):
        chosen = [pairs[n] for n in rng.permutation(len(pairs))[:PAIRS].tolist()]
        with empty(embedder) as memory:
            flagged = [are_flagged(memory, f"{a}/{b}", texts[a], texts[b]) for a, b in chosen]
        sink.add("unrelated", kind=kind, of=len(pairs), flagged=flagged)


def talk(found: Sequence[Conversation], embedder: str, sink: Sink) -> None:
    """Say of the turns of conversations, which hardly ever contradict, which are flagged."""
    flagged: dict[str, list[int]] = {}
    model = embedders.load(embedder)
    for one in found:
        with empty(embedder) as memory:
            vectors = embedding.embed([turn.text for turn in one.turns], model)
            # One by one: what comes in one large batch is not compared.
            items = [
                memory.add(turn.text, namespace=[one.name], vector=vector)
                for turn, vector in zip(one.turns, vectors, strict=True)
            ]
            flagged[one.name] = [int(memory.get(item.id).contradicted) for item in items]
    sink.add("talk", flagged=flagged)


def retired(found: Sequence[Timeline], embedder: str, sink: Sink) -> None:
    """Add facts about different things as free text, and count those that are not live after."""
    texts: dict[str, str] = {}
    for timeline in found:
        for fact in timeline.facts:
            texts.setdefault(fact.about, fact.text)
    chosen = list(dict.fromkeys(texts.values()))[:UNRELATED]
    with empty(embedder) as memory:
        items = memory.add_many([{"content": text, "namespace": ["a"]} for text in chosen])
        live = memory.list(namespace=["a"], limit=UNRELATED).items
        states = [memory.get(item.id) for item in items]
    sink.add(
        "retired",
        added=len(chosen),
        live=len(live),
        contradicted=sum(item.contradicted for item in states),
    )


def junk(found: Sequence[Timeline], embedder: str, sink: Sink) -> None:
    """Add what a search recalled again and again; count items, and compare the ranking."""
    facts = list(dict.fromkeys(fact.text for one in found for fact in one.facts))[:_CHUNK]
    with empty(embedder) as memory:
        memory.add_many([{"content": text, "namespace": ["a"]} for text in facts])
        memory.add("The server listens on port 8080", namespace=["a"])
        memory.add("The server listens on port 8081", namespace=["a"])
        before = memory.search(facts[0], namespace=["a"], k=20).hits
        live = memory.stats(("a",)).live
        for _ in range(REPEATS):
            for hit in before[:5]:
                memory.add(hit.item.content, namespace=["a"])
        memory.flush()
        after = memory.search(facts[0], namespace=["a"], k=20).hits
        ports = memory.search("port 8081", namespace=["a"], k=2).hits
        sink.add(
            "junk",
            told=len(facts) + 2,
            live=[live, memory.stats(("a",)).live],
            same_order=[h.item.id for h in before] == [h.item.id for h in after],
            ports=[hit.item.content for hit in ports],
        )


def run_updates(paths: Sequence[Path], embedder: str, sink: Sink) -> None:
    """Take every measure on timelines."""
    found = timelines(paths)
    sink = sink.naming(seed=SEED)
    claims(found, embedder, sink)
    free_text(found, embedder, sink)
    unrelated(found, embedder, sink)
    retired(found, embedder, sink)
    junk(found, embedder, sink)
