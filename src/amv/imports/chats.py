"""Conversations as lists: of roles and contents, of Claude's export, and of LoCoMo's shape."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from amv.imports.fields import a_list, a_name, a_text, a_time, an_object, at, needed
from amv.imports.reading import Piece, bad, each, each_of
from amv.imports.turns import Turn, turn_of
from amv.imports.writing import BadLine

SPOKEN = ("user", "assistant", "human", "model", "ai", "bot")
"""Roles of those who talk; what a system or a tool says is left out."""

_TIMES = ("created_at", "create_time", "timestamp", "time", "date")
_CONVERSATION_IDS = ("conversation_id", "session_id", "thread_id")
_TEXT_TYPES = ("text", "input_text", "output_text")
_SESSION = re.compile(r"session_(\d+)")
_SESSION_DIGITS_MAX = 9

Pieces = Iterable[Piece | BadLine]
Turns = Iterator[Turn | BadLine]


class Threads:
    """Counts stretches and threads."""

    def __init__(self) -> None:
        self.stretch = self.thread = 0

    def next(self) -> tuple[int, int]:
        """Begin another conversation."""
        self.stretch += 1
        self.thread += 1
        return self.stretch, self.thread


# Lists of roles and contents


def is_turn(value: object) -> bool:
    """Return whether this is one message with a role."""
    return isinstance(value, dict) and "role" in value and "content" in value


def chat(pieces: Pieces, left_out: Counter[str]) -> Turns:
    """Read messages with role and content: one after the other, or in lists.

    A list of messages, or an object with `messages`, is a conversation; so are messages that
    follow each other and name the same one, or none.
    """
    threads = Threads()
    now, open_id = (0, 0), None

    def read(piece: Piece) -> Turns:
        nonlocal now, open_id
        value = piece.value
        if isinstance(value, list) or (isinstance(value, dict) and "messages" in value):
            open_id = None
            yield from _conversation(piece, threads.next(), left_out)
            return
        message = an_object(value, piece.where)
        own_id = a_name(message, *_CONVERSATION_IDS)
        if own_id != open_id:
            now, open_id = threads.next(), own_id
        turn = _message(piece, piece.where, message, now, left_out, conversation=own_id)
        if turn is not None:
            yield turn

    return each(pieces, read)


def _conversation(piece: Piece, now: tuple[int, int], left_out: Counter[str]) -> Turns:
    is_bare = isinstance(piece.value, list)
    data: Any = {"messages": piece.value} if is_bare else piece.value
    where = piece.where if is_bare else at(piece.where, "messages")
    own_id, title = a_name(data, *_CONVERSATION_IDS, "id", "uuid"), a_name(data, "title", "name")

    def read(placed: tuple[int, Any]) -> Turn | None:
        path = at(where, placed[0])
        message = an_object(placed[1], path)
        return _message(piece, path, message, now, left_out, conversation=own_id, title=title)

    return each_of(piece, enumerate(a_list(data["messages"], where)), read)


def _message(
    piece: Piece,
    where: str,
    message: dict[str, Any],
    now: tuple[int, int],
    left_out: Counter[str],
    *,
    conversation: str,
    title: str = "",
) -> Turn | None:
    role = a_text(message, "role", where).strip().lower()
    if not role:
        raise needed(at(where, "role"), "a role such as user or assistant", message.get("role"))
    if "content" not in message:
        raise needed(where, "a message with role and content", message)
    if not may_speak(role, left_out):
        return None
    text = said(message["content"], at(where, "content"), left_out)
    if not text:
        return None
    return turn_of(
        (piece.number, where),
        now,
        text,
        role=role,
        speaker=a_name(message, "name", "speaker"),
        at_s=a_time(message, where, *_TIMES),
        conversation=conversation,
        message=a_name(message, "id", "message_id", "uuid"),
        title=title,
    )


def may_speak(role: str, left_out: Counter[str]) -> bool:
    """Return whether what a role says is kept; count it if not."""
    if role in SPOKEN:
        return True
    left_out["system" if role in ("system", "developer") else "tool"] += 1
    return False


def said(content: object, where: str, left_out: Counter[str]) -> str:
    """Return the text of a content, which may be in parts; count what is none."""
    if content is None or isinstance(content, str):
        text, others = (content or "").strip(), 0
    else:
        if not isinstance(content, list):
            raise needed(where, "text or an array of parts", content)
        texts: list[str] = []
        others = 0
        for place, part in enumerate(content):
            if isinstance(part, str):
                texts.append(part)
                continue
            block = an_object(part, at(where, place))
            if block.get("type", "text") in _TEXT_TYPES:
                texts.append(a_text(block, "text", at(where, place)))
            else:
                others += 1
        text = joined(texts)
    return counted(text, others, left_out)


def joined(texts: Iterable[str]) -> str:
    """Return texts below each other."""
    return "\n".join(one.strip() for one in texts if one.strip())


def counted(text: str, others: int, left_out: Counter[str]) -> str:
    """Return what of a message is text; count the parts that are none, or that there is nothing."""
    left_out["not text"] += others
    if not text and not others:
        left_out["empty"] += 1
    return text


# Claude


def claude(pieces: Pieces, left_out: Counter[str]) -> Turns:
    """Read conversations with `chat_messages`, as Claude exports them."""
    threads = Threads()

    def read(piece: Piece) -> Turns:
        now = threads.next()
        data = an_object(piece.value, piece.where)
        if "chat_messages" not in data:
            raise needed(piece.where, "a conversation with chat_messages", data)
        where = at(piece.where, "chat_messages")

        def read_one(placed: tuple[int, Any]) -> Turn | None:
            return _of_claude(piece, at(where, placed[0]), placed[1], data, now, left_out)

        return each_of(piece, enumerate(a_list(data["chat_messages"], where)), read_one)

    return each(pieces, read)


def _of_claude(
    piece: Piece,
    where: str,
    value: object,
    data: dict[str, Any],
    now: tuple[int, int],
    left_out: Counter[str],
) -> Turn | None:
    message = an_object(value, where)
    sender = a_text(message, "sender", where).lower()
    if not sender:
        raise needed(at(where, "sender"), "human or assistant", message.get("sender"))
    for key in ("attachments", "files"):
        left_out["attachment"] += len(a_list(message.get(key), at(where, key)))
    if not may_speak(sender, left_out):
        return None
    # Older exports have the text alone; where there are blocks, it has placeholders for tools.
    has_blocks = bool(a_list(message.get("content"), at(where, "content")))
    key = "content" if has_blocks else "text"
    a_text(message, "text", where)
    text = said(message.get(key), at(where, key), left_out)
    if not text:
        return None
    return turn_of(
        (piece.number, where),
        now,
        text,
        role="user" if sender == "human" else sender,
        at_s=a_time(message, where, "created_at"),
        conversation=a_name(data, "uuid"),
        message=a_name(message, "uuid"),
        title=a_name(data, "name"),
    )


# LoCoMo


def is_locomo(value: object) -> bool:
    """Return whether this is a sample with numbered sessions."""
    if not isinstance(value, dict):
        return False
    sessions = value["conversation"] if isinstance(value.get("conversation"), dict) else value
    return any(_SESSION.fullmatch(key) and isinstance(sessions[key], list) for key in sessions)


def locomo(pieces: Pieces, left_out: Counter[str]) -> Turns:
    """Read samples of LoCoMo's shape: sessions of two people, each with its time."""
    threads = Threads()

    def read(piece: Piece) -> Turns:
        data = an_object(piece.value, piece.where)
        if not is_locomo(data):
            raise needed(piece.where, "a conversation with session_1, session_2, ...", data)
        is_whole = isinstance(data.get("conversation"), dict)
        where = at(piece.where, "conversation") if is_whole else piece.where
        sessions = data["conversation"] if is_whole else data
        own_id = a_name(data, "sample_id", "id")
        numbered, too_long = _numbered(sessions, left_out)
        threads.thread += 1
        for number, key in numbered:
            threads.stretch += 1
            now = threads.stretch, threads.thread
            yield from _session(piece, where, sessions, (number, key), now, left_out, own_id)
        for key in too_long:
            what = f"a number of a session of at most {_SESSION_DIGITS_MAX} digits"
            yield bad(piece, needed(at(where, key), what, key.removeprefix("session_")))

    return each(pieces, read)


def _numbered(
    sessions: dict[str, Any], left_out: Counter[str]
) -> tuple[list[tuple[int, str]], list[str]]:
    """Return number and key of each session, in their order, and keys whose number is too long.

    Keys that write one number differently are sessions of their own.  Turns under a key that
    has no number are counted as left out.
    """
    numbered: list[tuple[int, str]] = []
    too_long: list[str] = []
    for key, value in sessions.items():
        match = _SESSION.fullmatch(key)
        if match is not None and len(match[1]) <= _SESSION_DIGITS_MAX:
            numbered.append((int(match[1]), key))
        elif match is not None:
            too_long.append(key)
        elif key.startswith("session_") and isinstance(value, list):
            left_out["session without a number"] += len(value)
    return sorted(numbered), too_long


def _session(
    piece: Piece,
    where: str,
    sessions: dict[str, Any],
    numbered: tuple[int, str],
    now: tuple[int, int],
    left_out: Counter[str],
    conversation: str,
) -> Turns:
    number, key = numbered
    at_s = a_time(sessions, where, f"{key}_date_time")

    def read(placed: tuple[int, Any]) -> Turn | None:
        path = at(at(where, key), placed[0])
        turn = an_object(placed[1], path)
        text = a_text(turn, "text", path).strip()
        caption = a_text(turn, "blip_caption", path).strip()
        speaker = a_name(turn, "speaker")
        if not speaker:
            raise needed(at(path, "speaker"), "who speaks", turn.get("speaker"))
        if caption:
            text = f"{text} (shares a picture: {caption})".strip()
        if not text:
            left_out["not text" if turn.get("img_url") else "empty"] += 1
            return None
        return turn_of(
            (piece.number, path),
            now,
            text,
            speaker=speaker,
            at_s=at_s,
            conversation=conversation,
            message=a_name(turn, "dia_id"),
            session=number,
        )

    return each_of(piece, enumerate(a_list(sessions[key], at(where, key))), read)
