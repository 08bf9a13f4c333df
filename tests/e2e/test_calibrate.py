"""`hmas calibrate` finds an emulated engine's own costs again."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hmas.mesh.ports import free_port
from tests.conftest import HMAS, eventually

pytestmark = pytest.mark.e2e
PROFILE: dict[str, dict[str, dict[str, Any]]] = {
    "known": {
        "cost": {"c0_s": 0.01, "c_p_s": 1e-4, "c_d_s": 1e-3, "c_k_s": 0.0},
        "limits": {"max_num_seqs": 8, "num_gpu_blocks": 512, "max_model_len": 1024, "enable_prefix_caching": False},
    }
}


def calibrate(url: str, out: Path) -> subprocess.CompletedProcess[str]:
    command = [HMAS, "calibrate", url, "--out", str(out), "--max-requests", "70", "--max-batch", "8"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
async def test_costs_and_limits_are_found(tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text(yaml.safe_dump(PROFILE))
    port, out = free_port(), tmp_path / "calibrated.yaml"
    url = f"http://127.0.0.1:{port}"
    engine = subprocess.Popen(
        [sys.executable, "-m", "hmas.engine", "--profile-file", str(tmp_path / "profiles.yaml"),
         "--profile", "known", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await eventually(lambda: _healthy(url))
        run = await asyncio.to_thread(calibrate, url, out)
        assert run.returncode == 0, run.stdout + run.stderr
        (profile,) = yaml.safe_load(out.read_text()).values()
        known = PROFILE["known"]["cost"]
        assert profile["cost"]["c0_s"] == pytest.approx(known["c0_s"], rel=0.4)
        assert profile["cost"]["c_p_s"] == pytest.approx(known["c_p_s"], rel=0.4)
        assert profile["limits"]["num_gpu_blocks"] == 512
        again = await asyncio.to_thread(calibrate, url, out)  # nothing is measured twice
        assert again.returncode == 0
        assert "points were measured by an earlier run" in " ".join(again.stdout.split())
        assert yaml.safe_load(out.read_text()) == dict.fromkeys(yaml.safe_load(out.read_text()), profile)
    finally:
        engine.kill()
        engine.wait()


def test_an_endpoint_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    run = calibrate(f"http://127.0.0.1:{free_port()}", tmp_path / "out.yaml")
    assert run.returncode == 1
    assert "start the server, or correct the URL" in run.stderr
    assert not (tmp_path / "out.yaml").exists()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False
