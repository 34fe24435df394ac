"""What other memories keep: mem0's memories, and the graph of the MCP memory server.

Both are taken as they are, a memory, an observation or a relation an item.  None becomes a claim:
a person may know several people, so a second "knows" must not supersede the first.
"""

from collections.abc import Iterator
from typing import Any

from amv.errors import InvalidInput
from amv.imports.chats import Pieces
from amv.imports.fields import Wrong, a_list, a_name, a_text, a_time, an_object, at, needed
from amv.imports.reading import Piece, bad, each, each_of
from amv.imports.turns import CONTENT_BYTES_MAX, Mapper, made_id
from amv.imports.writing import BadLine, Entry
from amv.memory.filters import check_metadata
from amv.memory.item import check_namespace, check_text

_OWNERS = ("user_id", "agent_id", "run_id")
_KEPT = (*_OWNERS, "app_id", "actor_id", "role", "categories", "created_at", "updated_at")

Entries = Iterator[Entry | BadLine]


def mem0(pieces: Pieces, mapper: Mapper) -> Entries:
    """Read memories, one after the other or as `results` of a listing."""

    def read(piece: Piece) -> Entries:
        value = piece.value
        if not (isinstance(value, dict) and "results" in value and "memory" not in value):
            yield from _kept(piece, piece.where, value, mapper)
            return
        where = at(piece.where, "results")
        for place, one in enumerate(a_list(value["results"], where)):
            yield from _kept(piece, at(where, place), one, mapper)

    return each(pieces, read)


def _kept(piece: Piece, where: str, value: object, mapper: Mapper) -> Entries:
    try:
        data = an_object(value, where)
        if "memory" not in data:
            raise needed(where, "a memory, with its text under memory", data)
        content = a_text(data, "memory", where).strip()
        if not content:
            mapper.left_out["empty"] += 1
            return
        own = an_object(data.get("metadata") or {}, at(where, "metadata"))
        told = {key: data[key] for key in _KEPT if data.get(key) not in (None, "", [])}
        own_id, owner = a_name(data, "id"), _owner_of(data)
        fields = _fields(
            mapper,
            where,
            content,
            made_id("mem0", own_id, owner, content),
            namespace=(*(mapper.namespace or ()), *owner),
            # It says so since it was last changed.
            valid_from=a_time(data, where, "updated_at", "created_at"),
            metadata={**own, **told, **({"mem0_id": own_id} if own_id else {})},
        )
    except Wrong as error:
        yield bad(piece, error)
    else:
        yield Entry(piece.number, where or "the document", fields, 2 * len(content))


def _owner_of(data: dict[str, Any]) -> tuple[str, ...]:
    """Return the end of the namespace: the user, or whoever else it belongs to.

    An agent's and a run's are told apart from a user's by what they are.
    """
    for key in _OWNERS:
        if name := a_name(data, key):
            return (name,) if key == "user_id" else (key.removesuffix("_id"), name)
    return ()


def mcp(pieces: Pieces, mapper: Mapper) -> Entries:
    """Read the entities and relations of the MCP memory server, one a line."""

    def read(piece: Piece) -> Entries:
        data = an_object(piece.value, piece.where)
        kind = data.get("type")
        if kind == "entity":
            yield from _entity(piece, data, mapper)
        elif kind == "relation":
            yield _relation(piece, data, mapper)
        else:
            raise needed(at(piece.where, "type"), "entity or relation", kind)

    return each(pieces, read)


def _entity(piece: Piece, data: dict[str, Any], mapper: Mapper) -> Entries:
    name = _needed(data, "name", piece.where)
    kind = a_text(data, "entityType", piece.where).strip()
    where = at(piece.where, "observations")
    said = a_list(data.get("observations"), where)

    def read(placed: tuple[int, Any]) -> Entry | None:
        place, observation = placed
        if not isinstance(observation, str):
            raise needed(at(where, place), "text", observation)
        if not observation.strip():
            mapper.left_out["empty"] += 1
            return None
        return _graph(piece, mapper, name, kind, observation.strip())

    # Of one about which nothing was noted, what it is.
    return each_of(piece, enumerate(said or [kind] * bool(kind)), read)


def _graph(piece: Piece, mapper: Mapper, name: str, kind: str, observation: str) -> Entry:
    return _noted(
        piece,
        mapper,
        f"{name}: {observation}",
        ("entity", name, kind, observation),
        context=f"{_spoken(name)} {kind}".strip(),
        metadata={"entity": name, **({"entity_type": kind} if kind else {})},
    )


def _relation(piece: Piece, data: dict[str, Any], mapper: Mapper) -> Entry:
    one, other, kind = (_needed(data, key, piece.where) for key in ("from", "to", "relationType"))
    return _noted(
        piece,
        mapper,
        f"{one} {_spoken(kind)} {other}",
        ("relation", one, kind, other),
        context=f"{_spoken(one)} {_spoken(other)}",
        metadata={"from": one, "to": other, "relation": kind},
    )


def _noted(
    piece: Piece,
    mapper: Mapper,
    content: str,
    identity: tuple[str, ...],
    *,
    context: str,
    metadata: dict[str, Any],
) -> Entry:
    """Return what an MCP memory server noted, as one item."""
    fields = _fields(
        mapper,
        piece.where,
        content,
        made_id("mcp-memory", *identity),
        namespace=mapper.namespace or (),
        context=context,
        metadata=metadata,
    )
    return Entry(piece.number, piece.where, fields, 2 * len(content))


def _spoken(name: str) -> str:
    """Return a name as words: they are often written as one, which nobody asks for."""
    return name.replace("_", " ")


def _needed(data: dict[str, Any], key: str, where: str) -> str:
    text = a_text(data, key, where).strip()
    if not text:
        raise needed(at(where, key), "a name", data.get(key))
    return text


def _fields(
    mapper: Mapper,
    where: str,
    content: str,
    item_id: str,
    *,
    namespace: tuple[str, ...],
    metadata: dict[str, Any],
    **fields: Any,
) -> dict[str, Any]:
    """Return the fields of an item; raises Wrong if they can't be kept."""
    if not namespace:
        raise Wrong(where, "need --namespace (namespace=): whose memory this becomes")
    try:
        return {
            "id": item_id,
            "namespace": check_namespace(namespace),
            "content": check_text(content, "the text", CONTENT_BYTES_MAX),
            "source": mapper.format,
            "claim": None,
            "metadata": check_metadata(metadata),
            **fields,
        }
    except InvalidInput as error:
        raise Wrong(where, str(error)) from error
