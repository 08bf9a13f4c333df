"""`hmas eval prediction`, as it is typed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmas_lab.prediction.cli import evaluate


def test_a_folder_without_measurements_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("catboost")
    done = CliRunner().invoke(evaluate, ["--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "no *.csv or *.csv.gz" in done.output
