"""What a gateway tells of its requests: each in full, in batches."""

from dataclasses import replace
from typing import Any

from hmas.contracts.gateway import PublishGatewayTelemetry
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.gateway.agent.config import (
    GatewayConfig,
)
from hmas.gateway.agent.requests.batches import Batches, Ending
from tests.gateway.gateway_script import annotation, ledger_entry

CONFIG = GatewayConfig(gateway="g", incarnation="i")


def test_telemetry_tells_each_request_in_full() -> None:
    batches = Batches(replace(CONFIG, telemetry_s=0.5, telemetry_events=4))
    entry = ledger_entry("r1", arrival_s=1.0, max_tokens=77, weight=2.0, priority=3, relegate=True)
    entry.job = "j"
    batches.offer(1.0, entry)
    assert batches.due(1.25) == []
    (first,) = batches.due(1.5)
    assert batches.due(9.0) == []
    (offered,) = first.telemetry.offered
    assert (offered.request_id, offered.prompt_tokens, offered.age_s, offered.weight) == ("r1", 800, 0.5, 2.0)
    assert (offered.max_tokens, offered.priority, offered.relegate, offered.job) == (77, 3, True, "j")
    entry.annotation = annotation(120.0, slo=Slo(9.0, 9.0))
    entry.relegated = entry.promised = True
    entry.first_token_s, entry.granted_s = 3.0, 2.0
    batches.settle(5.0, entry, Ending(outcome=Outcome.FINISHED, message="", output_tokens=30, tpot_s=0.0625))
    (effect,) = batches.flush(5.25)
    (settled,) = effect.telemetry.settled
    assert (settled.ttft_s, settled.tpot_s, settled.last_token_s, settled.age_s) == (2.0, 0.0625, 4.0, 0.25)
    assert (settled.prompt_tokens, settled.output_tokens) == (800, 30)
    assert (settled.predicted_output_tokens, settled.predicted_output_tokens_p90) == (120.0, 240.0)
    assert (settled.relegated, settled.promised, settled.task, settled.confidence) == (True, True, TaskType.QA, 0.9)
    assert settled.slo == entry.request.slo


def test_telemetry_of_ends_that_differ() -> None:
    def told(ending: Ending, **changes: Any) -> Any:
        batches = Batches(CONFIG)
        entry = ledger_entry("r1", arrival_s=1.0, slo=Slo(2.0, 0.1, whole=True), **changes)
        entry.granted_s = 2.0
        batches.settle(5.0, entry, ending)
        (effect,) = batches.flush(5.0)
        assert isinstance(effect, PublishGatewayTelemetry)
        return effect.telemetry.settled[0]

    failed = told(Ending(outcome=Outcome.ENGINE_ERROR, message="", tpot_s=0.5))
    assert (failed.ttft_s, failed.tpot_s, failed.last_token_s) == (None, None, None)
    assert (failed.tagged_by, failed.task, failed.confidence) == (None, TaskType.UNKNOWN, 0.0)
    assert failed.predicted_output_tokens == CONFIG.prior.output_tokens
    whole = told(Ending(outcome=Outcome.FINISHED, message="", prompt_tokens=790))
    assert (whole.ttft_s, whole.prompt_tokens) == (4.0, 790)
    assert told(Ending(outcome=Outcome.FINISHED, message=""), stream=False).ttft_s is None
    uncounted = told(Ending(outcome=Outcome.FINISHED, message="", counted=False))
    assert (uncounted.ttft_s, uncounted.slo.whole, whole.slo.whole) == (1.0, False, True)
    embedding = told(Ending(outcome=Outcome.FINISHED, message=""), max_tokens=0)
    assert embedding.predicted_output_tokens == 0.0


def test_a_full_batch_is_closed_with_what_was_offered_and_settled() -> None:
    batches = Batches(replace(CONFIG, telemetry_events=3))
    ending = Ending(outcome=Outcome.CANCELLED, message="")
    batches.offer(0.0, ledger_entry("r1"))
    batches.settle(0.0, ledger_entry("r1"), ending)
    assert batches.full() == []
    batches.offer(0.0, ledger_entry("r2"))
    (effect,) = batches.full()
    assert (len(effect.telemetry.offered), len(effect.telemetry.settled)) == (2, 1)
    assert batches.full() == []
    assert batches.flush(9.0) == []
