"""TTFT, TPOT, goodput and ESG, once: used live, in simulation and by the load generator (DESIGN §8)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled

ESG_INPUT_WEIGHT = 1.0
ESG_OUTPUT_WEIGHT = 2.0
ESG_ALPHA = 1.0
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A request's end as its client saw it. Latencies are None where that point was never reached.

    `ttft_s`: arrival at the gateway to first token. `last_token_s`: arrival to last token. `output_tokens`: real.
    """

    request_id: str
    tenant: str
    task: TaskType
    model: str
    outcome: Outcome
    slo: Slo
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    last_token_s: float | None
    offered_s: float  # when it was offered, on the scorer's clock


def tpot_s(first_token_s: float, last_token_s: float, output_tokens: int) -> float:
    """(last - first) / (n - 1); 0 for n <= 1, which meets any TPOT by definition."""
    return (last_token_s - first_token_s) / (output_tokens - 1) if output_tokens > 1 else 0.0


def ttlt_slo_s(slo: Slo, output_tokens: int) -> float:
    """The stated TTLT, else SLO_ttft + SLO_tpot * n."""
    return slo.ttlt_s if slo.ttlt_s is not None else slo.ttft_s + slo.tpot_s * output_tokens


def ttft_ok(s: Settlement) -> bool:
    """TTFT met; for a request judged on its last token only, its TTLT."""
    if s.slo.whole:
        return s.last_token_s is not None and s.last_token_s <= ttlt_slo_s(s.slo, s.output_tokens)
    return s.ttft_s is not None and s.ttft_s <= s.slo.ttft_s


def tpot_ok(s: Settlement) -> bool:
    """TPOT met; for a request judged on its last token only, its TTLT."""
    if s.slo.whole:
        return ttft_ok(s)
    return s.tpot_s is not None and s.tpot_s <= s.slo.tpot_s


def is_ok(s: Settlement) -> bool:
    """OK(r) of H-MAS Eq. 1 and 8: finished, both SLOs met (and the TTLT, where one was stated)."""
    if s.outcome is not Outcome.FINISHED or not ttft_ok(s) or not tpot_ok(s):
        return False
    return s.slo.ttlt_s is None or (s.last_token_s is not None and s.last_token_s <= s.slo.ttlt_s)


def service_gain(s: Settlement) -> float:
    """One request's term of ESG (H-MAS Eq. 6): (w_i L_i + w_o L_o) * min(1, (SLO_ttlt / TTLT)^alpha).

    Zero unless finished. TTLT is the measured last-token latency.
    """
    if s.outcome is not Outcome.FINISHED or s.last_token_s is None:
        return 0.0
    base = ESG_INPUT_WEIGHT * s.prompt_tokens + ESG_OUTPUT_WEIGHT * s.output_tokens
    if s.last_token_s <= 0.0:
        return base
    ratio = (ttlt_slo_s(s.slo, s.output_tokens) / s.last_token_s) ** ESG_ALPHA
    return float(base * min(1.0, ratio))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`judged` false: the request says nothing about the quality of service (a client's own fault or choice)."""

    judged: bool
    ok: bool
    ttft_ok: bool
    tpot_ok: bool
    gain: float


def _client_fault(outcome: Outcome) -> bool:
    status = OUTCOME_TABLE[outcome].http_status
    return 400 <= status < 500 and status != _TOO_MANY_REQUESTS and outcome is not Outcome.CANCELLED


def verdict(settled: RequestSettled) -> Verdict:
    """A client that left while its latencies were still good is not counted; one that left before is not OK."""
    row = Settlement(
        request_id=settled.request_id,
        tenant=settled.tenant,
        task=settled.task,
        model="",
        outcome=settled.outcome,
        slo=settled.slo,
        prompt_tokens=settled.prompt_tokens,
        output_tokens=settled.output_tokens,
        ttft_s=settled.ttft_s,
        tpot_s=settled.tpot_s,
        last_token_s=settled.last_token_s,
        offered_s=0.0,
    )
    first, rate = ttft_ok(row), tpot_ok(row)
    withdrawn = settled.outcome is Outcome.CANCELLED and first and rate
    judged = not withdrawn and not _client_fault(settled.outcome)
    return Verdict(judged=judged, ok=is_ok(row), ttft_ok=first, tpot_ok=rate, gain=service_gain(row))


def mismatch(arriving_tokens_per_s: float, served_tokens_per_s: float, epsilon: float = 1e-9) -> float:
    """M_rho of H-MAS Eq. 7: max(0, lambda_tok / (mu_tok + epsilon) - 1)."""
    return max(0.0, arriving_tokens_per_s / (served_tokens_per_s + epsilon) - 1.0)


def jain_index(shares: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 where all are alike, 1 / n where one has all (Jain, Chiu and Hawe 1984); 1 for fewer
    than two shares, or when nothing was served."""
    squares = sum(x * x for x in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if len(shares) > 1 and squares > 0.0 else 1.0


def service_by_tenant(settlements: Iterable[Settlement]) -> dict[str, float]:
    """Service tokens of each tenant that offered anything (virtual token counter of Sheng et al., OSDI 2024, with the
    weights of Eq. 6): its prompts whose first token came, and its output."""
    served: defaultdict[str, float] = defaultdict(float)
    for s in settlements:
        tokens = ESG_INPUT_WEIGHT * s.prompt_tokens + ESG_OUTPUT_WEIGHT * s.output_tokens
        served[s.tenant] += tokens if s.ttft_s is not None else 0.0
    return dict(served)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile of an ascending sequence; nan if it is empty."""
    if not ordered:
        return float("nan")
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The columns of every comparison. Rates are over `offered` requests: shedding is never free."""

    offered: int
    completed: int
    ttft_compliance: float
    tpot_compliance: float
    goodput: float  # ok requests per second
    goodput_rate: float  # ok / offered
    esg: float  # sum of service gains
    esg_rate: float  # per second
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    tpot_p99_s: float
    jain_index: float  # of service tokens over weight, tenant by tenant


def score(settlements: Iterable[Settlement], duration_s: float, weights: Mapping[str, float] | None = None) -> Score:
    """Scores one run of `duration_s` seconds of offered load. `weights` of tenants: 1 where none is given."""
    rows = list(settlements)
    offered = max(len(rows), 1)
    done = [s for s in rows if s.outcome is Outcome.FINISHED]
    ttft = sorted(s.ttft_s for s in done if s.ttft_s is not None)
    tpot = sorted(s.tpot_s for s in done if s.tpot_s is not None)
    ok = sum(map(is_ok, rows))
    esg = sum(map(service_gain, rows))
    finished_ttft = sum(ttft_ok(s) for s in done)
    finished_tpot = sum(tpot_ok(s) for s in done)
    return Score(
        offered=len(rows),
        completed=len(done),
        ttft_compliance=finished_ttft / offered,
        tpot_compliance=finished_tpot / offered,
        goodput=ok / duration_s,
        goodput_rate=ok / offered,
        esg=esg,
        esg_rate=esg / duration_s,
        ttft_p50_s=quantile(ttft, 0.50),
        ttft_p95_s=quantile(ttft, 0.95),
        ttft_p99_s=quantile(ttft, 0.99),
        tpot_p50_s=quantile(tpot, 0.50),
        tpot_p95_s=quantile(tpot, 0.95),
        tpot_p99_s=quantile(tpot, 0.99),
        jain_index=jain_index([x / (weights or {}).get(t, 1.0) for t, x in service_by_tenant(rows).items()]),
    )


WINDOW_S = 10.0  # H-MAS Table 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreWindow:
    """One stretch of a run. `ok` and `offered` count the requests offered in it, `esg_rate` the service gain per
    second of the requests that finished in it."""

    start_s: float
    offered: int
    ok: int
    goodput: float  # ok requests per second
    esg_rate: float

    @property
    def goodput_rate(self) -> float:
        """ok / offered; nan where nothing was offered."""
        return self.ok / self.offered if self.offered else float("nan")


def windows(
    settlements: Iterable[Settlement], duration_s: float, width_s: float = WINDOW_S, start_s: float = 0.0
) -> list[ScoreWindow]:
    """Cuts [start_s, start_s + duration_s) into windows of `width_s`; a rest counts by its own length. What was
    offered or finished outside is left out."""
    count = max(1, ceil(duration_s / width_s - 1e-9))
    offered, ok, gain = [0] * count, [0] * count, [0.0] * count
    for s in settlements:
        at = s.offered_s - start_s
        if 0 <= at < duration_s:
            place = min(int(at / width_s), count - 1)
            offered[place] += 1
            ok[place] += is_ok(s)
        ended = at + s.last_token_s if s.last_token_s is not None else duration_s
        if 0 <= ended < duration_s:
            gain[min(int(ended / width_s), count - 1)] += service_gain(s)
    found = []
    for i in range(count):
        span = min(width_s, duration_s - i * width_s)
        found.append(
            ScoreWindow(
                start_s=start_s + i * width_s,
                offered=offered[i],
                ok=ok[i],
                goodput=ok[i] / span,
                esg_rate=gain[i] / span,
            )
        )
    return found


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation (population); nan for an empty or zero-mean sequence."""
    mean = sum(values) / len(values) if values else 0.0
    if mean == 0.0:
        return float("nan")
    return float((sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5 / mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The columns of H-MAS Table 4. Ratios with a zero denominator are nan."""

    goodput_drop_percent: float  # delta GP 1->3: from the first to the third phase
    recovery: float  # R 3/2: third over second phase
    cv_ttft: float  # over finished requests
    esg_peak_to_average: float  # over 10 s windows
    cv_esg: float  # over 10 s windows
    esg_average: float  # per second


def stability(settlements: Iterable[Settlement], duration_s: float, start_s: float = 0.0) -> Stability:
    """Table 4 for one run of three equal phases. Phase goodput is ok requests per second of those offered in it."""
    rows = list(settlements)
    phases = [w.goodput for w in windows(rows, duration_s, duration_s / 3, start_s)]
    rates = [w.esg_rate for w in windows(rows, duration_s, WINDOW_S, start_s)]
    average = sum(rates) / len(rates)
    ttft = [s.ttft_s for s in rows if s.outcome is Outcome.FINISHED and s.ttft_s is not None]
    nan = float("nan")
    return Stability(
        goodput_drop_percent=100.0 * (phases[0] - phases[2]) / phases[0] if phases[0] else nan,
        recovery=phases[2] / phases[1] if phases[1] else nan,
        cv_ttft=variation(ttft),
        esg_peak_to_average=max(rates) / average if average else nan,
        cv_esg=variation(rates),
        esg_average=average,
    )
