"""A pool's past requests once more through the simulated mesh, from what ran and waited at some instant on.

The true output lengths load the engines only; the agents get what perception said of each request at the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from hmas.contracts.control import Split, StepTime
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import PastLayout, Policy, SloChange
from hmas.contracts.request import Request, Slo, TagSource, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.telemetry import RequestFinished
from hmas.engine.core.profile import EngineProfile
from hmas.gateway.agent.config import GatewayConfig
from hmas.laws.request_rows import RequestRow
from hmas.laws.scoring import Settlement, ttlt_slo_s
from hmas.meta.agent.config import ForetellingConfig, MetaConfig
from hmas.sim.engine_changes import late
from hmas.sim.estimators import Shipped
from hmas.sim.past.fitted import numbered_profiles
from hmas.sim.past.played_plan import PlayedEngines, played_engines
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas.sim.workload import OfferedRequest, Workload
from hmas.statera.agent.config import NRunConfig, StateraConfig, StepMeterConfig

CUTOFF_S = 120.0
LEAD_S = 2.0  # before the first request, until the regulator's limits are in force
RESUME_S = 3.0  # over which what ran starts again
_UNTOLD = MetaConfig(foretelling=ForetellingConfig(enabled=False))  # a replay foretells nothing itself
_LEAST_S = 1e-3  # left of an SLO that has passed
_Z90 = 1.2816
# Refused by what no topology changes: a limit, a key, the request itself.
_NOT_REPLAYED = frozenset(
    {
        Outcome.INVALID_REQUEST, Outcome.UNAUTHENTICATED, Outcome.FORBIDDEN, Outcome.UNKNOWN_MODEL,
        Outcome.UNKNOWN_PATH, Outcome.BODY_TOO_LARGE, Outcome.CLIENT_TOO_SLOW, Outcome.NEVER_FITS,
        Outcome.TENANT_REQUEST_RATE, Outcome.TENANT_TOKEN_RATE, Outcome.TENANT_IN_FLIGHT, Outcome.TENANT_QUEUE_FULL,
        Outcome.ENGINE_REFUSED,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a rehearsal replays. `rows` are in order of arrival; their `arrival_s` is below 0, because it counts from
    now. Judged are those of the last `window_s` seconds. `profiles`: of each engine. `layouts`: those before that of
    `in_force`, in order."""

    rows: tuple[RequestRow, ...]
    window_s: float
    profiles: tuple[EngineProfile, ...]
    workers: int
    in_force: Policy
    layouts: tuple[PastLayout, ...] = ()

    def __post_init__(self) -> None:
        if not self.profiles or self.workers < 1:
            raise ValueError("a pool without engines cannot be rehearsed")
        if not self.window_s > 0.0:
            raise ValueError(f"the window must be longer than 0 s, got {self.window_s}")


@dataclass(frozen=True, slots=True)
class PastReplay:
    """What a scene is replayed as: `rows` in order of arrival, of which the first `resumed` run when it begins. `young`
    are the numbers of those that came after that, and `learnt` what had ended before. `judged_s` is when what is judged
    begins, on the clock of the rows."""

    scene: Scene
    rows: tuple[RequestRow, ...]
    resumed: int
    young: tuple[int, ...]
    learnt: tuple[RequestFinished, ...]
    judged_s: float

    def run(self, policy: Policy, seeds: Sequence[int]) -> list[list[Settlement]]:
        """Returns how each row ends under a policy, seed by seed."""
        setup, found = self.setup(policy), []
        for seed in seeds:
            workload = workload_of(self.rows, policy.slos, seed, self.resumed)
            mesh = MeshSim(setup, setup.pools[0].profile, 1, workload, seed, cutoff_s=CUTOFF_S, learnt=self.learnt)
            found.append(mesh.run().settlements)
        return found

    def setup(self, policy: Policy) -> MeshSetup:
        """Returns the mesh that is simulated under a policy."""
        played, layouts = self.engines(policy), self.layouts(policy)
        there = [i for i in range(len(played.profiles)) if f"e{i}" not in late(played.changes)]
        workers = min(self.scene.workers, len(there))
        profiles = played.profiles if played.changes else numbered_profiles(played.profiles, workers)
        known = tuple((f"e{i}", self.step_time(profiles[i].cost)) for i in there)
        others = tuple((profile, 1) for profile in profiles[1:])
        return MeshSetup(
            name="rehearsal",
            pin=policy.topology,
            hints=policy.hints,
            split=layouts[0][1],
            splits=layouts[1:],
            pools=(PoolSetup(POOL, profiles[0], 1, workers, others),),
            changes=played.changes,
            meta_config=_UNTOLD,
            gateway_config=GatewayConfig(gateway="g0", observe=policy.observes),
            statera_config=StateraConfig(band=NRunConfig(steps=StepMeterConfig(known=known))),
        )

    def engines(self, policy: Policy) -> PlayedEngines:
        """Returns the engines of a replay under a policy. A plan's steps are ordered when what is judged begins."""
        ordered_s = self._clock_s(self.judged_s)
        return played_engines(self.scene.profiles, policy.engines, ordered_s, policy.leave_after_s)

    def _clock_s(self, row_s: float) -> float:
        """Returns an instant of the rows' clock on that of the replay."""
        return LEAD_S + row_s - self.rows[0].arrival_s

    def step_time(self, cost: StepCostModel) -> StepTime:
        """Returns the law of a step that the pool's regulator had long learnt when the replay begins, with as many
        prompt tokens for each that is decoded as requests had that ended before."""
        ended = [(each.prompt_tokens, float(each.output_tokens)) for each in self.learnt]
        lengths = ended or [(row.prompt_tokens, row.predicted_output_tokens) for row in self.rows]
        prompts, outputs = sum(prompt for prompt, _ in lengths), sum(output for _, output in lengths)
        return StepTime(cost.c0_s, cost.c_d_s + cost.c_p_s * prompts / max(1.0, outputs), cost.c_k_s)

    def layouts(self, policy: Policy) -> tuple[tuple[float, Split], ...]:
        """Returns the layouts of a replay, each with the instant of its clock at which it begins. That of a plan begins
        when its steps are ordered. A policy with another number of engines or another layout than what is in force has
        that all the time."""
        planned = isinstance(policy.engines, tuple)
        if not planned and (policy.engines is not None or policy.split != self.scene.in_force.split):
            return ((0.0, policy.split),)
        found, since_s = [], 0.0
        for layout in self.scene.layouts:
            if (ended_s := self._clock_s(-layout.age_s)) > LEAD_S:
                found.append((since_s, layout.split))
                since_s = ended_s
        found.append((since_s, self.scene.in_force.split))
        if planned and policy.split != self.scene.in_force.split:
            found.append((max(since_s, self._clock_s(self.judged_s)), policy.split))
        return tuple(found)


def replay_of(scene: Scene, begin_s: float, return_s: float, judged_s: float) -> PastReplay:
    """Returns the replay of a scene from `begin_s` on: what ran then starts again with the tokens that it still lacked,
    what waited comes back bit by bit over `return_s`, and what came since comes as it came; that from `judged_s` on is
    judged."""
    longest = max(profile.limits.max_model_len for profile in scene.profiles)
    running: list[RequestRow] = []
    waiting: list[RequestRow] = []
    later: list[RequestRow] = []
    learnt: list[RequestFinished] = []
    for row in scene.rows:
        replayed = row.outcome not in _NOT_REPLAYED and row.max_tokens != 0
        if not replayed or row.prompt_tokens + max(1, row.output_tokens) > longest:
            continue
        waited_s = begin_s - row.arrival_s
        if waited_s < 0.0:
            later.append(row)
        elif row.outcome is not None and (row.last_token_s is None or row.last_token_s <= waited_s):
            if (told := _finished_report(row, waited_s)) is not None:
                learnt.append(told)  # others had not finished, or nobody knows when they ended
        elif row.ttft_s is None or row.ttft_s > waited_s:
            waiting.append(row)
        else:
            running.append(_rest(row, row.ttft_s, waited_s))
    apart_s = RESUME_S / max(1, len(running))
    resumed = [replace(row, arrival_s=begin_s - RESUME_S + apart_s * i) for i, row in enumerate(running)]
    apart_s = return_s / max(1, len(waiting))
    back = [_back(row, begin_s, apart_s * i) for i, row in enumerate(waiting)]
    coming = sorted([(row, False) for row in back] + [(row, True) for row in later], key=lambda each: each[0].arrival_s)
    young = tuple(i for i, (_, came) in enumerate(coming, len(resumed)) if came)
    return PastReplay(scene, (*resumed, *(row for row, _ in coming)), len(resumed), young, tuple(learnt), judged_s)


def _finished_report(row: RequestRow, age_s: float) -> RequestFinished | None:
    """Returns what a worker told of a request that perception's model had tagged and that had finished at the age of
    `age_s`."""
    if row.outcome is not Outcome.FINISHED or row.last_token_s is None or _recorded(row) is None:
        return None
    p90 = row.predicted_output_tokens_p90
    return RequestFinished(
        request_id="", tenant=row.tenant, task=row.task, engine="", outcome=row.outcome,
        prompt_tokens=row.prompt_tokens, output_tokens=row.output_tokens, predicted_output_tokens_p90=p90,
        upper_output_tokens=p90, predictor=Shipped.version, run_s=row.last_token_s, prefill_s=0.0,
        tpot_s=row.tpot_s or 0.0, tpot_slo_s=row.slo.tpot_s, censored=False, age_s=age_s - row.last_token_s,
    )  # fmt: skip


def _back(row: RequestRow, begin_s: float, after_s: float) -> RequestRow:
    """Returns a request that waited at `begin_s` as one that comes `after_s` later with what is then left of its SLOs.
    One that can still be on time comes before half of its time is over."""
    left_s = row.arrival_s + row.slo.ttft_s - begin_s
    at_s = begin_s + (min(after_s, left_s / 2.0) if left_s > 0.0 else after_s)
    due = replace(row.slo, ttlt_s=ttlt_slo_s(row.slo, int(row.predicted_output_tokens)))  # some orders go by it
    return replace(row, arrival_s=at_s, slo=_less(due, at_s - row.arrival_s))


def _rest(row: RequestRow, ttft_s: float, age_s: float) -> RequestRow:
    """Returns a request that ran at the age of `age_s` as one with the tokens before that in its prompt, and those
    that were still to come as its answer. How far one was that still runs today is guessed by its TPOT SLO."""
    slo, decoded_s = row.slo, age_s - ttft_s
    if row.last_token_s is not None:
        tokens = int(row.output_tokens * decoded_s / (row.last_token_s - ttft_s))
        output_tokens = max(1, row.output_tokens - tokens)
    else:
        tokens, output_tokens = int(min(decoded_s / slo.tpot_s, row.predicted_output_tokens_p90)), 0
    tokens = max(1, tokens)
    p90 = max(1.0, row.predicted_output_tokens_p90 - tokens)
    return replace(
        row,
        prompt_tokens=row.prompt_tokens + tokens,
        output_tokens=output_tokens,
        max_tokens=None if row.max_tokens is None else max(1, row.max_tokens - tokens),
        predicted_output_tokens=max(p90 / 2.0, row.predicted_output_tokens - tokens),
        predicted_output_tokens_p90=p90,
        slo=_less(slo, age_s) if ttft_s > slo.ttft_s else slo,
    )


def _less(slo: Slo, by_s: float) -> Slo:
    ttlt_s = None if slo.ttlt_s is None else max(_LEAST_S, slo.ttlt_s - by_s)
    return replace(slo, ttft_s=max(_LEAST_S, slo.ttft_s - by_s), ttlt_s=ttlt_s)


def workload_of(rows: Iterable[RequestRow], slos: Sequence[SloChange], seed: int, resumed: int = 0) -> Workload:
    """Returns the rows as a workload that begins `LEAD_S` before the first of them. Lengths that are not known are
    drawn. Of the first `resumed` all but the last token of the prompt need not be computed any more."""
    requests: list[OfferedRequest] = []
    first_s = last_s = 0.0
    for i, row in enumerate(rows):
        if not requests:
            first_s = row.arrival_s
        last_s = row.arrival_s
        changed = _changed(row, slos)
        slo = changed or row.slo
        request = Request(
            id=f"p{i:06d}",
            model=POOL,
            tenant=row.tenant,
            flow=row.job,
            prompt_tokens=max(1, row.prompt_tokens),
            max_tokens=row.max_tokens,
            stream=row.stream,
            slo=slo,
            slo_stated=row.stated or changed is not None,
            priority=row.priority,
            weight=row.weight,
            importance=row.importance,
            arrival_s=LEAD_S + row.arrival_s - first_s,
            relegate=row.relegate,
        )
        requests.append(
            OfferedRequest(
                request=request,
                output_tokens=output_tokens(row, Random(f"{seed} length {i}")),
                slo=slo,
                task=row.task,
                recorded=_recorded(row),
                computed_tokens=row.prompt_tokens - 1 if i < resumed else 0,
            )
        )
    return Workload("past requests", tuple(requests), LEAD_S + max(1.0, last_s - first_s))


def output_tokens(row: RequestRow, draw: Random) -> int:
    """Returns the length of the answer: the true one if it finished, otherwise one drawn from the log-normal
    distribution that was predicted, but no shorter than what came."""
    if row.outcome is Outcome.FINISHED:
        return max(1, row.output_tokens)
    median = max(1.0, row.predicted_output_tokens or row.max_tokens or 200.0)
    sigma = log(max(median, row.predicted_output_tokens_p90) / median) / _Z90
    tokens = int(median * exp(draw.gauss(0.0, sigma)))
    most = row.max_tokens if row.max_tokens is not None else 2**20
    return max(1, row.output_tokens, min(tokens, most))


def _changed(row: RequestRow, slos: Sequence[SloChange]) -> Slo | None:
    for change in slos:
        if change.name in (row.tenant, row.task.value):
            ttft_s = row.slo.ttft_s if change.ttft_s is None else change.ttft_s
            return replace(row.slo, ttft_s=ttft_s, tpot_s=change.tpot_s or row.slo.tpot_s)
    return None


def _recorded(row: RequestRow) -> tuple[TaskType, float, float, float] | None:
    """Returns what a model of perception said of the request; None where the prior answered, as it does here too."""
    if row.tagged_by is None or row.tagged_by is TagSource.PRIOR:
        return None
    median = row.predicted_output_tokens
    if median <= 0.0:
        return None
    return row.task, row.confidence, median, max(median, row.predicted_output_tokens_p90)
