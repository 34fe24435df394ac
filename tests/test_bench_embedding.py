"""The benchmark of what an embedding costs, and the making of the static table."""

from pathlib import Path

import numpy as np
import pytest
import typer

from amv.embedders.minilm import MiniLM
from amv.embedders.static import DIMENSION, Static
from bench import distilled, embedding_cost, report_embedding
from bench.store_rows import Row, Sink, read

QUERIES = ["Which seat does Alice prefer?", "When was the boat sold?", "🙂"]


def test_a_packed_table_is_read_as_it_was_but_for_rounding(tmp_path: Path) -> None:
    """What `bench.distilled` writes is what the embedder adds up."""
    rng = np.random.default_rng(1)
    tokens = rng.standard_normal((30_522, 300)).astype(np.float32)
    model = distilled.Distilled(tokens, DIMENSION, "zipf")
    content = distilled.packed(model._table)

    embedder = Static()
    rows = np.frombuffer(content, np.int8, 30_522 * DIMENSION).reshape(-1, DIMENSION)
    scales = np.frombuffer(content, "<u2", offset=30_522 * DIMENSION)
    embedder._table = (rows, scales.astype(np.float64))

    assert len(content) == 30_522 * (DIMENSION + 2)
    assert (embedder.embed(QUERIES) * model.embed(QUERIES)).sum(axis=1).min() > 0.9999


@pytest.mark.parametrize("arm", embedding_cost.ARMS)
def test_every_arm_embeds(arm: str) -> None:
    """Also those that are not MiniLM to the last bits; none returns another text's vector."""
    taken = embedding_cost.measure(arm, QUERIES)

    assert len(taken.cpu_us) == len(taken.wall_us) == len(QUERIES)
    if arm != "static":
        cosines = (taken.vectors * MiniLM().embed(QUERIES)).sum(axis=1)
        assert cosines.min() > (0.995 if "8-bit" in arm else 0.99999)


def test_arms_run_in_processes_of_their_own_and_leave_rows(tmp_path: Path) -> None:
    sink = Sink(path=tmp_path / "rows.jsonl")

    embedding_cost.run(QUERIES, 1, ["static"], sink)

    (row,) = read(sink.path)
    assert (row["arm"], row["round"], len(row["cpu_us"])) == ("static", 0, 3)
    assert row["cosine_min"] == pytest.approx(1.0)


def test_the_table_has_medians_over_rounds_and_shares_of_the_base() -> None:
    def row(arm: str, cpu_us: list[float], cosine_min: float | None) -> Row:
        same = {"load_ms": 10.0, "memory_bytes": 2**20, "wall_us": [5000.0]}
        told = {"arm": arm, "cpu_us": cpu_us, "cosine_min": cosine_min}
        return {"measure": "embedding_cost", **told, **same}

    rows = [
        row("a", [1000.0, 1500.0], 1.0),
        row(report_embedding.BASE, [4000.0], 0.9),
        row("a", [2000.0], 0.99),
        row("b", [8000.0], None),
    ]

    assert report_embedding.table(rows)[1:] == [
        ["a", "1.500 ms", "0.38", "5.000 ms", "10 ms", "1 MiB", "0.990000"],
        [report_embedding.BASE, "4.000 ms", "1.00", "5.000 ms", "10 ms", "1 MiB", "0.900000"],
        ["b", "8.000 ms", "2.00", "5.000 ms", "10 ms", "1 MiB", ""],
    ]
    assert report_embedding.markdown(rows).count("\n") == 4


def test_without_questions_it_says_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="LoCoMo"):
        embedding_cost.main(locomo=tmp_path / "missing.json")
