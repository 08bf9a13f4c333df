"""The requests that this gateway has accepted and not settled: the one truth about where each of them is."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TypeVar

from hmas.contracts.request import Annotation, Request
from hmas.gateway.agent.pools.workers import ExpectedHit
from hmas.laws.transitions import following

K = TypeVar("K")


class RequestState(StrEnum):
    HELD = "held"  # kept in the gateway because no worker is usable
    QUEUED = "queued"  # waits at a worker for a grant
    RUNNING = "running"  # an engine has it; nothing of the answer was relayed
    COMMITTED = "committed"  # it can no longer move: the first token was relayed, or a proxy has the request
    ENDED = "ended"


# The states that may follow each state. A held request runs without having been queued if the gateway places it itself.
TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    RequestState.HELD: frozenset({RequestState.HELD, RequestState.QUEUED, RequestState.RUNNING, RequestState.ENDED}),
    RequestState.QUEUED: frozenset({RequestState.HELD, RequestState.QUEUED, RequestState.RUNNING, RequestState.ENDED}),
    RequestState.RUNNING: frozenset(RequestState),
    RequestState.COMMITTED: frozenset({RequestState.ENDED}),
    RequestState.ENDED: frozenset(),
}

EngineRef = tuple[str, str]  # a worker and one of its engines


@dataclass(slots=True, kw_only=True)
class LedgerEntry:
    """One request of the gateway; instants in seconds on the agent's clock.

    `pool` is the request's model name until the pool is known. `worker` is the worker at which it waits or whose
    `engine` runs it, empty while it is held. `attempt` counts how often it was sent to a worker or placed by the
    gateway itself; `submitted` tells whether a worker ever got it. `since_s`: since when it is held, or waits at its
    worker. `run` and `grant` are the numbers of its last run; `grant` is 0 if the gateway placed it itself, and
    `bypass_failures` counts such runs that failed. `moved_s` and `first_wait_s` belong to the `StallWatch`: when its
    run was last seen to move, and how long it waited for its first token. `expected`: what its worker was taken to hold
    of its prompt, None if that is not known. `refused_by` are the workers that cannot serve it. `job` is the id of the
    job that it was found to belong to, empty for none. The body of `body_bytes` bytes is kept until the first token,
    because the request may run again until then.
    """

    request: Request
    pool: str
    offered: bool  # whether telemetry counts it as offered to its pool
    body_bytes: int = 0
    content: str = ""  # digest of the body, only if the tenant prefers a refusal to a late answer; otherwise empty
    promised: bool = False  # whether it was refused before and came back at the promised time
    annotation: Annotation | None = None
    state: RequestState = field(default=RequestState.HELD, init=False)  # set by `enter` alone
    worker: str = ""
    attempt: int = 0
    submitted: bool = False
    since_s: float = 0.0
    engine: str = ""
    run: int = 0
    grant: int = 0
    granted_s: float = 0.0
    first_token_s: float | None = None
    output_tokens: int = 0  # as last counted
    relegated: bool = False
    moved_s: float = 0.0
    first_wait_s: float | None = None
    refused_by: tuple[str, ...] = ()
    bypass_failures: int = 0
    expected: ExpectedHit | None = None
    job: str = ""

    def enter(self, state: RequestState) -> None:
        """Changes the state. Raises IllegalTransition, and changes nothing, if `TRANSITIONS` does not allow it."""
        self.state = following(TRANSITIONS, self.state, state)

    @property
    def runs(self) -> bool:
        return self.state is RequestState.RUNNING or self.state is RequestState.COMMITTED

    @property
    def ref(self) -> EngineRef:
        return self.worker, self.engine


class Ledger:
    """The requests that have not ended: by id in the order in which they were opened, those that are held, those that
    wait by worker, and those that run by worker and engine."""

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self._held: dict[str, LedgerEntry] = {}
        self._queued: dict[str, dict[str, LedgerEntry]] = {}
        self._running: dict[EngineRef, dict[str, LedgerEntry]] = {}
        self._body_bytes = 0
        self._latest_s = -inf  # the latest arrival
        self.disorder_s = 0.0  # the most by which a request arrived before one that was opened earlier

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    @property
    def held_count(self) -> int:
        return len(self._held)

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies that are kept for all requests without a first token."""
        return self._body_bytes

    def open(self, entry: LedgerEntry) -> None:
        """Adds a request. Raises ValueError if a request with the same id has not ended."""
        if entry.request.id in self._entries:
            raise ValueError(f"request id {entry.request.id} is in use: the gateway must make a new one per request")
        self._entries[entry.request.id] = entry
        self._body_bytes += entry.body_bytes
        self._latest_s = max(self._latest_s, entry.request.arrival_s)
        self.disorder_s = max(self.disorder_s, self._latest_s - entry.request.arrival_s)

    def get(self, request_id: str) -> LedgerEntry | None:
        return self._entries.get(request_id)

    def hold(self, entry: LedgerEntry, now_s: float) -> None:
        """Records that no worker can take the request; one that is held already is so from its first hold on."""
        if entry.request.id in self._held:
            return
        self._move(entry, RequestState.HELD)
        entry.worker, entry.since_s = "", now_s
        self._held[entry.request.id] = entry

    def queue(self, entry: LedgerEntry, now_s: float, worker: str) -> None:
        """Records the request's next attempt, which waits at `worker`."""
        self._wait(entry, now_s, worker)
        entry.attempt += 1
        entry.submitted = True

    def requeue(self, entry: LedgerEntry, now_s: float) -> None:
        """Records that the request's run ended without a token, so that it waits at the same worker again, under the
        same attempt."""
        self._wait(entry, now_s, entry.worker)

    def run(self, entry: LedgerEntry, now_s: float, run: int, engine: str, grant: int) -> None:
        """Records that the worker at which the request waits granted it."""
        self._run(entry, now_s, run, (entry.worker, engine))
        entry.grant = grant

    def bypass(self, entry: LedgerEntry, now_s: float, run: int, ref: EngineRef) -> None:
        """Records that the gateway itself places the request, which is its next attempt."""
        self._run(entry, now_s, run, ref)
        entry.attempt += 1
        entry.grant = 0

    def change_engine(self, entry: LedgerEntry, engine: str) -> None:
        """Records that a request which runs goes on at another engine of its worker."""
        _drop(self._running, entry.ref, entry.request.id)
        entry.engine = engine
        self._running.setdefault(entry.ref, {})[entry.request.id] = entry

    def stream(self, entry: LedgerEntry, now_s: float) -> None:
        """Records that the first token was relayed at `now_s`; the request's body is not kept any longer."""
        entry.enter(RequestState.COMMITTED)
        entry.first_token_s = now_s
        self._body_bytes -= entry.body_bytes

    def hand_over(self, entry: LedgerEntry) -> None:
        """Records that a proxy has the request and its body."""
        entry.enter(RequestState.COMMITTED)
        self._body_bytes -= entry.body_bytes

    def settle(self, entry: LedgerEntry) -> bool:
        """Ends the request; returns whether it had got so far that it could not move. Raises IllegalTransition if the
        request has ended before."""
        streamed = entry.state is RequestState.COMMITTED
        self._move(entry, RequestState.ENDED)
        del self._entries[entry.request.id]
        if not streamed:
            self._body_bytes -= entry.body_bytes
        return streamed

    def held(self) -> list[LedgerEntry]:
        """Returns the held requests, those held longest first."""
        return list(self._held.values())

    def queued_at(self, worker: str) -> list[LedgerEntry]:
        """Returns the requests that wait at `worker`, the first sent first."""
        return list(self._queued.get(worker, {}).values())

    def running_at(self, worker: str) -> list[LedgerEntry]:
        """Returns the requests that run on engines of `worker`, whether granted or placed by the gateway itself."""
        running = (entries for (name, _), entries in self._running.items() if name == worker)
        return [entry for entries in running for entry in entries.values()]

    def running_on(self, ref: EngineRef) -> int:
        return len(self._running.get(ref, ()))

    def running(self) -> Iterator[LedgerEntry]:
        """Yields all requests that run; the ledger must not change meanwhile."""
        for entries in self._running.values():
            yield from entries.values()

    def by_arrival(self) -> Iterator[LedgerEntry]:
        """Yields all requests in the order in which they were opened, which is that of arrival up to `disorder_s`
        seconds: a request arrives before its body is read, and is opened after."""
        return iter(self._entries.values())

    def _wait(self, entry: LedgerEntry, now_s: float, worker: str) -> None:
        self._move(entry, RequestState.QUEUED)
        entry.worker, entry.since_s, entry.output_tokens = worker, now_s, 0
        self._queued.setdefault(worker, {})[entry.request.id] = entry

    def _run(self, entry: LedgerEntry, now_s: float, run: int, ref: EngineRef) -> None:
        self._move(entry, RequestState.RUNNING)
        entry.worker, entry.engine = ref
        entry.run, entry.granted_s, entry.output_tokens = run, now_s, 0
        self._running.setdefault(ref, {})[entry.request.id] = entry

    def _move(self, entry: LedgerEntry, state: RequestState) -> None:
        """Changes the state and takes the entry from the index of the state before."""
        before, request_id = entry.state, entry.request.id
        entry.enter(state)
        if before is RequestState.HELD:
            self._held.pop(request_id, None)
        elif before is RequestState.QUEUED:
            _drop(self._queued, entry.worker, request_id)
        else:
            _drop(self._running, entry.ref, request_id)


def _drop(index: dict[K, dict[str, LedgerEntry]], key: K, request_id: str) -> None:
    entries = index[key]
    del entries[request_id]
    if not entries:
        del index[key]
