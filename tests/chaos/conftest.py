"""A mesh for the chaos suite; controls are short-lived, so that their expiry can be seen. With HMAS_SOAK=n every test
runs n times, each under load for longer (`test_kills.AFTER_S`), all against one mesh."""

import os
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rounds = int(os.environ.get("HMAS_SOAK", "1"))
    if rounds > 1:
        metafunc.fixturenames.append("round")
        metafunc.parametrize("round", range(rounds), scope="session")


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    env = {"HMAS_TOPOLOGY_VALID_FOR_S": "3", "HMAS_TUPLE_VALID_FOR_S": "3", "HMAS_DRAIN_GRACE_S": "8"}
    with start_mesh(tmp_path_factory.mktemp("chaos"), "--replay", env=env) as running:
        yield running
