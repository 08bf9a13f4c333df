"""A request inside the worker: its estimates and deadlines, its memory reservation, and how far it has got."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from math import inf

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Submit
from hmas.contracts.registry import EngineInfo
from hmas.contracts.request import Annotation, Cost, Request, Slo, Tags
from hmas.laws.kind_costs import cost_among, cost_on
from hmas.laws.slo import needed_tpot_s, tightest_tpot_s
from hmas.laws.transitions import following
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.expected_cached import NOTHING_EXPECTED

# Service is counted in weighted tokens, with the weights of ESG (H-MAS Eq. 6) and of the virtual token counter (Sheng
# et al., Fairness in Serving Large Language Models, OSDI 2024).
INPUT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
PRIOR_VERSION = "worker-prior"  # the predictor of unannotated requests
STEP_TOKENS = 256  # of a prompt, that take about as long as what a step costs without any


class EntryState(StrEnum):
    PARKED = "parked"  # waits, but may not be granted now, because its gateway could not carry the grant out
    QUEUED = "queued"
    RUNNING = "running"  # granted; the slot counts as taken until the gateway or the engine says otherwise
    ENDED = "ended"


TRANSITIONS: dict[EntryState, frozenset[EntryState]] = {
    EntryState.PARKED: frozenset({EntryState.QUEUED, EntryState.RUNNING, EntryState.ENDED}),  # running: adopted
    EntryState.QUEUED: frozenset({EntryState.PARKED, EntryState.RUNNING, EntryState.ENDED}),
    EntryState.RUNNING: frozenset({EntryState.PARKED, EntryState.ENDED}),  # waits again: its engine was lost or busy
    EntryState.ENDED: frozenset(),
}


class QueueEntry:
    """One attempt of one request, as the worker holds it. Mutable; only the agent changes it, and `state` only through
    `enter`.

    Without an annotation it is *unknown* and carries the prior's estimates. `service` is its predicted service in
    weighted tokens, `total_s` its T_tot, `deadline_s` its D_r = a_r + SLO_ttft + SLO_tpot * l_pred (or a_r + its stated
    TTLT, H-MAS §3.5), `slack_s` D_r - T_tot, which is S_r of H-MAS Eq. 5 without V_sys (common to all, it cancels in
    any comparison), and `ttft_deadline_s` the instant its first token is due. `claimed` are cognition's tags as they
    came, before the worker corrected them. `prefill_s`, `tpot_s` and what is made of them are those of the engines that
    it waits for (`wait_for`) or runs on (`run_on`). `promised`: it was refused before
    and comes back at the time it was told.
    `needed_tpot_s` is the time per output token that keeps its SLO; infinite where it generates nothing.
    `least_tokens` is the lower end of its predicted length: the 10 % quantile, if its logarithm is as far below the
    median's as that of the 90 % quantile is above it.
    `memory_before` is how long lanes had waited for memory when it came (`MemoryWaits.totals`).
    `asleep_since_s` is since when only engines that are asleep could take it, and `asleep_s` for how long it was so
    before.
    `usual_tokens` is the length that its application's answers seldom exceed, as known at its arrival; None: unknown.
    `future_s` is the predicted service time of what its job needs after it, 0 without a job.
    `grant` is the number of its last grant. `stopped`: its gateway was asked to give it back. `withdrawn`: its gateway
    no longer wants it run, but has not answered its grant yet. `orphaned_s` is when the stream of its gateway ended
    while it ran; None while the gateway is connected. `successor` is a later attempt of the same request, which came
    before the grant of this one was answered.
    `lane` is the number of the lane that it waits in, or was taken from. `has_turn`: it is relegated, and comes before
    all others because it has waited for its share.
    `rank` is its place in the active topology, (key, seq); `charged` is the service already charged to its tenant
    there, and `generation` the number of the order it was taken from.
    """

    __slots__ = (
        "admitted_by", "admitted_p90", "annotation", "asleep_s", "asleep_since_s", "attempt", "blocks", "bound_tokens",
        "busy_since_s", "charged", "claimed", "computed_before", "computed_s", "context_tokens", "deadline_s", "engine",
        "enqueued_s", "expected_cached", "first_token_s", "future_s", "gateway", "generation", "grant", "granted_s",
        "grants_before", "has_turn", "lane", "least_tokens", "memory_before", "needed_tpot_s", "orphaned_s",
        "others_tokens", "output_tokens", "overtaken", "pending_s", "predicted_p90", "predicted_tokens", "prefill_on",
        "prefill_s", "promised", "queue_length", "rank", "relegated", "request", "seq", "service", "slack_s", "slo",
        "state", "stopped", "successor", "switches_before", "topology", "total_s", "tpot_s", "tried", "ttft_deadline_s",
        "upper_output_tokens", "urgency", "usual_tokens", "withdrawn", "work_tokens",
    )  # fmt: skip

    def __init__(
        self, request: Request, *, attempt: int, gateway: str, seq: int, now_s: float, estimate: Assumption
    ) -> None:
        self.request = request
        self.attempt = attempt
        self.gateway = gateway
        self.seq = seq
        self.enqueued_s = now_s
        self.annotation: Annotation | None = None
        self.claimed: Tags | None = None
        self.state = EntryState.PARKED
        self.engine = ""
        self.prefill_on = ""  # the engine that computes its prompt, if that is another one
        self.computed_s: float | None = None  # when that one had done so
        self.topology = ""  # the one that granted it
        self.grant = 0
        self.granted_s: float | None = None
        self.stopped = self.withdrawn = False
        self.successor: Submit | None = None
        self.orphaned_s: float | None = None
        self.first_token_s: float | None = None
        self.output_tokens = 0
        self.upper_output_tokens = 0.0  # the fence's l_upper by which it was admitted
        self.admitted_by = ""  # the predictor whose 90 % quantile, `admitted_p90`, that was made from
        self.admitted_p90 = 0.0
        self.bound_tokens = 0.0  # the output tokens that its memory is reserved for
        self.pending_s = 0.0  # predicted seconds that its prompt adds to its engine's steps, until the first token
        self.computed_before = 0  # prompt tokens that its engine had computed when it was granted
        self.others_tokens = 0  # prompt tokens of others that its engine computed from its grant to its first token
        self.expected_cached = NOTHING_EXPECTED  # what its engine was taken to hold of its prompt when it was granted
        self.blocks = 0  # KV blocks reserved on its engine
        self.context_tokens = 0.0  # that its engine's step is taken to read for it
        self.busy_since_s: float | None = None  # when an engine first had no room for it, or was not reached
        self.asleep_since_s: float | None = None
        self.asleep_s = 0.0
        self.memory_before: Mapping[int, float] = {}
        self.tried: tuple[str, ...] = ()  # starts of engines ("name#count") that it was granted on and lost there
        self.urgency = 0.0
        self.rank: tuple[float, int] | None = None
        self.charged = 0.0
        self.generation = -1
        self.lane = 0
        self.relegated = False
        self.has_turn = False
        self.promised = False
        self.usual_tokens: float | None = None
        self.queue_length = 0  # at arrival
        self.grants_before = 0
        self.switches_before = 0
        self.overtaken = 0
        tokens, p90, job = estimate.output_tokens, estimate.output_tokens_p90, request.job
        if job is not None and job.output_tokens is not None and job.output_tokens_p90 is not None:
            tokens, p90 = job.output_tokens, job.output_tokens_p90  # of the same stage of other jobs
        self._assess(tokens, p90, estimate.ttft_s, estimate.tpot_s, request.slo)

    def engine_wait_s(self, prefill_s: float) -> float:
        """Returns which part of the `prefill_s` seconds from grant to first token the engine spent on other prompts: by
        the tokens that it computed of them and of this one, to which a step's own cost is added. By predicted seconds
        it would be a share of what was learnt from such shares (ADR 40)."""
        return prefill_s * self.others_tokens / (self.others_tokens + self.computed_tokens + STEP_TOKENS)

    @property
    def computed_tokens(self) -> int:
        """The tokens of the prompt that its engine must compute: those that it was not taken to hold."""
        return max(1, self.request.prompt_tokens - self.expected_cached.tokens)

    def __deepcopy__(self, memo: dict[int, object]) -> "QueueEntry":
        """Returns a copy with a state of its own. What it refers to is never changed, and is shared."""
        twin = memo[id(self)] = object.__new__(QueueEntry)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def enter(self, state: EntryState) -> None:
        """Moves the request to `state`. Raises IllegalTransition, and changes nothing, if `TRANSITIONS` does not allow
        it."""
        self.state = following(TRANSITIONS, self.state, state)

    def admit(self, upper: float, reserved: float, blocks: int) -> None:
        """Notes by which length bounds and prediction it was admitted: at the grant, and once more when its tags
        come after that."""
        self.upper_output_tokens, self.bound_tokens = upper, reserved
        self.admitted_by, self.admitted_p90 = self.predictor, self.predicted_p90
        self.blocks = blocks

    def annotate(self, annotation: Annotation, kinds: Collection[EngineKind] = ()) -> None:
        """Replaces the prior's estimates by cognition's tags and by its costs for engines of these kinds."""
        self.annotation = annotation
        self._price(kinds)

    @property
    def differs(self) -> bool:
        """Whether its cost is known to depend on the kind of engine."""
        return self.annotation is not None and len(self.annotation.costs) > 1

    def cost(self, engine: EngineInfo) -> Cost:
        """Returns its predicted cost on an engine."""
        if self.annotation is None:
            return Cost(self.prefill_s, self.tpot_s)
        return cost_on(self.annotation.costs, engine.engine_kind)

    def run_on(self, engine: EngineInfo) -> None:
        """Predicts its times for the engine that it runs on."""
        if self.differs:
            self._price((engine.engine_kind,))

    def wait_for(self, kinds: Collection[EngineKind]) -> None:
        """Predicts its times for engines of these kinds together, one for each (`hmas.laws.kind_costs`)."""
        if self.differs:
            self._price(kinds)

    def _price(self, kinds: Collection[EngineKind]) -> None:
        assert self.annotation is not None
        tags, cost, job = self.annotation.tags, cost_among(self.annotation.costs, kinds), self.request.job
        slo = tags.slo if job is None or job.left_s is None else self.request.slo  # perception knows no budget
        self._assess(tags.output_tokens, tags.output_tokens_p90, cost.ttft_s, cost.tpot_s, slo)

    def _assess(self, tokens: float, p90: float, ttft_s: float, tpot_s: float, slo: Slo) -> None:
        request = self.request
        limit = request.max_tokens
        least = tokens * tokens / max(1.0, tokens, p90)
        if limit is not None:  # a client's bound caps a prediction and never is one
            least = min(least, limit)
            tokens = min(tokens, limit)
            p90 = min(p90, limit)
        decode_s = tpot_s * tokens
        arrival_s = request.arrival_s
        self.slo = slo
        self.predicted_tokens = tokens
        self.predicted_p90 = p90
        self.least_tokens = least
        self.prefill_s = ttft_s
        self.tpot_s = tpot_s
        self.total_s = ttft_s + decode_s
        self.service = INPUT_WEIGHT * request.prompt_tokens + OUTPUT_WEIGHT * tokens
        self.work_tokens = request.prompt_tokens + int(tokens)
        ttlt_s = slo.ttlt_s if slo.ttlt_s is not None else slo.ttft_s + slo.tpot_s * tokens
        self.deadline_s = arrival_s + ttlt_s
        self.slack_s = self.deadline_s - self.total_s
        self.needed_tpot_s = inf if request.prefill_only else needed_tpot_s(slo, tokens, ttft_s)
        self.future_s, job = 0.0, request.job
        if job is not None:
            prefill_s = job.future_prompt_tokens * ttft_s / max(1, request.prompt_tokens)
            self.future_s = prefill_s + job.future_output_tokens * tpot_s
        # Judged on its last token alone, the first is due only so early that the rest can still be decoded.
        self.ttft_deadline_s = self.deadline_s - decode_s if slo.whole else arrival_s + slo.ttft_s

    @property
    def predictor(self) -> str:
        """The version of the predictor that predicted the output length; `PRIOR_VERSION` without an annotation."""
        return PRIOR_VERSION if self.annotation is None else self.annotation.tags.version

    @property
    def utility(self) -> float:
        """What it is worth to be on time: the weight of its tenant times that of its tagged type (H-MAS Eq. 1)."""
        weight = self.request.weight
        if self.annotation is None or self.annotation.utility is None:
            return weight
        return weight * self.annotation.utility

    @property
    def pace_s(self) -> float | None:
        """The seconds per output token by which an engine may slow this request down in favour of others' prefill.

        It is the TPOT SLO; for an unknown request the tightest SLO that its tags may turn out to bring, because time
        once given away does not come back; None if only the last token is judged.
        """
        if self.slo.whole:
            return None
        request = self.request
        known = request.slo_stated or self.annotation is not None
        return self.slo.tpot_s if known else min(self.slo.tpot_s, tightest_tpot_s(request.importance))

    @property
    def remaining_s(self) -> float:
        """The predicted seconds of engine time that the request still needs."""
        decode_s = self.tpot_s * max(0.0, self.predicted_tokens - self.output_tokens)
        return decode_s if self.first_token_s is not None else self.prefill_s + decode_s

    def spare_s(self, now_s: float) -> float:
        """Returns the seconds until it must start for its first token to be on time, by its predicted prefill."""
        return self.ttft_deadline_s - self.prefill_s - now_s

    @property
    def written_tokens(self) -> float:
        """The tokens of its answer that it has, or half of what is predicted where that cannot be seen."""
        return self.output_tokens or (0.0 if self.request.stream else 0.5 * self.predicted_tokens)

    @property
    def mean_context(self) -> float:
        """The tokens of context that a step reads for it in the middle of its answer, or now, if that is more."""
        return self.request.prompt_tokens + max(0.5 * self.predicted_tokens, float(self.output_tokens))

    @property
    def received_service(self) -> float:
        """The service received so far, in weighted tokens: 0 before the first token."""
        if self.first_token_s is None and not self.output_tokens:
            return 0.0
        return INPUT_WEIGHT * self.request.prompt_tokens + OUTPUT_WEIGHT * self.output_tokens
