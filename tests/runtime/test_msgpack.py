"""MessagePack: what other writers send is read, and bytes that are none raise ValueError and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.runtime.msgpack import MAX_DEPTH, pack, unpack

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=5) | st.dictionaries(st.text(max_size=5), each, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read(value: Any) -> None:
    assert unpack(pack(value)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("93 01 cc c8 cd 01 2c", [1, 200, 300]),  # as msgspec and msgpack-c write them: the shortest form
        ("94 ff d0 9c d1 fe d4 d2 ff fe ee 90", [-1, -100, -300, -70_000]),
        ("82 a4 74 79 70 65 a5 53 74 6f 72 65 a1 68 91 c4 02 00 ff", {"type": "Store", "h": [b"\0\xff"]}),
        ("cb 3f f8 00 00 00 00 00 00", 1.5),
        ("ca 3f c0 00 00", 1.5),
        ("dc 00 01 c0", [None]),
        ("de 00 01 01 c2", {1: False}),
        ("d9 02 c3 bc", "ü"),
    ],
)  # fmt: skip
def test_every_form_is_read(data: str, value: Any) -> None:
    assert unpack(bytes.fromhex(data)) == value


@given(
    st.binary(max_size=60) | VALUES.map(pack).flatmap(lambda data: st.integers(0, len(data)).map(lambda n: data[:n]))
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        unpack(data)
    except ValueError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * (MAX_DEPTH + 2) + b"\x01", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xffx", b"\x01\x01", b"\xc1",
        b"\x81\x90\x01",
    ],
    ids=["too deep", "an array of 4 G", "bytes of 4 G", "more than a value", "no type", "a key that is an array"],
)  # fmt: skip
def test_what_is_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpack(data)
