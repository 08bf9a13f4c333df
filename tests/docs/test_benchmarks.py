"""docs/benchmarks.md names, for each page of figures, a commit that a reader can look up; only the site compares them
with the code at hand."""

import subprocess
from pathlib import Path

import pytest
import yaml

from docs import benchmarks

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


def test_the_committed_page_depends_on_records_and_on_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> str:
        raise AssertionError("each change of code would make the committed page stale")

    monkeypatch.setattr(benchmarks, "source_digest", asked)
    assert benchmarks.benchmarks_page() == (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")


def test_the_site_says_which_figures_are_older_than_the_code() -> None:
    records = yaml.safe_load(benchmarks.RECORDS.read_text(encoding="utf-8"))
    recorded = {record["kind"]: record["code"] for record in records.values()}
    shipping = sum(record["code"] == recorded[record["kind"]] for record in records.values())
    assert benchmarks.benchmarks_page(lambda kind: recorded[kind]).count("| ships |") == shipping > 0
    assert benchmarks.benchmarks_page(lambda _: "another").count("| older |") == len(records)
    assert benchmarks.benchmarks_page(lambda _: "").count("| older |") == len(records)
