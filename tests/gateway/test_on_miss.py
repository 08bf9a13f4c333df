"""A client that prefers a refusal to a late answer asks for it, and what it is told agrees with itself."""

import asyncio

import orjson

from hmas.contracts.execution import Refusal
from hmas.contracts.outcome import Outcome
from tests.gateway.gateway_harness import PATH, Gateway, body, client, error_of, gateway

LATE = "the answer would be late: its first token would come 2.05 s after the request's arrival. Ask for a longer TTFT."


async def refused(g: Gateway, *, retry_after_s: float | None) -> Refusal:
    """Refuses the newest request as the worker does."""
    worker, submit = g.workers.submits[-1]
    refusal = Refusal(
        request_id=submit.request.id, attempt=submit.attempt, outcome=Outcome.SLO_UNREACHABLE, message=LATE,
        retry_after_s=retry_after_s,
    )  # fmt: skip
    g.workers.say(worker, refusal)
    return refusal


async def test_the_text_the_header_the_body_and_the_timeline_of_a_refusal_name_one_time() -> None:
    async with gateway(grants=False) as g, client(g) as http:
        asking = asyncio.create_task(http.post(PATH, content=body(), headers={"x-slo-on-miss": "refuse"}))
        await g.until(lambda: len(g.workers.submits) > 0)
        assert not g.workers.submits[0][1].request.relegate
        refusal = await refused(g, retry_after_s=2.4)
        response = await asking
        error = error_of(response)
        assert (response.status_code, response.headers["retry-after"], error["retry_after_s"]) == (429, "3", 3)
        assert error["message"] == f"{LATE} Or retry after 3 s."
        assert response.headers["x-hmas-slo"] == "ttft_ms=6000; tpot_ms=100; from=task; task=unknown"
        assert "server-timing" not in response.headers
        timeline = orjson.loads(g.records.journal.timeline(refusal.request_id) or b"")
        assert (timeline["message"], timeline["retry_after_s"]) == (error["message"], 3)
        assert timeline["total_s"] is not None


async def test_a_refusal_for_good_names_no_time() -> None:
    async with gateway(grants=False) as g, client(g) as http:
        asking = asyncio.create_task(http.post(PATH, content=body(), headers={"x-slo-on-miss": "refuse"}))
        await g.until(lambda: len(g.workers.submits) > 0)
        refusal = await refused(g, retry_after_s=None)
        response = await asking
        assert "retry-after" not in response.headers
        assert (response.headers["x-should-retry"], error_of(response)["message"]) == ("false", LATE)
        timeline = orjson.loads(g.records.journal.timeline(refusal.request_id) or b"")
        assert (timeline["message"], timeline["retry_after_s"]) == (LATE, None)


async def test_a_refused_client_that_comes_back_is_known_again() -> None:
    async with gateway(grants=False) as g, client(g) as http:
        for number in (1, 2):
            asking = asyncio.create_task(http.post(PATH, content=body(), headers={"x-slo-on-miss": "refuse"}))
            await g.until(lambda number=number: len(g.workers.submits) >= number)  # type: ignore[misc]
            await refused(g, retry_after_s=0.0)
            assert (await asking).status_code == 429
        assert [submit.promised for _, submit in g.workers.submits] == [False, True]
