"""Which of the discovered engines belong to this worker: those whose leases it holds (docs/adr/0028).

The workers of a pool read the same source and take the leases of its engines by compare-and-swap. Each takes its share,
by the workers whose heartbeats it hears; one that has more hands one over at a time. A holder renews its leases; a
worker that saw no renewal for `ttl_s` seconds by its own clock takes over, with the next epoch. A holder that cannot
reach the bucket keeps its engines, because serving must not end with NATS; if another has taken one meanwhile, gateways
go by the higher epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never
from zlib import crc32

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import MAX_EPOCH
from hmas.contracts.ownership import (
    MAX_ENGINES,
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
from hmas.laws.transitions import following


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipConfig:
    """Durations in seconds. `holder` names this process, so that no other ever has the same name. `defer_s`: how
    long a worker that has its share waits, and how much longer for each engine beyond it, before it takes one that
    nobody else takes. `peer_s`: how long another worker counts after a heartbeat. `settle_s`: time between two
    hand-overs."""

    holder: str
    ttl_s: float = 3.0
    renew_s: float = 1.0
    defer_s: float = 1.5  # longer than `renew_s`, at which others look
    peer_s: float = WORKER_LOST_AFTER_S
    settle_s: float = 5.0


class OwnershipState(StrEnum):
    FREE = "free"  # another's or nobody's
    TAKING = "taking"  # this worker writes its name
    OWNED = "owned"
    LEAVING = "leaving"  # no longer to be used; the lease is kept until nothing runs there
    GONE = "gone"  # another's or nobody's while something of this worker runs there
    GIVING = "giving"  # this worker writes that it gives the lease up


TRANSITIONS: Mapping[OwnershipState, frozenset[OwnershipState]] = {
    OwnershipState.FREE: frozenset({OwnershipState.TAKING}),
    OwnershipState.TAKING: frozenset({OwnershipState.FREE, OwnershipState.OWNED, OwnershipState.GIVING}),
    OwnershipState.OWNED: frozenset({OwnershipState.LEAVING, OwnershipState.GONE, OwnershipState.GIVING}),
    OwnershipState.LEAVING: frozenset({OwnershipState.OWNED, OwnershipState.GONE, OwnershipState.GIVING}),
    OwnershipState.GONE: frozenset({OwnershipState.FREE}),
    OwnershipState.GIVING: frozenset({OwnershipState.FREE, OwnershipState.GONE}),
}
_HELD = (OwnershipState.OWNED, OwnershipState.LEAVING)


@dataclass(slots=True)
class _EngineLease:
    """An engine's lease as this worker knows it.

    `epoch` is the highest seen, its own while it holds the lease. `pending`: an answer of the bucket is awaited.
    `given_up`: the last write said so. `stale`: the source says something else of the engine than when it was taken, so
    that it must be left before anybody takes it again. `draining`: the engine was to be left and is not released yet.
    `due_s`: when the bucket is asked next. `seen`: another holder's last revision, and since when it is known.
    `free_since_s`: since when the lease is known to be free.
    """

    state: OwnershipState = OwnershipState.FREE
    epoch: int = 0
    revision: int = 0
    pending: bool = False
    given_up: bool = False
    stale: bool = False
    draining: bool = False
    due_s: float = 0.0
    seen: tuple[int, float] | None = None
    free_since_s: float | None = None

    def enter(self, state: OwnershipState) -> None:
        self.state = following(TRANSITIONS, self.state, state)


class EngineOwnership:
    """Takes, renews and gives up the leases of a pool's engines: `step` takes an `OwnershipEvent` and returns effects.

    The shell must send `OwnershipTicked` several times per second.
    """

    def __init__(self, config: OwnershipConfig) -> None:
        self._config = config
        self._wanted: frozenset[str] = frozenset()
        self._leases: dict[str, _EngineLease] = {}
        self._peers: dict[str, float] = {}  # when each was heard last
        self._settled_s = 0.0  # when this worker last took an engine or handed one over
        self._ended = False

    def step(self, now_s: float, event: OwnershipEvent) -> list[OwnershipEffect]:
        match event:
            case EnginesFound(engines, changed):
                return self._find(engines[:MAX_ENGINES], changed)
            case OwnershipTicked():
                return self._tick(now_s)
            case PeerHeard(worker):
                self._peers[worker] = now_s
                return []
            case OwnershipEnded():
                self._ended = True
                return self._give_up(list(self._leases))
        lease = self._leases.get(event.engine)
        if lease is None:
            return []
        match event:
            case LeaseSeen():
                lease.pending = False
                return self._see(now_s, lease, event)
            case LeaseWritten(_, revision):
                lease.pending = False
                return self._wrote(now_s, event.engine, lease, revision)
            case LeaseUnreachable():
                lease.pending = False
                if lease.state in (OwnershipState.TAKING, OwnershipState.GIVING):
                    self._free(lease)  # the next read tells whether it was written
                return self._forget(event.engine, lease)
            case EngineReleased():
                lease.draining = False
                if lease.state is OwnershipState.GONE:
                    lease.enter(OwnershipState.FREE)
                    return self._forget(event.engine, lease)
                return self._give_up([event.engine])
            case _:
                assert_never(event)

    def _find(self, engines: tuple[str, ...], changed: frozenset[str]) -> list[OwnershipEffect]:
        self._wanted = frozenset(engines)
        effects: list[OwnershipEffect] = []
        order = sorted(self._wanted, key=lambda name: crc32(f"{self._config.holder}/{name}".encode()))
        for name in order:  # in another order than other workers, so that they do not vie for the same
            lease = self._leases.setdefault(name, _EngineLease())
            lease.stale |= name in changed and lease.state in _HELD
            if lease.stale and lease.state is OwnershipState.OWNED:
                effects.append(self._leave(name, lease, "the source says something else of it now"))
            elif lease.state is OwnershipState.LEAVING and not lease.stale:
                lease.enter(OwnershipState.OWNED)
                lease.draining = False
                effects.append(ReturnEngine(name))
        for name in [name for name in self._leases if name not in self._wanted]:
            lease = self._leases[name]
            if lease.state is OwnershipState.OWNED:
                effects.append(self._leave(name, lease, "it is not among those found any more"))
            effects += self._forget(name, lease)
        return effects

    @staticmethod
    def _leave(name: str, lease: _EngineLease, reason: str) -> LeaveEngine:
        lease.enter(OwnershipState.LEAVING)
        lease.draining = True
        return LeaveEngine(name, reason)

    def _forget(self, name: str, lease: _EngineLease) -> list[OwnershipEffect]:
        if lease.state is OwnershipState.FREE and not lease.pending and name not in self._wanted:
            del self._leases[name]
        return []

    def _free(self, lease: _EngineLease) -> None:
        lease.enter(OwnershipState.GONE if lease.draining else OwnershipState.FREE)

    def _owned(self) -> int:
        return sum(each.state in (OwnershipState.OWNED, OwnershipState.TAKING) for each in self._leases.values())

    def _share(self) -> int:
        """Returns how many engines each worker has where they are shared out."""
        return -(-len(self._wanted) // (len(self._peers) + 1))

    def _hand_over(self, now_s: float) -> list[OwnershipEffect]:
        """Gives one engine up if this worker has more than its share. What runs there goes on: the worker that takes
        the engine sees it in the engine's own count."""
        if self._ended or self._owned() <= self._share() or now_s - self._settled_s < self._config.settle_s:
            return []
        held = [name for name, each in self._leases.items() if each.state is OwnershipState.OWNED]
        if not held:
            return []
        self._settled_s = now_s
        self._leases[held[-1]].draining = True
        return [LeaveEngine(held[-1], "another worker has fewer"), *self._give_up([held[-1]])]

    def _tick(self, now_s: float) -> list[OwnershipEffect]:
        self._peers = {peer: at_s for peer, at_s in self._peers.items() if now_s - at_s <= self._config.peer_s}
        effects = self._hand_over(now_s)
        for name, lease in self._leases.items():
            if lease.pending or now_s < lease.due_s:
                continue
            lease.due_s = now_s + self._config.renew_s
            if lease.state in _HELD:
                effects.append(self._write(name, lease, lease.revision))
            elif lease.state is OwnershipState.GIVING:
                effects.append(self._write(name, lease, lease.revision, holder=""))
            elif lease.state is OwnershipState.FREE and not self._ended:
                lease.pending = True
                effects.append(ReadLease(name))
        return effects

    def _write(self, name: str, lease: _EngineLease, revision: int, holder: str | None = None) -> WriteLease:
        lease.pending, lease.given_up = True, holder == ""
        return WriteLease(name, self._config.holder if holder is None else holder, lease.epoch, revision)

    def _give_up(self, names: list[str]) -> list[OwnershipEffect]:
        """Gives up those of the leases that are held, so that another worker can take them at once. One whose answer is
        awaited is given up when that has come."""
        effects: list[OwnershipEffect] = []
        for name in names:
            lease = self._leases[name]
            if lease.state not in _HELD:
                continue
            lease.enter(OwnershipState.GIVING)
            if not lease.pending:
                effects.append(self._write(name, lease, lease.revision, holder=""))
        return effects

    def _see(self, now_s: float, lease: _EngineLease, seen: LeaseSeen) -> list[OwnershipEffect]:
        mine = seen.holder == self._config.holder
        if lease.state in _HELD:
            if not mine and seen.holder:
                lease.epoch = max(lease.epoch, seen.epoch)
                lease.seen = (seen.revision, now_s)
                lease.enter(OwnershipState.GONE)
                if lease.draining:
                    return []
                lease.draining = True
                return [LeaveEngine(seen.engine, f"{seen.holder} has taken it over")]
            return [self._write(seen.engine, lease, seen.revision)]  # also where NATS has lost it
        if lease.state is not OwnershipState.FREE or seen.engine not in self._wanted or self._ended:
            return self._forget(seen.engine, lease)
        lease.epoch = max(lease.epoch, seen.epoch)
        if not self._is_free(now_s, lease, seen, mine=mine):
            lease.free_since_s = None
            return []
        if lease.free_since_s is None:
            lease.free_since_s = now_s
        take_s = lease.free_since_s + self._config.defer_s * max(0, self._owned() + 1 - self._share())
        if now_s < take_s:
            lease.due_s = min(lease.due_s, take_s)
            return []
        lease.epoch = lease.epoch + 1 if lease.epoch + 1 < MAX_EPOCH else 1
        lease.enter(OwnershipState.TAKING)
        return [self._write(seen.engine, lease, seen.revision)]

    def _is_free(self, now_s: float, lease: _EngineLease, seen: LeaseSeen, *, mine: bool) -> bool:
        """Returns whether a lease may be taken. One that has vanished with the bucket is left to its last holder for
        `ttl_s` seconds."""
        if mine or (not seen.holder and (seen.revision or lease.seen is None)):
            return True
        if seen.holder and (lease.seen is None or lease.seen[0] != seen.revision):
            lease.seen = (seen.revision, now_s)
        return lease.seen is not None and now_s - lease.seen[1] > self._config.ttl_s

    def _wrote(self, now_s: float, name: str, lease: _EngineLease, revision: int | None) -> list[OwnershipEffect]:
        match lease.state:
            case OwnershipState.TAKING if revision is None:
                lease.enter(OwnershipState.FREE)
                lease.free_since_s, lease.due_s = None, now_s
                return self._forget(name, lease)
            case OwnershipState.TAKING if revision is not None:
                lease.enter(OwnershipState.OWNED)
                self._settled_s = now_s
                lease.revision, lease.seen, lease.free_since_s, lease.stale = revision, None, None, False
                if name not in self._wanted or self._ended:
                    return self._give_up([name])
                return [TakeEngine(name, lease.epoch)]
            case OwnershipState.OWNED | OwnershipState.LEAVING:
                if revision is None:
                    lease.pending = True
                    return [ReadLease(name)]
                lease.revision = revision
            case OwnershipState.GIVING if not lease.given_up and revision is not None:  # a renewal was on its way
                return [self._write(name, lease, revision, holder="")]
            case OwnershipState.GIVING:
                self._free(lease)
                return self._forget(name, lease)
            case _:
                pass
        return []
