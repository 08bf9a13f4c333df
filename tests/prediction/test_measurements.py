import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hmas.prediction.models.catalogue import facts
from hmas.prediction.models.roofline import NAMES, inputs
from hmas_lab.prediction.evaluation import corrected, cost_figures, left_out, left_out_figures, r2
from hmas_lab.prediction.training.measurements import (
    AICONFIGURATOR,
    BENCH,
    LLM_PILOT,
    LLMPERF,
    Measurements,
    NoMeasurements,
    checksum,
    perf_files,
    pooled,
    read,
)
from hmas_lab.prediction.training.train import ForestRecipe, held_apart


def column(measured: Measurements, name: str) -> list[float]:
    return [float(value) for value in measured.inputs[:, NAMES.index(name)]]


def pilot(tmp_path: Path) -> Path:
    file = tmp_path / LLM_PILOT
    rows = {
        "model": ["llama-7b"] * 4, "gpu_type": ["A100"] * 4, "n_gpus": [1] * 4, "num_users": [2] * 4,
        "start_s": [0.0, 0.1, 1.1, 5.0], "input_tokens": [10, 20, 30, 40], "output_tokens": [11, 1, 0, 5],
        "first_msg_ms": [10, 10, 10, 10], "ttft_ms": [190, 190, 190, 190], "decode_ms": [1000, 0, 0, 400],
        "itl_median_ms": [100, None, None, 100], "latency_ms": [1200, 200, 200, 600],
    }  # fmt: skip
    pd.DataFrame(rows).to_csv(file, index=False)
    return file


def test_llm_pilot_state_is_what_stood_at_the_arrival(tmp_path: Path) -> None:
    measured = read(pilot(tmp_path))
    assert len(measured.prefill_s) == 3  # a request without a token has no cost
    np.testing.assert_allclose(measured.prefill_s, 0.2)
    np.testing.assert_allclose(measured.tpot_s, [0.1, np.nan, 0.1])
    np.testing.assert_allclose(measured.latency_s, [1.2, 0.2, 0.6])
    assert column(measured, "waiting") == [0, 1, 0]  # the first has no token yet at 0.1 s
    assert column(measured, "running") == [0, 0, 0]
    assert column(measured, "concurrency") == [2, 2, 2]
    assert column(measured, "prompt_tokens") == [10, 20, 40]
    assert list(measured.configuration) == ["llama-7b on A100x1"] * 3


def test_a_running_request_is_seen(tmp_path: Path) -> None:
    frame = pd.read_csv(pilot(tmp_path))
    frame.loc[1, "start_s"] = 0.5
    frame.to_csv(tmp_path / LLM_PILOT, index=False)
    measured = read(tmp_path / LLM_PILOT)
    assert column(measured, "running")[1] == 1
    assert column(measured, "waiting")[1] == 0


def test_an_unknown_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not a measurement file of a known kind"):
        read(file)
    with pytest.raises(FileNotFoundError, match=LLM_PILOT):
        perf_files(tmp_path)
    assert len(checksum([file])) == 64


def test_the_split_is_the_same_every_time_and_a_fifth() -> None:
    rows = held_apart(50_000, ForestRecipe())
    assert abs(rows.mean() - 0.2) < 0.01
    assert (rows == held_apart(50_000, ForestRecipe())).all()


def test_r2_of_truth_mean_and_weights() -> None:
    truth = np.array([1.0, 2.0, 3.0])
    assert r2(truth, truth) == 1.0
    assert r2(truth, np.full(3, 2.0)) == 0.0
    assert r2(truth, np.array([1.0, 2.0, 0.0]), np.array([1.0, 1.0, 0.0])) == 1.0


def test_every_file_with_requests_is_read_and_every_other_says_why_not(tmp_path: Path) -> None:
    def written(name: str, **columns: object) -> Path:
        pd.DataFrame({key: [value] for key, value in columns.items()}).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    bench = read(
        written(
            BENCH, hardware="Nvidia H100 GPU", num_hardware=2, framework="vLLM", model="mistralai/Mistral-7B-v0.1",
            input_output_length=128, batch_size=16, latency_s=2.0, throughput_tok_s=1000.0,
        )
    )  # fmt: skip
    assert (bench.latency_s.tolist(), bench.card.tolist()) == ([2.0], ["h100"])
    assert np.isnan(bench.prefill_s).all()  # the file tells the whole latency alone
    hosted = read(
        written(
            LLMPERF, provider="x", model="llama2-70b-chat", input_tokens=550, output_tokens=151, ttft_s=0.5,
            inter_token_latency_s=0.01, e2e_s=2.0, output_tok_s=75.0,
        )
    )  # fmt: skip
    np.testing.assert_allclose(hosted.tpot_s, [0.01])
    assert hosted.card.tolist() == [""]
    for name, column_of_it in (("s.csv", "experiment_s"), ("l.csv", "model_type"), ("g.csv", "gpu_architecture")):
        with pytest.raises(NoMeasurements):
            read(written(name, model="m", num_users=1, **{column_of_it: 1}))
    with pytest.raises(NoMeasurements, match="without attention"):
        read(written("o.csv", gpu="a100", mlp_up_proj_ms=1.0))


def test_rows_without_a_precision_or_a_concurrency_are_read_too(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "mode": "agg", "model_path": "Qwen/Qwen3-32B", "precision": [None, "fp8"], "system": "gb200",
            "tp_size": 2.0, "pp_size": 1.0, "attention_dp_size": [None, 1.0], "batch_size": [8.0, 4.0],
            "silicon_concurrency": [None, 4.0], "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 10.0, "isl": 1024,
            "osl": 128,
        }
    )  # fmt: skip
    frame.to_csv(tmp_path / AICONFIGURATOR, index=False)
    measured = read(tmp_path / AICONFIGURATOR)
    assert np.isfinite(measured.inputs).all()
    assert column(measured, "weight_bytes") == [2.0, 1.0]
    assert column(measured, "concurrency") == [8.0, 4.0]
    assert set(measured.model) == {"qwen3-32b"}


def test_what_does_not_fit_into_the_memory_waits(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "mode": ["agg"], "model_path": "meta-llama/Llama-3.1-70B", "precision": "fp8", "system": "h100_sxm",
            "tp_size": 2.0, "pp_size": 1.0, "attention_dp_size": 1.0, "batch_size": 512.0, "silicon_concurrency": 512.0,
            "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 10.0, "isl": 8192, "osl": 1024,
        }
    )  # fmt: skip
    frame.to_csv(tmp_path / AICONFIGURATOR, index=False)
    (running,), (waiting,) = (column(read(tmp_path / AICONFIGURATOR), name) for name in ("running", "waiting"))
    assert 10 < running < 100
    assert running + waiting == pytest.approx(511)


def synthetic(hardware: str, factor: float, count: int, seed: int) -> Measurements:
    """Returns requests to an engine that takes `factor` times as long as arithmetic says."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(10, 500, count).astype(float)
    state = np.zeros((count, 6))
    state[:, 0], state[:, 3], state[:, 4] = 1.0, prompt, 10.0
    rows = inputs(np.repeat([facts("llama-7b", hardware)], count, axis=0), state)
    noise = np.exp(rng.normal(0, 0.05, (2, count)))
    prefill_s, tpot_s = factor * prompt * 1e-3 * noise[0], factor * 0.02 * noise[1]
    return Measurements(
        inputs=rows,
        prefill_s=prefill_s,
        tpot_s=tpot_s,
        latency_s=prefill_s + 9 * tpot_s,
        output_tokens=np.full(count, 10.0),
        configuration=np.full(count, f"m on {hardware}x1", object),
        model=np.full(count, "llama-7b", object),
        card=np.full(count, hardware.lower(), object),
        source=np.full(count, LLM_PILOT, object),
        run=np.zeros(count, np.int64),
        arrival_s=np.arange(float(count)) * 100.0,
    )


@pytest.mark.long
def test_online_correction_makes_up_for_hardware_never_seen() -> None:
    """Hardware four times slower than any in the fit: within 50 settled requests the error is the noise's."""
    both = pooled([synthetic("H100", 1.0, 1200, 0), synthetic("T4", 4.0, 1200, 1), synthetic("H200", 1.0, 1200, 2)])
    assert set(both.run) == {0, 1, 2}
    found = left_out(both, "card", ForestRecipe(), lambda line: None)
    figures = left_out_figures(both, "card", found)
    new = corrected(found.nested[both.card == "t4"], both.rows(both.card == "t4"))
    assert new.workers == 1
    assert new.uncorrected_prefill > 1.0
    at = dict(zip(new.settled, zip(new.prefill, new.decode, strict=True), strict=True))
    assert at[50][1] < 0.1
    assert at[800][1] < 0.1
    assert at[50][0] < 0.2
    assert set(figures.groups) == {"h100", "t4", "h200"}
    assert figures.corrected.workers == figures.mixed.workers == 3


@pytest.mark.long
def test_what_is_left_out_has_no_part_in_what_is_chosen_for_it() -> None:
    rows = pooled([synthetic(card, 1.0, 200, n) for n, card in enumerate(("H100", "T4", "A10"))])
    out = rows.card == "t4"
    bent = np.random.default_rng(3).uniform(0.1, 10.0, (2, len(rows))) ** out
    other = replace(rows, prefill_s=rows.prefill_s * bent[0], tpot_s=rows.tpot_s * bent[1])
    found, again = (left_out(some, "card", ForestRecipe(), lambda line: None) for some in (rows, other))
    assert found.depths["t4"] == again.depths["t4"]
    assert np.array_equal(found.nested[out], again.nested[out])
    assert found.depths != again.depths or not np.array_equal(found.nested[~out], again.nested[~out])
    with pytest.raises(ValueError, match="measure three"):
        left_out(rows.rows(~out), "card", ForestRecipe(), lambda line: None)


def test_figures_of_a_perfect_prediction() -> None:
    rows = synthetic("H100", 1.0, 100, 0)
    figures = cost_figures(np.stack([rows.prefill_s, rows.tpot_s], axis=1), rows)
    assert figures.prefill == figures.decode == figures.tpot == figures.tpot_weighted == 1.0
    assert figures.latency == pytest.approx(1.0)


@pytest.mark.skipif("HMAS_DATA" not in os.environ, reason="needs the measured performance")
def test_every_recorded_file_is_read_or_says_why_it_holds_no_measured_request() -> None:
    files = sorted((Path(os.environ["HMAS_DATA"]) / "perf").glob("*.csv*"))
    held, reasons = dict[str, int](), dict[str, str]()
    for file in files:
        try:
            held[file.name] = len(read(file))
        except NoMeasurements as reason:
            reasons[file.name] = str(reason)
    assert len(held) > len(reasons)
    assert all(held.values()), held
    assert all(len(reason.split()) > 5 for reason in reasons.values()), reasons
