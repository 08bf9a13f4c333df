"""The costs that a mesh predicted beside those that its workers measured, from the recording of its prediction service.
Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from sys import maxsize
from typing import get_type_hints

from hmas.contracts.cognition import AnswerCall, CallReceived
from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.request import Cost
from hmas.laws.recording import classes_of, parse_step
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.open_requests import OpenRequests

COSTS = ("prefill", "decode")
LEAST_ALIKE = 5
_LEAST_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRequest:
    """A request that finished. Its cost was predicted when `settled` requests of its worker had finished and corrected
    the predictions. `running` requests were in the engine then. Times are in s: `said_` as predicted and corrected, the
    others as the worker measured them; `decode` is the time per output token, 0 for an answer of one token."""

    worker: str
    settled: int
    prompt_tokens: int
    running: int
    said_prefill_s: float
    prefill_s: float
    said_decode_s: float
    decode_s: float

    def error(self, cost: str) -> float | None:
        """Returns |log(predicted / measured)| of "prefill" or "decode"; None if it was not measured."""
        said_s, measured_s = (
            (self.said_prefill_s, self.prefill_s) if cost == "prefill" else (self.said_decode_s, self.decode_s)
        )
        return abs(log(max(said_s, _LEAST_S) / measured_s)) if measured_s > 0.0 else None


def settled_requests(lines: Iterable[str]) -> list[SettledRequest]:
    """Reads the requests that finished from the lines of a recording of prediction's agent, in the order in which they
    finished. Raises RecordingError if a line is no step of it."""
    classes = classes_of(*get_type_hints(PredictionAgent.step).values())
    calls: dict[int, tuple[PredictItem, ...]] = {}
    open_: OpenRequests[tuple[PredictItem, Cost, int]] = OpenRequests(maxsize)
    settled: Counter[str] = Counter()
    found = []
    for number, line in enumerate(lines):
        if number == 0 or not line.endswith("\n"):
            continue  # the origin; a line in which the process ended
        _, event, effects = parse_step(line, classes)
        match event:
            case CallReceived(call, items):
                calls[call] = items
            case WorkerReported(telemetry):
                for finished in telemetry.finished:
                    known = open_.ended(telemetry.pool, finished)
                    if known is None:
                        continue
                    item, said, before = known
                    settled[item.worker] += 1
                    found.append(
                        SettledRequest(
                            worker=item.worker, settled=before, prompt_tokens=item.query.prompt_tokens,
                            running=item.query.running, said_prefill_s=said.ttft_s, prefill_s=finished.own_prefill_s,
                            said_decode_s=said.tpot_s,
                            decode_s=finished.tpot_s if finished.output_tokens > 1 else 0.0,
                        )
                    )  # fmt: skip
        for effect in effects:
            if isinstance(effect, AnswerCall):
                for item, cost in zip(calls.pop(effect.call), effect.answers, strict=True):
                    open_.add(item.request_id, item.query.kind, (item, cost, settled[item.worker]))
    return found


def median_error(requests: Sequence[SettledRequest], cost: str, least: int, below: int | None = None) -> float | None:
    """Returns the median error of `cost` over the requests that were predicted after at least `least` and, if it is
    given, fewer than `below` requests had settled at their worker; None without any."""
    errors = [
        error
        for request in requests
        if request.settled >= least and (below is None or request.settled < below)
        if (error := request.error(cost)) is not None
    ]
    return median(errors) if errors else None


def decode_floor(requests: Sequence[SettledRequest], least: int) -> float | None:
    """Returns the median error that the times per token of the requests predicted after `least` settled ones would have
    if each were predicted as the median of all those that had as many requests beside them at arrival: it knows the
    future, so that no prediction from that number alone does much better. Numbers that fewer than `LEAST_ALIKE`
    requests had are left out; None without any."""
    by_running: defaultdict[int, list[float]] = defaultdict(list)
    for request in requests:
        if request.settled >= least and request.decode_s > 0.0:
            by_running[request.running].append(log(request.decode_s))
    groups = [logs for logs in by_running.values() if len(logs) >= LEAST_ALIKE]
    errors = [abs(each - median(logs)) for logs in groups for each in logs]
    return median(errors) if errors else None
