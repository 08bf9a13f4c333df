"""Measures the CPU time of one step of the emulated engine: 64 or 256 sequences decode beside a chunked prefill, with
chunks of fixed size or of the size that the slack of the decoding sequences allows."""

from itertools import product
from statistics import median
from time import perf_counter

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core import EngineCore
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.core.sequence import EngineRequest

GOALS_US = {64: 100.0, 256: 300.0}
STEPS = 1000
ROUNDS = 5
LONG_PROMPT = 1 << 17  # tokens; long enough for each step to compute a chunk of it


def loaded_core(running: int, dynamic: bool) -> EngineCore:
    """Returns an engine with `running` sequences in decode, of different lengths, that last longer than the
    benchmark."""
    limits = EngineLimits(
        running + 1, 2048, 16, num_gpu_blocks=1 << 20, max_model_len=1 << 22, dynamic_chunking=dynamic
    )
    core = EngineCore(EngineProfile("bench", StepCostModel(0.02, 1e-4, 1e-4, 1e-7), limits))
    for i in range(running):
        core.add(EngineRequest(f"decode-{i}", 500 + 7 * i, 1 << 20, pace=TokenDeadline(0.1 + 0.01 * (i % 13))))
    while core.generated(f"decode-{running - 1}") == 0:
        core.step_begin()
        core.step_end()
    return core


def step_us(running: int, dynamic: bool) -> float:
    """Returns the CPU time per step in µs, as the median over rounds of their means. It includes arrival, admission and
    end of the requests whose prompts are computed."""
    core, sent, rounds = loaded_core(running, dynamic), 0, []
    for _ in range(ROUNDS):
        begun = perf_counter()
        for _ in range(STEPS):
            if core.stats().num_requests_running == running:
                core.add(EngineRequest(f"prefill-{sent}", LONG_PROMPT, 1))
                sent += 1
            core.step_begin()
            core.step_end()
        rounds.append((perf_counter() - begun) / STEPS * 1e6)
    return median(rounds)


def rows() -> list[dict[str, object]]:
    result: list[dict[str, object]] = []
    for (running, goal), dynamic in product(GOALS_US.items(), (False, True)):
        value = step_us(running, dynamic)
        name = f"emulator step, {running} running{', dynamic chunking' if dynamic else ''}"
        result.append({"name": name, "value": round(value, 1), "unit": "µs", "goal": goal, "met": value <= goal})
    return result


if __name__ == "__main__":
    for row in rows():
        print(row)
