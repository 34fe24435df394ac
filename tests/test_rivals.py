"""The comparison with rivals runs: AMV, an exact scan and one that fails, at a tiny size."""

import ast
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import datasets, machine
from bench.rivals import __main__ as rivals
from bench.rivals import protocol, report
from bench.rivals.contenders import ENTRIES, Entry
from bench.store_rows import Row, Sink, read

SIZE, OWNER_ITEMS, SEARCHES = 300, 100, 40
ABSENT = Entry(name="absent", module="bench.rivals.no_such_module")
MEASURED = [entry for entry in ENTRIES if entry.name in ("AMV", "numpy")]
WAYS = [("AMV", "default"), ("AMV", "by similarity alone"), ("numpy", "float32 scan")]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Measure those that need no environment of their own."""
    path = tmp_path_factory.mktemp("rivals") / "rows.jsonl"
    rivals.measure(
        [*MEASURED, ABSENT],
        datasets.make("clusters", SIZE, rivals.SEED),
        Sink(path=path).naming(seed=rivals.SEED),
        owner_items=OWNER_ITEMS,
        searches=SEARCHES,
        seconds=60,
        timeout_s=120,
        say=Console(file=io.StringIO()),
    )
    return read(path)


def lines(rows: Sequence[Row], workload: str) -> list[report.Line]:
    """Return the lines of one table."""
    return [line for g in report.groups(rows) if g.workload == workload for line in g.lines]


def test_both_workloads_are_searched_in_every_way(rows: list[Row]) -> None:
    for workload in (protocol.ALL, protocol.OWNER):
        found = lines(rows, workload)

        assert [(x.search["contender"], x.search["mode"]) for x in found] == WAYS
        assert all(len(line.search["took_us"]) == SEARCHES for line in found)


def test_a_row_says_what_was_measured_and_where(rows: list[Row]) -> None:
    stores = [row for row in rows if row["measure"] == "store"]

    assert all((row["items"], row["seed"]) == (SIZE, rivals.SEED) for row in rows)
    assert {key for row in rows for key in row["machine"]} >= {"git", "cpu", "cores"}
    assert all(row["rss_loaded_bytes"] > row["rss_before_bytes"] > 0 for row in stores)
    assert {row["contender"]: row["disk_bytes"] > 0 for row in stores} == {
        "AMV": True,
        "numpy": False,
    }
    assert all(row["versions"]["numpy"] for row in stores)


def test_an_exact_search_finds_all_neighbours_and_amv_nearly_all(rows: list[Row]) -> None:
    """Were contents or owners mixed up, an exact search would be the first to miss."""
    for workload in (protocol.ALL, protocol.OWNER):
        recall = {line.search["mode"]: line.recall for line in lines(rows, workload)}

        assert recall["float32 scan"] == 1.0
        assert recall["by similarity alone"] > 0.99
        assert recall["default"] > 0.9


@pytest.mark.parametrize("slower", [1, 10**9])
def test_one_that_fails_is_in_the_table_with_the_reason(rows: list[Row], slower: int) -> None:
    """A rival that is left out looks like one that was not thought of."""
    rows = [
        {**row, "took_us": [took * slower for took in row["took_us"]]} if "took_us" in row else row
        for row in rows
    ]
    console = Console(file=io.StringIO(), width=report.WIDTH)
    report.show(rows, console)
    assert isinstance(console.file, io.StringIO)

    for text in (console.file.getvalue(), report.markdown(rows)):
        assert text.count("absent failed: ") == 2
        assert "no_such_module" in text
        assert text.count("failed, see below") == 2


def test_ratios_are_to_amv(rows: list[Row]) -> None:
    amv, *_, other = report.groups(rows)[0].rows()[:3]
    ratio = report.HEADINGS.index("× AMV")

    assert amv[ratio] == "1"
    assert float(other[ratio]) > 0


def test_amv_is_compared_with_hnsw_of_no_higher_recall(rows: list[Row]) -> None:
    """Rows of HNSW are made up, as it is not installed here: of two, the one below counts."""
    (amv,) = [x for x in lines(rows, protocol.OWNER) if x.search["mode"] == "default"]
    (store,) = [r for r in rows if r["measure"] == "store" and r["contender"] == "numpy"]

    def hnsw(ef_search: int, found: int, cpu_factor: float) -> dict[str, Any]:
        counts = [0] * 11
        counts[found] = SEARCHES
        return {
            **lines(rows, protocol.ALL)[-1].search,
            "contender": report.HNSW,
            "mode": f"efSearch {ef_search}",
            "searches_by_found": counts,
            "cpu_s": amv.search["cpu_s"] * cpu_factor,
        }

    made_up = [hnsw(16, 5, 2.0), hnsw(32, 8, 5.0), hnsw(64, 10, 9.0)]
    low = {**amv.search, "searches_by_found": [0] * 9 + [SEARCHES, 0]}
    others = [row for row in rows if row is not amv.search]
    base = [*others, low, {**store, "contender": report.HNSW}]
    alone, said = report.verdicts([*base, *made_up])
    _, missed = report.verdicts([*base, made_up[0]])

    assert "by similarity alone" in alone
    assert "efSearch 64" in alone
    assert "efSearch 32" in said
    assert "5.00 times" in said
    assert ", reached" in said
    assert "NOT reached" in missed


def test_owners_are_found_where_a_batch_has_several() -> None:
    contents = ["a [0]", "b [1]", "c [2]"]
    batch = protocol.Batch(datasets.make("spectrum", 3, 1).vectors, contents, [4, 4, 5])

    assert list(batch.by_owner()) == [(4, slice(0, 2)), (5, slice(2, 3))]


def test_adding_stops_when_it_takes_too_long(tmp_path: Path) -> None:
    dataset = datasets.make("spectrum", 100, 1)
    rivals.write_data(tmp_path, dataset, 100, 10)
    task = protocol.Task(
        folder=str(tmp_path),
        work=str(tmp_path),
        items=100,
        owner_items=100,
        workloads=[protocol.ALL],
        batch=10,
        add_seconds=0.0,
    )

    with pytest.raises(rivals.Failed, match="added 10 of 100 items"):
        rivals.run_one(MEASURED[1], task, timeout_s=60)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.pins], ids=lambda e: e.name)
def test_a_rival_imports_nothing_of_amv(entry: Entry) -> None:
    """Its environment has none of AMV's packages, and its memory must hold none of its modules."""
    names = set()
    for module in (entry.module, protocol.__name__):
        path = machine.ROOT / f"{module.replace('.', '/')}.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names.add(str(node.module))
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}

    ours = {name for name in names if name.partition(".")[0] in {"amv", "bench", "demo", "tests"}}
    assert ours == {protocol.__name__}


def test_every_rival_is_pinned_in_a_file_of_its_own() -> None:
    folder = machine.ROOT / "requirements" / "rivals"
    named = {entry.pins for entry in ENTRIES if entry.pins}

    assert named == {path.stem for path in folder.glob("*.txt")}
    assert named == {path.stem for path in folder.glob("*.in")}
