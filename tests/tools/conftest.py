"""One mesh with emulated engines for the programs of others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools import environment


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    with start_mesh(tmp_path_factory.mktemp("mesh")) as running:
        yield running


@pytest.fixture(scope="session")
def installed() -> Callable[[str], Path]:
    """Returns a program's path, or skips with the reason why it cannot be had."""

    def find(name: str) -> Path:
        try:
            return environment.program(name)
        except environment.NotInstalled as reason:
            pytest.skip(f"{name} cannot be installed here: {reason}")

    return find
