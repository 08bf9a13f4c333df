"""Text of others, made safe for a terminal: what a client, an engine or a log line names must not steer it."""

import re

# C0 and C1 control characters, and those by which Unicode turns the direction of what follows.
_OTHERS = r"\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069"
_STEERING = re.compile(rf"[\x00-\x1f{_OTHERS}]")
_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_OTHERS}]")
_COLOURED = re.compile(rf"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f{_OTHERS}]")


def harmless(text: str) -> str:
    """Returns `text` with its control characters written as escapes, line ends among them."""
    return _STEERING.sub(_escape, text)


def harmless_lines(text: str, *, coloured: bool = False) -> str:
    """Returns `text` as `harmless` does, but keeps line ends and tabs, and, if it is `coloured`, sequences that set
    colours."""
    return (_COLOURED if coloured else _IN_LINES).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
