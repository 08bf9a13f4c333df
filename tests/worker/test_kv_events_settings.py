"""Where a worker is told of KV events: which addresses it follows, and what it says where the packages are missing."""

import subprocess
import sys

import orjson
import pytest

from hmas.engine.__main__ import main as engine
from hmas.runtime.extras import MissingExtra
from hmas.worker.settings import WorkerSettings

MISSING = r"pip install .*\[kv-events\]'"


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ENGINES", "http://a:1,http://[::1]:2/v1")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """An installation without the extra."""
    monkeypatch.setitem(sys.modules, request.param, None)
    for module in [name for name in sys.modules if name.startswith(("hmas.worker.adapters.", "hmas.engine.kv_events"))]:
        monkeypatch.delitem(sys.modules, module)


def test_an_address_may_name_the_engines_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAS_KV_EVENTS", "tcp://{host}:5557")
    monkeypatch.setenv("HMAS_KV_EVENTS_REPLAY", "tcp://{host}:5558")
    one, two = (config.kv_events for config in WorkerSettings().engine_configs())
    assert one is not None
    assert two is not None
    assert (one.url, one.replay_url) == ("tcp://a:5557", "tcp://a:5558")
    assert (two.url, two.replay_url) == ("tcp://[::1]:5557", "tcp://[::1]:5558")


def test_without_an_address_nothing_is_followed_or_imported() -> None:
    assert [config.kv_events for config in WorkerSettings().engine_configs()] == [None, None]
    code = (
        "import sys; import hmas.worker.__main__, hmas.engine.__main__\n"
        "assert not {'zmq', 'msgspec'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@pytest.mark.parametrize("without", ["msgspec"], indirect=True)
@pytest.mark.parametrize("own", [True, False])
def test_a_worker_that_lacks_the_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, without: None, own: bool
) -> None:
    if own:
        engines = [{"url": "http://a:1"}, {"url": "http://b:1", "kv_events": "tcp://b:5557"}]
        monkeypatch.setenv("HMAS_ENGINES", orjson.dumps(engines).decode())
    else:
        monkeypatch.setenv("HMAS_KV_EVENTS", "tcp://{host}:5557")
    with pytest.raises(MissingExtra, match=MISSING):
        WorkerSettings()


@pytest.mark.parametrize("without", ["zmq"], indirect=True)
def test_an_emulated_engine_that_lacks_them_does(without: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert engine(["--kv-events-config", "{}"]) == 2
    assert "[kv-events]', or leave --kv-events-config out" in capsys.readouterr().err
