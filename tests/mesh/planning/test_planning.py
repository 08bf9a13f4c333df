"""`hmas plan`: which past requests count, what it prints and writes, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmas.contracts.pool_plan import Catalogue, Group, InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.mesh.planning.cli import app
from hmas.runtime.catalogue_file import render_catalogue
from hmas.runtime.plan_file import parse_plan

ONE = InstanceType(
    name="m-tp1", model="m", hardware="h100", gpus=1, step=StepCostModel(0.01, 1e-5, 1e-5, 1e-8), kv_tokens=65536
)  # fmt: skip
TWO = replace(ONE, name="m-tp2", gpus=2, step=StepCostModel(0.006, 6e-6, 8e-6, 6e-9))
CATALOGUE = Catalogue((ONE, TWO))


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
