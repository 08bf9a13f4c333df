"""Load generators of others run against the mesh unchanged, and count the tokens that it sends."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.house.repository import ROOT

pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]
REQUESTS, TOKENS = 20, 12
TOKENIZER = ROOT / "services" / "hmas" / "perception" / "artefacts" / "tokenizer.json"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A tokenizer as a folder, which needs no network: both programs count with one of their user's."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    shutil.copy(TOKENIZER, folder)
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def run(folder: Path, *command: str | Path, **env: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]


def test_guidellm(mesh: Any, installed: Callable[[str], Path], tokenizer: Path, tmp_path: Path) -> None:
    prompts, page = tmp_path / "prompts.jsonl", tmp_path / "page.json"
    rows = [{"prompt": f"Tell me story {n} of a harbour.", "output_tokens_count": TOKENS} for n in range(2 * REQUESTS)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(
        tmp_path, installed("guidellm"), "run", "--backend", f"kind=openai_http,target={mesh.url},model=emulated",
        "--profile", "kind=constant,rate=5", "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--data", f"kind=json_file,path={prompts}", "--tokenizer", f"kind=hf_auto,model={tokenizer}",
        "--output", f"kind=json,path={page}", "--disable-console-interactive", HF_HUB_OFFLINE="1",
    )  # fmt: skip
    (benchmark,) = json.loads(page.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0)
    lengths = benchmark["metrics"]["output_token_count"]["successful"]
    assert lengths["mean"] == lengths["max"] == TOKENS


def test_aiperf(mesh: Any, installed: Callable[[str], Path], tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(
        tmp_path, installed("aiperf"), "profile", "--model", "emulated", "--url", mesh.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", tokenizer, "--request-count", str(REQUESTS), "--concurrency", "4",
        "--synthetic-input-tokens-mean", "60", "--output-tokens-mean", str(TOKENS), "--ui", "none",
        "--artifact-dir", out,
    )  # fmt: skip
    page = json.loads((out / "profile_export_aiperf.json").read_text())
    assert page["request_count"]["avg"] == REQUESTS
    assert page["error_summary"] == []
    assert page["time_to_first_token"]["avg"] > 0
    assert page["output_token_count"]["avg"] >= 1
