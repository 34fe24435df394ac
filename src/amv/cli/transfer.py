"""Commands that move a memory elsewhere: export and import.

Both stream, so a memory may be larger than RAM.  An exported file appears under
its name only once it is whole.
"""

import fcntl
import os
import secrets
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from amv.cli import options, output
from amv.cli.session import Session, session_of
from amv.errors import AmvError, InvalidInput
from amv.imports import NEIGHBOURS
from amv.imports.writing import BadLine

if TYPE_CHECKING:
    from amv.imports.running import Import, ImportReport
    from amv.wiring import Memory

_DRAFT = ".amv-export-"
TERMINATED = 128 + signal.SIGTERM
NAMESPACES_MAX = 5
"""How many namespaces an import names to people."""

_LOCKED_WITHIN_S = 60.0
"""A draft that is younger may have been made a moment ago, and not be locked yet."""


class FileFailed(AmvError):
    """A file that was named can't be read or written."""


def export_items(
    context: typer.Context,
    namespace: options.OrAll = None,
    vectors: Annotated[
        bool,
        typer.Option("--vectors", help="With their vectors; needed if the content has others."),
    ] = False,
    file: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write it here; - is stdout.")
    ] = "-",
    as_json: options.AsJson = False,
) -> None:
    """Write items as JSON lines, for `amv import`.

    A line has all there is to an item, so that nothing is lost on the way.
    """
    name = options.namespace_or_all(namespace)
    count = 0
    output.use_utf8()
    session = session_of(context)
    if file != "-":
        _refuse_database(file, session.settings().db)
    with session.open(embeds=False) as memory:
        items = memory.export_items(namespace=name, vectors=vectors)
        if file == "-":
            for item in items:
                output.write_json(item)
                count += 1
        else:
            with _replaced(file) as stream:
                for item in items:
                    stream.write(output.to_json(item).encode() + b"\n")
                    count += 1
        if count == 0:
            output.note_no_namespace(memory, name, as_json=as_json)
    of = "all namespaces" if name is None else output.shown_namespace(name)
    if not as_json:
        output.remark(output.visible(f"exported {output.counted(count, 'item')} of {of}"))
    elif file != "-":
        output.write_json(
            {"exported": count, "namespace": name and list(name), "file": file, "vectors": vectors}
        )


def _refuse_database(file: str, database: str) -> None:
    """Raise if *file* is the database, or one of the files that stand beside it."""
    path, kept = os.path.realpath(file), os.path.realpath(database)
    is_beside = path.startswith(tuple(kept + end for end in ("-wal", "-shm", ".events-")))
    is_same = os.path.exists(path) and os.path.exists(kept) and os.path.samefile(path, kept)
    if is_beside or is_same:
        raise InvalidInput(f"{file!r} belongs to the database itself; export to another file")


@contextmanager
def _replaced(file: str) -> Iterator[BinaryIO]:
    """Yield what becomes the content of *file* at the end, and not before."""
    path = os.path.realpath(file)
    with _failing(f"{file!r} could not be written"):
        mode = os.stat(path).st_mode if os.path.exists(path) else None
        if mode is not None and not stat.S_ISREG(mode):
            # A device or a pipe is written to, not replaced.
            with open(path, "wb") as stream:
                yield stream
            return
        folder = os.path.dirname(path)
        _remove_orphans(folder)
        draft = os.path.join(folder, f"{_DRAFT}{secrets.token_hex(8)}.tmp")
        try:
            with open(draft, "xb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                if mode is not None:
                    os.fchmod(stream.fileno(), stat.S_IMODE(mode))
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(draft, path)
        except BaseException:
            if os.path.exists(draft):
                os.remove(draft)
            raise
        _sync_folder(folder)


def _remove_orphans(folder: str) -> None:
    """Remove the drafts of exports that were killed: whoever writes one holds its lock."""
    drafts = [entry for entry in os.scandir(folder) if entry.name.startswith(_DRAFT)]
    for draft in drafts:
        # One that is gone, locked or another's is left alone.
        with suppress(OSError), open(draft, "rb") as stream:
            if time.time() - os.fstat(stream.fileno()).st_mtime > _LOCKED_WITHIN_S:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(draft)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileFailed(f"{what}: {error.strerror}") from error


def import_items(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What to read; - is stdin.")],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Whose memory it becomes, where the file does not say so: a/b, or a JSON array.",
        ),
    ] = None,
    format: Annotated[
        Literal["items", "chat", "chatgpt", "claude", "locomo", "mem0", "mcp-memory"] | None,
        typer.Option(help="What the file holds; told from its beginning if not given."),
    ] = None,
    neighbours: Annotated[
        int,
        typer.Option(
            metavar="N", help="Turns before and after one by whose words it is found, too; 0 to 16."
        ),
    ] = NEIGHBOURS,
    by_conversation: Annotated[
        bool,
        typer.Option("--by-conversation", help="Give each conversation a namespace of its own."),
    ] = False,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be added.")
    ] = False,
    skips_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report what can't be imported, and go on.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Add items from a file: exported ones, chats, or another memory's.

    What is there already is passed over, so an import that was stopped is
    simply run again.

    A line of items is an exported item, or has the fields content and perhaps
    namespace, id, metadata, context, claim, source, source_trust, valid_from,
    valid_until, expires_at, pinned and vector.
    """
    from amv.imports.running import Import

    owner = options.namespace_or_all(namespace)
    name = "stdin" if file == "-" else file
    with (
        _ended_by_sigterm(),
        _opened(file) as (stream, size),
        _target(session_of(context), is_dry=is_dry) as memory,
        output.progress("importing") as show,
    ):
        run = Import(
            memory,
            stream,
            namespace=owner,
            format=format,
            neighbours=neighbours,
            by_conversation=by_conversation,
            dry_run=is_dry,
            on_bad=partial(_tell_bad, skips_bad=skips_bad, as_json=as_json),
            on_progress=lambda done: show(done, size),
            name=name,
        )
        with _telling_how_far(run, name, as_json=as_json):
            report = run.run()
    _write_report(report, owner, as_json=as_json)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does, with exit code 143; a second one kills it."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        # Whoever runs this has something of their own to do then.
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _Terminated as error:
        raise typer.Exit(TERMINATED) from error
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _tell_bad(bad: BadLine, *, skips_bad: bool, as_json: bool) -> None:
    """Report what can't be imported, or raise it."""
    if not skips_bad:
        raise bad
    where = {} if bad.where == f"line {bad.number}" else {"where": bad.where}
    output.report_error("BadLine", f"skipped {bad}", as_json=as_json, line=bad.number, **where)


@contextmanager
def _telling_how_far(run: "Import", name: str, *, as_json: bool) -> Iterator[None]:
    """Add to whatever ends an import how far it got, and what to do."""
    try:
        yield
    except BadLine as bad:
        what = "line" if run.format == "items" else "place"
        why = (
            f"{bad.why}; {_so_far(run)}; mend the {what} and import the file again, "
            f"or have such {what}s passed over with --skip-bad"
        )
        raise BadLine(bad.number, why, f"{name}: {bad.where}") from bad
    except AmvError as error:
        error.add_note(f"{_so_far(run)}; import the file again to go on")
        raise
    except KeyboardInterrupt:
        said = f"stopped; {_so_far(run)}; import the file again to go on"
        output.report_error("Interrupted", said, as_json=as_json)
        raise


def _target(session: Session, *, is_dry: bool) -> "Memory":
    """Return the memory to import into; a rehearsal makes none, and embeds nothing."""
    if not is_dry:
        return session.open(makes_it=True)
    settings = session.settings()
    if os.path.exists(settings.db):
        return session.open(embeds=False)
    from amv.wiring import IN_PROCESS, Memory

    return Memory.open(IN_PROCESS, settings=settings)


def _told(report: "ImportReport") -> dict[str, object]:
    counts = {"added": report.added, "present": report.present, "skipped": report.skipped}
    if report.format == "items" and not report.dry_run:
        return {"lines": report.read, **counts}
    told = {"format": report.format, "read": report.read, **counts}
    told |= {"left_out": dict(report.left_out), "dry_run": report.dry_run}
    if report.format != "items":
        told["namespaces"] = [
            {"namespace": list(name), "added": n} for name, n in report.namespaces.items()
        ]
    if report.dry_run:
        told["first"] = [_as_json(fields) for fields in report.first]
    return told


def _as_json(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of an item that would be added, written as those of one that is there."""
    told = {**fields}
    for name in ("valid_from", "valid_until", "expires_at"):
        if (moment := _moment(fields.get(name))) is not None:
            told[name] = moment.isoformat()
    if (claim := fields.get("claim")) is not None:
        told["claim"] = [claim.subject, claim.attribute, claim.value]
    return told


def _write_report(report: "ImportReport", name: tuple[str, ...] | None, *, as_json: bool) -> None:
    if as_json:
        output.write_json(_told(report))
        return
    if report.first:
        output.write_table(
            ("namespace", "from", "content"),
            [
                (
                    output.shown_namespace(fields["namespace"]),
                    output.shown_time(_moment(fields.get("valid_from"))),
                    output.shortened(fields["content"]),
                )
                for fields in report.first
            ],
        )
        if report.added > len(report.first):
            output.write(f"and {report.added - len(report.first)} more\n")
    is_lines = report.format == "items"
    read = output.counted(report.read, "line") if is_lines else f"{report.format}"
    left_out = ", ".join(f"{n} {why}" for why, n in report.left_out.items())
    added = "would be added" if report.dry_run else "added"
    output.write(
        f"{read}: {output.counted(report.added, 'item')} {added}, "
        f"{report.present} there already, "
        f"{output.counted(report.skipped, 'bad line' if is_lines else 'bad place')} skipped"
        f"{f'; left out: {left_out}' if left_out else ''}\n"
    )
    if set(report.namespaces) - {name}:
        # Not, or not only, where it was told to go.
        output.write(output.visible(_whose(report.namespaces, added)) + "\n")


def _whose(namespaces: Mapping[tuple[str, ...], int], added: str) -> str:
    """Return to which namespaces items were added, most first."""
    few = list(namespaces.items())[:NAMESPACES_MAX]
    said = ", ".join(f"{n} to {output.shown_namespace(name)}" for name, n in few)
    more = len(namespaces) - len(few)
    others = f", {sum(namespaces.values()) - sum(n for _, n in few)} to {more} others"
    return f"{added}: {said}{others if more else ''}"


def _moment(at: object) -> datetime | None:
    """Return a time as an item has it, in UTC."""
    from amv.memory.item import check_time, utc

    at_s = check_time(at, "a time")
    return None if at_s is None else utc(at_s)


def _so_far(run: "Import") -> str:
    tally = run.tally
    if tally.lines == 0:
        return "nothing is in yet"
    counts = f"({tally.added} added, {tally.present} there already, {tally.skipped} skipped)"
    if run.format == "items":
        return f"what comes up to line {tally.lines} is in {counts}, and is passed over next time"
    return f"what came before is in {counts}, and is passed over next time"


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """Yield a file, or stdin for "-", and its size in bytes if it has one."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    with ExitStack() as held:
        with _failing(f"{file!r} could not be read"):
            stream = held.enter_context(open(file, "rb"))
        status = os.fstat(stream.fileno())
        yield stream, status.st_size if stat.S_ISREG(status.st_mode) else None
