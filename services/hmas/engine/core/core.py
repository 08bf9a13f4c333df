"""The engine: vLLM V1's scheduler over a cost model. A driver, live or simulated, begins and ends each step.

A step first decodes every running sequence, then continues prompts that are partly computed, then admits sequences
from the waiting queue while the token budget lasts. Where KV blocks run out, the sequence admitted last is preempted
and computed again later. A prompt's first token comes at the end of the step that completes its prefill. Under dynamic
chunking the step also ends before any decoding sequence's next token is due (Niyama §3.3).
"""

from collections.abc import Callable
from math import inf

from hmas.engine.core.chunking import MIN_CHUNK_TOKENS, UNBOUNDED, Allowance
from hmas.engine.core.decode_group import DecodeGroup
from hmas.engine.core.handed_kv import HandedKv
from hmas.engine.core.kv_cache import NO_MATCH, KvCache, PrefixMatch
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest, Sequence, State
from hmas.engine.core.step import EngineStats, EngineTotals, FastForward, StepPlan, StepResult
from hmas.engine.core.waiting import FcfsQueue, PriorityQueue, WaitingQueue

NO_CAP = 1 << 30


class EngineCore:
    """One emulated engine. All times are on the driver's clock, in seconds; the core has no clock of its own.

    `waiting` replaces the queue that the profile's scheduling policy implies. `gate` returns False to hold back the
    head of the queue; it is called only while some request runs. With `separate_prefill` a step computes prompts or
    decodes, prompts first (SGLang's default), instead of both together.
    """

    def __init__(
        self,
        profile: EngineProfile,
        *,
        waiting: WaitingQueue | None = None,
        gate: Callable[["EngineCore", Sequence], bool] | None = None,
        separate_prefill: bool = False,
    ) -> None:
        limits = profile.limits
        self.profile = profile
        self.kv = KvCache(limits.num_gpu_blocks, limits.block_size, limits.enable_prefix_caching)
        self.running: dict[str, Sequence] = {}  # in the order of admission
        self._by_priority = limits.scheduling_policy == "priority"
        if waiting is None:  # `or` would not do: an empty queue is falsy
            waiting = FcfsQueue() if limits.scheduling_policy == "fcfs" else PriorityQueue()
        self.waiting: WaitingQueue = waiting
        self.handed = HandedKv(self.kv, self.waiting)
        self._gate = gate
        self._separate = separate_prefill
        self._decoding = True  # whether the step in flight decodes
        self._sequences: dict[str, Sequence] = {}
        self._prefill: dict[str, Sequence] = {}  # running, prompt not yet computed
        self._stalled: dict[str, Sequence] = {}  # decoding, but left out of this step by b_token; longest stalled first
        self._decode = DecodeGroup(limits.block_size)
        self._dynamic = limits.dynamic_chunking
        self._allowance = UNBOUNDED  # what prefill may add to the step being scheduled
        self._chunks: dict[str, Sequence] = {}  # sequences of whose prompts the step in flight computes a chunk
        self._plan: StepPlan | None = None
        self._running_cap = limits.max_num_seqs
        self._decode_cap = NO_CAP
        self._watermark_blocks = int(limits.watermark * limits.num_gpu_blocks)
        self._added = 0
        self._totals = EngineTotals()

    def add(self, request: EngineRequest) -> AddResult:
        """Queues a request, or refuses it by the returned value.

        Raises ValueError if a request with its id is in the engine, or its prefix hashes exceed its prompt.
        """
        limits = self.profile.limits
        if request.id in self._sequences:
            raise ValueError(f"a request with the id {request.id} is already in the engine: use another id")
        if len(request.prefix_hashes) * limits.block_size > request.prompt_tokens:
            raise ValueError(
                f"request {request.id} has {len(request.prefix_hashes)} prefix hashes, more than its prompt of "
                f"{request.prompt_tokens} tokens has full blocks of {limits.block_size}"
            )
        room = limits.max_model_len - request.prompt_tokens
        if room < 1:
            return AddResult.TOO_LONG
        if limits.max_num_queued_reqs is not None and len(self.waiting) >= limits.max_num_queued_reqs:
            return AddResult.QUEUE_FULL
        seq = Sequence(request, self._added, min(request.output_tokens, room), request.prompt_tokens)
        self._added += 1
        self._sequences[request.id] = seq
        self.waiting.push(seq)
        return AddResult.ACCEPTED

    def abort(self, request_id: str) -> bool:
        """Ends a request and frees its KV blocks at once, even during a step.

        Returns False if the request is not, or no longer, in the engine.
        """
        seq = self._sequences.pop(request_id, None)
        if seq is None:
            return False
        if seq.state is State.WAITING:
            self.waiting.remove(seq)
            self.kv.forget(seq)
        elif seq.state is State.READING:
            self.handed.drop(seq)
        else:
            self._stop_running(seq)
            self.kv.release(seq, keep=False)
        seq.state = State.DONE
        return True

    def set_limits(self, n_run: int | None = None, b_token: int | None = None) -> None:
        """Sets caps on running sequences (`n_run`) and on decode tokens per step (`b_token`); None lifts a cap.

        Neither cap evicts running sequences. Where more sequences decode than `b_token` (at least 1), they take turns.
        """
        limit = self.profile.limits.max_num_seqs
        self._running_cap = limit if n_run is None else max(0, min(n_run, limit))
        self._decode_cap = NO_CAP if b_token is None else max(1, b_token)

    def step_begin(self, now_s: float = 0.0) -> StepPlan | None:
        """Begins a step and returns its plan; None if there is nothing to do.

        `now_s` is the step's begin on the clock of the requests' token deadlines; only dynamic chunking uses it.
        Raises RuntimeError if the step before has not ended.
        """
        if self._plan is not None:
            raise RuntimeError("the step in flight has not ended: call step_end first")
        plan = StepPlan()
        self._take_turns()
        self._decoding = not self._separate
        if self._decoding:
            self._schedule_decode(plan)
        if self._dynamic:
            self._decode.pace(now_s)
            self._allowance = self._allow(now_s) if self._prefill or len(self.waiting) else UNBOUNDED
        self._schedule_prefill(plan)
        if not plan.preempted:
            self._admit(plan)
        if self._separate and not self._chunks:
            self._decoding = True
            self._schedule_decode(plan)
        plan.decode_seqs = len(self._decode) if self._decoding else 0
        if plan.decode_seqs == 0 and not self._chunks:
            self._decode.end()
            return None
        plan.context_tokens = self._decode.context_tokens if self._decoding else 0
        plan.duration_s = self.profile.cost.step_s(
            plan.prefill_tokens, plan.decode_seqs, plan.context_tokens, plan.prefill_pairs
        )
        self._plan = plan
        return plan

    def step_end(self) -> StepResult:
        """Ends the step in flight and returns its tokens. Raises RuntimeError if no step is in flight."""
        if self._plan is None:
            raise RuntimeError("no step is in flight: call step_begin first")
        self._plan = None
        finished = self._decode.end() if self._decoding else []
        decoded = [*self._decode.members] if self._decoding else []
        first: list[str] = []
        cached: list[int] = []
        for seq in self._chunks.values():
            if seq.context == seq.target:
                first.append(seq.id)
                cached.append(seq.cached)
                self._first_token(seq, finished)
        self._chunks.clear()
        for seq in finished:
            self._finish(seq)
        done = [seq.id for seq in finished]
        tokens = [*decoded, *first, *(seq for seq in done if seq not in first)] if first else decoded + done
        self._totals.generation_tokens += len(tokens)
        return StepResult(tokens, first, done, cached)

    def fast_forward(self, now_s: float, until_s: float) -> FastForward:
        """Runs, back to back from `now_s`, the quiet steps that end before `until_s`.

        A step is quiet if it only decodes: no sequence is admitted, finishes or is preempted. The result equals that
        of single steps. While a step is in flight nothing runs.
        """
        steps, end_s, blocks = self._look_ahead(now_s, until_s)
        self._decode.pace(now_s)
        self._decode.skip(steps)
        self.kv.take(blocks)
        self._totals.generation_tokens += steps * len(self._decode)
        return FastForward(steps, end_s)

    def quiet_until(self, now_s: float) -> float:
        """Returns the end of the last quiet step that `fast_forward` would run if no request arrived or was aborted.

        It is `now_s` if there would be no such step. The call changes nothing.
        """
        return self._look_ahead(now_s, inf)[1]

    def generated(self, request_id: str) -> int:
        """Returns how many tokens a request has so far. Raises KeyError if it is not, or no longer, in the engine."""
        seq = self._sequences[request_id]
        return self._decode.generated(seq) if request_id in self._decode.members else seq.generated

    def progress(self) -> list[tuple[str, int]]:
        """Returns (request id, tokens generated so far) of every decoding request."""
        return [*self._decode.progress(), *((seq.id, seq.generated) for seq in self._stalled.values())]

    def stats(self) -> EngineStats:
        return self._totals.stats(len(self.running), len(self.waiting), 1.0 - self.kv.free / self.kv.num_blocks)

    def _look_ahead(self, now_s: float, until_s: float) -> tuple[int, float, int]:
        """Returns the number of quiet steps that end before `until_s`, the last one's end, and the blocks they take."""
        if self._plan is not None or self._prefill or not self._decode.members or self._may_change():
            return 0, now_s, 0
        return self._decode.look_ahead(now_s, until_s, self.profile.cost, self.kv.free)

    def _take_turns(self) -> None:
        """Fills the decode group up to b_token: its longest members make room for the sequences stalled longest."""
        group, stalled = self._decode, self._stalled
        cap = self._decode_cap
        if not stalled and len(group) <= cap:
            return
        waiting_turn = list(stalled.values())
        excess = max(0, len(group) + min(len(waiting_turn), cap) - cap)
        for seq in list(group.members.values())[:excess]:
            group.leave(seq)
            stalled[seq.id] = seq
        for seq in waiting_turn[: cap - len(group)]:
            del stalled[seq.id]
            group.join(seq)

    def _schedule_decode(self, plan: StepPlan) -> None:
        group = self._decode
        while self.kv.free < (needed := group.blocks_needed()):
            self.preempt(self._victim(), plan)
            if not group:
                self._take_turns()  # otherwise nobody would decode in this step, although some are only stalled
        self.kv.take(needed)
        group.begin()

    def _schedule_prefill(self, plan: StepPlan) -> None:
        """Continues the partly computed prompt (at most one, because only the end of a budget cuts a prompt)."""
        for seq in list(self._prefill.values()):
            self._go_on(seq, plan)

    def _go_on(self, seq: Sequence, plan: StepPlan) -> None:
        """Puts the next chunk of a partly computed prompt into the step, unless the sequence itself is preempted."""
        chunk = self._chunk(seq.target - seq.context, seq.context, plan)
        while seq.state is State.PREFILL and self._blocks_for(seq, chunk) > self.kv.free:
            self.preempt(self._victim(), plan)
        if seq.state is State.PREFILL and chunk > 0:
            self._compute(seq, chunk, plan)

    def _admit(self, plan: StepPlan) -> None:
        """Admits waiting sequences while the cap on running ones, the token budget and the KV memory allow."""
        while len(self.running) < self._running_cap and self._budget(plan) > 0:
            seq = self.waiting.peek()
            match = self._fitting(seq) if seq is not None else None
            if seq is None or match is None:
                break
            if seq.request.reads and not seq.read and seq.target > 1:
                self.handed.begin(self.waiting.pop())
                continue
            held = match.blocks * self.kv.block_size
            brought = min(seq.request.computed_tokens, seq.target - 1) if seq.generated == 0 else 0
            context = max(held, brought, seq.context)
            chunk = self._chunk(seq.target - context, context, plan)
            if chunk == 0:
                break
            self.waiting.pop()
            if seq.context:
                self.handed.admitted(seq)
            else:
                self.kv.take_up(seq, match)
                self.kv.take(self.kv.blocks_of(context) - match.blocks)
                seq.context = context
                if seq.generated == 0:
                    self._totals.prefix_queries += seq.target
                    self._totals.prefix_hits += context
                    seq.cached = context
            seq.state = State.PREFILL
            self.running[seq.id] = self._prefill[seq.id] = seq
            plan.admitted.append(seq.id)
            self._compute(seq, chunk, plan)

    def _fitting(self, seq: Sequence) -> PrefixMatch | None:
        """Returns the cached prefix of a waiting sequence that can be admitted now; otherwise None.

        Its whole prompt must fit beside all others (vLLM's `scheduler_reserve_full_isl`), and the gate must let it
        pass. An empty engine takes any, since each fits alone.
        """
        if seq.context:  # it has its memory, but perhaps for a block
            return NO_MATCH if self.kv.blocks_of(seq.target) - self.kv.blocks_of(seq.context) <= self.kv.free else None
        match = self.kv.match(seq)
        needed = self.kv.blocks_of(seq.target) - match.blocks + match.free
        if not self.running and self.handed.idle:
            return match
        if needed > self.kv.free - self.handed.due_blocks - self._watermark_blocks:
            return None
        return match if self._gate is None or self._gate(self, seq) else None

    def _may_change(self) -> bool:
        """Tells whether the next steps could admit a sequence, or rotate stalled ones, before any sequence finishes."""
        if self._stalled or len(self._decode) > self._decode_cap:
            return True
        budget = self.profile.limits.max_num_batched_tokens - (0 if self._separate else len(self._decode))
        if len(self.running) >= self._running_cap or budget == 0:
            return False
        head = self.waiting.peek()
        return head is not None and (self._gate is not None or self._fitting(head) is not None)

    def _allow(self, now_s: float) -> Allowance:
        """Returns what the decoding sequences' deadlines leave to prefill in the step that begins at `now_s`."""
        group, cost = self._decode, self.profile.cost
        bare_s = cost.step_s(0, len(group), group.context_tokens, 0.0)
        context = max((seq.context for seq in self._prefill.values()), default=0)
        least_s = bare_s + cost.prefill_s(MIN_CHUNK_TOKENS, MIN_CHUNK_TOKENS * (context + MIN_CHUNK_TOKENS / 2))
        return group.allowance(now_s, bare_s, least_s)

    def _chunk(self, wanted: int, context: int, plan: StepPlan) -> int:
        """Returns how many of `wanted` prompt tokens the step may compute after `context` computed ones."""
        most = min(wanted, self._budget(plan))
        allowed = self._allowance
        if allowed is UNBOUNDED:
            return most
        cost = self.profile.cost
        left_s = allowed.seconds - cost.prefill_s(plan.prefill_tokens, plan.prefill_pairs)
        return max(0, int(min(most, allowed.tokens - plan.prefill_tokens, cost.prefill_within(left_s, context))))

    def _budget(self, plan: StepPlan) -> int:
        decodes = len(self._decode) if self._decoding else 0
        return self.profile.limits.max_num_batched_tokens - decodes - plan.prefill_tokens

    def _blocks_for(self, seq: Sequence, chunk: int) -> int:
        return self.kv.blocks_of(seq.context + chunk) - self.kv.blocks_of(seq.context)

    def _compute(self, seq: Sequence, chunk: int, plan: StepPlan) -> None:
        """Puts a prefill chunk into the step; the caller has made sure that enough blocks are free."""
        self.kv.take(self._blocks_for(seq, chunk))
        self._chunks[seq.id] = seq
        plan.prefill_tokens += chunk
        plan.prefill_pairs += chunk * (seq.context + chunk / 2)
        seq.context += chunk
        self.kv.enter(seq)

    def _first_token(self, seq: Sequence, finished: list[Sequence]) -> None:
        del self._prefill[seq.id]
        if seq.generated == 0:
            self._totals.prompt_tokens += seq.request.prompt_tokens
        seq.generated += 1
        seq.state = State.DECODE
        if seq.generated == seq.output_tokens:
            finished.append(seq)
        else:
            self._decode.join(seq)

    def _finish(self, seq: Sequence) -> None:
        del self.running[seq.id]
        del self._sequences[seq.id]
        if seq.request.answer_hashes:
            self.kv.enter(seq, answered=True)
        if seq.request.lends:
            self.handed.lend(seq)
        else:
            self.kv.release(seq, keep=False)
        seq.state = State.DONE

    def _victim(self) -> Sequence:
        """Returns the sequence to preempt: the last admitted, or under the priority policy the least important one."""
        if self._by_priority:
            return max(self.running.values(), key=lambda seq: (seq.request.priority, seq.order))
        return next(reversed(self.running.values()))

    def preempt(self, seq: Sequence, plan: StepPlan) -> None:
        self._stop_running(seq)
        self.kv.release(seq, keep=True)
        seq.target = seq.request.prompt_tokens + seq.generated
        seq.context = 0
        seq.state = State.WAITING
        self.waiting.push_back_in(seq)
        self._totals.preemptions += 1
        plan.preempted.append(seq.id)

    def _stop_running(self, seq: Sequence) -> None:
        """Takes a sequence out of `running` and out of the collection of its phase (prefill, decoding or stalled)."""
        del self.running[seq.id]
        if seq.state is State.PREFILL:
            del self._prefill[seq.id]
            self._chunks.pop(seq.id, None)
        elif self._stalled.pop(seq.id, None) is None:
            self._decode.leave(seq)
