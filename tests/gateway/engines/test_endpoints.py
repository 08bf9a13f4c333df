"""Which engines a gateway reaches, with which key, on which paths; what a heartbeat can and cannot bring about."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.registry import CHAT_PATH
from hmas.gateway.engines.allowed import LOOPBACK, AllowedEndpoints, parse_rules
from hmas.gateway.engines.engines import MAX_ENGINE_OWNERS, EngineClient, EngineDirectory, EngineRefused
from hmas.gateway.engines.runs import GatewayRun
from hmas.gateway.engines.target import EngineTarget
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.settings import GatewaySettings
from tests.gateway.gateway_script import heartbeat

CHAT = "/v1/chat/completions"
REMOTE = "10.0.0.7:9000"  # the address of a worker on another host


@pytest.mark.parametrize(
    ("url", "origin", "prefix"),
    [
        ("http://h:8000", "http://h:8000", ""),
        ("http://H:8000/v1/", "http://h:8000", ""),
        ("https://user:pass@h/openai/v1", "https://h:443", "/openai"),
        ("http://[::1]:80", "http://[::1]:80", ""),
    ],
)
def test_an_engines_url(url: str, origin: str, prefix: str) -> None:
    target = EngineTarget.of(url)
    assert (target.origin, target.prefix) == (origin, prefix)
    head = target.heads("key")[CHAT].decode()
    assert head.startswith(f"POST {prefix}{CHAT} HTTP/1.1\r\nHost: {origin.split('//')[1]}\r\n")
    assert "Authorization: Bearer key\r\n" in head
    assert head.endswith("\r\nContent-Length: ")
    assert b"Authorization" not in target.heads("")[CHAT]


@pytest.mark.parametrize(
    "url", ["", "h:8000", "ftp://h", "http://", "http://h/a b", "http://h/%2e%2e/x", "http://h/../x", "http://h\\x", "http://é",
            "http://a..b", f"http://{'a' * 64}:80"]
)  # fmt: skip
def test_an_unusable_url_is_refused_with_advice(url: str) -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        EngineTarget.of(url)


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "a\n", "é"])
def test_a_key_cannot_end_a_header(key: str) -> None:
    with pytest.raises(ValueError, match="no HTTP header may have"):
        EngineTarget.of("http://h").heads(key)


@pytest.mark.parametrize(
    ("rules", "origin", "allowed"),
    [
        (LOOPBACK, "http://127.0.0.1:8000", True),
        (LOOPBACK, "http://localhost:1", True),
        (LOOPBACK, "http://[::1]:8000", True),
        (LOOPBACK, "http://10.0.0.1:8000", False),
        (LOOPBACK, "http://127.0.0.1.evil:8000", False),
        ("http://10.0.0.*:8000", "http://10.0.0.9:8000", True),
        ("http://10.0.0.*:8000", "http://10.0.0.9:8001", False),
        ("http://10.0.0.*:8000", "https://10.0.0.9:8000", False),
        ("http://10x0.0.1", "http://10.0.0.1:80", False),
        ("http://10.0.0.1", "http://10x0.0.1:80", False),
        ("http://a.example, https://*.b.example/", "https://x.b.example:443", True),
        ("http://a.example, https://*.b.example/", "https://x.b.example:8443", False),
        ("*://*:*", "https://anything:1", True),
        ('[{"url": "http://h:*"}]', "http://h:5", True),
    ],
)
def test_only_what_a_pattern_names_is_allowed(rules: str, origin: str, allowed: bool) -> None:
    assert AllowedEndpoints(parse_rules(rules)).key_of(origin) == ("" if allowed else None)


@pytest.mark.parametrize(
    "rules",
    ["", " , ", "h:8000", "http://h:80x", "http://h/path", "http://h[0-9]:1", "[]", "[1]", "[{]", '[{"url": "h"}]',
     '[{"url": "http://h", "key": "x"}]', '[{"url": "http://h", "api_key_file": 3}]'],
)  # fmt: skip
def test_rules_that_mean_nothing_are_told(rules: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rules(rules)
    with pytest.raises(ValueError, match="engine_endpoints"):
        GatewaySettings(engine_endpoints=rules)


def test_an_engine_gets_its_own_key_or_the_common_one(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own-key\n")
    (tmp_path / "common").write_text(" common-key ")
    text = f'[{{"url": "http://a:1", "api_key_file": "{tmp_path / "own"}"}}, {{"url": "http://*:1"}}]'
    settings = GatewaySettings(engine_endpoints=text, engine_api_key_file=tmp_path / "common")
    allowed = settings.allowed_endpoints()
    assert [allowed.key_of(f"http://{host}:1") for host in ("a", "b")] == ["own-key", "common-key"]
    assert allowed.key_of("http://c:2") is None
    assert "own-key" not in repr(allowed._allowed)
    with pytest.raises(OSError, match="missing"):
        GatewaySettings(engine_api_key_file=tmp_path / "missing").allowed_endpoints()


@pytest.fixture
async def engines() -> AsyncIterator[EngineDirectory]:
    directory = EngineDirectory(AllowedEndpoints(parse_rules(f"{LOOPBACK},http://gpu-*:8000")))
    yield directory
    await directory.close()


def tell(directory: EngineDirectory, endpoint: str, worker: str = "w1", address: str = "127.0.0.1:1") -> None:
    (info,) = heartbeat().engines
    directory.hear(heartbeat(worker, address=address, engines=(replace(info, endpoint=endpoint),)))


def refusal(directory: EngineDirectory, worker: str = "w1", engine: str = "e1") -> str:
    with pytest.raises(EngineRefused) as refused:
        directory.find(worker, engine)
    return str(refused.value)


async def test_the_kind_of_an_engine_is_that_of_the_last_heartbeat(engines: EngineDirectory) -> None:
    (info,) = heartbeat().engines
    assert engines.kind("w1", "e1") == UNKNOWN_KIND
    for hardware in ("h100x2", "h100x4"):  # at the same endpoint
        kept = replace(info, endpoint="http://gpu-1:8000", model="m", hardware=hardware)
        engines.hear(heartbeat("w1", address="127.0.0.1:1", engines=(kept,)))
        assert engines.kind("w1", "e1") == EngineKind("m", hardware)
    assert (engines.kind("w1", "e2"), engines.kind("w2", "e1")) == (UNKNOWN_KIND, UNKNOWN_KIND)


async def test_an_engine_is_found_by_worker_and_name(engines: EngineDirectory) -> None:
    assert refusal(engines) == "no heartbeat of worker w1 has told where its engine e1 is"
    tell(engines, "http://gpu-1:8000")
    tell(engines, "http://gpu-2:8000", "w2")
    tell(engines, "http://gpu-1:8000", "w3")
    first = engines.find("w1", "e1")
    assert first is not engines.find("w2", "e1")
    assert first is engines.find("w3", "e1")  # one pool of connections
    tell(engines, "http://gpu-1:8000")
    assert engines.find("w1", "e1") is first
    assert refusal(engines, engine="e2").startswith("no heartbeat")


async def test_a_heartbeat_alone_directs_nothing_anywhere(engines: EngineDirectory) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            tell(engines, "http://evil:8000")
            assert refusal(engines) == (
                "this gateway may not use an engine at http://evil:8000: add it to HMAS_ENGINE_ENDPOINTS"
            )
        tell(engines, "")
        assert "is unusable" in refusal(engines)
    assert [(each["event"], each["endpoint"]) for each in logs] == [
        ("engine_refused", "http://evil:8000"), ("engine_refused", "")
    ]  # fmt: skip


async def test_an_engine_on_another_hosts_loopback_is_refused_in_words(engines: EngineDirectory) -> None:
    with capture_logs() as logs:
        tell(engines, "http://127.0.0.1:8000", address=REMOTE)
        for _ in range(2):
            engines.connected("w1", local=False)
            assert "which only the worker's own host can reach: give the engine an `advertise_url`" in refusal(engines)
    assert [each["event"] for each in logs] == ["engine_refused"]
    engines.connected("w1", local=True)
    assert engines.find("w1", "e1")  # also later, while its worker is silent
    tell(engines, "http://127.0.0.1:8000", address="10.0.0.8:9000")
    assert "advertise_url" in refusal(engines)  # it has moved
    tell(engines, "http://gpu-1:8000", address="10.0.0.8:9000")
    assert engines.find("w1", "e1")


async def test_an_endpoint_that_nobody_tells_any_more_is_let_go(engines: EngineDirectory) -> None:
    retired: list[EngineClient] = []
    for worker in ("w1", "w2"):
        tell(engines, "http://gpu-1:8000", worker)
    before = engines.find("w1", "e1")
    before.pool.retire = lambda: retired.append(before)  # type: ignore[method-assign]
    tell(engines, "http://gpu-2:8000", "w1")
    assert retired == []
    tell(engines, "http://gpu-2:8000", "w2")
    assert retired == [before]
    tell(engines, "http://gpu-1:8000", "w1")
    assert engines.find("w1", "e1") is not before


async def test_the_workers_remembered_are_bounded(engines: EngineDirectory) -> None:
    for i in range(MAX_ENGINE_OWNERS + 2):
        tell(engines, "http://gpu-1:8000", f"w{i}")
    assert refusal(engines, "w1").startswith("no heartbeat")
    assert engines.find("w2", "e1")


@pytest.mark.parametrize("path", ["/metrics", "/set_internal_state", "/v1/models", "/v1/chat/completions/../x"])
async def test_no_other_path_can_be_requested(engines: EngineDirectory, path: str) -> None:
    tell(engines, "http://gpu-1:8000")
    run = GatewayRun("r1", 1, sink=None, max_bytes=1, form=FORMS[CHAT_PATH])  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        engines.find("w1", "e1").send(path, (b"{", b"}"), "r1", "", run)
