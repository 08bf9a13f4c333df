"""What `hmas doctor` says of engines that hand KV over, asked of emulated ones."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hmas.mesh import doctor_pairs
from hmas.mesh.doctor_checks import your_engines
from hmas.worker.settings import EngineSettings
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy

CONFIG = json.dumps({"kv_connector": "NixlConnector"})


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EngineFarm, list[str]]]:
    """Two engines that hand KV over and one that does not."""
    with farm_in(tmp_path_factory.mktemp("farm")) as farm:
        urls = [*farm.start(2, more=("--kv-transfer-config", CONFIG)), *farm.start(1)]
        asyncio.run(eventually(lambda: all(map(is_healthy, urls))))
        yield farm, urls


def found(*engines: dict[str, Any]) -> list[tuple[str, str]]:
    """The verdicts and details of the engines' hand-overs, or what to do."""
    settings = [EngineSettings(**({"kv_transfer": "nixl-pull"} | each)) for each in engines]
    return [(each.verdict, each.advice or each.detail) for each in doctor_pairs.hand_overs(settings, "")]


def test_each_engine_hands_a_prompt_over(farm: tuple[EngineFarm, list[str]]) -> None:
    first, second, _ = farm[1]
    ok = [("ok", f"{reads} reads it from 127.0.0.1") for reads in (second, first)]
    assert found({"url": first}, {"url": second}) == ok
    assert found({"url": first, "role": "prefill"}, {"url": second, "role": "decode"}) == ok[:1]


def test_one_that_does_not_hand_over_is_named(farm: tuple[EngineFarm, list[str]]) -> None:
    first, _, plain = farm[1]
    [(verdict, advice)] = found({"url": plain, "role": "prefill"}, {"url": first, "role": "decode"})
    assert (verdict, "--kv-transfer-config" in advice) == ("fail", True)
    [(verdict, advice)] = found({"url": "http://127.0.0.1:9", "role": "prefill"}, {"url": first, "role": "decode"})
    assert (verdict, "--kv-transfer-config" in advice) == ("fail", True)


def test_one_that_cannot_read_is_named(farm: tuple[EngineFarm, list[str]]) -> None:
    first, *_ = farm[1]
    [(verdict, advice)] = found({"url": first, "role": "prefill"}, {"url": "http://127.0.0.1:9", "role": "decode"})
    assert (verdict, "same model" in advice) == ("fail", True)


def test_an_address_that_others_cannot_reach(
    farm: tuple[EngineFarm, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = farm[1]
    monkeypatch.setattr(doctor_pairs, "HERE", ("127.0.0.1",))
    named = first.replace("127.0.0.1", "localhost")
    [(verdict, advice)] = found({"url": named, "role": "prefill"}, {"url": second, "role": "decode"})
    assert (verdict, "VLLM_NIXL_SIDE_CHANNEL_HOST" in advice) == ("fail", True)


def test_one_alone_is_read_by_nobody(farm: tuple[EngineFarm, list[str]]) -> None:
    [(verdict, _)] = found({"url": farm[1][0]})
    assert verdict == "warn"


def test_a_file_of_engines_is_checked_so(farm: tuple[EngineFarm, list[str]], tmp_path: Path) -> None:
    first, second, plain = farm[1]
    listed = [{"url": first, "kv_transfer": "nixl-pull"}, {"url": second, "kv_transfer": "nixl-pull"}, {"url": plain}]
    (tmp_path / "engines.json").write_text(json.dumps(listed))
    named = [each.check for each in your_engines([f"file+{tmp_path / 'engines.json'}"]) if each.check.startswith("KV")]
    assert named == [f"KV of {url.removeprefix('http://')}" for url in (first, second)]
