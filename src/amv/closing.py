"""Closing at the end of a `with` block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from amv.errors import AmvError


class Closing(ABC):
    """What is used as a context manager, or closed by hand."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise StoreClosed once it is closed."""

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; an error of the block itself is raised, with a note of what closing raised."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except AmvError as failure:
            error.add_note(f"closing failed, too: {failure!r}")
