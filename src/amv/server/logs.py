"""The gateway's log: one JSON object a line, never with what the memory holds."""

import json
import logging
import sys
import time
import traceback

from amv.errors import StoreError

_FIELDS = ("request_id", "method", "route", "status", "took_ms")


class JsonFormatter(logging.Formatter):
    """Writes time, level and event, what the request was, and where an error came from."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _told(record.exc_info[1])
        return json.dumps(line)


def _told(error: BaseException) -> str:
    """Return which errors, each the cause of the one before it, and where they were raised.

    What an error says may quote contents; that of a store tells of files only.
    """
    said = []
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        places = " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        message = f": {cause}" if isinstance(cause, StoreError) else ""
        said.append(f"{type(cause).__name__}{message} at {places}")
        cause = cause.__cause__ or cause.__context__
    return "; because of ".join(said)


def log_as_json(level: str) -> None:
    """Log to stderr, one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("amv").setLevel(level)
