"""Messages that a process of the mesh may get from anybody: genuine ones, and what mutation makes of them."""

import string
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from math import inf, isfinite, nan
from random import Random
from struct import pack
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from hmas.wire import limits
from hmas.wire.codec import encode

# Few names, so that messages are about the same things.
NAMES = {
    "worker": ("w1", "w2"), "gateway": ("g1", "g2"), "pool": ("m", "n"), "model": ("m", "n"), "engine": ("e1", "e2"),
    "tenant": ("acme", "solo"), "predictor": ("v1", "v2"), "version": ("v1",), "address": ("127.0.0.1:1",),
    "incarnation": ("i1",), "topology": ("fcfs", "edf"), "endpoint": ("http://127.0.0.1:8100",), "flow": ("", "f"),
}  # fmt: skip
ABSURD: dict[type, tuple[Any, ...]] = {
    int: (-1, 2**31, 2**40, 2**40 + 1, 2**62, 2**63 - 1, -(2**63)),
    float: (nan, inf, -inf, 1e300, -1e300, 1e-320, -1.0, 2.0**63, 1e12),
    str: ("", "x" * 513, "x" * 100_000, "\x00", ".*>", "\N{PILE OF POO}" * 600),
    bool: (True, False),
}
DOUBLES = tuple(pack("<d", value) for value in ABSURD[float])
VARINTS = (b"\x00", b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff" * 20)


class Genuine:
    """Makes allowed messages of any wire type. One name in twenty is new."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._hints: dict[type, dict[str, Any]] = {}

    def make(self, cls: Any) -> Any:
        while True:
            value = cls(**{name: self._field(cls, name, hint) for name, hint in self.hints(cls).items()})
            related = limits.RELATIONS.get(cls)
            if related is None or eval(related[1], {"v": value}):
                return value

    def hints(self, cls: type) -> dict[str, Any]:
        if cls not in self._hints:
            hints = get_type_hints(cls)
            self._hints[cls] = {f.name: hints[f.name] for f in fields(cls)}
        return self._hints[cls]

    def _field(self, cls: type, name: str, hint: Any) -> Any:
        rng = self._rng
        if NoneType in get_args(hint):
            if rng.random() < 0.3:
                return None
            hint = next(each for each in get_args(hint) if each is not NoneType)
        if get_origin(hint) is tuple:
            return tuple(self._field(cls, name, get_args(hint)[0]) for _ in range(rng.choice((0, 1, 2, 5))))
        if is_dataclass(hint):
            return self.make(hint)
        if issubclass(hint, Enum):
            return rng.choice(list(hint))
        if hint is bool:
            return rng.random() < 0.2
        if hint is str:
            return self._name(name)
        allowed = limits.range_of(cls, name, hint)
        low, high = max(allowed.low, -1e3), min(allowed.high, rng.choice((1.0, 1e2, 1e4, 1e6, allowed.high)))
        high = max(high, low + 1) if isfinite(high) else 1e3
        number = rng.uniform(low, min(high, allowed.high))
        return int(number) if hint is int else number or min(1.0, allowed.high)

    def _name(self, name: str) -> str:
        rng = self._rng
        if rng.random() < 0.05:
            return "".join(rng.choices(string.printable, k=rng.randrange(1, 40)))
        if name in ("request_id", "id", "request_ids"):
            return f"r{rng.randrange(64)}"
        return rng.choice(NAMES.get(name, ("a", "b")))


def payload(genuine: Genuine, rng: Random, cls: type) -> bytes:
    """Returns bytes for a message of type `cls`: absurd in one or two of its values, mutated as bytes, or genuine."""
    value = genuine.make(cls)
    kind = rng.random()
    if kind < 0.45:
        for _ in range(rng.choice((1, 1, 2))):
            value = absurd(genuine, rng, value)
    try:
        data = encode(value)
    except ValueError:  # no field holds it
        return rng.randbytes(rng.randrange(64))
    return mutated(rng, data) if 0.4 < kind < 0.9 else data


def absurd(genuine: Genuine, rng: Random, value: Any) -> Any:
    """Returns a message with one of its values, nested ones too, replaced by an absurd one."""
    name, hint = rng.choice(list(genuine.hints(type(value)).items()) or [("", None)])
    if not name:
        return value
    hint = next((each for each in get_args(hint) if is_dataclass(each)), hint) if NoneType in get_args(hint) else hint
    old = getattr(value, name)
    if is_dataclass(old) and not isinstance(old, type):
        return replace(value, **{name: absurd(genuine, rng, old)})
    if isinstance(old, tuple):
        if not old or rng.random() < 0.2:
            return replace(value, **{name: old * rng.choice((0, 2, 300))})
        at = rng.randrange(len(old))
        new = (
            absurd(genuine, rng, old[at])
            if is_dataclass(old[at])
            else rng.choice(ABSURD.get(type(old[at]), (old[at],)))
        )
        return replace(value, **{name: (*old[:at], new, *old[at + 1 :])})
    return replace(value, **{name: rng.choice(ABSURD.get(type(old), (old,)))})


def mutated(rng: Random, data: bytes) -> bytes:
    """Returns bytes that differ from `data` in a few places."""
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(7):
            case 0 if text:
                text[at % len(text)] ^= 1 << rng.randrange(8)
            case 1:
                del text[at:]
            case 2:
                text[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 3:
                text[at : at + 8] = rng.choice(DOUBLES)
            case 4:
                text[at : at + 1] = rng.choice(VARINTS)
            case 5:
                text[at:at] = text[at : at + rng.randrange(1, 64)] * rng.choice((1, 1, 50))
            case _:
                del text[at : at + rng.randrange(1, 8)]
    return bytes(text)
