"""docs/benchmarks.md names, for each page of figures, a commit that a reader can look up."""

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FIRST = "cd02252e9135"  # this project's first commit; where it is not, as in a shallow clone, there is no history


def is_known(commit: str) -> bool:
    asked = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True).returncode == 0


def test_each_commit_is_in_the_history() -> None:
    if not is_known(FIRST):
        pytest.skip("a checkout without its history")
    records = yaml.safe_load((ROOT / "docs/benchmarks.yaml").read_text(encoding="utf-8"))
    unknown = {name: record["commit"] for name, record in records.items() if not is_known(record["commit"])}
    assert not unknown, "name the commits that brought these pages: git log -1 --format=%h -- docs/results/NAME.md"
