"""The result of a load run, which has just ended or was read back from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hmas.laws.scoring import Score, ScoreWindow, Settlement, Stability, stability, windows
from hmas_loadgen.jobs import JobsScore, job_scores
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.scoring import errors, scores_by, settlements, weighted_score
from hmas_loadgen.worth import Worth

INTERRUPTED = "interrupted before the end of the schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The records of a run in the order of their schedule, and the scores computed from them. `reasons` say why the run
    is invalid: it measured the load generator rather than the server, or it was incomplete; empty for a valid run.
    `config` is the plan as plain data. `offered_s` and `warmup_s` are the lengths of the offered window and of the
    warm-up at its start, seconds."""

    name: str
    model: str
    offered_s: float
    warmup_s: float
    config: Mapping[str, object] = field(repr=False)
    started_unix_s: float
    records: tuple[RequestRecord, ...] = field(repr=False)
    lag_p50_s: float
    lag_p99_s: float
    reasons: tuple[str, ...]

    @property
    def valid(self) -> bool:
        return not self.reasons

    @property
    def scored_s(self) -> float:
        """Length of the offered window without the warm-up, seconds, by which rates per second are computed."""
        return self.offered_s - self.warmup_s

    def settlements(self) -> list[Settlement]:
        return settlements(self.records, self.model, self.warmup_s)

    @property
    def worth(self) -> Worth:
        told: Any = self.config.get("worth", {})
        return Worth(**told)

    def score(self) -> Score:
        return weighted_score(self.settlements(), self.scored_s, self.worth)

    def by_tenant(self) -> dict[str, Score]:
        return scores_by(self.settlements(), lambda s: s.tenant or "-", self.scored_s, self.worth)

    def by_task(self) -> dict[str, Score]:
        return scores_by(self.settlements(), lambda s: str(s.task), self.scored_s, self.worth)

    def jobs(self) -> dict[str, JobsScore]:
        """Returns the score of jobs by template, of all under the empty name; nothing for a run without jobs."""
        return job_scores(self.records, self.model, self.warmup_s)

    def windows(self) -> list[ScoreWindow]:
        return windows(self.settlements(), self.scored_s, start_s=self.warmup_s)

    def stability(self) -> Stability:
        return stability(self.settlements(), self.scored_s, self.warmup_s)

    def errors(self) -> dict[str, int]:
        return dict(errors(self.records))

    def example(self, error: str) -> str:
        """Returns the message of the first request whose `error` is `error`; empty if there is none."""
        return next((r.message for r in self.records if r.error == error and r.message), "")
