"""How fast an engine is, relative to those for which the SLOs of Table 6 were written."""

import asyncio

from services.engine.profile import builtin_profile
from services.mesh.calibrate.client import Endpoint
from tests.engines.vllm_server import MODEL

WORDS, TOKENS, ROUNDS = 256, 128, 3


async def slo_factor(url: str, sequences: int) -> float:
    """The step of the full engine over that of the full engine of `make run-compare`, to which those SLOs apply there
    as they stand. Raises EndpointFailed."""
    steps: list[float] = []
    async with Endpoint(url, "", MODEL, timeout_s=120.0) as endpoint:
        for number in range(ROUNDS + 1):  # the first warms up
            streams = await asyncio.gather(
                *(endpoint.stream(WORDS, TOKENS, f"pace-{number}-{n}") for n in range(sequences))
            )
            steps += [(s.token_s[-1] - s.token_s[0]) / (s.output_tokens - 1) for s in streams if number]
    profile = builtin_profile("tiny-emulated")
    seqs = profile.limits.max_num_seqs
    capacity = profile.limits.num_gpu_blocks * profile.limits.block_size
    return sum(steps) / len(steps) / profile.cost.step_s(0, seqs, capacity, 0.0)
