"""The requests that this gateway has accepted and not settled, and the one method that ends each of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.request import Annotation, Request
from hmas.laws.transitions import following


class RequestState(StrEnum):
    HELD = "held"  # kept in the gateway because no worker is usable
    SENT = "sent"  # submitted to a worker; nothing of the answer has come yet
    STREAMING = "streaming"  # the first token was relayed, so that the request can no longer move
    ENDED = "ended"


# The states that may follow each state. A sent request is sent again, or held, if its worker is lost or hands it back.
TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    RequestState.HELD: frozenset({RequestState.HELD, RequestState.SENT, RequestState.ENDED}),
    RequestState.SENT: frozenset(RequestState),
    RequestState.STREAMING: frozenset({RequestState.ENDED}),
    RequestState.ENDED: frozenset(),
}


@dataclass(slots=True, kw_only=True)
class LedgerEntry:
    """One request of the gateway; instants in seconds on the agent's clock.

    `pool` is the request's model name until the pool is known. `lost_on` are the workers that lost the request. The
    body of `body_bytes` bytes is kept until the first token, because the request may be sent again until then.
    `worker` is empty while the request is held. `attempt` counts submissions.
    """

    request: Request
    pool: str
    offered: bool  # whether telemetry counts it as offered to its pool
    body_bytes: int = 0
    state: RequestState = field(default=RequestState.HELD, init=False)  # set by `enter` alone
    worker: str = ""
    attempt: int = 0
    lost_on: tuple[str, ...] = ()
    annotation: Annotation | None = None
    first_token_s: float | None = None
    held_s: float = 0.0
    recalled: bool = False
    content: str = ""  # digest of the body, only if the tenant prefers a refusal to a late answer; otherwise empty
    promised: bool = False  # whether it was refused before and came back at the promised time

    def enter(self, state: RequestState) -> None:
        """Changes the state. Raises IllegalTransition, and changes nothing, if `TRANSITIONS` does not allow it."""
        self.state = following(TRANSITIONS, self.state, state)


class Ledger:
    """The requests that have not ended: by id in order of arrival, and by worker in the order they were sent."""

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
        """Bytes of the bodies that are kept for all requests without a first token."""
        return self._body_bytes

    def open(self, entry: LedgerEntry) -> None:
        """Adds a request. Raises ValueError if a request with the same id has not ended."""
        if entry.request.id in self._entries:
            raise ValueError(f"request id {entry.request.id} is in use: the gateway must make a new one per request")
        self._entries[entry.request.id] = entry
        self._body_bytes += entry.body_bytes

    def get(self, request_id: str) -> LedgerEntry | None:
        return self._entries.get(request_id)

    def current(self, request_id: str, attempt: int) -> LedgerEntry | None:
        """Returns the request if `attempt` is its live attempt, now at a worker; None for an older attempt, or if the
        request has ended or is held."""
        entry = self._entries.get(request_id)
        if entry is None or entry.attempt != attempt or entry.state is RequestState.HELD:
            return None
        return entry

    def send(self, entry: LedgerEntry, worker: str) -> None:
        """Records the request's next attempt, which is sent to `worker`."""
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
        """Records that the first token was relayed at `now_s`; the request's body is not kept any longer."""
        entry.enter(RequestState.STREAMING)
        entry.first_token_s = now_s
        self._body_bytes -= entry.body_bytes

    def settle(self, entry: LedgerEntry) -> bool:
        """Ends the request; returns whether its first token had been relayed. Raises IllegalTransition if the request
        has ended before."""
        streamed = entry.state is RequestState.STREAMING
        entry.enter(RequestState.ENDED)
        del self._entries[entry.request.id]
        self._leave(entry)
        if not streamed:
            self._body_bytes -= entry.body_bytes
        return streamed

    def at(self, worker: str) -> list[LedgerEntry]:
        """Returns the requests that are at `worker`, the first sent first."""
        return list(self._at.get(worker, {}).values())

    def held(self) -> list[LedgerEntry]:
        """Returns the held requests, those held longest first."""
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
