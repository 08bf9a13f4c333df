from dataclasses import replace

import pytest

from hmas.contracts.request import Slo
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai.tiers import ServiceTier
from hmas.gateway.tenants.terms import (
    SloBounds,
    Tenant,
    client_request_id,
    read_headers,
    terms_of,
    traceparent,
)

PLAIN = Tenant(name="acme")
WITH_SLO = Tenant(name="acme", ttft_s=1.0, tpot_s=0.05)


@pytest.mark.parametrize(
    ("headers", "tenant", "stream", "slo", "stated"),
    [
        ({}, PLAIN, True, Slo(6.0, 0.1), False),  # Table 6, f(0.75) = 1
        ({}, PLAIN, False, Slo(6.0, 0.1, None, True), False),
        ({}, Tenant(name="acme", importance=1.0), True, Slo(4.8, 0.08), False),
        ({}, WITH_SLO, True, Slo(1.0, 0.05), True),
        ({}, Tenant(name="acme", ttlt_s=9.0), True, Slo(6.0, 0.1, 9.0, True), True),
        ({b"x-slo-ttft-ms": b"500"}, PLAIN, True, Slo(0.5, 0.1), True),
        ({b"x-slo-ttft-ms": b"500", b"x-llm-d-slo-ttft-ms": b"250.5"}, PLAIN, True, Slo(0.2505, 0.1), True),
        ({b"x-llm-d-slo-tpot-ms": b"20"}, WITH_SLO, True, Slo(1.0, 0.02), True),
        ({b"x-slo-ttlt-ms": b"30000"}, WITH_SLO, True, Slo(1.0, 0.05, 30.0, True), True),
        ({b"x-slo-ttlt-ms": b"3e4", b"x-slo-tpot-ms": b"20"}, PLAIN, True, Slo(6.0, 0.02, 30.0), True),
        ({b"x-slo-ttft-ms": b"500"}, PLAIN, False, Slo(0.5, 0.1, None, True), True),
    ],
)
def test_slos(headers: dict[bytes, bytes], tenant: Tenant, stream: bool, slo: Slo, stated: bool) -> None:
    terms = terms_of(headers, tenant, None, stream=stream)
    assert (terms.slo, terms.slo_stated) == (slo, stated)


@pytest.mark.parametrize(
    ("ceiling", "body", "header", "priority"),
    [(0, None, None, 0), (0, -5, None, 0), (-2, -5, None, -2), (-2, 7, None, 7), (3, None, None, 3), (0, 1, b"9", 9)],
)
def test_priority_is_clamped(ceiling: int, body: int | None, header: bytes | None, priority: int) -> None:
    headers = {} if header is None else {b"x-priority": header}
    assert terms_of(headers, Tenant(name="acme", priority_ceiling=ceiling), body, stream=True).priority == priority


@pytest.mark.parametrize(
    ("tier", "slo", "priority"),
    [
        ("default", Slo(6.0, 0.1), 0),
        ("flex", Slo(4 * 7.2, 4 * 0.12), 1_000_000),  # f(0.5) = 1.2
        ("priority", Slo(4.8, 0.08), -5),  # f(1) = 0.8
    ],
)
def test_service_tiers_are_classes_within_the_tenants_bounds(tier: str, slo: Slo, priority: int) -> None:
    tenant = Tenant(name="acme", priority_ceiling=-5)
    terms = terms_of({}, tenant, None, stream=True, tier=ServiceTier(tier))
    assert (terms.slo, terms.priority) == (slo, priority)
    assert terms.slo_stated is (tier == "flex")  # so that perception's task type does not make it strict again


def test_what_is_stated_outranks_the_tier_and_bounds_hold_for_it() -> None:
    flex = ServiceTier.FLEX
    assert terms_of({b"x-slo-ttft-ms": b"500"}, PLAIN, 3, stream=True, tier=flex).slo.ttft_s == 0.5
    assert terms_of({}, PLAIN, 3, stream=True, tier=flex).priority == 3
    assert terms_of({}, PLAIN, None, stream=True, tier=ServiceTier.PRIORITY).priority == 0  # its ceiling
    bounded = Tenant(name="acme", ttft_s=1.0, tpot_s=0.05, slo_bounds=SloBounds(ttft_s=(None, 2.5)))
    assert terms_of({}, bounded, None, stream=True, tier=flex).slo == Slo(2.5, 0.2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-slo-ttft-ms", b"-1"),
        (b"x-slo-ttft-ms", b"0"),
        (b"x-slo-ttft-ms", b"nan"),
        (b"x-slo-ttft-ms", b"inf"),
        (b"x-slo-ttft-ms", b"1e300"),
        (b"x-slo-ttft-ms", b""),
        (b"x-llm-d-slo-tpot-ms", b"fast"),
        (b"x-slo-ttlt-ms", b"\xff"),
        (b"x-hmas-importance", b"2"),
        (b"x-priority", b"1.5"),
        (b"x-llm-d-priority", b"99999999999"),
        (b"x-llm-d-inference-fairness-id", b"a b"),
        (b"x-gateway-inference-fairness-id", b"a" * 200),
    ],
)
def test_a_bad_header_is_named(name: bytes, value: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        terms_of({name: value}, PLAIN, None, stream=True)
    assert caught.value.error.status == 400
    assert caught.value.error.param == name.decode()


def test_flow_and_importance() -> None:
    headers = {b"x-gateway-inference-fairness-id": b"old", b"x-llm-d-inference-fairness-id": b"new"}
    assert terms_of(headers, PLAIN, None, stream=True).flow == "new"
    assert terms_of({}, PLAIN, None, stream=True).flow == "default"
    assert terms_of({b"x-hmas-importance": b"0.5"}, PLAIN, None, stream=True).slo == Slo(7.2, 0.12)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b"abc-1:2.3_X", "abc-1:2.3_X"),
        (b"", None),
        (b"a b", None),
        (b"a" * 129, None),
        (b"a\r\nb", None),
        (b"\xc3", None),
    ],
)
def test_request_ids_of_clients(value: bytes, read: str | None) -> None:
    assert client_request_id({b"x-request-id": value}) == read
    assert client_request_id({}) is None


def test_headers_are_read_once_and_the_first_counts() -> None:
    raw = [(b"host", b"h"), (b"x-request-id", b"one"), (b"x-request-id", b"two"), (b"traceparent", b"junk")]
    headers = read_headers(raw)
    assert headers == {b"x-request-id": b"one", b"traceparent": b"junk"}
    assert traceparent(headers) == ""
    good = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    assert traceparent({b"traceparent": good}) == good.decode()


@pytest.mark.parametrize(
    "value", [b"1_000", b" 5", b"5 ", b"0x10", b"1e", b"1e9999", b"5\n", b"1.2.3", b"\xd9\xa1", b"1" * 400]
)
def test_a_number_in_a_header_is_written_as_usual(value: bytes) -> None:
    for name in (b"x-slo-ttft-ms", b"x-slo-tpot-ms", b"x-slo-ttlt-ms", b"x-hmas-importance", b"x-priority"):
        with pytest.raises(InvalidRequest) as caught:
            terms_of({name: value}, PLAIN, None, stream=True)
        assert caught.value.error.param == name.decode()


BOUNDED = Tenant(
    name="acme", ttft_s=0.1, slo_bounds=SloBounds(ttft_s=(0.5, 10.0), tpot_s=(0.02, None), ttlt_s=(None, 60.0))
)


@pytest.mark.parametrize(
    ("headers", "slo", "clamped"),
    [
        ({b"x-slo-ttft-ms": b"1"}, Slo(0.5, 0.1), "ttft_ms=500"),
        ({b"x-slo-ttft-ms": b"20000"}, Slo(10.0, 0.1), "ttft_ms=10000"),
        ({b"x-slo-ttft-ms": b"500"}, Slo(0.5, 0.1), ""),
        ({b"x-slo-ttft-ms": b"2", b"x-llm-d-slo-tpot-ms": b"1"}, Slo(0.5, 0.02), "ttft_ms=500; tpot_ms=20"),
        ({b"x-slo-ttlt-ms": b"70000"}, Slo(0.1, 0.1, 60.0, True), "ttlt_ms=60000"),
        ({}, Slo(0.1, 0.1), ""),  # the tenant's own SLO is the operator's
    ],
)
def test_stated_slos_stay_within_the_tenants_bounds(headers: dict[bytes, bytes], slo: Slo, clamped: str) -> None:
    terms = terms_of(headers, BOUNDED, None, stream=True)
    assert (terms.slo, terms.clamped) == (slo, clamped)


@pytest.mark.parametrize(
    ("tenant_takes", "asked", "relegate", "clamped"),
    [
        (True, None, True, ""),
        (True, b"refuse", False, ""),
        (True, b"relegate", True, ""),
        (False, None, False, ""),
        (False, b"refuse", False, ""),
        (False, b"relegate", False, "on_miss=refuse"),
    ],
)
def test_a_client_may_ask_for_a_refusal_and_not_out_of_its_tenants(
    tenant_takes: bool, asked: bytes | None, relegate: bool, clamped: str
) -> None:
    headers = {} if asked is None else {b"x-slo-on-miss": asked}
    terms = terms_of(headers, replace(PLAIN, relegate=tenant_takes), None, stream=True)
    assert (terms.relegate, terms.clamped) == (relegate, clamped)


def test_no_other_wish_for_late_answers_is_taken() -> None:
    with pytest.raises(InvalidRequest, match="`x-slo-on-miss` must be `refuse` or `relegate`"):
        terms_of({b"x-slo-on-miss": b"drop"}, PLAIN, None, stream=True)
