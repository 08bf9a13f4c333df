"""Prompt text to token ids, head and tail of it, at a bounded cost."""

from pathlib import Path

from tokenizers import Tokenizer

CLS, SEP, PAD = 101, 102, 0  # BERT uncased vocabulary
# A word piece is 4-5 characters; 8 a token leaves the window full for all but the oddest text.
CHARS_PER_TOKEN = 8


class PromptEncoder:
    """The first `head` and the last `tail` word pieces of a prompt, between [CLS] and [SEP].

    Characters beyond the window are cut before tokenisation, so a prompt of a megabyte costs what a page does.
    """

    def __init__(self, tokenizer: Path, head: int, tail: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._head = head
        self._tail = tail

    @property
    def width(self) -> int:
        """Most ids a prompt can have."""
        return self._head + self._tail + 2

    def ids(self, text: str) -> list[int]:
        head_chars, tail_chars = self._head * CHARS_PER_TOKEN, self._tail * CHARS_PER_TOKEN
        if len(text) <= head_chars + tail_chars:
            pieces = self._pieces(text)
            if len(pieces) > self._head + self._tail:
                pieces = pieces[: self._head] + pieces[-self._tail :]
        else:
            pieces = self._pieces(text[:head_chars])[: self._head] + self._pieces(text[-tail_chars:])[-self._tail :]
        return [CLS, *pieces, SEP]

    def _pieces(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
