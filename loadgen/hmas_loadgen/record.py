"""What the load generator records of one request, and the progress of a run."""

from dataclasses import dataclass, field

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType

CUT_OFF = "cut off"  # `error` of a request that was unfinished when the run ended or was stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What the client saw of one request. Instants are seconds since the run's start; None if the request did not get
    so far.

    `index` is the request's place in the schedule. `token_times_s` holds the arrival of each stream event that carries
    tokens. `status` is the HTTP status, 0 without an answer. `error` is empty, or the kind of error, such as
    `429 pool_queue_full`, by which the table of errors counts; `message` is the server's text. `job`, `template` and
    `job_budget_s` are those of the job that it is a call of, if it is.
    """

    index: int
    request_id: str
    tenant: str
    task: TaskType
    slo: Slo
    prompt_tokens: int
    expected_output_tokens: int
    scheduled_s: float
    sent_s: float
    end_s: float
    outcome: Outcome
    status: int = 0
    error: str = ""
    message: str = ""
    base_url: str = ""
    output_tokens: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    token_times_s: tuple[float, ...] = field(default=(), repr=False)
    job: str = ""
    template: str = ""
    job_budget_s: float | None = None

    @property
    def lag_s(self) -> float:
        """Seconds between the scheduled instant and the real sending: the load generator's own lateness."""
        return self.sent_s - self.scheduled_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A snapshot of a running load run. `finished`, `failed` and `ok` (met their SLOs) count requests since the start;
    rates (`_rps`: requests or tokens per second) and the median lag are recent."""

    elapsed_s: float
    window_s: float
    planned: int
    sent: int
    finished: int
    failed: int
    in_flight: int
    send_rps: float
    finish_rps: float
    token_rps: float
    ok: int
    lag_p50_s: float
