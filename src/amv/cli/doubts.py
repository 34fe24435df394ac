"""What stands against an item, told to people; and the commands that settle it: confirm, refute."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from amv.cli import options, output
from amv.cli.session import session_of
from amv.errors import ItemNotFound

if TYPE_CHECKING:
    from amv.memory.item import Item
    from amv.wiring import Memory

NAMED_MAX = 3
"""How many items that stand against one are named to people."""

BEGINNING_CHARS_MAX = 60


def against(memory: "Memory", item: "Item") -> list["Item"]:
    """Return what stands against an item; nothing does if it is gone by now."""
    if not item.contradicted:
        return []
    try:
        return memory.contradicting(item.id, namespace=item.namespace)
    except ItemNotFound:
        return []


def marked(item: "Item") -> str:
    """Return as much of a content as a table shows, with the mark it has in a prompt."""
    from amv.memory.context import IN_DOUBT

    text = output.shortened(item.content)
    return f"{IN_DOUBT} {text}" if item.contradicted else text


def named(item: "Item") -> str:
    """Return the id of an item, and how its content begins, in one line whatever they hold.

    A content can't end its quotes, and so not pass for anything but a content.
    """
    text = item.content
    if len(text) > BEGINNING_CHARS_MAX:
        text = text[: BEGINNING_CHARS_MAX - 1] + "…"
    quoted = json.dumps(text, ensure_ascii=False)
    return output.visible(f"{item.id} ({quoted})")


def told(item: "Item", others: Sequence["Item"]) -> str:
    """Return what to say of the items that stand against one; "" if none does.

    Of two claims it is known that they say different things, of texts it is guessed.
    """
    by_kind: dict[tuple[str, str], list[str]] = {}
    for other in others[:NAMED_MAX]:
        by_kind.setdefault(_kind(item, other), []).append(named(other))
    said = [f"it {what} {', '.join(names)}{who}" for (what, who), names in by_kind.items()]
    if len(others) > NAMED_MAX:
        said.append(f"so does what {len(others) - NAMED_MAX} more say")
    return "; ".join(said)


def _kind(item: "Item", other: "Item") -> tuple[str, str]:
    if item.claim is None or other.claim is None:
        return "may contradict", ""
    if item.source_trust == other.source_trust:
        return "contradicts", ""
    more = "more" if other.source_trust > item.source_trust else "less"
    return "contradicts", f", from a source trusted {more}"


def confirm(
    context: typer.Context,
    item_id: options.ItemId,
    namespace: options.Needed,
    as_json: options.AsJson = False,
) -> None:
    """Note that an item was found true.

    It counts as verified now, and as used; it is no longer flagged as contradicted.
    """
    name = options.namespace(namespace)
    with session_of(context).open() as memory:
        item = memory.confirm(item_id, namespace=name)
    if as_json:
        output.write_json(output.item_json(item))
        return
    when = output.shown_time(item.last_verified_at)
    output.write(output.visible(f"{item.id} is confirmed, verified at {when}") + "\n")


def refute(
    context: typer.Context,
    item_id: options.ItemId,
    namespace: options.Needed,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="VALUE",
            help="What holds instead of the value of its claim; read as JSON if it is JSON.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Note that an item was found wrong; no search shows it again.

    With a value, a new item says what holds instead.
    """
    name = options.namespace(namespace)
    found = None if value is None else options.json_or_text(value)
    if value is not None and found is None:
        options.refuse(
            "--value", "leave it out if nothing is known to hold; the text is '\"null\"'"
        )
    with session_of(context).open() as memory:
        item = memory.refute(item_id, found, namespace=name)  # type: ignore[arg-type]
    if as_json:
        output.write_json(output.item_json(item))
        return
    instead = "" if value is None else f"; {named(item)} says what holds instead"
    output.write(output.visible(f"{item_id} is refuted{instead}") + "\n")
