"""MaaSO's distributor (section IV-F) as a router in front of the engines of one sub-cluster."""

from collections.abc import Sequence
from statistics import fmean

from hmas.engine.core.profile import EngineProfile
from hmas.sim.processes.fleet import EngineLoad
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.slots import context_tokens, meets


class MaasoRouter:
    """Sends a request to the engine with the fewest outstanding ones of those that are predicted to keep its SLO, and
    refuses it where none is (overflow protection).

    Predictions take an engine at its worst, with as many sequences as its batch limit B allows, for the decoding and
    for the queue: a request beyond the B-th waits for its share of the mean decoding time of those before it, divided
    by B (Eq. 2). As in the paper's simulator, the length of an answer is known. `requests` are those that the
    sub-cluster is to serve, for their means.
    """

    def __init__(self, requests: Sequence[OfferedRequest]) -> None:
        self._tokens = fmean(each.output_tokens for each in requests)
        self._context = context_tokens(requests)

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        return (offered.request.arrival_s,)

    def ready(self, loads: Sequence[EngineLoad]) -> Sequence[EngineLoad]:
        return loads

    def choose(self, offered: OfferedRequest, ready: Sequence[EngineLoad]) -> EngineLoad | None:
        able = [load for load in ready if self._keeps(offered, load)]
        return min(able, key=lambda load: load.outstanding, default=None)

    def started(self, offered: OfferedRequest, ttft_s: float) -> None:
        """Nothing is learnt."""

    def ended(self, offered: OfferedRequest, tpot_s: float) -> None:
        """Nothing is learnt."""

    def _keeps(self, offered: OfferedRequest, load: EngineLoad) -> bool:
        most, token_s = load.profile.limits.max_num_seqs, self._full_s(load.profile)
        wait_s = max(0, load.outstanding + 1 - most) * self._tokens * token_s / most
        return meets(offered.slo, wait_s, token_s, offered.output_tokens)

    def _full_s(self, profile: EngineProfile) -> float:
        """Returns the time in s of a token with a full batch."""
        most = profile.limits.max_num_seqs
        return profile.cost.step_s(0, most, round(most * self._context), 0.0)
