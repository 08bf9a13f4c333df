"""Measures how fast an engine is relative to the emulated one of `make run-compare`, by which SLOs are scaled to it."""

import asyncio
from math import ceil
from statistics import median

from hmas.engine.core.profile import builtin_profile
from hmas.mesh.calibrate.client import Endpoint
from hmas.mesh.compare.workload import SloFactors
from tests.engines.engine_server import MODEL

PROMPT, WORDS, TOKENS, ROUNDS = 1024, 256, 128, 3


async def slo_factors(url: str, sequences: int, chunk: int) -> SloFactors:
    """Measures the engine at `url` and returns the factors by which the SLOs of Table 6 are multiplied for it: TTFT by
    its time for the prefill of a prompt, TPOT by that of its longest step (`sequences` in decode beside a chunk of
    `chunk` prompt tokens), each over the emulated engine's. Raises EndpointFailed."""
    prefills_s: list[float] = []
    steps_s: list[float] = []
    async with Endpoint(url, "", MODEL, timeout_s=120.0) as endpoint:
        for number in range(ROUNDS + 1):  # the first round is a warm-up
            (prefill,) = [await endpoint.stream(PROMPT, 1, f"prefill-{number}")]
            streams = await asyncio.gather(
                *(endpoint.stream(WORDS, TOKENS, f"pace-{number}-{n}") for n in range(sequences))
            )
            if number:
                prefills_s.append(prefill.token_s[0] - prefill.sent_s)
                steps_s += [(s.token_s[-1] - s.token_s[0]) / (s.output_tokens - 1) for s in streams]
    prefill_s, step_s = median(prefills_s), median(steps_s)
    profile = builtin_profile("tiny-emulated")
    cost, limits = profile.cost, profile.limits
    full, capacity = limits.max_num_batched_tokens, limits.num_gpu_blocks * limits.block_size
    return SloFactors(
        ttft=prefill_s / (ceil(PROMPT / full) * cost.c0_s + PROMPT * cost.c_p_s),
        tpot=(step_s + chunk * prefill_s / PROMPT) / cost.step_s(full, limits.max_num_seqs, capacity, 0.0),
    )
