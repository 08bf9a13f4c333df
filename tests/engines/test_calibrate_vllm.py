"""`hmas calibrate` against a real vLLM."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import HMAS
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


def test_a_real_engine_is_measured(vllm: VllmServer, tmp_path: Path) -> None:
    out = tmp_path / "calibrated.yaml"
    run = subprocess.run(
        [HMAS, "calibrate", vllm.url, "--out", str(out), "--max-requests", "100", "--max-batch", "8"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    print(run.stdout)
    (profile,) = yaml.safe_load(out.read_text()).values()
    told_tokens = vllm.cache_tokens
    assert profile["limits"]["num_gpu_blocks"] * profile["limits"]["block_size"] == told_tokens
    assert profile["limits"]["max_model_len"] == 2048
    assert 0 < profile["cost"]["c0_s"] < 0.1
    assert profile["fit"]["points"] >= 10
    assert profile["fit"]["decode_mean"] < 0.5
