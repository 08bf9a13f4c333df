"""Small workloads for the simulator's tests."""

from random import Random

from hmas.contracts.request import Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.laws.slo import default_slo
from hmas.sim.workload import OfferedRequest, Workload
from tests.builders.requests import client_request

SMALL = EngineProfile(
    "small",
    StepCostModel(0.01, 5e-5, 2e-4, 1e-7, 1e-9),
    EngineLimits(max_num_seqs=16, max_num_batched_tokens=256, num_gpu_blocks=512, max_model_len=4096),
)


def offered(
    index: int, arrival_s: float, prompt: int, output: int, slo: Slo | None = None, tenant: str = "t", hashes: int = 0
) -> OfferedRequest:
    task = list(TaskType)[index % 13]
    slo = slo or default_slo(task)
    request = client_request(
        f"r{index}", model="model", tenant=tenant, prompt_tokens=prompt, max_tokens=2048, slo=slo, arrival_s=arrival_s
    )
    return OfferedRequest(
        request=request, output_tokens=output, slo=slo, task=task, prompt="", prefix_hashes=tuple(range(hashes))
    )


def random_workload(seed: int, rate: float, duration_s: float, prompt: float = 5.0, output: float = 4.0) -> Workload:
    draw, at = Random(seed), 0.0
    rows: list[OfferedRequest] = []
    while (at := at + draw.expovariate(rate)) < duration_s:
        prompt_tokens, output_tokens = (min(2000, 1 + int(draw.lognormvariate(m, 0.9))) for m in (prompt, output))
        rows.append(offered(len(rows), at, prompt_tokens, output_tokens, tenant=f"t{len(rows) % 3}"))
    return Workload("random", tuple(rows), duration_s)
