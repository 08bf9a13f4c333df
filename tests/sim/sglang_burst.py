"""A burst that overfills the memory of an engine that schedules as SGLang does: what it prefills and retracts, and
after how many decode steps."""

from collections.abc import Iterator
from dataclasses import dataclass

from hmas.engine.core.sequence import EngineRequest
from hmas.engine.named import named_profile
from hmas_lab.sim.baselines.sglang import SglangCore

KV_TOKENS, SLOTS = 8192, 32
PROMPT = 100  # tokens of each request
BURST, EACH = 24, 500  # requests that come while another one has the only slot, and output tokens of each


@dataclass(frozen=True, slots=True)
class Prefill:
    after: int  # decode steps
    requests: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Retraction:
    after: int
    requests: int
    ratio: float  # the new-token ratio from then on


Event = Prefill | Retraction


def simulated_events(blocker: int) -> Iterator[Event]:
    """The one that holds the others back generates `blocker` tokens; then there are `SLOTS` slots."""
    profile = named_profile("qwen3-32b-h100x2").with_limits(
        max_num_batched_tokens=KV_TOKENS, max_num_seqs=SLOTS, num_gpu_blocks=KV_TOKENS, block_size=1,
        max_model_len=KV_TOKENS,
    )  # fmt: skip
    core, steps = SglangCore(profile), 0
    core.set_limits(n_run=1)
    core.add(EngineRequest("blocker", PROMPT, blocker, max_tokens=blocker))
    while (plan := core.step_begin()) is not None:
        if plan.preempted:
            yield Retraction(steps, len(plan.preempted), round(core.new_token_ratio, 4))
        if plan.decode_seqs:
            steps += 1
        else:
            yield Prefill(steps, len(plan.admitted), plan.prefill_tokens)
        core.step_end()
        if steps == 1:
            for number in range(BURST):
                core.add(EngineRequest(f"{number}", PROMPT, EACH, max_tokens=EACH))
        if "blocker" not in core.running:
            core.set_limits(n_run=SLOTS)
