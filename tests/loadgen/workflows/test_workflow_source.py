"""Workflows as jobs: recorded ones from a file or folder, and the project's own."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hmas.laws.tokens import estimate_prompt_tokens
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.workflows.applications import APPLICATIONS
from hmas_loadgen.workflows.recorded import workflows_at
from hmas_loadgen.workflows.source import WorkflowSource


def step(role: str, content: str, tokens: int | None = 5) -> dict[str, Any]:
    return {"role": role, "content": content, "tokens": tokens}


CHAT = {
    "workflow_id": "c", "tools": ["look"], "meta": {"system_prompt_ref": "policy"},
    "steps": [step("user", "Hi"), step("assistant", "Hello", 7), step("user", "Book"), step("assistant", "Done", 9)],
}  # fmt: skip
GROUP = {
    "workflow_id": "g", "question": "How many?",
    "steps": [step("Planner", "Count them"), step("Computer_terminal", "3"), step("Counter (thought)", "Three", 4)],
}  # fmt: skip
NO_LENGTHS = CHAT | {"workflow_id": "n", "steps": [step("user", "Hi"), step("assistant", "Hello", None)]}


def folder(path: Path, *records: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "policy.txt").write_text("Be kind.")
    for number, record in enumerate(records):
        text = json.dumps(record) + "\n"
        if number % 2:
            (path / f"w{number}.jsonl").write_text(text)
        else:
            (path / f"w{number}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return path


def test_a_folder_of_recorded_workflows_is_read_by_what_its_files_hold(tmp_path: Path) -> None:
    chat, group = workflows_at(folder(tmp_path / "w", CHAT, GROUP, NO_LENGTHS))
    assert [call.output_tokens for call in chat.calls] == [7, 9]
    assert [m["content"] for m in chat.calls[1].messages] == ["Be kind.", "Hi", "Hello", "Book"]
    assert [call.messages[0]["content"].split(",")[0] for call in group.calls] == [
        "You are Planner", "You are Counter"
    ]  # fmt: skip
    assert group.calls[1].messages[1:][0]["content"] == "How many?"


@pytest.mark.parametrize("text", ["not JSON", '{"steps": []}', '{"workflow_id": "x", "steps": [{"content": "y"}]}'])
def test_a_line_that_is_no_workflow_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(json.dumps(GROUP) + "\n" + text + "\n")
    with pytest.raises(ValueError, match=r"w\.jsonl, line 2"):
        workflows_at(path)


def test_workflows_without_lengths_of_answers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="whose answers of models have their tokens"):
        workflows_at(folder(tmp_path / "w", NO_LENGTHS))
    with pytest.raises(ValueError, match="give typed, or a file"):
        WorkflowSource(workflow=str(tmp_path / "none")).load()


def check(trace: Trace) -> None:
    """The rows of a job follow one another, each waits for earlier ones, and a row's tokens are those of its chat."""
    seen: dict[str, int] = {}
    for row in trace.rows:
        assert row.call is not None
        assert row.call.number == seen.get(row.call.job, 0)
        assert all(number < row.call.number for number in row.call.after)
        assert row.input_tokens == estimate_prompt_tokens(list(row.call.messages))
        assert row.slo is not None
        seen[row.call.job] = row.call.number + 1
    assert [row.arrival_s for row in trace.rows] == sorted(row.arrival_s for row in trace.rows)


def test_recorded_jobs_go_one_call_after_the_other(tmp_path: Path) -> None:
    source = WorkflowSource(
        workflow=str(folder(tmp_path / "w", CHAT, GROUP)), jobs_per_s=1.0, duration_s=10.0, budget_s=9.0
    )
    trace = source.load()
    check(trace)
    assert trace == source.load()
    assert {row.call.template for row in trace.rows if row.call} == {"w0", "w1"}
    assert all(row.call.after == ((row.call.number - 1,) if row.call.number else ()) for row in trace.rows if row.call)
    assert {row.call.budget_s for row in trace.rows if row.call} == {9.0}
    assert all(row.arrival_s < 10.0 for row in trace.rows)


def test_the_projects_own_jobs_need_no_data_and_are_like_the_papers_in_number() -> None:
    trace = WorkflowSource(workflow="typed", jobs_per_s=5.0, duration_s=40.0, tenants={"a": 3.0, "b": 1.0}).load()
    check(trace)
    assert trace == WorkflowSource(workflow="typed", jobs_per_s=5.0, duration_s=40.0, tenants={"a": 3, "b": 1}).load()
    calls = [row.call for row in trace.rows if row.call is not None]
    jobs = {call.job for call in calls}
    assert {call.template for call in calls} <= set(APPLICATIONS)
    assert 2.5 < len(calls) / len(jobs) < 3.7
    assert any(len(call.after) > 1 for call in calls)
    tenants = {row.call.job: row.tenant for row in trace.rows if row.call is not None}
    assert all(row.tenant == tenants[row.call.job] for row in trace.rows if row.call is not None)
    assert 0.6 < sum(tenant == "a" for tenant in tenants.values()) / len(jobs) < 0.9
    first = {call.job: call.messages[1] for call in calls if call.number == 0}
    assert all(call.messages[1] == first[call.job] for call in calls)
    assert len({message["content"] for message in first.values()}) == len(jobs)
