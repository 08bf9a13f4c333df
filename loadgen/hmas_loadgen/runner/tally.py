"""Counts the requests of a running load run for its progress display, and decides whether a run is valid."""

import statistics
from collections import deque
from collections.abc import Sequence

from hmas.contracts.outcome import Outcome
from hmas.laws.scoring import is_ok
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.record import RequestRecord, RunProgress
from hmas_loadgen.result import INTERRUPTED
from hmas_loadgen.runner.openloop import LIMIT_ERROR
from hmas_loadgen.scoring import settlement

MAX_MEDIAN_LAG_S = 0.010
RECENT = 512
LOST_ERROR = "sender process died"


class Tally:
    """Counts the records of a run. `snapshot` returns the counts, and rates since the previous snapshot."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._finished = self._failed = self._ok = 0
        self._lags: deque[float] = deque(maxlen=RECENT)
        self._before = (0.0, 0, 0, 0)  # elapsed, sent, ended, tokens

    def add(self, record: RequestRecord) -> None:
        done = record.outcome is Outcome.FINISHED
        self._finished += done
        self._failed += not done
        self._ok += is_ok(settlement(record, self._plan.target.model))
        self._lags.append(record.lag_s)

    def snapshot(self, elapsed_s: float, sent: int, tokens: int) -> RunProgress:
        ended = self._finished + self._failed
        at, sent_before, ended_before, tokens_before = self._before
        interval = max(elapsed_s - at, 1e-6)
        self._before = (elapsed_s, sent, ended, tokens)
        return RunProgress(
            elapsed_s=elapsed_s,
            window_s=self._plan.offered_s,
            planned=len(self._plan.trace.rows),
            sent=sent,
            finished=self._finished,
            failed=self._failed,
            in_flight=max(0, sent - ended),
            send_rps=(sent - sent_before) / interval,
            finish_rps=(ended - ended_before) / interval,
            token_rps=(tokens - tokens_before) / interval,
            ok=self._ok,
            lag_p50_s=statistics.median(self._lags) if self._lags else 0.0,
        )


def invalid_reasons(records: Sequence[RequestRecord], interrupted: bool, lag_p50_s: float) -> tuple[str, ...]:
    """Returns the reasons why a run is invalid, because it did not measure the server alone; empty for a valid run."""
    reasons: list[str] = []
    if lag_p50_s > MAX_MEDIAN_LAG_S:
        reasons.append(
            f"generator too slow: median lag {lag_p50_s * 1000:.1f} ms exceeds {MAX_MEDIAN_LAG_S * 1000:.0f} ms"
        )
    if interrupted:
        reasons.append(INTERRUPTED)
    for error in (LIMIT_ERROR, LOST_ERROR):
        count = sum(record.error == error for record in records)
        if count:
            reasons.append(f"{count} requests were not sent: {error}")
    return tuple(reasons)
