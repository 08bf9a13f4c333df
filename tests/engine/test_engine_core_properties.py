"""The engine core against vLLM's loop written plainly, against itself fast-forwarded, and under any script."""

from collections import deque
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core import EngineCore
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest
from tests.conftest import examples

COST = StepCostModel(c0_s=0.0113, c_p_s=0.00017, c_d_s=0.00021, c_k_s=0.0000013, c_pp_s=0.00000007)

limits = st.builds(
    lambda seqs, extra, size, blocks, caching, policy, watermark, dynamic: EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + extra,
        block_size=size,
        num_gpu_blocks=blocks,
        max_model_len=size * blocks,
        enable_prefix_caching=caching,
        scheduling_policy=policy,
        watermark=watermark,
        dynamic_chunking=dynamic,
    ),
    st.integers(1, 6),
    st.integers(0, 12),
    st.sampled_from([1, 2, 4]),
    st.integers(2, 14),
    st.booleans(),
    st.sampled_from(["fcfs", "priority"]),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)
paces = st.none() | st.builds(
    TokenDeadline, st.sampled_from([0.012, 0.02, 0.05, 1.0]), st.none() | st.sampled_from([0.05, 0.3, 2.0])
)


@dataclass
class PlainSequence:
    """One request of `PlainEngine`."""

    id: str
    prompt: int
    output: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0


class PlainEngine:
    """vLLM V1's `schedule()` under FCFS without prefix cache, request by request and token by token."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.free = limits.num_gpu_blocks
        self.waiting: deque[PlainSequence] = deque()
        self.running: list[PlainSequence] = []

    def allocate(self, seq: PlainSequence, tokens: int) -> bool:
        needed = -(-(seq.computed + tokens) // self.limits.block_size) - seq.blocks
        if needed > self.free:
            return False
        self.free -= needed
        seq.blocks += needed
        return True

    def step(self) -> dict[str, object]:
        budget, preempted, scheduled = self.limits.max_num_batched_tokens, [], []
        index = 0
        while index < len(self.running) and budget > 0:
            seq = self.running[index]
            tokens = min(seq.prompt + seq.generated - seq.computed, budget)
            while not self.allocate(seq, tokens):
                victim = self.running.pop()
                self.free += victim.blocks
                victim.blocks = victim.computed = 0
                self.waiting.appendleft(victim)
                preempted.append(victim.id)
                if victim is seq:
                    break
            else:
                scheduled.append((seq, tokens))
                budget -= tokens
                index += 1
        while self.waiting and not preempted and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            seq = self.waiting[0]
            tokens = min(seq.prompt + seq.generated, budget)
            whole = -(-(seq.prompt + seq.generated) // self.limits.block_size)
            if whole > self.free or not self.allocate(seq, tokens):
                break
            self.running.append(self.waiting.popleft())
            scheduled.append((seq, tokens))
            budget -= tokens
        served = [self.advance(seq, tokens) for seq, tokens in scheduled]
        finished = {seq.id for seq, _ in scheduled if seq.generated == seq.output}
        self.free += sum(seq.blocks for seq in self.running if seq.id in finished)
        self.running = [seq for seq in self.running if seq.id not in finished]
        return {
            "tokens": {name for name in served if name},
            "finished": finished,
            "preempted": preempted,
            "computed": sum(tokens for _, tokens in scheduled),
            "free": self.free,
        }

    def advance(self, seq: PlainSequence, tokens: int) -> str | None:
        seq.computed += tokens
        if seq.computed < seq.prompt + seq.generated:
            return None
        seq.generated += 1
        return seq.id


@settings(max_examples=examples(150))
@given(
    limits.filter(lambda x: x.scheduling_policy == "fcfs" and not x.enable_prefix_caching and not x.watermark),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=12),
)
def test_every_step_is_the_step_of_the_plain_loop(limits: EngineLimits, script: list[tuple[int, int, int]]) -> None:
    core, plain = EngineCore(EngineProfile("p", COST, limits)), PlainEngine(limits)
    arrivals = deque((f"r{i}", *entry) for i, entry in enumerate(script))
    pause = arrivals[0][1]
    while arrivals or core.stats().num_requests_running or core.stats().num_requests_waiting:
        while arrivals and pause <= 0:
            name, _, prompt, output = arrivals.popleft()
            pause = arrivals[0][1] if arrivals else 0
            if core.add(EngineRequest(name, prompt, output)) is AddResult.ACCEPTED:
                plain.waiting.append(PlainSequence(name, prompt, min(output, limits.max_model_len - prompt)))
        pause -= 1
        plan, expected = core.step_begin(), plain.step()
        if plan is None:
            assert expected["computed"] == 0
            continue
        result = core.step_end()
        assert set(result.tokens) == expected["tokens"]
        assert len(result.tokens) == len(set(result.tokens))
        assert set(result.finished) == expected["finished"]
        assert plan.preempted == expected["preempted"]
        assert plan.prefill_tokens + plan.decode_seqs == expected["computed"]
        assert core.kv.free == expected["free"]


arrival = st.tuples(st.floats(0.0, 0.3), st.integers(1, 20), st.integers(1, 40), st.integers(0, 3), paces)
Arrival = tuple[float, int, int, int, TokenDeadline | None]


def drive(core: EngineCore, script: list[Arrival], *, skip: bool) -> list[object]:
    """Runs a script of (gap, prompt, output, priority, pace) to its end; logs all that can be seen, with times."""
    log: list[object] = []
    now_s = arrival_s = 0.0
    size = core.profile.limits.block_size
    pending = deque((f"r{i}", *entry) for i, entry in enumerate(script))
    next_s = pending[0][1]
    while True:
        while pending and next_s <= now_s:
            name, _, prompt, output, priority, pace = pending.popleft()
            hashes = tuple(range(min(prompt // size, 3)))
            log.append((name, core.add(EngineRequest(name, prompt, output, priority, hashes, pace))))
            arrival_s = next_s
            next_s = arrival_s + pending[0][1] if pending else float("inf")
        if skip:
            forward = core.fast_forward(now_s, next_s)
            now_s = forward.end_s
        plan = core.step_begin(now_s)
        if plan is None:
            if not pending:
                return [*log, core.stats(), now_s]
            now_s = next_s
            continue
        now_s += plan.duration_s
        result = core.step_end()
        if result.first or result.finished or plan.preempted or plan.admitted:
            log.append((now_s, result.first, result.finished, plan.preempted, plan.admitted, core.kv.free))


@settings(max_examples=examples(200))
@given(limits, st.lists(arrival, min_size=1, max_size=12))
def test_fast_forward_equals_stepping_to_the_last_bit(limits: EngineLimits, script: list[Arrival]) -> None:
    profile = EngineProfile("p", COST, limits)
    assert drive(EngineCore(profile), script, skip=True) == drive(EngineCore(profile), script, skip=False)


def test_fast_forward_skips_most_steps_of_a_long_decode() -> None:
    core = EngineCore(EngineProfile("p", COST, EngineLimits()))
    core.add(EngineRequest("a", 10, 1000))
    core.step_begin()
    core.step_end()
    forward = core.fast_forward(1.0, float("inf"))
    assert forward.steps == 998  # all but the first token's step and the one that finishes
    assert core.generated("a") == 999
    assert core.kv.blocks_of(10 + 998) == core.kv.num_blocks - core.kv.free


class EngineMachine(RuleBasedStateMachine):
    """Arrivals, aborts, caps and half steps in any order."""

    def __init__(self) -> None:
        super().__init__()
        limits = EngineLimits(3, 6, 2, 10, 20, enable_prefix_caching=True)
        self.core = EngineCore(EngineProfile("p", COST, limits))
        self.expected: dict[str, int] = {}
        self.tokens: dict[str, int] = {}
        self.first_scheduled: list[str] = []
        self.ended: set[str] = set()
        self.in_flight = False
        self.count = 0

    @rule(prompt=st.integers(1, 22), output=st.integers(1, 9), shared=st.integers(0, 3))
    def add(self, prompt: int, output: int, shared: int) -> None:
        name = f"r{self.count:04}"
        self.count += 1
        request = EngineRequest(name, prompt, output, prefix_hashes=tuple(range(min(shared, prompt // 2))))
        if self.core.add(request) is AddResult.ACCEPTED:
            self.expected[name] = min(output, 20 - prompt)
            self.tokens[name] = 0
        else:
            assert prompt >= 20

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.expected) or ["nobody"]))
        assert self.core.abort(name) == (name in self.expected and name not in self.ended)
        if name in self.expected:
            self.ended.add(name)

    @rule(n_run=st.none() | st.integers(0, 4), b_token=st.none() | st.integers(1, 4))
    def caps(self, n_run: int | None, b_token: int | None) -> None:
        self.core.set_limits(n_run, b_token)

    @precondition(lambda self: not self.in_flight)
    @rule()
    def begin(self) -> None:
        plan = self.core.step_begin()
        self.in_flight = plan is not None
        assert plan is not None or not self.core.running
        if plan is not None:
            assert plan.duration_s >= COST.c0_s
            assert plan.prefill_tokens + plan.decode_seqs <= 6
            self.first_scheduled += [name for name in plan.admitted if name not in self.first_scheduled]

    @precondition(lambda self: self.in_flight)
    @rule()
    def end(self) -> None:
        self.in_flight = False
        result = self.core.step_end()
        for name in result.tokens:
            assert name not in self.ended
            self.tokens[name] += 1
        for name in result.finished:
            assert self.tokens[name] == self.expected[name]
            self.ended.add(name)

    @precondition(lambda self: not self.in_flight)
    @rule(until_s=st.floats(0.0, 1.0))
    def forward(self, until_s: float) -> None:
        before = dict(self.tokens)
        forward = self.core.fast_forward(0.0, until_s)
        for name in self.core.running:
            assert self.core.generated(name) - before[name] in (0, forward.steps)
            self.tokens[name] = self.core.generated(name)

    @invariant()
    def memory_adds_up(self) -> None:
        self.core.kv.check()
        assert len(self.core.running) <= 3
        assert self.first_scheduled == sorted(self.first_scheduled)

    @invariant()
    def tokens_are_known(self) -> None:
        for name, count in self.tokens.items():
            if name not in self.ended:
                assert self.core.generated(name) == count

    def teardown(self) -> None:
        if self.in_flight:
            self.end()
        self.core.set_limits()
        while self.core.step_begin() is not None:
            self.in_flight = True
            self.end()
        assert self.ended == set(self.expected)
        assert self.core.kv.free == 10
        self.core.kv.check()


EngineMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=60)
TestEngineMachine = EngineMachine.TestCase
