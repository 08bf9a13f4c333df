"""What `hmas doctor` says of engines that hand KV over, asked of emulated ones."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hmas.mesh import doctor_pairs
from hmas.mesh.doctor_checks import your_engines
from hmas.worker.settings import EngineSettings
from tests.conftest import eventually
from tests.engine_farm import EngineFarm, farm_in, is_healthy
from tests.worker.adapters.scripted_engine import Handler, Peer, ScriptedEngine

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


@asynccontextmanager
async def scripted(**pages: Any) -> AsyncIterator[ScriptedEngine]:
    """A server that answers GET requests with these documents, by their paths without a slash."""

    def page(document: Any) -> Handler:
        return lambda peer: peer.reply(json.dumps(document).encode(), extra="Connection: close\r\n")

    pages = {"v1/models": {"data": [{"id": "m"}]}} | pages
    engine = ScriptedEngine({f"/{path}": page(document) for path, document in pages.items()})
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def test_engines_of_different_versions_are_named() -> None:
    async with scripted(version={"version": "0.32.0"}) as first, scripted(version={"version": "0.31.0"}) as second:
        engines = ({"url": first.url, "role": "prefill"}, {"url": second.url, "role": "decode", "name": "d"})
        settings = [EngineSettings(kv_transfer="nixl-pull", **each) for each in engines]
        [finding] = await asyncio.to_thread(doctor_pairs.hand_overs, settings, "")
        assert (finding.verdict, finding.detail) == ("fail", "it has version 0.32.0, and d has version 0.31.0")
        assert "same version" in finding.advice


def test_engines_of_different_connectors_are_named(farm: tuple[EngineFarm, list[str]]) -> None:
    first, second, _ = farm[1]
    engines = ({"url": first, "role": "prefill"}, {"url": second, "role": "decode", "kv_transfer": "nixl-push"})
    [(verdict, advice)] = found(*engines)
    assert (verdict, "same connector" in advice) == ("fail", True)


def test_a_connector_that_is_not_what_the_entry_says(farm: tuple[EngineFarm, list[str]]) -> None:
    first, second, _ = farm[1]
    pushing = {"kv_transfer": "nixl-push"}
    [(verdict, advice)] = found(
        {"url": first, "role": "prefill"} | pushing, {"url": second, "role": "decode"} | pushing
    )
    assert (verdict, advice.startswith("set `kv_transfer` to nixl-pull, or ")) == ("fail", True)
    assert "NixlPushConnector" in advice


PROMPTS = {
    "disaggregation_mode": "prefill",
    "disaggregation_bootstrap_port": 9001,
    "disaggregation_transfer_backend": "x",
}
ANSWERS = PROMPTS | {"disaggregation_mode": "decode"}


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({}, "ok", "127.0.0.1:9001"),
        ({"disaggregation_mode": "null"}, "fail", "d is in mode null, and is meant for decode"),
        ({"disaggregation_transfer_backend": "y"}, "fail", "the transfer backend x, and d has the transfer backend y"),
    ],
)
async def test_sglangs_two_halves_are_asked_at_once(changes: dict[str, str], verdict: str, says: str) -> None:
    """Each answers only when both have been asked."""
    both = asyncio.Barrier(2)

    async def answers(peer: Peer) -> None:
        await both.wait()
        await peer.reply(b"{}", extra="Connection: close\r\n")

    completions: dict[str, Any] = {"v1/completions": {}}
    async with (
        scripted(server_info=PROMPTS, **completions) as first,
        scripted(server_info=ANSWERS | changes, **completions) as second,
    ):
        for each in (first, second):
            each.script["/v1/completions"] = answers
        halves = [
            EngineSettings(url=first.url, kv_transfer="sglang", role="prefill"),
            EngineSettings(url=second.url, kv_transfer="sglang", role="decode", name="d"),
        ]
        [finding] = await asyncio.to_thread(doctor_pairs.hand_overs, halves, "")
        assert (finding.verdict, says in finding.detail) == (verdict, True), finding
        bodies = [json.loads(peer.body) for each in (first, second) for peer in each.requests if peer.method == "POST"]
        assert len(bodies) == (2 if verdict == "ok" else 0)
        assert bodies[:1] == bodies[1:]


async def test_the_half_that_fails_is_named() -> None:
    async def fails(peer: Peer) -> None:
        await peer.reply(b"no KV", 500, extra="Connection: close\r\n")

    async with scripted(server_info=PROMPTS) as first, scripted(server_info=ANSWERS) as second:
        first.script["/v1/completions"] = lambda peer: peer.reply(b"{}", extra="Connection: close\r\n")
        second.script["/v1/completions"] = fails
        halves = [
            EngineSettings(url=first.url, kv_transfer="sglang", role="prefill", name="p"),
            EngineSettings(url=second.url, kv_transfer="sglang", role="decode", name="d"),
        ]
        [finding] = await asyncio.to_thread(doctor_pairs.hand_overs, halves, "")
        assert (finding.verdict, finding.detail) == ("fail", "d: status 500, no KV")
