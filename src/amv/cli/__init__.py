"""The command line, `amv`: everything a memory can do, for people and for scripts.

Each command is a function in `items`, `transfer` or `upkeep`, which reads its
arguments with `options`, opens the memory through its `session`, and shows what
it got with `output`.  Nothing here decides anything about items.
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `amv` with *arguments*, or the process's own; return the exit code.

    Ctrl-C ends it in one way, also while modules are loaded.
    """
    try:
        from amv.cli import app

        return app.main(arguments)
    except KeyboardInterrupt:
        return 130
