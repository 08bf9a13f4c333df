"""An emulated engine as gateways reach it, and the count of what runs on it."""

from collections.abc import Mapping
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.core.step import EngineStats, StepResult
from hmas.sim.excess import Excess
from hmas.sim.processes.engine import SimEngine
from hmas.sim.processes.kv_links import KvLinks
from hmas.sim.processes.ports import MeshPort, SimRun
from hmas.sim.processes.process import Call
from hmas.sim.result import EngineExcess


class SimEndpoint:
    """An engine with its HTTP server. Every gateway reaches it, one way in `engine_s`, and its worker samples it. On
    the way to the core, a request spends the `request_overhead_s` of the profile as well.

    It counts by the core itself how far the sequences in the engine exceed N_run. A limit that is lowered below what
    runs or was granted is not an excess: then only what is added counts. Outside bypass it also counts the KV memory in
    use beyond `budget`, the share that the fence may give away.
    """

    def __init__(
        self,
        mesh: MeshPort,
        name: str,
        core: EngineCore,
        budget: float,
        links: KvLinks | None = None,
        role: str = "",
    ) -> None:
        self.name = name
        self.engine = SimEngine(mesh.heap, core, name, self._stepped, reader=None if links is None else self._read)
        self.links = links
        self._role = role
        self.parted: set[str] = set()  # gateways
        self._mesh = mesh
        self._heap = mesh.heap
        self._engine_s = mesh.setup.delays.engine_s
        self._reached_s = self._engine_s + core.profile.request_overhead_s
        self._budget = budget
        self._runs: dict[str, SimRun] = {}
        self._unfenced = 0
        self._inbox: list[tuple[Call, tuple[Any, ...]]] | None = None  # a list while it is frozen, hangs or sleeps
        self._hung: EngineStats | None = None  # what it says of itself while it hangs or is asleep
        self.asleep = False
        self._left: set[int] = set()  # ids of runs that wait at its door and whose gateway has gone
        self._n_run = self._ceiling = core.profile.limits.max_num_seqs
        self._granted: dict[str, tuple[float, int]] = {}  # on their way here: when they were granted, and N_run then
        self._masked = self._masked_once = 0  # how many of these there were at the last sample, and at the one before
        self._unseen = self._seen_once = 0  # placed by gateways themselves since the last sample, and before
        self._unaccounted = 0
        self._sequences, self._memory = Excess(), Excess()

    # --- what the worker does

    @property
    def info(self) -> EngineInfo:
        limits = self.engine.core.profile.limits
        return EngineInfo(
            engine=self.name,
            up=True,
            dialect="emulated",
            hardware=self.engine.core.profile.hardware,
            max_model_len=limits.max_model_len,
            kv_capacity_tokens=limits.num_gpu_blocks * limits.block_size,
            block_size=limits.block_size,
            max_num_seqs=limits.max_num_seqs,
            endpoint=f"http://{self.name}",
            model=self.engine.core.profile.model,
            kv="" if self.links is None else "nixl-pull",
            role=self._role,
        )

    @property
    def frozen(self) -> bool:
        return self._inbox is not None

    @property
    def answers(self) -> bool:
        """Whether the engine answers its worker."""
        return self._inbox is None or self._hung is not None

    def sample(self) -> EngineStats:
        """Returns the core's own counts. The engine must not be frozen; one that hangs, or is asleep, says what it said
        last."""
        if self._hung is not None:  # and what waits at its door hides behind the books of the worker
            self._masked_once, self._masked = self._masked, len(self._granted)
            return self._hung
        self.engine.catch_up()
        self._count()
        oldest_s = self._heap.now_s - self._mesh.setup.silence_s  # what is older was declined, or lost with its stream
        self._granted = {i: granted for i, granted in self._granted.items() if granted[0] >= oldest_s}
        self._masked_once, self._masked = self._masked, len(self._granted)
        self._seen_once, self._unseen = self._unseen, 0
        return self.engine.core.stats()

    def granted(self, request_id: str) -> None:
        """Notes that the worker granted a request, which counts against the N_run of that time."""
        self._granted[request_id] = self._heap.now_s, self._n_run

    def limit(self, n_run: int) -> None:
        self._n_run = n_run
        self._count()

    # --- what gateways do

    def send(self, run: SimRun, request: EngineRequest) -> None:
        self._heap.after(self._reached_s, self._post, self._add, run, request)

    def close(self, run: SimRun) -> None:
        """Closes the connection of a run, by which the engine drops the request."""
        self._heap.after(self._reached_s, self._post, self._abort, run)  # never before the request itself

    def progress(self) -> list[tuple[str, int]]:
        """Returns pairs (request id, tokens so far) of all requests that decode here."""
        if not self.frozen:
            self.engine.catch_up()
        return self.engine.core.progress()

    def _post(self, call: Call, *args: Any) -> None:
        if self._inbox is None:
            call(*args)
        else:
            self._inbox.append((call, args))

    def _add(self, run: SimRun, request: EngineRequest) -> None:
        if run.gateway.name in self.parted:
            self._fail(run, Outcome.ENGINE_ERROR, "the engine cannot be reached", unreached=True)
            return
        answer = self.engine.add(request)
        if answer is AddResult.ACCEPTED:
            self._runs[run.request_id] = run
            self._unfenced += not run.fenced
            self._unseen += not run.fenced
            homes = self._mesh.homes
            home = self._mesh.endpoints.get(homes.get(run.request_id, ""))
            self._mesh.doubled += home is not None and not home.frozen and id(run) not in self._left
            homes[run.request_id] = self.name
            _, promised = self._granted.pop(run.request_id, (0.0, 0)) if run.fenced else (0.0, 0)
            over = self._count(promised)
            if run.fenced:
                unknown = self._unseen + self._seen_once + max(self._masked, self._masked_once)
                self._unaccounted = max(self._unaccounted, over - unknown)
        elif answer is AddResult.QUEUE_FULL:
            self._fail(run, Outcome.ENGINE_ERROR, answer.value, busy=True)
        else:
            self._fail(run, Outcome.ENGINE_REFUSED, answer.value)

    def _fail(
        self, run: SimRun, outcome: Outcome, message: str, *, busy: bool = False, unreached: bool = False
    ) -> None:
        self._heap.after(self._engine_s, run.gateway.post, run.gateway.failed, run, outcome, message, busy, unreached)

    def _abort(self, run: SimRun) -> None:
        if self._runs.get(run.request_id) is run:
            self.engine.abort(run.request_id)
            self._gone(run)
            self._count()

    def _gone(self, run: SimRun) -> None:
        del self._runs[run.request_id]
        if self.links is not None:
            self.links.close(self, run.request_id)
        self._unfenced -= not run.fenced
        if self._mesh.homes.get(run.request_id) == self.name:
            del self._mesh.homes[run.request_id]

    def _stepped(self, engine: SimEngine, result: StepResult) -> None:
        now_s, after, delay_s = self._heap.now_s, self._heap.after, self._engine_s
        for request_id, cached in zip(result.first, result.cached, strict=True):
            run = self._runs[request_id]
            if run.first_s is None:  # otherwise it resumed after a preemption
                run.first_s, run.cached_tokens = now_s, cached
                after(delay_s, run.gateway.post, run.gateway.first_token, run)
        for request_id in result.finished:
            run = self._runs[request_id]
            run.last_s = now_s
            self._gone(run)
            after(delay_s, run.gateway.post, run.gateway.finished, run)
        self._count()

    # --- KV of prompts

    def _read(self, tokens: Mapping[str, int]) -> None:
        for request_id, number in tokens.items():
            if self.links is not None and request_id in self._runs:
                self.links.read(self, request_id, number)

    def landed(self, request_id: str) -> None:
        self._post(self.engine.landed, request_id)

    def give_back(self, request_id: str) -> None:
        self._post(self.engine.give_back, request_id)

    # --- faults

    def freeze(self) -> None:
        if self._inbox is None:
            self.engine.freeze()
            self._inbox = []

    def hang(self) -> None:
        if self._inbox is None:
            self._hung = self.sample()
            self.freeze()

    def sleep(self) -> None:
        if self._inbox is None:
            self.hang()
            self.asleep = True

    def thaw(self) -> None:
        if self._inbox is None:
            return
        self._hung, self.asleep = None, False
        inbox, self._inbox = self._inbox, None
        self.engine.thaw()
        self._left = {id(args[0]) for call, args in inbox if call == self._abort}
        for call, args in inbox:
            call(*args)
        self._left.clear()

    def part(self, gateway: str) -> None:
        self.parted.add(gateway)
        for run in [run for run in self._runs.values() if run.gateway.name == gateway]:
            self._post(self._abort, run)
            self._fail(run, Outcome.ENGINE_ERROR, "the connection to the engine was lost")

    # --- counting

    def _count(self, promised: int = 0) -> int:
        """Records the excess from now on, and returns how many sequences are too many. `promised` is the N_run under
        which what just came was granted."""
        core, now_s = self.engine.core, self._heap.now_s
        level = len(core.running) + len(core.waiting)
        self._ceiling = max(self._n_run, min(max(self._ceiling, promised), level))
        over = level - self._ceiling
        self._sequences.update(now_s, over)
        used = 0.0 if self._unfenced else 1.0 - core.kv.free / core.kv.num_blocks
        self._memory.update(now_s, used - self._budget)
        return over

    def summary(self) -> EngineExcess:
        self._count()
        return EngineExcess(
            engine=self.name,
            over_n_run=int(self._sequences.largest),
            over_n_run_s=self._sequences.longest_s,
            unaccounted=self._unaccounted,
            over_fence=self._memory.largest,
            over_fence_s=self._memory.longest_s,
        )
