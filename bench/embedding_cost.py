"""What it costs to embed one query: CPU, time, memory, and how far other arithmetic goes.

    python -m bench.embedding_cost --locomo locomo10.json
    python -m bench.report_embedding FILE --markdown     # the table again, from the raw rows

Each arm runs in a process of its own, which loads it and embeds questions one at a time.  Arms
take turns, several rounds of them, so that what else a machine does meets them all alike; compare
the ratios, not the milliseconds of a busy machine.  CPU is that of all threads of the process.

Arms: the embedder as shipped; the graph that came with the weights, at ONNX Runtime's levels of
optimisation and without its arena; queries padded to 32 tokens; weights kept in 8 bits and
multiplied in blocks (MatMulNBits), which also rounds activations to 8 bits; the static model.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import onnxruntime
import typer
from rich.console import Console
from rich.progress import track

from amv.embedders import load, minilm
from amv.embedders.minilm import MiniLM
from amv.memory.ports import Embedder, Floats
from bench import eight_bits, machine, report_embedding
from bench.conversations import LOCOMO_WANTED, conversations
from bench.store_rows import Sink, now, read

ROUNDS = 4
QUERIES = 100
PADDED_TO = 32

_LEVELS = onnxruntime.GraphOptimizationLevel


class Session:
    """An ONNX Runtime session in place of MiniLM's own, with settings of an arm's."""

    def __init__(self, model: str | bytes, threads: int, **settings: Any) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        for name, value in settings.items():
            setattr(options, name, value)
        folder = str(minilm._packaged_model().parent)
        options.add_session_config_entry(minilm._WEIGHTS_ARE_IN, folder)
        self._session = onnxruntime.InferenceSession(
            model, sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._names = {one.name for one in self._session.get_inputs()}

    def run(self, _: None, inputs: Mapping[str, Any]) -> Any:
        """Run as ONNX Runtime's own would, with what the graph takes besides."""
        given = dict(inputs)
        if "token_type_ids" in self._names:
            given["token_type_ids"] = np.zeros_like(given["input_ids"])
        return self._session.run(None, given)


class Padded(Session):
    """Every query is as long as the longest of a batch may be."""

    def run(self, _: None, inputs: Mapping[str, Any]) -> Any:
        """Fill up, run, and cut off again what was filled up."""
        short = PADDED_TO - inputs["input_ids"].shape[1]
        wide = {n: np.pad(v, ((0, 0), (0, max(0, short)))) for n, v in inputs.items()}
        (hidden,) = super().run(None, wide)
        return [hidden[:, : inputs["input_ids"].shape[1]]]


def _packaged() -> str:
    return str(minilm._packaged_model())


def _with(make: Callable[[], Any]) -> Embedder:
    model = MiniLM()
    model._session = make()
    return model


ARMS: Mapping[str, Callable[[], Embedder]] = {
    "as shipped": MiniLM,
    "as shipped, 1 thread": lambda: MiniLM(threads=1),
    report_embedding.BASE: lambda: _with(lambda: Session(_packaged(), _threads())),
    "packaged graph, 1 thread": lambda: _with(lambda: Session(_packaged(), 1)),
    "  basic optimisation": lambda: _with(
        lambda: Session(_packaged(), 1, graph_optimization_level=_LEVELS.ORT_ENABLE_BASIC)
    ),
    "  no arena": lambda: _with(lambda: Session(_packaged(), 1, enable_cpu_mem_arena=False)),
    "  padded to 32 tokens": lambda: _with(lambda: Padded(_packaged(), 1)),
    "8-bit weights, blocks of 32, 1 thread": lambda: _with(
        lambda: Session(eight_bits.written(32), 1)
    ),
    "8-bit weights, blocks of 128, 1 thread": lambda: _with(
        lambda: Session(eight_bits.written(128), 1)
    ),
    "static": lambda: load("static"),
}


def _threads() -> int:
    return MiniLM()._threads


class Taken(NamedTuple):
    """What one arm took in one round."""

    load_ms: float
    memory_bytes: int
    cpu_us: list[float]
    wall_us: list[float]
    vectors: Floats


def measure(arm: str, queries: Sequence[str]) -> Taken:
    """Load an arm in this process and embed queries one at a time."""
    before, began_s = _resident(), time.process_time()
    model = ARMS[arm]()
    model.embed([queries[0]])
    load_ms = 1e3 * (time.process_time() - began_s)
    for query in queries[:5]:
        model.embed([query])
    cpu_us, wall_us, vectors = [], [], []
    for query in queries:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        vectors.append(model.embed([query])[0])
        cpu_us.append(round(1e6 * (time.process_time() - cpu_s), 1))
        wall_us.append(round(1e6 * (time.perf_counter() - wall_s), 1))
    return Taken(load_ms, _resident() - before, cpu_us, wall_us, np.stack(vectors))


def _resident() -> int:
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def run(queries: Sequence[str], rounds: int, arms: Sequence[str], sink: Sink) -> None:
    """Measure arms in turn, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    base: Floats | None = None
    for turn, arm in track([(n, arm) for n in range(rounds) for arm in arms], "embedding"):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            taken = pool.submit(measure, arm, queries).result()
        if arm == arms[0]:
            base = taken.vectors
        cosines = None
        if base is not None and base.shape == taken.vectors.shape:
            cosines = np.sum(base.astype(np.float64) * taken.vectors, axis=1)
        sink.add(
            "embedding_cost",
            arm=arm,
            round=turn,
            load_ms=round(taken.load_ms, 1),
            memory_bytes=taken.memory_bytes,
            cpu_us=taken.cpu_us,
            wall_us=taken.wall_us,
            cosine_min=None if cosines is None else float(cosines.min()),
        )


def main(
    locomo: Annotated[
        Path | None, typer.Option(envvar="AMV_LOCOMO", metavar="FILE", help="LoCoMo's JSON.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each arm runs.")] = ROUNDS,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure what it costs to embed a query, and print the table."""
    if locomo is None or not locomo.is_file():
        raise typer.BadParameter(LOCOMO_WANTED)
    asked = [question.text for one in conversations(locomo) for question in one.questions]
    queries = asked[:: max(1, len(asked) // QUERIES)][:QUERIES]
    path = out or machine.RESULTS / f"embedding-{now()[:8]}.jsonl"
    run(queries, rounds, tuple(ARMS), Sink(path=path))
    report_embedding.show(read(path), Console(width=None if sys.stdout.isatty() else 120))
    typer.echo(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
