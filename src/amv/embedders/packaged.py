"""Files that come with the package: read whole, and only if they are the ones that are meant."""

import hashlib
from pathlib import Path

from amv.errors import EmbedderError


def verified(path: Path, sha256: str, package: str = "amv again") -> bytes:
    """Return what a file of *package* holds.

    Raises EmbedderError unless it is there and has this sha256.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderError(f"cannot read {path}; install {package}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EmbedderError(f"need {path} with sha256 {sha256}, got {found}; install {package}")
    return content
