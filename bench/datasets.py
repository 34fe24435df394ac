"""Three kinds of data, seeded: what is stored, and queries that are not stored.

- ``clusters``  topics within areas, of very unequal size, as tight as makes a
  query's similarity to its nearest, tenth and thousandth neighbour that of
  real passages: see `_clusters`.
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
import numpy.typing as npt

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
    """Draw items from topics; an item is its area's place plus its topic's plus noise.

    Numbers are powers of the size (a memory ten times as large has more topics
    and larger ones), and shares fall as rank^-0.8.  Noise lies mostly in some
    directions, others in each topic, as embeddings of sentences about one
    thing do: isotropic noise in 384 dimensions would leave all members of a
    topic equally far apart.  The constants are the best of 250 random ones at
    giving 10,000 items the median similarity of passages at neighbours 1, 2,
    10, 30, 100, 1,000 and 5,000; no search was looked at.
    """
    rng = np.random.default_rng([seed, size, 1])
    areas = max(8, round(2.0 * size**0.25))
    topics = max(16, round(5.0 * size**0.5))
    n = size + QUERIES
    topic_area = rng.choice(areas, size=topics, p=_shares(areas, 0.8))
    topic_of = rng.choice(topics, size=n, p=_shares(topics, 0.8))
    whole, area, topic = (_directions(rng, count) for count in (1, areas, topics))
    centres = 0.44 * whole + 0.60 * area[topic_area] + 0.39 * topic
    sigma = _falling(0.46)
    axes = np.linalg.qr(rng.standard_normal((DIMENSION, DIMENSION)).astype(np.float32))[0]
    order = np.argsort(rng.random((topics, DIMENSION)), axis=1)
    noise = rng.standard_normal((n, DIMENSION)).astype(np.float32) * sigma[order[topic_of]]
    return _generated("clusters", seed, size, unit(centres[topic_of] + 1.08 * noise @ axes))


def _spectrum(size: int, seed: int) -> Dataset:
    rng = np.random.default_rng([seed, size, 2])
    noise = rng.standard_normal((size + QUERIES, DIMENSION)).astype(np.float32)
    vectors = noise * _falling(SPECTRUM_EXPONENT)
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


def _shares(count: int, exponent: float) -> npt.NDArray[np.float64]:
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def _falling(exponent: float) -> Floats:
    """Return σ_i ∝ i^-exponent, of length 1 as a whole."""
    sigma: Floats = np.arange(1, DIMENSION + 1, dtype=np.float32) ** -np.float32(exponent)
    return sigma / np.float32(np.linalg.norm(sigma))


def _directions(rng: np.random.Generator, count: int) -> Floats:
    return unit(rng.standard_normal((count, DIMENSION)).astype(np.float32))
