"""Commands of the gate: decide, explain, replay, lint, init, and approvals."""

import os
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from amv.cli import options, output
from amv.cli.session import Session, check_database, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amv.gate import Guard
    from amv.guard.decision import Decision
    from amv.guard.ports import ApprovalRow
    from amv.wiring import Memory

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

Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="The policy; AMV_POLICY if not given."),
]
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
    session: Annotated[str, typer.Option(metavar="NAME", help="The task it is part of.")] = "",
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
        decision = gate.decide(action)
    _show(decision, as_json=as_json)


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


@guard.command("lint")
def lint(context: typer.Context, policy: Policy = None, as_json: options.AsJson = False) -> None:
    """Look for what is valid in a policy and yet surely not meant."""
    from amv.gate import load_policy
    from amv.guard.lint import lint as linted

    session = session_of(context)
    rules, settings = load_policy(_policy_path(policy)), session.settings()
    if session.db is not None:
        check_database(settings.db)
    known = None
    if os.path.exists(settings.db):
        with session.open() as memory:
            known = attributes(memory)
    elif not as_json:
        output.remark(f"there is no database {settings.db!r}: claims are not looked up")
    found = linted(rules, None if known is None else known.__contains__)
    if as_json:
        output.write_json({"findings": found})
    for finding in found if not as_json else ():
        output.write(f"{finding}\n")
    if not found and not as_json:
        output.remark("nothing to say")
    if found:
        raise typer.Exit(1)


def attributes(memory: "Memory") -> set[str]:
    """Return the attributes of all claims that are remembered."""
    found = set()
    for namespace in memory.namespaces():
        cursor = None
        while True:
            page = memory.list(namespace=namespace, cursor=cursor, limit=1000)
            found |= {item.claim.attribute for item in page.items if item.claim is not None}
            cursor = page.cursor
            if cursor is None:
                break
    return found


@guard.command("init")
def init(
    tools: Annotated[
        str, typer.Argument(metavar="FILE", help="Tools as MCP lists them: a JSON array.")
    ],
    as_json: options.AsJson = False,
) -> None:
    """Draft a policy from what tools say of themselves; nothing of it is trusted yet."""
    from pathlib import Path

    import yaml

    from amv.errors import ConfigError, InvalidInput
    from amv.guard.lint import draft

    try:
        listed = options.strict_json(Path(tools).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"can't read tools from {tools!r}: {error}") from error
    if isinstance(listed, dict):
        listed = listed.get("tools")
    if not isinstance(listed, list):
        raise InvalidInput(f"need a JSON array of tools in {tools!r}")
    if as_json:
        output.write_json(draft(listed))
        return
    output.write(
        "# A draft, by what tools say of themselves, which nobody has checked: every tool counts\n"
        "# as one with effects, and nothing is blocked (mode: shadow) until you say so.\n"
    )
    output.write(yaml.safe_dump(draft(listed), sort_keys=False))


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
        ("id", "decision", "state", "expires", "by", "what"),
        [
            [
                row.approval_id,
                row.decision_id,
                row.state,
                _time(row.expires_s),
                row.decided_by,
                about[row.approval_id].says,
            ]
            for row in rows
        ],
    )


def _about(decision: "Decision") -> dict[str, object]:
    return {"tool": decision.tool, "reason": decision.reason}


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


def _policy_path(policy: str | None) -> str:
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
    rules = _policy_path(policy) if needs_policy else {"version": 1}
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
        output.remark(f"permit {decision.permit.token}, until {_time(decision.permit.expires_s)}")
    if decision.approval_id:
        output.remark(f"a person can approve it: amv approvals approve {decision.approval_id}")


def decision_json(decision: "Decision") -> dict[str, object]:
    """Return a decision as JSON."""
    from amv.guard.decision import plain

    return plain(decision)


def approval_json(row: "ApprovalRow") -> dict[str, object]:
    """Return a request for approval as JSON."""
    return {
        "id": row.approval_id,
        "decision_id": row.decision_id,
        "state": row.state,
        "created_at": _time(row.created_s),
        "expires_at": _time(row.expires_s),
        "decided_by": row.decided_by,
    }


def _time(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).isoformat(timespec="seconds")
