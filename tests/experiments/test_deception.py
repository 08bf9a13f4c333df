"""Deception and drift: the arms differ in the text alone, and the page says what the runs say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from experiments.deception import (
    ARMS,
    DECEIVER,
    ENGINES,
    FOREIGN,
    FROM_S,
    LONGER,
    SCENARIOS,
    WINDOW,
    Corrections,
    DeceptionRun,
    Halved,
    RememberingBackend,
    WatchedMesh,
    engine,
    halved,
    misled,
    offered,
    read,
)
from experiments.pages.template import render
from experiments.report.deception import STUDY, page_of, rows_of
from experiments.writer import put
from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.sim.setup import MeshSetup
from hmas_loadgen.slo import TASKS

RATE_RPS, SECONDS = 4.0, 90.0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_arms_differ_in_the_misled_text_alone(scenario) -> None:  # type: ignore[no-untyped-def]
    misleading, control, told = (
        offered(scenario, arm, RATE_RPS, 1, SECONDS).requests for arm in ("misled", "control", "told")
    )
    assert told == misleading
    assert [replace(r, prompt="") for r in misleading] == [replace(r, prompt="") for r in control]
    changed = [a.id for a, b in zip(misleading, control, strict=True) if a.prompt != b.prompt]
    expected = [r.id for r in control if misled(scenario, r)]
    assert 10 < len(expected) < len(control)
    assert changed == ([] if scenario.all_tenants else expected)
    assert all(r.request.arrival_s >= FROM_S for r in control if misled(scenario, r))
    if not scenario.all_tenants:
        assert {r.request.tenant for r in control if misled(scenario, r)} == {DECEIVER}


def test_answers_are_those_that_the_scenarios_say() -> None:
    essays, words, *_, model = (offered(s, "misled", RATE_RPS, 1, SECONDS).requests for s in SCENARIOS)
    plain = {r.id: r for r in offered(SCENARIOS[2], "control", RATE_RPS, 1, SECONDS).requests}
    assert all(r.task is TaskType.ESSAY_GENERATION for r in essays if misled(SCENARIOS[0], r))
    assert all(r.prompt.startswith("Answer in one word") for r in essays if misled(SCENARIOS[0], r))
    assert all(1 <= r.output_tokens <= 8 for r in words if misled(SCENARIOS[1], r))
    for r in model:
        factor = LONGER if misled(SCENARIOS[-1], r) else 1.0
        assert r.output_tokens == round(factor * plain[r.id].output_tokens)


class _Tens:
    version = "tens-1"

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        return [Estimate(TaskType.QA, 0.9, 10.0, 20.0)] * len(prompts)


def test_the_control_of_a_new_model_knows_its_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.deception._backend", lambda: RememberingBackend(_Tens()))
    scenario = SCENARIOS[-1]
    for arm, factor in zip(ARMS, (LONGER, 1.0, 1.0), strict=False):
        requests = read(scenario, arm, offered(scenario, arm, RATE_RPS, 1, SECONDS)).requests
        assert {r.recorded[2] for r in requests if r.recorded and misled(scenario, r)} == {factor * 10.0}
        assert {r.recorded[2] for r in requests if r.recorded and not misled(scenario, r)} == {10.0}


def test_perfect_knowledge_of_the_misled_requests_is_of_these_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.deception._backend", lambda: RememberingBackend(_Tens()))
    for scenario in SCENARIOS:
        for r in read(scenario, "known", offered(scenario, "known", RATE_RPS, 1, SECONDS)).requests:
            assert r.recorded is not None
            task, _, tokens, _ = r.recorded
            assert (task, tokens) == ((r.task, r.output_tokens) if misled(scenario, r) else (TaskType.QA, 10.0))


def test_each_type_has_a_request_in_another_language() -> None:
    assert set(FOREIGN) == set(TASKS)
    texts = {
        SCENARIOS[2].misleading(r, Random(1)) for r in offered(SCENARIOS[2], "control", RATE_RPS, 1, SECONDS).requests
    }
    assert len(texts) > 20
    assert not any("{" in text for text in texts)


def _run(raw: float, corrected: list[float], others: float = 0.8) -> DeceptionRun:
    n = len(corrected)
    times = tuple(float(i) for i in range(n))
    return DeceptionRun(
        raw=(9.0,) * n,
        frozen=(raw,) * n,
        corrected=tuple(corrected),
        settled_s=times,
        later=0.1,
        own=0.5,
        others=others,
        cpu_s=1.0,
        bounds={},
    )


def test_an_oracle_learns_each_length_at_its_grant() -> None:
    workload = offered(SCENARIOS[0], "control", RATE_RPS, 1, 40.0)
    mesh = WatchedMesh(MeshSetup(estimator="perfect"), engine(), ENGINES, workload, 1)
    mesh.tell_lengths()
    mesh.heap.at(10.0, _stop)
    with pytest.raises(StopIteration):
        mesh.run()
    bias = mesh.workers["w0"].agent._state.length_bias  # type: ignore[attr-defined]
    errors = [error for cell in bias._cells.values() for error in cell.errors.values()]
    assert errors
    assert all(isinstance(error, float) and abs(error) < 0.01 for error in errors)


def _stop() -> None:
    raise StopIteration


def test_the_error_is_halved_when_the_mean_of_the_window_is() -> None:
    falling = [2.0] * 30 + [0.0] * 30
    assert halved(_run(2.0, falling)) == Halved(30 + WINDOW // 2, 30.0 + WINDOW // 2 - 1)
    assert halved(_run(2.0, [2.0] * 60)) == Halved(None, None)
    assert halved(_run(-2.0, [x * -1 for x in falling])) == halved(_run(2.0, falling))
    assert halved(_run(0.1, falling)) is None
    crossing = [3.0 - 9.0 * i / 59 for i in range(60)]  # from far too little to far too much
    assert halved(_run(2.0, crossing)) == Halved(None, None)


def test_what_the_correction_had_learnt_before_is_of_the_tenant_and_type_where_it_can_be() -> None:
    qa, essay = TaskType.QA, TaskType.ESSAY_GENERATION
    before = Corrections([("a", qa, 0.5), ("a", qa, 0.7), ("a", essay, 3.0), ("b", qa, 2.0)])
    assert before.factor("a", qa) == pytest.approx(0.6)
    assert before.factor("a", TaskType.DIALOGUE) == pytest.approx(0.7)
    assert before.factor("c", qa) == pytest.approx(1.35)
    assert Corrections([]).factor("a", qa) == 1.0


def test_the_page_says_what_the_runs_say(tmp_path: Path) -> None:
    good, bad = [1.0] * 20 + [0.1] * 20, [1.0] * 40
    found = {
        "lies": {
            "capacity": {"rate_rps": 3.0, "cpu_s": 1.0},
            "control": [_run(0.0, good, 0.80), _run(0.0, good, 0.82)],
            "misled": [_run(1.0, good, 0.80), _run(1.0, good, 0.82)],
            "told": [_run(1.0, good, 0.80), _run(1.0, good, 0.82)],
            "known": [_run(1.0, good, 0.79), _run(1.0, good, 0.81)],
        },
        "drifts": {
            "capacity": {"rate_rps": 3.0, "cpu_s": 1.0},
            "control": [_run(0.0, bad, 0.80), _run(0.0, bad, 0.82)],
            "misled": [_run(1.0, bad, 0.70), _run(1.0, bad, 0.72)],
            "told": [_run(1.0, good, 0.78), _run(1.0, good, 0.80)],
            "known": [_run(1.0, good, 0.81), _run(1.0, good, 0.83)],
        },
    }
    rows = rows_of(found)
    text = render(STUDY.page, **page_of(rows, found, 60.0))
    (facts,) = put({"deception.json": [STUDY.plain(row) for row in rows]}, tmp_path, STUDY.name)
    assert "- lies: the error was halved after 32 settled requests (31 s). The other tenants change by +0.0" in text
    assert "- drifts: the correction **never halved** the error. The other tenants change by -10.0" in text
    assert "within 2: **not met** (against perfect knowledge of the misled requests -11.0 ± 0.0" in text
    assert "- drifts: -10.0 ± 0.0 points, and -2.0 ± 0.0 where the correction is told" in text
    assert "late news of lengths costs them 8.0 points" in text
    assert "- lies: +0.0 ± 0.0 points, and" not in text
    assert '"halved_after": null' in facts.read_text()
