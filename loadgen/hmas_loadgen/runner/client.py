"""Sends single requests, reads their answers' streams and returns their records."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.laws.slo import DEFAULT_IMPORTANCE, default_slo
from hmas_loadgen.body import RequestBuilder
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.prompts import PromptBuilder
from hmas_loadgen.record import CUT_OFF, RequestRecord
from hmas_loadgen.runner.balance import LeastOutstanding
from hmas_loadgen.runner.http import ConnectionFailed, HttpClient, Origin
from hmas_loadgen.runner.meter import StreamMeter
from hmas_loadgen.runner.outcomes import MAX_ERROR_BYTES, outcome_of, refusal
from hmas_loadgen.traces.row import TraceRow


class StreamedAnswer:
    """One answer while it arrives: counts and times the tokens of a stream, and keeps the start of an error's body. The
    HTTP client calls `head` and `body`; `judge` then sets `outcome`, `error` and `message`."""

    __slots__ = ("error", "message", "meter", "outcome", "refusal", "start_s", "status", "tokens")

    def __init__(self, start_s: float, tokens: Callable[[int], None]) -> None:
        self.start_s = start_s
        self.tokens = tokens
        self.meter = StreamMeter()
        self.status = 0
        self.refusal = b""
        self.outcome = Outcome.ENGINE_ERROR
        self.error = ""
        self.message = ""

    def head(self, status: int) -> None:
        self.status = status

    def body(self, at_s: float, chunk: bytes) -> None:
        if self.status == 200:
            self.tokens(self.meter.feed(at_s - self.start_s, chunk))
        elif len(self.refusal) < MAX_ERROR_BYTES:
            self.refusal += chunk

    def judge(self) -> None:
        """Decides the outcome of an answer that has ended: a refusal, a finished stream, a stream that carried an
        error, or one that broke off."""
        if self.status != 200:
            self.outcome, self.error, self.message = refusal(self.status, self.refusal)
            return
        end = self.meter.end()
        if end.complete:
            self.outcome = Outcome.FINISHED
        elif end.error_code or end.error_message:
            self.outcome = outcome_of(end.error_code)
            self.error, self.message = f"stream {end.error_code}".strip(), end.error_message
        else:
            self.outcome, self.error = Outcome.ENGINE_ERROR, "stream broke off"


class LoadClient:
    """Sends the requests of one sender process. Instants are seconds since `start_s`, which is on the monotonic
    clock."""

    def __init__(self, plan: LoadPlan, prompts: PromptBuilder, run_id: str, start_s: float) -> None:
        self._requests = RequestBuilder(plan)
        self._prompts = prompts
        self._run_id = run_id
        self._start_s = start_s
        self._timeout_s = plan.timeout_s
        self._http = HttpClient()
        self._urls = plan.target.base_urls
        self._origins = [Origin.of(url) for url in self._urls]
        self._balance = LeastOutstanding(len(self._urls))
        self.tokens = 0  # stream events with tokens received so far, for the progress display

    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    def close(self) -> None:
        self._http.close()

    async def send(self, index: int, row: TraceRow) -> RequestRecord:
        """Sends request `index` and returns its record when the answer has ended. It never raises for a failed request:
        even cancellation, which cuts requests off at the end of the run, gives a record."""
        request_id = f"{self._run_id}-{index}"
        body = self._requests.body(row, "" if row.call is not None else self._prompts.text(index, row))
        headers = self._requests.headers(row, request_id)
        target = self._balance.take()
        answer = StreamedAnswer(self._start_s, self._count)
        sent_s = self.now_s()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._http.post(self._origins[target], self._requests.path, headers, body, answer)
            answer.judge()
        except asyncio.CancelledError:
            answer.outcome, answer.error = Outcome.CANCELLED, CUT_OFF
            answer.message = "unfinished when the run ended"
        except TimeoutError:
            answer.outcome, answer.error = Outcome.TIMED_OUT, "client time-out"
        except ConnectionFailed as error:
            answer.outcome, answer.error, answer.message = Outcome.ENGINE_ERROR, "connection failed", str(error)[:200]
        finally:
            self._balance.release(target)
        return self._record(index, row, request_id, sent_s, self._urls[target], answer)

    def _count(self, tokens: int) -> None:
        self.tokens += tokens

    def _record(
        self,
        index: int,
        row: TraceRow,
        request_id: str,
        sent_s: float,
        base_url: str,
        answer: StreamedAnswer,
    ) -> RequestRecord:
        end = answer.meter.end()
        return RequestRecord(
            index=index,
            request_id=request_id,
            tenant=row.tenant or "",
            task=row.task or TaskType.UNKNOWN,
            slo=slo_of(row),
            prompt_tokens=row.input_tokens,
            expected_output_tokens=row.output_tokens,
            scheduled_s=row.arrival_s,
            sent_s=sent_s,
            end_s=self.now_s(),
            outcome=answer.outcome,
            status=answer.status,
            error=answer.error,
            message=answer.message,
            base_url=base_url,
            output_tokens=end.output_tokens,
            first_token_s=end.times_s[0] if end.times_s else None,
            last_token_s=end.times_s[-1] if end.times_s else None,
            token_times_s=end.times_s,
            **_job_of(row),
        )


def _job_of(row: TraceRow) -> dict[str, Any]:
    call = row.call
    return {} if call is None else {"job": call.job, "template": call.template, "job_budget_s": call.budget_s}


def slo_of(row: TraceRow) -> Slo:
    """Returns the SLO that a row is scored by: its own, otherwise the default of its task type."""
    return row.slo or default_slo(row.task or TaskType.UNKNOWN, row.importance or DEFAULT_IMPORTANCE)


def unsent(index: int, row: TraceRow, outcome: Outcome, error: str, at_s: float) -> RequestRecord:
    """Returns the record of a request that was never sent, which counts as offered all the same. `at_s` is the instant,
    seconds since the run's start, at which it was given up."""
    return RequestRecord(
        index=index,
        request_id="",
        tenant=row.tenant or "",
        task=row.task or TaskType.UNKNOWN,
        slo=slo_of(row),
        prompt_tokens=row.input_tokens,
        expected_output_tokens=row.output_tokens,
        scheduled_s=row.arrival_s,
        sent_s=max(at_s, row.arrival_s),
        end_s=max(at_s, row.arrival_s),
        outcome=outcome,
        error=error,
        **_job_of(row),
    )
