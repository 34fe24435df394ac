"""Fields of protocol buffers, read and written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amv.embedders.protobuf import fields, message


@given(
    number=st.integers(2, 1 << 20),
    value=st.one_of(st.integers(0, (1 << 64) - 1), st.binary(max_size=300), st.text()),
)
def test_what_is_written_is_read(number: int, value: int | bytes | str) -> None:
    data = message({number: value, 1: b"last"})

    first = next(fields(data, 0, len(data)))

    if isinstance(value, int):
        assert first.value == value
    else:
        expected = value.encode() if isinstance(value, str) else value
        assert data[first.begin : first.end] == expected
    assert first.number == number


def test_fields_of_fixed_size_are_stepped_over() -> None:
    data = message({1: 1.5}) + bytes([2 << 3 | 1]) + bytes(8) + message({3: -1})

    found = list(fields(data, 0, len(data)))

    assert [(one.number, one.end - one.begin) for one in found] == [(1, 4), (2, 8), (3, 0)]
    assert found[2].value == (1 << 64) - 1


@pytest.mark.parametrize("data", [b"\x0b", b"\x0a\x05abc", b"\x0d\x00"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"wire type|ends behind"):
        list(fields(data, 0, len(data)))
