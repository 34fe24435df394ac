"""Settings: one frozen object, and the only place that knows environment variables.

AMV_DB          file of the memory (default amv.db)
AMV_EMBEDDER    minilm, static, hashing or remote:MODEL (default: the file's own, or minilm)
AMV_EMBEDDER_URL       address of a remote model, such as http://localhost:11434/v1
AMV_EMBEDDER_KEY       its API key (default none)
AMV_EMBEDDER_DIMENSION dimension its vectors must have (default: the file's, or what it gives)
AMV_LOG_LEVEL   DEBUG, INFO, WARNING (default) or ERROR
AMV_CACHE_MB    how much RAM vectors and cells may take, in MiB (default 256)
AMV_HOST        address the gateway listens on (default 127.0.0.1)
AMV_PORT        port the gateway listens on (default 8420)
AMV_POLICY      file of the gate's policy (default none: no gate)
AMV_CALIBRATION file that `amv guard calibrate` wrote (default none: the prior as it is)
"""

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import TIMEOUT_MAX
from typing import Literal

from amv.checks import check_fields
from amv.embedders.endpoint import Endpoint
from amv.errors import ConfigError, InvalidInput
from amv.memory.settings import MemorySettings

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a memory is opened and run.

    *embedder* None stands for the embedder the file was made with, and for
    minilm where there is no file yet; *remote* is where a "remote:MODEL" is
    asked.  *synchronous* "NORMAL" trades the last
    commits at a power loss for speed; "FULL" loses nothing.  Every
    *upkeep_interval_s* seconds a thread folds value events and sweeps what is
    due, and less often where that takes long; None leaves both to `flush` and
    `sweep`.
    """

    db: str = "amv.db"
    embedder: str | None = None
    remote: Endpoint | None = None
    log_level: str = "WARNING"
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    upkeep_interval_s: float | None = 5.0
    memory: MemorySettings = field(default_factory=MemorySettings)

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(
                f"the log level must be one of {', '.join(LOG_LEVELS)}, got {self.log_level!r}"
            )
        interval_s = self.upkeep_interval_s
        if interval_s is not None and not 0.0 < interval_s <= TIMEOUT_MAX:
            raise ConfigError(
                f"upkeep_interval_s must be positive, at most {TIMEOUT_MAX:g}, or None, "
                f"got {interval_s!r}"
            )
        if not self.db:
            raise ConfigError("the database needs a file name, got an empty one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the gateway listens, and how much work it takes on at once.

    Port 0 lets the system choose one.  *read_threads* and *write_threads* do
    what may touch a disk; *queue_max* requests may wait for each, and as many
    searches of what is in memory; beyond that the answer is 503.  A key may
    have *per_key_max* requests under way, beyond that it gets 429.  A request
    may take *timeout_s*, or less if it says so itself.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    read_threads: int = 4
    write_threads: int = 16
    queue_max: int = 128
    per_key_max: int = 64
    timeout_s: float = 30.0
    body_bytes_max: int = 32 << 20

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        for need, holds in (
            ("a host to listen on", bool(self.host.strip())),
            ("a port from 0 to 65535", 0 <= self.port <= 65535),
            ("at least one thread of each sort", min(self.read_threads, self.write_threads) >= 1),
            ("room for at least one request", min(self.queue_max, self.per_key_max) >= 1),
            ("a positive time-out", 0.0 < self.timeout_s <= TIMEOUT_MAX),
            ("bodies of at least 1024 bytes", self.body_bytes_max >= 1024),
        ):
            if not holds:
                raise ConfigError(f"the gateway needs {need}, got {self!r}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def server_from_environment(environ: Mapping[str, str] | None = None) -> ServerSettings:
    """Return how the gateway listens, as `from_environment` does the memory's settings."""
    environ = os.environ if environ is None else environ
    given: dict[str, object] = {}
    if environ.get("AMV_HOST"):
        given["host"] = environ["AMV_HOST"]
    if port := environ.get("AMV_PORT"):
        if not (port.isascii() and port.isdecimal() and len(port) <= 5):
            raise ConfigError(f"AMV_PORT must be a port from 0 to 65535, got {port[:40]!r}")
        given["port"] = int(port)
    try:
        return ServerSettings(**given)  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(f"in AMV_HOST or AMV_PORT: {error}") from error


def from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that *environ*, or the process's own environment, asks for.

    An empty variable counts as not set.

    Raises ConfigError naming the variable whose value can't be used.
    """
    names = {"AMV_DB": "db", "AMV_EMBEDDER": "embedder"}
    environ = os.environ if environ is None else environ
    given: dict[str, object] = {
        field: environ[name] for name, field in names.items() if environ.get(name)
    }
    if level := environ.get("AMV_LOG_LEVEL"):
        given["log_level"] = level.upper()
        if level.upper() not in LOG_LEVELS:
            raise ConfigError(
                f"AMV_LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}, got {level[:40]!r}"
            )
    if cache_mb := environ.get("AMV_CACHE_MB"):
        if not (cache_mb.isascii() and cache_mb.isdecimal() and len(cache_mb) <= 9):
            raise ConfigError(
                f"AMV_CACHE_MB must be a whole number from 0 to 999999999, got {cache_mb[:40]!r}"
            )
        given["memory"] = MemorySettings(cache_bytes=int(cache_mb) << 20)
    given["remote"] = _endpoint_of(environ)
    return Settings(**given)  # type: ignore[arg-type]


def _endpoint_of(environ: Mapping[str, str]) -> Endpoint | None:
    """Return where remote models are asked, if AMV_EMBEDDER_URL says so."""
    url, dimension = environ.get("AMV_EMBEDDER_URL"), environ.get("AMV_EMBEDDER_DIMENSION") or None
    if not url:
        return None
    if dimension is not None and not (
        dimension.isascii() and dimension.isdecimal() and len(dimension) <= 9
    ):
        raise ConfigError(f"AMV_EMBEDDER_DIMENSION must be a whole number, got {dimension[:40]!r}")
    try:
        return Endpoint(
            url=url,
            api_key=environ.get("AMV_EMBEDDER_KEY") or None,
            dimension=None if dimension is None else int(dimension),
        )
    except InvalidInput as error:
        raise ConfigError(
            f"in AMV_EMBEDDER_URL, AMV_EMBEDDER_KEY or AMV_EMBEDDER_DIMENSION: {error}"
        ) from error


def policy_from_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the file of the gate's policy that AMV_POLICY names, if it does."""
    environ = os.environ if environ is None else environ
    return environ.get("AMV_POLICY") or None


def calibration_from_environment(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the file of the gate's calibration that AMV_CALIBRATION names, if it does."""
    environ = os.environ if environ is None else environ
    return environ.get("AMV_CALIBRATION") or None
