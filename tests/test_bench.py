"""The benchmarks run: a tiny one, of which counts are checked and no times."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import amv
from bench import health, learning, planners, report_store, store, store_rows
from bench.store_rows import Row

NAMES = ["clusters", "spectrum"]
SIZE = 300
EFFORT = store.Effort(queries=10, processes=1, one_by_one=32, batched_at_least=0)
SETTINGS = amv.MemorySettings(cells=amv.CellSettings(from_vectors=128, drain_at=64))
ONCE = ["add_batches", "disk", "aged", "cold_vector", "add_one_by_one"]
MODES = [(prior, cold) for prior in (True, False) for cold in ("default", "cold", "no_cold")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure two generators whose data need no embedding."""
    path = tmp_path_factory.mktemp("bench") / "rows.jsonl"
    quiet = Console(file=io.StringIO())
    store.run(NAMES, [SIZE], path, effort=EFFORT, settings=SETTINGS, console=quiet)
    return path


@pytest.fixture(scope="module")
def rows(file: Path) -> list[Row]:
    return store_rows.read(file)


def test_every_measure_is_taken_of_every_generator(rows: list[Row]) -> None:
    """A measure that silently stops being taken would leave only a thinner table."""
    taken = [(row["generator"], row["measure"]) for row in rows]

    assert all(taken.count((name, measure)) == 1 for name in NAMES for measure in ONCE)
    assert [
        [(r["prior"], r["cold"]) for r in rows if (r["generator"], r["measure"]) == (n, "searches")]
        for n in NAMES
    ] == [MODES] * 2
    assert [name for name, measure in taken if measure == "curve"] == ["spectrum"] * 5


def test_a_row_says_what_was_measured_and_where(rows: list[Row]) -> None:
    assert all(row["size"] == SIZE and row["seed"] == store.SEED for row in rows)
    assert {key for row in rows for key in row["machine"]} >= {"git", "python", "sqlite", "cpu"}
    assert all(row["load_1m"] >= 0 for row in rows)


def test_all_items_are_added_and_aged_into_all_tiers(rows: list[Row]) -> None:
    """Recall by tier needs items in every tier."""
    added = {row["measure"]: row["items"] for row in rows if "items" in row}
    (tiers, _) = [row["tiers"] for row in rows if row["measure"] == "aged"]

    assert (added["add_batches"], added["add_one_by_one"]) == (SIZE, EFFORT.one_by_one)
    assert sum(tiers.values()) == SIZE
    assert min(tiers.values()) > 0


def test_searches_stay_in_the_budget_and_find_what_is_near(rows: list[Row]) -> None:
    """So few cells are all looked at when asked for, and the search is then exhaustive."""
    searches = [row for row in rows if row["measure"] == "searches"]

    assert all(row["over_budget"] == 0 < row["scanned_max"]["total"] for row in searches)
    assert all(len(row["latency_ms"]) == EFFORT.queries for row in searches)
    assert all(
        row["found_nearest"] == [10] * EFFORT.queries
        for row in searches
        if row["cold"] == "cold" and not row["prior"]
    )


def test_the_report_has_a_line_for_every_figure(file: Path, rows: list[Row]) -> None:
    table = report_store.lines(rows)
    of_passages = {"cold process, text, s"}

    names = {figure.name for figure in report_store.FIGURES}
    assert {line.figure for line in table} == names - of_passages
    assert all(set(line.cells) == {SIZE} for line in table)
    assert len(report_store.curve(rows)) == 5
    assert all(line.figure in report_store.markdown(rows) for line in table)


def test_a_report_is_of_the_last_run_unless_told(file: Path, rows: list[Row]) -> None:
    """Rows of a day share a file; figures of two runs must not be mixed."""
    sink = store_rows.Sink(path=file, about={"run": "99991231T000000Z"})
    sink.add("later")

    assert [row["measure"] for row in store_rows.read(file)] == ["later"]
    assert store_rows.read(file, rows[0]["run"]) == rows


def test_health_is_measured_under_every_load(tmp_path: Path) -> None:
    """And each load did something meanwhile, without which it would be none."""
    path = tmp_path / "health.jsonl"
    health.run(400, 0.5, store_rows.Sink(path=path), bulk=32)
    rows = {row["load"]: row for row in store_rows.read(path)}
    console = Console(file=io.StringIO(), width=160)
    health.show(path, console)

    assert [*rows] == [*health.LOADS]
    assert all(row["took_us"] and row["not_200"] == row["failed"] == 0 for row in rows.values())
    assert rows["searches"]["searches"] > 0 < rows["bulk adds"]["arrays"]
    assert rows["reembed"]["reembed_s"] > 0
    assert isinstance(console.file, io.StringIO)
    assert all(name in console.file.getvalue() for name in health.LOADS)


def test_planners_are_measured_and_held_to_their_targets(tmp_path: Path) -> None:
    """Every decision is the one meant, so that its time is that of a whole decision."""
    path = tmp_path / "planners.jsonl"
    sink = store_rows.Sink(path=path)
    planners.run(sink, instances=20, repeats=3, decisions=5, seconds=0.5)
    rows = store_rows.read(path)
    console = Console(file=io.StringIO(), width=160)
    planners.show(rows, console)

    by_measure = {row["measure"]: row for row in rows}
    assert len([row for row in rows if row["measure"] == "planning"]) == len(planners.SIZES)
    assert by_measure["deciding"]["verdicts"] == {"PROCEED": 5}
    assert by_measure["serving"]["statuses"].keys() == {"200"}
    assert len(by_measure["regret"]["seeds"]) == 20
    regrets = [one for one in planners.figures(rows) if "regret of lookahead" in one.what]
    assert len(regrets) == 3 * len(planners.DRAWN)
    assert all(one.is_met for one in regrets)
    assert isinstance(console.file, io.StringIO)
    assert "pass" in console.file.getvalue()


def test_what_is_learned_is_measured_and_held_to_its_targets(tmp_path: Path) -> None:
    """A hundredth of the repeats takes every measure; those with few repeats are not held to."""
    path = tmp_path / "learning.jsonl"
    learning.run(store_rows.Sink(path=path), repeats=50)
    found = learning.figures(store_rows.read(path))

    assert {"certificates", "calibrators", "audits", "hazards"} == {
        row["measure"] for row in store_rows.read(path)
    }
    assert all(one.is_met for one in found if "points" not in one.unit), found
    assert planners.table(found).row_count == len(found)
