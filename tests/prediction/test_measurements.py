from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hmas.prediction.evaluation import cost_figures, learning_curves, r2
from hmas.prediction.models.catalogue import NAMES
from hmas.prediction.training.measurements import LLM_PILOT, Measurements, checksum, perf_files, read
from hmas.prediction.training.train import ForestRecipe, held_apart


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
    assert column(measured, "kv_usage")[1] > 0 == column(measured, "kv_usage")[0]


def test_an_unknown_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="no measurement file of a known kind"):
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


def synthetic(hardware: str, factor: float, count: int, seed: int) -> Measurements:
    rng = np.random.default_rng(seed)
    prompt = rng.integers(10, 500, count).astype(float)
    inputs = np.zeros((count, len(NAMES)), np.float32)
    inputs[:, NAMES.index("prompt_tokens")] = prompt
    noise = np.exp(rng.normal(0, 0.05, (2, count)))
    name = np.array([f"m on {hardware}x1"] * count, object)
    return Measurements(
        inputs=inputs,
        prefill_s=factor * prompt * 1e-3 * noise[0],
        tpot_s=factor * 0.02 * noise[1],
        output_tokens=np.full(count, 10.0),
        configuration=name,
        model=np.array(["m"] * count, object),
        source=LLM_PILOT,
    )


def test_online_correction_makes_up_for_hardware_never_seen() -> None:
    """Hardware four times slower than any in the fit: within 200 settled requests the error is the noise's."""
    seen, new = synthetic("H100", 1.0, 3000, 0), synthetic("T4", 4.0, 1500, 1)
    columns = ("inputs", "prefill_s", "tpot_s", "output_tokens", "configuration", "model")
    stacked: dict[str, Any] = {name: np.concatenate([getattr(seen, name), getattr(new, name)]) for name in columns}
    both = Measurements(**stacked, source=LLM_PILOT)
    (curve,) = learning_curves(both, ["T4"], ForestRecipe(trees=60))
    at = dict(zip(curve.requests, curve.tpot, strict=True))
    assert curve.uncorrected_tpot > 1.2
    assert at[200] < 0.1
    assert at[800] < 0.1
    assert dict(zip(curve.requests, curve.prefill, strict=True))[200] < 0.25


def test_figures_of_a_perfect_prediction() -> None:
    rows = synthetic("H100", 1.0, 100, 0)
    figures = cost_figures(np.stack([rows.prefill_s, rows.tpot_s], axis=1), rows)
    assert figures.prefill == figures.decode == figures.tpot == figures.tpot_weighted == 1.0
