"""Sends one request, reads its stream, returns its record."""

import asyncio
import time
from collections.abc import Callable, Mapping

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
    """One answer as it arrives: counts a stream's tokens, keeps the start of an error's body."""

    __slots__ = ("error", "message", "meter", "outcome", "reason", "refusal", "start_s", "status", "tokens")

    def __init__(self, start_s: float, tokens: Callable[[int], None]) -> None:
        self.start_s = start_s
        self.tokens = tokens
        self.meter = StreamMeter()
        self.status = 0
        self.reason: str | None = None
        self.refusal = b""
        self.outcome = Outcome.ENGINE_ERROR
        self.error = ""
        self.message = ""

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.reason = headers.get("x-hmas-reason")

    def body(self, at_s: float, chunk: bytes) -> None:
        if self.status == 200:
            self.tokens(self.meter.feed(at_s - self.start_s, chunk))
        elif len(self.refusal) < MAX_ERROR_BYTES:
            self.refusal += chunk

    def judge(self) -> None:
        """A whole answer: a refusal, a finished stream, one that carried an error, or one that broke off."""
        if self.status != 200:
            self.outcome, self.error, self.message = refusal(self.status, self.reason, self.refusal)
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
    """Sends for one shard of a run. Instants are relative to `start_s` on the monotonic clock."""

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
        self.tokens = 0  # token events received, for progress

    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    def close(self) -> None:
        self._http.close()

    async def send(self, index: int, row: TraceRow) -> RequestRecord:
        """Always returns a record; cancellation (the cut-off after the window) is one of its outcomes."""
        request_id = f"{self._run_id}-{index}"
        body = self._requests.body(row, self._prompts.text(index, row))
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
        )


def slo_of(row: TraceRow) -> Slo:
    """What the row is judged by: its own SLO, else its task type's."""
    return row.slo or default_slo(row.task or TaskType.UNKNOWN, row.importance or DEFAULT_IMPORTANCE)


def unsent(index: int, row: TraceRow, outcome: Outcome, error: str, at_s: float) -> RequestRecord:
    """The record of a request that never left: it counts as offered all the same."""
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
    )
