"""When a message of an older epoch is ignored."""

from hmas.laws.epochs import FORGOTTEN_AFTER_S, is_outdated


def test_an_older_epoch_counts_again_once_the_newer_one_is_silent() -> None:
    """Otherwise nobody would ever hear a leader whose epochs began anew."""
    assert not is_outdated(7, 7, 0.0, 1.0)
    assert not is_outdated(8, 7, 0.0, 1.0)
    assert is_outdated(1, 7, 0.0, 1.0)
    assert is_outdated(1, 2**40 - 1, 0.0, FORGOTTEN_AFTER_S)
    assert not is_outdated(1, 2**40 - 1, 0.0, FORGOTTEN_AFTER_S + 0.001)
