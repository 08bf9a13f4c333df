"""Figures out of engines' Prometheus pages."""

import pytest

from hmas.worker.adapters import scrape

VLLM_PAGE = b"""# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="a } b"} 4.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_preemptions_total{engine="0"} 1.0
vllm:prompt_tokens_total{engine="0"} 1000.0
vllm:generation_tokens_total{engine="0"} 1e+03
vllm:inter_token_latency_seconds_bucket{le="0.01"} 5.0
vllm:inter_token_latency_seconds_sum{engine="0"} 2.5
vllm:inter_token_latency_seconds_count{engine="0"} 100.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",x="a\\"b"} 1.0"""


def test_a_vllm_page_is_read_over_all_its_ranks() -> None:
    assert scrape.dialect_of(scrape.read_page(VLLM_PAGE)) is scrape.VLLM
    assert scrape.read(scrape.read_page(VLLM_PAGE), scrape.VLLM) == scrape.Reading(
        running=5,
        waiting=4,
        kv_usage=0.5,
        preemptions=1,
        prompt_tokens=1000.0,
        generation_tokens=1000.0,
        gap_sum_s=2.5,
        gap_count=100.0,
    )
    assert scrape.labels_of(scrape.read_page(VLLM_PAGE), "vllm:cache_config_info")["num_gpu_blocks"] == "1000"


def test_an_sglang_page_is_told_apart() -> None:
    page = b"sglang:num_running_reqs 2\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5\n"
    assert scrape.dialect_of(scrape.read_page(page)) is scrape.SGLANG
    assert scrape.read(scrape.read_page(page), scrape.SGLANG) == scrape.Reading(
        running=2,
        waiting=1,
        kv_usage=0.5,
        preemptions=0,
        prompt_tokens=None,
        generation_tokens=None,
        gap_sum_s=None,
        gap_count=None,
    )


def test_sglangs_queues_are_not_counted_once_more_by_priority() -> None:
    page = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",priority="",tp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",priority="5",tp_rank="0"} 2.0
sglang:num_running_reqs{model_name="m",priority="-9223372036854775808",tp_rank="0"} 1.0
sglang:num_queue_reqs{model_name="m",priority="",tp_rank="0"} 7.0
sglang:num_queue_reqs{model_name="m",priority="5",tp_rank="0"} 7.0
sglang:num_retracted_reqs{model_name="m",priority=""} 0.0
sglang:num_retracted_requests_total{model_name="m",priority=""} 4.0
sglang:prompt_tokens_total{model_name="m",priority=""} 10.0
sglang:prompt_tokens_total{model_name="m",priority="5"} 32.0
"""
    assert scrape.read(scrape.read_page(page), scrape.SGLANG) == scrape.Reading(
        running=3,
        waiting=7,
        kv_usage=0.0,
        preemptions=4,
        prompt_tokens=42.0,
        generation_tokens=None,
        gap_sum_s=None,
        gap_count=None,
    )


def test_an_sglang_that_ran_nothing_yet_is_known_all_the_same() -> None:
    page = b"# TYPE sglang:startup_time_seconds gauge\nsglang:startup_time_seconds 3.0\n"
    assert scrape.dialect_of(scrape.read_page(page)) is scrape.SGLANG
    assert scrape.read(scrape.read_page(page), scrape.SGLANG) is None


@pytest.mark.parametrize("page", [b"", b"process_cpu_seconds_total 1\n", b"vllm:num_requests_running", b"<html>"])
def test_other_pages_are_of_no_dialect(page: bytes) -> None:
    assert scrape.dialect_of(scrape.read_page(page)) is None
    assert scrape.read(scrape.read_page(page), scrape.VLLM) is None


def test_rates_survive_a_restart_of_the_engine() -> None:
    assert scrape.rate_per_s(100.0, 150.0, 0.5) == 100.0
    assert scrape.rate_per_s(100.0, 3.0, 0.5) == 0.0
    assert scrape.rate_per_s(None, 3.0, 0.5) == 0.0


def test_the_step_is_the_mean_gap_between_two_readings() -> None:
    before = scrape.read(scrape.read_page(VLLM_PAGE), scrape.VLLM)
    after = scrape.read(
        scrape.read_page(VLLM_PAGE.replace(b"} 2.5", b"} 3.5").replace(b"} 100.0", b"} 150.0")), scrape.VLLM
    )
    assert before is not None
    assert after is not None
    assert scrape.mean_gap_s(before, after) == pytest.approx(0.02)
    assert scrape.mean_gap_s(before, before) is None


def sleep_page(awake: int, offloaded: int, discarded: int, engine: int = 0, calls: int | None = None) -> bytes:
    """What vLLM 0.32 tells of its sleep, and 0.29 but for the last line."""
    states = ("awake", awake), ("weights_offloaded", offloaded), ("discard_all", discarded)
    lines = [f'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="{s}"}} {v}.0' for s, v in states]
    if calls is not None:
        lines.append('vllm:sleep_mode_operations_in_flight{operation="wake"} 1.0')
        lines.append(f'vllm:sleep_mode_operations_in_flight{{operation="sleep"}} {calls}.0')
    return "\n".join(["vllm:num_requests_running 1", *lines]).encode()


@pytest.mark.parametrize(
    ("page", "level"),
    [
        (VLLM_PAGE, None),
        (sleep_page(1, 0, 0), None),
        (sleep_page(0, 0, 0), 0),
        (sleep_page(0, 1, 0), 1),
        (sleep_page(0, 0, 1), 2),
        (sleep_page(1, 0, 0, calls=0), None),
        (sleep_page(1, 0, 0, calls=1), 0),
        (sleep_page(0, 1, 0, calls=1), 1),
        (sleep_page(1, 0, 0) + b"\n" + sleep_page(0, 1, 0, engine=1), 1),
        (b'vllm:num_requests_running 1\nvllm:engine_sleep_state{sleep_state="awake"} nan', None),
        (b"vllm:num_requests_running 1\nvllm:engine_sleep_state 0", None),
        (b"sglang:num_running_reqs 2", None),
    ],
)
def test_a_sleep_is_read_with_its_level(page: bytes, level: int | None) -> None:
    metrics = scrape.read_page(page)
    dialect = scrape.dialect_of(metrics)
    assert dialect is not None
    reading = scrape.read(metrics, dialect)
    assert reading is not None
    assert reading.sleep_level == level
