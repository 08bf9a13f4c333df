"""Engine profiles by name and by file, and what of a file a simulated cell depends on."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hmas.engine.named import named_profile
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.cli import app
from hmas_lab.sim.sources import WorkloadSpec

MINE = {"mine": {"cost": {"c0_s": 0.01, "c_p_s": 1e-4, "c_d_s": 1e-3, "c_k_s": 0.0}, "limits": {"max_num_seqs": 8}}}


def test_a_name_or_a_file_names_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(MINE))
    assert named_profile("tiny-emulated").name == "tiny-emulated"
    assert named_profile(str(file)).limits.max_num_seqs == 8
    for text in ("", "mine: 1", "{}"):
        file.write_text(text)
        with pytest.raises(ValueError, match="hmas calibrate"):
            named_profile(str(file))
    with pytest.raises(ValueError, match="hmas calibrate"):
        named_profile(str(tmp_path / "none.yaml"))
    with pytest.raises(ValueError, match="choose one of"):
        named_profile("none")


def test_a_cell_is_kept_under_what_its_profile_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(MINE))
    cell = Cell(kind="capacity", profile=str(file), engines=1, workload=WorkloadSpec(kind="mix", duration_s=10.0))
    before = cell.key()
    assert before == cell.key()
    file.write_text(yaml.safe_dump({"mine": {**MINE["mine"], "limits": {"max_num_seqs": 9}}}))
    assert cell.key() != before


def test_hmas_sim_runs_engines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(MINE))
    found = CliRunner().invoke(app, ["capacity", "--profile", str(file), "--engines", "1"])
    assert found.exit_code == 0, found.output
    twice = CliRunner().invoke(app, ["capacity", "--profile", str(file), "--engines", "2"])
    rates = [float(each.output.partition("= ")[2].split()[0]) for each in (found, twice)]
    assert rates[0] < rates[1]
    refused = CliRunner().invoke(app, ["run", "--profile", "none.yaml"])
    assert refused.exit_code == 2
