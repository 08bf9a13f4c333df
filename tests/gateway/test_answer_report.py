"""Every answer says by which SLO it was judged, whether that was kept, and where the time went."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.engine_kind import UNKNOWN_KIND
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation, Cost, KindCost, Slo, TaskType
from hmas.gateway.answer_report import server_timing, slo_told
from hmas.gateway.exchange import Exchange, RunTrace
from hmas.gateway.openai.tiers import ServiceTier, with_service_tier
from hmas.gateway.tenants.header_names import unknown_names, warning_of
from hmas.gateway.tenants.terms import KNOWN_HEADERS
from hmas.laws import scoring
from hmas.laws.scoring import Settlement
from tests.builders.requests import client_request, model_tags
from tests.gateway.gateway_harness import DONE, PATH, PLAIN, body, client, event, gateway, last


def exchange(
    slo: Slo, *, first_s: float | None = None, ended_s: float = 4.0, tokens: int = 11, **changes: Any
) -> Exchange:
    """An answer that finished: it came at 1 s, an engine got it at 1.5 s."""
    made: Exchange = object.__new__(Exchange)
    made.request = client_request("r", arrival_s=1.0, slo=slo, slo_stated=True)
    made.annotation = made.job_budget_s = None
    made.runs = [RunTrace(worker="w", engine="e", grant=None, started_s=1.5, ended_s=ended_s)]
    made.first_s, made.settled_s, made.output_tokens, made.outcome = first_s, ended_s, tokens, Outcome.FINISHED
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("slo", "first_s", "told"),
    [
        (Slo(1.5, 0.2), 2.0, "ttft_ms=1500; tpot_ms=200; from=header; on_time=true"),
        (Slo(0.9, 0.2), 2.0, "ttft_ms=900; tpot_ms=200; from=header; on_time=false; missed=ttft; late_ms=100"),
        (Slo(1.5, 0.15), 2.0, "ttft_ms=1500; tpot_ms=150; from=header; on_time=false; missed=tpot; late_ms=500"),
        (Slo(0.9, 0.15), 2.0, "ttft_ms=900; tpot_ms=150; from=header; on_time=false; missed=ttft,tpot; late_ms=500"),
        (
            Slo(1.5, 0.2, 2.75), 2.0,
            "ttft_ms=1500; tpot_ms=200; ttlt_ms=2750; from=header; on_time=false; missed=ttlt; late_ms=250",
        ),
        (Slo(1.5, 0.2, 3.0, whole=True), None, "ttlt_ms=3000; from=header; on_time=true"),
        (Slo(1.5, 0.2, 2.9, whole=True), None,
         "ttlt_ms=2900; from=header; due_ms=2900; on_time=false; missed=ttlt; late_ms=100"),
        (Slo(0.8, 0.2, None, whole=True), None, "ttft_ms=800; tpot_ms=200; from=header; on_time=true"),
        (Slo(0.7, 0.2, None, whole=True), None,
         "ttft_ms=700; tpot_ms=200; from=header; due_ms=2900; on_time=false; missed=ttlt; late_ms=100"),
    ],
)  # fmt: skip
def test_an_answer_tells_its_slo_and_by_how_much_it_was_missed(slo: Slo, first_s: float | None, told: str) -> None:
    assert slo_told([exchange(slo, first_s=first_s)], "header") == told


@given(
    ttft_s=st.floats(0.1, 3.0), tpot_s=st.floats(0.01, 1.0), ttlt_s=st.none() | st.floats(0.5, 5.0),
    whole=st.booleans(), first_s=st.floats(1.5, 4.0), tokens=st.integers(0, 20),
)  # fmt: skip
def test_the_verdict_is_that_of_the_scoring_law(
    ttft_s: float, tpot_s: float, ttlt_s: float | None, whole: bool, first_s: float, tokens: int
) -> None:
    slo = Slo(ttft_s, tpot_s, ttlt_s, whole)
    law = Settlement(
        request_id="r", tenant="t", task=TaskType.QA, model="m", outcome=Outcome.FINISHED, slo=slo, prompt_tokens=1,
        output_tokens=tokens, ttft_s=first_s - 1.0, tpot_s=scoring.tpot_s(first_s, 4.0, tokens), last_token_s=3.0,
        offered_s=0.0,
    )  # fmt: skip
    told = slo_told([exchange(slo, first_s=first_s, tokens=tokens)], "header")
    assert ("on_time=true" in told) is scoring.is_ok(law)


def test_of_several_answers_the_latest_counts() -> None:
    on_time, late = exchange(Slo(1.5, 0.2), first_s=2.0), exchange(Slo(1.5, 0.2), first_s=2.7)
    assert slo_told([on_time, late], "tenant").endswith("from=tenant; on_time=false; missed=ttft; late_ms=200")
    assert slo_told([on_time, on_time], "tenant").endswith("on_time=true")


def test_what_has_not_ended_well_tells_its_slo_alone() -> None:
    for changes in ({"outcome": None}, {"outcome": Outcome.SLO_UNREACHABLE, "runs": []}):
        made = exchange(Slo(1.5, 0.2), **changes)
        assert slo_told([made], "header") == "ttft_ms=1500; tpot_ms=200; from=header"
    job = exchange(Slo(1.5, 0.2), first_s=2.0, job_budget_s=60.0)
    assert slo_told([job], "header") == "ttft_ms=1500; tpot_ms=200; job_ms=60000; from=header"


def test_an_slo_that_nobody_states_is_that_of_the_task() -> None:
    made = exchange(Slo(6.0, 0.1, whole=True))
    made.request = replace(made.request, slo_stated=False)
    assert slo_told([made], "").startswith("ttft_ms=6000; tpot_ms=100; from=task; task=unknown; ")
    made.annotation = Annotation(model_tags(slo=Slo(4.0, 0.07)), (KindCost(UNKNOWN_KIND, Cost(0.1, 0.01)),))
    task = made.annotation.tags.task.value
    assert slo_told([made], "") == f"ttft_ms=4000; tpot_ms=70; from=task; task={task}; on_time=true"


def test_the_time_is_told_as_far_as_it_was_seen() -> None:
    streamed = exchange(Slo(1.5, 0.2), first_s=2.0)
    assert server_timing([streamed]) == "queue;dur=500.0, ttft;dur=1000.0, decode;dur=2000.0, total;dur=3000.0"
    whole = exchange(Slo(1.5, 0.2))
    assert server_timing([whole]) == "queue;dur=500.0, engine;dur=2500.0, total;dur=3000.0"
    begun = exchange(Slo(1.5, 0.2), first_s=2.0, settled_s=None)
    begun.runs[-1].ended_s = None
    assert server_timing([begun]) == "queue;dur=500.0, ttft;dur=1000.0"
    assert server_timing([exchange(Slo(1.5, 0.2), runs=[])]) == ""


# --- over HTTP


async def test_a_plain_answer_tells_all_in_its_head() -> None:
    async with gateway() as g, client(g) as http:
        response = await http.post(PATH, content=body(), headers={"x-slo-ttft-ms": "60000"})
        assert response.content == PLAIN
        assert response.headers["x-hmas-slo"] == "ttft_ms=60000; tpot_ms=100; from=header; on_time=true"
        names = [part.partition(";dur=")[0] for part in response.headers["server-timing"].split(", ")]
        assert names == ["queue", "engine", "total"]
        late = await http.post(PATH, content=body(), headers={"x-slo-ttlt-ms": "0.001"})
        assert late.headers["x-hmas-slo"].startswith("ttlt_ms=0; from=header; due_ms=0; on_time=false; missed=ttlt; ")


async def test_a_stream_tells_its_slo_in_the_head_and_the_outcome_at_the_end_if_asked_to() -> None:
    async with gateway() as g, client(g) as http:
        headers = {"x-slo-ttft-ms": "60000", "x-slo-tpot-ms": "60000"}
        plain = await http.post(PATH, content=body(stream=True), headers=headers)
        assert plain.headers["x-hmas-slo"].startswith("ttft_ms=60000; tpot_ms=60000; from=header")
        assert plain.headers["server-timing"].startswith("queue;dur=")
        assert ", ttft;dur=" in plain.headers["server-timing"]
        tokens = event(0) + event(1) + last(2) + DONE
        assert plain.content == tokens
        told = await http.post(PATH, content=body(stream=True), headers={**headers, "x-hmas-outcome": "comment"})
        comment = b": x-hmas-slo: ttft_ms=60000; tpot_ms=60000; from=header; on_time=true\n\n"
        assert told.content == tokens + comment
        wrong = {"x-hmas-outcome": "event", "x-hmas-outcom": "comment"}
        unknown = await http.post(PATH, content=body(stream=True), headers=wrong)
        assert (unknown.status_code, unknown.content) == (200, tokens)
        assert unknown.headers["x-hmas-warning"] == (
            "unknown header x-hmas-outcom, did you mean x-hmas-outcome?; "
            "unknown value of x-hmas-outcome, use comment or usage"
        )


async def test_headers_that_nobody_reads_are_named_with_the_near_ones() -> None:
    async with gateway() as g, client(g) as http:
        response = await http.post(PATH, content=body(), headers={"X-SLO-TTFT": "500", "x-slo-tpot-ms": "50"})
        assert response.headers["x-hmas-warning"] == "unknown header x-slo-ttft, did you mean x-slo-ttft-ms?"
        assert "x-hmas-warning" not in (await http.post(PATH, content=body())).headers


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("x-slo-ttft", "x-slo-ttft-ms"), ("x-hmas-slo-ttft-ms", "x-slo-ttft-ms"), ("x-hmas-jobs", "x-hmas-job"),
        ("x-hmas-priority", "x-priority"), ("x-slo-onmiss", "x-slo-on-miss"), ("x-hmas-flavour", ""),
    ],
)  # fmt: skip
def test_the_near_name_is_that_of_what_was_meant(name: str, near: str) -> None:
    unknown = unknown_names([(name.encode(), b"1"), (b"x-other", b"2"), (b"x-slo-ttft-ms", b"3")], KNOWN_HEADERS)
    assert unknown == [name]
    assert warning_of(unknown, KNOWN_HEADERS) == f"unknown header {name}" + (f", did you mean {near}?" if near else "")


def test_a_warning_is_bounded() -> None:
    many = [(b"x-slo-%d" % number + b"y" * 5000, b"1") for number in range(500)]
    assert len(warning_of(unknown_names(many, KNOWN_HEADERS), KNOWN_HEADERS)) < 600


# --- the service tier


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"id":"c1","service_tier":null,"usage":{}}', b'{"id":"c1","service_tier":"flex","usage":{}}'),
        (b'{"id":"c1"}', b'{"service_tier":"flex","id":"c1"}'),
        (b"{}", b'{"service_tier":"flex"}'),
        (b'data: {"id":1}\n\ndata: {"id":2}\n\n', b'data: {"service_tier":"flex","id":1}\n\ndata: {"id":2}\n\n'),
        (b'{"text":"\\"service_tier\\":null"}', b'{"service_tier":"flex","text":"\\"service_tier\\":null"}'),
        (b'{"service_tier":"priority"}', b'{"service_tier":"priority"}'),
        (b": keep-alive\n\n", b": keep-alive\n\n"),
    ],
)  # fmt: skip
def test_the_service_tier_is_named_once(data: bytes, told: bytes) -> None:
    assert with_service_tier(data, ServiceTier.FLEX) == told


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tier_that_a_body_names_is_named_in_the_answer(stream: bool) -> None:
    async with gateway() as g, client(g) as http:
        answer = (await http.post(PATH, content=body(service_tier="auto", stream=stream))).text
        first = answer.removeprefix("data: ").partition("\n")[0]
        assert orjson.loads(first)["service_tier"] == "default"
        assert answer.count("service_tier") == 1
        assert "service_tier" not in (await http.post(PATH, content=body(stream=stream))).text
