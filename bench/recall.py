"""Whether the memory finds what a person would call right, on real conversations.

    python -m bench.recall --locomo locomo10.json --statebench dev.jsonl --statebench train.jsonl
    python -m bench.recall --statebench dev.jsonl      # updates and repeats alone
    python -m bench.report_recall FILE --markdown      # the tables again, from the raw rows

Every turn of a conversation becomes an item, with its neighbouring turns as
`context` where a row says so, and every question a search.  Recall@k is the
mean share of a question's evidence turns among the first k.  "Bounded" is a
search as shipped; "exhaustive" ranks in the same way after it has scored every
vector in full precision and read every posting.  What becomes of updates and of
what is told again is in `bench.updates`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import track

import amv
from amv import embedders
from amv.embedders.minilm import MiniLM
from amv.memory.ports import Embedder, Floats
from amv.memory.ranking import RankWeights
from amv.memory.settings import Budget, CellSettings, MemorySettings
from bench import distilled, embedding, machine, report_recall, updates
from bench.conversations import (
    LOCOMO_WANTED,
    STATEBENCH_WANTED,
    Conversation,
    conversations,
    neighbours,
)
from bench.report_recall import KS
from bench.store_rows import Sink, now, read

QUERIES = 200
"""How many questions are timed."""

WIDTHS = (0, 1, 2, 3)
"""How many turns on each side are an item's context."""

SHIPPED = MemorySettings(flag_contradictions=False)
_ALL = 1 << 20
EXHAUSTIVE = MemorySettings(
    budget=Budget(hot=_ALL, warm=_ALL, cold=_ALL, postings=_ALL),
    cells=CellSettings(from_vectors=_ALL),
    rerank=512,
    flag_contradictions=False,
)
SEARCHES: Mapping[str, MemorySettings] = {"bounded": SHIPPED, "exhaustive": EXHAUSTIVE}

BM25 = RankWeights(vector=0.0, lexical=1.0)
FUSED = SHIPPED.weights
LEXICAL_WEIGHTS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the words that cross-validation chooses among; the rest is the vector's."""


class Embedded(NamedTuple):
    """A conversation with the vectors of its turns and questions, as rows."""

    conversation: Conversation
    turns: Floats
    questions: Floats


def embedded(
    found: Sequence[Conversation], embed: Callable[[Sequence[str]], Floats]
) -> list[Embedded]:
    """Embed conversations."""
    return [
        Embedded(
            one,
            embed([turn.text for turn in one.turns]),
            embed([question.text for question in one.questions]),
        )
        for one in found
    ]


@contextmanager
def remembered(
    groups: Mapping[str, Sequence[Embedded]],
    width: int,
    settings: MemorySettings,
    embedder: str | Embedder,
) -> Iterator[amv.Memory]:
    """Give a memory of conversations; those of a group share a namespace."""
    with (
        tempfile.TemporaryDirectory(prefix="amv-bench-") as folder,
        amv.Memory.open(
            str(Path(folder) / "amv.db"),
            embedder=embedder,
            settings=amv.Settings(memory=settings, upkeep_interval_s=None),
        ) as memory,
    ):
        for name, group in groups.items():
            memory.add_many(
                [
                    {
                        "content": turn.text,
                        "context": neighbours(one.conversation.turns, place, width),
                        "namespace": [name],
                        "id": f"{one.conversation.name}/{place}",
                        "vector": vector,
                    }
                    for one in group
                    for place, (turn, vector) in enumerate(
                        zip(one.conversation.turns, one.turns, strict=True)
                    )
                ]
            )
        yield memory


def ranks(memory: amv.Memory, namespace: str, one: Embedded, kind: str) -> list[list[int]]:
    """Return at which ranks, from 1, each question's evidence is found; 0 stands for not at all."""
    found = []
    for question, vector in zip(one.conversation.questions, one.questions, strict=True):
        # Without a text there are no words to look for.
        text = None if kind == "vector" else question.text
        result = memory.search(text, vector=vector, namespace=[namespace], k=max(KS))
        place = {hit.item.id: rank for rank, hit in enumerate(result.hits, 1)}
        found.append([place.get(f"{one.conversation.name}/{i}", 0) for i in question.evidence])
    return found


def recall(found: Sequence[Embedded], embedder: str, sink: Sink) -> None:
    """Measure every way to search, over conversations apart and together."""
    places: dict[str, Mapping[str, Sequence[Embedded]]] = {
        "own": {one.conversation.name: [one] for one in found},
        "one": {"everything": found},
    }
    todo = [(p, s, w) for p in places for s in SEARCHES for w in (0, 2)]
    for place, search, width in track(todo, "searching"):
        settings = SEARCHES[search]
        for kind, weights in (("bm25", BM25), ("vector", FUSED), ("fused", FUSED)):
            if kind == "vector" and width:
                continue  # context is found by its words alone
            own = replace(settings, weights=weights)
            with remembered(places[place], width, own, embedder) as memory:
                sink.add(
                    "recall",
                    place=place,
                    search=search,
                    width=width,
                    kind=kind,
                    ranks={
                        one.conversation.name: ranks(memory, name, one, kind)
                        for name, group in places[place].items()
                        for one in group
                    },
                )


def fusion(found: Sequence[Embedded], embedder: str, sink: Sink) -> None:
    """Measure shares of the words, and widths of context, for cross-validation to choose among.

    Each question is asked once; its first `k_max` hits are put in order anew for each share.
    """
    apart = {one.conversation.name: one for one in found}
    for width in track(WIDTHS, "cross-validation"):
        groups = {name: [one] for name, one in apart.items()}
        by_share: dict[float, dict[str, list[list[int]]]] = {w: {} for w in LEXICAL_WEIGHTS}
        with remembered(groups, width, SHIPPED, embedder) as memory:
            for name, one in apart.items():
                asked = [_hits(memory, one, number) for number in range(len(one.questions))]
                for share, ranks_of in by_share.items():
                    ranks_of[name] = [
                        _reordered(hits, share, [f"{name}/{i}" for i in question.evidence])
                        for hits, question in zip(asked, one.conversation.questions, strict=True)
                    ]
        for share, ranks_of in by_share.items():
            sink.add("fusion", width=width, lexical=share, ranks=ranks_of)


def _hits(memory: amv.Memory, one: Embedded, number: int) -> Sequence[amv.Hit]:
    question, vector = one.conversation.questions[number], one.questions[number]
    name = one.conversation.name
    return memory.search(question.text, vector=vector, namespace=[name], k=SHIPPED.k_max).hits


def _reordered(hits: Sequence[amv.Hit], share: float, wanted: Sequence[str]) -> list[int]:
    """Return at which ranks items are if words have another share; 0 beyond those counted."""
    scores = [share * hit.lexical + (1.0 - share) * hit.similarity for hit in hits]
    order = sorted(range(len(hits)), key=lambda n: -scores[n])[: max(KS)]
    place = {hits[n].item.id: rank for rank, n in enumerate(order, 1)}
    return [place.get(item_id, 0) for item_id in wanted]


def run_recall(path: Path, embedder: str, sink: Sink) -> None:
    """Take every measure on conversations."""
    told = conversations(path)
    model = embedders.load(embedder)
    found = embedded(told, lambda texts: embedding.embed(texts, model))
    updates.talk(told, embedder, sink)
    sink.add(
        "questions",
        categories={
            one.conversation.name: [q.category for q in one.conversation.questions] for one in found
        },
        turns={one.conversation.name: len(one.conversation.turns) for one in found},
    )
    recall(found, embedder, sink)
    fusion(found, embedder, sink)


def run_study(path: Path, sink: Sink) -> None:
    """Measure what embedding costs, and what static models distilled from the default keep."""
    told, model = conversations(path), MiniLM()
    questions = [question.text for one in told for question in one.questions]
    distilled.cost(model, questions[:QUERIES], sink)
    tokens = distilled.token_vectors(model)
    for dimension in distilled.DIMENSIONS:
        for weighting in distilled.WEIGHTINGS:
            static = distilled.Distilled(tokens, dimension, weighting)
            distilled.cost(static, questions[:QUERIES], sink)
            apart = {one.conversation.name: [one] for one in embedded(told, static.embed)}
            with remembered(apart, 2, SHIPPED, static) as memory:
                sink.add(
                    "distilled",
                    dimension=dimension,
                    weighting=weighting,
                    ranks={n: ranks(memory, n, group[0], "fused") for n, group in apart.items()},
                )


def main(
    locomo: Annotated[
        Path | None, typer.Option(envvar="AMV_LOCOMO", metavar="FILE", help="LoCoMo's JSON.")
    ] = None,
    statebench: Annotated[
        list[Path] | None,
        typer.Option(
            envvar="AMV_STATEBENCH", metavar="FILE", help="StateBench's JSONL; repeat it."
        ),
    ] = None,
    embedder: Annotated[str, typer.Option(metavar="NAME", help="What embeds.")] = "minilm",
    study: Annotated[
        bool, typer.Option("--study", help="Also measure static models made of the default one.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the raw rows are appended.")
    ] = None,
) -> None:
    """Measure retrieval on public data, and print the tables."""
    timelines = statebench or []
    if locomo is None and not timelines:
        raise typer.BadParameter(f"{LOCOMO_WANTED}.  {STATEBENCH_WANTED}")
    if locomo is not None and not locomo.is_file():
        raise typer.BadParameter(f"no file {locomo}.  {LOCOMO_WANTED}")
    if absent := [str(one) for one in timelines if not one.is_file()]:
        raise typer.BadParameter(f"no file {', '.join(absent)}.  {STATEBENCH_WANTED}")
    path = out or machine.RESULTS / f"recall-{now()[:8]}.jsonl"
    sink = Sink(path=path).naming(embedder=embedder)
    if timelines:
        updates.run_updates(timelines, embedder, sink)
    if locomo is not None:
        run_recall(locomo, embedder, sink)
        if study:
            run_study(locomo, sink)
    console = Console(width=None if sys.stdout.isatty() else 120)
    report_recall.show(read(path), console)
    console.print(f"raw rows: {path}")


if __name__ == "__main__":
    typer.run(main)
