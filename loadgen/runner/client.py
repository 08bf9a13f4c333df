"""Sends one request, reads its stream, returns its record."""

import asyncio
import time
from dataclasses import dataclass

import aiohttp

from loadgen.body import RequestBuilder
from loadgen.plan import LoadPlan
from loadgen.prompts import PromptBuilder
from loadgen.record import RequestRecord
from loadgen.runner.balance import LeastOutstanding
from loadgen.runner.meter import StreamEnd, StreamMeter
from loadgen.runner.outcomes import MAX_ERROR_BYTES, outcome_of, refusal
from loadgen.traces.row import TraceRow
from services.contracts.outcome import Outcome
from services.contracts.request import Slo, TaskType
from services.contracts.slo import DEFAULT_IMPORTANCE, default_slo

CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 3.0  # less than servers grant (5 s is common), so that no request meets a closing connection


@dataclass(slots=True)
class Answer:
    """What is known about an answer so far; filled while it arrives."""

    status: int = 0
    outcome: Outcome = Outcome.ENGINE_ERROR
    error: str = ""
    message: str = ""
    end: StreamEnd | None = None


class LoadClient:
    """One HTTP session for a shard of a run. Instants are relative to `start_s` on the monotonic clock."""

    def __init__(
        self, plan: LoadPlan, prompts: PromptBuilder, run_id: str, start_s: float, session: aiohttp.ClientSession
    ) -> None:
        self._requests = RequestBuilder(plan)
        self._prompts = prompts
        self._run_id = run_id
        self._start_s = start_s
        self._session = session
        self._balance = LeastOutstanding(plan.target.base_urls)
        self.tokens = 0  # token events received, for progress

    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    async def send(self, index: int, row: TraceRow) -> RequestRecord:
        """Always returns a record; cancellation (the cut-off after the window) is one of its outcomes."""
        request_id = f"{self._run_id}-{index}"
        body = self._requests.body(row, self._prompts.text(index, row))
        headers = self._requests.headers(row, request_id)
        target = self._balance.take()
        answer = Answer()
        meter = StreamMeter()
        sent_s = self.now_s()
        try:
            await self._exchange(self._balance.url(target), headers, body, answer, meter)
        except asyncio.CancelledError:
            answer.outcome, answer.error = Outcome.CANCELLED, "cut off"
            answer.message = "unfinished when the run ended"
        except TimeoutError:
            answer.outcome, answer.error = Outcome.TIMED_OUT, "client time-out"
        except (aiohttp.ClientError, OSError) as error:
            answer.outcome, answer.error = Outcome.ENGINE_ERROR, f"connection {type(error).__name__}"
            answer.message = str(error)[:200]
        finally:
            self._balance.release(target)
        end = answer.end or meter.end()
        return self._record(index, row, request_id, sent_s, self._balance.url(target), answer, end)

    async def _exchange(
        self, base_url: str, headers: dict[str, str], body: bytes, answer: Answer, meter: StreamMeter
    ) -> None:
        async with self._session.post(base_url + self._requests.path, data=body, headers=headers) as response:
            answer.status = response.status
            if response.status != 200:
                content = await response.content.read(MAX_ERROR_BYTES)
                reason = response.headers.get("x-hmas-reason")
                answer.outcome, answer.error, answer.message = refusal(response.status, reason, content)
                return
            async for chunk in response.content.iter_any():
                self.tokens += meter.feed(self.now_s(), chunk)
            _judge(answer, meter.end())

    def _record(
        self,
        index: int,
        row: TraceRow,
        request_id: str,
        sent_s: float,
        base_url: str,
        answer: Answer,
        end: StreamEnd,
    ) -> RequestRecord:
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


def _judge(answer: Answer, end: StreamEnd) -> None:
    """A stream that arrived with status 200 finished, carried an error, or broke off."""
    answer.end = end
    if end.complete:
        answer.outcome = Outcome.FINISHED
    elif end.error_code or end.error_message:
        answer.outcome = outcome_of(end.error_code)
        answer.error, answer.message = f"stream {end.error_code}".strip(), end.error_message
    else:
        answer.outcome, answer.error = Outcome.ENGINE_ERROR, "stream broke off"


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


def open_session(plan: LoadPlan) -> aiohttp.ClientSession:
    """One pooled session without limits of its own, redirects or retries; TCP_NODELAY is aiohttp's default."""
    timeout = aiohttp.ClientTimeout(total=plan.timeout_s, sock_connect=CONNECT_TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=300)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
