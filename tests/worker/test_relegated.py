"""The claim of relegated work on service."""

import pytest

from hmas.worker.agent.order.relegated import Relegated, RelegatedConfig
from tests.worker.builders import entry, request

CONFIG = RelegatedConfig()


def held(*arrivals_s: float, work: float = 1.0) -> Relegated:
    relegated = Relegated(CONFIG)
    for seq, arrival_s in enumerate(arrivals_s):
        relegated.add(entry(seq, request(f"r{seq}", arrival_s=arrival_s)), work)
    return relegated


def served_until_its_turn(now_s: float) -> float:
    relegated, served = held(0.0), 0.0
    while relegated.claimant() is None:
        relegated.earn(now_s, 0.5)
        served += 0.5
    return served


def test_the_longest_waiting_one_comes_first_whatever_the_order_of_relegation() -> None:
    relegated = held(5.0, 3.0, 4.0)
    order = []
    while (oldest := relegated.oldest()) is not None:
        assert oldest.relegated
        order.append(oldest.request.arrival_s)
        relegated.remove(oldest)
    assert order == [3.0, 4.0, 5.0]


def test_the_claim_is_a_share_of_what_others_get_that_grows_with_age_to_a_bound() -> None:
    assert abs(served_until_its_turn(0.0) - 1.0 / CONFIG.share) <= 1.0
    assert abs(served_until_its_turn(1e6) - 1.0 / CONFIG.most_share) <= 1.0
    assert served_until_its_turn(0.0) > served_until_its_turn(600.0) > served_until_its_turn(1e6)


def test_credit_is_spent_and_does_not_outlive_the_relegated() -> None:
    relegated = held(0.0, 1.0)
    relegated.earn(0.0, 1.5 / CONFIG.share)
    first = relegated.claimant()
    assert first is not None
    assert first.has_turn
    relegated.spend(relegated.remove(first))
    assert not first.has_turn
    second = relegated.oldest()
    assert second is not None
    assert relegated.claimant() is None
    relegated.remove(second)
    assert relegated.claimant() is None
    relegated.add(second, 0.25)
    assert relegated.claimant() is None


def test_one_that_comes_and_goes_leaves_nothing_behind() -> None:
    relegated, other = held(0.0), entry(9, request("r9", arrival_s=9.0))
    for _ in range(1000):
        relegated.add(other, 1.0)
        relegated.remove(other)
    assert len(relegated) == len(list(relegated)) == 1
    assert len(relegated._items) < 100


def test_the_oldest_relegated_request_earns_its_turn() -> None:
    config = RelegatedConfig(share=0.25, growth_per_s=0.125, most_share=0.75)
    relegated = Relegated(config)
    assert relegated.claimant() is None
    younger, oldest = entry(1, request("b", arrival_s=12.0)), entry(2, request("a", arrival_s=10.0))
    relegated.add(younger, 1.0)
    relegated.add(oldest, 4.0)
    assert relegated.oldest() is oldest
    relegated.earn(12.0, 4.0)  # a share of 0.25 + 2 * 0.125
    assert relegated._credit == 2.0
    assert relegated.claimant() is None
    relegated.earn(9.0, 1.0)  # a clock that fell makes no negative age
    assert relegated._credit == 2.25
    relegated.earn(30.0, 1.0)  # at most 0.75
    assert relegated.claimant() is None
    relegated.earn(14.0, 1.0 + 1.0 / 3.0)  # 0.75 of it: exactly its work
    assert relegated._credit == pytest.approx(4.0)
    relegated._credit = 4.0
    assert relegated.claimant() is oldest
    assert oldest.has_turn
    assert relegated.remove(oldest) == 4.0
    assert not oldest.has_turn
    relegated.spend(3.0)
    assert relegated._credit == 1.0
    assert relegated.claimant() is younger
    relegated.spend(3.0)
    assert relegated._credit == 0.0
    assert relegated.claimant() is None
    relegated.earn(12.0, 8.0)
    relegated.remove(younger)
    assert relegated.claimant() is None
    assert relegated._credit == 0.0, "credit does not outlive those that it is owed to"


def test_relegated_requests_that_left_are_shed() -> None:
    relegated = Relegated(RelegatedConfig())
    made = [entry(i, request(f"r{i}", arrival_s=float(-i))) for i in range(1, 201)]
    for each in made:
        relegated.add(each, 1.0)
        relegated.add(each, 1.0)  # twice is once
    for each in made[10:]:
        relegated.remove(each)
        assert len(relegated._items) <= 2 * len(relegated) + 64
    assert relegated.oldest() is made[9]
    assert [each.seq for each in relegated] == list(range(1, 11))
