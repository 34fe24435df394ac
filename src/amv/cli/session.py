"""What the options before the command say, and the memory they name.

Settings and memory are made when a command asks for them: both import numpy and
more, which `amv --help` has no use for.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from amv.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from amv.config import Settings
    from amv.wiring import Memory


@dataclass(slots=True)
class Session:
    """One run of `amv`.  An option that was given wins over the environment."""

    db: str | None = None
    embedder: str | None = None
    log_level: str | None = None

    def settings(self) -> "Settings":
        """Return the settings of this run, and log as they say."""
        from amv.config import from_environment

        given = {
            name: value
            for name in ("db", "embedder", "log_level")
            if (value := getattr(self, name)) is not None
        }
        # A command is too short for upkeep, and an import should find what it left.
        settings = replace(from_environment(), upkeep_interval_s=None, **given)
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("amv").setLevel(settings.log_level)
        return settings

    def open(self, *, makes_it: bool = False, embeds: bool = True) -> "Memory":
        """Return the memory, opened; *makes_it* allows for one that is not there yet.

        One that never *embeds* needs no embedder, and is of whatever one the file is.
        """
        from amv.wiring import Memory, open_to_look_after

        settings = self.settings()
        check_database(settings.db, makes_it=makes_it)
        if not embeds:
            return open_to_look_after(settings.db, settings)
        return Memory.open(settings.db, settings=settings)

    @contextmanager
    def asking(self) -> Iterator["Memory"]:
        """Open the memory for a command whose answer counts, whatever is lost in closing.

        That an item was used can't be written on a full disk; what was found still serves.
        """
        has_answer = False
        try:
            with self.open() as memory:
                yield memory
                has_answer = True
        except StoreError as error:
            if not has_answer:
                raise
            logging.getLogger("amv").warning("%s", error)


def session_of(context: typer.Context) -> Session:
    """Return the session a command runs in."""
    session = context.obj
    assert isinstance(session, Session)
    return session


def check_database(path: str, *, makes_it: bool = False) -> None:
    """Raise ConfigError unless there is a database, or one can be made.

    A mistyped name would otherwise look like an empty memory.
    """
    if path == ":memory:":
        raise ConfigError("':memory:' would be gone when this command ends; name a file with --db")
    is_there = os.path.exists(path) and (os.path.getsize(path) or os.path.exists(path + "-wal"))
    if not makes_it and not is_there:
        raise ConfigError(
            f"there is no database {path!r}; name one with --db or AMV_DB, "
            "or begin one with `amv add` or `amv import`"
        )
