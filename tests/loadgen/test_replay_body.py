"""Nothing that a scheduler may read depends on a request's true output length."""

from dataclasses import replace

import orjson
import pytest

from hmas.contracts.request import Slo
from hmas_loadgen.body import RequestBuilder
from hmas_loadgen.plan import Api, Lengths, LoadPlan, Target
from hmas_loadgen.prompts import PromptBuilder
from hmas_loadgen.traces.row import Trace, TraceRow

ROWS = tuple(
    TraceRow(arrival_s=float(i), input_tokens=40, output_tokens=n, slo=Slo(4.0, 0.07))
    for i, n in enumerate((1, 17, 700, 1500))
)


def plan(lengths: Lengths, rows: tuple[TraceRow, ...] = ROWS, **target: object) -> LoadPlan:
    fields = {"base_urls": ("http://h:1",), "model": "m", "lengths": lengths} | target
    return LoadPlan(name="p", trace=Trace(name="t", rows=rows), target=Target(**fields))  # type: ignore[arg-type]


def bodies(chosen: LoadPlan) -> list[dict[str, object]]:
    requests = RequestBuilder(chosen)
    prompts = PromptBuilder(1, chosen.target.api, 512)
    return [orjson.loads(requests.body(row, prompts.text(i, row))) for i, row in enumerate(chosen.trace.rows)]


@pytest.mark.parametrize("lengths", [Lengths.REPLAY_FIELD, Lengths.NATURAL])
def test_only_the_opaque_field_knows_the_length(lengths: Lengths) -> None:
    shuffled = tuple(replace(row, output_tokens=n) for row, n in zip(ROWS, (1500, 1, 3, 4), strict=True))
    for a, b in zip(bodies(plan(lengths)), bodies(plan(lengths, shuffled)), strict=True):
        field_a, field_b = a.pop("hmas_replay", None), b.pop("hmas_replay", None)
        assert a == b
        assert (field_a is not None) == (field_b is not None) == (lengths is Lengths.REPLAY_FIELD)


def test_all_requests_of_a_replay_carry_the_same_generous_max_tokens() -> None:
    found = bodies(plan(Lengths.REPLAY_FIELD))
    assert {body["max_tokens"] for body in found} == {2048}
    assert [body["hmas_replay"] for body in found] == [{"output_tokens": row.output_tokens} for row in ROWS]
    assert not {"min_tokens", "ignore_eos"} & set().union(*found)


def test_headers_do_not_know_the_length_either_and_slos_go_only_when_asked() -> None:
    for send_slo in (False, True):
        requests = RequestBuilder(plan(Lengths.REPLAY_FIELD, send_slo=send_slo, api_key="k"))
        headers = [requests.headers(row, "id") for row in ROWS]
        assert all(found == headers[0] for found in headers)
        assert ("x-slo-ttft-ms" in headers[0]) is send_slo
    assert headers[0]["x-slo-ttft-ms"] == "4000"
    assert headers[0]["x-slo-tpot-ms"] == "70"


def test_direct_asks_the_engine_for_exactly_that_length() -> None:
    body = bodies(plan(Lengths.DIRECT))[2]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"]) == (700, 700, True)


def test_apis_keys_and_extras() -> None:
    chosen = plan(
        Lengths.NATURAL,
        api=Api.COMPLETIONS,
        tenant_keys={"acme": "sk-acme"},
        api_key="sk-rest",
        headers={"x-team": "q"},
        body={"temperature": 0, "max_tokens": 5},
    )
    body = bodies(chosen)[0]
    assert isinstance(body["prompt"], str)
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0, 5, True)
    requests = RequestBuilder(chosen)
    assert requests.path == "/v1/completions"
    assert requests.headers(replace(ROWS[0], tenant="acme"), "i")["Authorization"] == "Bearer sk-acme"
    assert requests.headers(ROWS[0], "i") == {
        "Content-Type": "application/json",
        "X-Request-Id": "i",
        "Authorization": "Bearer sk-rest",
        "x-team": "q",
    }


def test_a_plan_never_writes_its_secrets() -> None:
    chosen = plan(Lengths.NATURAL, tenant_keys={"acme": "sk-1"}, api_key="sk-2", headers={"Authorization": "sk-3"})
    assert "sk-" not in repr(chosen.config())


def test_bad_plans_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="must start with http"):
        plan(Lengths.NATURAL, base_urls=("localhost:8000",))
    with pytest.raises(ValueError, match="at least one base URL"):
        plan(Lengths.NATURAL, base_urls=())
    with pytest.raises(ValueError, match="max_tokens 10 must be at least 1500"):
        replace(plan(Lengths.NATURAL), max_tokens=10)
    with pytest.raises(ValueError, match="must lie in"):
        replace(plan(Lengths.NATURAL), warmup_s=99.0)
    with pytest.raises(ValueError, match="has no requests"):
        plan(Lengths.NATURAL, ())


def test_fingerprints_tell_plans_apart() -> None:
    a = plan(Lengths.NATURAL)
    assert a.fingerprint() == plan(Lengths.NATURAL).fingerprint()
    assert a.fingerprint() != plan(Lengths.DIRECT).fingerprint()
    assert a.fingerprint() != plan(Lengths.NATURAL, ROWS[:3]).fingerprint()
