"""Which beginnings of prompts an engine probably holds in its prefix cache, learnt from what was granted there.

The engine is taken to keep what was used last, as vLLM and SGLang do, up to its KV memory. Where it reports how much of
a prompt it had cached, `trust` follows the share of the promised tokens that was really there: an engine without a
prefix cache soon promises nothing.
"""

from collections import OrderedDict

from hmas.contracts.job import PrefixChain
from hmas.worker.agent.config import PrefixCacheConfig


class PrefixCache:
    """The worker's idea of one engine's prefix cache; nodes are those of `PrefixChain`, used longest ago first."""

    __slots__ = ("_config", "_nodes", "_tokens", "trust")

    def __init__(self, config: PrefixCacheConfig) -> None:
        self._config = config
        self._nodes: OrderedDict[int, int] = OrderedDict()  # the tokens that each adds to the node before it
        self._tokens = 0
        self.trust = 1.0

    def __len__(self) -> int:
        return len(self._nodes)

    def held(self, chain: PrefixChain) -> int:
        """Returns the tokens of the longest beginning of a prompt that was granted here and not displaced since."""
        for i in range(len(chain.nodes) - 1, -1, -1):
            if chain.nodes[i] in self._nodes:
                return chain.ends[i]
        return 0

    def hold(self, chain: PrefixChain, capacity_tokens: int) -> None:
        """Records that the prompt is computed here. The end of a prompt is displaced before its beginning.
        `capacity_tokens`: the engine's KV memory, 0 if unknown."""
        for i in range(len(chain.nodes) - 1, -1, -1):
            node = chain.nodes[i]
            if node in self._nodes:
                self._nodes.move_to_end(node)
            else:
                self._nodes[node] = tokens = max(0, chain.ends[i] - (chain.ends[i - 1] if i else 0))
                self._tokens += tokens
        capacity = capacity_tokens or self._config.capacity_tokens
        while self._nodes and (self._tokens > capacity or len(self._nodes) > self._config.max_nodes):
            self._tokens -= self._nodes.popitem(last=False)[1]

    def learn(self, promised: int, cached: int) -> None:
        """Takes over what the engine reports: `cached` tokens of a prompt of which it was taken to hold `promised`."""
        if promised > 0:
            self.trust += self._config.smoothing * (min(1.0, cached / promised) - self.trust)

    def clear(self) -> None:
        """Forgets everything: the engine was restarted."""
        self._nodes.clear()
        self._tokens = 0
