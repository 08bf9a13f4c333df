import gzip
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from hmas.contracts.request import TaskType
from hmas_lab.labelled import part_of
from hmas_lab.perception.training.corpus import (
    Passage,
    checksum,
    prompt_files,
    read_prompts,
    read_turns,
    split,
    workflow_files,
)
from hmas_lab.perception.training.phrases import PhraseBook

PASSAGE = "The committee met on Monday. It discussed the new budget at length. Nothing was decided in the end."


def row(prompt: str, **fields: object) -> dict[str, object]:
    return {
        "prompt_id": prompt[:4], "prompt": prompt, "prompt_tokens": 5, "source": "s", "task_type": "QA",
        "response": "yes", "response_tokens": 7, "response_model": "gpt", **fields,
    }  # fmt: skip


def write(folder: Path, rows: list[dict[str, object]]) -> Path:
    file = folder / "QA.jsonl.gz"
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(r) + "\n" for r in rows)
    return file


def test_rows_of_one_prompt_become_one_with_the_models_answers_only(tmp_path: Path) -> None:
    rows = [row("why?"), row("why?", response_model="human"), row("why?", response_model=None, response_tokens=None)]
    rows += [row("why?", response_model="llama", response_tokens=9), row("how?", task_type=None)]
    why, how = read_prompts([write(tmp_path, rows)])
    assert [(a.model, a.tokens) for a in why.answers] == [("gpt", 7), ("llama", 9)]
    assert why.task is TaskType.QA
    assert how.task is None


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, [row("why?"), {"prompt": "x"}])
    with pytest.raises(ValueError, match=r"QA\.jsonl\.gz:2: not a prompt row"):
        read_prompts([file])


def test_prompt_files_of_either_folder(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    file = write(tmp_path / "prompts", [row("why?")])
    assert prompt_files(tmp_path) == prompt_files(tmp_path / "prompts") == [file]
    assert checksum([file]) == checksum([file])
    with pytest.raises(FileNotFoundError, match="no \\*"):
        prompt_files(tmp_path / "none")


def test_a_split_never_cuts_a_prompt_id_and_has_its_shares() -> None:
    parts = [part_of(str(n), 0) for n in range(20_000)]
    assert abs(parts.count("test") / 20_000 - 0.2) < 0.01
    assert abs(parts.count("validation") / 20_000 - 0.1) < 0.01
    assert [part_of(str(n), 0) for n in range(100)] == parts[:100]


def test_texts_of_one_id_stay_together(tmp_path: Path) -> None:
    rows = [row(f"turn {n}", prompt_id=f"d{n % 7}") for n in range(70)]
    parts = split(read_prompts([write(tmp_path, rows)]), 0)
    seen = [{p.group for p in prompts} for prompts in parts.values()]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 7


def test_phrases_cover_every_type_leave_no_slot_and_follow_the_seed() -> None:
    drawn = PhraseBook([Passage(PASSAGE, "books")], random.Random(3)).draw(60)
    assert {p.task for p in drawn} == set(TaskType) - {TaskType.UNKNOWN}
    assert not [p.text for p in drawn if "{text}" in p.text or "{topic}" in p.text or "{short_text}" in p.text]
    assert all(p.source == "synthetic" and all(a.model == "" and a.tokens >= 1 for a in p.answers) for p in drawn)
    assert 0 < sum(bool(p.answers) for p in drawn) < len(drawn) / 4
    assert drawn == PhraseBook([Passage(PASSAGE, "books")], random.Random(3)).draw(60)
    assert {p.made_of for p in drawn} == {frozenset(), frozenset({"books"})}
    assert all(PASSAGE[:20] not in p.text for p in drawn if not p.made_of)
    assert len({p.text for p in drawn}) > 0.8 * len(drawn)


def workflow(name: str, *steps: Mapping[str, object], **fields: object) -> dict[str, object]:
    whole = [{"truncated": False, **step} for step in steps]
    return {"workflow_id": name, "source": "w", "tools": ["a"], "question": None, "meta": {}, "steps": whole, **fields}


def test_turns_tell_whether_the_agent_called_a_tool(tmp_path: Path) -> None:
    user, call = {"role": "user", "content": "book it"}, {"role": "assistant", "content": "book()", "gold": True}
    rows = [
        workflow("1", user, call, {"role": "user", "content": "thanks"}, {"role": "assistant", "content": "welcome"}),
        workflow("2", {"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{}]}),
        workflow(
            "3", {"role": "user", "content": "wha", "truncated": True}, {"role": "tool", "content": "x"},
            question="what is it?",
        ),
        workflow("4", {"role": "user", "content": "no tools"}, call, tools=None),
        workflow("5-0", {"role": "user", "content": "a"}, call, meta={"task_id": 7}),
        workflow("5-1", {"role": "user", "content": "b"}, call, meta={"task_id": 7}),
    ]  # fmt: skip
    (tmp_path / "agentic").mkdir()
    write(tmp_path / "agentic", rows)
    turns = read_turns(workflow_files(tmp_path))
    told = {turn.text: turn.calls_tool for turn in turns}
    assert told == {"book it": True, "thanks": False, "hi": True, "what is it?": True, "a": True, "b": True}
    assert len({turn.group for turn in turns if turn.text in "ab"}) == 1
    assert workflow_files(tmp_path / "agentic") == []


def test_a_bad_workflow_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"QA\.jsonl\.gz:1: not a workflow"):
        read_turns([write(tmp_path, [row("why?")])])


def test_a_prompt_knows_whether_its_answer_is_a_call(tmp_path: Path) -> None:
    rows = [row("plot it", response_model="gold tool calls"), row("why?"), row("how?", response_model="human")]
    assert [prompt.calls_tool for prompt in read_prompts([write(tmp_path, rows)])] == [True, False, None]


@pytest.mark.skipif("HMAS_DATA" not in os.environ, reason="needs the labelled prompts")
def test_every_recorded_file_of_prompts_is_read() -> None:
    files = prompt_files(Path(os.environ["HMAS_DATA"]) / "prompts")
    assert len(files) > 10
    for file in files:
        assert read_prompts([file]), file.name
