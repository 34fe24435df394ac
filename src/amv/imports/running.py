"""One import from beginning to end: the format told or named, entries written, all counted."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from amv.checks import check_flag, shown
from amv.embedders.absent import Absent
from amv.errors import Conflict, InvalidInput, ItemNotFound
from amv.imports import FORMATS, NEIGHBOURS, NEIGHBOURS_MAX
from amv.imports.chatgpt import chatgpt
from amv.imports.chats import chat, claude, is_locomo, is_turn, locomo
from amv.imports.lines import LineImport
from amv.imports.reading import Source
from amv.imports.stores import mcp, mem0
from amv.imports.turns import Mapper
from amv.imports.writing import BadLine, Entry, Tally, Target, Writing
from amv.memory.intake import Intake, Request
from amv.memory.item import Namespace, Row, check_id, check_namespace
from amv.memory.settings import MemorySettings
from amv.memory.transfer import RestoreReport, parsed

if TYPE_CHECKING:
    from amv.memory.item import Item
    from amv.memory.results import Stats

_OF_TURNS = {"chat": chat, "chatgpt": chatgpt, "claude": claude, "locomo": locomo}
_OF_MEMORIES = {"mem0": mem0, "mcp-memory": mcp}

SHOWN_MAX = 20
"""How many items a rehearsal shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do if it was a rehearsal.

    *read* counts lines, or elements of a document, up to the last that was dealt with; *left_out*
    what is no memory, by why; *namespaces* what was added, by whose memory it became (nothing of
    `items`, whose lines say so); *first* holds the fields of the first items that a rehearsal
    would add, and is empty otherwise.
    """

    format: str
    read: int
    added: int
    present: int
    skipped: int
    left_out: Mapping[str, int]
    dry_run: bool
    first: tuple[Mapping[str, Any], ...] = ()
    namespaces: Mapping[Namespace, int] = field(default_factory=dict)


def format_of(value: object) -> str | None:
    """Return the format that a first line or element is of; None if that is not certain.

    >>> format_of({"role": "user", "content": "Hello"}), format_of({"name": "Alice"})
    ('chat', None)
    """
    if isinstance(value, list):
        return "chat" if value and all(map(is_turn, value)) else None
    if not isinstance(value, dict):
        return None
    kinds = {
        "items": "amv" in value,
        "mcp-memory": value.get("type") in ("entity", "relation")
        and bool(value.keys() & {"entityType", "relationType", "observations"}),
        "chatgpt": isinstance(value.get("mapping"), dict),
        "claude": isinstance(value.get("chat_messages"), list),
        "locomo": is_locomo(value),
        "chat": is_turn(value) or isinstance(value.get("messages"), list),
        "mem0": _is_mem0(value),
    }
    found = [name for name, holds in kinds.items() if holds]
    if not found and "content" in value:
        return "items"
    return found[0] if len(found) == 1 else None


def _is_mem0(value: dict[str, Any]) -> bool:
    if isinstance(value.get("memory"), str):
        return "content" not in value
    results = value.get("results")
    return (
        isinstance(results, list)
        and bool(results)
        and all(isinstance(one, dict) and "memory" in one for one in results)
    )


_NAME_IT = f"name it with --format (format=), one of {', '.join(FORMATS)}"


class Import:
    """One run of an import; `run` may end early, and *tally* and *left_out* still say how far."""

    def __init__(
        self,
        memory: Target,
        stream: BinaryIO,
        *,
        namespace: Sequence[str] | None = None,
        format: str | None = None,
        neighbours: int = NEIGHBOURS,
        by_conversation: bool = False,
        dry_run: bool = False,
        on_bad: Callable[[BadLine], None],
        on_progress: Callable[[int], None],
        name: str = "",
    ) -> None:
        """Look at what *stream* begins with; errors about it begin with its *name*."""
        if not (
            isinstance(neighbours, int)
            and not isinstance(neighbours, bool)
            and 0 <= neighbours <= NEIGHBOURS_MAX
        ):
            raise InvalidInput(f"neighbours must be 0 to {NEIGHBOURS_MAX}, got {shown(neighbours)}")
        if format is not None and format not in FORMATS:
            raise InvalidInput(f"format must be one of {', '.join(FORMATS)}, got {shown(format)}")
        check_flag(by_conversation, "by_conversation")
        owner = None if namespace is None else check_namespace(namespace)
        self._rehearsal = Rehearsal(memory) if check_flag(dry_run, "dry_run") else None
        self._target = memory if self._rehearsal is None else self._rehearsal
        self._on_bad, self._on_progress = on_bad, on_progress
        with _naming(name):
            self._source = Source(stream)
            found = format or format_of(self._source.first)
            self.format = found or self._of_last_resort()
        self._is_guess = found is None and isinstance(self._source.first, dict)
        self._mapper = Mapper(self.format, owner, neighbours, by_conversation)
        self.tally = Tally()

    def _of_last_resort(self) -> str:
        if self._source.is_empty:
            return "chat"
        if self._source.is_document:
            raise InvalidInput(f"can't tell what this holds; {_NAME_IT}")
        return "items"

    def run(self) -> ImportReport:
        """Import all there is; raises what *on_bad* raises, and errors of the memory."""
        if self.format == "items":
            self._run_lines()
        else:
            self._run_entries()
        return self.report()

    def report(self) -> ImportReport:
        """Return how far it got."""
        return ImportReport(
            format=self.format,
            read=self.tally.lines,
            added=self.tally.added,
            present=self.tally.present,
            skipped=self.tally.skipped,
            left_out={name: n for name, n in sorted(self._mapper.left_out.items()) if n},
            dry_run=self._rehearsal is not None,
            first=tuple(self._rehearsal.first) if self._rehearsal is not None else (),
            namespaces={} if self.format == "items" else dict(self.tally.namespaces.most_common()),
        )

    def _run_lines(self) -> None:
        run = LineImport(
            self._target,
            self._mapper.namespace,
            on_bad=self._refused,
            on_progress=self._on_progress,
        )
        self.tally = run.tally
        run.run(self._source.lines())

    def _refused(self, bad: BadLine) -> None:
        """Tell of a line; of the first, also that it may be no item, if it looks like none."""
        is_guess, self._is_guess = self._is_guess, False
        if is_guess:
            why = f"{bad.why}; if these lines are no items, {_NAME_IT}"
            bad = BadLine(bad.number, why, bad.where)
        self._on_bad(bad)

    def _run_entries(self) -> None:
        writing = Writing(self._target, on_bad=self._on_bad)
        self.tally = writing.tally
        last = 0
        for entry in self._entries():
            last = max(last, entry.number)
            if isinstance(entry, BadLine):
                writing.refuse(entry)
            elif writing.put(entry):
                self._on_progress(self._source.bytes_read)
        writing.flush()
        self.tally.lines = max(last, self._source.count)
        self._on_progress(self._source.bytes_read)

    def _entries(self) -> Iterator[Entry | BadLine]:
        pieces, mapper = self._source.pieces(), self._mapper
        if self.format in _OF_TURNS:
            return mapper.entries(_OF_TURNS[self.format](pieces, mapper.left_out))
        return _OF_MEMORIES[self.format](pieces, mapper)


def import_file(
    memory: Target,
    file: "str | PathLike[str] | BinaryIO",
    *,
    namespace: Sequence[str] | None = None,
    format: str | None = None,
    neighbours: int = NEIGHBOURS,
    by_conversation: bool = False,
    dry_run: bool = False,
    on_bad: Callable[[BadLine], None] | None = None,
    on_progress: Callable[[int], None] = lambda bytes_read: None,
) -> ImportReport:
    """Add what a file holds to a memory: exported items, chats, or another memory's store.

    *format* is one of `FORMATS`; None tells it from the beginning of the file.  A turn of a
    conversation is also found by the words of up to *neighbours* turns on either side.
    *namespace* is whose memory it becomes; mem0's user is appended to it, and with
    *by_conversation* a conversation's id is.  What is there already is passed over, so an import
    that was stopped is run again.  A rehearsal (*dry_run*) writes nothing.

    *on_bad* gets each place that can't be imported, and may raise; None raises it.  Raises
    InvalidInput for a file that can't be understood; what came before is kept.
    """
    with _opened(file) as (stream, name):
        run = Import(
            memory,
            stream,
            namespace=namespace,
            format=format,
            neighbours=neighbours,
            by_conversation=by_conversation,
            dry_run=dry_run,
            on_bad=on_bad or _raised,
            on_progress=on_progress,
            name=name,
        )
        try:
            return run.run()
        except BadLine as bad:
            if name:
                raise BadLine(bad.number, bad.why, f"{name}: {bad.where}") from bad
            raise


@contextmanager
def _naming(file: str) -> "Iterator[None]":
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}" if file else str(error)) from error


def _raised(bad: BadLine) -> None:
    raise bad


@contextmanager
def _opened(file: "str | PathLike[str] | BinaryIO") -> "Iterator[tuple[BinaryIO, str]]":
    if not isinstance(file, str | PathLike):
        yield file, ""
        return
    with ExitStack() as held:
        try:
            stream = held.enter_context(open(file, "rb"))
        except OSError as error:
            raise InvalidInput(f"{str(file)!r} could not be read: {error.strerror}") from error
        yield stream, str(file)


class _Planned(NamedTuple):
    """What a rehearsal would have added, as far as it is asked for."""

    content: str
    claim: object
    metadata: Mapping[str, object]
    context: str
    source: str | None
    source_trust: float


class _Plan(NamedTuple):
    """One item to add: whose, by which id, what is kept of it, and what is shown."""

    namespace: tuple[str, ...]
    item_id: str
    planned: _Planned
    told: Mapping[str, Any]
    given: frozenset[str]


class Rehearsal:
    """Stands in for a memory: what is added is checked and counted, and gone."""

    def __init__(self, memory: Target) -> None:
        self.first: list[Mapping[str, Any]] = []
        self._memory = memory
        self._planned: dict[tuple[tuple[str, ...], str], _Planned] = {}
        self._settings = MemorySettings()
        stats = memory.stats()
        self._embedder = Absent(stats.embedder, stats.dimension)
        self._intake = Intake(self._embedder, self._settings, new_id=lambda: "")

    def get(self, item_id: str, *, namespace: Sequence[str] | None = None) -> "Item":
        """Return an item that is there, or would be by now."""
        name = () if namespace is None else check_namespace(namespace)
        planned = self._planned.get((name, check_id(item_id)))
        if planned is not None:
            return planned  # type: ignore[return-value]
        return self._memory.get(item_id, namespace=namespace)

    def stats(self) -> "Stats":
        """Return how much is there."""
        return self._memory.stats()

    def add_many(self, items: Iterable[Mapping[str, Any]]) -> "Sequence[Item]":
        """Check items as adding them would."""
        plans = []
        for fields in items:
            request = self._intake.check(fields, time.time())
            told = {k: v for k, v in fields.items() if v not in (None, "") and k != "vector"}
            planned = _planned(request)
            plan = _Plan(request.namespace, str(request.item_id), planned, told, request.given)
            plans.append(plan)
        self._plan(plans)
        return []

    def restore(self, items: Iterable[Mapping[str, Any]]) -> RestoreReport:
        """Check exported items as restoring them would."""
        plans = []
        for data in items:
            item = parsed(data, embedder=self._embedder, settings=self._settings, now_s=time.time())
            row = item.row
            told = {"id": row.id, "namespace": list(item.namespace), "content": row.content}
            given = frozenset(["content"])
            plans.append(_Plan(item.namespace, row.id, _planned(row), told, given))
        added = self._plan(plans)
        return RestoreReport(added=added, present=len(plans) - added)

    def _plan(self, plans: Sequence[_Plan]) -> int:
        """Take all of them or, if one can't be added, none; return how many are new."""
        new: dict[tuple[tuple[str, ...], str], _Plan] = {}
        for plan in plans:
            key = plan.namespace, plan.item_id
            there = new[key].planned if key in new else self._there(plan)
            if there is None:
                new[key] = plan
                continue
            differing = [
                name
                for name in _Planned._fields
                if name in plan.given and getattr(there, name) != getattr(plan.planned, name)
            ]
            if differing:
                raise Conflict(
                    f"an item with id {plan.item_id!r} is there with another {', '.join(differing)}"
                )
        self._planned |= {key: plan.planned for key, plan in new.items()}
        self.first += [plan.told for plan in new.values()][: SHOWN_MAX - len(self.first)]
        return len(new)

    def _there(self, plan: _Plan) -> "Item | None":
        try:
            return self.get(plan.item_id, namespace=plan.namespace)
        except ItemNotFound:
            return None


def _planned(one: "Request | Row") -> _Planned:
    return _Planned(one.content, one.claim, one.metadata, one.context, one.source, one.source_trust)
