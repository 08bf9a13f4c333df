"""The sentence of `hmas why` is right on 40 requests that are made late on purpose, in eight ways: its verdict is that
of the run, and its cause the one without which the request would have been on time."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.laws.scoring import is_ok, ttlt_slo_s
from hmas.sim.workload import Journey, OfferedRequest, Workload
from tests.sim.late_ways import LATE, LAX, ROOMY, WAYS, WIDE, LateCase
from tests.sim.shelled_gateway import ShelledMesh

CASES = [
    pytest.param(way, case, id=f"{way}: {case.name}") for way, cases in WAYS.items() for case in cases()
]  # fmt: skip


def run(case: LateCase) -> tuple[Journey, dict[str, Any]]:
    """Returns what became of the request, as the simulated engines saw it and as its gateway tells it."""
    requests = sorted((*case.others, case.late), key=lambda offered: offered.request.arrival_s)
    mesh = ShelledMesh(case.setup, case.profile, case.engines, Workload("late", tuple(requests), 10.0), 1)
    mesh.limit(case.limits)
    mesh.run()
    return mesh.journeys[LATE], mesh.why(LATE)


def late_s(journey: Journey, judged: str) -> float:
    """Returns by how much the request missed the SLO that is `judged`, from the instants of the run."""
    settled, tokens = journey.settlement(), journey.output_tokens
    slo = settled.slo
    assert settled.ttft_s is not None
    assert settled.tpot_s is not None
    assert settled.last_token_s is not None
    match judged:
        case "first token":
            return settled.ttft_s - slo.ttft_s
        case "pace":
            return (settled.tpot_s - slo.tpot_s) * (tokens - 1)
        case _:
            return settled.last_token_s - ttlt_slo_s(slo, tokens)


def test_there_are_five_of_each_way() -> None:
    assert {way: len(list(cases())) for way, cases in WAYS.items()} == dict.fromkeys(WAYS, 5)
    assert len(WAYS) == 8


@pytest.mark.parametrize(("way", "case"), CASES)
def test_the_sentence_names_how_it_went_and_why(way: str, case: LateCase) -> None:
    journey, told = run(case)
    assert not is_ok(journey.settlement())
    sentence = told["why"]
    assert re.search(case.told, sentence), sentence
    if case.judged:
        verdict, seconds = re.match(r"(Its .*) was late by (\d+\.\d\d) s: ", sentence).groups()  # type: ignore[union-attr]
        assert verdict == f"Its {case.judged}"
        assert float(seconds) == pytest.approx(late_s(journey, case.judged), abs=0.01)
    else:
        assert journey.outcome is not Outcome.FINISHED
        assert sentence.startswith("It got no whole answer (" if told["runs"] else "It was refused (")


# --- without the cause


def asked(case: LateCase, change: Callable[[OfferedRequest], OfferedRequest]) -> LateCase:
    return replace(case, late=change(case.late))


def short(offered: OfferedRequest) -> OfferedRequest:
    return replace(offered, request=replace(offered.request, prompt_tokens=50))


def as_long_as_predicted(offered: OfferedRequest) -> OfferedRequest:
    assert offered.recorded is not None
    return replace(offered, output_tokens=int(offered.recorded[2]))


def patient(offered: OfferedRequest) -> OfferedRequest:
    slo = Slo(LAX.ttft_s, LAX.tpot_s, LAX.ttft_s, whole=offered.slo.whole)
    return replace(offered, slo=slo, request=replace(offered.request, slo=slo))


SLOTS = ROOMY.with_limits(max_num_seqs=16 * ROOMY.limits.max_num_seqs, max_num_batched_tokens=2048)
MEMORY = WIDE.with_limits(num_gpu_blocks=8 * WIDE.limits.num_gpu_blocks)
REMEDIES: dict[str, Callable[[LateCase], LateCase]] = {
    "queue": lambda case: replace(case, profile=SLOTS),
    "long prompt": lambda case: asked(case, short),
    "slow engine": lambda case: replace(case, faults=()),
    "misjudged length": lambda case: asked(case, as_long_as_predicted),
    "refused": lambda case: asked(case, patient),
    "lost engine": lambda case: replace(case, faults=()),
    "fenced memory": lambda case: replace(case, profile=MEMORY),
    "tenant's limit": lambda case: replace(case, limits=()),
}


@pytest.mark.long
@pytest.mark.parametrize(("way", "case"), CASES)
def test_without_its_cause_the_request_is_on_time(way: str, case: LateCase) -> None:
    journey, told = run(REMEDIES[way](case))
    assert is_ok(journey.settlement()), told
    assert told["why"] == "It was on time."
