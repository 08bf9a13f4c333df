"""What a run yields, whether it has just ended or was read back from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hmas.laws.scoring import Score, ScoreWindow, Settlement, Stability, score, stability, windows
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.scoring import errors, scores_by, settlements

INTERRUPTED = "interrupted before the end of the schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Records in order of their schedule, and the scores made of them. `reasons` say why a run is invalid: it
    measured the generator rather than the server, or it was not whole. `config` is the plan as plain data."""

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
        """The offered window without the warm-up: what rates refer to."""
        return self.offered_s - self.warmup_s

    def settlements(self) -> list[Settlement]:
        return settlements(self.records, self.model, self.warmup_s)

    def score(self) -> Score:
        return score(self.settlements(), self.scored_s)

    def by_tenant(self) -> dict[str, Score]:
        return scores_by(self.settlements(), lambda s: s.tenant or "-", self.scored_s)

    def by_task(self) -> dict[str, Score]:
        return scores_by(self.settlements(), lambda s: str(s.task), self.scored_s)

    def windows(self) -> list[ScoreWindow]:
        return windows(self.settlements(), self.scored_s, start_s=self.warmup_s)

    def stability(self) -> Stability:
        return stability(self.settlements(), self.scored_s, self.warmup_s)

    def errors(self) -> dict[str, int]:
        return dict(errors(self.records))

    def example(self, error: str) -> str:
        """A message that came with that group of errors; empty if none did."""
        return next((r.message for r in self.records if r.error == error and r.message), "")
