"""Which beginnings of prompts an engine probably holds in its prefix cache, learnt from what was granted there and from
what the engine says of it.

The model is that of vLLM and SGLang: memory for so many tokens, of which those that were used longest ago are displaced
first, and of one prompt its end before its beginning. Answers stay in memory behind their prompts, where the job's next
prompt finds them. A node of `PrefixChain` stands for a part of a prompt, which may be displaced in part.

What an engine reports corrects it. The prompt tokens that it counts make the ends of nodes true, so that no tokenizer
is needed. Expected tokens that were not there prove that what was used before that is gone, too; where even the
beginning is missing, though it was used lately, the cache was reset. `trust` follows the share of the expected tokens
that was there: of an engine without a prefix cache soon nothing is expected.

Where the engine's own events are counted, the count corrects it, too. What was removed is cut where the model holds
more than the engine; what granted prompts will displace when they are computed is taken away beforehand, and these
removals are then expected; and nothing is held beyond what is cached and owed. As the events say when blocks go, a last
block that is not full is taken to be free at once, as vLLM has it; without them it is displaced in its turn.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import inf

from hmas.contracts.job import PrefixChain
from hmas.worker.agent.config import PrefixCacheConfig
from hmas.worker.agent.entry.expected_cached import ExpectedCached


@dataclass(slots=True)
class _Part:
    """What a node adds to the one before it: `tokens`, of which the first `left` are held, up to the prompt's `end`.
    `told`: the engine counted that end. `used`: the stamp of its last use. `runs`: how many running requests hold it,
    and it is not displaced meanwhile."""

    end: float
    tokens: float
    left: float
    used: float
    told: bool = False
    runs: int = 0


class PrefixCache:
    """The worker's idea of one engine's prefix cache. `trust` is in [0, 1]; `answers` is the share of an answer that
    the next prompt repeats token by token."""

    __slots__ = (
        "_cached", "_config", "_owed", "_parts", "_removed_ahead", "_room", "_running", "_stamp", "_tokens",
        "_tokens_each", "answers", "block", "trust",
    )  # fmt: skip

    def __init__(self, config: PrefixCacheConfig) -> None:
        self._config = config
        # By node, used longest ago first; the answer to a prompt stands under the complement of its last node.
        self._parts: OrderedDict[int, _Part] = OrderedDict()
        self._tokens = 0.0  # the sum of what is left
        self._stamp = 0.0  # tokens used since the beginning
        self._room = 1.0  # share of the memory that prompts have, by how much of what was expected was there
        self._tokens_each = 1.0  # true tokens of an estimated one
        self._cached: float | None = None  # tokens in the cache by the engine's events, None while unknown
        self._owed = 0.0  # tokens of granted prompts that are not in that count yet
        self._removed_ahead = 0.0  # tokens that were displaced here before the engine did
        self._running = 0  # granted requests that have not ended
        self.block = 1  # tokens in a block, of which only full ones are found
        self.trust = self.answers = 1.0

    def __len__(self) -> int:
        return len(self._parts)

    def held(self, chain: PrefixChain) -> int:
        """Returns the tokens of the longest beginning of a prompt that is held."""
        return self._held(chain)[0]

    def _held(self, chain: PrefixChain) -> tuple[int, float, float]:
        """Returns the tokens that a prompt will find, those of a former prompt alone, and those of the answer to it."""
        parts, nodes = self._parts, chain.nodes
        for i in range(len(nodes) - 1, -1, -1):
            part = parts.get(nodes[i])
            if part is None:
                continue
            tokens, answered, most = part.end - part.tokens + part.left, 0.0, inf
            if i + 1 < len(nodes):
                answer = parts.get(~nodes[i]) if part.left >= part.tokens else None
                if answer is not None:
                    answered = min(answer.left, answer.end - part.end)
            elif part.told:
                most = part.end - 1.0  # the last token of a prompt is always computed
            found = min(tokens + (answered if self.answers >= self._config.repeated else 0.0), most)
            return int(found) // self.block * self.block, tokens, answered
        return 0, 0.0, 0.0

    def expect(self, chain: PrefixChain, capacity_tokens: int, growth: float = 0.0) -> ExpectedCached:
        """Returns what a prompt that is granted now will find. `capacity_tokens`: the engine's KV memory, 0 if unknown;
        `growth`: the tokens of answers that are being written there."""
        self._displace(capacity_tokens, growth)
        tokens, prompt, answered = self._held(chain)
        found = (self._parts.get(node) for node in chain.nodes)
        marks = tuple([(part.end, part.used) for part in found if part is not None])
        return ExpectedCached(tokens, prompt, answered, marks, self._stamp)

    def hold(self, chain: PrefixChain, capacity_tokens: int) -> None:
        """Records that the prompt is computed here."""
        nodes, ends, begin, end, before = chain.nodes, chain.ends, 0.0, 0, self._tokens
        for i, node in enumerate(nodes):
            part = self._parts.get(node)
            if part is None:
                answer = self._parts.get(~nodes[i - 1]) if i and self.answers >= self._config.repeated else None
                if answer is not None:  # it is a part of this prompt now, except its last block, which was not full
                    rest = self.block if answer.end % self.block and self._cached is None else 0
                    self._tokens += min(0.0, rest - answer.left)
                    answer.left, answer.end = min(answer.left, rest), begin
                tokens = (ends[i] - end) * self._tokens_each
                part = self._parts[node] = _Part(begin + tokens, tokens, tokens, 0.0)
                self._tokens += tokens
            else:
                self._tokens += part.tokens - part.left
                part.left = part.tokens
            part.runs += 1
            begin, end = part.end, ends[i]
        self._running += 1
        self._owed += max(0.0, self._tokens - before)
        self._use(chain)
        self._displace(capacity_tokens, 0)

    def ended(self, chain: PrefixChain, prompt_tokens: int, output_tokens: int, capacity_tokens: int) -> None:
        """Takes over that the engine counted so many tokens of the prompt and of its answer, which it has given."""
        parts, nodes, ends = self._parts, chain.nodes, chain.ends
        if not (chain.whole and nodes and all(node in parts for node in nodes)):
            return
        known = next((i for i in range(len(nodes) - 1, -1, -1) if parts[nodes[i]].told), -1)
        if known < len(nodes) - 1:
            begin, first = (parts[nodes[known]].end, ends[known]) if known >= 0 else (0.0, 0)
            each = max(0.0, prompt_tokens - begin) / max(1, ends[-1] - first)
            for i in range(known + 1, len(nodes)):
                part, before = parts[nodes[i]], parts[nodes[i - 1]].end if i else 0.0
                part.end = begin + (ends[i] - first) * each
                tokens = max(0.0, part.end - before)
                self._tokens += tokens - part.tokens
                part.left = max(0.0, part.left + tokens - part.tokens)
                part.tokens = tokens
            parts[nodes[-1]].told = True
            self._tokens_each += self._config.smoothing * (prompt_tokens / max(1, ends[-1]) - self._tokens_each)
        last = self._parts.pop(~nodes[-1], None)
        self._tokens -= 0.0 if last is None else last.left
        end = prompt_tokens + max(0, output_tokens - 1)  # the last token of an answer is not computed
        full = -(-end // self.block) if self._cached is None else end // self.block
        taken = max(0, full * self.block - prompt_tokens)
        self._parts[~nodes[-1]] = _Part(end, taken, taken, 0.0)
        self._tokens += taken
        self._use(chain)
        self._displace(capacity_tokens, 0)

    def release(self, chain: PrefixChain) -> None:
        """Records that a request whose prompt was held does not run here any more."""
        self._running = max(0, self._running - (1 if chain.nodes else 0))
        if not self._running:
            self._owed = self._removed_ahead = 0.0
        for node in chain.nodes:
            part = self._parts.get(node)
            if part is not None and part.runs:
                part.runs -= 1

    def _use(self, chain: PrefixChain) -> None:
        """Counts the prompt, and an answer to it, as used now: its end is displaced before its beginning."""
        self._stamp += 1.0
        for node in (~chain.nodes[-1], *reversed(chain.nodes)) if chain.nodes else ():
            part = self._parts.get(node)
            if part is not None:
                self._stamp += part.tokens
                self._parts.move_to_end(node)
        for node in (~chain.nodes[-1], *chain.nodes) if chain.nodes else ():
            part = self._parts.get(node)
            if part is not None:
                part.used = self._stamp

    def _displace(self, capacity_tokens: int, growth: float) -> None:
        capacity = capacity_tokens or self._config.capacity_tokens
        if self._cached is None:
            self._cut(capacity * self._room - growth)
            return
        partly = 0.5 * self.block * self._running  # last blocks of those that run
        coming = self._cached + self._owed + partly - capacity - self._removed_ahead
        if coming > 0.0:
            before = self._tokens
            self._cut(before - coming)
            self._removed_ahead += before - self._tokens
        self._cut(self._cached + self._owed - self._removed_ahead + self._config.spare_blocks * self.block)

    def _cut(self, most: float) -> None:
        """Displaces what was used longest ago, until `most` tokens are held."""
        parts, running = self._parts, 0
        while running < len(parts) and (self._tokens > most or len(parts) > self._config.max_nodes):
            node, part = next(iter(parts.items()))
            over = self._tokens - most
            if part.runs:
                running += 1
                parts.move_to_end(node)
            elif over < part.left and len(parts) <= self._config.max_nodes:
                part.left -= over
                self._tokens -= over
            else:
                self._tokens -= part.left
                del parts[node]

    def counted(self, blocks: int | None, stored: int, removed: int) -> None:
        """Takes over what the engine's events say: the blocks in its cache, None while nobody knows, and how many were
        stored and removed since it was told last."""
        if blocks is None:
            self._cached, self._owed, self._removed_ahead = None, 0.0, 0.0
            return
        self._cached = float(blocks * self.block)
        self._owed = max(0.0, self._owed - stored * self.block)
        gone = max(0.0, removed * self.block - self._removed_ahead)
        self._removed_ahead = min(max(0.0, self._removed_ahead - removed * self.block), self._owed)
        if gone > 0.0:
            self._cut(max(self._cached, self._tokens - gone))

    def learn(self, expected: ExpectedCached, cached: int) -> None:
        """Takes over what the engine reports: `cached` tokens of a prompt of which it was taken to hold `expected`."""
        config, tokens = self._config, expected.tokens
        if expected.answer >= 2 * self.block:
            repeated = (cached + self.block - 1 - expected.prompt) / expected.answer
            self.answers += config.smoothing * (min(1.0, max(0.0, repeated)) - self.answers)
        if tokens <= 0:
            return
        self.trust += config.smoothing * (min(1.0, cached / tokens) - self.trust)
        margin = max(2 * self.block, config.tolerance * tokens)
        if cached >= tokens - margin:
            if cached > tokens + margin:
                self._room = min(config.max_room, self._room * (1.0 + config.room_gain))
            return
        gone = next(((end, used) for end, used in expected.marks if end > cached + self.block), None)
        if gone is None:
            return  # of the answer alone
        if cached < self.block and expected.stamp - gone[1] < config.lately * self._tokens:
            self._forget(expected.stamp + 0.5)  # nothing that was used before this prompt is there
        else:
            if tokens - cached > config.proof * self._tokens:
                self._forget(gone[1])
            self._room = max(config.min_room, self._room * (1.0 - config.room_gain))

    def _forget(self, used: float) -> None:
        """Forgets what was last used before."""
        parts = self._parts
        for node in [node for node, part in parts.items() if part.used < used and not part.runs]:
            self._tokens -= parts.pop(node).left

    def clear(self) -> None:
        """Forgets everything: the engine was restarted, or says that its cache was."""
        self._parts.clear()
        self._tokens = self._owed = self._removed_ahead = 0.0
