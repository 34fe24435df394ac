"""Commands that move a memory elsewhere: export and import.

Both stream, so a memory may be larger than RAM.  An exported file appears under
its name only once it is whole.
"""

import fcntl
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Annotated, BinaryIO

import typer

from amv.cli import options, output
from amv.cli.lines import BadLine, LineImport, Tally
from amv.cli.session import session_of
from amv.errors import AmvError, InvalidInput

_DRAFT = ".amv-export-"
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
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines; - reads stdin.")],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Whose memory lines belong to that don't say so: a/b, or a JSON array.",
        ),
    ] = None,
    skips_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Report lines that can't be imported, and go on.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Add items from JSON lines.

    Those that are there already are passed over, so an import that was stopped
    is simply run again.

    A line is an exported item, or has the fields content and perhaps namespace,
    id, metadata, context, claim, source, source_trust, valid_from, valid_until,
    expires_at, pinned and vector.
    """
    name = options.namespace_or_all(namespace)

    def on_bad(bad: BadLine) -> None:
        if not skips_bad:
            raise bad
        output.report_error("BadLine", f"skipped {bad}", as_json=as_json, line=bad.number)

    with (
        _opened(file) as (stream, size),
        session_of(context).open(makes_it=True) as memory,
        output.progress("importing") as show,
    ):
        run = LineImport(memory, name, on_bad=on_bad, on_progress=lambda done: show(done, size))
        try:
            run.run(stream)
        except BadLine as bad:
            raise BadLine(
                bad.number,
                f"{bad.why}; {_so_far(run.tally)}; mend the line and import the file again, "
                "or have such lines passed over with --skip-bad",
            ) from bad
        except AmvError as error:
            error.add_note(f"{_so_far(run.tally)}; import the file again to go on")
            raise
        except KeyboardInterrupt:
            said = f"stopped; {_so_far(run.tally)}; import the file again to go on"
            output.report_error("Interrupted", said, as_json=as_json)
            raise
    tally = run.tally
    if as_json:
        output.write_json(
            {
                "lines": tally.lines,
                "added": tally.added,
                "present": tally.present,
                "skipped": tally.skipped,
            }
        )
    else:
        output.write(
            f"{output.counted(tally.lines, 'line')}: {output.counted(tally.added, 'item')} added, "
            f"{tally.present} there already, "
            f"{output.counted(tally.skipped, 'bad line')} skipped\n"
        )


def _so_far(tally: Tally) -> str:
    if tally.lines == 0:
        return "nothing is in yet"
    return (
        f"what comes up to line {tally.lines} is in ({tally.added} added, "
        f"{tally.present} there already, {tally.skipped} skipped), and is passed over next time"
    )


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
