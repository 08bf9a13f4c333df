"""Features of a prompt that are quick to compute (about 30 microseconds): its size, its shape and the length that it
asks for.

Only the beginning and the end of a long prompt are read, because instructions stand at either end.
"""

import math
import re
from collections.abc import Iterable

STATED, IS_STATED = 8, 9  # places of the stated length, log(1 + tokens) / STATED_SCALE, and of whether there is one
STATED_SCALE = 8.0
HEAD_CHARS = 1200
TAIL_CHARS = 400

# Tokens per stated unit: the byte-level BPE of the training prompts has 1.3 tokens per word, 4.4 characters per token.
_UNIT_TOKENS = {
    "word": 1.35, "token": 1.0, "char": 0.23, "sentence": 25.0, "paragraph": 110.0, "page": 600.0, "line": 12.0,
    "bullet": 25.0, "section": 150.0, "chapter": 900.0, "字": 0.75, "词": 1.0, "chữ": 1.8, "question": 40.0,
}  # fmt: skip
_STATED = re.compile(
    r"(?<![\d,])(\d[\d,]{0,6})\s*(?:-|–|to|~)?\s*(\d[\d,]{0,6})?\s*-?\s*(?:short |long |full )?"
    r"(word|token|char|sentence|paragraph|page|line|bullet|section|chapter|字|词|chữ|question)",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_SMALL_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "single": 1}
_SPELLED = re.compile(r"\b(one|two|three|four|five|single)[ -](word|sentence|paragraph|page|line)", re.IGNORECASE)
# A cue is a set of words and a tuple of substrings (for phrases, and scripts without spaces), any of which is a hit.
_CUES: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = (
    (frozenset({"minimum"}), ("at least", "no less than", "more than", "不少于", "以上", "至少")),
    (frozenset({"maximum", "within", "under"}), ("at most", "no more than", "less than", "不超过", "以内")),
    (
        frozenset({"brief", "briefly", "short", "concise", "concisely", "succinct", "small", "quick", "tldr"}),
        ("简短", "简要"),
    ),
    (
        frozenset({"long", "detailed", "comprehensive", "depth", "thorough", "extensive", "verbose", "elaborate"}),
        ("long enough", "step by step", "详细", "深入", "全面"),
    ),
    (frozenset({"json", "csv", "table", "yaml", "xml", "list"}), ()),
    (frozenset({"def", "const", "import", "println", "printf"}), ("```", "#include", "();", "</", "=>", "return ")),
    (frozenset({"solve", "prove", "equation", "integral"}), ("\\frac", "\\sum", "\\int", "^2", " + ", " = ", "x =")),
    (frozenset(), ("how many", "how much", "how far", "how long", "how old")),
)
_TURN = re.compile(r"^(?:USER|ASSISTANT|Human|AI|Customer|Agent|Bot|System|User|Assistant)\s?:", re.MULTILINE)
_WORD = re.compile(r"[a-z]+")
_DIGITS = b"0123456789"
_CODE = b"{}();=<>[]_"
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def window(text: str, head: int = HEAD_CHARS, tail: int = TAIL_CHARS) -> str:
    """Returns the first `head` and the last `tail` characters of a text, or all of it if it is not longer."""
    return text if len(text) <= head + tail else f"{text[:head]}\n{text[-tail:]}"


def stated_length(text: str) -> float:
    """Returns the largest length, in tokens, that the text asks for ("in 500-600 words", "1000 characters long",
    "800字"), at most 20,000; 0 if it asks for none."""
    lower = text.lower()
    if not _holds(lower, _UNIT_TOKENS):
        return 0.0
    found: list[float] = []
    if _DIGIT.search(text):
        found += [_tokens(m.group(2) or m.group(1), m.group(3)) for m in _STATED.finditer(text)]
    if _holds(lower, _SMALL_NUMBERS):
        found += [_SMALL_NUMBERS[m[1].lower()] * _UNIT_TOKENS[m[2].lower()] for m in _SPELLED.finditer(text)]
    return min(20000.0, max(found, default=0.0))


def _tokens(number: str, unit: str) -> float:
    digits = number.replace(",", "")
    return (float(digits) if digits else 0.0) * _UNIT_TOKENS[unit.lower()]


def _holds(text: str, parts: Iterable[str]) -> bool:
    """Tells whether any of the parts is in the text. A plain loop takes half the time of a generator."""
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


def _cue(words: set[str], lower: str, cue: tuple[frozenset[str], tuple[str, ...]]) -> float:
    return float(not cue[0].isdisjoint(words) or _holds(lower, cue[1]))


def _share(data: bytes, characters: bytes) -> float:
    return (len(data) - len(data.translate(None, characters))) / max(1, len(data))


def features(text: str, prompt_tokens: int) -> list[float]:
    """Returns the `FEATURES` features of a prompt, each roughly in [0, 2]. `prompt_tokens` may be an estimate."""
    part = window(text)
    data = part.encode("utf-8", "replace")
    stated = stated_length(part)
    end = part.rstrip()[-1:]
    lower = part.lower()
    words = set(_WORD.findall(lower))
    return [
        math.log1p(prompt_tokens) / 8,
        math.log1p(len(text)) / 10,
        math.log1p(part.count("\n")) / 4,
        math.log1p(len(_TURN.findall(part))) / 3,
        (len(data) - len(part)) / max(1, len(data)),
        10 * _share(data, _DIGITS),
        10 * _share(data, _CODE),
        5 * _share(data, _UPPER),
        math.log1p(stated) / STATED_SCALE,
        float(stated > 0),
        float(end in "?？"),
        float(end == ":"),
        math.log1p(part.count("?")) / 3,
        math.log1p(part.count("\n- ") + part.count("\n* ") + part.count("\n1.")) / 3,
        *(_cue(words, lower, cue) for cue in _CUES),
    ]


FEATURES = len(features("", 0))
