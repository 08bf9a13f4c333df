"""A small catalogue of one model, and demands for it."""

from random import Random

from hmas.contracts.pool_plan import Catalogue, InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.placement.demand import PoolDemand, SampledRequest

# Qwen3-32B fp8 on 1, 2 and 4 H100, as fitted to aiconfigurator's measurements; another kind of card is a third slower.
STEPS = {
    1: StepCostModel(0.0139, 7.119e-5, 6.274e-5, 3.903e-8),
    2: StepCostModel(0.009115, 4.174e-5, 4.331e-5, 2.052e-8),
    4: StepCostModel(0.006614, 2.487e-5, 5.529e-5, 5.562e-9),
}
BASE_S = STEPS[1].step_s(0, 1, 800, 0.0)


def kind(gpus: int, model: str = "m", hardware: str = "h100", usd_h: float = 0.0) -> InstanceType:
    step = STEPS[gpus] if hardware == "h100" else STEPS[gpus].times(4.0 / 3.0)
    return InstanceType(
        name=f"{model}-{hardware}x{gpus}", model=model, hardware=hardware, gpus=gpus, step=step,
        kv_tokens=400_000 * gpus, max_num_batched_tokens=1024, usd_h=usd_h,
    )  # fmt: skip


CATALOGUE = Catalogue(tuple(kind(gpus) for gpus in STEPS))


def demand(rate_rps: float, seconds: float = 30.0, seed: int = 1, pool: str = "m", lax: float = 6.0) -> PoolDemand:
    """Half short answers whose SLO is about a bare step of one card, half long ones that have `lax` times as long."""
    random, now_s = Random(seed), 0.0
    requests: list[SampledRequest] = []
    while (now_s := now_s + random.expovariate(rate_rps)) < seconds or not requests:
        strict = random.random() < 0.5
        tokens = random.randint(50, 150) if strict else random.randint(300, 500)
        times = random.uniform(0.8, 1.0) if strict else random.uniform(0.7, 1.0) * lax
        prompt = max(8, min(4000, round(random.lognormvariate(6.0, 0.8))))
        requests.append(SampledRequest(now_s, prompt, tokens, 2.0, times * BASE_S))
    return PoolDemand(pool=pool, model=pool, requests=tuple(requests), seconds=max(seconds, now_s))
