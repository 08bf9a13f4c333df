"""The requests this gateway answers for, and the one place where each of them ends."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.request import Annotation, Request
from hmas.laws.transitions import following


class RequestState(StrEnum):
    HELD = "held"  # no worker to send it to, for now
    SENT = "sent"  # at a worker; nothing of the answer came yet
    STREAMING = "streaming"  # the first token is out: it cannot move any more
    ENDED = "ended"


# What may follow each state. A sent request is sent again, or held, when its worker lost it or handed it back.
TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    RequestState.HELD: frozenset({RequestState.HELD, RequestState.SENT, RequestState.ENDED}),
    RequestState.SENT: frozenset(RequestState),
    RequestState.STREAMING: frozenset({RequestState.ENDED}),
    RequestState.ENDED: frozenset(),
}


@dataclass(slots=True, kw_only=True)
class LedgerEntry:
    """One request. `pool` is its model until a pool is known. `lost_on` are the workers that lost it. `body_bytes` are
    kept for it until its first token, because until then it may be sent again."""

    request: Request
    pool: str
    offered: bool  # counted in telemetry
    body_bytes: int = 0
    state: RequestState = field(default=RequestState.HELD, init=False)  # set by `enter` alone
    worker: str = ""
    attempt: int = 0
    lost_on: tuple[str, ...] = ()
    annotation: Annotation | None = None
    first_token_s: float | None = None
    held_s: float = 0.0
    recalled: bool = False
    content: str = ""  # of a request that its tenant would rather see refused than late
    promised: bool = False  # it was refused before, and came back when it was told to

    def enter(self, state: RequestState) -> None:
        """Raises IllegalTransition, and changes nothing, where `TRANSITIONS` does not lead to `state`."""
        self.state = following(TRANSITIONS, self.state, state)


class Ledger:
    """Live requests by id, in order of arrival, and by worker, in order of sending."""

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self._at: dict[str, dict[str, LedgerEntry]] = {}
        self._held: dict[str, LedgerEntry] = {}
        self._body_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    @property
    def held_count(self) -> int:
        return len(self._held)

    @property
    def body_bytes(self) -> int:
        """Kept for all requests that have no first token."""
        return self._body_bytes

    def open(self, entry: LedgerEntry) -> None:
        """Raises ValueError for an id that is already live."""
        if entry.request.id in self._entries:
            raise ValueError(f"request {entry.request.id} received twice")
        self._entries[entry.request.id] = entry
        self._body_bytes += entry.body_bytes

    def get(self, request_id: str) -> LedgerEntry | None:
        return self._entries.get(request_id)

    def current(self, request_id: str, attempt: int) -> LedgerEntry | None:
        """The request if `attempt` is the one now at a worker; None for a stale frame."""
        entry = self._entries.get(request_id)
        if entry is None or entry.attempt != attempt or entry.state is RequestState.HELD:
            return None
        return entry

    def send(self, entry: LedgerEntry, worker: str) -> None:
        """The next attempt, at `worker`."""
        entry.enter(RequestState.SENT)
        self._leave(entry)
        entry.worker, entry.recalled = worker, False
        entry.attempt += 1
        self._at.setdefault(worker, {})[entry.request.id] = entry

    def hold(self, entry: LedgerEntry, now_s: float) -> None:
        entry.enter(RequestState.HELD)
        self._leave(entry)
        entry.worker, entry.held_s = "", now_s
        self._held[entry.request.id] = entry

    def stream(self, entry: LedgerEntry, now_s: float) -> None:
        """Its first token is out."""
        entry.enter(RequestState.STREAMING)
        entry.first_token_s = now_s
        self._body_bytes -= entry.body_bytes

    def settle(self, entry: LedgerEntry) -> bool:
        """Ends it; whether it had a first token. Raises IllegalTransition if it has ended before."""
        streamed = entry.state is RequestState.STREAMING
        entry.enter(RequestState.ENDED)
        del self._entries[entry.request.id]
        self._leave(entry)
        if not streamed:
            self._body_bytes -= entry.body_bytes
        return streamed

    def at(self, worker: str) -> list[LedgerEntry]:
        """What a worker holds, oldest sending first."""
        return list(self._at.get(worker, {}).values())

    def held(self) -> list[LedgerEntry]:
        """Longest held first."""
        return list(self._held.values())

    def by_arrival(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def _leave(self, entry: LedgerEntry) -> None:
        request_id = entry.request.id
        self._held.pop(request_id, None)
        there = self._at.get(entry.worker)
        if there is not None:
            there.pop(request_id, None)
            if not there:
                del self._at[entry.worker]
