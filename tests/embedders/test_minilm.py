"""The default embedder: the meaning of a text, the same alone and among others."""

import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from amv.embedders import minilm
from amv.embedders.minilm import (
    BATCH_TEXTS_MAX,
    BATCH_TOKENS_MAX,
    TOKENS_MAX,
    MiniLM,
    _batches,
)
from amv.errors import EmbedderError

SENTENCE = "The keys to the cellar are in the blue drawer."
KNOWN = [0.01448, -0.01074, -0.03808, 0.01465, -0.02986, 0.06473]


@pytest.fixture(scope="module")
def embedder() -> MiniLM:
    return MiniLM()


def mixed_texts() -> list[str]:
    """Return texts of 0 to 300 words, in no order of length."""
    rng = random.Random(5)
    lexicon = ["order", "blue", "Tuesday", "refund", "naïve", "東京", "#4711", "the", "of", "🙂"]
    lengths = [0, 300, 1, 7, 40, 2, 120, 12, 0, 5, *(rng.randint(1, 30) for _ in range(40))]
    return [" ".join(rng.choices(lexicon, k=length)) for length in lengths]


def test_vectors_are_those_of_the_model(embedder: MiniLM) -> None:
    """Frozen from this file in ONNX Runtime 1.32; wrong pooling or ids would show here."""
    (vector,) = embedder.embed([SENTENCE])

    np.testing.assert_allclose(vector[:6], KNOWN, atol=2e-4)


def test_vectors_are_those_of_the_graph_that_came_with_the_weights(embedder: MiniLM) -> None:
    """Files hold vectors that were made with it, and are searched with those of this one."""
    path = minilm._packaged_model()
    packaged = MiniLM(threads=1)
    packaged._session = Packaged(onnxruntime.InferenceSession(str(path)))
    texts = mixed_texts()

    np.testing.assert_allclose(embedder.embed(texts), packaged.embed(texts), atol=2e-6)


def test_weights_are_read_where_the_packaged_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the folder that the process is in, whatever the file's own is called."""
    folder = tmp_path / "naïve päth"
    folder.mkdir()
    shutil.copy(minilm._packaged_model(), folder / "renamed.bin")
    monkeypatch.chdir(folder)

    (vector,) = MiniLM(model=Path("renamed.bin")).embed([SENTENCE])

    np.testing.assert_allclose(vector[:6], KNOWN, atol=2e-4)


def test_meaning_counts_more_than_words(embedder: MiniLM) -> None:
    """This is what a model is for; feature hashing fails it."""
    asked, right, wrong = embedder.embed(
        [
            "How do I get into the basement?",
            SENTENCE,
            "How do I get into the film industry?",
        ]
    )

    assert asked @ right > asked @ wrong


def test_a_text_gets_the_same_vector_alone_and_among_others(embedder: MiniLM) -> None:
    """Stored texts come in batches, queries alone; padding must not leak between them."""
    texts = mixed_texts()

    together = embedder.embed(texts)
    alone = np.concatenate([embedder.embed([text]) for text in texts])

    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_rows_are_unit_length_float32_in_the_order_of_the_texts(embedder: MiniLM) -> None:
    texts = mixed_texts()

    matrix = embedder.embed(texts)

    assert matrix.shape == (len(texts), embedder.dimension)
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1.0, atol=1e-6)


def test_no_texts_give_no_rows(embedder: MiniLM) -> None:
    assert embedder.embed([]).shape == (0, 384)


def test_a_text_without_words_gets_the_vector_of_the_empty_text(embedder: MiniLM) -> None:
    """An agent stores what it is given; none of it may end in NaN."""
    empty, *others = embedder.embed(["", " \n\t", "\u200b\x00"])
    (emoji,) = embedder.embed(["🙂"])

    assert all(np.array_equal(other, empty) for other in others)
    assert np.linalg.norm(emoji) == pytest.approx(1.0)


def test_only_the_first_tokens_of_a_text_are_read_and_passages_hold_the_rest(
    embedder: MiniLM,
) -> None:
    text = " ".join(f"house {number % 10}" for number in range(400))

    spans = embedder.passages(text)

    whole, first = embedder.embed([text, text[slice(*spans[0])]])
    np.testing.assert_allclose(whole, first, atol=1e-5)
    assert len(spans) == -(-800 // (TOKENS_MAX - 2))
    assert spans[-1][1] == len(text)


def test_threads_get_the_vectors_of_one(embedder: MiniLM) -> None:
    texts = mixed_texts()[:12]
    expected = embedder.embed(texts)
    fresh = MiniLM(threads=1)

    def embed(_: int) -> npt.NDArray[np.float32]:
        return fresh.embed(texts)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(embed, range(8)))

    for matrix in found:
        np.testing.assert_allclose(matrix, expected, atol=1e-5)


def test_batches_hold_every_text_once_and_bound_memory() -> None:
    """Attention is quadratic in the width of a batch."""
    rng = random.Random(1)
    lengths = [rng.randint(2, TOKENS_MAX) for _ in range(300)] + [3] * 100

    batches = list(_batches(lengths))

    assert sorted(number for batch in batches for number in batch) == list(range(400))
    assert max(map(len, batches)) == BATCH_TEXTS_MAX
    for batch in batches:
        assert len(batch) * max(lengths[number] for number in batch) <= BATCH_TOKENS_MAX


def test_another_file_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """Vectors of another model would sit in the store unnoticed."""
    model = tmp_path / "model.onnx"
    model.write_bytes(b"another model")

    with pytest.raises(EmbedderError, match="sha256 8199be6f"):
        MiniLM(model=model).embed(["a"])


def test_a_missing_file_is_reported_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"missing\.onnx") as caught:
        MiniLM(model=tmp_path / "missing.onnx").warm_up()

    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_the_model_loads_in_a_process_that_has_imported_all_of_amv() -> None:
    """Some builds of usearch (2.26.2 to 2.26.6) crash ONNX Runtime when imported before it."""
    program = (
        "import amv, usearch.index\n"
        "from amv.embedders import load\n"
        "print(load('minilm').embed(['a']).shape)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "(1, 384)"), done.stderr


class Packaged:
    """A session of the packaged graph, which has one input more."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session

    def run(self, _: None, inputs: dict[str, npt.NDArray[np.int64]]) -> list[object]:
        kinds = np.zeros_like(inputs["input_ids"])
        found: list[object] = self.session.run(None, {**inputs, "token_type_ids": kinds})
        return found


class BrokenSession:
    """A session that fails, or whose output is not finite."""

    def __init__(self, value: float | None) -> None:
        self.value = value

    def run(self, _: None, inputs: dict[str, npt.NDArray[np.int64]]) -> list[object]:
        if self.value is None:
            raise RuntimeError("out of memory")
        return [np.full((*inputs["input_ids"].shape, 384), self.value, dtype=np.float32)]


def test_a_failing_run_is_reported_with_its_cause() -> None:
    embedder = MiniLM()
    embedder._session = BrokenSession(None)

    with pytest.raises(EmbedderError, match="out of memory") as caught:
        embedder.embed(["a"])

    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_a_vector_without_direction_is_never_returned(value: float) -> None:
    """NaN in an index makes every comparison with it false."""
    embedder = MiniLM()
    embedder._session = BrokenSession(value)

    with pytest.raises(EmbedderError, match="no direction"):
        embedder.embed(["a"])
