"""What commands print: data on stdout, remarks and errors on stderr.

For people there are tables.  On a terminal they are coloured and fit its width;
piped, each row is one line of plain text, as `grep` and `awk` want it, and no id
is ever cut.  What a memory holds may come from anywhere, so control characters
are shown as escapes: none reaches the terminal to be obeyed.

For programs (`--json`) there is JSON in UTF-8, with every character as it is.
"""

import ast
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from amv.errors import AmvError

if TYPE_CHECKING:
    from rich.console import Console

    from amv.memory.item import Item
    from amv.memory.results import HistoryEntry
    from amv.wiring import Memory

CONTENT_CHARS_MAX = 200
"""How much of a content a table shows."""

# Controls, line separators, and the marks that turn the direction of all that follows.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# A namespace as the library's errors write it.
_NAMESPACE_TUPLE = re.compile(
    r"""(?<=\bnamespace )\((?:(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?:, |,(?=\))|(?=\))))+\)"""
)
_UNSAFE_IN_BLOCK = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class OutputFailed(AmvError):
    """Standard output could not be written."""


class PipeClosed(Exception):
    """Whoever read our output, such as `head`, has seen enough."""


def write(text: str) -> None:
    """Write to stdout; raises PipeClosed or OutputFailed."""
    data = memoryview(text.encode(sys.stdout.encoding, "backslashreplace"))
    with _stdout_errors():
        # With PYTHONUNBUFFERED, the text layer would ignore that only a part was written.
        while data:
            data = data[sys.stdout.buffer.write(data) :]


def flush() -> None:
    """Hand on what was written; raises PipeClosed or OutputFailed."""
    with _stdout_errors():
        sys.stdout.flush()


@contextmanager
def _stdout_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosed from error
    except OSError as error:
        raise OutputFailed(f"the output could not be written: {error.strerror}") from error


def discard_stdout() -> None:
    """Let what is still buffered go nowhere, so that no flush at exit complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def use_utf8() -> None:
    """Write UTF-8 to both streams whatever the locale says, as JSON is defined."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def survive_any_locale() -> None:
    """Write what the locale's encoding lacks as an escape, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def to_json(data: object) -> str:
    """Return one line of JSON, for those too who hold U+2028 for the end of one."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    # Only strings hold such characters, and there an escape means the same.
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_json(data: object) -> None:
    """Write one object as a line of stdout."""
    write(to_json(data) + "\n")


def remark(text: str) -> None:
    """Say on stderr what is no data."""
    print(text, file=sys.stderr)


def report_error(kind: str, message: str, *, as_json: bool, hint: str = "", **more: object) -> None:
    """Say on stderr what went wrong, in one line; *more* joins the error object."""
    message = _NAMESPACE_TUPLE.sub(
        lambda found: shown_namespace(ast.literal_eval(found[0])), message
    )
    if as_json:
        remark(to_json({"error": {"type": kind, "message": message, **more}}))
    else:
        remark(visible(f"amv: {message}{hint}"))


def no_namespace(memory: "Memory", name: tuple[str, ...] | None) -> str | None:
    """Return the note that a memory has no namespace of this name; None if it has, or for all."""
    if name is None or name in memory.namespaces():
        return None
    return f"there is no namespace {shown_namespace(name)} yet"


def note_no_namespace(memory: "Memory", name: tuple[str, ...] | None, *, as_json: bool) -> None:
    """Say on stderr, to people, that what came back empty is of a namespace that isn't there."""
    note = None if as_json else no_namespace(memory, name)
    if note is not None:
        remark(visible(note))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "item"), counted(2, "item")
    ('1 item', '2 items')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def visible(text: str, *, is_block: bool = False) -> str:
    r"""Return *text* with what a terminal would obey written as escapes.

    A block keeps its line breaks and tabs.

    >>> visible("\x1b[31mred\n")
    '\\x1b[31mred\\n'
    """
    unsafe = _UNSAFE_IN_BLOCK if is_block else _UNSAFE
    return unsafe.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shortened(text: str) -> str:
    """Return as much of a content as a table shows."""
    if len(text) <= CONTENT_CHARS_MAX:
        return text
    return text[: CONTENT_CHARS_MAX - 1] + "…"


def shown_namespace(name: Sequence[str]) -> str:
    """Return a namespace as `--namespace` takes it back.

    >>> shown_namespace(("team", "alice")), shown_namespace(("a/b", "c"))
    ('team/alice', '["a/b", "c"]')
    """
    if any("/" in part for part in name) or name[0].startswith(("[", "(")):
        return json.dumps(list(name), ensure_ascii=False)
    return "/".join(name)


def shown_time(moment: datetime | None) -> str:
    """Return a moment to the second, in UTC."""
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%SZ")


def item_json(item: "Item") -> dict[str, object]:
    """Return every field of an item, as JSON has it."""
    return {
        "id": item.id,
        "namespace": list(item.namespace),
        "content": item.content,
        "context": item.context,
        "created_at": _iso(item.created_at),
        "valid_from": _iso(item.valid_from),
        "valid_until": _iso(item.valid_until),
        "expires_at": _iso(item.expires_at),
        "source": item.source,
        "source_trust": item.source_trust,
        "claim": _claim_json(item),
        "status": item.status.value,
        "contradicted": item.contradicted,
        "pinned": item.pinned,
        "metadata": dict(item.metadata),
        "supersedes": item.supersedes,
        "superseded_by": item.superseded_by,
        "last_verified_at": _iso(item.last_verified_at),
        "tier": item.tier.name,
        "value": item.value,
        "exposed_count": item.exposed_count,
        "contributed_count": item.contributed_count,
    }


def history_json(entry: "HistoryEntry") -> dict[str, object]:
    """Return one step of a history, as JSON has it."""
    return {
        "item_id": entry.item_id,
        "at": _iso(entry.at),
        "event": entry.event,
        "content": entry.content,
        "claim": _claim_json(entry),
    }


def _claim_json(holder: "Item | HistoryEntry") -> list[object] | None:
    claim = holder.claim
    return None if claim is None else [claim.subject, claim.attribute, claim.value]


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def write_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    has_header: bool = True,
    numeric: Sequence[str] = (),
) -> None:
    """Write a table; cells may hold anything."""
    rows = [[visible(cell) for cell in row] for row in rows]
    console = _terminal()
    if console is None:
        _write_aligned([columns, *rows] if has_header else rows, [c in numeric for c in columns])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=has_header, pad_edge=False)
    for place, name in enumerate(columns):
        widest = max((len(row[place]) for row in rows), default=0)
        table.add_column(
            name,
            justify="right" if name in numeric else "left",
            overflow="fold",
            # Content gives way to what stands before it, such as an id of usual length.
            no_wrap=place < len(columns) - 1 and widest <= console.width // 2,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _print(console, table)


def write_fields(fields: Mapping[str, str]) -> None:
    """Write names and values below each other; values may have several lines."""
    shown = {name: visible(value, is_block=True) for name, value in fields.items()}
    console = _terminal()
    if console is None:
        lines = [
            (name if number == 0 else "", line)
            for name, value in shown.items()
            for number, line in enumerate(value.split("\n"))
        ]
        _write_aligned(lines, (False, False))
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in shown.items():
        grid.add_row(Text(name, style="dim"), Text(value))
    _print(console, grid)


def _write_aligned(rows: Sequence[Sequence[str]], is_right: Sequence[bool]) -> None:
    """Write each row as one line, its cells as wide as their columns."""
    from rich.cells import cell_len

    sizes = [[cell_len(cell) for cell in row] for row in rows]
    widths = [max(column) for column in zip(*sizes, strict=True)]
    for row, size in zip(rows, sizes, strict=True):
        cells = []
        for cell, has, width, right in zip(row, size, widths, is_right, strict=True):
            gap = " " * (width - has)
            cells.append(gap + cell if right else cell + gap)
        write("  ".join(cells).rstrip(" ") + "\n")


def _terminal() -> "Console | None":
    """Return the terminal that stdout is, None if it is something else."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def _print(console: "Console", what: object) -> None:
    # Rendered first, so that writing fails in one place, for one reason.
    with console.capture() as captured:
        console.print(what)
    write(captured.get())


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on stderr, if that is a terminal; yield what moves it to (done, total)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
