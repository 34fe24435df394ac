"""The frozen instances: draw them anew, or check that they are still those of the files.

python -m bench.guard.freeze            # writes bench/guard/frozen/
python -m bench.guard.freeze --check    # draws them again, and compares their SHA-256
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from bench.guard.instances import Instance, digest, drawn, lines, loaded, read, write
from bench.guard.worlds import OF_TAU2, available, world_named

FROZEN = Path(__file__).parent / "frozen"
DIGESTS = FROZEN / "SHA256.json"


class Size(NamedTuple):
    """How many instances a world has to calibrate on and to be tested on."""

    calibration: int
    test: int


SIZES: Mapping[str, Size] = {
    "phone": Size(3_520, 3_520),
    "office": Size(0, 1_050),
    "retail": Size(0, 560),
    "airline": Size(0, 528),
}
"""Of tau2's worlds, four and eleven times as many as there are distinct gold writes."""


def path_of(name: str) -> Path:
    """Return where the instances of a world are kept; those of tau2 hold its data, and are not."""
    return FROZEN / f"{name}.jsonl.gz"


def rebuilt(name: str) -> bytes:
    """Draw the instances of a world; the same ones every time."""
    world, size = world_named(name), SIZES[name]
    calibration = drawn(world, size.calibration, "calibration")
    return lines([*calibration, *drawn(world, size.test, "test")])


def digests() -> dict[str, str]:
    """Return the SHA-256 of each world's instances, as they were frozen."""
    found: dict[str, str] = json.loads(DIGESTS.read_text("utf-8"))
    return found


@cache
def frozen(name: str) -> tuple[list[Instance], list[Instance]]:
    """Return a world's instances for calibration and for the test; they must be the frozen ones."""
    data = rebuilt(name) if name in OF_TAU2 else read(path_of(name))
    if digest(data) != digests()[name]:
        raise ValueError(f"the instances of {name} are not those frozen: SHA-256 {digest(data)}")
    found = loaded(data)
    calibration = [one for one in found if one.split == "calibration"]
    return calibration, [one for one in found if one.split == "test"]


def main(
    check: Annotated[bool, typer.Option("--check", help="Compare, and write nothing.")] = False,
) -> None:
    """Draw the instances of every world whose package is installed."""
    known = digests() if DIGESTS.exists() else {}
    for name in available():
        data = rebuilt(name)
        if check and digest(data) != known[name]:
            typer.echo(f"{name} is not rebuilt: {digest(data)}, and not {known[name]}", err=True)
            raise typer.Exit(1)
        known[name] = digest(data)
        if not check and name not in OF_TAU2:
            write(path_of(name), data)
        typer.echo(f"{known[name]}  {name}")
    if not check:
        DIGESTS.write_text(json.dumps(known, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
