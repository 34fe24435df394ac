"""Commands about a policy alone: lint and init."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amv.cli import options, output
from amv.cli.guarding import Policy, policy_path
from amv.cli.session import check_database, session_of
from amv.imports.strict import strict_json

if TYPE_CHECKING:
    from amv.wiring import Memory


def lint(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="The policy; AMV_POLICY if not given.")
    ] = None,
    policy: Policy = None,
    tools: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Tools as MCP lists them, for their arguments."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Look for what is valid in a policy and yet surely not meant."""
    from amv.guard.lint import arguments_of
    from amv.guard.lint import lint as linted
    from amv.loading import load_policy

    if file is not None and policy is not None:
        options.refuse("--policy", "name the policy once: as FILE or with --policy")
    session = session_of(context)
    rules, settings = load_policy(policy_path(file or policy)), session.settings()
    taken = None if tools is None else arguments_of(read_tools(tools))
    if session.db is not None:
        check_database(settings.db)
    known = None
    if os.path.exists(settings.db):
        with session.open() as memory:
            known = attributes(memory)
        if not known and not as_json:
            output.remark(f"{settings.db!r} holds no claim yet: claims are not looked up")
    elif not as_json:
        output.remark(f"there is no database {settings.db!r}: claims are not looked up")
    _tell_unknown(rules.actions.keys() - (taken or {}).keys(), is_quiet=as_json)
    found = linted(rules, known.__contains__ if known else None, taken)
    if as_json:
        output.write_json({"findings": found})
    for finding in found if not as_json else ():
        output.write(f"{finding}\n")
    if not found and not as_json:
        output.remark("nothing to say")
    if found:
        raise typer.Exit(1)


def _tell_unknown(tools: "set[str]", *, is_quiet: bool) -> None:
    if tools and not is_quiet:
        names = ", ".join(sorted(tools))
        output.remark(f"the arguments of {names} are not known, nor looked up: see --tools")


def attributes(memory: "Memory") -> set[str]:
    """Return the attributes of all claims that are remembered."""
    from amv.memory.item import Status
    from amv.retelling import all_items

    return {
        item.claim.attribute
        for namespace in memory.namespaces()
        for item in all_items(memory, namespace, status=Status.LIVE)
        if item.claim is not None
    }


def init(
    tools: Annotated[
        str, typer.Argument(metavar="FILE", help="Tools as MCP lists them: a JSON array.")
    ],
    as_json: options.AsJson = False,
) -> None:
    """Draft a policy from what tools say of themselves; nothing of it is trusted yet."""
    import yaml

    from amv.guard.lint import draft

    listed = read_tools(tools)
    if as_json:
        output.write_json(draft(listed))
        return
    output.write(
        "# A draft, by what tools say of themselves, which nobody has checked: every tool counts\n"
        "# as one with effects, and nothing is blocked (mode: shadow) until you say so.\n"
    )
    output.write(yaml.safe_dump(draft(listed), sort_keys=False))


def read_tools(path: str) -> "list[Any]":
    """Return tools from a file, an array or an object with `tools`; raises ConfigError."""
    from pathlib import Path

    from amv.errors import ConfigError, InvalidInput

    try:
        listed = strict_json(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"can't read tools from {path!r}: {error}") from error
    if isinstance(listed, dict):
        listed = listed.get("tools")
    if not isinstance(listed, list):
        raise InvalidInput(f"need a JSON array of tools in {path!r}")
    return listed
