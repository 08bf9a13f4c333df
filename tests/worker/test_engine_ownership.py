"""Workers share out the engines that they discover by leases, over a bucket that has real compare-and-swap."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.ownership import (
    EngineReleased,
    EnginesFound,
    LeaseSeen,
    LeaseUnreachable,
    LeaseWritten,
    LeaveEngine,
    OwnershipEffect,
    OwnershipEnded,
    OwnershipEvent,
    OwnershipTicked,
    PeerHeard,
    ReadLease,
    ReturnEngine,
    TakeEngine,
    WriteLease,
)
from hmas.worker.discovery.agent.ownership import EngineOwnership, OwnershipConfig

TICK_S = 0.1


@dataclass
class SharedBucket:
    """Leases with their revisions, as NATS keeps them."""

    leases: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # holder, epoch, revision
    revision: int = 0

    def answer(self, effect: ReadLease | WriteLease) -> OwnershipEvent:
        holder, epoch, revision = self.leases.get(effect.engine, ("", 0, 0))
        if isinstance(effect, ReadLease):
            return LeaseSeen(effect.engine, holder, epoch, revision)
        if effect.revision != revision:
            return LeaseWritten(effect.engine, None)
        self.revision += 1
        self.leases[effect.engine] = effect.holder, effect.epoch, self.revision
        return LeaseWritten(effect.engine, self.revision)


class Contender:
    """One worker's ownership and what it has; `alive` false: it does nothing at all."""

    def __init__(self, name: str, bucket: SharedBucket) -> None:
        self.name, self.bucket = name, bucket
        self.agent = EngineOwnership(OwnershipConfig(holder=name))
        self.has: dict[str, int] = {}  # engines that it may grant on, with their epochs
        self.said: list[OwnershipEffect] = []
        self.alive = self.reaches = True
        self.releases = True  # nothing runs on an engine that it leaves

    def step(self, now_s: float, event: OwnershipEvent) -> None:
        for effect in self.agent.step(now_s, event):
            self.said.append(effect)
            match effect:
                case ReadLease() | WriteLease():
                    answer = self.bucket.answer(effect) if self.reaches else LeaseUnreachable(effect.engine)
                    self.step(now_s, answer)
                case TakeEngine(engine, epoch):
                    self.has[engine] = epoch
                case LeaveEngine(engine):
                    del self.has[engine]
                    if self.releases:
                        self.step(now_s, EngineReleased(engine))
                case ReturnEngine(engine):
                    self.has[engine] = self.bucket.leases[engine][1]


class Workers:
    def __init__(self, *names: str) -> None:
        self.bucket = SharedBucket()
        self.each = {name: Contender(name, self.bucket) for name in names}
        self.now_s = 0.0

    def find(self, *engines: str, at: Iterable[str] = (), changed: Iterable[str] = ()) -> None:
        for name in at or self.each:
            if self.each[name].alive:
                self.each[name].step(self.now_s, EnginesFound(engines, frozenset(changed)))

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            alive = [worker for worker in self.each.values() if worker.alive]
            for worker in alive:
                for peer in alive:
                    if peer is not worker and peer.reaches and worker.reaches:
                        worker.step(self.now_s, PeerHeard(peer.name))
                worker.step(self.now_s, OwnershipTicked())
            self.check()

    def check(self) -> None:
        """No two workers that reach the bucket and are alive believe that they have an engine; of any two that do, the
        epochs differ."""
        holders: dict[tuple[str, int], str] = {}
        for worker in self.each.values():
            for engine, epoch in worker.has.items():
                assert (engine, epoch) not in holders, (engine, epoch, worker.name, holders)
                holders[engine, epoch] = worker.name

    def owners(self) -> dict[str, str]:
        return {engine: worker.name for worker in self.each.values() if worker.alive for engine in worker.has}


def test_an_engine_of_which_the_source_says_something_else_is_left_and_taken_anew() -> None:
    workers = Workers("a")
    workers.find("e1")
    workers.wait(3.0)
    (agent,) = workers.each.values()
    agent.releases = False  # something runs there
    workers.find("e1", changed=("e1",))
    assert not workers.owners()
    workers.find("e1")  # read again while it drains: that does not bring it back as it was
    workers.wait(3.0)
    assert not workers.owners()
    agent.step(workers.now_s, EngineReleased("e1"))
    workers.wait(3.0)
    assert workers.owners() == {"e1": "a"}
    taken = [effect for effect in agent.said if isinstance(effect, TakeEngine | LeaveEngine | ReturnEngine)]
    assert [type(effect).__name__ for effect in taken] == ["TakeEngine", "LeaveEngine", "TakeEngine"]
    workers.find()
    workers.find("e1")  # and as it was taken it may return
    assert isinstance(agent.said[-1], ReturnEngine)


def test_workers_that_start_together_share_the_engines_out() -> None:
    workers = Workers("a", "b")
    workers.find("e1", "e2", "e3", "e4")
    workers.wait(3.0)
    assert sorted(len(worker.has) for worker in workers.each.values()) == [2, 2]
    assert len(workers.owners()) == 4


def test_a_worker_that_comes_later_gets_its_share_one_engine_at_a_time() -> None:
    workers = Workers("a", "b")
    workers.each["b"].alive = False
    workers.find("e1", "e2", "e3", "e4")
    workers.wait(3.0)
    assert len(workers.each["a"].has) == 4
    workers.each["b"].alive = True
    workers.find("e1", "e2", "e3", "e4", at=["b"])
    workers.each["a"].releases = False  # what runs there does not hold the engines up
    workers.wait(4.0)
    assert len(workers.each["b"].has) == 1
    workers.wait(20.0)
    assert sorted(len(worker.has) for worker in workers.each.values()) == [2, 2]
    assert len(workers.owners()) == 4


def test_an_engine_is_not_taken_again_while_this_workers_old_runs_go_on_there() -> None:
    workers = Workers("a", "b")
    workers.find("e1", "e2")
    workers.wait(2.0)
    assert len(workers.each["a"].has) == 1
    workers.each["b"].alive = False
    workers.wait(8.0)
    assert len(workers.each["a"].has) == 2
    workers.each["a"].releases = False
    workers.each["b"].alive = True
    workers.wait(12.0)
    assert len(workers.each["b"].has) == 1
    workers.each["b"].alive = False
    workers.wait(12.0)
    (given,) = {"e1", "e2"} - workers.each["a"].has.keys()
    workers.each["a"].step(workers.now_s, EngineReleased(given))
    workers.wait(5.0)
    assert workers.owners() == {"e1": "a", "e2": "a"}


def test_a_dead_workers_engines_move_after_its_lease_and_not_before() -> None:
    workers = Workers("a", "b")
    workers.find("e1", at=["a"])
    workers.wait(1.0)
    workers.find("e1", at=["b"])
    workers.wait(10.0)
    assert workers.owners() == {"e1": "a"}
    workers.each["a"].alive = False
    workers.wait(1.9)
    assert not workers.each["b"].has
    workers.wait(4.0)
    assert workers.owners() == {"e1": "b"}
    assert workers.each["b"].has["e1"] > workers.each["a"].has["e1"]


def test_a_worker_that_froze_learns_that_its_engine_is_anothers() -> None:
    workers = Workers("a", "b")
    workers.find("e1", at=["a"])
    workers.wait(1.0)
    workers.find("e1", at=["b"])
    workers.each["a"].alive = False
    workers.wait(8.0)
    workers.each["a"].alive = True
    workers.wait(1.5)
    assert workers.owners() == {"e1": "b"}
    assert not workers.each["a"].has
    assert LeaveEngine("e1", "b has taken it over") in workers.each["a"].said


def test_while_nats_is_gone_everyone_keeps_what_it_has() -> None:
    workers = Workers("a", "b")
    workers.find("e1", "e2")
    workers.wait(2.0)
    before = workers.owners()
    for worker in workers.each.values():
        worker.reaches = False
    workers.wait(30.0)
    assert workers.owners() == before
    assert len(before) == 2


def test_after_nats_has_lost_the_leases_their_holders_write_them_again() -> None:
    workers = Workers("a", "b")
    workers.find("e1", "e2")
    workers.wait(3.0)
    before = workers.owners()
    workers.bucket.leases.clear()
    workers.wait(10.0)
    assert workers.owners() == before
    assert {engine: holder for engine, (holder, *_) in workers.bucket.leases.items()} == before


def test_an_engine_that_is_found_no_more_is_left_and_its_lease_given_up() -> None:
    workers = Workers("a")
    workers.find("e1")
    workers.wait(1.0)
    workers.each["a"].releases = False
    workers.find()
    assert workers.each["a"].said[-1] == LeaveEngine("e1", "it is not among those found any more")
    workers.wait(5.0)
    assert workers.bucket.leases["e1"][0] == "a"  # while something runs there, nobody else may have it
    workers.each["a"].step(workers.now_s, EngineReleased("e1"))
    assert workers.bucket.leases["e1"][0] == ""


def test_an_engine_that_returns_before_it_is_released_is_used_at_once() -> None:
    workers = Workers("a")
    workers.find("e1")
    workers.wait(1.0)
    workers.each["a"].releases = False
    workers.find()
    workers.find("e1")
    assert workers.each["a"].said[-1] == ReturnEngine("e1")
    workers.wait(5.0)
    assert workers.owners() == {"e1": "a"}


def test_a_worker_that_ends_gives_its_engines_to_the_others_at_once() -> None:
    workers = Workers("a", "b")
    workers.find("e1", "e2")
    workers.wait(3.0)
    workers.each["a"].step(workers.now_s, OwnershipEnded())
    workers.each["a"].alive = False
    workers.wait(2.9)  # less than a lease lasts
    assert set(workers.owners().values()) == {"b"}
    assert len(workers.owners()) == 2


def test_a_lease_that_ends_with_a_write_on_its_way_is_given_up_after_it() -> None:
    agent = EngineOwnership(OwnershipConfig(holder="a"))
    agent.step(0.0, EnginesFound(("e1",)))
    assert agent.step(0.1, OwnershipTicked()) == [ReadLease("e1")]
    assert agent.step(0.1, LeaseSeen("e1", "", 0, 0)) == [WriteLease("e1", "a", 1, 0)]
    assert agent.step(0.1, LeaseWritten("e1", 7)) == [TakeEngine("e1", 1)]
    assert agent.step(1.2, OwnershipTicked()) == [WriteLease("e1", "a", 1, 7)]
    assert agent.step(1.3, OwnershipEnded()) == []
    assert agent.step(1.3, LeaseWritten("e1", 8)) == [WriteLease("e1", "", 1, 8)]


@given(
    st.lists(
        st.sampled_from(["kill a", "kill b", "cut a", "cut b", "wake", "lose", "e1", "e1 e2 e3", "none", "wait"]),
        max_size=25,
    )
)
def test_whatever_happens_each_engine_ends_with_one_worker(script: list[str]) -> None:
    workers = Workers("a", "b", "c")
    for act in ["e1 e2 e3", *script]:
        match act.split():
            case ["kill", name]:
                workers.each[name].alive = False
            case ["cut", name]:
                workers.each[name].reaches = False
            case ["wake"]:
                for worker in workers.each.values():
                    worker.alive = worker.reaches = True
            case ["lose"] if all(worker.alive and worker.reaches for worker in workers.each.values()):
                workers.bucket.leases.clear()
            case ["none"]:
                workers.find()
            case engines if engines[0].startswith("e"):
                workers.find(*engines)
        workers.wait(1.3)
    for worker in workers.each.values():
        worker.alive = worker.reaches = True
    workers.find("e1", "e2", "e3")
    workers.wait(25.0)
    assert sorted(engine for worker in workers.each.values() for engine in worker.has) == ["e1", "e2", "e3"]
