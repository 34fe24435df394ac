"""What only learning needs, and a gate that decides does without."""

from importlib import import_module
from typing import Any

from amv.errors import ConfigError


def library(module: str, name: str) -> Any:
    """Return what a module calls *name*; raises ConfigError if the module is not installed."""
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise ConfigError(
            f"calibrating needs {module.partition('.')[0]}: pip install 'amv[guard]'"
        ) from error
