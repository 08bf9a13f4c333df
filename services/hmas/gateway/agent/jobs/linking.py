"""Linking: finds for each request the job that it continues, from what the request itself holds.

A client may name the job. Without a name, a request continues the job whose former prompt is the longest beginning of
its own. A request that continues none of them joins the last job with the same first message of a user: agents with
system prompts of their own talk about one task in such jobs. A prompt that ends with that message opens a new job.

A job's id is computed from that first message alone, so that each gateway finds the same one without being told. Only
if a job with that message is already known here does a new one get another id. Gateways tell one another the last stage
of each job once in `exchange_s`, so that jobs with equal first messages are kept apart at all of them. All tables are
bounded; the entry used longest ago is dropped, after which a job goes on under the id that its text gives.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from hmas.contracts.job import LinkedBy, PrefixChain, Stage, StageArrived, StageLinked
from hmas.contracts.use import ToldStage
from hmas.gateway.agent.config import LinkingConfig
from hmas.laws.prefix_chain import digest_of, tenant_key


@dataclass(slots=True, eq=False)
class _Job:
    id: str
    tenant: str  # empty while it is known from other gateways alone
    key: int
    last: str
    at_s: float
    turn: int
    stages: int = 1
    end: int = 0  # the last node of its last prompt, if that is whole


class JobLinker:
    """The jobs that one gateway has seen."""

    def __init__(self, config: LinkingConfig | None = None) -> None:
        self._config = config or LinkingConfig()
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._threads: dict[int, list[_Job]] = {}  # by the first message's digest; jobs that wait longest first
        self._ends: OrderedDict[int, deque[_Job]] = OrderedDict()  # by a former prompt's last node
        self._unreported: OrderedDict[str, _Job] = OrderedDict()  # jobs of which a stage came since the last report
        self._reported_s = -1e9

    def __len__(self) -> int:
        return len(self._jobs) + len(self._ends)

    def step(self, now_s: float, event: StageArrived) -> list[StageLinked]:
        """Returns the stage that the request is."""
        chain = event.chain
        if event.declared:
            key = digest_of(tenant_key(event.tenant), b"declared", event.declared.encode("utf-8", "surrogatepass"))
            job, linked = self._jobs.get(_id(key)), LinkedBy.DECLARED
        else:
            key = chain.thread
            job, linked = self._continued(event.tenant, chain), LinkedBy.PREFIX
            if job is None and not chain.opening and chain.thread:
                job, linked = self._threaded(now_s, event.tenant, chain), LinkedBy.THREAD
        if job is None:
            if not event.declared:
                linked = LinkedBy.NEW
                if not key and chain.nodes:
                    key = chain.nodes[-1]
            job = self._open(now_s, event, key)
            stage = Stage(job=job.id, index=0, parent="", linked=linked)
        else:
            stage = Stage(job=job.id, index=job.stages, parent=job.last, linked=linked)
            job.stages += 1
            job.last, job.at_s, job.turn = event.request_id, now_s, job.turn or chain.turn
            self._jobs.move_to_end(job.id)
            alike = self._threads.get(job.key)
            if alike is not None and len(alike) > 1:
                alike.remove(job)
                alike.append(job)
        job.tenant = event.tenant
        job.end = chain.nodes[-1] if chain.whole else 0
        if job.end:
            self._remember(job, job.end)
        self._unreported[job.id] = job
        self._unreported.move_to_end(job.id)
        if len(self._unreported) > self._config.max_told:
            self._unreported.popitem(last=False)
        return [StageLinked(event.request_id, stage)]

    def _continued(self, tenant: str, chain: PrefixChain) -> _Job | None:
        """Returns the job of the longest former prompt that this one goes on from. Where several are equal, it is the
        one that waits longest; each prompt is continued once."""
        for node in reversed(chain.nodes[:-1] if chain.whole else chain.nodes):
            ends = self._ends.get(node)
            while ends:
                job = ends.popleft()
                if not ends:
                    del self._ends[node]
                if job.tenant in (tenant, "") and self._jobs.get(job.id) is job:
                    return job
        return None

    def _threaded(self, now_s: float, tenant: str, chain: PrefixChain) -> _Job | None:
        """Returns the job with the same first message that was quiet longest, but not for longer than `silent_s`. One
        whose next message is the same as well is preferred, and after that one whose next message is not known."""
        silent_s = self._config.silent_s
        same = self._threads.get(chain.thread, ())
        alike = [job for job in same if job.tenant in (tenant, "") and now_s - job.at_s <= silent_s]
        return min(alike, key=lambda job: 0 if job.turn == chain.turn else 1 if not job.turn else 2, default=None)

    def _open(self, now_s: float, event: StageArrived, key: int) -> _Job:
        job_id = _id(key or digest_of(tenant_key(event.tenant), event.request_id.encode("utf-8", "surrogatepass")))
        if job_id in self._jobs:
            job_id = _id(digest_of(tenant_key(event.tenant), event.request_id.encode("utf-8", "surrogatepass")))
        stays_apart = event.declared or not key  # it is not found by its first message
        job = _Job(job_id, event.tenant, 0 if stays_apart else key, event.request_id, now_s, event.chain.turn)
        return self._enter(job)

    def _enter(self, job: _Job) -> _Job:
        self._jobs[job.id] = job
        if job.key:
            alike = self._threads.setdefault(job.key, [])
            alike.append(job)
            if len(alike) > self._config.max_alike:
                self._drop(alike[0])
        while len(self._jobs) > self._config.max_jobs:
            self._drop(next(iter(self._jobs.values())))
        return job

    def _drop(self, job: _Job) -> None:
        del self._jobs[job.id]
        alike = self._threads.get(job.key)
        if alike is not None and job in alike:
            alike.remove(job)
            if not alike:
                del self._threads[job.key]

    def _remember(self, job: _Job, end: int) -> None:
        ends = self._ends.setdefault(end, deque(maxlen=self._config.max_alike))
        ends.append(job)
        self._ends.move_to_end(end)
        while len(self._ends) > self._config.max_ends:
            self._ends.popitem(last=False)

    # --- other gateways

    def report(self, now_s: float) -> tuple[ToldStage, ...]:
        """Returns the last stages of the jobs of which some came since the last report; nothing until `exchange_s`
        after it."""
        if not self._unreported or now_s - self._reported_s < self._config.exchange_s:
            return ()
        self._reported_s = now_s
        unreported, self._unreported = self._unreported, OrderedDict()
        return tuple(
            ToldStage(
                job=job.id, node=job.end, thread=job.key, turn=job.turn, stages=job.stages, request_id=job.last
            )
            for job in unreported.values()
        )  # fmt: skip

    def hear(self, now_s: float, stages: Iterable[ToldStage]) -> None:
        """Takes what another gateway tells. What is older than what is known here is left out."""
        for stage in stages:
            job = self._jobs.get(stage.job)
            if job is None:
                job = self._enter(_Job(stage.job, "", stage.thread, stage.request_id, now_s, stage.turn, stage.stages))
            elif stage.stages >= job.stages:
                self._continued_elsewhere(job)
                job.stages, job.last, job.at_s, job.turn = stage.stages, stage.request_id, now_s, job.turn or stage.turn
                self._jobs.move_to_end(job.id)
            else:
                continue
            job.end = stage.node
            if job.end:
                self._remember(job, job.end)

    def _continued_elsewhere(self, job: _Job) -> None:
        """Forgets the end of a job's last prompt here: each prompt is continued once."""
        ends = self._ends.get(job.end)
        if ends is not None and job in ends:
            ends.remove(job)
            if not ends:
                del self._ends[job.end]


def _id(key: int) -> str:
    return f"{key:016x}"
