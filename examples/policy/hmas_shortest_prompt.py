"""An order, `shortest_prompt`: a short prompt goes before a long one, unless the long one came much earlier."""

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered

TOKENS_PER_SECOND = 500  # of waiting that make up for so many tokens of a longer prompt


class ShortestPrompt(KeyOrdered):
    """The least (arrival + prompt tokens / `TOKENS_PER_SECOND`) goes first, so that nobody waits for ever."""

    name = TopologyName("shortest_prompt")
    uses_tags = False  # predictions do not change it, so that no request waits for its tags
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.request.arrival_s + entry.request.prompt_tokens / TOKENS_PER_SECOND

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"{entry.request.prompt_tokens} prompt tokens, came {now_s - entry.request.arrival_s:.1f} s ago"


def make_shortest_prompt(hints: Hints) -> ShortestPrompt:
    return ShortestPrompt()
