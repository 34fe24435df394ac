"""Public test doubles, and the contract that every store passes.

`FakeClock` needs nothing; `amv.testing.contract` needs pytest.
"""

import sys

if "pytest" in sys.modules:
    # So that a store which fails the contract is told both values, not just that they differ.
    sys.modules["pytest"].register_assert_rewrite(
        *(f"amv.testing.{name}_contract" for name in ("guard", "index", "query", "row")),
        "amv.testing.contract",
    )


class FakeClock:
    """A clock that moves only when told to; call it for unix seconds.

    >>> clock = FakeClock(start_s=100.0)
    >>> clock.advance(0.5)
    >>> clock()
    100.5
    """

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        """Return the current time in unix seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by *seconds*; a negative number moves back, as real clocks can."""
        self._now_s += seconds
