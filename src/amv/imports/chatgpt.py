"""The export of ChatGPT, `conversations.json`: each conversation is a tree of messages.

An edited question or an answer that was made anew begins another branch.  What was last seen is
the branch that ends in `current_node`; it is followed from there to the root, and all others are
left out.
"""

from collections import Counter
from typing import Any

from amv.imports.chats import Pieces, Threads, Turns, counted, joined, may_speak
from amv.imports.fields import a_list, a_name, a_text, a_time, an_object, at, needed
from amv.imports.reading import Piece, each, each_of
from amv.imports.turns import Turn, turn_of

_TEXT_TYPES = ("text", "multimodal_text")


def chatgpt(pieces: Pieces, left_out: Counter[str]) -> Turns:
    """Read conversations with a `mapping` of nodes."""
    threads = Threads()

    def read(piece: Piece) -> Turns:
        now = threads.next()
        data = an_object(piece.value, piece.where)
        if "mapping" not in data:
            raise needed(piece.where, "a conversation with a mapping of nodes", data)
        where = at(piece.where, "mapping")
        mapping = an_object(data["mapping"], where)
        path = _branch(data, mapping, piece.where, where)
        on_it = set(path)
        left_out["other branch"] += sum(
            1
            for key, node in mapping.items()
            if key not in on_it and isinstance(node, dict) and node.get("message")
        )
        return each_of(
            piece,
            path,
            lambda key: _turn(piece, at(where, key), mapping[key], data, key, now, left_out),
        )

    return each(pieces, read)


def _branch(data: dict[str, Any], mapping: dict[str, Any], whole: str, where: str) -> list[str]:
    """Return the nodes from the root to the current one; raises Wrong if that leads nowhere."""
    if not mapping:
        return []
    key: Any
    key, key_at = data.get("current_node"), at(whole, "current_node")
    if key is None:
        key, key_at = _newest_leaf(mapping, where), where
    path: list[str] = []
    seen: set[str] = set()
    while key is not None:
        if not isinstance(key, str) or key not in mapping:
            raise needed(key_at, "a node of the mapping", key)
        if key in seen:
            raise needed(key_at, "a tree, which never comes back to a node", key)
        seen.add(key)
        path.append(key)
        node = an_object(mapping[key], at(where, key))
        key_at = at(at(where, key), "parent")
        key = node.get("parent")
    return path[::-1]


def _newest_leaf(mapping: dict[str, Any], where: str) -> str:
    """Return the last node without children, for exports that don't say which is current."""
    found = next(iter(mapping))
    for key, node in mapping.items():
        path = at(where, key)
        if not a_list(an_object(node, path).get("children"), at(path, "children")):
            found = key
    return found


def _turn(
    piece: Piece,
    where: str,
    node: dict[str, Any],
    data: dict[str, Any],
    key: str,
    now: tuple[int, int],
    left_out: Counter[str],
) -> Turn | None:
    if node.get("message") is None:
        # The root has none.
        return None
    where = at(where, "message")
    message = an_object(node["message"], where)
    author = an_object(message.get("author"), at(where, "author"))
    role = a_text(author, "role", at(where, "author")).lower()
    if not role:
        raise needed(at(at(where, "author"), "role"), "a role", author.get("role"))
    if not may_speak(role, left_out):
        return None
    metadata = an_object(message.get("metadata") or {}, at(where, "metadata"))
    if metadata.get("is_visually_hidden_from_conversation"):
        left_out["hidden"] += 1
        return None
    if message.get("recipient") not in (None, "all"):
        # What the assistant says to a tool: code, a search.
        left_out["tool"] += 1
        return None
    text = _said(message.get("content"), at(where, "content"), left_out)
    if not text:
        return None
    return turn_of(
        (piece.number, where),
        now,
        text,
        role=role,
        speaker=a_name(author, "name"),
        at_s=a_time(message, where, "create_time"),
        conversation=a_name(data, "conversation_id", "id"),
        message=a_name(message, "id") or key,
        title=a_name(data, "title"),
    )


def _said(value: object, where: str, left_out: Counter[str]) -> str:
    content = an_object(value or {}, where)
    if content.get("content_type", "text") not in _TEXT_TYPES:
        left_out["not text"] += 1
        return ""
    texts: list[str] = []
    others = 0
    for place, part in enumerate(a_list(content.get("parts"), at(where, "parts"))):
        if isinstance(part, str):
            texts.append(part)
            continue
        block = an_object(part or {}, at(at(where, "parts"), place))
        # What was spoken is there as text, too.
        if heard := a_text(block, "text", at(at(where, "parts"), place)):
            texts.append(heard)
        else:
            others += 1
    return counted(joined(texts), others, left_out)
