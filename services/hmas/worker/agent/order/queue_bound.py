"""How much may wait in a worker."""

from dataclasses import dataclass

from hmas.worker.agent.entry.entry import QueueEntry


@dataclass(frozen=True, slots=True)
class QueueBound:
    """At most `requests` with `tokens` tokens of prompt and predicted output wait, parked or queued; an empty queue
    takes one request of any size."""

    requests: int
    tokens: int

    def refusal(self, waiting: int, waiting_tokens: int, entry: QueueEntry) -> str | None:
        """Returns the message of a refusal if there is no room for `entry` beside what waits, otherwise None."""
        if waiting >= self.requests:
            return f"the queue is full: {waiting} requests wait, at most {self.requests} may. Retry later."
        if waiting and waiting_tokens + entry.work_tokens > self.tokens:
            return (
                f"the queue is full: {waiting_tokens} tokens wait, and the {entry.work_tokens} of this request "
                f"(prompt and predicted output) would exceed the bound of {self.tokens}. Retry later."
            )
        return None
