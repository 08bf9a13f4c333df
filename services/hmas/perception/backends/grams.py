"""Words and pairs of words of a prompt's instruction, as rows of a table of weights. Pure."""

import re
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from hmas.perception.agent.rules import instruction

GRAMS = 1 << 16  # rows; the first stands for none
_REMEMBERED_WORDS = 16_384
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


def words(text: str) -> list[str]:
    """Words, numbers and signs of the instruction, in order and in lower case."""
    return _WORD.findall(instruction(text).lower())


def grams(text: str) -> list[int]:
    """Rows in [1, GRAMS), each once, in no order that means anything. None for a text without words."""
    singles = list(map(_number, words(text)))
    pairs = [31 * left + right for left, right in pairwise(singles)]
    return list({1 + number % (GRAMS - 1) for number in singles + pairs})


@lru_cache(_REMEMBERED_WORDS)
def _number(word: str) -> int:
    return crc32(word.encode("utf-8", "replace"))
