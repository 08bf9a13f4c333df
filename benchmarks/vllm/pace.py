"""How fast an engine is, relative to the one for which the SLOs of Table 6 apply as they stand."""

import asyncio

from services.engine.profile import builtin_profile
from services.mesh.calibrate.client import Endpoint
from services.mesh.compare.workload import SloFactors
from tests.engines.vllm_server import MODEL

PROMPT, WORDS, TOKENS, ROUNDS = 1024, 256, 128, 3


async def slo_factors(url: str, sequences: int) -> SloFactors:
    """Its prefill of an ordinary prompt, and its step with all sequences decoding, over those of the emulated engine of
    `make run-compare`. Raises EndpointFailed."""
    prefills_s: list[float] = []
    steps_s: list[float] = []
    async with Endpoint(url, "", MODEL, timeout_s=120.0) as endpoint:
        for number in range(ROUNDS + 1):  # the first warms up
            (prefill,) = [await endpoint.stream(PROMPT, 1, f"prefill-{number}")]
            streams = await asyncio.gather(
                *(endpoint.stream(WORDS, TOKENS, f"pace-{number}-{n}") for n in range(sequences))
            )
            if number:
                prefills_s.append(prefill.token_s[0] - prefill.sent_s)
                steps_s += [(s.token_s[-1] - s.token_s[0]) / (s.output_tokens - 1) for s in streams]
    profile = builtin_profile("tiny-emulated")
    cost, limits = profile.cost, profile.limits
    steps = -(-PROMPT // limits.max_num_batched_tokens)
    capacity = limits.num_gpu_blocks * limits.block_size
    return SloFactors(
        ttft=sum(prefills_s) / len(prefills_s) / (steps * cost.c0_s + PROMPT * cost.c_p_s),
        tpot=sum(steps_s) / len(steps_s) / cost.step_s(0, limits.max_num_seqs, capacity, 0.0),
    )
