"""`hmas label`: who labels what, with an endpoint, without one, and with one that answers nonsense."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas_lab.label import BATCH, labelled
from hmas_loadgen.traces.native import read_parquet
from hmas_loadgen.traces.row import Trace, TraceRow
from tests.conftest import HMAS
from tests.e2e.test_meta_llm import ScriptedLlm

EXPLICIT = "Translate the following into French: good morning"
VAGUE = "zzz qqq 17"
PROMPTS: tuple[tuple[str | None, TaskType | None], ...] = (
    (EXPLICIT, None), (VAGUE, None), (VAGUE + "!", None), (EXPLICIT, TaskType.QA), (None, None),
)  # fmt: skip
TRACE = Trace(
    name="t",
    rows=tuple(
        TraceRow(arrival_s=float(at), input_tokens=9, output_tokens=40, prompt=prompt, task=task)
        for at, (prompt, task) in enumerate(PROMPTS)
    ),
)


def says(task: str) -> str:
    return json.dumps({"task_type": task, "slo_ttft_ms": 1, "slo_tpot_ms": 1, "output_tokens": 9})


def test_the_model_is_asked_only_where_the_script_is_not_sure() -> None:
    asked: list[str] = []

    def complete(prompts: Sequence[str]) -> list[str | None]:
        asked.extend(prompts)
        return [says("Dialogue"), "no json"]

    made, counts = labelled(TRACE, complete, seed=1)
    assert [VAGUE in prompt for prompt in asked] == [True, True]
    assert not any(EXPLICIT in prompt for prompt in asked)
    tasks = [row.task for row in made.rows]
    assert tasks[:2] == [TaskType.TRANSLATION, TaskType.DIALOGUE]
    assert tasks[3] is TaskType.QA
    assert (counts.kept, counts.script, counts.asked, counts.model, counts.drawn) == (1, 1, 2, 1, 2)
    assert all(task is not None and task is not TaskType.UNKNOWN for task in tasks)
    first = made.rows[0]
    assert first.importance is not None
    assert first.slo == default_slo(TaskType.TRANSLATION, first.importance)
    assert str(counts) in made.note


def test_a_model_without_a_usable_answer_is_not_asked_again() -> None:
    rows = tuple(replace(TRACE.rows[1], arrival_s=float(at), task=TaskType.UNKNOWN) for at in range(2 * BATCH))
    asked: list[str] = []

    def complete(prompts: Sequence[str]) -> list[str | None]:
        asked.extend(prompts)
        return [None] * len(prompts)

    made, counts = labelled(replace(TRACE, rows=rows), complete, seed=1)
    assert len(asked) == BATCH
    assert (counts.kept, counts.asked, counts.drawn) == (0, 2 * BATCH, 2 * BATCH)
    assert TaskType.UNKNOWN not in {row.task for row in made.rows}


def hmas_label(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    source = tmp_path / "trace.csv"
    source.write_text(
        "arrival_s,input_tokens,output_tokens,prompt\n"
        + "".join(f'{at},9,40,"{prompt or ""}"\n' for at, (prompt, _) in enumerate(PROMPTS))
    )
    command = [HMAS, "label", str(source), str(tmp_path / "out.parquet"), *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"COLUMNS": "200"}
    )


@pytest.mark.parametrize(("answer", "by_model"), [(says("Dialogue"), 2), ("nonsense", 0)])
def test_an_endpoint_labels_what_is_left(tmp_path: Path, answer: str, by_model: int) -> None:
    llm = ScriptedLlm()
    llm.content = answer
    try:
        done = hmas_label(tmp_path, "--llm-url", llm.url, "--llm-model", "llm")
    finally:
        llm.close()
    assert done.returncode == 0, done.stderr
    assert f"{by_model} by the model" in done.stderr
    assert ("answered nothing that could be used" in done.stderr) is (by_model == 0)
    assert llm.asked == 2
    rows = read_parquet(tmp_path / "out.parquet").rows
    assert rows[0].task is TaskType.TRANSLATION
    assert sum(row.task is TaskType.DIALOGUE for row in rows[1:3]) >= by_model
    assert all(row.slo and row.importance for row in rows)


@pytest.mark.parametrize(
    ("args", "told"), [(("--llm-url", "http://h"), "belong together"), (("--llm-model", "m"), "belong together")]
)
def test_half_an_endpoint_is_refused(tmp_path: Path, args: tuple[str, ...], told: str) -> None:
    done = hmas_label(tmp_path, *args)
    assert done.returncode == 1
    assert told in done.stderr


def test_a_trace_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("arrival_s,input_tokens,output_tokens\n0,9,40\n")
    done = subprocess.run(
        [HMAS, "label", str(tmp_path / "plain.csv"), str(tmp_path / "o.parquet")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "has no prompts to label" in done.stderr
