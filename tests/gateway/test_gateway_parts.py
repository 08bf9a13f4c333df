"""Model directory, journal, settings."""

from io import StringIO

import orjson
import pytest
from pydantic import ValidationError
from rich.console import Console

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.gateway import RouteChosen
from hmas.contracts.job import LinkedBy, Stage
from hmas.contracts.registry import COMPLETIONS_PATH
from hmas.gateway.agent.admission.limits import TokenBucket
from hmas.gateway.agent.pools.directory import ModelCard, ModelDirectory
from hmas.gateway.exchange import Exchange, RunTrace
from hmas.gateway.journal import RequestJournal, timeline_json
from hmas.gateway.openai.body import Call
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.tiers import ServiceTier
from hmas.gateway.settings import GatewaySettings
from hmas.operator.why import render_why
from tests.gateway.gateway_script import heartbeat, request


def test_pools_and_aliases() -> None:
    directory = ModelDirectory(max_pools=256)
    assert not directory
    directory.hear(heartbeat("w1", pool="b", aliases=("x", "a")))
    directory.hear(heartbeat("w2", pool="a", aliases=("x",), engines=()))
    assert directory
    assert [directory.resolve(name) for name in ("a", "b", "x", "y")] == ["a", "b", "b", None]
    assert directory.cards() == [ModelCard("a", "a", None), ModelCard("b", "b", 8192), ModelCard("x", "b", 8192)]


def test_known_pools_are_bounded_and_the_one_heard_of_last_stays() -> None:
    directory = ModelDirectory(max_pools=3)
    for i in range(3):
        directory.hear(heartbeat("w", pool=f"p{i}", aliases=(f"alias{i}",)))
    directory.hear(heartbeat("w", pool="p0", aliases=()))
    directory.hear(heartbeat("w", pool="new", aliases=()))
    assert [directory.resolve(name) for name in ("p0", "alias0", "p1", "alias1")] == ["p0", "p0", None, None]


def exchange(request_id: str, client_id: str) -> Exchange:
    call = Call(
        form=FORMS[COMPLETIONS_PATH],
        model="m",
        stream=False,
        text="",
        prompt_tokens=1,
        max_tokens=None,
        priority=None,
        tier=ServiceTier.DEFAULT,
        strip_usage=False,
        xargs={},
        rest=b"}",
    )
    return Exchange(
        call=call, request=request(request_id), client_id=client_id, traceparent="", pool="m", key="",
        max_size=1, overflow=lambda _: None,
    )  # fmt: skip


def test_the_journal_forgets_the_oldest() -> None:
    journal = RequestJournal("g1", 2)
    for i in range(3):
        journal.settled(exchange(f"r{i}", f"c{i}"))
    assert [journal.find(i) is not None for i in ("r0", "c0", "r1", "c1", "r2")] == [False, False, True, True, True]


def test_of_a_client_id_used_twice_the_last_request_is_found() -> None:
    journal = RequestJournal("g1", 2)
    for i in range(3):
        journal.settled(exchange(f"r{i}", "same"))
    found = journal.find("same")
    assert found is not None
    assert found.request.id == "r2"


def test_the_journal_tells_the_job_and_the_stage_of_a_request() -> None:
    asked = exchange("r1", "c1")
    assert "job" not in orjson.loads(timeline_json(asked, "g1"))
    asked.stage = Stage(job="00ff", index=2, parent="r0", linked=LinkedBy.PREFIX)
    told = orjson.loads(timeline_json(asked, "g1"))["job"]
    assert told == {"job": "00ff", "index": 2, "parent": "r0", "linked": "prefix"}


def test_the_route_is_told_with_the_seconds_at_each_worker_and_shown() -> None:
    asked = exchange("r1", "c1")
    asked.route = RouteChosen("r1", "b", ("b", "a"), (0.5, 0.25), (0.125, 1.0), (0.0, 2.0), (512, 0))
    timeline = orjson.loads(timeline_json(asked, "g1"))
    assert [(r["worker"], r["chosen"], r["cached_tokens"], r["total_s"]) for r in timeline["route"]] == [
        ("b", True, 512, 0.625), ("a", False, 0, 3.25)
    ]  # fmt: skip
    console = Console(width=120, record=True, file=StringIO())
    console.print(render_why(timeline))
    shown = console.export_text()
    assert ["b", "yes", "512", "0.5", "0.125", "0", "0.625"] in [line.split() for line in shown.splitlines()]


def test_a_run_tells_the_cards_and_the_group_of_its_engine_where_they_are_known() -> None:
    asked = exchange("r1", "c1")
    known, unknown = EngineKind("m", "h100x4"), EngineKind()
    asked.runs = [RunTrace(worker="w", engine="e", grant=None, started_s=1.0, kind=kind) for kind in (known, unknown)]

    def group_of(pool: str, kind: EngineKind) -> str:
        return "tp4" if (pool, kind) == ("m", known) else ""

    first, second = orjson.loads(timeline_json(asked, "g1", group_of))["runs"]
    assert (first["hardware"], first["group"]) == ("h100x4", "tp4")
    assert (second["hardware"], "group" in second) == (None, False)
    assert "group" not in orjson.loads(timeline_json(asked, "g1"))["runs"][0]  # no plan was heard of


def test_the_stages_of_a_job_are_told_with_what_was_promised_and_what_was_cached() -> None:
    journal = RequestJournal("g1", 8, clock=lambda: 100.0, wall_clock=lambda: 1000.0)
    for i, job in enumerate(("00ff", "0011", "00ff")):
        each = exchange(f"r{i}", f"c{i}")
        each.stage = Stage(job=job, index=i, parent="", linked=LinkedBy.NEW)
        each.cached_tokens = 64 * i
        journal.settled(each)
    told = journal.stages("00ff")
    assert [(s["stage"], s["request"], s["gateway"], s["cached"]) for s in told] == [
        (0, "r0", "g1", 0), (2, "r2", "g1", 128)
    ]  # fmt: skip
    assert told[0]["promised"] is None  # it was granted nowhere
    assert told[0]["outcome"] == "in flight"
    assert {s["began_unix_s"] for s in told} == {1000.0 - 100.0 + each.request.arrival_s}


def test_a_bucket_of_nothing_never_fills() -> None:
    assert TokenBucket(0.0, 0.0).wait_s(100.0, 1.0) == float("inf")


def test_a_bucket_pays_its_debt_first() -> None:
    bucket = TokenBucket(60.0, 0.0)
    assert bucket.wait_s(0.0, 1000.0) == 0.0  # more than a burst passes with a full bucket
    bucket.take(1000.0)
    assert bucket.wait_s(0.0, 1.0) == pytest.approx(941.0)
    bucket.change_rate(120.0, 0.0)
    assert bucket.wait_s(0.0, 1.0) == pytest.approx(470.5)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAS_PORT", "0")
    monkeypatch.setenv("HMAS_REPLAY_FIELD", "true")
    monkeypatch.setenv("HMAS_MAX_BODY_BYTES", "2048")
    monkeypatch.setenv("HMAS_FOLLOW_PROMPTS", "false")
    settings = GatewaySettings()
    assert settings.server_config().replay_field
    assert not settings.server_config().follow_prompts
    assert settings.server_config().body.max_bytes == 2048
    assert settings.agent_config("g").gateway == "g"
    assert all(field.description for field in GatewaySettings.model_fields.values())
    monkeypatch.setenv("HMAS_PORT", "99999")
    with pytest.raises(ValidationError):
        GatewaySettings()
