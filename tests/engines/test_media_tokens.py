"""The estimate of images against transformers' own processors of two families."""

import json
import subprocess
from pathlib import Path

import pytest

from hmas.laws.media import image_rule
from tests.engines.environment import EngineEnvironment

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("image_sizes.py")


@pytest.mark.parametrize("family", ["qwen2-vl", "pixtral"])
def test_images_count_as_the_processors_make_them(family: str, environment: EngineEnvironment) -> None:
    command = [str(environment.python), str(SCRIPT)]
    ran = subprocess.run(command, env=environment.env(), check=True, capture_output=True, text=True)
    rows = json.loads(ran.stdout.splitlines()[-1])
    assert len(rows) >= 40
    for row in rows:
        assert image_rule(family)(row["width"], row["height"]) == row[family], row
