"""What is believed of the figures and texts that an engine reports. An engine may say anything: NaN, 1e300, 300 kB."""

MOST = float(2**40)  # of any figure: tokens since an engine started, a size, seconds
MOST_TOKENS = float(2**31)  # of one request
MAX_TEXT = 1000  # characters of an engine's text in an answer, a message or a log line


def sane(value: object, most: float = MOST) -> float | None:
    """Returns a figure as a number, or None if it is not to be believed: it is not a number, not finite, negative, or
    above `most`. A text that reads as a number is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if 0.0 <= number <= most else None  # NaN compares as false


def sane_int(value: object, most: float = MOST) -> int | None:
    """Returns a figure as a whole number, rounded down, or None if it is not to be believed (see `sane`)."""
    number = sane(value, most)
    return None if number is None else int(number)


def shortened(text: str) -> str:
    """Returns an engine's text as it may be passed on: at most `MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
