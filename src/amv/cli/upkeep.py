"""Commands about a memory as a whole: stats, sweep, reembed, doctor."""

from typing import TYPE_CHECKING, Annotated

import typer

from amv.cli import options, output
from amv.cli.session import check_database, session_of
from amv.errors import EmbedderError, StoreDamaged

if TYPE_CHECKING:
    from amv.wiring import Memory


def stats(
    context: typer.Context,
    namespace: options.OrAll = None,
    as_json: options.AsJson = False,
) -> None:
    """Show how much a memory holds."""
    from amv import embedders

    name = options.namespace_or_all(namespace)
    with session_of(context).open(embeds=False) as memory:
        totals = memory.stats(name)
        if totals.live == 0:
            output.note_no_namespace(memory, name, as_json=as_json)
    data: dict[str, object] = {
        "namespace": name and list(name),
        "namespaces": totals.namespaces,
        "live": totals.live,
        "tiers": {tier.name: totals.tiers[tier] for tier in sorted(totals.tiers, reverse=True)},
        "pinned": totals.pinned,
        "vectors": totals.vectors,
        "pending": totals.pending,
        "cells": totals.cells,
        "store_bytes": totals.store_bytes,
        "embedder": totals.embedder,
        "embedder_name": embedders.name_of(totals.embedder),
        "dimension": totals.dimension,
    }
    if as_json:
        output.write_json(data)
        return
    shown = {key: "-" if value is None else str(value) for key, value in data.items()}
    shown["namespace"] = _of(name)
    shown["tiers"] = ", ".join(f"{tier.name} {n}" for tier, n in sorted(totals.tiers.items())[::-1])
    output.write_fields(shown)


def sweep(
    context: typer.Context,
    namespace: options.OrAll = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Only list what a sweep would do now.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Move items to the tier of their value.

    Deletes what has expired, too.
    """
    name = options.namespace_or_all(namespace)
    with session_of(context).open(embeds=False) as memory:
        report = memory.sweep(namespace=name, dry_run=is_dry)
        if not report.namespaces:
            output.note_no_namespace(memory, name, as_json=as_json)
    if as_json:
        output.write_json(
            {
                "namespace": name and list(name),
                "dry_run": report.dry_run,
                "moves": [
                    {
                        "item_id": move.item_id,
                        "namespace": list(move.namespace),
                        "was": move.was.name,
                        "to": None if move.to is None else move.to.name,
                        "why": move.why,
                    }
                    for move in report.moves
                ],
                "visited": report.visited,
                "namespaces": report.namespaces,
                "erased": report.erased,
            }
        )
        return
    if report.moves:
        output.write_table(
            ("id", "namespace", "was", "to", "why"),
            [
                (
                    move.item_id,
                    output.shown_namespace(move.namespace),
                    move.was.name,
                    "deleted" if move.to is None else move.to.name,
                    move.why,
                )
                for move in report.moves
            ],
        )
    left = "" if report.erased else "; bytes of what was deleted are left, and sweeps try again"
    did = "would move or delete" if report.dry_run else "moved or deleted"
    output.write(
        output.visible(
            f"{did} {output.counted(len(report.moves), 'item')} of {_of(name)}; "
            f"{output.counted(report.namespaces, 'namespace')} due, "
            f"{output.counted(report.visited, 'index row')} read{left}"
        )
        + "\n"
    )


def reembed(
    context: typer.Context,
    to: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDER", help="minilm, static, hashing, hashing:N or remote:MODEL."
        ),
    ],
    as_json: options.AsJson = False,
) -> None:
    """Change over to another embedder.

    Can be stopped, and run again to go on.  The old embedder stays in use until
    every item has its new vectors.
    """
    from amv import wiring

    settings = session_of(context).settings()
    check_database(settings.db)
    reached = (0, 0)

    with output.progress("embedding") as show:

        def on_progress(done: int, total: int) -> None:
            nonlocal reached
            reached = (done, total)
            show(done, total)

        try:
            count = wiring.reembed(settings.db, settings, to, on_progress)
        except KeyboardInterrupt:
            done, total = reached
            said = (
                f"stopped after {done} of {total} items; the old embedder stays in use; "
                f"run `amv reembed {to}` again to go on"
            )
            output.report_error("Interrupted", said, as_json=as_json)
            raise
        except EmbedderError as error:
            done, total = reached
            error.add_note(
                f"{done} of {total} items have their new vectors; the old embedder stays in use; "
                f"run `amv reembed {to}` again to go on"
            )
            raise
    if as_json:
        output.write_json({"embedded": count, "embedder": to})
    else:
        output.write(f"embedded {output.counted(count, 'item')}; the file is now of {to}\n")


def doctor(
    context: typer.Context,
    namespace: options.OrAll = None,
    rebuilds: Annotated[
        bool, typer.Option("--rebuild", help="Make the indexes anew, which are derived from items.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check the whole file; exit with 1 if it is unwell.

    All namespaces are checked whatever --namespace says: it limits only what
    --rebuild makes anew.
    """
    from amv import embedders

    name = options.namespace_or_all(namespace)
    with session_of(context).open(embeds=False) as memory:
        problems: list[str] = []
        try:
            rebuilt = _rebuilt(memory, name) if rebuilds else []
            problems = memory.check()
            count = len(memory.namespaces())
            unindexed = memory.unindexed()
            embedder = memory.stats().embedder
        except StoreDamaged as error:
            said = problems or [str(error.__cause__ or error)]
            raise StoreDamaged(
                f"the file is damaged: {'; '.join(said)}; what it lost can't be mended: restore a "
                "backup, or import into a new file what `amv export` can still read"
            ) from error
    is_known = embedders.is_built_in(embedder)
    unchecked = [] if is_known else [f"whether the vectors are what embedder {embedder} gives"]
    if as_json:
        output.write_json(
            {
                "problems": problems,
                "rebuilt": [list(one) for one in rebuilt],
                "unchecked": unchecked,
                "unindexed": [list(one) for one in unindexed],
            }
        )
    else:
        if rebuilds:
            output.write(f"rebuilt the indexes of {output.visible(_of(name))}\n")
        for one in unindexed:
            output.remark(
                f"many vectors of {output.visible(_of(one))} wait for their index, which the next "
                "write makes, or the first search that needs it"
            )
        for what in unchecked:
            output.remark(f"not checked: {output.visible(what)}, which is none of AMV's own")
        _write_problems(problems, count, rebuilds=rebuilds)
    if problems:
        raise typer.Exit(1)


def _rebuilt(memory: "Memory", name: tuple[str, ...] | None) -> list[tuple[str, ...]]:
    rebuilt = memory.namespaces() if name is None else [name]
    with output.progress("rebuilding") as show:
        for number, one in enumerate(rebuilt, start=1):
            memory.rebuild_index(one)
            show(number, len(rebuilt))
    return rebuilt


def _write_problems(problems: list[str], count: int, *, rebuilds: bool) -> None:
    for problem in problems:
        output.write(output.visible(problem) + "\n")
    if not problems:
        every = "all " if count > 1 else ""
        output.write(f"{every}{output.counted(count, 'namespace')}: nothing is wrong\n")
    elif not rebuilds:
        output.remark("if indexes are what is wrong, `amv doctor --rebuild` makes them anew")


def _of(name: tuple[str, ...] | None) -> str:
    return "all namespaces" if name is None else output.shown_namespace(name)
