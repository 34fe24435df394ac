"""The command line, `amv`: everything a memory can do, for people and for scripts.

Each command is a function in `items`, `transfer` or `upkeep`, which reads its
arguments with `options`, opens the memory through its `session`, and shows what
it got with `output`.  Nothing here decides anything about items.
"""

from amv.cli.app import main

__all__ = ["main"]
