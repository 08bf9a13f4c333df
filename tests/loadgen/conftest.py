"""A load keeps the garbage collector from what was there before it, and lets go of it at its end."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """So that later tests have no full collection over all that the session imported (`tests/conftest.py`)."""
    yield
    gc.freeze()
