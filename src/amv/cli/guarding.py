"""Commands of the gate: decide, rank, decisions, reconcile, explain, replay, and approvals.

Those that are about a policy alone are in `policing`.
"""

from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from amv.cli import options, output
from amv.cli.session import Session, check_database, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amv.gate import Guard
    from amv.guard.actions import Action
    from amv.guard.decision import Decision
    from amv.guard.ports import ApprovalRow, State

guard = typer.Typer(
    help="The gate: may an action go ahead on what is remembered?",
    no_args_is_help=True,
    rich_markup_mode=None,
)
approvals = typer.Typer(
    help="Requests to a person to let an action go ahead.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PAGE = 1000

Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="The policy; AMV_POLICY if not given."),
]
Task = Annotated[str, typer.Option("--session", metavar="NAME", help="The task it is part of.")]
DecisionId = Annotated[str, typer.Argument(metavar="ID", help="The id of a decision.")]
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")]


@guard.command("decide")
def decide(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The action's tool.")],
    namespace: options.Needed,
    arguments: Annotated[
        str, typer.Option("--arguments", metavar="JSON", help="The arguments of the call.")
    ] = "{}",
    session: Task = "",
    approval: Annotated[
        str | None, typer.Option("--approval", metavar="ID", help="A request that was approved.")
    ] = None,
    policy: Policy = None,
    as_json: options.AsJson = False,
) -> None:
    """Decide about one action, with the checks that the policy asks by URL."""
    from amv.guard.actions import Action

    given = options.json_object(arguments, "--arguments")
    action = Action(
        tool=tool,
        arguments=given or {},
        namespace=options.namespace(namespace),
        session=session,
    )
    with opened(session_of(context), policy) as gate:
        decision = gate.decide(action, approval_id=approval)
    _show(decision, as_json=as_json)


@guard.command("rank")
def rank(
    context: typer.Context,
    alternatives: Annotated[
        str,
        typer.Option(metavar="JSON", help='Actions: [{"tool": "...", "arguments": {...}}, ...].'),
    ],
    namespace: options.Needed,
    session: Task = "",
    policy: Policy = None,
    as_json: options.AsJson = False,
) -> None:
    """Rank actions by what they are expected to lose; nothing is checked, granted or recorded."""
    own = options.namespace(namespace)
    actions = [
        _action(one, own, session) for one in options.json_array(alternatives, "--alternatives")
    ]
    with opened(session_of(context), policy) as gate:
        found = gate.rank(actions)
    if as_json:
        for decision in found:
            output.write_json(decision_json(decision))
        return
    output.write_table(
        ("verdict", "expected loss", "what", "why"),
        [[d.verdict, f"{d.expected_loss:.4g}", d.call, d.reason] for d in found],
        numeric=("expected loss",),
    )


def _action(one: object, namespace: tuple[str, ...], session: str) -> "Action":
    from amv.guard.actions import Action

    if not isinstance(one, dict) or not {"tool"} <= one.keys() <= {"tool", "arguments"}:
        options.refuse("--alternatives", "an action has a tool and arguments, and nothing else")
    arguments = one.get("arguments", {})
    return Action(one["tool"], arguments, namespace=namespace, session=session)


@guard.command("decisions")
def decisions(
    context: typer.Context,
    namespace: options.OrAll = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Only those of this task.")
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option("--verdict", metavar="VERDICT", help="PROCEED, VERIFY, REPAIR or ABSTAIN."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="How many, the newest ones.")
    ] = 100,
    as_json: options.AsJson = False,
) -> None:
    """List decisions, the newest last; those of a namespace with all below it."""
    own = () if namespace is None else options.namespace(namespace)
    found: deque[Decision] = deque(maxlen=limit)
    asked = None if verdict is None else verdict.upper()
    with opened(session_of(context), None, needs_policy=False) as gate:
        after = 0
        while page := gate.decisions(
            after=after, limit=PAGE, namespace=own, session=session, verdict=asked
        ):
            found.extend(decision for _, decision in page)
            after = page[-1][0]
    if as_json:
        for decision in found:
            output.write_json(decision_json(decision))
        return
    if not found:
        output.remark("no decision")
        return
    output.write_table(
        ("id", "verdict", "code", "namespace", "what", "why"),
        [[d.id, d.verdict, d.code, "/".join(d.namespace), d.call, d.reason] for d in found],
    )


@guard.command("reconcile")
def reconcile(
    context: typer.Context,
    decision_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A decision whose call is settled.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Argument(metavar="[OUTCOME]", help="SUCCEEDED, or FAILED: surely nothing was done."),
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="SECONDS",
            min=0.0,
            help="First mark as UNKNOWN what was begun longer ago.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List the calls of which nobody knows what became, or settle one of them."""
    settled = None if decision_id is None else (decision_id, _outcome(outcome))
    with opened(session_of(context), None, needs_policy=False) as gate:
        if older_than is not None:
            gate.reconcile(older_than)
        if settled is not None:
            gate.settle(*settled)
        rows = gate.unsettled()
        about = {row.decision_id: gate.get(row.decision_id) for row in rows}
    if as_json:
        for row in rows:
            output.write_json(
                {
                    "decision_id": row.decision_id,
                    "state": row.state.value,
                    "since": time_text(row.changed_s),
                    "tool": about[row.decision_id].tool,
                    "arguments": about[row.decision_id].arguments,
                    "namespace": about[row.decision_id].namespace,
                }
            )
        return
    if not rows:
        output.remark("of every call that was made, it is known what became of it")
        return
    output.write_table(
        ("decision", "state", "since", "namespace", "what"),
        [
            [
                row.decision_id,
                row.state.value,
                time_text(row.changed_s),
                "/".join(about[row.decision_id].namespace),
                about[row.decision_id].call,
            ]
            for row in rows
        ],
    )


def _outcome(text: str | None) -> "State":
    from amv.guard.ports import State

    known = {state.value: state for state in (State.SUCCEEDED, State.FAILED)}
    if text is None or text.upper() not in known:
        options.refuse("OUTCOME", f"need SUCCEEDED or FAILED after the id, got {text!r}")
    return known[text.upper()]


@guard.command("explain")
def explain(
    context: typer.Context, decision_id: DecisionId, as_json: options.AsJson = False
) -> None:
    """Say in plain words why a decision was what it was."""
    with opened(session_of(context), None, needs_policy=False) as gate:
        if as_json:
            output.write_json(decision_json(gate.get(decision_id)))
        else:
            output.write(output.visible(gate.explain(decision_id), is_block=True) + "\n")


@guard.command("replay")
def replay(context: typer.Context, as_json: options.AsJson = False) -> None:
    """Judge every recorded decision again, and check that no record was touched."""
    with opened(session_of(context), None, needs_policy=False) as gate:
        count, found = gate.decided(), gate.replay()
    if as_json:
        output.write_json({"decisions": count, "faults": found})
    for fault in found if not as_json else ():
        output.write(f"{fault}\n")
    if not found and not as_json:
        output.remark(f"{count:,} decisions: each is judged as it was, and the log is whole")
    if found:
        raise typer.Exit(1)


@approvals.command("list")
def list_approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Those decided, too.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List the requests that wait for a person."""
    with opened(session_of(context), None, needs_policy=False) as gate:
        rows = gate.approvals.list(None if everything else "pending")
        about = {row.approval_id: gate.get(row.decision_id) for row in rows}
    if as_json:
        for row in rows:
            output.write_json(approval_json(row) | _about(about[row.approval_id]))
        return
    if not rows:
        output.remark("no request waits")
        return
    output.write_table(
        ("id", "decision", "state", "expires", "by", "what", "why not"),
        [
            [
                row.approval_id,
                row.decision_id,
                row.state,
                time_text(row.expires_s),
                row.decided_by,
                about[row.approval_id].call,
                about[row.approval_id].reason,
            ]
            for row in rows
        ],
    )


def _about(decision: "Decision") -> dict[str, object]:
    return {
        "tool": decision.tool,
        "arguments": decision.arguments,
        "namespace": decision.namespace,
        "reason": decision.reason,
    }


@approvals.command("approve")
def approve(
    context: typer.Context, approval_id: ApprovalId, by: By, as_json: options.AsJson = False
) -> None:
    """Let the action of a request go ahead, once, unless a check refutes it meanwhile."""
    _decided(context, approval_id, by, is_approved=True, as_json=as_json)


@approvals.command("reject")
def reject(
    context: typer.Context, approval_id: ApprovalId, by: By, as_json: options.AsJson = False
) -> None:
    """Refuse a request."""
    _decided(context, approval_id, by, is_approved=False, as_json=as_json)


def _decided(
    context: typer.Context, approval_id: str, by: str, *, is_approved: bool, as_json: bool
) -> None:
    with opened(session_of(context), None, needs_policy=False) as gate:
        row = gate.approve(approval_id, by=by, approve=is_approved)
    if as_json:
        output.write_json(approval_json(row))
    else:
        output.remark(f"request {row.approval_id} is {row.state}")


def policy_path(policy: str | None) -> str:
    """Return the file of the policy that is named, or the environment's; raises ConfigError."""
    from amv.config import policy_from_environment
    from amv.errors import ConfigError

    path = policy or policy_from_environment()
    if path is None:
        raise ConfigError("need a policy: name its file with --policy or AMV_POLICY")
    return path


@contextmanager
def opened(session: Session, policy: str | None, *, needs_policy: bool = True) -> "Iterator[Guard]":
    """Open the gate over the session's database."""
    from amv.config import calibration_from_environment
    from amv.gate import Guard

    settings = session.settings()
    check_database(settings.db)
    rules = policy_path(policy) if needs_policy else {"version": 1}
    learned = calibration_from_environment() if needs_policy else None
    with Guard.open(settings.db, policy=rules, settings=settings, calibration=learned) as gate:
        yield gate


def _show(decision: "Decision", *, as_json: bool) -> None:
    if as_json:
        output.write_json(decision_json(decision))
        return
    output.write(f"{decision.verdict}\n")
    output.remark(output.visible(decision.reason))
    if decision.permit is not None:
        output.remark(
            f"permit {decision.permit.token}, until {time_text(decision.permit.expires_s)}"
        )
    if decision.approval_id:
        output.remark(f"a person can approve it: amv approvals approve {decision.approval_id}")


def decision_json(decision: "Decision") -> dict[str, object]:
    """Return a decision as JSON, with its times as text, as over HTTP."""
    from amv.guard.decision import plain

    found = plain(decision)
    if decision.permit is not None:
        del found["permit"]["expires_s"]
        found["permit"]["expires_at"] = time_text(decision.permit.expires_s)
    return found


def approval_json(row: "ApprovalRow") -> dict[str, object]:
    """Return a request for approval as JSON."""
    return {
        "id": row.approval_id,
        "decision_id": row.decision_id,
        "state": row.state,
        "created_at": time_text(row.created_s),
        "expires_at": time_text(row.expires_s),
        "decided_by": row.decided_by,
        "decided_key": row.decided_key,
    }


def time_text(moment_s: float) -> str:
    """Return a moment, in unix seconds, as text."""
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="seconds")
