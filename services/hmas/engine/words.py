"""The words that emulated answers consist of."""

# Each word is one token under any production tokenizer; the emulated answer's meaning does not matter.
_WORDS = (
    b" the of and to in is that for it was on are with as his they be at one have this from or had by not but what all"
    b" were we when your can said there use an each which she do how their if will up other about out many then them"
    b" these so some her would make like him into time has look two more write go see no way could my than been"
)
WORDS = tuple(b" " + word for word in _WORDS.split())


def word(index: int) -> bytes:
    """Returns the text of an answer's token number `index`: plain ASCII that needs no escape in JSON."""
    return WORDS[index * 7 % len(WORDS)]


def words(count: int) -> bytes:
    """Returns the text of an answer of `count` tokens."""
    return b"".join(map(word, range(count)))
