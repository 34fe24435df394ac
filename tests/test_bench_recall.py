"""The recall benchmark: what it reads, and that its tables come from its raw rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from bench import distilled, recall, report_recall, updates
from bench.conversations import conversations, neighbours, timelines
from bench.store_rows import Row, Sink, read

TOPICS = ("boats", "maps", "pears", "clocks", "drums", "owls")


def conversation(name: str, session_count: int = 2) -> dict[str, Any]:
    """Return a conversation in LoCoMo's form, in which every turn has a topic of its own."""
    said: dict[str, Any] = {"speaker_a": "Ada", "speaker_b": "Bo"}
    for session in range(1, session_count + 1):
        said[f"session_{session}"] = [
            {
                "speaker": "Ada" if n % 2 else "Bo",
                "dia_id": f"D{session}:{n + 1}",
                "text": f"I have {topic} at {name}, and {session} more",
            }
            for n, topic in enumerate(TOPICS)
        ]
    asked = [
        {"question": f"who has {topic}?", "evidence": [f"D1:{n + 1}", f"D2:{n + 1}"], "category": 1}
        for n, topic in enumerate(TOPICS)
    ]
    odd = [
        {"question": "clocks and drums?", "evidence": ["D1:4; D:1:5"], "category": 4},
        {"question": "nothing of that?", "evidence": ["D", "D9:9"], "category": 2},
        {"question": "not in it?", "evidence": ["D1:1"], "category": 5},
    ]
    return {"sample_id": name, "conversation": said, "qa": asked + odd}


def timeline(number: int) -> dict[str, Any]:
    """Return a timeline in StateBench's form: a port is named, and then another one."""

    def write(key: str, value: str, supersedes: str | None) -> dict[str, Any]:
        return {"writes": [{"key": key, "value": value, "supersedes": supersedes}]}

    about = f"port_{number}"
    return {
        "id": f"T-{number}",
        "initial_state": {
            "persistent_facts": [{"key": "place", "value": f"Hall {number} has {number + 2} doors"}]
        },
        "events": [
            {"text": "talk"},
            write(about, f"Server{number} listens on port 8080", None),
            write(f"{about}_v2", f"Server{number} listens on port 8081", about),
            write(f"{about}_v3", f"Server{number} listens on port 8081", f"{about}_v2"),
            write(f"{about}_v4", f"Server{number} listens on port 8082", f"{about}_v3"),
        ],
    }


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give small data in the form of both sources."""
    folder = tmp_path_factory.mktemp("data")
    locomo, statebench = folder / "locomo.json", folder / "dev.jsonl"
    locomo.write_text(json.dumps([conversation("home"), conversation("work")]), "utf-8")
    lines = [json.dumps(timeline(number)) for number in (1, 2, 3, 1)]
    statebench.write_text("\n".join(lines) + "\n", "utf-8")
    return locomo, statebench


@pytest.fixture(scope="module")
def rows(given: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Give the raw rows of a run over them."""
    locomo, statebench = given
    out = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.embedding.CACHE", out.parent)
        sink = Sink(path=out, about={"run": "r"})
        updates.run_updates([statebench], "hashing:64", sink)
        recall.run_recall(locomo, "hashing:64", sink)
    return read(out)


def test_questions_without_evidence_or_answer_are_not_asked(given: tuple[Path, Path]) -> None:
    """An evidence written in another way still counts."""
    one, other = conversations(given[0])

    assert (one.name, other.name) == ("home", "work")
    assert [question.evidence for question in one.questions] == [
        *((n, n + len(TOPICS)) for n in range(len(TOPICS))),
        (3, 4),
    ]
    assert neighbours(one.turns, 5, 2) == f"{one.turns[3].text}\n{one.turns[4].text}"
    assert neighbours(one.turns, 6, 0) == ""


def test_each_update_counts_once_and_keeps_what_it_is_about(given: tuple[Path, Path]) -> None:
    """Timelines come from templates; a fact told again under another key replaces nothing."""
    found = timelines([given[1]])

    assert [one.name for one in found] == ["dev/T-1", "dev/T-2", "dev/T-3"]
    assert [fact.replaces for fact in found[0].facts] == [
        None,
        None,
        "Server1 listens on port 8080",
        None,
        "Server1 listens on port 8081",
    ]
    assert {fact.about for fact in found[0].facts} == {"place", "port_1"}


def test_recall_is_the_mean_share_of_the_evidence() -> None:
    """By rank, from 1; 0 is not found."""
    ranks = {"a": [[1, 0], [7]], "b": [[3, 12, 5, 2]]}

    assert report_recall.recall_at(ranks, 5) == pytest.approx((0.5 + 0.0 + 0.75) / 3)
    assert report_recall.recall_at(ranks, 10) == pytest.approx((0.5 + 1.0 + 0.75) / 3)


def test_what_is_chosen_is_judged_on_what_it_was_not_chosen_on() -> None:
    """The best for all others may be the worst for the one held out."""

    def fusion(lexical: float, a: int, b: int, c: int) -> Row:
        ranks = {"a": [[a]], "b": [[b]], "c": [[c]]}
        return {"measure": "fusion", "width": 0, "lexical": lexical, "ranks": ranks}

    rows = [fusion(0.2, 1, 1, 0), fusion(0.8, 0, 1, 1)]
    chosen = report_recall.cross_validated(rows)

    assert [(one.conversation, one.lexical, one.held_out) for one in chosen] == [
        ("a", 0.8, [0.0]),
        ("b", 0.2, [1.0]),
        ("c", 0.2, [0.0]),
    ]
    assert report_recall.cross_validated([]) == []


def test_every_way_to_search_is_measured_and_reported(rows: list[Row]) -> None:
    """On data this plain each topic's turns are found by words, also all in one namespace."""
    ways = [(r["place"], r["search"], r["width"], r["kind"]) for r in rows if "search" in r]
    recalls = {
        (r["place"], r["search"], r["width"], r["kind"]): report_recall.recall_at(r["ranks"], 10)
        for r in rows
        if r["measure"] == "recall"
    }
    text = report_recall.markdown(rows)

    assert len(set(ways)) == len(ways) == 20
    assert recalls["own", "bounded", 0, "fused"] == recalls["own", "exhaustive", 0, "fused"] == 1.0
    for heading in (
        "| R@10, own namespace |",
        "| all in one namespace |",
        "| multi-hop |",
        "words 0.6",
    ):
        assert heading in text.replace("| context turns ", "")
    assert text.count("FAIL") == sum(line.is_met is False for line in report_recall.lines(rows))


def test_updates_and_repeats_are_measured(rows: list[Row]) -> None:
    """What is asked of them holds on these data, and the report says so."""
    by = {row["measure"]: row for row in rows}
    verdicts = {line.what: line.is_met for line in report_recall.lines(rows)}

    assert by["claims"]["first"] == by["claims"]["absent"] == [True] * 6
    assert by["updates"]["flagged"] == [True] * 6
    assert by["junk"]["live"] == [by["junk"]["told"]] * 2
    assert by["retired"]["live"] == by["retired"]["added"] == 4
    assert verdicts["port 8080 and port 8081 both stay"]
    assert verdicts["items after recalled text was added 50 times"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "LoCoMo is needed"),
        ([], "StateBench is needed"),
        (["--locomo", "absent.json"], "no file absent.json"),
        (["--statebench", "absent.jsonl"], "no file absent.jsonl"),
    ],
)
def test_where_data_are_missing_it_says_where_to_get_them(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with no copy of this package."""
    for name in ("AMV_LOCOMO", "AMV_STATEBENCH"):
        monkeypatch.delenv(name, raising=False)
    result = run(*arguments)

    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def run(*arguments: str) -> Result:
    """Run the command."""
    app = typer.Typer()
    app.command()(recall.main)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_a_distilled_model_sums_its_tokens(tmp_path: Path) -> None:
    """By a table turned onto its axes; a text without words still has a direction."""
    rng = np.random.default_rng(1)
    tokens = rng.standard_normal((30_522, 16)).astype(np.float32)
    models = [distilled.Distilled(tokens, 8, weighting) for weighting in distilled.WEIGHTINGS]
    texts = ["boats and maps", "boats", "maps", ""]

    for model in models:
        vectors = model.embed(texts)
        assert vectors.shape == (4, 8)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4))
        assert float(vectors[0] @ vectors[1]) > float(vectors[1] @ vectors[2])
        assert (model.embed(texts[:1])[0] == vectors[0]).all()
        assert model.passages("boats") == [(0, 5)]
    assert len({model.id for model in models}) == 3


def test_what_static_models_keep_is_reported_beside_what_they_cost() -> None:
    """As a share of what the default model finds in the same run."""
    way = {"place": "own", "search": "bounded", "kind": "fused", "width": 2}
    rows: list[Row] = [
        {"measure": "recall", "ranks": {"a": [[1], [2]]}, **way},
        {"measure": "embedding", "model": "big", "cpu_us": [3000.0, 4000.0, 9000.0]},
        {"measure": "embedding", "model": "bench-distilled-8-sif", "cpu_us": [25.0]},
        {"measure": "distilled", "dimension": 8, "weighting": "sif", "ranks": {"a": [[1], [0]]}},
    ]

    assert report_recall.distilled_table(rows)[1:] == [
        ["default", "1.000", "1", "4.000 ms"],
        ["static, 8 dimensions, sif", "0.500", "0.500", "0.025 ms"],
    ]
    assert len(report_recall.distilled_table(rows[:1])) == 1
