"""Real engines for the suite, or a skip that says why there are none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.engines import sglang_environment
from tests.engines.environment import EngineEnvironment, Unavailable, ready
from tests.engines.sglang_environment import SglangEnvironment
from tests.engines.sglang_server import SglangServer
from tests.engines.vllm_server import VllmServer


@contextmanager
def started(*servers: VllmServer | SglangServer) -> Iterator[None]:
    """All at the same time, because a start takes long and keeps one core busy."""
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_healthy()
        yield
    finally:
        for server in servers:
            server.kill()


@pytest.fixture(scope="session")
def environment() -> EngineEnvironment:
    try:
        return ready()
    except Unavailable as reason:
        pytest.skip(f"real vLLM cannot be had here: {reason}")


@pytest.fixture(scope="session")
def vllm(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(environment, tmp_path_factory.mktemp("vllm"))
    with started(server):
        yield server


@pytest.fixture(scope="session")
def real_sglang() -> SglangEnvironment:
    try:
        return sglang_environment.ready()
    except Unavailable as reason:
        pytest.skip(f"real SGLang cannot be had here: {reason}")


@pytest.fixture(scope="session")
def sglang(real_sglang: SglangEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SglangServer]:
    server = SglangServer(real_sglang, tmp_path_factory.mktemp("sglang"))
    with started(server):
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not be installed was not tested: in red, wherever the log goes."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = {report.longrepr[2] for report in skipped if "cannot be had here" in str(report.longrepr)}
    for reason in sorted(reasons):
        terminalreporter.write_line(f"\033[1;31mNOT TESTED: {reason.removeprefix('Skipped: ')}\033[0m")
