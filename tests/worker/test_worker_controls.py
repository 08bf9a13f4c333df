"""Which control is in force, and until when."""

from hmas.contracts.control import (
    TopologyDecision,
    TopologyName,
)
from hmas.worker.agent.controls import ControlState, Latest
from tests.builders.control import control_tuple, topology_decision


def test_controls_age_before_they_arrive_and_renew() -> None:
    controls = ControlState("w1", "m")
    decision = topology_decision(valid_for_s=10.0, reason="", selector="")
    assert not controls.take_decision(0.0, decision, 10.0)  # an old value from the bucket
    assert controls.take_decision(0.0, decision, 4.0)
    assert controls.take_decision(5.0, decision, 0.0)
    assert controls.expire(14.9) == []
    before = controls.topology[0]
    assert controls.expire(15.0) == ["topology"]
    assert controls.expire(16.0) == []
    assert (before, controls.topology[0]) == (TopologyName.EDF, TopologyName.FCFS)
    assert controls.take_decision(17.0, decision, 0.0)
    assert controls.expired  # there is no tuple
    assert controls.take_tuple(17.0, control_tuple(valid_for_s=10.0), 0.0)
    assert not controls.expired
    other = topology_decision(TopologyName.SJF, pool="another", epoch=9, valid_for_s=10.0, reason="", selector="")
    assert not controls.take_decision(17.0, other, 0.0)


def test_the_newest_control_is_in_force_until_the_instant_that_ends_it() -> None:
    kept: Latest[TopologyDecision] = Latest()
    second = topology_decision(epoch=2, seq=5, valid_for_s=2.0)
    assert not kept.expire(0.0)
    assert kept.offer(10.0, second, 0.5)  # until 11.5
    for older in (topology_decision(epoch=1, seq=9), topology_decision(epoch=2, seq=4)):
        assert not kept.offer(10.0, older, 0.0)
    assert kept.value is second
    assert not kept.offer(10.0, topology_decision(epoch=3, seq=1, valid_for_s=2.0), 2.0), "it is over on arrival"
    assert kept.offer(10.5, second, 1.5)  # the same one, delivered again and late, shortens nothing
    assert not kept.expire(11.25)
    assert kept.offer(11.0, second, 0.0)  # until 13
    assert not kept.expire(12.75)
    assert not kept.expired
    assert kept.expire(13.0)
    assert kept.value is None
    assert kept.expired is True
    assert not kept.expire(14.0), "it expires once"
    first = topology_decision(epoch=1, seq=0, valid_for_s=1.0)
    assert kept.offer(14.0, first, 0.0), "after an expiry any epoch counts"
    assert not kept.expired
    newer = topology_decision(epoch=1, seq=1, valid_for_s=0.5)
    assert kept.offer(14.0, newer, 0.0)
    assert kept.expire(14.5), "a newer one ends when it says itself"
