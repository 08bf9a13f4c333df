"""What scheduling would bring, in one line and over many windows."""

import pytest

from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.laws.scheduling_gains import gain_sum, told_gain, unknown_gain


def gain(requests: int, was: float, scheduled: float, abstains: str = "") -> SchedulingGain:
    return SchedulingGain(
        pool="m", window_s=300.0, requests=requests, was=was, played=was, scheduled=scheduled, low=scheduled - 0.02,
        high=scheduled + 0.02, engines=2, topology="max_on_time", abstains=abstains,
    )  # fmt: skip


def test_a_gain_is_told_in_one_line() -> None:
    assert told_gain(gain(500, 0.76, 0.97)) == "on time: 76% as it was, 97% as scheduled (95% to 99%)"
    few = told_gain(gain(50, 0.76, 0.76, "50 requests tell nothing"))
    assert few == "on time: 76% as it was; as scheduled it cannot be said: 50 requests tell nothing"
    assert told_gain(unknown_gain("m", 2, "edf", "no pace")) == "on time: as scheduled it cannot be said: no pace"


def test_windows_count_by_their_requests_and_abstentions_not_at_all() -> None:
    wild = gain(900, 0.1, 1.0, "the simulation of what is in force has 50.0% ...: it misses by 40.0 points")
    total = gain_sum([gain(300, 0.5, 0.9), gain(100, 0.9, 0.9), wild, gain(9, 1.0, 1.0, "fewer than 100 tell nothing")])
    assert (total.told, total.abstained, total.requests) == (2, 2, 400)
    assert total.was == pytest.approx(0.6)
    assert total.scheduled == pytest.approx(0.9)
    assert [total.low, total.high] == pytest.approx([0.88, 0.92])
    assert sorted(total.reasons.values()) == [1, 1]


def test_where_nothing_was_told_there_is_no_share() -> None:
    assert gain_sum([gain(9, 1.0, 1.0, "why")]).scheduled is None
    assert gain_sum([]).was is None
