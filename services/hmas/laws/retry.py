"""When a refused client should come back."""

MIN_RETRY_S = 1.0


def retry_after_s(wait_s: float, longest_s: float) -> float:
    """`wait_s` is when there is expected to be room again, kept between a second and `longest_s`."""
    return min(longest_s, max(MIN_RETRY_S, wait_s))
