"""Workloads with the text of labelled prompts: held apart from perception's training, and as long as they say."""

import gzip
import json
import os
from pathlib import Path
from random import Random

import pytest

from hmas.contracts.request import TaskType
from hmas.perception.backends.model import ModelBackend
from hmas_lab.answered import FACTOR, AnsweredPrompt, AnsweredPrompts, answered
from hmas_lab.labelled import SPLIT_SEED
from hmas_lab.perception.training.corpus import prompt_files, read_prompts, split
from hmas_lab.sim.experiment import Experiment
from hmas_lab.sim.sources import WorkloadSpec, build

LENGTHS = (3, 5, 9, 20, 50, 100, 200, 400, 800, 1600, 3200)
TYPES = ("QA", "Dialogue", "EssayGeneration")


def _row(number: int, **fields: object) -> dict[str, object]:
    return {
        "prompt_id": f"id-{number}", "prompt": f"Question {number}?", "prompt_tokens": 5 + number % 90, "source": "s",
        "task_type": TYPES[number % 3], "response": "yes", "response_tokens": LENGTHS[number % 11],
        "response_model": "gpt", **fields,
    }  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Labelled prompts, some of which have two ids, reference answers or no type."""
    rows = [_row(i) for i in range(600)]
    rows += [_row(i, prompt_id=f"other-{i}") for i in range(0, 600, 5)]
    rows += [_row(i, response_model="human") for i in range(600, 700)] + [_row(700, task_type=None)]
    (tmp_path / "prompts").mkdir()
    with gzip.open(tmp_path / "prompts" / "QA.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    lines = [f"{i * 0.1},{10 + i},{1 + 7 * i % 3000}" for i in range(500)]
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    hashed = [
        {"timestamp": 100 * i, "input_length": 1024, "output_length": 20 + i, "hash_ids": [1, i]} for i in range(300)
    ]
    (tmp_path / "hashed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hashed))
    return tmp_path


def _specs(data: Path) -> list[WorkloadSpec]:
    files = [str(data / name) for name in ("trace.csv", "hashed.jsonl")]
    specs = [WorkloadSpec(kind="trace", duration_s=30.0, file=file, tenants=()) for file in files]
    return [spec.labelled(data) for spec in [*specs, WorkloadSpec(kind="semantic", duration_s=30.0)]]


def _drawn(specs: list[WorkloadSpec]) -> set[str]:
    return {r.prompt for spec in specs for r in build(spec, 9.0, 1, prompts=True).requests}


def test_no_prompt_that_perception_was_trained_or_calibrated_on_is_drawn(data: Path) -> None:
    """The parts are those of the training itself, by the seed that the artefact was trained with."""
    seed = ModelBackend().metadata["recipe"]["seed"]
    assert seed == SPLIT_SEED
    parts = split(read_prompts(prompt_files(data)), seed)
    drawn = _drawn(_specs(data))
    assert len(drawn & {prompt.text for prompt in parts["test"]}) > 30
    assert not drawn & {prompt.text for prompt in [*parts["train"], *parts["validation"]]}


@pytest.mark.skipif("HMAS_DATA" not in os.environ, reason="needs the labelled prompts")
def test_no_labelled_prompt_at_hand_is_drawn_that_was_trained_on() -> None:
    parts = split(read_prompts(prompt_files(Path(os.environ["HMAS_DATA"]))), SPLIT_SEED)
    pairs = answered(Path(os.environ["HMAS_DATA"]) / "prompts")
    assert len(pairs) > 1000
    assert {(p.group, p.text) for p in pairs} <= {(p.group, p.text) for p in parts["test"]}
    assert not {p.text for p in pairs} & {p.text for p in [*parts["train"], *parts["validation"]]}


def test_the_lengths_of_the_trace_stay_and_those_of_the_pairs_are_near(data: Path) -> None:
    lengths: dict[str, set[int]] = {}
    for pair in answered(data / "prompts"):
        lengths.setdefault(pair.text, set()).add(pair.output_tokens)
    for spec in _specs(data):
        with_text = build(spec, 9.0, 1, prompts=True).requests
        assert [r.output_tokens for r in with_text] == [
            r.output_tokens for r in build(spec.labelled(None), 9.0, 1).requests
        ]
        found = [r for r in with_text if r.prompt in lengths]
        assert len(found) > 0.2 * len(with_text)
        for r in found:
            assert min(max(n / r.output_tokens, r.output_tokens / n) for n in lengths[r.prompt]) <= FACTOR


def test_rows_of_a_trace_without_types_get_those_of_their_prompts_and_rows_with_hash_ids_have_words(
    data: Path,
) -> None:
    types = {pair.text: pair.task for pair in answered(data / "prompts")}
    for spec in _specs(data):
        requests = build(spec, 9.0, 1, prompts=True).requests
        assert all(r.task is types.get(r.prompt, r.task) for r in requests)
        assert [(r.task, r.slo) for r in requests] == [(r.task, r.slo) for r in build(spec, 9.0, 1).requests]
    hashed = build(_specs(data)[1].labelled(None), 9.0, 1, prompts=True).requests
    assert all(r.prefix_hashes and max(map(len, r.prompt.split())) > 3 for r in hashed)


def test_every_prompt_has_the_same_chance_and_the_nearest_in_length_are_drawn() -> None:
    task = TaskType.QA
    many = [AnsweredPrompt("many", task, "many", 10, n) for n in range(90, 111)]
    few = [AnsweredPrompt(f"few-{i}", task, f"few-{i}", 10, 100) for i in range(3)]
    far = [AnsweredPrompt("far", task, "far", 10, 100 * 2), AnsweredPrompt("long", task, "long", 9000, 100)]
    pairs = AnsweredPrompts([*many, *few, *far, *[AnsweredPrompt(f"x-{i}", task, "x", 11, 100) for i in range(4)]])
    draw = Random(1)
    drawn = [pairs.draw(100, 10, None, draw) for _ in range(800)]
    groups = [pair.group for pair in drawn if pair]
    assert len(groups) == 800
    assert 60 < groups.count("many") < 140
    assert set(groups) == {"many", "few-0", "few-1", "few-2", "x-0", "x-1", "x-2", "x-3"}
    assert pairs.draw(1000, 10, None, draw) is None
    assert pairs.draw(100, 10, TaskType.DIALOGUE, draw) is None


def test_traces_and_the_semantic_drift_take_labelled_prompts_where_there_are_any(data: Path) -> None:
    kinds = (WorkloadSpec(kind="mix"), WorkloadSpec(kind="semantic"), WorkloadSpec(kind="trace", file="trace.csv"))
    experiment = Experiment(
        name="n", title="t", page="p", profile="tiny-emulated", engines=1, workloads=kinds, systems=("hmas",),
        rate_rps=1.0,
    )  # fmt: skip
    found = experiment.within(data).workloads
    assert [bool(w.prompts) for w in found] == [False, True, True]
    assert [w.prompts for w in experiment.within(None).workloads] == ["", ""]
