"""The time that an engine's step has for sequences, and the part of it that those which run take."""

from collections.abc import Sequence
from math import inf

from hmas.contracts.control import StepTime
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.counts import EngineCounts
from hmas.worker.agent.engines.step_target import StepBase, worthy_slo_s
from hmas.worker.agent.entry.entry import QueueEntry


class StepRoom:
    """Whether a step of an engine has time for another request within the TPOT SLO worth keeping, `worthy_slo_s`.

    `step` is what a step costs by what Statera has told; None: it has not. `base` is what it costs without any request,
    by the engine's own samples.
    """

    __slots__ = ("_books", "_config", "_counts", "_small_share", "base", "step", "worthy_slo_s")

    def __init__(self, config: EngineStateConfig, books: EngineBooks, counts: EngineCounts) -> None:
        self._config = config
        self._books = books
        self._counts = counts
        self.step: StepTime | None = None
        self.base = StepBase(config.base_memory_s)
        self.worthy_slo_s = inf
        self._small_share = 0.0  # of those granted lately, where a step's cost is known

    def aim(self, offered_slos_s: Sequence[float]) -> None:
        """Sets the TPOT SLO that the engine's step is held to, by those of the requests that are offered."""
        base_s = self.base.seconds if self.step is None else self.step.base_s
        self.worthy_slo_s = worthy_slo_s(offered_slos_s, base_s)

    def granted(self, entry: QueueEntry) -> None:
        """Learns how many of the requests are small, by one that is granted beside others."""
        if self.step is not None and self._books.running:
            self._small_share += self._config.small_smoothing * (self._is_small(entry) - self._small_share)

    @property
    def room_s(self) -> float:
        """The time that a step has for sequences within the TPOT SLO worth keeping; infinite while that, or the step's
        cost, is not known. A base that was just learnt may leave none until that SLO is found anew."""
        return inf if self.step is None else self.worthy_slo_s - self.step.base_s

    def least_s(self, context_tokens: float) -> float:
        """Returns the least that a step takes which reads so much context: by what Statera has told, without what a
        sequence costs, because that includes others' prompts; or without context either, by the engine's own samples.
        0 if neither is known."""
        return self.base.seconds if self.step is None else self.step.base_s + self.step.context_s * context_tokens

    @property
    def used_s(self) -> float:
        """The part of a step that what runs here takes in the mean over its answers; 0 while a step's cost is not
        known. What is not in the books counts as what is."""
        books = self._books
        if self.step is None or not books.running:
            return 0.0
        own_s = len(books.running) * self.step.sequence_s + books.contexts * self.step.context_s
        return own_s * self._counts.in_flight / len(books.running)

    @property
    def open(self) -> bool:
        """Whether a step has time for some request."""
        return self._has_time or self.used_s < self._config.small_room * self.room_s

    def has_time_for(self, entry: QueueEntry) -> bool:
        """Returns whether a step has time for one more request. Where what runs leaves no time for any, one that can
        be on time and is small may begin all the same, up to `small_room` times the room: it is soon done, and cannot
        wait for the long ones to end. So may a relegated one whose turn it is: as the head, it would hold up all."""
        if self._has_time:
            return True
        waits = not entry.has_turn and (entry.relegated or not self._is_small(entry))
        return not waits and self.used_s < self._config.small_room * self.room_s

    def _is_small(self, entry: QueueEntry) -> bool:
        """Whether the request takes little of a step beside what runs here; none does while a step's cost is not
        known."""
        if self.step is None:
            return False
        own_s = self.step.sequence_s + self.step.context_s * entry.mean_context
        return own_s * self._counts.in_flight <= self._config.small * self.used_s

    @property
    def _has_time(self) -> bool:
        """Whether a step has time for any request. Where small ones come, a part of it is theirs. An idle engine takes
        one whatever its steps cost. What they are expected to take is not believed, up to `short_room` times the room,
        while they are measured to be shorter than the share `short_step` of the SLO."""
        if self.step is None or not self._counts.in_flight:
            return True
        config, used_s, room_s = self._config, self.used_s, self.room_s
        open_to_any = config.large_room if self._small_share > config.small_seen else 1.0
        if used_s < open_to_any * room_s:
            return True
        sample = self._counts.sample
        short = sample is not None and sample.step_s < config.short_step * self.worthy_slo_s
        return short and used_s < config.short_room * room_s
