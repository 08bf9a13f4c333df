"""`hmas plan`: which past requests count, what it prints and writes, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmas.contracts.outcome import Outcome
from hmas.contracts.pool_plan import Catalogue, Group, InstanceType
from hmas.contracts.request import Slo
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.placement.demand import SampledRequest
from hmas.laws.placement.past_demand import demand_in
from hmas.laws.request_rows import RequestRow
from hmas.mesh.planning.cli import app
from hmas.runtime.catalogue_file import render_catalogue
from hmas.runtime.plan_file import parse_plan

ONE = InstanceType(
    name="m-tp1", model="m", hardware="h100", gpus=1, step=StepCostModel(0.01, 1e-5, 1e-5, 1e-8), kv_tokens=65536
)  # fmt: skip
TWO = replace(ONE, name="m-tp2", gpus=2, step=StepCostModel(0.006, 6e-6, 8e-6, 6e-9))
CATALOGUE = Catalogue((ONE, TWO))
ROW = RequestRow(
    arrival_s=-1.0, tenant="t", prompt_tokens=100, slo=Slo(2.0, 0.05), outcome=Outcome.FINISHED, output_tokens=20,
    predicted_output_tokens=33.4,
)  # fmt: skip


def sampled(*rows: RequestRow, window_s: float = 60.0) -> tuple[SampledRequest, ...]:
    return demand_in(rows, "p", "m", window_s).requests


def test_the_last_seconds_count_from_their_own_beginning() -> None:
    rows = [replace(ROW, arrival_s=at_s) for at_s in (-100.0, -60.5, -60.0, -0.5)]
    found = demand_in(rows, "p", "m", 60.0)
    assert [each.arrival_s for each in found.requests] == [0.0, 0.5, 60.0]
    assert (found.pool, found.model, found.seconds) == ("p", "m", 60.0)
    assert demand_in(rows, "p", "m", 600.0).seconds == 99.5


@pytest.mark.parametrize(
    ("outcome", "tokens", "expected"),
    [
        (Outcome.FINISHED, 20, 20),
        (None, 20, 20),  # of a trace
        (None, 0, 33),  # it has not ended
        (Outcome.CANCELLED, 20, 33),
    ],
)
def test_a_request_that_has_not_ended_has_its_predicted_length(
    outcome: Outcome | None, tokens: int, expected: int
) -> None:
    (found,) = sampled(replace(ROW, outcome=outcome, output_tokens=tokens))
    assert found == SampledRequest(0.0, 100, expected, 2.0, 0.05)


def test_what_is_judged_whole_has_what_is_left_for_its_tokens() -> None:
    (found,) = sampled(replace(ROW, slo=Slo(2.0, 0.05, 4.0, whole=True)))
    assert found.tpot_slo_s == pytest.approx(0.1)


def test_what_has_no_length_or_no_time_is_left_out() -> None:
    unknown = replace(ROW, output_tokens=0, predicted_output_tokens=0.0)
    hopeless = replace(ROW, slo=Slo(2.0, 0.05, 1.0, whole=True))
    assert len(sampled(unknown, hopeless, replace(ROW, prompt_tokens=0), ROW)) == 1
    with pytest.raises(ValueError, match="the record of p has no request with a known length"):
        sampled(unknown, hopeless)
    with pytest.raises(ValueError, match="no request"):
        sampled()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A trace of the model, and a catalogue of its types."""
    trace, catalogue = tmp_path / "trace.jsonl", tmp_path / "catalogue.yaml"
    rows = [{"timestamp": 500 * i, "input_length": 200, "output_length": 50, "hash_ids": []} for i in range(40)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    catalogue.write_text(render_catalogue(CATALOGUE))
    return str(trace), str(catalogue)


def called(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, args)
    return result.exit_code, " ".join(result.output.split())


def test_a_plan_is_printed_and_written(files: tuple[str, str], tmp_path: Path) -> None:
    trace, catalogue = files
    out = tmp_path / "folder" / "plan.yaml"
    code, text = called("search", f"m={trace}", "--gpus", "4xH100", "--catalogue", catalogue, "--out", str(out))
    assert code == 0, text
    assert "1 x m-tp1" in text
    assert "One type is enough for each model." in text
    assert "No engines on these cards can keep more than 100.0% on time (0.0% more)." in text
    (found,) = parse_plan(out.read_text(), CATALOGUE)
    assert (found.pool, found.groups) == ("m", (Group("m-tp1", 1),))


@pytest.mark.parametrize(
    ("load", "gpus", "told"),
    [
        ("m", "4xh100", "'m': use MODEL=FILE, such as m=past.jsonl"),
        ("n={}", "4xh100", "the catalogue has no model 'n': it has m"),
        ("m={}", "h100", "--gpus 'h100': use a number of cards and their kind, such as 16xh100"),
        ("m={}", "0xh100", "--gpus '0xh100'"),
        ("m={}", "4xa100", "no"),
    ],
)
def test_what_cannot_be_planned_is_said(files: tuple[str, str], load: str, gpus: str, told: str) -> None:
    code, text = called("search", load.format(files[0]), "--gpus", gpus, "--catalogue", files[1])
    assert code != 0
    assert told in text
