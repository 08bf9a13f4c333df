"""The features of V_long that the learned selectors read (H-MAS App. C.2: intensity, length mix, violation trends,
utilisation). None of them depends on the size of the pool."""

from math import log1p

from hmas.contracts.views import VLong

FEATURES = (
    "arrival_cv", "burstiness", "log_prompt_mean", "prompt_cv", "log_output_mean", "output_cv", "work_cv",
    "ttft_violations", "tpot_violations", "log_backlog_s", "mismatch_mean", "mismatch_p95", "utilisation", "jain",
)  # fmt: skip
MOST_MISMATCH = 3.0  # larger values of the mismatch are cut to it, because they mean the same gross overload


def features(view: VLong) -> tuple[float, ...]:
    """Returns the features of a view, in the order of `FEATURES`."""
    backlog_s = view.queued / view.arrival_rps if view.arrival_rps > 0.0 else 0.0
    return (
        view.arrival_cv,
        view.burstiness,
        log1p(view.prompt_mean),
        view.prompt_cv,
        log1p(view.output_mean),
        view.output_cv,
        view.predicted_total_cv,
        view.ttft_violation_rate,
        view.tpot_violation_rate,
        log1p(backlog_s),
        min(view.mismatch_mean, MOST_MISMATCH),
        min(view.mismatch_p95, MOST_MISMATCH),
        view.utilisation,
        view.jain_index,
    )


def settled(view: VLong) -> int:
    """Returns the number of requests that settled in the view's window."""
    return sum(share.settled for share in view.tenants)
