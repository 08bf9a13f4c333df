"""When a message of an older epoch is ignored."""

from hmas.laws.epochs import FORGOTTEN_AFTER_S, is_outdated


def test_an_older_epoch_counts_again_once_the_newer_one_is_silent() -> None:
    """Otherwise nobody would ever hear a leader whose epochs began anew."""
    assert not is_outdated(7, 7, 0.0, 1.0)
    assert not is_outdated(8, 7, 0.0, 1.0)
    assert is_outdated(1, 7, 0.0, 1.0)
    assert is_outdated(1, 2**40 - 1, 0.0, FORGOTTEN_AFTER_S)
    assert not is_outdated(1, 2**40 - 1, 0.0, FORGOTTEN_AFTER_S + 0.001)


def test_the_newest_epoch_and_one_above_it_count_at_any_age() -> None:
    for epoch in (7, 8):
        for now_s in (5.0, 5.0 + FORGOTTEN_AFTER_S, 99.0):
            assert not is_outdated(epoch, 7, 5.0, now_s)
    assert is_outdated(6, 7, 5.0, 5.0 + FORGOTTEN_AFTER_S)
    assert not is_outdated(6, 7, 5.0, 5.1 + FORGOTTEN_AFTER_S)
