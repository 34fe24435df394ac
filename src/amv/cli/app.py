"""The application: its commands, the options before them, and how a run ends.

Exit codes: 0 done, 1 an error told in one line, 2 a usage error, 141 whoever read
the output closed it; 130, stopped by Ctrl-C, is what `amv.cli.main` makes of that;
143, an import stopped by SIGTERM.
Anything unexpected keeps its traceback.
"""

import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
import typer.main

import amv
from amv.cli import (
    doubts,
    guarding,
    items,
    learning,
    output,
    policing,
    serving,
    transfer,
    upkeep,
)
from amv.cli.session import Session
from amv.errors import AmvError

app = typer.Typer(
    name="amv",
    help="The memory of a long-lived LLM agent, in one file.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("add")(items.add)
app.command("search")(items.search)
app.command("context")(items.context_block)
app.command("list")(items.list_items)
app.command("get")(items.get)
app.command("update")(items.update)
app.command("confirm")(doubts.confirm)
app.command("refute")(doubts.refute)
app.command("forget")(items.forget)
app.command("stats")(upkeep.stats)
app.command("sweep")(upkeep.sweep)
app.command("import")(transfer.import_items)
app.command("export")(transfer.export_items)
app.command("reembed")(upkeep.reembed)
app.command("doctor")(upkeep.doctor)
app.command("serve")(serving.serve)
app.add_typer(serving.keys, name="keys")
guarding.guard.command("lint")(policing.lint)
guarding.guard.command("init")(policing.init)
guarding.guard.command("calibrate")(learning.calibrate)
guarding.guard.command("certify")(learning.certify)
guarding.guard.command("certificate")(learning.certificate)
guarding.guard.command("label")(learning.label)
app.add_typer(guarding.guard, name="guard")
app.add_typer(guarding.approvals, name="approvals")

BEFORE_THE_COMMAND = ("--db", "--embedder", "--log-level")
TAKING_TEXT = ("amv add", "amv search", "amv context")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        output.write(f"amv {amv.__version__}\n")
        raise typer.Exit


@app.callback()
def before_the_command(
    context: typer.Context,
    db: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The memory's file; AMV_DB, or amv.db, if not given."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "minilm, static, hashing, hashing:N or remote:MODEL (at AMV_EMBEDDER_URL); "
                "AMV_EMBEDDER, or else the one the file was made with (minilm for a new file), "
                "if not given."
            ),
        ),
    ] = None,
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"] | None,
        typer.Option(
            case_sensitive=False,
            help="What to log to stderr; AMV_LOG_LEVEL, or WARNING, if not given.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Keep what stands before the command for when it asks."""
    session = context.obj
    assert isinstance(session, Session)
    session.db, session.embedder, session.log_level = db, embedder, log_level


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `amv` with *arguments*, or the process's own; return the exit code.

    Raises KeyboardInterrupt.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    output.survive_any_locale()
    if as_json:
        output.use_utf8()
    command = typer.main.get_command(app)
    session = Session()
    try:
        code = command.main(args=arguments, prog_name="amv", standalone_mode=False, obj=session)
        output.flush()
        return int(code or 0)
    except output.PipeClosed:
        output.discard_stdout()
        return 141
    except typer.TyperException as error:
        _report_usage(error, *_named(command, arguments), as_json=as_json)
        return error.exit_code
    except AmvError as error:
        if logging.getLogger("amv").isEnabledFor(logging.DEBUG):
            traceback.print_exception(error)
        message = "; ".join([str(error), *getattr(error, "__notes__", ())])
        output.report_error(type(error).__name__, message, as_json=as_json)
        return 1


def _named(command: Any, arguments: Sequence[str]) -> tuple[Any, str]:
    """Return the command that arguments name, and what calls it, such as "amv keys create"."""
    path = "amv"
    for argument in arguments:
        known = getattr(command, "commands", {})
        if argument in known:
            command, path = known[argument], f"{path} {argument}"
    return command, path


def _takes(command: Any, option: str) -> bool:
    """Return whether a command, or one of its commands, has an option."""
    own = any(option in (*p.opts, *p.secondary_opts) for p in command.params)
    return own or any(_takes(one, option) for one in getattr(command, "commands", {}).values())


def _report_usage(error: Any, command: Any, path: str, *, as_json: bool) -> None:
    message = error.format_message()
    option = getattr(error, "option_name", None)
    missing = getattr(error, "param", None)
    refusing = getattr(getattr(error, "ctx", None), "command", None)
    if missing is not None and missing.name == "namespace":
        message = "--namespace (-n) is needed: whose memory this is, such as a/b"
    elif option in BEFORE_THE_COMMAND:
        message = f"{option} stands before the command: amv {option} ... {path.partition(' ')[2]}"
    elif option is not None and hasattr(refusing, "commands") and _takes(command, option):
        # It came before the command that it is an option of.
        own = f"{path} COMMAND" if hasattr(command, "commands") else path
        message = f"put {option} after the command: {own} ... {option}"
    elif path in TAKING_TEXT and option is not None and not option.startswith("--"):
        message += '; a text that begins with a hyphen comes after --, as in -- "-5 degrees"'
    elif path in TAKING_TEXT and "unexpected extra argument" in message:
        message += "; put a text of several words in quotes"
    output.report_error("UsageError", message, as_json=as_json, hint=f" (see {path} --help)")
