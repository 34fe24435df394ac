"""The workloads.  *share* says which part of the full size they have.

Simulated days pass evenly over the requests of a part.  Upkeep (a sweep, which
folds value events first) comes every half day, as a request among the others.
"""

from collections.abc import Callable, Mapping

import numpy as np

from bench.lifecycle.ops import DAY_S, Workload
from bench.lifecycle.script import Script
from bench.lifecycle.words import TOPICS

Moments = list[float]


def _evenly(count: int, from_day: float, to_day: float) -> Moments:
    moments: Moments = (np.linspace(from_day, to_day, count, endpoint=False) * DAY_S).tolist()
    return moments


def paper(seed: int, share: float) -> Workload:
    """The paper's mix: writes, recalls and asks in any order, four users, 60 days."""
    script = Script("paper", seed)
    counts = [("write", 50_000), ("recall", 10_000), ("ask", 10_000)]
    kinds = np.repeat([k for k, _ in counts], [max(1, round(share * n)) for _, n in counts])
    script.rng.shuffle(kinds)
    for at_s, kind in zip(_evenly(len(kinds), 0, 60), kinds.tolist(), strict=True):
        user = int(script.rng.integers(4))
        fact = None if kind == "write" else script.chosen(user)
        if fact is None:
            script.write(at_s, user, [script.topic()])
        else:
            script.read(at_s, kind, fact)
    return script.workload(share=share)


def phases(seed: int, share: float) -> Workload:
    """Topics A, then B, then A again; of the last questions most need facts of the first A."""
    script = Script("phases", seed)
    of_a, of_b = range(10), range(10, 20)
    for phase, topics in enumerate((of_a, of_b, of_a)):
        count = max(SETTLED_MIN, round(share * 12_000))
        for n, at_s in enumerate(_evenly(count, 30 * phase, 30 * phase + 30)):
            user = n % 2
            fact = script.chosen(user) if n % 4 == 3 else None
            if phase == 2 and fact is not None and script.rng.random() < 0.8:
                first = script.needed_before(user, 30 * DAY_S)
                fact = first[int(script.rng.integers(len(first)))] if first else fact
            elif fact is not None and fact.topic not in topics:
                fact = next((f for _ in range(20) if (f := script.chosen(user)) is not None
                             and f.topic in topics), None)  # fmt: skip
            if fact is None:
                script.write(at_s, user, [script.topic(topics)])
            else:
                script.read(at_s, "question", fact)
    return script.workload(share=share)


SETTLED_MIN = 400
"""Fewer requests in a part would leave nothing to ask for."""


def bursts(seed: int, share: float) -> Workload:
    """Writes of 5,000, 50,000 and 5,000 in ten days each; questions all the while, two users.

    Half of those after the first part need what was written in it.
    """
    script = Script("bursts", seed)
    for part, writes in enumerate((5_000, 50_000, 5_000)):
        count = max(SETTLED_MIN // 2, round(share * writes))
        first = [f for f in script.facts if f.at_s < 10 * DAY_S]
        for n, at_s in enumerate(_evenly(count, 10 * part, 10 * part + 10)):
            user = n % 2
            script.write(at_s, user, [script.topic()])
            if n % (2 if part != 1 else 10) == 0:
                fact = script.chosen(user)
                if first and script.rng.random() < 0.5:
                    fact = first[int(script.rng.integers(len(first)))]
                if fact is not None:
                    script.read(at_s, "question", fact)
    return script.workload(share=share)


def aged(seed: int, share: float) -> Workload:
    """1,200 facts, each used once within two days; 46,000 other items; then each fact is asked for.

    Facts are of ten topics, half of what comes after is of the same ones.
    """
    script = Script("aged", seed)
    count = max(60, round(share * 1_200))
    facts = [
        script.write(at_s, n % 4, [script.topic(range(10))])[0]
        for n, at_s in enumerate(_evenly(count, 0, 1))
    ]
    for at_s, fact in zip(_evenly(count, 1, 2), facts, strict=True):
        script.read(at_s, "question", fact)
    lot = 20
    for n, at_s in enumerate(_evenly(max(20, round(share * 46_000 / lot)), 2, 45)):
        topics = range(10) if n % 2 else range(TOPICS)
        script.write(at_s, n % 4, [script.topic(topics) for _ in range(lot)])
    script.rng.shuffle(facts)
    for at_s, fact in zip(_evenly(count, 45, 47), facts, strict=True):
        script.read(at_s, "question", fact)
    return script.workload(share=share)


def poisoned(seed: int, share: float) -> Workload:
    """Items that are found four times a day and never used, among what is; 120 days, one user."""
    script = Script("poisoned", seed)
    poison = [script.write(0.0, 0, [topic])[0] for topic in range(5)]
    count = max(2_400, round(share * 20_000))
    for n, at_s in enumerate(_evenly(count, 0.01, 120)):
        fact = script.chosen(0) if n % 4 == 1 else None
        if n % (count // 480) == 0:
            script.read(at_s, "recall", poison[n // (count // 480) % len(poison)], watch=True)
        elif fact is not None and fact not in poison:
            script.read(at_s, "question", fact)
        else:
            script.write(at_s, 0, [script.topic()])
    return script.workload(share=share)


def critical(seed: int, share: float) -> Workload:
    """Twenty facts a user among 10,000 items of chatter, asked for after 60 days, two users.

    Half of them are pinned; an action rested on each of the others, once, when it was new.
    """
    script = Script("critical", seed)
    facts = [
        script.write(at_s, n % 2, [script.topic()], pinned=n % 4 < 2)[0]
        for n, at_s in enumerate(_evenly(40, 0, 0.5))
    ]
    chatter = [script.write(at_s, n % 2, [script.topic()])
               for n, at_s in enumerate(_evenly(60, 0.5, 1))]  # fmt: skip
    for n, at_s in enumerate(_evenly(40, 1, 1.5)):
        if n % 4 >= 2:
            script.read(at_s, "question", facts[n])
    lot = 5
    for n, at_s in enumerate(_evenly(max(80, round(share * 20_000 / lot)), 2, 60)):
        chatter.append(script.write(at_s, n % 2, [script.topic() for _ in range(lot)]))
        # What is talked about is asked about now and then, by what was said of late.
        if n % 3 == 0:
            of_late = chatter[-1 - int(script.rng.integers(15, 60))]
            script.read(at_s, "question", of_late[0])
    for at_s, fact in zip(_evenly(40, 60, 61), facts, strict=True):
        script.read(at_s, "question", fact)
    return script.workload(share=share, asked_last=len(facts))


WORKLOADS: Mapping[str, Callable[[int, float], Workload]] = {
    "paper": paper,
    "phases": phases,
    "bursts": bursts,
    "aged": aged,
    "poisoned": poisoned,
    "critical": critical,
}
