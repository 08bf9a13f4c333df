"""When a worker takes, renews and gives up the lease of an engine: at the very instants of the rules."""

from hmas.contracts.control import MAX_EPOCH
from hmas.contracts.ownership import (
    EngineReleased,
    EnginesFound,
    LeaseSeen,
    LeaseUnreachable,
    LeaseWritten,
    LeaveEngine,
    OwnershipEffect,
    OwnershipEnded,
    OwnershipTicked,
    PeerHeard,
    ReadLease,
    TakeEngine,
    WriteLease,
)
from hmas.worker.discovery.agent.ownership import EngineOwnership, OwnershipConfig

CONFIG = OwnershipConfig(holder="me", ttl_s=3.0, renew_s=1.0, defer_s=1.5, peer_s=10.0, settle_s=5.0)


def ownership(*engines: str, now_s: float = 0.0) -> EngineOwnership:
    """A worker that holds the leases of these engines, taken at `now_s`; each has revision 1."""
    agent = EngineOwnership(CONFIG)
    agent.step(now_s, EnginesFound(engines, frozenset()))
    agent.step(now_s, OwnershipTicked())
    for name in engines:
        agent.step(now_s, LeaseSeen(name, "", 0, 0))
        assert agent.step(now_s, LeaseWritten(name, 1)) == [TakeEngine(name, 1)]
    return agent


def renewed(agent: EngineOwnership, now_s: float) -> list[OwnershipEffect]:
    """What a tick does; the bucket takes all that it writes."""
    effects = agent.step(now_s, OwnershipTicked())
    for effect in effects:
        if isinstance(effect, WriteLease):
            agent.step(now_s, LeaseWritten(effect.engine, effect.revision + 1))
    return effects


def test_a_lease_is_renewed_once_a_period() -> None:
    agent = ownership("e1")
    assert agent.step(0.75, OwnershipTicked()) == []
    assert agent.step(1.0, OwnershipTicked()) == [WriteLease("e1", "me", 1, 1)]
    assert agent.step(2.0, OwnershipTicked()) == [], "an answer is awaited"
    agent.step(2.0, LeaseWritten("e1", 7))
    assert agent.step(2.0, OwnershipTicked()) == [WriteLease("e1", "me", 1, 7)]
    assert agent.step(2.5, LeaseWritten("e1", None)) == [ReadLease("e1")]
    assert agent.step(2.5, LeaseSeen("e1", "", 0, 9)) == [WriteLease("e1", "me", 1, 9)]
    agent.step(2.5, LeaseUnreachable("e1"))
    assert agent.step(3.0, OwnershipTicked()) == [WriteLease("e1", "me", 1, 7)]


def test_another_holder_is_given_its_time_from_its_last_renewal() -> None:
    agent = EngineOwnership(CONFIG)
    agent.step(0.0, EnginesFound(("e1",), frozenset()))
    assert agent.step(0.0, OwnershipTicked()) == [ReadLease("e1")]
    assert agent.step(0.0, LeaseSeen("e1", "other", 4, 1)) == []
    assert agent.step(2.0, LeaseSeen("e1", "other", 4, 2)) == []
    assert agent.step(5.0, LeaseSeen("e1", "other", 4, 2)) == []
    (taking,) = agent.step(5.25, LeaseSeen("e1", "other", 4, 2))
    assert taking == WriteLease("e1", "me", 5, 2)
    assert agent.step(5.25, LeaseWritten("e1", None)) == [], "somebody was faster"
    assert agent.step(5.25, OwnershipTicked()) == [ReadLease("e1")]
    (taking,) = agent.step(5.5, LeaseSeen("e1", "", MAX_EPOCH - 2, 3))
    assert taking == WriteLease("e1", "me", MAX_EPOCH - 1, 3)
    agent.step(5.5, LeaseUnreachable("e1"))
    (taking,) = agent.step(6.0, LeaseSeen("e1", "", 0, 4))
    assert taking == WriteLease("e1", "me", 1, 4), "epochs begin anew"


def test_beyond_its_share_a_worker_waits_longer_for_each_engine() -> None:
    agent = EngineOwnership(CONFIG)
    agent.step(0.0, PeerHeard("other"))
    agent.step(0.0, EnginesFound(("e1", "e2", "e3"), frozenset()))
    agent.step(0.0, OwnershipTicked())
    for name in ("e1", "e2"):  # its share of three among two
        assert agent.step(0.0, LeaseSeen(name, "", 0, 0)) == [WriteLease(name, "me", 1, 0)]
        agent.step(0.0, LeaseWritten(name, 1))
    assert agent.step(0.0, LeaseSeen("e3", "", 0, 0)) == []
    assert agent.step(1.25, LeaseSeen("e3", "", 0, 0)) == []
    assert agent.step(1.5, LeaseSeen("e3", "", 0, 0)) == [WriteLease("e3", "me", 1, 0)]
    agent.step(1.5, LeaseWritten("e3", 1))
    for now_s in (6.25, 6.5):
        left = [effect for effect in renewed(agent, now_s) if isinstance(effect, LeaveEngine)]
        assert len(left) == (now_s == 6.5), "one is handed over when `settle_s` has passed"
    assert [effect for effect in renewed(agent, 12.0) if isinstance(effect, LeaveEngine)] == []


def test_a_peer_counts_for_its_time() -> None:
    agent = ownership("e1", "e2")
    agent.step(5.0, PeerHeard("other"))
    assert [e.engine for e in renewed(agent, 5.0) if isinstance(e, LeaveEngine)] == [list(agent._leases)[-1]]
    agent = ownership("e1", "e2")
    agent.step(5.0, PeerHeard("other"))
    assert not any(isinstance(e, LeaveEngine) for e in renewed(agent, 15.25)), "it was not heard for too long"


def test_what_was_handed_over_is_not_taken_again_before_it_is_released() -> None:
    agent = ownership("e1", "e2", "e3")
    *kept, last = agent._leases
    agent.step(5.0, PeerHeard("other"))
    effects = agent.step(5.0, OwnershipTicked())
    assert effects[:2] == [LeaveEngine(last, "another worker has fewer"), WriteLease(last, "", 1, 1)]
    agent.step(5.0, LeaseWritten(last, 2))
    assert agent.step(9.0, OwnershipTicked()) == [], "the others' answers are awaited, and something runs there"
    agent.step(9.0, EngineReleased(last))
    assert agent.step(10.0, OwnershipTicked()) == [ReadLease(last)]
    assert not any(agent._leases[name].draining for name in kept)


def test_a_worker_that_ends_takes_nothing_any_more() -> None:
    agent = ownership("e1")
    assert agent.step(1.0, OwnershipEnded()) == [WriteLease("e1", "", 1, 1)]
    agent.step(1.0, LeaseWritten("e1", 2))
    assert agent.step(5.0, OwnershipTicked()) == []
    assert agent.step(5.0, LeaseSeen("e1", "", 1, 2)) == []
