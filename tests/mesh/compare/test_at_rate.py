"""What `hmas compare` writes at one rate: rows, a picture, and what the simulator makes of the same requests."""

import csv
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.engine.core.profile import builtin_profile
from hmas.laws.scoring import Settlement
from hmas.mesh.compare.commands import refused_only_live
from hmas.mesh.compare.picture import LATE, ON_TIME, picture
from hmas.mesh.compare.rows import HEADER, rows_csv
from hmas.mesh.compare.runs import DRAIN_S, Replay
from hmas.mesh.compare.simulated import SYSTEMS, Turn, _cut_off, in_turn, simulated
from hmas.mesh.compare.workload import ReplayWorkload
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.result import LoadResult

SLO = Slo(ttft_s=1.0, tpot_s=0.1)


def settled(offered_s: float, ttft_s: float | None, last_s: float | None = None) -> Settlement:
    last_s = ttft_s if last_s is None else last_s
    return Settlement(
        request_id="r", tenant="t", task=TaskType.UNKNOWN, model="m",
        outcome=Outcome.FINISHED if ttft_s is not None else Outcome.TIMED_OUT, slo=SLO, prompt_tokens=5,
        output_tokens=1, ttft_s=ttft_s, tpot_s=None if ttft_s is None else 0.0, last_token_s=last_s,
        offered_s=offered_s,
    )  # fmt: skip


def test_a_picture_has_a_bar_for_each_second_of_each_side() -> None:
    on_time, late, lost = settled(0.2, 0.5), settled(1.1, 3.0), settled(2.0, None)
    drawn = picture("a title", {"alone": [on_time, late, lost], "meshed": [on_time]}, 2.0)
    root = ElementTree.fromstring(drawn)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "alone: 33% of 3 requests on time" in texts
    assert "meshed: 100% of 1 requests on time" in texts
    for colour in (ON_TIME, LATE):
        assert drawn.count(f"fill: {colour}") == 2 * 2 + 1  # seconds, sides, and the legend
    assert drawn == picture("a title", {"alone": [on_time, late, lost], "meshed": [on_time]}, 2.0)


RECORD = RequestRecord(
    index=0, request_id="a", tenant="t", task=TaskType.UNKNOWN, slo=SLO, prompt_tokens=5, expected_output_tokens=2,
    scheduled_s=1.0, sent_s=1.0, end_s=1.5, outcome=Outcome.FINISHED, output_tokens=2, first_token_s=1.25,
    last_token_s=1.3,
)  # fmt: skip


def replayed(*records: RequestRecord) -> Replay:
    result = LoadResult(
        name="direct", model="m", offered_s=5.0, warmup_s=0.0, config={}, started_unix_s=0.0, records=records,
        lag_p50_s=0.0, lag_p99_s=0.0, reasons=(),
    )  # fmt: skip
    return Replay(result, None)


def test_rows_hold_every_request_of_every_run() -> None:
    late = replace(RECORD, index=1, first_token_s=4.0, last_token_s=4.1, end_s=4.1)
    rows = list(csv.DictReader(rows_csv({"direct": [replayed(RECORD, late)] * 2}, [7, 8]).splitlines()))
    assert [(row["side"], row["seed"], row["on_time"]) for row in rows] == [
        ("direct", "7", "1"), ("direct", "7", "0"), ("direct", "8", "1"), ("direct", "8", "0")
    ]  # fmt: skip
    assert tuple(rows[0]) == HEADER
    assert float(rows[0]["ttft_s"]) == pytest.approx(0.25)


def test_what_engines_refuse_and_the_simulator_serves_is_told() -> None:
    failed = [replace(RECORD, outcome=Outcome.INVALID_REQUEST, error=error)
              for error in ("400 400", "400 never_fits", "stream 400", "429 pool_queue_full", "cut off")]  # fmt: skip
    assert refused_only_live({"direct": [replayed(RECORD)]}) == []
    (line,) = refused_only_live({"mesh": [replayed(RECORD, *failed)] * 2, "direct": [replayed(*failed[3:])]})
    assert line.startswith("mesh: 6 of 12 requests got status 400 ")


def test_a_simulated_request_ends_where_a_live_run_ends() -> None:
    end_s = 10.0
    assert _cut_off(settled(5.0, 1.0, 5.0), end_s).outcome is Outcome.FINISHED
    cut = _cut_off(settled(5.0, 1.0, 5.1), end_s)
    assert (cut.outcome, cut.ttft_s, cut.last_token_s) == (Outcome.TIMED_OUT, 1.0, None)
    assert _cut_off(settled(5.0, 5.5, 6.0), end_s).ttft_s is None


@pytest.mark.parametrize("side", ["direct", pytest.param("mesh", marks=pytest.mark.long)])
def test_both_sides_are_simulated_on_the_requests_of_the_comparison(side: str) -> None:
    trace = ReplayWorkload(None, 4096).at(2.0, 10.0, seed=1)
    run = simulated(SYSTEMS[side], Turn(trace, 1), builtin_profile("tiny-emulated"), engines=2, window_s=10.0)
    assert run.score.offered == len(trace.rows) == 20
    assert run.score.goodput_rate > 0.9  # nothing is short at this rate
    usual = builtin_profile("tiny-emulated")
    slow = replace(usual, cost=replace(usual.cost, c0_s=DRAIN_S))
    assert simulated(SYSTEMS[side], Turn(trace, 1), slow, engines=2, window_s=10.0).score.completed == 0


@pytest.mark.long
def test_one_simulated_mesh_serves_all_replays_and_remembers() -> None:
    workload, profile = ReplayWorkload(None, 4096), builtin_profile("tiny-emulated")
    turns = [Turn(workload.at(12.0, 20.0, seed), seed, 1000.0 + 60.0 * seed) for seed in (1, 2)]
    alone = [simulated(SYSTEMS["mesh"], turn, profile, engines=1, window_s=20.0).score for turn in turns]
    first, second = (run.score for run in in_turn(SYSTEMS["mesh"], turns, profile, engines=1, window_s=20.0))
    assert first == alone[0]
    assert second.offered == alone[1].offered
    assert second.ttft_p50_s != alone[1].ttft_p50_s
    direct = in_turn(SYSTEMS["direct"], turns, profile, engines=1, window_s=20.0)
    assert [run.score for run in direct] == [
        simulated(SYSTEMS["direct"], turn, profile, engines=1, window_s=20.0).score for turn in turns
    ]


@pytest.mark.parametrize("side", ["direct", "mesh"])
def test_what_a_request_spends_outside_the_steps_is_part_of_its_ttft(side: str) -> None:
    turn, usual = Turn(ReplayWorkload(None, 4096).at(2.0, 10.0, seed=1), 1), builtin_profile("tiny-emulated")
    slow = replace(usual, request_overhead_s=0.2)
    before, after = (simulated(SYSTEMS[side], turn, p, engines=2, window_s=10.0).score for p in (usual, slow))
    assert after.ttft_p50_s - before.ttft_p50_s == pytest.approx(0.2, abs=0.05)
