from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("catboost")

from hmas.prediction.evaluation import per_request
from hmas.prediction.training.measurements import LLM_PILOT, Measurements


def test_without_its_models_it_says_where_they_are(tmp_path: Path) -> None:
    one = np.ones(1)
    rows = Measurements(
        inputs=np.ones((1, 20), np.float32),
        prefill_s=one,
        tpot_s=one,
        output_tokens=one,
        configuration=one.astype(object),
        model=one.astype(object),
        source=LLM_PILOT,
    )
    with pytest.raises(FileNotFoundError, match=r"throughput\.cbm does not exist: run this in a clone"):
        per_request(rows, tmp_path)
