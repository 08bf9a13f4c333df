"""The books of split requests, on the engine that computes each prompt and on the one that answers.

The answering engine has its slot and its memory booked from the grant on, so that a computed prompt always finds room.
The other one has a slot booked until the prompt is computed, and the prompt's memory until the first token.
"""

from copy import deepcopy

from hmas.worker.agent.config import SplitConfig
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry


class _HandOver:
    """`leg` stands for the request on the engine that computes its prompt for `answer`. `computed_s` is when that was
    done, None until then; `held_blocks` are what the prompt keeps there since."""

    __slots__ = ("answer", "computed_s", "held_blocks", "leg", "prefill")

    def __init__(self, answer: EngineState, prefill: EngineState, leg: QueueEntry) -> None:
        self.answer, self.prefill, self.leg = answer, prefill, leg
        self.computed_s: float | None = None
        self.held_blocks = 0


class SplitBooks:
    """The split requests that run. `token_s`: what reading the KV of a prompt's token takes in the mean, as learnt."""

    def __init__(self, config: SplitConfig) -> None:
        self._config = config
        self._open: dict[str, _HandOver] = {}  # by request id
        self.token_s = config.token_s

    @property
    def legs(self) -> int:
        """How many prompts are being computed for another engine."""
        return sum(1 for each in self._open.values() if each.computed_s is None)

    def read_s(self, entry: QueueEntry) -> float:
        """Returns the seconds by which the first token comes later if another engine answers than the one that computes
        the prompt."""
        return self._config.hop_s + self.token_s * entry.request.prompt_tokens

    def begin(
        self, now_s: float, entry: QueueEntry, answer: EngineState, prefill: EngineState, blocks: int, prefill_s: float
    ) -> None:
        """Books the prompt of `entry`, which is granted on `answer`, on `prefill`: `blocks` KV blocks, and predicted
        seconds of prefill."""
        leg = deepcopy(entry)
        leg.engine = leg.prefill_on = entry.prefill_on = prefill.name
        leg.run_on(prefill.info)
        leg.predicted_tokens = leg.predicted_p90 = 1.0
        leg.blocks, leg.context_tokens = blocks, 0.0
        prefill.occupy(now_s, leg, prefill_s)
        if prefill.info.needs_partner:  # both have the request from the beginning
            answer.books.expect(now_s, entry)
        self._open[entry.request.id] = _HandOver(answer, prefill, leg)

    def computed(self, now_s: float, entry: QueueEntry) -> bool:
        """Records that the prompt is computed, and frees its slot there; returns whether that was news."""
        found = self._open.get(entry.request.id)
        if found is None or found.computed_s is not None:
            return False
        found.computed_s, found.held_blocks = now_s, found.leg.blocks
        entry.computed_s = now_s
        found.prefill.began(now_s, found.leg)
        found.prefill.release(now_s, found.leg)
        found.prefill.keep(found.held_blocks)
        found.answer.books.expect(now_s, entry)
        return True

    def answered(self, now_s: float, entry: QueueEntry) -> None:
        """Records the first token: the prompt's memory is free on the engine that computed it, and what reading it
        took is learnt."""
        found = self._open.get(entry.request.id)
        if found is None:
            return
        if found.computed_s is None:  # that it was computed got lost
            self.computed(now_s, entry)
            self._free(found)
            return
        read_s = max(0.0, now_s - found.computed_s - entry.tpot_s)
        self.token_s += self._config.smoothing * (read_s / max(1, entry.request.prompt_tokens) - self.token_s)
        self._free(found)

    def end(self, now_s: float, entry: QueueEntry) -> None:
        """Takes a request out of the books of the engine that computes, or computed, its prompt."""
        found = self._open.pop(entry.request.id, None)
        if found is None:
            return
        if found.computed_s is None:
            found.prefill.release(now_s, found.leg)
        self._free(found)

    @staticmethod
    def _free(found: _HandOver) -> None:
        found.prefill.keep(-found.held_blocks)
        found.held_blocks = 0
