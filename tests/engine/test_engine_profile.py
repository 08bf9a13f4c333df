"""Profile files, and what the benchmark's profile promises."""

import csv
import gzip
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

import pytest

from experiments.measured import aiconfigurator, llm_pilot, splitwise, vllm_requests
from hmas.engine.core import EngineCore
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits, builtin_profile, builtin_profiles, parse_profiles
from hmas.engine.core.sequence import EngineRequest, expand_prefix_hashes
from hmas.prediction.models.catalogue import knows
from hmas.prediction.shell import WARM_UP


def test_every_builtin_profile_says_where_it_comes_from() -> None:
    for profile in builtin_profiles().values():
        assert profile.source
        assert (profile.fit is None) == (profile.source == "chosen")
        if profile.fit is not None:
            assert profile.fit.decode_mean is not None
            assert profile.fit.decode_mean < 0.12


def test_the_cost_model_knows_what_each_builtin_profile_emulates() -> None:
    unknown = {
        profile.name
        for profile in builtin_profiles().values()
        if not knows(replace(WARM_UP, model=profile.model, hardware=profile.hardware))
    }
    assert unknown == {"steady"}  # which is like nothing real


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "map profile names"),
        ("a: {limits: {}}", "profile 'a' is not valid: the field 'cost' is missing"),
        ("a: {cost: {c0_s: 1}}", "profile 'a'.*c_p_s"),
        ("a: {cost: {c0_s: 0, c_p_s: 0, c_d_s: 0, c_k_s: 0}}", "c0_s must be above 0"),
        ("a: {cost: {c0_s: 1, c_p_s: -1, c_d_s: 0, c_k_s: 0}}", "c_p_s must be a finite"),
        ("a: {cost: {c0_s: 1, c_p_s: 0, c_d_s: 0, c_k_s: 0}, limits: {num_gpu_blocks: 2}}", "lower max_model_len"),
    ],
)
def test_a_bad_profile_file_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_profiles(text)


def test_limits_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="max_num_batched_tokens must be at least"):
        EngineLimits(max_num_seqs=64, max_num_batched_tokens=32)
    with pytest.raises(ValueError, match=r"choose one of: .*tiny-emulated"):
        builtin_profile("nonesuch")
    assert builtin_profile("tiny-emulated").with_limits(max_num_seqs=4).limits.max_num_seqs == 4


def mean_ttft_s(rate: float, seconds: float) -> float:
    """Mean time to first token of a Poisson stream of log-normal requests like the Azure conversation trace's."""
    rng, core = Random(5), EngineCore(builtin_profile("tiny-emulated"))
    now_s = next_s = total_s = 0.0
    arrived: dict[str, float] = {}
    while next_s < seconds or arrived:
        while next_s <= now_s and next_s < seconds:
            name = f"r{next_s}"
            prompt = min(8000, max(1, round(1014 * exp(0.7 * rng.gauss(0, 1)))))
            core.add(EngineRequest(name, prompt, min(1000, max(1, round(115 * exp(rng.gauss(0, 1)))))))
            arrived[name] = next_s
            next_s += rng.expovariate(rate)
        plan = core.step_begin()
        if plan is None:
            now_s = next_s
            continue
        now_s += plan.duration_s
        result = core.step_end()
        total_s += sum(now_s - arrived.pop(name) for name in result.first if name in arrived)
    return total_s / (rate * seconds)


def test_a_few_requests_per_second_saturate_the_benchmark_engine() -> None:
    assert mean_ttft_s(2.5, 200) < 0.5
    assert mean_ttft_s(5.0, 200) > 10


def test_drawn_lengths_repeat_and_follow_the_median() -> None:
    length = OutputLength(median=115, sigma=1.0, seed=1)
    lengths = sorted(length.draw(b"%d" % i) for i in range(2001))
    assert lengths == sorted(OutputLength(115, 1.0, 1).draw(b"%d" % i) for i in range(2001))
    assert 100 < lengths[1000] < 130
    assert 350 < lengths[1800] < 500  # exp(1.28) times the median
    assert lengths[0] >= 1


def test_trace_hashes_expand_to_blocks() -> None:
    assert expand_prefix_hashes((3, 5), 512, 256) == (6, 7, 10, 11)
    with pytest.raises(ValueError, match="not a multiple"):
        expand_prefix_hashes((1,), 512, 48)


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_readers_turn_measurements_into_work(tmp_path: Path) -> None:
    row = {"model": "m", "hardware": "h", "prompt_size": 100, "batch_size": 4, "token_size": 20, "tensor_parallel": 2}
    times = {"prompt_time_ms": 50, "token_time_ms": 30}
    write(tmp_path / "splitwise_perf_model.csv.gz", [row | times, row | times | {"hardware": "other"}])
    prefill, decode = splitwise(tmp_path, "m", "h", 2)
    assert (prefill.seconds, prefill.prefill_tokens, prefill.prefill_pairs) == (0.05, 400, 20000)
    assert (decode.seconds, decode.decode_seqs, decode.context_tokens) == (0.03, 4, 440)

    key: dict[str, object] = {
        "model_path": "m",
        "system": "s",
        "backend": "vllm",
        "precision": "fp8",
        "mode": "agg",
        "tp_size": "1.0",
        "attention_dp_size": "",
        "moe_ep_size": "1",
        "pp_size": "",
        "measured": "2026-01-01",
    }
    loop = key | {"isl": 100, "osl": 10, "silicon_concurrency": 11, "silicon_tpot_ms": 20, "silicon_ttft_ms": 9}
    too_many = loop | {"silicon_concurrency": 100}
    write(tmp_path / "aiconfigurator_silicon.csv.gz", [loop, too_many, loop | {"silicon_concurrency": ""}])
    (one,) = aiconfigurator(tmp_path, "m", "s", "vllm", "fp8", 1, 2000, True)
    assert (one.seconds, one.prefill_tokens, one.decode_seqs, one.context_tokens) == (0.02, 100, 11, 1155)

    config = {"model": "m", "gpu_type": "g", "n_gpus": 1, "num_users": 8, "itl_p50_ms": 32}
    kept, lossy = config | {"n_ok": 9, "n_requests": 9}, config | {"n_ok": 8, "n_requests": 9}
    write(tmp_path / "llm_pilot_config_summary.csv.gz", [kept, lossy])
    request = {"model": "m", "gpu_type": "g", "n_gpus": 1, "num_users": 1, "input_tokens": 64, "ttft_ms": 40}
    write(tmp_path / "llm_pilot_requests.csv.gz", [request, request | {"num_users": 2}])
    gap, first = llm_pilot(tmp_path, "m", "g", 1)
    assert (gap.kind, gap.seconds, gap.decode_seqs) == ("decode", 0.032, 8)
    assert (first.kind, first.seconds, first.prefill_tokens) == ("prefill", 0.04, 64)


def test_overlapping_requests_share_their_steps(tmp_path: Path) -> None:
    row = {"model": "m", "gpu": "g", "arrival_s": 0, "input_tokens": 100, "output_tokens": 101}
    first = row | {"queue_s": 0, "prefill_s": 1, "decode_s": 10}
    second = row | {"arrival_s": 2, "queue_s": 1, "prefill_s": 2, "decode_s": 6}
    write(tmp_path / "vllm_measured_requests.csv.gz", [first, second, first | {"gpu": "other"}])
    long, short = vllm_requests(tmp_path, "m", "g")
    assert long.seconds == pytest.approx(0.1)
    assert long.prefill_tokens == pytest.approx(1.0)  # the whole second prompt, between 100 tokens
    assert long.decode_seqs == pytest.approx(1.6)  # alone for 4 of 10 s
    assert long.context_tokens == pytest.approx(150.5 + 0.6 * 150.5, rel=0.01)
    assert short.decode_seqs == pytest.approx(2.0)
    assert short.prefill_tokens == 0.0
