"""What is learned of verifiers of which nobody tells the truth; by the calibration split alone.

python -m bench.guard.forgotten --out FILE

Of what the split taught, every second verifier is forgotten, and the default decides
about the split's instances once more, with and without learning of checks as it goes.
How the gate learns so was chosen by this, and by no instance of a test.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from amv.guard.calibration import Calibration
from bench import machine
from bench.guard.arms import ALL, DEFAULT, HEADLINE, LEARNING
from bench.guard.freeze import frozen
from bench.guard.instances import Instance
from bench.guard.measures import Cases, Result
from bench.guard.run import about, columns, lesson_of, teach
from bench.guard.trial import Trial
from bench.guard.worlds import world_named
from bench.store_rows import Row, Sink, now

WORLD = "phone"


def without(learned: Calibration, half: int) -> Calibration:
    """Return what was learned, without every second verifier: the odd ones, or the even."""
    kept = sorted(learned.verifiers)[half::2]
    return msgspec.structs.replace(
        learned, verifiers={name: learned.verifiers[name] for name in kept}
    )


def rows(learned: Calibration, instances: Sequence[Instance]) -> Iterator[Row]:
    """Decide about instances with either half forgotten, learning or not; one row each."""
    for half in (0, 1):
        for name in (DEFAULT, LEARNING):
            told = without(learned, half)
            with Trial(world_named(WORLD), ALL[name], HEADLINE, learned=told) as trial:
                trial.remember(instances)
                found = columns([trial.run(one) for one in instances], is_said=False)
            yield {"half": half, "arm": name, "start": 0, **found}


def told(row: Row, cases: Cases) -> str:
    """Return what came of one row, for people."""
    found = Result(cases, row["arm"], HEADLINE, [row])
    figures = found.figures()
    return (
        f"half {row['half']}, {ALL[row['arm']].says}: {int(found.harmful.sum())} harmful, "
        f"{100 * figures['covered'].value:.1f} % of right ones, loss {figures['loss'].value:.4f}"
    )


def main(
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the raw rows go.")] = None,
    count: Annotated[int, typer.Option(help="How many instances of the split.")] = 3_520,
) -> None:
    """Forget half of what was learned of verifiers, and see what comes back without labels."""
    path = out or machine.RESULTS / f"guard-forgotten-{now()[:8]}.jsonl.gz"
    sink, instances = Sink(path=path), frozen(WORLD)[0][:count]
    row: Mapping[str, object] = teach(WORLD, len(instances), [], sink, Console())
    learned = msgspec.json.decode(lesson_of(row).calibration, type=Calibration)
    cases = Cases(about(instances, WORLD))
    for one in rows(learned, instances):
        sink.add("forgotten", **one)
        typer.echo(told(one, cases))
    typer.echo(str(path))


if __name__ == "__main__":
    typer.run(main)
