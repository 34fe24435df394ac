"""Settings: one frozen object, and the only place that knows environment variables.

AMV_DB          file of the memory (default amv.db)
AMV_EMBEDDER    minilm or hashing (default: the file's own, minilm for a new one)
AMV_LOG_LEVEL   DEBUG, INFO, WARNING (default) or ERROR
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import TIMEOUT_MAX
from typing import Literal

from amv.errors import ConfigError
from amv.memory.settings import MemorySettings

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a memory is opened and run.

    *embedder* None stands for the embedder the file was made with, and for
    minilm where there is no file yet.  *synchronous* "NORMAL" trades the last
    commits at a power loss for speed; "FULL" loses nothing.  Every
    *upkeep_interval_s* seconds a thread folds value events and sweeps what is
    due; None leaves both to `flush` and `sweep`.
    """

    db: str = "amv.db"
    embedder: str | None = None
    log_level: str = "WARNING"
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    upkeep_interval_s: float | None = 5.0
    memory: MemorySettings = field(default_factory=MemorySettings)

    def __post_init__(self) -> None:
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(
                f"the log level must be one of {', '.join(LOG_LEVELS)}, got {self.log_level!r}"
            )
        if self.synchronous not in ("FULL", "NORMAL"):
            raise ConfigError(f"synchronous must be FULL or NORMAL, got {self.synchronous!r}")
        interval_s = self.upkeep_interval_s
        if interval_s is not None and not 0.0 < interval_s <= TIMEOUT_MAX:
            raise ConfigError(
                f"upkeep_interval_s must be positive, at most {TIMEOUT_MAX:g}, or None, "
                f"got {interval_s!r}"
            )
        if not self.db:
            raise ConfigError("the database needs a file name, got an empty one")


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that *environ*, or the process's own environment, asks for.

    An empty variable counts as not set.

    Raises ConfigError naming the variable whose value can't be used.
    """
    names = {"AMV_DB": "db", "AMV_EMBEDDER": "embedder", "AMV_LOG_LEVEL": "log_level"}
    environ = os.environ if environ is None else environ
    given = {field: environ[name] for name, field in names.items() if environ.get(name)}
    if "log_level" in given:
        given["log_level"] = given["log_level"].upper()
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(f"in AMV_DB, AMV_EMBEDDER or AMV_LOG_LEVEL: {error}") from error
