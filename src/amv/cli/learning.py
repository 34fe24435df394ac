"""Commands by which the gate learns of its own record: calibrate, certify."""

from typing import TYPE_CHECKING, Annotated

import typer

from amv.cli import options, output
from amv.cli.guarding import opened
from amv.cli.session import session_of

if TYPE_CHECKING:
    from amv.guard.calibration import Calibration, Fitted, Label
    from amv.guard.certificate import Certificate, Instance
    from amv.guard.labels import Told

Out = Annotated[
    str | None, typer.Option("--out", metavar="FILE", help="Write the calibration there.")
]
Plot = Annotated[
    str | None, typer.Option("--plot", metavar="FILE", help="Draw what was said and was, as PNG.")
]
Html = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="The same as a page of its own.")
]


def calibrate(
    context: typer.Context,
    out: Out = None,
    plot: Plot = None,
    html: Html = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The one in use; AMV_CALIBRATION if not given."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare what was said of memories with what checks found, and fit one to the other."""
    from amv.config import calibration_from_environment
    from amv.guard.calibration import Calibration, fit
    from amv.loading import load_calibration

    session = session_of(context)
    with opened(session, None, needs_policy=False) as gate:
        told = gate.labels()
    base = load_calibration(calibration or calibration_from_environment())
    labels = comparable(told, base)
    found = fit(labels)
    steps = (*base.steps, found.calibrator) if found.calibrator.numbers else base.steps
    fitted = Calibration(steps=steps)
    _write_files(out, plot, html, fitted, found, labels)
    if as_json:
        output.write_json(
            {
                "labels": found.labels,
                "passed_over": len(told) - len(labels),
                "wrong": sum(label.is_violated for label in labels),
                "log_loss": found.losses,
                "chosen": found.calibrator.sort,
                "calibration": fitted.digest(),
            }
        )
    else:
        _show(found, labels, len(told) - len(labels))


def comparable(told: "list[Told]", base: "Calibration") -> "list[Label]":
    """Return labels as *base* says them; those said under any other calibration are left out."""
    from amv.guard.calibration import PRIOR

    labels = []
    for calibration, label in told:
        if calibration == base.digest():
            labels.append(label)
        elif calibration == PRIOR:
            labels.append(label._replace(p=base(label.p)))
    return labels


def _write_files(
    out: str | None,
    plot: str | None,
    html: str | None,
    fitted: "Calibration",
    found: "Fitted",
    labels: "list[Label]",
) -> None:
    from pathlib import Path

    import msgspec

    from amv.cli import reliability
    from amv.errors import ConfigError, InvalidInput

    if (plot or html) and not labels:
        raise InvalidInput("there is nothing to draw: no check has told anything of a memory yet")
    made = {}
    if out:
        made[out] = msgspec.json.format(msgspec.json.encode(fitted)) + b"\n"
    if plot or html:
        drawn = reliability.picture(labels, found.calibrator)
        made |= {plot: reliability.png(drawn)} if plot else {}
        made |= {html: reliability.page(drawn)} if html else {}
    for path, content in made.items():
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise ConfigError(f"can't write {path!r}: {error}") from error


def _show(found: "Fitted", labels: "list[Label]", passed_over: int) -> None:
    wrong = sum(label.is_violated for label in labels)
    output.remark(f"{len(labels):,} memories were checked, and {wrong:,} of them were wrong")
    if passed_over:
        output.remark(f"{passed_over:,} more were judged under another calibration: passed over")
    if not found.losses:
        output.remark("too few to learn from: 10 that were wrong and 10 that were not are needed")
        return
    output.write_table(
        ("calibrator", "log loss", ""),
        [
            [name, f"{loss:.4f}", "chosen" if name == found.calibrator.sort else ""]
            for name, loss in found.losses.items()
        ],
        numeric=("log loss",),
    )


def certify(
    instances: Annotated[
        str,
        typer.Argument(metavar="FILE", help="JSON lines of case, answers and is_harmful."),
    ],
    epsilon: Annotated[
        float, typer.Option(metavar="0..1", help="The most harm per action that went ahead.")
    ] = 0.05,
    delta: Annotated[
        float, typer.Option(metavar="0..1", help="The chance that the certificate is wrong.")
    ] = 0.1,
    as_json: options.AsJson = False,
) -> None:
    """Certify how often an action that goes ahead rests on something wrong."""
    import msgspec

    from amv.guard import certificate

    read = read_instances(instances)
    is_weighted = any(one.weight != read[0].weight for one in read)
    certifying = certificate.certify_weighted if is_weighted else certificate.certify
    found = certifying(read, epsilon=epsilon, delta=delta)
    if as_json:
        output.write_json({**msgspec.to_builtins(found), "coverage": found.coverage})
    else:
        output.write(in_words(found) + "\n")
    if found.threshold is None:
        raise typer.Exit(1)


def in_words(found: "Certificate") -> str:
    """Return what a certificate says, for people."""
    bound = f"at most {100 * found.epsilon:.3g} in 100 actions that go ahead do harm"
    if found.threshold is None:
        return f"Nothing is certified: {found.why}."
    return (
        f"Certified: with harm_max {found.threshold:g}, {bound}.\n"
        f"Of {found.instances:,} actions {found.executed:,} would have gone ahead "
        f"({100 * found.coverage:.0f} %), and {found.harmed:,} of those did harm.\n"
        f"The chance that this is luck, and the bound does not hold, is {100 * found.delta:.3g} % "
        "at most.\nIt holds for actions like these, under this policy and these checks."
    )


def read_instances(path: str) -> "list[Instance]":
    """Return the instances in a file of JSON lines; raises ConfigError, InvalidInput."""
    from pathlib import Path

    import msgspec

    from amv.errors import ConfigError, InvalidInput
    from amv.guard.certificate import Instance

    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"can't read instances from {path!r}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=Instance)
            _check_instance(one)
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of {path!r} is no instance: {error}") from error
        found.append(one)
    if not found:
        raise InvalidInput(f"there is no instance in {path!r}")
    return found


def _check_instance(one: "Instance") -> None:
    """Raise InvalidInput for a case that can't be judged, or without every check's answer."""
    from amv.errors import InvalidInput
    from amv.guard.judge import PLANNERS
    from amv.guard.loss import Prices, check_informative, check_probability

    case, count = one.case, len(one.case.premises)
    case.prices()
    if case.planner not in PLANNERS:
        raise InvalidInput(f"planner must be one of {', '.join(PLANNERS)}, got {case.planner!r}")
    if not 0.0 < one.weight < float("inf"):
        raise InvalidInput(f"weight must be positive and finite, got {one.weight}")
    for premise in case.premises:
        check_probability(premise.p, "p")
        Prices(abstain=premise.theta)
    for check in case.checks:
        check_informative(check.sensitivity, check.specificity)
        Prices(abstain=check.cost)
        answer = one.answers.get(check.name)
        if not all(0 <= place < count for place in check.premises):
            raise InvalidInput(f"check {check.name!r} is of premises that are not there")
        if answer is None or answer.check != check.name:
            raise InvalidInput(f"there is no answer of the check {check.name!r}")
        if len(answer.outcomes) != len(check.premises):
            raise InvalidInput(f"check {check.name!r} needs an outcome for each of its premises")
