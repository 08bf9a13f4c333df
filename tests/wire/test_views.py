"""Views as text, in the audit of decisions."""

import json
from dataclasses import asdict, replace

from hmas.contracts.control import AuditRecord
from hmas.contracts.views import MAX_VIEW_CHARS, ShareView, view_json
from hmas.wire import codec
from hmas.wire.limits import MAX_FEW, MAX_NAME_CHARS
from tests.meta.test_meta_agent import CALM


def share(name: str) -> ShareView:
    return ShareView(name=name, offered=1, settled=1, ok=1, ttft_ok=1, tpot_ok=1, tokens_served=1, weight=1.0)


def test_a_view_is_its_fields() -> None:
    assert view_json(None) == "{}"
    told = json.loads(json.dumps(asdict(CALM)))
    del told["demands"]
    assert json.loads(view_json(CALM)) == told


def test_the_longest_names_that_may_be_leave_a_view_that_can_be_sent() -> None:
    shares = tuple(share(f"{i:04}" + "é" * (MAX_NAME_CHARS - 4)) for i in range(MAX_FEW))
    text = view_json(replace(CALM, tasks=shares[:9], tenants=shares))
    assert json.loads(text)["left_out"] == ["tenants"]
    assert len(json.loads(text)["tasks"]) == 9
    assert len(text) <= MAX_VIEW_CHARS
    stamps = {"epoch": 1, "seq": 1}
    record = AuditRecord(
        source="meta", pool="m", kind="topology", decision="edf", reason="", selector="rules", view_json=text, **stamps
    )
    assert codec.decode(AuditRecord, codec.encode(record)) == record
