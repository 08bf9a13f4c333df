"""The features of V_long that the bandit reads (H-MAS App. C.2: intensity, length mix, violation trends, utilisation),
and their scale. None of them depends on the size of the pool."""

from math import log1p

from hmas.contracts.views import VLong

# Mean and standard deviation of each over 4,871 views of simulated runs of seven workloads at 0.8, 1.1 and 1.5 λ*. They
# only bring the features to like size, so that no feature outweighs the others.
SCALE: dict[str, tuple[float, float]] = {
    "arrival_cv": (1.1239, 0.2260),
    "burstiness": (2.7362, 1.1323),
    "log_prompt_mean": (6.6204, 0.9066),
    "prompt_cv": (2.6433, 1.6833),
    "log_output_mean": (5.1579, 0.5451),
    "output_cv": (1.1976, 0.2533),
    "work_cv": (1.4129, 0.5917),
    "ttft_violations": (0.0978, 0.2328),
    "tpot_violations": (0.0339, 0.0513),
    "log_backlog_s": (0.9223, 1.3306),
    "mismatch_mean": (0.3103, 0.2713),
    "mismatch_p95": (1.0025, 0.6895),
    "utilisation": (0.5806, 0.2589),
    "jain": (0.8415, 0.0400),
}
FEATURES = tuple(SCALE)
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


def scaled(values: tuple[float, ...]) -> tuple[float, ...]:
    """Returns features in standard deviations from their mean."""
    return tuple((v - mean) / deviation for v, (mean, deviation) in zip(values, SCALE.values(), strict=True))


def settled(view: VLong) -> int:
    """Returns the number of requests that settled in the view's window."""
    return sum(share.settled for share in view.tenants)
