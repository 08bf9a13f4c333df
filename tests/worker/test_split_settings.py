"""What a worker is told of engines that hand KV over, and what it says where nothing can come of it."""

import pytest
from structlog.testing import capture_logs

from hmas.worker.__main__ import warn_of_split
from hmas.worker.discovery.file import EngineFileError, parse_engines
from hmas.worker.settings import WorkerSettings

HANDING = '[{"url": "http://a:1", "kv_transfer": "nixl-pull"}]'


@pytest.mark.parametrize(
    ("split", "engines", "kv_transfer", "warned"),
    [
        ("never", "http://a:1", "", False),
        ("always", "http://a:1", "", True),
        ("auto", "kubernetes+http:///app=vllm", "", True),
        ("beyond:9", "dns+http://vllm:8000", "", True),
        ("auto", "kubernetes+http:///app=vllm", "nixl-pull", False),
        ("always", HANDING, "", False),
        ("always", "file+/etc/hmas/engines.yaml", "", False),  # which may say it of each engine, later too
    ],
)
def test_a_split_that_no_engine_can_carry_out_is_told_of(
    monkeypatch: pytest.MonkeyPatch, split: str, engines: str, kv_transfer: str, warned: bool
) -> None:
    for name, value in {"POOL": "m", "SPLIT": split, "ENGINES": engines, "KV_TRANSFER": kv_transfer}.items():
        monkeypatch.setenv(f"HMAS_{name}", value)
    with capture_logs() as logs:
        warn_of_split(WorkerSettings())
    assert [each["event"] for each in logs] == ["no_engine_hands_kv_over"] * warned


def test_a_file_says_the_role_of_each_engine() -> None:
    text = b"- {url: 'http://a:1', role: prefill, kv_transfer: nixl-pull}\n- {url: 'http://b:1', role: decode}\n"
    assert [(each.role, each.kv_transfer) for each in parse_engines(text)] == [("prefill", "nixl-pull"), ("decode", "")]
    for wrong in (b"role: prefiller", b"role: both", b"kv_transfer: files"):
        with pytest.raises(EngineFileError, match=r"entry 0\.(role|kv_transfer) \(line 1\): Input should be"):
            parse_engines(b"- {url: 'http://a:1', %b}" % wrong)
