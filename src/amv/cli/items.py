"""Commands about items: add, search, context, list, get, update, forget."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from amv.cli import doubts, options, output
from amv.cli.session import session_of
from amv.errors import ItemNotFound

if TYPE_CHECKING:
    from amv.memory.item import Item
    from amv.memory.results import HistoryEntry, SearchResult
    from amv.wiring import Memory

SUPERSEDED_MAX = 5
"""How many items that a new one supersedes are named to people."""

LIST_PAGE = 1000
"""How many items `list --all` reads at a time."""


def add(
    context: typer.Context,
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="The text; - reads stdin.")],
    namespace: options.Needed,
    item_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Adding the same again under its id changes nothing."
        ),
    ] = None,
    claim: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="SUBJECT ATTRIBUTE VALUE",
            help="What the content says; the value is read as JSON if it is JSON.",
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Where it comes from.")] = None,
    trust: options.Trust = None,
    metadata: options.Metadata = None,
    indexed: options.Context = None,
    valid_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="It holds from then on.")
    ] = None,
    valid_until: options.ValidUntil = None,
    expires_at: options.ExpiresAt = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="Keep it hot whatever its value.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Remember a text."""
    from amv import wiring
    from amv.memory.item import Claim

    fields = {
        "id": item_id,
        "claim": claim and Claim(claim[0], claim[1], options.json_or_text(claim[2])),  # type: ignore[arg-type]
        "source": source,
        "source_trust": trust,
        "metadata": options.json_object(metadata, "--metadata"),
        "context": indexed,
        "valid_from": options.moment(valid_from),
        "valid_until": options.moment(valid_until),
        "expires_at": options.moment(expires_at),
        "pinned": pinned,
    }
    name, text = options.namespace(namespace), options.content_or_stdin(content)
    session = session_of(context)
    wiring.check_add({"content": text, "namespace": name, **fields}, session.settings())
    with session.open(makes_it=True) as memory:
        began = datetime.now(UTC)
        item = memory.add(text, namespace=name, **fields)
        is_present = item.created_at < began
        others = doubts.against(memory, item)
        ended = [] if is_present or as_json else _superseded(memory, item)
    if as_json:
        output.write_json({**_json(item, others), "present": is_present})
    else:
        output.write(output.visible(_added(item, others, ended, is_present=is_present)) + "\n")


def _superseded(memory: "Memory", item: "Item") -> list[str]:
    """Return the ids of all that an item supersedes, the one that it names itself first."""
    if item.supersedes is None:
        return []
    with memory.store.read() as reader:
        ns = reader.namespace(item.namespace)
        rows = [] if ns is None else reader.linked_rows(ns.ns_id, item.id)
    ended = [row.id for row in rows if row.superseded_by == item.id]
    return list(dict.fromkeys([item.supersedes, *ended]))


def _added(
    item: "Item", others: Sequence["Item"], ended: Sequence[str], *, is_present: bool
) -> str:
    """Return what to say of an item that was added, or was there and stayed as it was."""
    where = output.shown_namespace(item.namespace)
    said = f"{item.id} is in {where}"
    if is_present:
        said += f" already, since {output.shown_time(item.created_at)}"
    elif ended:
        more = len(ended) - SUPERSEDED_MAX
        names = ", ".join(ended[:SUPERSEDED_MAX])
        said += f", and supersedes {names}{f' and {more} more' if more > 0 else ''}"
    if item.superseded_by is not None:
        said += f", superseded already by {item.superseded_by}"
    doubt = "" if is_present else doubts.told(item, others)
    return f"{said}; {doubt}" if doubt else said


def _json(item: "Item", others: Sequence["Item"]) -> dict[str, object]:
    """Return an item as JSON has it, with the ids of those that stand against it."""
    return output.item_json(item) | {"contradicts": [other.id for other in others]}


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    namespace: options.Needed,
    k: Annotated[int, typer.Option("--k", "-k", help="How many hits to return at most.")] = 10,
    filter_: options.Filter = None,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME", help="Search what held at that moment.")
    ] = None,
    cold: Annotated[
        bool | None,
        typer.Option(
            "--cold/--no-cold",
            help="Look into cold cells always, or never; by default when matches are poor.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Find the items that fit a query best."""
    name, condition = options.namespace(namespace), options.json_object(filter_, "--filter")
    with session_of(context).open() as memory:
        result = memory.search(
            query, namespace=name, k=k, filter=condition, as_of=options.moment(as_of), cold=cold
        )
        if not result.hits:
            output.note_no_namespace(memory, name, as_json=as_json)
    if as_json:
        output.write_json(_result_json(result))
        return
    if result.hits:
        output.write_table(
            ("id", "rank", "similarity", "tier", "value", "content"),
            [
                (
                    hit.item.id,
                    f"{hit.rank:.3f}",
                    f"{hit.similarity:.3f}",
                    hit.item.tier.name,
                    f"{hit.item.value:.3f}",
                    doubts.marked(hit.item),
                )
                for hit in result.hits
            ],
            numeric=("rank", "similarity", "value"),
        )
    parts = result.scanned
    output.write(
        f"{len(result.hits)} found; scanned {parts.total}: hot {parts.hot}, warm {parts.warm}, "
        f"cold {parts.cold}, postings {parts.postings}; "
        f"{'complete' if result.complete else f'incomplete: {result.reason}'}\n"
    )


def _result_json(result: "SearchResult") -> dict[str, object]:
    parts = result.scanned
    return {
        "hits": [
            {
                "item": output.item_json(hit.item),
                "similarity": hit.similarity,
                "lexical": hit.lexical,
                "rank": hit.rank,
            }
            for hit in result.hits
        ],
        "scanned": {
            "hot": parts.hot,
            "warm": parts.warm,
            "cold": parts.cold,
            "postings": parts.postings,
            "total": parts.total,
        },
        "complete": result.complete,
        "reason": result.reason,
        "cold_probed": result.cold_probed,
    }


def context_block(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What the prompt is about.")],
    namespace: options.Needed,
    token_budget: Annotated[
        int, typer.Option(metavar="N", help="The most tokens the block may take.")
    ] = 800,
    filter_: options.Filter = None,
    as_json: options.AsJson = False,
) -> None:
    """Pack the best items into a block for a prompt.

    The items in it count as used.
    """
    name, condition = options.namespace(namespace), options.json_object(filter_, "--filter")
    with session_of(context).asking() as memory:
        block = memory.context(query, namespace=name, token_budget=token_budget, filter=condition)
        if not block.item_ids:
            output.note_no_namespace(memory, name, as_json=as_json)
    if as_json:
        output.write_json(
            {"text": block.text, "item_ids": list(block.item_ids), "tokens": block.tokens}
        )
        return
    if block.text:
        # A terminal obeys control characters; a program that reads the block needs them as is.
        text = output.visible(block.text, is_block=True) if sys.stdout.isatty() else block.text
        output.write(text + "\n")
    items, tokens = (
        output.counted(len(block.item_ids), "item"),
        output.counted(block.tokens, "token"),
    )
    output.remark(f"{items}, {tokens}")


def list_items(
    context: typer.Context,
    namespace: options.Needed,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only items from this source.")
    ] = None,
    status: Annotated[
        Literal["live", "superseded", "refuted", "all"],
        typer.Option(help="Only items of this status."),
    ] = "live",
    limit: Annotated[int, typer.Option(metavar="N", help="How many items to list.")] = 100,
    cursor: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="Go on from there; an earlier list says it."),
    ] = None,
    lists_all: Annotated[bool, typer.Option("--all", help="List all there are.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List items in the order they were added.

    With --json, each line is one item, and where more follow, stderr says the cursor.
    """
    from amv.memory.item import Status

    name = options.namespace(namespace)
    with session_of(context).open() as memory:
        is_first = True
        while True:
            page = memory.list(
                namespace=name,
                source=source,
                status=None if status == "all" else Status(status),
                limit=LIST_PAGE if lists_all else limit,
                cursor=cursor,
            )
            _write_items(page.items, as_json=as_json, has_header=is_first)
            if is_first and not page.items:
                output.note_no_namespace(memory, name, as_json=as_json)
            cursor, is_first = page.cursor, False
            if cursor is None or not lists_all:
                break
    if cursor is not None:
        output.remark(
            output.to_json({"cursor": cursor}) if as_json else f"more with --cursor {cursor}"
        )


def _write_items(items: tuple["Item", ...], *, as_json: bool, has_header: bool) -> None:
    if as_json:
        for item in items:
            output.write_json(output.item_json(item))
    elif items:
        output.write_table(
            ("id", "created", "status", "tier", "value", "content"),
            [
                (
                    item.id,
                    f"{item.created_at:%Y-%m-%d}",
                    item.status.value + (" contradicted" if item.contradicted else ""),
                    item.tier.name + (" pinned" if item.pinned else ""),
                    f"{item.value:.3f}",
                    output.shortened(item.content),
                )
                for item in items
            ],
            has_header=has_header,
            numeric=("value",),
        )


def get(
    context: typer.Context,
    item_id: options.ItemId,
    namespace: options.Needed,
    has_history: Annotated[
        bool, typer.Option("--history", help="Also what it, and what it superseded, said before.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show all there is to an item."""
    name = options.namespace(namespace)
    with session_of(context).open() as memory:
        try:
            item = memory.get(item_id, namespace=name)
        except ItemNotFound as error:
            if note := output.no_namespace(memory, name):
                error.add_note(note)
            raise
        others = doubts.against(memory, item)
        history = memory.history(item_id, namespace=name) if has_history else []
    if as_json:
        data = _json(item, others)
        if has_history:
            data["history"] = [output.history_json(entry) for entry in history]
        output.write_json(data)
        return
    output.write_fields(_fields(item, others))
    if has_history:
        output.write("\n")
        _write_history(history)


def _fields(item: "Item", others: Sequence["Item"]) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name, value in output.item_json(item).items():
        if value in (None, ""):
            shown[name] = "-"
        elif isinstance(value, str):
            shown[name] = value
        elif isinstance(value, float):
            shown[name] = f"{value:.3f}"
        else:
            shown[name] = json.dumps(value, ensure_ascii=False)
    shown["namespace"] = output.shown_namespace(item.namespace)
    shown["contradicts"] = "\n".join(map(doubts.named, others)) or "-"
    return shown


def _write_history(history: list["HistoryEntry"]) -> None:
    output.write_table(
        ("at", "item", "event", "content"),
        [
            (
                output.shown_time(entry.at),
                entry.item_id,
                entry.event,
                output.shortened(entry.content),
            )
            for entry in history
        ],
    )


def update(
    context: typer.Context,
    item_id: options.ItemId,
    namespace: options.Needed,
    content: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The new text; - reads stdin.")
    ] = None,
    indexed: options.Context = None,
    metadata: options.Metadata = None,
    trust: options.Trust = None,
    valid_until: options.ValidUntil = None,
    expires_at: options.ExpiresAt = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--no-pinned", help="Keep it hot, or stop doing so.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Change an item.

    A time of "none" takes the time away.  Claim and source never change: add a
    new item, which supersedes the old one.
    """
    name = options.namespace(namespace)
    changes: dict[str, Any] = {}
    if content is not None:
        changes["content"] = options.content_or_stdin(content)
    if indexed is not None:
        changes["context"] = indexed
    if metadata is not None:
        changes["metadata"] = options.json_object(metadata, "--metadata")
    if trust is not None:
        changes["source_trust"] = trust
    if valid_until is not None:
        changes["valid_until"] = options.moment_or_none(valid_until)
    if expires_at is not None:
        changes["expires_at"] = options.moment_or_none(expires_at)
    if pinned is not None and changes:
        # Either could be refused when the other was done already.
        options.refuse("--pinned", "pin in a command of its own, apart from other changes")
    with session_of(context).open() as memory:
        if pinned is not None:
            item = memory.pin(item_id, pinned, namespace=name)
        else:
            item = memory.update(item_id, namespace=name, **changes)
        others = doubts.against(memory, item)
    if as_json:
        output.write_json(_json(item, others))
    else:
        output.write_fields(_fields(item, others))


def forget(
    context: typer.Context,
    namespace: options.Needed,
    item_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The item's id.")] = None,
    forgets_all: Annotated[
        bool, typer.Option("--all", help="Forget the namespace with everything in it.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete an item, or a whole namespace, for good."""
    options.one_of((item_id is not None, forgets_all), "ID and --all")
    if forgets_all and as_json and not is_sure:
        options.refuse("--all", "with --json, which is for programs, it needs --yes")
    name = options.namespace(namespace)
    with session_of(context).open() as memory:
        if item_id is not None:
            receipt = memory.forget(item_id, namespace=name)
        else:
            live = output.counted(memory.stats(name).live, "live item")
            question = (
                f"Forget namespace {output.visible(output.shown_namespace(name))} with its {live}, "
                "and all they superseded, for good?"
            )
            if not (is_sure or _agrees(question)):
                output.remark("nothing was forgotten; with --yes, nothing is asked")
                raise typer.Exit(1)
            receipt = memory.forget_namespace(name)
        erased = receipt.erased
    if as_json:
        output.write_json(
            {
                "forgotten": receipt.count,
                "item_ids": list(receipt.item_ids),
                "namespace": list(receipt.namespace),
                "erased": erased,
                "reason": receipt.reason,
            }
        )
        return
    bytes_left = "no byte is left on disk" if erased else output.visible(receipt.reason)
    output.write(
        f"forgot {receipt.count} of {output.visible(output.shown_namespace(receipt.namespace))}; "
        f"erased: {'yes' if erased else 'not yet'}, {bytes_left}\n"
    )


def _agrees(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
