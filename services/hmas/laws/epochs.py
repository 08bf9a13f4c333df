"""When a message of an older epoch is ignored, because the copy that sent it has lost its lease (DESIGN §3.2)."""

MAX_SEQ = 2**53  # numbers that a new writer goes on from; what it adds to them never reaches the bound of the wire
FORGOTTEN_AFTER_S = 15.0  # three times the slowest of what leaders repeat


def is_outdated(epoch: int, newest: int, heard_s: float, now_s: float) -> bool:
    """Tells whether a message of `epoch` is to be ignored, because one of the epoch `newest` was taken at `heard_s`.

    A newer epoch of which nothing was heard for FORGOTTEN_AFTER_S does not count: its store was lost, so that epochs
    began anew, or a stranger made it up.
    """
    return epoch < newest and now_s - heard_s <= FORGOTTEN_AFTER_S
