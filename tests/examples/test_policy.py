"""The template of a policy, installed: its own tests pass, and commands know it by its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HMAS
from tests.examples.installed_policy import EXAMPLE, install_policy

NAME = "shortest_prompt"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_policy(tmp_path_factory.mktemp("policy"))


def ran(*command: str, cwd: Path, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HMAS_DATA")}
    env = clean | {"COLUMNS": "160"} | ({"PYTHONPATH": str(site)} if site is not None else {})
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=500, check=False)


def test_where_it_is_not_installed_its_name_is_refused(tmp_path: Path) -> None:
    refused = ran(HMAS, "pin", NAME, cwd=tmp_path)
    assert refused.returncode != 0
    assert f"'{NAME}' is not a topology: use one of fcfs, edf" in refused.stderr


@pytest.mark.long
def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    done = ran(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"),
               "--rootdir", str(tmp_path), "-c", os.devnull, cwd=tmp_path, site=site)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


@pytest.mark.long
def test_a_simulation_runs_it_beside_the_mesh_as_it_ships(site: Path, tmp_path: Path) -> None:
    done = ran(HMAS, "sim", "run", "--topology", NAME, "--rate", "4", cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    first = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert first[-2:] == ["hmas", f"fixed-{NAME}"]


def test_a_question_of_what_if_is_answered_under_it(site: Path, tmp_path: Path) -> None:
    past = tmp_path / "past.jsonl"
    rows: list[dict[str, object]] = [
        {"timestamp": 20 * i, "input_length": 1500 if i % 3 else 60, "output_length": 40, "hash_ids": []}
        for i in range(120)
    ]
    past.write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = ("--last", "30m", "--engines", "1", "--profile", "tiny-emulated", "--json")
    done = ran(HMAS, "whatif", str(past), *question, "--topology", NAME, "--topology", "fcfs", cwd=tmp_path, site=site)
    assert done.stdout, done.stderr
    mine, arrival = json.loads(done.stdout)["candidates"]
    assert (mine["policy"]["topology"], arrival["policy"]["topology"]) == (NAME, "fcfs")
    assert mine["figures"]["requests"] == len(rows)
    assert mine["figures"]["ttft_p50_s"] < arrival["figures"]["ttft_p50_s"], "short prompts go first"
