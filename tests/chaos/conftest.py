"""A mesh for the chaos suite; controls are short-lived, so that their expiry can be seen."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    env = {"HMAS_TOPOLOGY_VALID_FOR_S": "3", "HMAS_TUPLE_VALID_FOR_S": "3", "HMAS_DRAIN_GRACE_S": "8"}
    with start_mesh(tmp_path_factory.mktemp("chaos"), "--replay", env=env) as running:
        yield running
