"""Made-up texts with topics: of 20 to 60 words, and questions that share some words with one.

A topic has words of its own, drawn with Zipf frequencies, among words that all
topics share.  Each text also names two of a few thousand things, as people
name places and persons.  A question about a text has a few of its words, and
otherwise words of its topic.
"""

import numpy as np

from bench.datasets import _SYLLABLES

TOPICS = 50
_TOPIC_WORDS, _COMMON_WORDS, _NAMES = 150, 1500, 4000
_WORDS = (20, 60)
_FROM_TEXT, _FROM_TOPIC = 4, 4


class Words:
    """A source of texts and questions, seeded."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 41])
        known: set[str] = set()
        wanted = TOPICS * _TOPIC_WORDS + _COMMON_WORDS + _NAMES
        while len(known) < wanted:
            known.add("".join(self._rng.choice(_SYLLABLES, size=int(self._rng.integers(2, 5)))))
        words = np.array(sorted(known))
        self._rng.shuffle(words)
        self._common = words[:_COMMON_WORDS]
        self._names = words[_COMMON_WORDS : _COMMON_WORDS + _NAMES]
        self._topics = words[_COMMON_WORDS + _NAMES :].reshape(TOPICS, _TOPIC_WORDS)

    def text(self, topic: int) -> str:
        """Return a text about a topic."""
        rng, count = self._rng, int(self._rng.integers(_WORDS[0], _WORDS[1] + 1))
        own = count * 2 // 3
        drawn = [
            *self._zipf(self._topics[topic], own - 2),
            *self._zipf(self._common, count - own),
            *rng.choice(self._names, 2),
        ]
        rng.shuffle(drawn)
        return " ".join(drawn)

    def question(self, text: str, topic: int) -> str:
        """Return a question that *text* answers."""
        words = text.split()
        drawn = [
            *self._rng.choice(words, min(_FROM_TEXT, len(words)), replace=False),
            *self._zipf(self._topics[topic], _FROM_TOPIC),
        ]
        return " ".join(drawn)

    def about(self, topic: int) -> str:
        """Return a question about a topic, which no text in particular answers."""
        return " ".join(self._zipf(self._topics[topic], _FROM_TEXT + _FROM_TOPIC))

    def _zipf(self, words: "np.ndarray[tuple[int], np.dtype[np.str_]]", count: int) -> list[str]:
        ranks = (self._rng.pareto(1.0, count) * 3).astype(int) % len(words)
        found: list[str] = words[ranks].tolist()
        return found
