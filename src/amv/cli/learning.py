"""Commands by which the gate learns of its own record: calibrate, certify, certificate, label."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from amv.cli import options, output
from amv.cli.guarding import DecisionId, Policy, opened, time_text
from amv.cli.session import Session, check_database, session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amv.gate import Guard
    from amv.guard.calibration import Calibration
    from amv.guard.certificate import Certificate, Instance
    from amv.guard.labels import Log, Told
    from amv.guard.learning import Learned
    from amv.guard.standing import Standing
    from amv.guard.survival import Aged

T = TypeVar("T")

Out = Annotated[
    str | None, typer.Option("--out", metavar="FILE", help="Write the calibration there.")
]
Plot = Annotated[
    str | None, typer.Option("--plot", metavar="FILE", help="Draw what was said and was, as PNG.")
]
Html = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="The same as a page of its own.")
]
Within = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Only decisions for namespaces that begin so; all if not given.",
    ),
]


@contextmanager
def _gate(session: Session, policy: str | None) -> "Iterator[Guard]":
    """Open the gate, with a policy if one is named, and nothing learned before."""
    from amv.config import policy_from_environment
    from amv.gate import Guard

    settings = session.settings()
    check_database(settings.db)
    rules = policy or policy_from_environment() or {"version": 1}
    with Guard.open(settings.db, policy=rules, settings=settings) as gate:
        yield gate


def calibrate(
    context: typer.Context,
    labels: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON lines of kind, age_h, trust and is_violated; the log if not given.",
        ),
    ] = None,
    out: Out = None,
    plot: Plot = None,
    html: Html = None,
    namespace: Within = None,
    policy: Policy = None,
    as_json: options.AsJson = False,
) -> None:
    """Learn from the log how fast memories change, how likely they are wrong, and who can tell."""
    from amv.guard.labels import Log
    from amv.guard.learning import learn
    from amv.guard.prior import LogisticPrior
    from amv.retelling import retold

    again: list[Aged] = []
    if labels is not None:
        if namespace is not None or policy is not None:
            options.refuse("FILE", "a file of labels has neither namespaces nor a policy")
        log, through, known = Log(0, read_labels(labels), [], [], 0), 0, 0
    else:
        within = options.namespace_or_all(namespace) or ()
        with _gate(session_of(context), policy) as gate:
            log = gate.log(namespace=within)
            again = retold(gate.memory, gate.policy, namespace=within)
            known = gate.decided()
        through = log.through
    found = learn(log.labels, log.answers, LogisticPrior(), retold=again, through=through)
    _write_files(out, plot, html, found, log.labels)
    if as_json:
        output.write_json(_calibrated_json(found, log, len(again)))
    else:
        output.remark(_read(log, known, labels))
        if again:
            output.remark(f"and {len(again):,} claims that the memory was told again, or anew")
        _show(found)


def _calibrated_json(found: "Learned", log: "Log", retold: int) -> dict[str, object]:
    import msgspec

    survival = found.calibration.survival
    return {
        "decisions": log.decisions,
        "labels": len(log.labels),
        "weight": sum(one.weight for one in log.labels),
        "sources": _sources(log.labels),
        "wrong": sum(one.is_violated for one in log.labels),
        "retold": retold,
        "age": found.ages,
        "hazard_per_h": {"*": survival.hazard, **survival.kinds} if survival.hazard else {},
        "log_loss": found.fitted.losses,
        "chosen": found.fitted.calibrator.sort,
        "verifiers": msgspec.to_builtins(found.calibration.verifiers),
        "calibration": found.calibration.digest(),
    }


def _sources(told: "Sequence[Told]") -> dict[str, int]:
    return {
        name: sum(one.source == name for one in told) for name in ("checked", "audited", "told")
    }


def _write_files(
    out: str | None, plot: str | None, html: str | None, found: "Learned", told: "Sequence[Told]"
) -> None:
    from pathlib import Path

    import msgspec

    from amv.cli import reliability
    from amv.errors import ConfigError, InvalidInput
    from amv.guard.calibration import Label
    from amv.guard.prior import clipped

    if (plot or html) and not told:
        raise InvalidInput("there is nothing to draw: no check has told anything of a memory yet")
    made = {}
    if out:
        data = msgspec.json.encode(found.calibration, order="deterministic")
        made[out] = msgspec.json.format(data) + b"\n"
    if plot or html:
        before = [Label(one.said, one.is_violated, one.weight) for one in told]
        after = [label._replace(p=found.calibration(clipped(label.p))) for label in found.labels]
        drawn = reliability.picture(before, after, found.calibration.survival.kinds)
        made |= {plot: reliability.png(drawn)} if plot else {}
        made |= {html: reliability.page(drawn)} if html else {}
    for path, content in made.items():
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise ConfigError(f"can't write {path!r}: {error}") from error


def _read(log: "Log", decided: int, path: str | None) -> str:
    """Return what was read to learn from, for people."""
    told = log.labels
    wrong, weight = sum(one.is_violated for one in told), sum(one.weight for one in told)
    ways = ", ".join(f"{count:,} {name}" for name, count in _sources(told).items() if count)
    where = f"{log.decisions:,} of {decided:,} decisions" if path is None else repr(path)
    return (
        f"{where}: {len(told):,} labels{f' ({ways})' if ways else ''}, {wrong:,} of them wrong; "
        f"by their weights they stand for {weight:,.0f} memories"
    )


def _show(found: "Learned") -> None:
    from amv.cli import reliability

    if not found.fitted.losses:
        output.remark("too few to learn from: 10 that were wrong and 10 that were not are needed")
    _show_best("age by", found.ages)
    survival = found.calibration.survival
    if survival.hazard is not None:
        rates = [*survival.kinds.items(), ("any other", survival.hazard)]
        output.write_table(
            ("kind", "half stay true for"),
            [
                [output.visible(name) or "no kind", reliability.lasting(reliability.half_h(rate))]
                for name, rate in rates
            ],
            numeric=("half stay true for",),
        )
    _show_best("calibrator", found.fitted.losses)
    if found.calibration.verifiers:
        output.write_table(
            (*_CHECKS, "errs with"), _checks(found.calibration), numeric=("seen wrong", "right")
        )


_CHECKS = ("verifier", "refutes what is wrong", "confirms what holds", "seen wrong", "right")


def _checks(calibration: "Calibration") -> list[list[str]]:
    others = calibration.typical
    most = [["any other", *map(_most, (others.sensitivity, others.specificity)), "", "", ""]]
    return [
        *(
            [
                name,
                _share(one.sensitivity),
                _share(one.specificity),
                f"{one.violated:.0f}",
                f"{one.held:.0f}",
                one.group,
            ]
            for name, one in calibration.verifiers.items()
        ),
        *most,
    ]


def _most(share: float | None) -> str:
    return "as declared" if share is None else f"as declared, at most {share:.3f}"


def _show_best(what: str, losses: dict[str, float]) -> None:
    """Show what was tried, the better the lower; nothing if nothing was."""
    if losses:
        best = min(losses, key=losses.__getitem__)
        output.write_table(
            (what, "log loss", ""),
            [[n, f"{loss:.4f}", "chosen" if n == best else ""] for n, loss in losses.items()],
            numeric=("log loss",),
        )


def _share(share: float | None) -> str:
    return "as declared" if share is None else f"{share:.3f}"


def label(
    context: typer.Context,
    decision_id: DecisionId,
    truth: Annotated[
        list[str],
        typer.Argument(metavar="PREMISE=held|violated", help="What was true of its premises."),
    ],
    weight: Annotated[
        float,
        typer.Option(metavar="N", help="One over the probability of looking into this decision."),
    ] = 1.0,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who says so.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Tell what was true of the memories that a decision rested on."""
    violated = dict(_so(one) for one in truth)
    with opened(session_of(context), None, needs_policy=False) as gate:
        gate.label(decision_id, violated, weight=weight, by=by)
    if as_json:
        output.write_json({"decision_id": decision_id, "violated": violated, "weight": weight})
    else:
        output.remark(f"noted of decision {decision_id}")


def _so(text: str) -> tuple[str, bool]:
    name, _, so = text.rpartition("=")
    if not name or so not in ("held", "violated"):
        options.refuse(
            "PREMISE=held|violated", f"need a premise, = and held or violated, got {text!r}"
        )
    return name, so == "violated"


def certify(
    context: typer.Context,
    instances: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="JSON lines of case, answers and is_harmful; the log's audits if not given.",
        ),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(metavar="0..1", help="The most harm per action that went ahead.")
    ] = 0.05,
    delta: Annotated[
        float, typer.Option(metavar="0..1", help="The chance that the certificate is wrong.")
    ] = 0.1,
    namespace: Within = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Have the gate screen by it from now on.")
    ] = False,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who adopts it.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Certify how often an action that goes ahead rests on something wrong."""
    import msgspec

    from amv.guard.certificate import certificate_of

    if instances is not None:
        if namespace is not None:
            options.refuse("--namespace", "a file of instances has no namespaces")
        if adopt:
            options.refuse("--adopt", "what holds for a file says nothing of this database")
        read, said = read_instances(instances), dict[str, Any]()
        found = certificate_of(read, epsilon=epsilon, delta=delta)
    else:
        within = options.namespace_or_all(namespace) or ()
        if adopt and within:
            options.refuse("--adopt", "a certificate that is adopted is one of all namespaces")
        with opened(session_of(context), None, needs_policy=False) as gate:
            log = gate.log(namespace=within)
            read, told, ground = log.sample()
            found = certificate_of(read, epsilon=epsilon, delta=delta)
            if adopt and found.threshold is not None:
                gate.adopt(found, ground, by=by)
        said = {
            "decisions": log.decisions,
            "incomplete": log.incomplete,
            "others": len(log.drawn) - len(read),
            "told": told,
            "adopted": adopt and found.threshold is not None,
        }
    said["weight"] = sum(one.weight for one in read)
    if as_json:
        output.write_json({**msgspec.to_builtins(found), "coverage": found.coverage, **said})
    else:
        if instances is None:
            output.remark(_drawn(said, len(read)))
        output.write(in_words(found) + "\n")
        if said.get("adopted"):
            output.remark("the gate screens by it from now on; see amv guard certificate")
    if found.threshold is None:
        raise typer.Exit(1)


def _drawn(said: dict[str, Any], count: int) -> str:
    others = said["others"]
    return (
        f"{count:,} of {said['decisions']:,} decisions were drawn for an audit and have every "
        f"answer ({said['incomplete']:,} more lack one); by their weights they stand for "
        f"{said['weight']:,.0f}\nof {said['told']:,} somebody told the truth; of the others the "
        "checks are taken for it"
        + (f"\n{others:,} under another policy or calibration are left out" if others else "")
    )


def certificate(
    context: typer.Context,
    drop: Annotated[
        bool, typer.Option("--drop", help="Go back to the policy's own screen.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the certificate that the gate screens by, and what became known since."""
    with opened(session_of(context), None, needs_policy=False) as gate:
        if drop:
            gate.drop_certificate()
        standing, ground = gate.certificate(), gate.last_ground()
    state = "none" if standing is None else standing.screen(ground).state
    if as_json:
        output.write_json({"state": state} | ({} if standing is None else standing_json(standing)))
    elif standing is None:
        output.remark("no certificate is adopted: the policy's own screen holds")
    else:
        output.write(_standing_in_words(standing, state) + "\n")


def standing_json(standing: "Standing") -> dict[str, object]:
    """Return a certificate and what became of it, as JSON."""
    from amv.guard.certificate import ALPHA

    found = standing.certificate
    return {
        "id": standing.id,
        "since": time_text(standing.since_s),
        "by": standing.by,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "threshold": found.threshold,
        "executed": standing.executed,
        "harmed": standing.harmed,
        "evidence": standing.evidence,
        "withdrawn_from": 1.0 / ALPHA,
        "withdrawn_at": time_text(standing.ended_s) if standing.ended else None,
    }


_STATES = {
    "in_force": "In force.",
    "stale": (
        "Stale: decisions are made under another policy or calibration by now, and it only makes "
        "the policy's screen stricter.\nCertify anew (amv guard certify --adopt), or drop it "
        "(--drop)."
    ),
    "withdrawn": (
        "Withdrawn: more harm became known than it allows. Nothing goes ahead that is more likely "
        "wrong than {strictest:g}.\nFind out why, certify anew (amv guard certify --adopt), or go "
        "back to the policy's own screen (--drop)."
    ),
}


def _standing_in_words(standing: "Standing", state: str) -> str:
    from amv.guard.certificate import ALPHA
    from amv.guard.standing import STRICTEST

    by = f" by {output.visible(standing.by)}" if standing.by else ""
    return (
        f"{_STATES[state].format(strictest=STRICTEST)}\n"
        f"Adopted at {time_text(standing.since_s)}{by}; with harm_max "
        f"{standing.certificate.threshold:g}, at most {100 * standing.certificate.epsilon:.3g} in "
        "100 actions that go ahead do harm.\n"
        f"Of {standing.executed:,} that went ahead the truth is known since, {standing.harmed:,} "
        f"did harm; the alarm is at {standing.evidence:.4g} of {1.0 / ALPHA:g}."
    )


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
    import msgspec

    from amv.guard.certificate import Instance

    def read(line: bytes) -> Instance:
        one = msgspec.json.decode(line, type=Instance)
        _check_instance(one)
        return one

    return _lines(path, "instance", read)


def read_labels(path: str) -> "list[Told]":
    """Return the labels in a file of JSON lines; raises ConfigError, InvalidInput."""
    from amv.guard.labels import read_label

    return _lines(path, "label", read_label)


def _lines(path: str, what: str, read: "Callable[[bytes], T]") -> "list[T]":
    """Return what *read* makes of each line of a file that is not empty."""
    from pathlib import Path

    import msgspec

    from amv.errors import ConfigError, InvalidInput

    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"can't read {what}s from {path!r}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(read(line))
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of {path!r} is no {what}: {error}") from error
    if not found:
        raise InvalidInput(f"there is no {what} in {path!r}")
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
