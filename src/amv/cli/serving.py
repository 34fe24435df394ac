"""Commands of the gateway: serve, and keys create, list, revoke."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from amv.cli import options, output
from amv.cli.session import Session, check_database, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amv.memory.ports import KeyRow
    from amv.server.access import Keys

keys = typer.Typer(
    help="Keys to the gateway; once there is one, every request needs one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def serve(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address; AMV_HOST, or 127.0.0.1, if not given."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", help="Port; AMV_PORT, or 8420, if not given. 0: any free one."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The gate's policy; AMV_POLICY if not given."),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What `guard calibrate` wrote; AMV_CALIBRATION if not given."
        ),
    ] = None,
) -> None:
    """Serve the memory over HTTP until stopped.

    An address that others can reach needs a key first (`amv keys create`).
    """
    from dataclasses import replace

    from amv.config import (
        Settings,
        calibration_from_environment,
        policy_from_environment,
        server_from_environment,
    )
    from amv.server.logs import log_as_json
    from amv.server.run import serve

    settings = session_of(context).settings()
    log_as_json(settings.log_level)
    server = server_from_environment()
    server = replace(
        server,
        host=server.host if host is None else host,
        port=server.port if port is None else port,
    )
    settings = replace(settings, upkeep_interval_s=Settings().upkeep_interval_s)
    serve(
        settings,
        server,
        lambda address: output.remark(f"amv serves {settings.db} at {address}"),
        policy or policy_from_environment(),
        calibration or calibration_from_environment(),
    )


@keys.command("create")
def create(
    context: typer.Context,
    namespace: options.OrAll = None,
    level: Annotated[
        Literal["read", "write", "admin"], typer.Option(help="What the key may do.")
    ] = "write",
    as_json: options.AsJson = False,
) -> None:
    """Make a key and show it, which is the only time it is shown.

    It reaches the namespace given and those that begin with it; all, if none is given.
    """
    from amv.server.access import Level

    name = options.namespace_or_all(namespace)
    with _keys(session_of(context), makes_it=True) as known:
        token, row = known.create(name or (), Level[level.upper()], time.time())
    if as_json:
        output.write_json({"key": token, **_key_json(row)})
    else:
        output.write(token + "\n")
        output.remark("keep this key: it can't be shown again")


@keys.command("list")
def list_keys(context: typer.Context, as_json: options.AsJson = False) -> None:
    """List the keys there are; none of them is shown itself."""
    with _keys(session_of(context)) as known:
        rows = known.list()
    if as_json:
        for row in rows:
            output.write_json(_key_json(row))
        return
    cells = [[str(value or "") for value in _key_json(row).values()] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        line[1] = output.shown_namespace(row.namespace) if row.namespace else "all"
    if rows:
        output.write_table(("id", "namespace", "level", "created", "revoked"), cells)
    else:
        output.remark("there is no key yet")


@keys.command("revoke")
def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")],
    as_json: options.AsJson = False,
) -> None:
    """Revoke a key for ever; a running server refuses it within a second."""
    with _keys(session_of(context)) as known:
        row = known.revoke(key_id, time.time())
    if as_json:
        output.write_json(_key_json(row))
    else:
        output.remark(f"key {key_id} is revoked")


def _key_json(row: "KeyRow") -> dict[str, object]:
    from amv.server.access import Level

    return {
        "id": row.key_id,
        "namespace": list(row.namespace),
        "level": Level(row.level).name.lower(),
        "created_at": datetime.fromtimestamp(row.created_s, UTC).isoformat(timespec="seconds"),
        "revoked_at": None
        if row.revoked_s is None
        else datetime.fromtimestamp(row.revoked_s, UTC).isoformat(timespec="seconds"),
    }


@contextmanager
def _keys(session: Session, *, makes_it: bool = False) -> "Iterator[Keys]":
    """Open the keys of the session's database."""
    from amv.server.access import Keys, pepper_beside
    from amv.wiring import open_store

    settings = session.settings()
    check_database(settings.db, makes_it=makes_it)
    store = open_store(settings.db, settings)
    try:
        yield Keys(store, lambda: pepper_beside(settings.db))
    finally:
        store.close()
