"""The one definition of TTFT, TPOT, goodput and ESG (DESIGN §8), which the live services, the simulator and the load
generator all use."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled

ESG_INPUT_WEIGHT = 1.0
ESG_OUTPUT_WEIGHT = 2.0
ESG_ALPHA = 1.0
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The one end of a request, as its client saw it. A latency is None if the request never got that far.

    `ttft_s` and `last_token_s` run from the arrival at the gateway to the first and to the last token, in s;
    `output_tokens` are those that were really generated.
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
    """Returns the mean time per output token in s: (last - first) / (n - 1) for n output tokens; 0 for n <= 1, which
    meets any TPOT SLO by definition."""
    return (last_token_s - first_token_s) / (output_tokens - 1) if output_tokens > 1 else 0.0


def ttlt_slo_s(slo: Slo, output_tokens: int) -> float:
    """Returns the TTLT SLO in s: the stated one, otherwise SLO_ttft + SLO_tpot * n for n output tokens."""
    return slo.ttlt_s if slo.ttlt_s is not None else slo.ttft_s + slo.tpot_s * output_tokens


def ttft_ok(s: Settlement) -> bool:
    """Tells whether the request met its TTFT SLO, or its TTLT SLO if only its last token is judged."""
    if s.slo.whole:
        return s.last_token_s is not None and s.last_token_s <= ttlt_slo_s(s.slo, s.output_tokens)
    return s.ttft_s is not None and s.ttft_s <= s.slo.ttft_s


def tpot_ok(s: Settlement) -> bool:
    """Tells whether the request met its TPOT SLO, or its TTLT SLO if only its last token is judged."""
    if s.slo.whole:
        return ttft_ok(s)
    return s.tpot_s is not None and s.tpot_s <= s.slo.tpot_s


def is_ok(s: Settlement) -> bool:
    """Tells whether the request counts for goodput, OK(r) of H-MAS Eq. 1 and 8: it finished and met its TTFT and TPOT
    SLOs, and its TTLT SLO if it stated one."""
    if s.outcome is not Outcome.FINISHED or not ttft_ok(s) or not tpot_ok(s):
        return False
    return s.slo.ttlt_s is None or (s.last_token_s is not None and s.last_token_s <= s.slo.ttlt_s)


def service_gain(s: Settlement) -> float:
    """Returns one request's term of ESG (H-MAS Eq. 6): (w_i L_i + w_o L_o) * min(1, (SLO_ttlt / TTLT)^alpha).

    It is 0 unless the request finished. TTLT is the measured latency of the last token.
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
    """How a settled request counts. `judged` is false if it says nothing about the quality of service, because its
    outcome was the client's fault or choice. `ttft_ok` and `tpot_ok` are those up to its end, if its client left.
    `gain` is its term of ESG."""

    judged: bool
    ok: bool
    ttft_ok: bool
    tpot_ok: bool
    gain: float


def _client_fault(outcome: Outcome) -> bool:
    status = OUTCOME_TABLE[outcome].http_status
    return 400 <= status < 500 and status != _TOO_MANY_REQUESTS and outcome is not Outcome.CANCELLED


def _until_withdrawn(row: Settlement, withdrawn_s: float, predicted_output_tokens: float) -> Settlement:
    """Returns the row of a request whose client left `withdrawn_s` seconds after its arrival, as if what was due next
    had come at that instant: no latency is then longer than it would have become. Of n tokens the next one ends the
    n-th gap. A TTLT SLO that grows with the answer is that of its predicted length."""
    tokens = row.output_tokens
    first_s = withdrawn_s if row.ttft_s is None else row.ttft_s
    return replace(
        row,
        output_tokens=max(tokens, int(predicted_output_tokens)),
        ttft_s=first_s,
        tpot_s=tpot_s(first_s, withdrawn_s, tokens + 1),
        last_token_s=withdrawn_s,
    )


def verdict(settled: RequestSettled) -> Verdict:
    """Returns how a settled request counts. A request that its client cancelled is judged, as not OK, only if it had
    missed an SLO by then; it is not judged either if nobody says when that was."""
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
    judged = not _client_fault(settled.outcome)
    if settled.outcome is Outcome.CANCELLED:
        known = settled.withdrawn_s is not None
        row = _until_withdrawn(row, settled.withdrawn_s or 0.0, settled.predicted_output_tokens)
        judged = known and not is_ok(replace(row, outcome=Outcome.FINISHED))
    first, rate = ttft_ok(row), tpot_ok(row)
    return Verdict(judged=judged, ok=is_ok(row), ttft_ok=first, tpot_ok=rate, gain=service_gain(row))


def mismatch(arriving_tokens_per_s: float, served_tokens_per_s: float, epsilon: float = 1e-9) -> float:
    """Returns the mismatch M_rho of H-MAS Eq. 7: max(0, lambda_tok / (mu_tok + epsilon) - 1)."""
    return max(0.0, arriving_tokens_per_s / (served_tokens_per_s + epsilon) - 1.0)


def jain_index(shares: Sequence[float]) -> float:
    """Returns Jain's index of fairness, (sum x)^2 / (n sum x^2): 1 if all shares are equal, 1 / n if one has all (Jain,
    Chiu and Hawe 1984); it is 1 for fewer than two shares and if all shares are 0."""
    squares = sum(x * x for x in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if len(shares) > 1 and 0.0 < squares < inf else 1.0


def service_by_tenant(settlements: Iterable[Settlement], until_s: float = inf) -> dict[str, float]:
    """Returns the service tokens of each tenant that offered a request (virtual token counter of Sheng et al., OSDI
    2024, with the weights of Eq. 6): weighted prompt and output tokens of its requests that came by the instant
    `until_s`. A prompt counts with the first token, and output tokens are spread evenly from the first to the last."""
    served: defaultdict[str, float] = defaultdict(float)
    for s in settlements:
        served[s.tenant] += _served(s, until_s)
    return dict(served)


def _served(s: Settlement, until_s: float) -> float:
    if s.ttft_s is None or s.offered_s + s.ttft_s > until_s:
        return 0.0
    left_s = until_s - s.offered_s - s.ttft_s
    decode_s = s.last_token_s - s.ttft_s if s.last_token_s is not None else 0.0
    share = 1.0 if decode_s <= left_s else left_s / decode_s
    return ESG_INPUT_WEIGHT * s.prompt_tokens + ESG_OUTPUT_WEIGHT * s.output_tokens * share


def quantile(ordered: Sequence[float], q: float) -> float:
    """Returns the q-quantile (q in [0, 1]) of an ascending sequence, linearly interpolated; nan if it is empty."""
    if not ordered:
        return float("nan")
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The figures by which systems are compared. Rates are shares of all `offered` requests, so that refusing requests
    improves none of them."""

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
    jain_index: float  # of the service tokens while requests were offered, over weight, tenant by tenant
    utility_rate: float  # ok / offered, each request with its weight (H-MAS Eq. 1)


def score(
    settlements: Iterable[Settlement],
    duration_s: float,
    weights: Mapping[str, float] | None = None,
    classes: Mapping[TaskType, float] | None = None,
) -> Score:
    """Scores one run in which requests were offered for `duration_s` seconds. `weights` are the tenants', for Jain's
    index and the utility, and `classes` those of the task types, for the utility; what is not in them has weight 1."""
    rows = list(settlements)
    until_s = min((s.offered_s for s in rows), default=0.0) + duration_s
    worth = [(weights or {}).get(s.tenant, 1.0) * (classes or {}).get(s.task, 1.0) for s in rows]
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
        utility_rate=sum(w for w, s in zip(worth, rows, strict=True) if is_ok(s)) / (sum(worth) or 1.0),
        jain_index=jain_index([x / (weights or {}).get(t, 1.0) for t, x in service_by_tenant(rows, until_s).items()]),
    )


WINDOW_S = 10.0  # H-MAS Table 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreWindow:
    """One window of a run, from `start_s`. `offered` counts the requests offered in it and `ok` those of them that met
    their SLOs; `esg_rate` is the service gain per second of the requests that finished in it."""

    start_s: float
    offered: int
    ok: int
    goodput: float  # ok requests per second
    esg_rate: float

    @property
    def goodput_rate(self) -> float:
        """The share of offered requests that met their SLOs; nan if none was offered."""
        return self.ok / self.offered if self.offered else float("nan")


def windows(
    settlements: Iterable[Settlement], duration_s: float, width_s: float = WINDOW_S, start_s: float = 0.0
) -> list[ScoreWindow]:
    """Cuts [start_s, start_s + duration_s) into windows of `width_s` and returns the figures of each. A shorter last
    window has its rates over its own length. Requests offered or finished outside of that time are left out."""
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
    """Returns the coefficient of variation (population); nan for an empty sequence or one whose mean is 0."""
    mean = sum(values) / len(values) if values else 0.0
    if mean == 0.0:
        return float("nan")
    return float((sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5 / mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """The columns of H-MAS Table 4. A ratio whose denominator is 0 is nan."""

    goodput_drop_percent: float  # delta GP 1->3: from the first to the third phase
    recovery: float  # R 3/2: third over second phase
    cv_ttft: float  # over finished requests
    esg_peak_to_average: float  # over 10 s windows
    cv_esg: float  # over 10 s windows
    esg_average: float  # per second


def stability(settlements: Iterable[Settlement], duration_s: float, start_s: float = 0.0) -> Stability:
    """Returns the figures of H-MAS Table 4 for one run of three equal phases. A phase's goodput counts the requests
    that were offered in it and met their SLOs, per second."""
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
