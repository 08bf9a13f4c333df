"""LightLLM's past-future scheduler (Gong et al., Past-Future Scheduler for LLM Serving, ASPLOS 2025).

Past: the scheduler remembers the output lengths of the last 1000 finished requests; each running or candidate request
is given a length drawn from those that exceed what it has generated. Future: with the requests in order of remaining
length, longest first, the memory in use when the i-th ends is the sum of what the first i hold plus i times the i-th's
remaining length; the head of the queue is admitted if the peak over i stays within the cache. ModelTC/lightllm has the
same peak test (`req_queue/chunked_prefill/impl.py`). Until 20 requests have finished, every length is taken to be
`max_tokens`.
"""

from bisect import bisect_left, insort
from collections import deque
from random import Random

import numpy as np

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import Sequence

WINDOW = 1000
MIN_HISTORY = 20


class LightLlmCore(EngineCore):
    def __init__(self, profile: EngineProfile, max_tokens: int, seed: int) -> None:
        super().__init__(profile, gate=lambda _, seq: self._peak_fits(seq))
        self._max_new = max_tokens
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
        generated = np.array([*(self.generated(i) for i in self.running), candidate.generated])
        prompts = np.array([*(s.request.prompt_tokens for s in self.running.values()), candidate.request.prompt_tokens])
        left = self._draw(generated) - generated
        order = np.argsort(-left, kind="stable")
        held = np.cumsum((prompts + generated)[order])
        peak = int((left[order] * np.arange(1, len(order) + 1) + held).max())
        return peak < self.kv.num_blocks * self.kv.block_size

    def _draw(
        self, generated: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    ) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Draws an output length for each request from the finished ones that are longer than the tokens it has
        `generated`; where no finished request was that long, or too few finished, the length is `max_tokens`."""
        if len(self._sorted) < MIN_HISTORY:
            return np.maximum(generated + 1, self._max_new)
        first = np.searchsorted(self._sorted, generated, side="right")
        count = len(self._sorted) - first
        index = first + (self._random.random(len(generated)) * count).astype(np.int64)
        drawn = self._sorted[np.minimum(index, len(self._sorted) - 1)]
        return np.where(count > 0, drawn, np.maximum(generated + 1, self._max_new))
