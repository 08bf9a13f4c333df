"""Every contract that crosses the wire survives the round trip; what is malformed is a WireError."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from math import inf, isfinite, nan
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hmas.contracts.control import Hints, Pin, TopologyDecision
from hmas.wire import codec, limits, subjects
from hmas.wire.v1 import control_pb2
from tests.builders.control import topology_decision
from tests.counters import counted

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def values(hint: Any, owner: type = object, name: str = "") -> st.SearchStrategy[Any]:
    """A strategy for the allowed values of a field's type; deterministic and small."""
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*(st.none() if a is NoneType else values(a, owner, name) for a in get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(values(get_args(hint)[0], owner, name), max_size=2).map(tuple)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        built = st.builds(hint, **{f.name: values(hints[f.name], hint, f.name) for f in fields(hint)})
        related = limits.RELATIONS.get(hint)
        return built.filter(lambda v: eval(related[1], {"v": v})) if related else built
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if hint is int or hint is float:
        allowed = limits.range_of(owner, name, hint)
        low, high = allowed.low, allowed.high
        return (
            st.integers(int(low), int(high)) if hint is int
            else st.floats(low, high, exclude_min=allowed.above, allow_nan=False)
        )  # fmt: skip
    return {bool: st.booleans(), str: TEXT, bytes: st.binary(max_size=12)}[hint]


def broken(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Copies of a message, each with one field that is not allowed, and the path of that field."""
    cls = type(value)
    for name, hint in get_type_hints(cls).items():
        kind = next(a for a in (*get_args(hint), hint) if a is not NoneType) if NoneType in get_args(hint) else hint
        old, wrong = getattr(value, name), list[Any]()
        if kind is int or kind is float:
            allowed = limits.range_of(cls, name, kind)
            wrong = [allowed.low - 1, allowed.high + 1] if kind is int else [nan]
            if kind is float and isfinite(allowed.high):
                below = allowed.low - max(1e-3, abs(allowed.low))
                wrong += [inf, -inf, 1e300, 2.0 * allowed.high, below, *([allowed.low] if allowed.above else [])]
        elif kind is str:
            wrong = ["x" * (limits.most_chars(name) + 1)]
        elif get_origin(kind) is tuple and old:
            wrong = [old * (limits.most_items(name) + 1)] if not is_dataclass(old[0]) else []
            wrong += [(inner,) for _, inner in broken(old[0])] if is_dataclass(old[0]) else []
        elif is_dataclass(kind) and old is not None:
            wrong = [inner for _, inner in broken(old)]
        for each in wrong:
            yield f"{path}{name}", replace(value, **{name: each})


@pytest.mark.parametrize("cls", codec.wire_types(), ids=lambda c: c.__name__)
def test_round_trip(cls: type) -> None:
    @given(values(cls))
    def check(value: Any) -> None:
        assert codec.decode(cls, codec.encode(value)) == value

    check()


@pytest.mark.parametrize("cls", codec.wire_types(), ids=lambda c: c.__name__)
def test_a_message_with_one_value_that_is_not_allowed_is_dropped_counted_and_explained(cls: type) -> None:
    """Each field in turn, nested ones too."""

    @settings(max_examples=3, suppress_health_check=list(HealthCheck))
    @given(values(cls))
    def check(value: Any) -> None:
        for name, wrong in broken(value):
            try:
                data = codec.encode(wrong)
            except (ValueError, OverflowError):  # no field can hold it
                continue
            before = counted(codec.MALFORMED.labels(cls.__name__))
            with pytest.raises(codec.WireError) as caught:
                codec.decode(cls, data)
            assert counted(codec.MALFORMED.labels(cls.__name__)) == before + 1, name
            assert len(str(caught.value)) <= codec.MAX_ERROR_CHARS

    check()


def test_an_absurd_control_is_told_in_words() -> None:
    decision = topology_decision(pool="p", valid_for_s=1e18, reason="", selector="")
    with pytest.raises(codec.WireError, match=r"valid_for_s must be above 0.0 and at most 60.0, not 1e[+]18"):
        codec.decode(TopologyDecision, codec.encode(decision))
    with pytest.raises(codec.WireError, match="epoch must be from 0 to 1099511627775, not 9223372036854775807"):
        codec.decode(TopologyDecision, codec.encode(replace(decision, valid_for_s=5.0, epoch=2**63 - 1)))
    with pytest.raises(codec.WireError, match="Hints must have alpha_low <= alpha_high"):
        codec.decode(TopologyDecision, codec.encode(replace(decision, valid_for_s=5.0, hints=Hints(alpha_low=65.0))))


def test_bytes_that_are_no_message_are_a_wire_error() -> None:
    with pytest.raises(codec.WireError, match="TopologyDecision"):
        codec.decode(TopologyDecision, b"\xff\xff\xff")


def test_a_value_outside_its_enumeration_is_a_wire_error() -> None:
    data = control_pb2.TopologyDecision(pool="p", topology="Bogo sort").SerializeToString()
    with pytest.raises(codec.WireError, match="Bogo sort"):
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
