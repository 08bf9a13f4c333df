"""What a process does when its agent, or the carrying out of an effect, raises: it counts, logs and goes on (ADR 1)."""

import structlog
from prometheus_client import Counter

from hmas.runtime.logs import LogRateLimit

log = structlog.get_logger()
STEP_FAILURES = Counter(
    "hmas_step_failures_total", "Events at which the agent raised, and effects that could not be carried out", ["event"]
)


class StepFailures:
    """Counts failures by the class of the event or effect, and logs some of each."""

    def __init__(self) -> None:
        self._sparingly = LogRateLimit()

    def report(self, cause: object, error: Exception) -> None:
        """Takes what `AgentHost` calls `failed` with. It never raises."""
        kind = type(cause).__name__
        STEP_FAILURES.labels(kind).inc()
        left_out = self._sparingly.due(kind)
        if left_out is not None:
            log.error("step_failed", event_type=kind, left_out=left_out, exc_info=error)
