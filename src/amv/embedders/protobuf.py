"""As much of protocol buffers as reading a model's weights and writing a graph need.

A message is a sequence of fields: a number and a wire type in one varint, then a varint, four or
eight bytes, or a length and as many bytes (protobuf.dev/programming-guides/encoding).
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

VARINT, EIGHT, SIZED, FOUR = 0, 1, 2, 5
_FIXED = {EIGHT: 8, FOUR: 4}

Value = int | float | str | bytes


class Field(NamedTuple):
    """One field: a number, or where its bytes begin and end."""

    number: int
    value: int
    begin: int
    end: int


def fields(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets.

    Raises ValueError, or IndexError, where there is none.
    """
    at = begin
    while at < end:
        key, at = _varint(data, at)
        value, size = 0, 0
        if key & 7 == VARINT:
            value, at = _varint(data, at)
        elif key & 7 == SIZED:
            size, at = _varint(data, at)
        elif key & 7 in _FIXED:
            size = _FIXED[key & 7]
        else:
            raise ValueError(f"wire type {key & 7} at {at}")
        if at + size > end:
            raise ValueError(f"field {key >> 3} ends behind its message, at {at + size}")
        yield Field(key >> 3, value, at, at + size)
        at += size


def message(parts: Mapping[int, Value | Sequence[Value]]) -> bytes:
    """Return a message of fields by their numbers; those with several values are repeated.

    >>> message({1: 150, 2: "on", 3: [b"", b"a"]}).hex()
    '08960112026f6e1a001a0161'
    """
    written = bytearray()
    for number, value in parts.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            written += _field(number, one)
    return bytes(written)


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _as_varint(number << 3 | VARINT) + _as_varint(value)
    if isinstance(value, float):
        return _as_varint(number << 3 | FOUR) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return _as_varint(number << 3 | SIZED) + _as_varint(len(data)) + data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _as_varint(value: int) -> bytes:
    # A negative number is written in two's complement, of 64 bits.
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
