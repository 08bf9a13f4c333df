"""The estimate of images and audio. What it is for each size was computed by transformers' own processors, made of
their configuration alone (`tests/engines/test_media_tokens.py` computes it again)."""

import math
import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.media import (
    AUDIO_TOKENS_PER_S,
    COMPRESSED_BYTES_PER_S,
    HEAD_CHARS,
    MAX_SIDE,
    UNKNOWN_IMAGE_TOKENS,
    image_rule,
    is_media,
    media_tokens,
)
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


# --- sizes


def size_told(data: bytes, model: str = "pixtral") -> int:
    """The tokens of an image: by Pixtral's rule those of 160 x 320 are 20 rows of 10 and their ends, 220; those of
    320 x 160 are 210."""
    return media_tokens({"type": "image", "source": {"data": b64encode(data).decode()}}, model)


def vp8(width: int, height: int, scale: int = 0) -> bytes:
    """A lossy WebP: each side has 14 bits, above which its scale stands."""
    sides = struct.pack("<HH", width | scale << 14, height | scale << 14)
    return b"RIFF\0\0\0\0WEBPVP8 " + bytes(7) + b"\x9d\x01\x2a" + sides + bytes(9)


def vp8l(width: int, height: int) -> bytes:
    """A lossless WebP: each side less 1 has 14 bits, above which flags stand."""
    bits = width - 1 | height - 1 << 14 | 0xF << 28
    return b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", bits) + bytes(9)


def jpeg_of(*segments: tuple[int, bytes]) -> bytes:
    """A JPEG of these segments, each by its marker."""
    parts = (b"\xff" + bytes([marker]) + (len(body) + 2).to_bytes(2, "big") + body for marker, body in segments)
    return b"\xff\xd8" + b"".join(parts)


FRAME = b"\x08" + struct.pack(">HH", 320, 160) + bytes(10)
OTHER = b"\x08" + struct.pack(">HH", 16, 16) + bytes(10)


@pytest.mark.parametrize(
    "data", [png(160, 320), gif(160, 320), webp(160, 320), vp8(160, 320), vp8(160, 320, 3), vp8l(160, 320),
             jpeg(160, 320)],
)  # fmt: skip
def test_width_and_height_are_not_confused(data: bytes) -> None:
    assert size_told(data) == 220


@pytest.mark.parametrize(
    ("data", "end"),
    [(png(160, 320), 24), (gif(160, 320), 10), (webp(160, 320), 30), (vp8(160, 320), 30), (vp8l(160, 320), 30)],
)
def test_a_head_that_is_cut_off_tells_no_size(data: bytes, end: int) -> None:
    """Three bytes are four characters of base64."""
    whole = end if end % 3 == 0 else end + 3 - end % 3
    assert size_told(data[:whole]) == 220
    assert size_told(data[: whole - 3]) == UNKNOWN_IMAGE_TOKENS


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC7, 0xC9, 0xCB, 0xCD, 0xCF])
def test_every_kind_of_frame_of_a_jpeg_tells_its_size(marker: int) -> None:
    assert size_told(jpeg_of((0xE0, bytes(14)), (0xDB, bytes(65)), (marker, FRAME))) == 220


@pytest.mark.parametrize("marker", [0xBF, 0xC4, 0xC8, 0xCC, 0xD0, 0xDB, 0xE1, 0xFE])
def test_a_segment_of_a_jpeg_that_is_no_frame_is_passed_over(marker: int) -> None:
    assert size_told(jpeg_of((marker, OTHER), (0xC0, FRAME))) == 220
    assert size_told(jpeg_of((marker, FRAME))) == UNKNOWN_IMAGE_TOKENS


def test_a_jpeg_is_read_to_the_end_of_its_head_and_no_further() -> None:
    assert size_told(jpeg_of((0xE0, b""), (0xC0, FRAME))) == 220
    assert size_told(jpeg_of((0xC0, FRAME[:7]))) == 220  # its frame's 9 bytes are the last
    assert size_told(jpeg_of((0xC0, FRAME[:4]))) == UNKNOWN_IMAGE_TOKENS
    assert size_told(b"\xff\xd8\x00" + jpeg_of((0xC0, FRAME))[3:]) == UNKNOWN_IMAGE_TOKENS
    zero = b"\xff\xd8\xff\xe0\0\0" + jpeg_of((0xC0, FRAME))[2:]  # a length of 0 counts as 2
    assert size_told(zero) == 220
    far = jpeg_of((0xE0, bytes(60_000)), (0xC0, FRAME))
    assert len(b64encode(far)) > HEAD_CHARS
    assert size_told(far) == UNKNOWN_IMAGE_TOKENS


def test_sides_are_from_one_pixel_to_the_most() -> None:
    assert size_told(png(1, 1)) == 2
    assert size_told(png(MAX_SIDE, MAX_SIDE)) == 64 * 64 + 64
    for width, height in ((0, 9), (9, 0), (MAX_SIDE + 1, 9), (9, MAX_SIDE + 1)):
        assert size_told(png(width, height)) == UNKNOWN_IMAGE_TOKENS


# --- rules


@pytest.mark.parametrize(
    ("model", "factor", "least", "most"), [("", 28, 3136, 1_003_520), ("Qwen3-VL-8B", 32, 65_536, 2**24)]
)
@given(width=st.integers(1, 6000), height=st.integers(1, 6000))
def test_qwens_rule_keeps_the_pixels_in_their_bounds(
    model: str, factor: int, least: int, most: int, width: int, height: int
) -> None:
    """`smart_resize` of transformers, written plainly."""
    high, wide = max(factor, round(height / factor) * factor), max(factor, round(width / factor) * factor)
    if high * wide > most:
        scale = math.sqrt(height * width / most)
        high = max(factor, int(height / scale / factor) * factor)
        wide = max(factor, int(width / scale / factor) * factor)
    elif high * wide < least:
        scale = math.sqrt(least / (height * width))
        high, wide = (-int(-side * scale / factor // 1) * factor for side in (height, width))
    assert image_rule(model)(width, height) == high * wide // factor**2


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("", 28, 28, 4), ("", 56, 56, 4), ("", 1, 1, 4), ("", 100, 14, 4), ("", 1004, 1004, 35 * 35),
        ("", 980, 1024, 35 * 36), ("", 1008, 1008, 35 * 35), ("", 5000, 10, 179),
        ("", 6000, 1, 214),
        ("qwen3-vl", 256, 256, 64), ("qwen3-vl", 255, 200, 80), ("qwen3-vl", 4096, 4096, 128 * 128),
        ("qwen3-vl", 5000, 4096, 141 * 115),
        ("pixtral", 16, 16, 2), ("pixtral", 17, 16, 3), ("pixtral", 1024, 1024, 64 * 65),
        ("pixtral", 2048, 1024, 64 * 32 + 32),
        ("pixtral", 1024, 2048, 32 * 64 + 64), ("pixtral", 5000, 1, 65), ("pixtral", 1, 5000, 128),
        ("llava-1.5-7b", 99, 99, 576), ("llava-v1.5", 99, 99, 576), ("gemma-3", 99, 99, 256),
    ],
)  # fmt: skip
def test_the_tokens_of_images_at_the_edges_of_the_rules(model: str, width: int, height: int, tokens: int) -> None:
    assert image_rule(model)(width, height) == tokens


@pytest.mark.parametrize("model", ["Mistral-Small-3.1", "Magistral", "devstral", "PIXTRAL"])
def test_mistrals_models_share_a_rule(model: str) -> None:
    assert image_rule(model)(160, 320) == 220


# --- parts


def test_what_is_media_is_told_by_its_type() -> None:
    assert is_media({"type": "image"})
    assert is_media({"type": "file"})
    assert not is_media({"type": "text"})
    assert not is_media({"type": ["image"]})
    assert not is_media({})


@pytest.mark.parametrize("kind", ["video", "video_url", "document", "file", "input_file"])
def test_other_media_count_nothing(kind: str) -> None:
    assert media_tokens({"type": kind, kind: {"data": "AAAA" * 999}}) == 0


@pytest.mark.parametrize("source", ["http://x", "https://x", "file://x", None, {"data": 5}])
def test_audio_that_is_elsewhere_counts_nothing(source: object) -> None:
    assert media_tokens({"type": "audio_url", "audio_url": source}) == 0


def test_a_wav_counts_by_its_own_rate_and_a_nonsensical_one_by_the_least() -> None:
    def wav(rate: int, size: int) -> int:
        head = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0" + struct.pack("<II", 8_000, rate)
        data = b64encode(head + bytes(size - len(head))).decode()
        return media_tokens({"type": "input_audio", "input_audio": {"data": data}})

    assert wav(32_000, 96_000) == 3 * 25
    assert wav(32_000, 96_003) == 3 * 25 + 1  # rounded up
    assert wav(500, 3_000) == 3 * 25  # at least 1000 bytes a second
    assert wav(1_001, 3_003) == 3 * 25
    assert wav(0, 48_000) == 3 * 25  # it says nothing
    other = b64encode(b"RIFF\0\0\0\0AVI " + b"\x05" * 47_988).decode()
    assert media_tokens({"type": "audio", "audio": other}) == 48_000 / COMPRESSED_BYTES_PER_S * AUDIO_TOKENS_PER_S


def test_a_data_url_and_bare_base64_are_the_same() -> None:
    data = b64encode(png(160, 320)).decode()
    for source in (data, f"data:image/png;base64,{data}", {"url": data}, {"data": data, "url": "https://x"}):
        assert media_tokens({"type": "image", "image": source}, "pixtral") == 220
    assert media_tokens({"type": "image", "image_url": data}, "pixtral") == 220
    assert media_tokens({"type": "image", "source": {"url": f"data:,base64,{data}"}}, "pixtral") == 220
    assert media_tokens({"type": "image", "image": data + "A"}, "pixtral") == 220  # what is left over is not read
