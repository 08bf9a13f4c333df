"""An engine short of compute gets as many prompts as it can take, although many wait inside it at once."""

from dataclasses import replace
from random import Random

import pytest

from hmas.engine.core.profile import builtin_profile
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.experiment import chunked
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import read_by, run_system

SECONDS, RATE_RPS = 25.0, 80.0


def crowd(seed: int) -> Workload:
    """Short prompts with short answers, more than one engine can compute."""
    draw = Random(seed)

    def short(offered: OfferedRequest) -> OfferedRequest:
        request = replace(offered.request, prompt_tokens=draw.randint(120, 400))
        return replace(offered, request=request, output_tokens=draw.randint(10, 60))

    spec = WorkloadSpec(kind="poisson", duration_s=SECONDS, stated=True)
    plain = build(spec, RATE_RPS, seed, prompts=True)
    return replace(plain, requests=tuple(short(offered) for offered in plain.requests))


def served(system: str) -> int:
    """Returns the prompt tokens of the requests whose first token came while others arrived, from 5 s on."""
    profile = chunked(builtin_profile("qwen3-32b-h100x2"), 1024)
    run = run_system(system, read_by(system, crowd(1)).fitting(profile), profile, 1, 1)
    firsts = ((s.offered_s + s.ttft_s, s.prompt_tokens) for s in run.settlements if s.ttft_s is not None)
    return sum(tokens for at_s, tokens in firsts if 5.0 <= at_s < SECONDS)


@pytest.mark.long
def test_prompts_that_wait_inside_an_engine_do_not_make_prompts_look_long() -> None:
    ours, engines_own = served("hmas"), served("vllm")
    print(f"prompt tokens: {ours}, {engines_own} without a mesh")
    assert ours > 0.9 * engines_own
