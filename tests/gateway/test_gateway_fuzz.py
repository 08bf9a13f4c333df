"""Hostile HTTP against a gateway in this process, in short; `tests/chaos/test_http_fuzz.py` has the long form."""

import logging

import pytest

from hmas.gateway.agent.config import GatewayConfig
from tests.gateway.gateway_harness import CHAT, PATH, PLAIN, client, gateway
from tests.gateway.http_fuzz import Fuzzer

NUMBER = 1500


@pytest.mark.parametrize("seed", [1, 2])
async def test_hostile_requests_get_errors_and_leave_nothing_behind(
    seed: int, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway(agent=GatewayConfig(gateway="g", patience_s=0.2)) as g, client(g) as c:
        fuzzer = Fuzzer(g.port, seed, patience_s=0.1)
        with caplog.at_level(logging.ERROR):
            await fuzzer.run(NUMBER, width=32)
        with capsys.disabled():
            print(f"\nanswers by status: {dict(sorted(fuzzer.statuses.items()))}", end=" ")
        assert not fuzzer.faults, "\n".join(fuzzer.faults)
        assert {200, 400, 404, 405} <= fuzzer.statuses.keys()
        await g.until(lambda: g.shell.live == 0)
        assert (await c.post(PATH, json=CHAT)).content == PLAIN
    assert "Traceback" not in capsys.readouterr().out + caplog.text
