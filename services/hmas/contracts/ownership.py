"""The events and effects by which workers share out the engines that they discover: each engine belongs to the worker
that holds its lease."""

from dataclasses import dataclass

MAX_ENGINES = 1024  # that one worker looks after, its own and those that it could take over


# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnginesFound:
    """The engines of the pool, by name, as the source tells now. Those beyond `MAX_ENGINES` are left out. `changed`:
    the source says something else of them than when this worker took them."""

    engines: tuple[str, ...]
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """What the bucket has for an engine: who holds it ("": nobody), the epoch of the last holder, and the revision that
    the next write must name (0: nothing was ever written)."""

    engine: str
    holder: str
    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class LeaseWritten:
    """A lease was written, under this revision; None: another worker has written in between."""

    engine: str
    revision: int | None


@dataclass(frozen=True, slots=True)
class LeaseUnreachable:
    """The bucket could not be read or written."""

    engine: str


@dataclass(frozen=True, slots=True)
class EngineReleased:
    """Nothing of this worker runs any more on an engine that it was told to leave."""

    engine: str


@dataclass(frozen=True, slots=True)
class PeerHeard:
    """Another worker of the pool has sent a heartbeat."""

    worker: str


@dataclass(frozen=True, slots=True)
class OwnershipTicked:
    """Time has passed: leases may be due."""


@dataclass(frozen=True, slots=True)
class OwnershipEnded:
    """The worker shuts down: another may have its engines at once."""


OwnershipEvent = (
    EnginesFound
    | LeaseSeen
    | LeaseWritten
    | LeaseUnreachable
    | EngineReleased
    | PeerHeard
    | OwnershipTicked
    | OwnershipEnded
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the lease of an engine; `LeaseSeen` or `LeaseUnreachable` follows."""

    engine: str


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write the lease of an engine if it still has `revision`; `LeaseWritten` or `LeaseUnreachable` follows. `holder`
    "" gives it up."""

    engine: str
    holder: str
    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class TakeEngine:
    """Begin to watch an engine, which belongs to this worker from now on."""

    engine: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaveEngine:
    """Grant nothing more on an engine, because `reason`; `EngineReleased` follows."""

    engine: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReturnEngine:
    """Use an engine again that was to be left and was not released yet."""

    engine: str


OwnershipEffect = ReadLease | WriteLease | TakeEngine | LeaveEngine | ReturnEngine
