"""What crosses processes of a pool's past requests: packed blocks of rows, and the question for them."""

from dataclasses import dataclass

OPEN_FROM = 2**39  # numbers of blocks whose requests have not ended; every other block's is below


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBlock:
    """A block of request rows. `age_s` is how long ago the instant was from which the rows' `arrival_s` count, and
    `span_s` the time from there to the latest end of a row. `rows` is what `hmas.laws.request_rows` packs."""

    number: int
    age_s: float
    span_s: float
    rows: bytes


@dataclass(frozen=True, slots=True)
class PastQuery:
    """Asks for the blocks of a pool with requests that ended in the last `last_s` seconds, or have not, from block
    `first` on."""

    pool: str
    last_s: float
    first: int = 0


@dataclass(frozen=True, slots=True)
class PastReply:
    """Blocks in order of their numbers, as many as a message holds. `following` is where to ask on; None: these are the
    last. `owner` is who answered, because numbers of two processes do not go together."""

    owner: str
    blocks: tuple[PastBlock, ...]
    following: int | None = None
