"""What the fields that describe an engine may hold, whether they come from HMAS_ENGINES, a file or a name."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from hmas.laws.figures import MOST, MOST_TOKENS
from hmas.laws.hosts import can_be_resolved
from hmas.worker.adapters.kv_events_config import address_of

MAX_TEXT = 256  # characters of a name, a kind, a card, a model
MAX_URL = 1024
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")


def _url(text: str) -> str:
    if not text:
        return text
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        usable = parts.scheme in ("http", "https") and _HOST.fullmatch(host) and can_be_resolved(host)
        usable = usable and parts.port != 0
    except ValueError:  # of brackets that are not closed, and of a port that is none
        usable = None
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("it is not a URL: write one such as http://10.0.0.1:8000")  # it may hold a password
    return text


def _line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("it must be one line of printable characters, without blanks at its ends")
    return text


def _kv_address(text: str) -> str:
    if text:
        address_of(text.replace("{host}", "host"))
    return text


Url = Annotated[str, Field(max_length=MAX_URL), AfterValidator(_url)]  # or an empty text
Kind = Literal["auto", "vllm", "sglang", "openai", "emulated"]  # auto: the engine is asked
KvTransfer = Literal[
    "", "nixl-pull", "nixl-push", "sglang"
]  # how it hands the KV of prompts to others; empty: it does not
EngineRole = Literal["", "prefill", "decode"]
Line = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_line)]
KvAddress = Annotated[str, Field(max_length=MAX_URL), AfterValidator(_kv_address)]
Port = Annotated[int, Field(gt=0, lt=2**16)]
Sequences = Annotated[int, Field(gt=0, le=2**20)]
Tokens = Annotated[int, Field(gt=0, le=int(MOST_TOKENS))]
CacheTokens = Annotated[int, Field(gt=0, le=int(MOST))]
