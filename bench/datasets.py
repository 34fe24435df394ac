"""Three kinds of data, seeded: what is stored, and queries that are not stored.

- ``clusters``  topics within areas within a whole, of very unequal size.  How
  tight they are is set so that the similarities of a query to its 1st, 10th,
  100th and 1,000th neighbour resemble those of real passages: see `_clusters`.
- ``spectrum``  Gaussian vectors whose i-th coordinate has σ ∝ i^-0.7.  There
  is no structure to exploit, so it shows what a budget buys at worst.
- ``passages``  real sentences (see `bench.corpus`) embedded by the default
  embedder.

A generated vector comes with a generated sentence: 150–250 bytes of made-up
words, drawn with Zipf frequencies, so that postings and bytes on disk are
those of text and not of padding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from amv import embedders
from amv.memory.cells import unit
from amv.memory.ports import Floats
from bench import corpus, embedding

DIMENSION = 384
QUERIES = 500
"""How many held-out queries a dataset carries; a quick run uses the first of them."""

SPECTRUM_EXPONENT = 0.7

_WORDS = 20_000
_ZIPF_EXPONENT = 1.05
_SYLLABLES = [c + v for c in "bdfghklmnprstvz" for v in ("a", "e", "i", "o", "u", "an", "er", "is")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """*n* items and held-out queries; vectors are unit-length rows of shape (·, 384)."""

    name: str
    seed: int
    embedder_id: str
    contents: list[str]
    vectors: Floats
    queries: Floats
    query_texts: list[str]

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def content_bytes(self) -> int:
        """Bytes of all contents in UTF-8."""
        return sum(len(content.encode()) for content in self.contents)


def make(name: str, size: int, seed: int) -> Dataset:
    """Return a dataset of *size* items, or of fewer where the corpus has no more."""
    return GENERATORS[name](size, seed)


def _clusters(size: int, seed: int) -> Dataset:
    """Draw items from topics; a topic's place is its area's plus its own, an item's adds noise.

    Numbers and shares are powers of the size: a memory ten times as large has
    more topics and larger ones.  A topic's share falls as rank^-0.8.  An item's
    noise lies mostly in a few directions (σ ∝ i^-0.6, other directions in each
    topic), as embeddings of sentences about one thing do; isotropic noise in
    384 dimensions would leave all members of a topic equally far apart.
    """
    rng = np.random.default_rng([seed, size, 1])
    areas = max(8, round(2.0 * size**0.25))
    topics = max(16, round(2.5 * size**0.5))
    topic_area = rng.choice(areas, size=topics, p=_shares(areas, 0.8))
    centres = (
        0.35 * _directions(rng, 1)
        + 0.45 * _directions(rng, areas)[topic_area]
        + 0.55 * _directions(rng, topics)
    )
    n = size + QUERIES
    topic_of = rng.choice(topics, size=n, p=_shares(topics, 0.8))
    vectors = np.empty((n, DIMENSION), dtype=np.float32)
    sigma = np.arange(1, DIMENSION + 1, dtype=np.float32) ** -0.6
    sigma /= np.linalg.norm(sigma)
    for topic in range(topics):
        own = np.flatnonzero(topic_of == topic)
        noise = rng.standard_normal((len(own), DIMENSION)).astype(np.float32) * sigma
        axes = np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)).astype(np.float32))[0]
        vectors[own] = centres[topic] + 0.62 * noise @ axes
    return _generated("clusters", seed, size, unit(vectors))


def _spectrum(size: int, seed: int) -> Dataset:
    rng = np.random.default_rng([seed, size, 2])
    sigma = np.arange(1, DIMENSION + 1, dtype=np.float32) ** -SPECTRUM_EXPONENT
    vectors = rng.standard_normal((size + QUERIES, DIMENSION)).astype(np.float32) * sigma
    return _generated("spectrum", seed, size, unit(vectors))


def _passages(size: int, seed: int) -> Dataset:
    """Return the corpus; it has one order, so *seed* changes nothing."""
    texts = corpus.sentences()[: QUERIES + size]
    embedder = embedders.load("minilm")
    vectors = embedding.embed(texts, embedder)
    return Dataset(
        name="passages",
        seed=seed,
        embedder_id=embedder.id,
        contents=texts[QUERIES:],
        vectors=vectors[QUERIES:],
        queries=vectors[:QUERIES],
        query_texts=texts[:QUERIES],
    )


GENERATORS: Mapping[str, Callable[[int, int], Dataset]] = {
    "clusters": _clusters,
    "spectrum": _spectrum,
    "passages": _passages,
}


def _generated(name: str, seed: int, size: int, vectors: Floats) -> Dataset:
    texts = made_up_sentences(size + QUERIES, seed)
    return Dataset(
        name=name,
        seed=seed,
        embedder_id=f"bench-{name}",
        contents=texts[:size],
        vectors=vectors[:size],
        queries=vectors[size:],
        query_texts=texts[size:],
    )


def made_up_sentences(count: int, seed: int) -> list[str]:
    """Return sentences of 150–250 bytes of made-up words with Zipf frequencies."""
    rng = np.random.default_rng([seed, 3])
    words: list[str] = []
    known: set[str] = set()
    while len(words) < _WORDS:
        word = "".join(rng.choice(_SYLLABLES, size=int(rng.integers(2, 5))))
        if word not in known:
            known.add(word)
            words.append(word)
    # Frequent words are short, as in every language.
    words.sort(key=lambda word: (len(word), word))
    shares = _shares(_WORDS, _ZIPF_EXPONENT)
    texts = []
    for length in rng.integers(150, 251, size=count).tolist():
        drawn = iter(rng.choice(_WORDS, size=90, p=shares).tolist())
        text = words[next(drawn)].capitalize()
        while len(text) < length - 1:
            text = f"{text} {words[next(drawn)]}"
        texts.append(text[: length - 1].rstrip() + ".")
    return texts


def _shares(count: int, exponent: float) -> "np.typing.NDArray[np.float64]":
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def _directions(rng: np.random.Generator, count: int) -> Floats:
    return unit(rng.standard_normal((count, DIMENSION)).astype(np.float32))
