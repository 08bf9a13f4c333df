"""The verdict and the page of the benchmark on real vLLM, from made runs."""

from dataclasses import replace

import pytest

from benchmarks.vllm import systems
from benchmarks.vllm.page import Measured, VllmResults, page
from benchmarks.vllm.processors import Busy
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.mesh.compare.runs import Replay
from hmas.mesh.compare.workload import SloFactors
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.result import LoadResult
from hmas_loadgen.search import ProbedRate, RateSearch


def run(ok: int, ttft_s: float = 0.2, *reasons: str) -> Measured:
    """100 requests, `ok` of them on time."""
    records = []
    for n in range(100):
        first_s = n + (ttft_s if n < ok else 5.0)
        records.append(
            RequestRecord(
                index=n,
                request_id=f"r{n}",
                tenant="",
                task=TaskType.QA,
                slo=Slo(1.0, 0.1),
                prompt_tokens=100,
                expected_output_tokens=2,
                scheduled_s=float(n),
                sent_s=float(n),
                end_s=first_s + 0.1,
                outcome=Outcome.FINISHED,
                status=200,
                output_tokens=2,
                first_token_s=first_s,
                last_token_s=first_s + 0.05,
            )
        )
    return Measured(
        Replay(
            LoadResult(
                name="x",
                model="m",
                offered_s=100.0,
                warmup_s=0.0,
                config={},
                started_unix_s=0.0,
                records=tuple(records),
                lag_p50_s=0.0,
                lag_p99_s=0.0,
                reasons=reasons,
            ),
            None,
        ),
        Busy(0.98, 0.4),
    )


def results(plain: int, mesh: int, plugin: int, rate_rps: float = 2.0) -> VllmResults:
    overload = dict(zip(systems.SYSTEMS, ([run(plain)], [run(mesh)], [run(plugin)]), strict=True))
    light = dict(zip(systems.SYSTEMS, ([run(100)], [run(99, 0.21)], [run(100, 0.22)]), strict=True))
    search = RateSearch(rate_rps, 2.2, (ProbedRate(2.2, 0.9), ProbedRate(2.0, 0.97)))
    paces = {name: SloFactors(1.1, 0.5) for name in systems.SYSTEMS}
    return VllmResults(
        workload="a trace",
        seconds=60.0,
        seeds=(1,),
        slo_factors=SloFactors(1.1, 0.5),
        rate_rps=rate_rps,
        loads={1.4: overload, 0.5: light},
        search=search,
        paces=paces,
    )


@pytest.mark.parametrize(
    ("found", "good"),
    [
        (results(50, 80, 90), True),
        (results(50, 70, 90), False),  # 1.4 times plain vLLM is too little
    ],
)
def test_goals(found: VllmResults, good: bool) -> None:
    assert found.good(ranking=False) is good


def test_an_invalid_run_or_a_missing_system_is_not_good() -> None:
    found = results(50, 80, 90)
    found.loads[1.4][systems.MESH].append(run(80, 0.2, "the generator lagged"))
    assert not found.good(ranking=False)
    found = results(50, 80, 90)
    slow = replace(run(80), busy=Busy(0.6, 0.95))  # the other processors are the bottleneck
    found.loads[1.4][systems.MESH].append(slow)
    assert not found.good(ranking=False)
    found = results(50, 80, 90)
    del found.loads[0.5][systems.WITH_PLUGIN]
    assert not found.good(ranking=False)


def test_the_page_says_what_was_measured() -> None:
    text = page(results(50, 80, 90), ranking=False)
    assert "**2.00 req/s** (tried, req/s and goodput rate: 2.00: 97.0%, 2.20: 90.0%)" in text
    assert text.index("## 1.4 of the capacity") < text.index("## 0.5 of the capacity")
    assert "| goodput rate | 50.0 % | 80.0 % | 90.0 % |" in text
    assert "| engine core busy | 98% | 98% | 98% |" in text
    assert "- mesh against plain vLLM: goodput rate × 1.60 (goal at least 1.5: holds)" in text
    assert "- mesh against plain vLLM: goodput rate × 0.99 (goal at least 0.98: holds); TTFT p50 +10.0 ms" in text


def test_a_ranking_is_ordered_by_goodput() -> None:
    found = results(50, 80, 90)
    found.loads = {1.4: {systems.PLAIN: [run(50)], "mesh: fcfs": [run(52)], "mesh: edf": [run(61)]}}
    assert "- by goodput rate: edf, fcfs\n" in page(found, ranking=True)
    assert found.good(ranking=True)


def test_a_machine_whose_speed_changed_is_told() -> None:
    found = results(50, 80, 90)
    assert "the machine's speed changed" not in page(found, ranking=False)
    found.paces[systems.MESH] = SloFactors(1.43, 0.5)
    assert "the machine's speed changed by a factor of 1.3**" in page(found, ranking=False)
