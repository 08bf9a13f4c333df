"""LightLLM's past-future scheduler (Gong et al., Past-Future Scheduler for LLM Serving, ASPLOS 2025).

Past: the scheduler remembers the output lengths of the last 1000 finished requests; each running or candidate request
is given a length drawn from those that exceed what it has generated. Future: with the requests in order of remaining
length, longest first, the memory in use when the i-th ends is the sum of what the first i hold plus i times the i-th's
remaining length; the head of the queue is admitted if the peak over i stays within the cache. No request is given more
than its own `max_tokens` (or, without one, what the context leaves), and each is given that until 20 requests have
finished.

ModelTC/lightllm has the same peak test (`req_queue/chunked_prefill/impl.py`), and the defaults of its server are 1000
running requests and prefill chunks of 4096 tokens (`api_cli.py`). Its code caps a length by 1.1 times what was
generated, or `router_max_new_token_len`, where the paper draws it from the past; we do as the paper does.
"""

from bisect import bisect_left, insort
from collections import deque
from random import Random

import numpy as np
from numpy.typing import NDArray

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import Sequence
from hmas_lab.sim.baselines.sglang import max_new_tokens

WINDOW = 1000
MIN_HISTORY = 20
CHUNK_TOKENS, MOST_RUNNING = 4096, 1000
Lengths = NDArray[np.int64]


def with_defaults(profile: EngineProfile) -> EngineProfile:
    """Returns the profile with LightLLM's own limits; one that names no card keeps its limits."""
    if profile.card_gb is None:
        return profile
    return profile.with_limits(max_num_batched_tokens=CHUNK_TOKENS, max_num_seqs=MOST_RUNNING)


class LightLlmCore(EngineCore):
    """An engine core that schedules as LightLLM does, within the limits of the profile (see `with_defaults`)."""

    def __init__(self, profile: EngineProfile, seed: int) -> None:
        super().__init__(profile, gate=lambda _, seq: self._peak_fits(seq))
        self._context = profile.limits.max_model_len
        self._random = np.random.default_rng(Random(seed).getrandbits(32))
        self._window: deque[int] = deque()
        self._history: list[int] = []
        self._sorted = np.zeros(0, dtype=np.int64)

    def _finish(self, seq: Sequence) -> None:
        if len(self._window) == WINDOW:
            del self._history[bisect_left(self._history, self._window.popleft())]
        self._window.append(seq.generated)
        insort(self._history, seq.generated)
        self._sorted = np.array(self._history)
        super()._finish(seq)

    def _peak_fits(self, candidate: Sequence) -> bool:
        sequences = [*self.running.values(), candidate]
        generated = np.array([*(self.generated(i) for i in self.running), candidate.generated])
        prompts = np.array([s.request.prompt_tokens for s in sequences])
        most = np.array([max_new_tokens(s.request, self._context) for s in sequences])
        left = self._draw(generated, most) - generated
        order = np.argsort(-left, kind="stable")
        held = np.cumsum((prompts + generated)[order])
        peak = int((left[order] * np.arange(1, len(order) + 1) + held).max())
        return peak < self.kv.num_blocks * self.kv.block_size

    def _draw(self, generated: Lengths, most: Lengths) -> Lengths:
        """Draws an output length for each request from the finished ones that are longer than the tokens it has
        `generated`, up to the `most` that it may; where no finished request was that long, or too few finished, it is
        the most."""
        longest = np.maximum(generated + 1, most)
        if len(self._sorted) < MIN_HISTORY:
            return longest
        first = np.searchsorted(self._sorted, generated, side="right")
        count = len(self._sorted) - first
        index = first + (self._random.random(len(generated)) * count).astype(np.int64)
        drawn = self._sorted[np.minimum(index, len(self._sorted) - 1)]
        return np.where(count > 0, np.minimum(drawn, longest), longest)
