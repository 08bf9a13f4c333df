"""Hand-overs of KV between simulated engines, as stock engines make them: between two engines one prompt after the
other, in the order in which the readers asked, and each in full (NIXL over TCP, as measured on vLLM)."""

from dataclasses import dataclass
from typing import Protocol

from hmas.sim.processes.heap import EventHeap

LEASE_S = 33.0  # for which stock vLLM keeps a prompt that nobody reads


class KvHolder(Protocol):
    """An engine as hand-overs see it."""

    name: str

    def landed(self, request_id: str) -> None: ...

    def give_back(self, request_id: str) -> None: ...


@dataclass(slots=True)
class _Offer:
    """A prompt that `lender` keeps under the id `lent`."""

    lender: KvHolder
    lent: str


class KvLinks:
    """The links between all engines. `tokens_per_s`: KV of so many tokens comes over one in a second."""

    def __init__(self, heap: EventHeap, tokens_per_s: float) -> None:
        self._heap, self._tokens_per_s = heap, tokens_per_s
        self._offers: dict[tuple[str, str], _Offer] = {}  # by reader and request
        self._free_s: dict[tuple[str, str], float] = {}  # by lender and reader: when the last read is over

    def offer(self, reader: KvHolder, request_id: str, lender: KvHolder, lent: str) -> None:
        """Notes where the prompt of a request is that `reader` is to answer."""
        self._offers[reader.name, request_id] = _Offer(lender, lent)

    def lend(self, lender: KvHolder, lent: str) -> None:
        """Begins the lease of a prompt."""
        self._heap.after(LEASE_S, lender.give_back, lent)

    def read(self, reader: KvHolder, request_id: str, tokens: int) -> None:
        """Reads a prompt, or the part of it that the reader lacks, into memory that it has taken."""
        lender = self._offers[reader.name, request_id].lender
        pair, now_s = (lender.name, reader.name), self._heap.now_s
        end_s = max(now_s, self._free_s.get(pair, 0.0)) + tokens / self._tokens_per_s
        self._free_s[pair] = end_s
        self._heap.at(end_s, self._read, reader, request_id)

    def _read(self, reader: KvHolder, request_id: str) -> None:
        if (reader.name, request_id) in self._offers:
            self.close(reader, request_id)
            reader.landed(request_id)

    def close(self, reader: KvHolder, request_id: str) -> None:
        """Gives the prompt back, if it was not: it was read, or its reader has no use for it any more."""
        offer = self._offers.pop((reader.name, request_id), None)
        if offer is not None:
            offer.lender.give_back(offer.lent)
