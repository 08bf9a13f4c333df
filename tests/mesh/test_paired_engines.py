"""`hmas up --prefill --decode`: what its processes are told of engines that share the work of a request."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hmas.engine.__main__ import parser
from hmas.mesh import up
from hmas.mesh.options import MeshOptions
from hmas.mesh.paired_engines import EMULATED, with_roles
from hmas.mesh.planned_engines import with_plan
from hmas.mesh.processes import MeshPlan, make_plan
from hmas.mesh.up import NotUp, with_model

A, B, C, D = (f"http://127.0.0.1:{port}" for port in range(1, 5))


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HMAS_SPLIT", raising=False)


def planned(options: MeshOptions, folder: Path) -> tuple[MeshPlan, list[Mapping[str, str]]]:
    """The plan of a mesh, and what each of its workers is told."""
    plan = make_plan(replace(options, data_dir=folder, nats_url="nats://127.0.0.1:9"))
    return plan, [each.env for each in plan.processes if each.name.startswith("worker-")]


def roles_of(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {e["url"]: (e.get("role", ""), e.get("kv_transfer", "")) for e in json.loads(env["HMAS_ENGINES"])}


def test_one_worker_has_all_engines_with_roles_and_is_told_to_use_them(tmp_path: Path) -> None:
    options = with_roles(MeshOptions(engine_urls=(A,), model="m", hardware="H100"), [B, C], [D])
    _, (paired, other) = planned(options, tmp_path)
    prefill, decode = ("prefill", "nixl-pull"), ("decode", "nixl-pull")
    assert roles_of(paired) == {B: prefill, C: prefill, D: decode}
    assert {each["hardware"] for each in json.loads(paired["HMAS_ENGINES"])} == {"H100"}
    assert roles_of(other) == {A: ("", "")}
    assert (paired["HMAS_SPLIT"], "HMAS_SPLIT" in other) == ("auto", False)


def test_an_operators_word_on_the_split_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAS_SPLIT", "beyond:900")
    _, (env,) = planned(with_roles(MeshOptions(model="m"), [A], [B]), tmp_path)
    assert env["HMAS_SPLIT"] == "beyond:900"


def test_emulated_engines_are_started_with_roles(tmp_path: Path) -> None:
    options = with_roles(MeshOptions(), [EMULATED, EMULATED], [EMULATED])
    plan, (env,) = planned(options, tmp_path)
    engines = [each for each in plan.processes if each.name.startswith("engine-")]
    started = [parser().parse_args(each.argv[3:]) for each in engines]
    assert all(args.kv_transfer_config is not None for args in started)
    roles = roles_of(env)
    assert list(roles) == [f"http://127.0.0.1:{args.port}" for args in started]
    assert [role for role, _ in roles.values()] == ["prefill", "prefill", "decode"]
    assert {kv for _, kv in roles.values()} == {"nixl-pull"}
    assert {each["kind"] for each in json.loads(env["HMAS_ENGINES"])} == {"emulated"}
    assert list(plan.roles.values()) == ["prefill", "prefill", "decode"]


def test_without_roles_nothing_of_it_is_said(tmp_path: Path) -> None:
    assert with_roles(MeshOptions(), None, []) == MeshOptions()
    plan, workers = planned(MeshOptions(), tmp_path)
    assert not plan.roles
    assert not [each for each in plan.processes if "--kv-transfer-config" in each.argv]
    assert not any("HMAS_SPLIT" in env or "kv_transfer" in env["HMAS_ENGINES"] for env in workers)


@pytest.mark.parametrize(
    ("options", "prefill", "decode", "message"),
    [
        (MeshOptions(), [A], [], "go together"),
        (MeshOptions(), None, [A], "go together"),
        (MeshOptions(workers=2), [A], [B], "leave --workers out"),
        (MeshOptions(), [A], [A], "is named twice"),
        (MeshOptions(engine_urls=(B,)), [A], [B], f"engine {B} is named twice"),
        (MeshOptions(), [EMULATED], [A], "all emulated or all given by URLs"),
        (MeshOptions(engine_urls=(A,)), [EMULATED], [EMULATED], "all emulated or all given by URLs"),
        (MeshOptions(), ["file+engines.yaml"], [A], "a file\\+ says itself"),
        (MeshOptions(engine_urls=("dns+http://vllm:1",)), [A], [B], "take URLs"),
    ],
)
def test_engines_that_cannot_be_paired_are_refused(
    options: MeshOptions, prefill: list[str] | None, decode: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        with_roles(options, prefill, decode)


@pytest.mark.parametrize("engine", [A, EMULATED])
def test_a_plan_has_no_roles(tmp_path: Path, engine: str) -> None:
    options = with_roles(MeshOptions(), [engine], [engine if engine == EMULATED else B])
    with pytest.raises(ValueError, match="leave --engine out, and --prefill and --decode"):
        with_plan(options, tmp_path / "plan.yaml", None, ())


def serving(monkeypatch: pytest.MonkeyPatch, models: Mapping[str, str]) -> None:
    """Engines that serve these models; others are not up."""

    def card_of(url: str, _: str) -> dict[str, str]:
        if url not in models:
            raise NotUp(f"{url} is not up")
        return {"id": models[url]}

    monkeypatch.setattr(up, "card_of", card_of)


def test_an_engine_that_comes_late_serves_what_the_others_of_its_pair_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(monkeypatch, {A: "small", D: "large"})
    options = with_model(with_roles(MeshOptions(engine_urls=(A,)), [B, C], [D]))
    assert ([options.pool_of(url) for url in (A, B, C, D)], options.unnamed) == (["small", *["large"] * 3], frozenset())
    _, environments = planned(options, tmp_path)
    assert [(env["HMAS_POOL"], len(roles_of(env))) for env in environments] == [("large", 3), ("small", 1)]


def test_pairs_need_one_model_and_one_engine_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    options = with_roles(MeshOptions(engine_urls=(A,)), [B], [D])
    serving(monkeypatch, {A: "small", B: "large", D: "huge"})
    with pytest.raises(ValueError, match=f"must serve one model, but {B} serves large and {D} serves huge"):
        with_model(options)
    serving(monkeypatch, {A: "small"})
    with pytest.raises(NotUp, match="is not up"):
        with_model(options)
