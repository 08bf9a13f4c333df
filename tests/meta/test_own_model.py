"""The mesh's own model as the language model of the meta controller: its settings, its budget, and what it asks."""

from typing import Any

import pytest
from pydantic import ValidationError

from hmas.mesh.options import MeshOptions
from hmas.mesh.plan import make_plan
from hmas.meta.llm_client import TokenBudget
from hmas.meta.settings import MetaSettings

ENGINE = "http://127.0.0.1:9"


def test_the_budget_is_saved_up_to_one_minute_and_what_was_taken_is_owed() -> None:
    budget = TokenBudget(6000)
    assert budget.allows(0.0)
    budget.charge(9000)
    assert not budget.allows(1.0)
    assert not budget.allows(29.0)
    assert budget.allows(31.0)
    assert budget.allows(10_000.0)
    budget.charge(6000)
    assert not budget.allows(10_000.0)


def test_a_budget_of_nothing_asks_nothing() -> None:
    assert not any(TokenBudget(0).allows(now_s) for now_s in (0.0, 60.0, 6e4))


def test_the_pools_own_model_needs_no_name_and_another_one_does() -> None:
    assert MetaSettings(llm_url="self").asks_llm
    with pytest.raises(ValidationError, match="HMAS_LLM_MODEL is empty"):
        MetaSettings(llm_url="http://elsewhere:8000/v1")


def meta_env(tmp_path: Any, **options: Any) -> dict[str, str]:
    plan = make_plan(MeshOptions(data_dir=tmp_path, model="m", **options))
    env = dict(next(process.env for process in plan.processes if process.name == "meta"))
    assert env.get("HMAS_LLM_SELF_URL", f"{plan.gateway_url}/v1") == f"{plan.gateway_url}/v1"
    return env


def test_real_engines_are_asked_by_themselves_where_every_proposal_is_rehearsed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HMAS_SELECTOR", "HMAS_LLM_URL", "HMAS_REHEARSE"):
        monkeypatch.delenv(name, raising=False)
    assert "HMAS_LLM_URL" not in meta_env(tmp_path, engine_urls=(ENGINE,))
    monkeypatch.setenv("HMAS_REHEARSE", "on")
    env = meta_env(tmp_path, engine_urls=(ENGINE,))
    assert (env["HMAS_LLM_URL"], env["HMAS_SELECTOR"]) == ("self", "rules,llm")
    assert "HMAS_LLM_URL" not in meta_env(tmp_path)  # emulated engines answer in no words
    assert meta_env(tmp_path, llm_url="self")["HMAS_LLM_URL"] == "self"
    other = meta_env(tmp_path, engine_urls=(ENGINE,), llm_url="http://elsewhere:8000/v1", llm_model="x")
    assert other["HMAS_LLM_URL"] == "http://elsewhere:8000/v1"
    monkeypatch.setenv("HMAS_SELECTOR", "rules")
    assert "HMAS_LLM_URL" not in meta_env(tmp_path, engine_urls=(ENGINE,))
