"""MessagePack (https://msgpack.org), as far as KV events need it: values that engines send are read, bounded in depth
and by the bytes that there are, and those of the emulated engine are written."""

import struct
from typing import Any

MAX_DEPTH = 16
_NUMBERS = {  # by first byte: format and size
    0xCA: (">f", 4), 0xCB: (">d", 8), 0xCC: (">B", 1), 0xCD: (">H", 2), 0xCE: (">I", 4), 0xCF: (">Q", 8),
    0xD0: (">b", 1), 0xD1: (">h", 2), 0xD2: (">i", 4), 0xD3: (">q", 8),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def unpack(data: bytes) -> Any:
    """Returns the value that the bytes are. Raises ValueError if they are none, or hold more."""
    value, end = _value(data, 0, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the value")
    return value


def pack(value: Any) -> bytes:
    """Returns the bytes of a value of None, bools, whole numbers of 64 bits, floats, text, bytes, lists and dicts."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            text = value.encode()
            return b"\xdb" + struct.pack(">I", len(text)) + text
        case bytes():
            return b"\xc6" + struct.pack(">I", len(value)) + value
        case list():
            return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
        case dict():
            pairs = b"".join(pack(key) + pack(each) for key, each in value.items())
            return b"\xdf" + struct.pack(">I", len(value)) + pairs
        case _:
            raise TypeError(f"{type(value).__name__} is none of the types that are written")


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if at >= len(data) or depth > MAX_DEPTH:
        raise ValueError("the bytes end within a value, or it is nested too deeply")
    first, at = data[at], at + 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        layout, size = _NUMBERS[first]
        return struct.unpack(layout, _take(data, at, size))[0], at + size
    if first < 0xC0:
        size = first & 0x1F if first >= 0xA0 else first & 0x0F
    elif first in _LENGTHS:
        width = _LENGTHS[first]
        size, at = int.from_bytes(_take(data, at, width), "big"), at + width
    else:
        raise ValueError(f"no MessagePack value of ours begins with {first:#x}")
    if 0xA0 <= first < 0xC0 or 0xD9 <= first <= 0xDB:
        return _take(data, at, size).decode("utf-8", "replace"), at + size
    if 0xC4 <= first <= 0xC6:
        return _take(data, at, size), at + size
    if first < 0x90 or first in (0xDE, 0xDF):
        return _map(data, at, size, depth)
    return _array(data, at, size, depth)


def _array(data: bytes, at: int, size: int, depth: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(_count(data, at, size)):
        value, at = _value(data, at, depth + 1)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, size: int, depth: int) -> tuple[dict[Any, Any], int]:
    values = {}
    for _ in range(_count(data, at, 2 * size) // 2):
        key, at = _value(data, at, depth + 1)
        if not isinstance(key, str | bytes | int):
            raise ValueError("a key that is neither text nor a number")
        values[key], at = _value(data, at, depth + 1)
    return values, at


def _count(data: bytes, at: int, values: int) -> int:
    if values > len(data) - at:  # each takes a byte at least
        raise ValueError("the bytes end within a value")
    return values


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("the bytes end within a value")
    return data[at : at + size]
