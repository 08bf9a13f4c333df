"""What the jobs of a template still need after each of their stages, learnt from those that ended.

A state is the job's template, the agent of the stage, and the stage's number. Of each state the last `window` jobs are
kept: what they needed after it. A forecast tells quantiles of a state's records, as the median of Maestro's Eq. 8 is
one; a state with fewer than `min_count` records leans on the next coarser one.

Waiting is no part of it: work is counted in tokens, and seconds are those in which no model worked for the job. Stages
may run side by side: what a job needs altogether is work for engines, and the longest way through it is time.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

State = tuple[int, ...]
LOW = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfilesConfig:
    """`max_states`: beyond, the state that learnt nothing for longest is forgotten. By `prompt_s` and `output_s`,
    seconds per token, the longer of two ways through a job is told."""

    window: int = 512
    min_count: int = 8
    max_states: int = 10_000
    prompt_s: float = 1e-4
    output_s: float = 0.02


class DoneStage(NamedTuple):
    """A stage that ended. `agent` is a digest of what all its prompts begin with. `after` is the place in the job of
    the stage whose end let it go: None is the one before it, and -1 is none, as for stages that begin with their job;
    `outside_s` are the seconds from that end until it came."""

    agent: int
    prompt_tokens: int
    output_tokens: int
    outside_s: float
    after: int | None = None


class Need(NamedTuple):
    """What a job needs: tokens of one stage's answer (`own_tokens`), and after that stage further `stages`, their
    prompt and output tokens. Of the longest way through the stages that wait for this one: `way_prompt_tokens`,
    `way_output_tokens`, and the seconds in which no model works (`outside_s`)."""

    own_tokens: float
    stages: float
    prompt_tokens: float
    output_tokens: float
    way_prompt_tokens: float
    way_output_tokens: float
    outside_s: float


class Forecast(NamedTuple):
    """Quantiles of what a job needs, each of its parts by itself: `low` is what `LOW` of the jobs do not exceed."""

    low: Need
    median: Need
    p90: Need


class JobProfiles:
    """The records of all states that one observer of jobs keeps."""

    def __init__(self, config: JobProfilesConfig | None = None) -> None:
        self._config = config or JobProfilesConfig()
        self._states: OrderedDict[State, deque[Need]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def learn(self, template: int, stages: Sequence[DoneStage]) -> None:
        """Records a job that has ended, given its stages in the order in which they came."""
        ways = self._ways(stages)
        prompt = output = 0
        for index in range(len(stages) - 1, -1, -1):
            stage = stages[index]
            need = Need(stage.output_tokens, len(stages) - 1 - index, prompt, output, *ways[index])
            for state in _states(template, stage.agent, index):
                self._keep(state, need)
            prompt += stage.prompt_tokens
            output += stage.output_tokens

    def _ways(self, stages: Sequence[DoneStage]) -> list[tuple[int, int, float]]:
        """Returns of each stage the prompt and output tokens, and the seconds outside, of the longest way through the
        stages that waited for it."""
        config = self._config
        longest = [0.0] * len(stages)
        ways = [(0, 0, 0.0)] * len(stages)
        for index in range(len(stages) - 1, 0, -1):
            stage, (prompt, output, outside_s) = stages[index], ways[index]
            way = prompt + stage.prompt_tokens, output + stage.output_tokens, outside_s + stage.outside_s
            seconds = config.prompt_s * way[0] + config.output_s * way[1] + way[2]
            before = index - 1 if stage.after is None else stage.after
            if 0 <= before < index and seconds > longest[before]:
                longest[before], ways[before] = seconds, way
        return ways

    def forecast(self, template: int, agent: int, index: int) -> Forecast | None:
        """Returns what is forecast at a stage that has come, None if no job of its template is known."""
        found = self.records(template, agent, index)
        if not found:
            return None
        low, median, p90 = (Need(*row) for row in zip(*map(_quantiles, zip(*found, strict=True)), strict=True))
        return Forecast(low, median, p90)

    def records(self, template: int, agent: int, index: int) -> Sequence[Need]:
        """Returns the records that speak of a stage; none if no job of its template is known."""
        known = [s for s in map(self._states.get, _states(template, agent, index)) if s]
        return next((s for s in known if len(s) >= self._config.min_count), known[-1] if known else ())

    def _keep(self, state: State, record: Need) -> None:
        kept = self._states.get(state)
        if kept is None:
            kept = self._states[state] = deque(maxlen=self._config.window)
            if len(self._states) > self._config.max_states:
                self._states.popitem(last=False)
        self._states.move_to_end(state)
        kept.append(record)


def _states(template: int, agent: int, index: int) -> tuple[State, ...]:
    """Returns the states of a stage, the finest first."""
    return (template, agent, index), (template, index), (template,)


def _quantiles(values: Iterable[float]) -> list[float]:
    """Returns the quantiles of a `Forecast`: the least values that these shares of them do not exceed."""
    ordered = sorted(values)
    return [ordered[ceil(share * len(ordered)) - 1] for share in (LOW, 0.5, 0.9)]
