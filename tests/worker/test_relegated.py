"""The claim of relegated work on service."""

from hmas.worker.agent.relegated import Relegated, RelegatedConfig
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
