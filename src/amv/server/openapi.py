"""The OpenAPI document, made from the routes and the types they take and give."""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from amv.server import wire
from amv.server.api import Route

_REF = "#/components/schemas/{name}"
_ERRORS = {
    400: "Input that can never succeed.",
    401: "No key, or one that is not known.",
    403: "The key does not reach that far.",
    404: "There is no such item, decision or request.",
    405: "The path has other methods.",
    409: "What it is about is not in the state this needs, or its id is taken.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    429: "This key has too many requests under way.",
    500: "The server failed; with code outcome_unknown, a write may have happened or not.",
    503: "Too many requests wait, or the store can't be reached; try again. With code "
    "embedder_changed, restart the gateway.",
    504: "The time allowed ran out.",
}
_HEADERS = {
    401: ("WWW-Authenticate", "How to send a key: Bearer."),
    405: ("Allow", "The methods that the path has."),
    429: ("Retry-After", "After how many seconds to try again."),
    503: ("Retry-After", "After how many seconds to try again."),
}
_OF_HEALTH = (403, 405, 503)


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """Return the document, version 3.1."""
    taken = [route.takes for route in routes if route.takes is not None]
    given = [kind for route in routes for kind in _gives(route)]
    kinds = [*taken, *given, wire.ErrorOut, wire.HealthOut]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    of_kind = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of_kind)
    paths["/v1/items"]["post"]["responses"]["201"]["links"] = _links_of_an_item(routes)
    paths["/health"] = {
        "get": {
            "operationId": "health",
            "summary": "Tell whether the server answers",
            "security": [],
            "responses": {
                "200": _json("It does.", of_kind[str(wire.HealthOut)]),
                **{str(status): _error_ref(status) for status in _OF_HEALTH},
            },
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "AMV",
            "version": version,
            "summary": "The memory of long-lived LLM agents, and the gate before their actions.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _error_responses(of_kind[str(wire.ErrorOut)]),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: Route, of_kind: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.path.split("/")
        if part.startswith("{")
    ]
    parameters += [
        {
            "name": name,
            "in": "query",
            "required": name in route.needs_query,
            "description": str(what),
            "schema": {"type": "string"},
        }
        for name, what in route.query.items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "description": f"Needs a key of level {route.level.name.lower()}, once there are keys.",
        "parameters": parameters,
        "responses": {
            str(route.status): _json("Done.", _any_of([of_kind[str(k)] for k in _gives(route)])),
            **{str(status): _error_ref(status) for status in _ERRORS},
        },
    }
    if route.takes is not None:
        operation["requestBody"] = {
            "required": not route.body_is_optional,
            "content": {"application/json": {"schema": of_kind[str(route.takes)]}},
        }
    return operation


def _error_responses(schema: object) -> dict[str, Any]:
    """Return the error responses, which are the same everywhere."""
    found = {f"Error{status}": _json(what, schema) for status, what in _ERRORS.items()}
    for status, (name, what) in _HEADERS.items():
        # An embedder that was changed is nothing to wait for.
        is_always = status != 503
        header = {"description": what, "required": is_always, "schema": {"type": "string"}}
        found[f"Error{status}"]["headers"] = {name: header}
    return found


def _error_ref(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/Error{status}"}


def _links_of_an_item(routes: Sequence[Route]) -> dict[str, Any]:
    """Return what can be done with an item that was added, as links of OpenAPI."""
    return {
        route.handler.__name__: {
            "operationId": route.handler.__name__,
            "parameters": {"id": "$response.body#/id"},
        }
        for route in routes
        if route.path.startswith("/v1/items/{id}")
    }


def _gives(route: Route) -> tuple[type[msgspec.Struct], ...]:
    return route.gives if isinstance(route.gives, tuple) else (route.gives,)


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _json(what: str, schema: object) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def page(found: dict[str, Any]) -> str:
    """Return a page for people: each route with what it takes and gives.

    It needs no script and nothing from elsewhere.
    """
    parts = []
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            parts.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
                f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
                f"{_parameters(operation)}{_types(operation)}"
            )
    schemas = found["components"]["schemas"]
    types = [
        f"<h3 id='{escape(name)}'>{escape(name)}</h3><pre>{_pretty(schema)}</pre>"
        for name, schema in sorted(schemas.items())
    ]
    return _PAGE.format(routes="\n".join(parts), types="\n".join(types))


def _parameters(operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{p['in']}</td>"
        f"<td>{escape(p.get('description', ''))}</td></tr>"
        for p in operation.get("parameters", ())
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _types(operation: dict[str, Any]) -> str:
    said = []
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        said.append(f"Takes {_links(schema)}.")
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            schema = response["content"]["application/json"]["schema"]
            said.append(f"Answers {status} with {_links(schema)}.")
    return f"<p>{' '.join(said)}</p>"


def _links(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_links(one) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return f"an array of {_links(schema['items'])}"
    name = schema["$ref"].rpartition("/")[2]
    return f"<a href='#{escape(name)}'>{escape(name)}</a>"


def _pretty(schema: object) -> str:
    return escape(msgspec.json.format(msgspec.json.encode(schema), indent=2).decode())


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>AMV gateway</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
h2 {{ margin: 2.2rem 0 .3rem; font-size: 1.1rem }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9em }}
pre {{ background: #f4f4f4; padding: .8rem; overflow-x: auto }}
td {{ padding: .1rem 1.2rem .1rem 0; vertical-align: top }}
@media (prefers-color-scheme: dark) {{
body {{ background: #161616; color: #e4e4e4 }} pre {{ background: #222 }} a {{ color: #8ab4ff }} }}
</style></head><body>
<h1>AMV gateway</h1>
<p>Every request and reply is JSON.
The same, for programs: <a href="openapi.json">openapi.json</a>.</p>
{routes}
<h2>Types</h2>
{types}
</body></html>
"""
