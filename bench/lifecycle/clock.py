"""Simulated time, shared by two processes: who sends requests sets it, the server reads it."""

from pathlib import Path

import numpy as np


class Clock:
    """A moment in a file of eight bytes, mapped into memory; it never goes back."""

    def __init__(self, path: Path) -> None:
        self._moment = np.memmap(path, dtype=np.float64, mode="r+", shape=(1,))

    @classmethod
    def at(cls, path: Path, moment_s: float) -> "Clock":
        """Make a clock in a new file."""
        np.asarray([moment_s], dtype=np.float64).tofile(path)
        return cls(path)

    def __call__(self) -> float:
        """Return the moment, in unix seconds."""
        return float(self._moment[0])

    def advance(self, moment_s: float) -> None:
        """Set the moment, unless it has passed."""
        if moment_s > self._moment[0]:
            self._moment[0] = moment_s
