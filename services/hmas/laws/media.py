"""The mesh's estimate of the tokens of images and audio in a prompt, from their sizes alone: nothing is decoded.

How many tokens an image becomes depends on the family of the model, which the model's name tells; the rules are those
of the processors in transformers with their own configuration.
"""

import math
import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable
from typing import Any

HEAD_CHARS = 2**16  # of base64 that are looked at for an image's size
UNKNOWN_IMAGE_TOKENS = 1024  # of an image whose size is not known, such as one that the engine fetches
MAX_SIDE = 2**16
AUDIO_TOKENS_PER_S = 25.0  # of Qwen2-Audio and Qwen2.5-Omni
COMPRESSED_BYTES_PER_S = 16_000.0  # of MP3 and its like at 128 kbit/s
_IMAGES = frozenset({"image", "image_url", "input_image"})
_AUDIO = frozenset({"input_audio", "audio", "audio_url"})
_OTHERS = frozenset({"video", "video_url", "document", "file", "input_file"})
MEDIA = _IMAGES | _AUDIO | _OTHERS

ImageRule = Callable[[int, int], int]


def _qwen(factor: int, least: int, most: int) -> ImageRule:
    """Returns the rule of Qwen2-VL and its successors: sides are rounded to multiples of `factor`, and the image is
    scaled to `least` to `most` pixels; a square of `factor` is a token."""

    def tokens(width: int, height: int) -> int:
        high, wide = (max(factor, round(side / factor) * factor) for side in (height, width))
        if high * wide > most:
            beta = math.sqrt(height * width / most)
            high, wide = (max(factor, math.floor(side / beta / factor) * factor) for side in (height, width))
        elif high * wide < least:
            beta = math.sqrt(least / (height * width))
            high, wide = (math.ceil(side * beta / factor) * factor for side in (height, width))
        return (high // factor) * (wide // factor)

    return tokens


def _pixtral(width: int, height: int) -> int:
    """The longer side is at most 1024; a patch of 16 is a token, and so is the end of each row."""
    ratio = max(width / 1024, height / 1024, 1.0)
    wide, high = (math.ceil(math.floor(side / ratio) / 16) for side in (width, height))
    return max(1, wide) * max(1, high) + max(1, high)


def _always(tokens: int) -> ImageRule:
    return lambda width, height: tokens


_QWEN2 = _qwen(28, 56 * 56, 14 * 14 * 4 * 1280)
_RULES: tuple[tuple[re.Pattern[str], ImageRule], ...] = (
    (re.compile(r"qwen-?3.*vl", re.I), _qwen(32, 65_536, 16_777_216)),
    (re.compile(r"pixtral|mistral|magistral|devstral", re.I), _pixtral),
    (re.compile(r"gemma", re.I), _always(256)),
    (re.compile(r"llava-?(v?1\.5)", re.I), _always(576)),
)


def image_rule(model: str) -> ImageRule:
    """Returns the rule for a model, by its name; that of Qwen2-VL if the name tells nothing."""
    return next((rule for pattern, rule in _RULES if pattern.search(model)), _QWEN2)


def is_media(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in MEDIA


def media_tokens(part: dict[str, Any], model: str = "") -> int:
    """Returns the estimated tokens of a part of a message that holds media, in the format of any of the APIs."""
    kind, data = part["type"], _data(part)
    if kind in _IMAGES:
        size = _image_size(data) if data is not None else None
        return UNKNOWN_IMAGE_TOKENS if size is None else image_rule(model)(*size)
    if kind in _AUDIO and data is not None:
        return math.ceil(_seconds(data) * AUDIO_TOKENS_PER_S)
    return 0


def _data(part: dict[str, Any]) -> str | None:
    """Returns the base64 of a part, None if it holds none, but a URL for instance."""
    inner: Any = part.get(part["type"], part.get("image_url", part.get("source")))
    if isinstance(inner, dict):
        inner = inner.get("data", inner.get("url"))
    if not isinstance(inner, str):
        return None
    if inner.startswith("data:"):
        return inner.partition("base64,")[2]
    return None if inner.startswith(("http:", "https:", "file:")) else inner


def _bytes_of(data: str, chars: int) -> bytes:
    head = data[: min(chars, len(data)) // 4 * 4]
    try:
        return b64decode(head)
    except (NoBase64, ValueError):
        return b""


def _image_size(data: str) -> tuple[int, int] | None:
    """Returns width and height of a PNG, JPEG, GIF or WebP."""
    head = _bytes_of(data, HEAD_CHARS)
    size = None
    if head.startswith(b"\x89PNG") and len(head) >= 24:
        size = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    elif head.startswith(b"GIF8") and len(head) >= 10:
        size = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        size = _webp_size(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg_size(head)
    return size if size is not None and min(size) > 0 and max(size) <= MAX_SIDE else None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if len(head) < 30:
        return None
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # the start of a frame
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None


def _seconds(data: str) -> float:
    """Returns the length of an audio file: that of a WAV by its own rate, of another by a usual one."""
    size, head = len(data) * 3 / 4, _bytes_of(data, 64)
    rate = float(int.from_bytes(head[28:32], "little")) if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else 0.0
    return size / max(rate, 1000.0) if rate else size / COMPRESSED_BYTES_PER_S
