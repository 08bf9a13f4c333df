"""The official clients against a mesh of emulated engines, in the cases that real vLLM passes too."""

from typing import Any

import pytest

from tests.clients.cases import GENERATING, POOLING, Case, Clients

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("case", [*GENERATING, *POOLING], ids=lambda case: case.__name__)
async def test_a_clients_case(case: Case, mesh: Any) -> None:
    async with Clients(mesh.url, "emulated") as clients:
        await clients.passes(case)
