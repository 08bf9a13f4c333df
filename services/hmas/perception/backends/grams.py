"""Maps words and pairs of words of a prompt's instruction to rows of a table of weights. Pure."""

import re
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

from hmas.perception.agent.rules import instruction

GRAMS = 1 << 16  # rows of the table; row 0 means that there is no word
_REMEMBERED_WORDS = 16_384
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


def words(text: str) -> list[str]:
    """Returns the words, numbers and punctuation marks of a prompt's instruction, in order and in lower case."""
    return _WORD.findall(instruction(text).lower())


def grams(text: str) -> list[int]:
    """Returns the table rows, in [1, GRAMS), of the instruction's words and pairs of words, each once and unordered.

    The list is empty for a text without words.
    """
    singles = list(map(_number, words(text)))
    pairs = [31 * left + right for left, right in pairwise(singles)]
    return list({1 + number % (GRAMS - 1) for number in singles + pairs})


@lru_cache(_REMEMBERED_WORDS)
def _number(word: str) -> int:
    return crc32(word.encode("utf-8", "replace"))
