"""An engine's life as a table of states, from the first that the worker hears of it until it has left."""

from enum import StrEnum
from math import inf

from hmas.laws.transitions import following
from hmas.worker.agent.config import EngineStateConfig


class LifeState(StrEnum):
    UNKNOWN = "unknown"  # it has not come up since this worker has it: only its name and its runs are known
    DOWN = "down"
    UNSEEN = "unseen"  # it came up, and no sample shows yet what it runs: nothing is granted there
    UP = "up"
    SUSPECTED = "suspected"  # it is up, left a run without a token for too long, and has given none since
    ASLEEP = "asleep"  # it is up, and by its own metrics somebody has put it to sleep: nothing is granted there
    LEAVING = "leaving"  # it is no longer this worker's: what runs there may end


TRANSITIONS: dict[LifeState, frozenset[LifeState]] = {
    LifeState.UNKNOWN: frozenset({LifeState.UNSEEN, LifeState.LEAVING}),
    LifeState.DOWN: frozenset({LifeState.UNSEEN, LifeState.LEAVING}),
    LifeState.UNSEEN: frozenset(
        {LifeState.UP, LifeState.SUSPECTED, LifeState.ASLEEP, LifeState.DOWN, LifeState.LEAVING}
    ),
    LifeState.UP: frozenset({LifeState.SUSPECTED, LifeState.ASLEEP, LifeState.DOWN, LifeState.LEAVING}),
    LifeState.SUSPECTED: frozenset({LifeState.UP, LifeState.ASLEEP, LifeState.DOWN, LifeState.LEAVING}),
    LifeState.ASLEEP: frozenset({LifeState.UP, LifeState.SUSPECTED, LifeState.DOWN, LifeState.LEAVING}),
    LifeState.LEAVING: frozenset(LifeState) - {LifeState.LEAVING},  # unknown: released; any other: it has returned
}
ANSWERING = frozenset({LifeState.UNSEEN, LifeState.UP, LifeState.SUSPECTED, LifeState.ASLEEP})


class EngineLife:
    """Where an engine is in its life. A move raises IllegalTransition, and changes nothing, if `TRANSITIONS` does not
    allow it.

    An engine that leaves goes on coming up and going down: `apart` is its state apart from that, to which it returns,
    and equals `state` otherwise. `starts` counts how often it came up, so that a request lost on it may be tried on it
    after a restart. `suspected` outlives a restart: only a token ends it. Nothing is granted before `held_until_s`.
    `slept_s` is when it was last found asleep.
    """

    __slots__ = (
        "_config", "_pause_s", "apart", "held_until_s", "leave_by_s", "slept_s", "starts", "state", "suspected", "up_s",
    )  # fmt: skip

    def __init__(self, config: EngineStateConfig) -> None:
        self._config = config
        self.state = self.apart = LifeState.UNKNOWN
        self.starts = 0
        self.up_s = -inf  # when it came up
        self.leave_by_s = inf  # when it is released, if it leaves
        self.held_until_s = self.slept_s = -inf
        self.suspected = False
        self._pause_s = 0.0  # how long it was last held because it is suspected

    @property
    def answers(self) -> bool:
        """Whether it is up, be it this worker's or leaving."""
        return self.apart in ANSWERING

    @property
    def serves(self) -> bool:
        """Whether it is up and this worker's."""
        return self.state in ANSWERING

    @property
    def seen(self) -> bool:
        """Whether a sample has shown what it runs since it came up."""
        return self.apart is LifeState.UP or self.apart is LifeState.SUSPECTED

    @property
    def asleep(self) -> bool:
        """Whether it is up and asleep, be it this worker's or leaving."""
        return self.apart is LifeState.ASLEEP

    @property
    def leaving(self) -> bool:
        return self.state is LifeState.LEAVING

    def come_up(self, now_s: float) -> None:
        self._enter(LifeState.UNSEEN)
        self.up_s = now_s
        self.starts += 1

    def go_down(self) -> None:
        self._enter(LifeState.DOWN)

    def see(self, now_s: float, *, asleep: bool = False) -> None:
        """Takes note of a sample that shows the engine at `now_s`, awake or `asleep`; one of before it came up says
        nothing."""
        if now_s < self.up_s or self.apart not in ANSWERING:
            return
        if asleep:
            if self.apart is not LifeState.ASLEEP:
                self._enter(LifeState.ASLEEP)
                self.slept_s = now_s
        elif not self.seen:
            self._enter(LifeState.SUSPECTED if self.suspected else LifeState.UP)

    def suspect(self, now_s: float) -> None:
        """Records that the engine left a run without a token for too long; several runs that stall at once count as
        one."""
        config = self._config
        if not self.suspected or now_s >= self.held_until_s:
            self._pause_s = min(config.max_suspect_pause_s, max(config.suspect_pause_s, 2.0 * self._pause_s))
            self.held_until_s = now_s + self._pause_s
        self.suspected = True
        if self.apart is LifeState.UP:
            self._enter(LifeState.SUSPECTED)

    def trust(self) -> None:
        """Records that the engine gave a token."""
        self.suspected, self._pause_s, self.held_until_s = False, 0.0, -inf
        if self.apart is LifeState.SUSPECTED:
            self._enter(LifeState.UP)

    def leave(self, by_s: float) -> None:
        """Records that it is no longer this worker's, and is to be released by `by_s`."""
        self.state = following(TRANSITIONS, self.state, LifeState.LEAVING)
        self.leave_by_s = by_s

    def come_back(self) -> None:
        """Records that it is this worker's again before it was released."""
        self.state = following(TRANSITIONS, self.state, self.apart)
        self.leave_by_s = inf

    def be_released(self) -> None:
        """Records that it has left: from now on it is known by its runs alone."""
        self.state = self.apart = following(TRANSITIONS, self.state, LifeState.UNKNOWN)
        self.starts, self.leave_by_s = 0, inf

    def _enter(self, state: LifeState) -> None:
        self.apart = following(TRANSITIONS, self.apart, state)
        if self.state is not LifeState.LEAVING:
            self.state = self.apart
