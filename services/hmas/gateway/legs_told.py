"""What `hmas why` tells of a split run: when each leg was done, and the parts of its time to first token."""

from typing import Any

from hmas.gateway.exchange import Exchange, RunTrace


def legs_told(exchange: Exchange, run: RunTrace) -> dict[str, Any]:
    """Returns of a split run the engine that computed the prompt, when it had done so, when the answering one got the
    request, and the parts of the TTFT; nothing of another run. Times are in s; null: not happened, or not seen.

    The parts add up to the TTFT. How long the answering engine read KV before its first step is not seen from outside:
    both are one part.
    """
    if not run.prefill:
        return {}
    arrival_s, started_s = exchange.request.arrival_s, run.started_s
    earlier = [each for each in exchange.runs[: exchange.runs.index(run)] if each.ended_s is not None]
    lost_s = sum(each.ended_s - each.started_s for each in earlier if each.ended_s is not None)
    return {
        "prefill_engine": run.prefill,
        "computed_s": _from(arrival_s, run.computed_s),
        "went_on_s": _from(arrival_s, run.went_on_s),
        "ttft_parts": {
            "queued_s": _from(arrival_s + lost_s, started_s),
            **({"earlier_runs_s": round(lost_s, 6)} if earlier else {}),
            "prefill_s": _from(started_s, run.computed_s),
            "waited_s": _from(run.computed_s, run.went_on_s),
            "transfer_and_first_step_s": _from(run.went_on_s, run.first_s),
        },
    }


def _from(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else round(end_s - begin_s, 6)
