"""The estimate of images and audio. What it is for each size was computed by transformers' own processors, made of
their configuration alone (`tests/engines/test_media_tokens.py` computes it again)."""

import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.media import AUDIO_TOKENS_PER_S, UNKNOWN_IMAGE_TOKENS, media_tokens
from hmas.laws.tokens import MESSAGE_OVERHEAD, estimate_prompt_tokens, json_tokens


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + bytes(50)


def jpeg(width: int, height: int) -> bytes:
    about = b"\xff\xe0\x00\x10" + bytes(14)
    return b"\xff\xd8" + about + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(50)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(50)


def webp(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + size + bytes(50)


def url(data: bytes) -> str:
    return "data:image/any;base64," + b64encode(data).decode()


@pytest.mark.parametrize("write", [png, jpeg, gif, webp])
def test_every_format_tells_its_size(write: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": url(write(640, 480))}}
    assert media_tokens(part) == 23 * 17  # 644 x 476


@pytest.mark.parametrize(
    ("width", "height", "qwen", "pixtral"),
    [
        (566, 2347, 1224, 1088),
        (274, 1060, 380, 1152),
        (498, 2045, 1224, 1088),
        (1857, 1950, 1224, 3968),
        (2684, 1570, 1242, 2470),
        (875, 400, 434, 1400),
    ],
)
def test_images_count_as_transformers_processors_make_them(width: int, height: int, qwen: int, pixtral: int) -> None:
    part = {"type": "image_url", "image_url": {"url": url(png(width, height))}}
    assert media_tokens(part, "Qwen/Qwen2.5-VL-7B-Instruct") == qwen
    assert media_tokens(part, "mistralai/Pixtral-12B-2409") == pixtral
    assert media_tokens(part, "google/gemma-3-4b-it") == 256


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": url(png(640, 480))}},
        {"type": "input_image", "image_url": url(png(640, 480))},
        {"type": "image", "source": {"type": "base64", "data": b64encode(png(640, 480)).decode()}},
    ],
)
def test_every_api_holds_it_elsewhere(part: dict[str, Any]) -> None:
    assert media_tokens(part) == 391
    assert estimate_prompt_tokens([{"role": "user", "content": [part]}]) == MESSAGE_OVERHEAD + 391
    assert 391 <= json_tokens({"type": "tool_result", "content": [part]}) < 410


@pytest.mark.parametrize(
    "source", [{"url": "https://x.example/a.png"}, {}, {"url": "data:image/png;base64,****"}, {"url": url(b"text")},
               {"url": url(png(0, 5))}, {"url": url(png(2**31, 5))}, {"url": 3}],
)  # fmt: skip
def test_an_image_of_unknown_size_counts_as_a_usual_one(source: dict[str, Any]) -> None:
    assert media_tokens({"type": "image_url", "image_url": source}) == UNKNOWN_IMAGE_TOKENS


def test_audio_counts_by_its_length() -> None:
    wav = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + struct.pack("<II", 16_000, 32_000) + bytes(4 * 32_000)
    part = {"type": "input_audio", "input_audio": {"data": b64encode(wav).decode(), "format": "wav"}}
    assert media_tokens(part) == pytest.approx(4 * AUDIO_TOKENS_PER_S, rel=0.02)
    mp3 = {"type": "input_audio", "input_audio": {"data": b64encode(bytes(32_000)).decode(), "format": "mp3"}}
    assert media_tokens(mp3) == pytest.approx(2 * AUDIO_TOKENS_PER_S, rel=0.02)


@given(
    st.binary(max_size=200), st.sampled_from([b"\x89PNG", b"GIF8", b"RIFF0000WEBP", b"\xff\xd8", b"RIFF0000WAVE", b""])
)
def test_any_bytes_have_a_count(data: bytes, head: bytes) -> None:
    for kind in ("image_url", "input_audio"):
        assert 0 <= media_tokens({"type": kind, kind: {"data": b64encode(head + data).decode()}}) < 2**24
