"""Every contract that crosses the wire survives the round trip; what is malformed is a WireError."""

from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Pin, TopologyDecision
from hmas.wire import codec, subjects
from hmas.wire.v1 import control_pb2

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for a field's type; deterministic and small."""
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*(st.none() if a is NoneType else values(a) for a in get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0]), max_size=2).map(tuple)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{f.name: values(hints[f.name]) for f in fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    return {
        bool: st.booleans(), int: st.integers(-(2**40), 2**40), float: st.floats(allow_nan=False), str: TEXT,
    }[hint]  # fmt: skip


@pytest.mark.parametrize("cls", codec.wire_types(), ids=lambda c: c.__name__)
def test_round_trip(cls: type) -> None:
    @given(values(cls))
    def check(value: Any) -> None:
        assert codec.decode(cls, codec.encode(value)) == value

    check()


def test_bytes_that_are_no_message_are_a_wire_error() -> None:
    with pytest.raises(codec.WireError, match="TopologyDecision"):
        codec.decode(TopologyDecision, b"\xff\xff\xff")


def test_a_value_outside_its_enumeration_is_a_wire_error() -> None:
    data = control_pb2.TopologyDecision(pool="p", topology="bogosort").SerializeToString()
    with pytest.raises(codec.WireError, match="bogosort"):
        codec.decode(TopologyDecision, data)


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    data = codec.encode(Pin("p", None)) + b"\xa2\x06\x03new"
    assert codec.decode(Pin, data) == Pin("p", None)


@given(TEXT, TEXT)
def test_names_become_single_subject_tokens_and_stay_apart(a: str, b: str) -> None:
    for name in (a, b):
        token = subjects.token(name)
        assert token
        assert not set(token) & set(" .*>\t\n/")
    assert (subjects.token(a) == subjects.token(b)) == (a == b)
