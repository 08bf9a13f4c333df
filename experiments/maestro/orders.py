"""The orders of Fig. 7 and of later systems, each over the same engines behind one queue.

An order gives a waiting call its rank; the least goes first. `JobKnowledge` is what an order may know: profiles of jobs
that have ended, and what engines take for a token. The oracles read the truth and have it in their names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from experiments.maestro.workload import SLOWED, alone_s, service_s
from hmas.engine.core.profile import EngineProfile
from hmas.laws.job_profiles import DoneStage, JobProfiles
from hmas_lab.sim.jobs import SimJob

AGEING = 0.01  # of Maestro: seconds of remaining time made up by a second of waiting (the topology's)
LEVEL_S = 0.5  # of PLAS: attained service of the first level; each next one is twice as wide
REPLAN_S = 0.25
PLANNED = 0.5  # share of the engines' time that the clairvoyant order plans with; the rest is for jobs that will come
JobRank = tuple[float, ...]


@dataclass(slots=True)
class JobState:
    """A job that has arrived: how many of its calls came, what they answered and took (s), and which have ended."""

    job: SimJob
    came: int = 0
    answered: int = 0
    attained_s: float = 0.0
    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call in the queue. `index` counts the job's calls before it, `answered` their output tokens by then."""

    state: JobState
    number: int
    index: int
    answered: int
    arrival_s: float
    engine: str  # where the job's last call ran, or empty
    rank: JobRank = ()

    @property
    def prompt_tokens(self) -> int:
        return self.state.job.calls[self.number].offered.request.prompt_tokens

    @property
    def agent(self) -> int:
        return agent_of(self.state.job, self.number)


def agent_of(job: SimJob, number: int) -> int:
    return job.calls[number].offered.request.prefix.nodes[0]


def history(jobs: Iterable[SimJob]) -> Iterable[tuple[int, list[DoneStage]]]:
    """Returns the template and the stages of each job, as an observer records them."""
    for job in jobs:
        stages = [
            DoneStage(
                agent_of(job, i), call.offered.request.prompt_tokens, call.offered.output_tokens, call.outside_s,
                max(call.after, default=-1),
            )
            for i, call in enumerate(job.calls)
        ]  # fmt: skip
        yield agent_of(job, 0), stages


class JobKnowledge:
    """What is known: Eq. 8's medians over `before` and over the jobs that have ended, and the engines' profile."""

    def __init__(self, before: Iterable[SimJob], profile: EngineProfile, engines: int) -> None:
        self.profile, self.engines = profile, engines
        self._table = JobProfiles()
        self.learn(before)

    def learn(self, jobs: Iterable[SimJob]) -> None:
        """Takes jobs into account that have ended."""
        for template, stages in history(jobs):
            self._table.learn(template, stages)

    def remaining_s(self, call: WaitingCall) -> float:
        """Returns Eq. 7's T_rem: T_exec of the call by the median length of its state, and Eq. 8's T_future."""
        found = self._table.forecast(agent_of(call.state.job, 0), call.agent, call.index)
        if found is None:
            return alone_s(self.profile, call.prompt_tokens, 200)
        need = found.median
        cost = self.profile.cost
        future_s = cost.c_p_s * need.prompt_tokens + (cost.c0_s + cost.c_d_s) * need.output_tokens
        return alone_s(self.profile, call.prompt_tokens, max(1, round(need.own_tokens))) + future_s

    def true_remaining_s(self, call: WaitingCall) -> float:
        state = call.state
        left = (c for i, c in enumerate(state.job.calls) if i == call.number or i not in state.started)
        return sum(alone_s(self.profile, c.offered.request.prompt_tokens, c.offered.output_tokens) for c in left)


class JobOrder:
    """An order by a rank that is given when a call comes. `least_outstanding`: calls do not wait in the queue, but go
    at once to the engine with the fewest, which serve first come, first served."""

    def __init__(
        self, rank: Callable[[JobKnowledge, WaitingCall], JobRank], *, least_outstanding: bool = False
    ) -> None:
        self._rank, self.least_outstanding = rank, least_outstanding

    def begin(self, knowledge: JobKnowledge) -> None:
        self.knowledge = knowledge

    def arrived(self, call: WaitingCall) -> None:
        call.rank = self._rank(self.knowledge, call)

    def plan(self, now_s: float, waiting: Mapping[int, WaitingCall], states: Mapping[str, JobState]) -> None:
        """Gives the waiting calls new ranks, where these depend on time."""

    def allows(self, call: WaitingCall) -> bool:
        return True

    def ended(self, state: JobState) -> None:
        """Notes that a job has ended."""
        self.knowledge.learn([state.job])


class Clairvoyant(JobOrder):
    """Moore and Hodgson over whole jobs with their true lengths. The jobs are taken by the latest instant at which the
    calls that have not begun must begin; whenever the work before one would make it late, the one with the most work is
    given up. Those that are kept go by that instant, the others after them, the least work first, and hopeless ones
    last."""

    def __init__(self) -> None:
        super().__init__(lambda knowledge, call: (0.0, call.state.job.due_s))
        self._planned_s = -REPLAN_S
        self._shapes: dict[str, tuple[list[float], list[float]]] = {}

    def _of(self, job: SimJob) -> tuple[list[float], list[float]]:
        """Returns the work of each call, and the seconds from its start to the end of the job if nothing waits."""
        if job.id not in self._shapes:
            profile = self.knowledge.profile
            shapes = [(c.offered.request.prompt_tokens, c.offered.output_tokens) for c in job.calls]
            tails = [SLOWED * alone_s(profile, *shape) for shape in shapes]
            for i in range(len(tails) - 1, -1, -1):
                later = (tails[k] + call.outside_s for k, call in enumerate(job.calls) if i in call.after)
                tails[i] += max(later, default=0.0)
            self._shapes[job.id] = [service_s(profile, *shape) for shape in shapes], tails
        return self._shapes[job.id]

    def plan(self, now_s: float, waiting: Mapping[int, WaitingCall], states: Mapping[str, JobState]) -> None:
        if now_s - self._planned_s < REPLAN_S:
            return
        self._planned_s = now_s
        rows, ranks = list[tuple[float, float, str]](), dict[str, JobRank]()
        for state in states.values():
            work, tails = self._of(state.job)
            left = [i for i in range(len(work)) if i not in state.started]
            if left:
                start_s, work_s = state.job.due_s - max(tails[i] for i in left), sum(work[i] for i in left)
                if start_s >= now_s:
                    rows.append((start_s, work_s, state.job.id))
                ranks[state.job.id] = (0.0, start_s) if start_s >= now_s else (2.0, work_s)
        kept, total = list[tuple[float, str]](), 0.0
        for start_s, work_s, name in sorted(rows):
            heappush(kept, (-work_s, name))
            if total > PLANNED * self.knowledge.engines * (start_s - now_s):
                most, other = heappop(kept)
                total += most
                ranks[other] = (1.0, -most)
            total += work_s
        for call in waiting.values():
            call.rank = ranks[call.state.job.id]


class WorkingSet(JobOrder):
    """ThunderAgent's idea: calls of running programs are not paused for new ones; a new program starts when the KV
    memory has room for its context beside those of all that run, first come, first served."""

    def __init__(self) -> None:
        super().__init__(lambda knowledge, call: (call.state.job.arrival_s,))
        self._active: dict[str, int] = {}

    def begin(self, knowledge: JobKnowledge) -> None:
        super().begin(knowledge)
        limits = knowledge.profile.limits
        self._room = knowledge.engines * limits.num_gpu_blocks * limits.block_size

    def allows(self, call: WaitingCall) -> bool:
        job = call.state.job.id
        if job not in self._active and sum(self._active.values()) + call.prompt_tokens > self._room:
            return False
        self._active[job] = max(self._active.get(job, 0), call.prompt_tokens)
        return True

    def ended(self, state: JobState) -> None:
        super().ended(state)
        self._active.pop(state.job.id, None)


def _level(attained_s: float) -> float:
    level, bound = 0, LEVEL_S
    while attained_s > bound:
        level, bound = level + 1, bound * 2.0
    return float(level)


FCFS, EDF, EDF_CLASS, MAESTRO, ORACLE, CLAIRVOYANT = (
    "fcfs", "edf", "edf-class", "maestro", "oracle-srtf", "clairvoyant-jobs"
)  # fmt: skip
VLLM = "vllm"
ORDERS: Mapping[str, Callable[[], JobOrder]] = {
    VLLM: lambda: JobOrder(lambda k, c: (c.arrival_s,), least_outstanding=True),
    FCFS: lambda: JobOrder(lambda k, c: (c.arrival_s,)),
    EDF: lambda: JobOrder(lambda k, c: (c.state.job.due_s,)),
    EDF_CLASS: lambda: JobOrder(lambda k, c: (float(not c.state.job.interactive), c.state.job.due_s)),
    "vllm-priority": lambda: JobOrder(lambda k, c: (float(not c.state.job.interactive), c.arrival_s)),
    "autellix-plas": lambda: JobOrder(lambda k, c: (_level(c.state.attained_s), c.arrival_s)),
    "continuum": lambda: JobOrder(lambda k, c: (c.state.job.arrival_s,)),
    "thunderagent": WorkingSet,
    MAESTRO: lambda: JobOrder(lambda k, c: (k.remaining_s(c) + AGEING * c.arrival_s,)),
    ORACLE: lambda: JobOrder(lambda k, c: (k.true_remaining_s(c),)),
    CLAIRVOYANT: Clairvoyant,
}
