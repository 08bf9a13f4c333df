"""Turns the head and the tail of a prompt into word-piece ids, at a cost that does not grow with the prompt."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

CLS, SEP, PAD = 101, 102, 0  # BERT uncased vocabulary
# A word piece has 4-5 characters on average; a window of 8 per piece has enough pieces for almost every text.
CHARS_PER_TOKEN = 8
_WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
_ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\[(?:CLS|SEP|PAD|UNK|MASK)\]")
_REMEMBERED_WORDS = 16_384


def padded(rows: Sequence[list[int]]) -> NDArray[np.int64]:
    """Returns the rows as an array [n, length of the longest], filled up with PAD."""
    width = max(1, *map(len, rows))
    return np.array([row + [PAD] * (width - len(row)) for row in rows], np.int64)


class PromptEncoder:
    """Encodes the first `head` and the last `tail` word pieces of a prompt, between [CLS] and [SEP].

    Characters between them are cut before tokenisation, so that a prompt of a megabyte costs as much as one page.
    """

    def __init__(self, tokenizer: Path, head: int, tail: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._vocabulary = self._tokenizer.get_vocab()
        self._split = lru_cache(_REMEMBERED_WORDS)(self._ask)
        self._head = head
        self._tail = tail

    @property
    def width(self) -> int:
        """The largest number of ids that a prompt can have."""
        return self._head + self._tail + 2

    def ids(self, text: str) -> list[int]:
        head_chars, tail_chars = self._head * CHARS_PER_TOKEN, self._tail * CHARS_PER_TOKEN
        if len(text) <= head_chars + tail_chars:
            pieces = self._pieces(text)
            if len(pieces) > self._head + self._tail:
                pieces = pieces[: self._head] + pieces[len(pieces) - self._tail :]
        else:
            last = self._pieces(text[len(text) - tail_chars :])
            pieces = self._pieces(text[:head_chars])[: self._head] + last[max(0, len(last) - self._tail) :]
        return [CLS, *pieces, SEP]

    def _pieces(self, text: str) -> list[int]:
        """Returns the word pieces that the tokenizer gives for a text.

        Most words of plain English are one piece each and are looked up without a call of the tokenizer.
        """
        if not text.isascii() or _ODD.search(text):
            return self._ask(text)
        pieces: list[int] = []
        for word in _WORD.findall(text.lower()):
            known = self._vocabulary.get(word)
            if known is not None:
                pieces.append(known)
            else:
                pieces += self._split(word)
        return pieces

    def _ask(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
