"""How long the mix of a pool's requests has held."""

from collections.abc import Mapping

from hmas.contracts.views import VLong


class MixClock:
    """The mix is another one once the rate is off by more than `rate_change`, relative to what it was, or more than
    `mix_change` of the requests need another time per token."""

    def __init__(self, rate_change: float, mix_change: float) -> None:
        self._rate_change, self._mix_change = rate_change, mix_change
        self._since_s = 0.0
        self._rps = 0.0
        self._shares: Mapping[float, float] | None = None  # by needed time per token; None: nothing was seen yet

    def see(self, now_s: float, view: VLong) -> None:
        total = sum(each.rps for each in view.demands)
        shares = {each.tpot_slo_s: each.rps / total for each in view.demands} if total > 0.0 else {}
        if self._shares is not None and self._same(view.arrival_rps, shares, self._shares):
            return
        self._since_s, self._rps, self._shares = now_s, view.arrival_rps, shares

    def held_s(self, now_s: float) -> float:
        return now_s - self._since_s if self._shares is not None else 0.0

    def _same(self, rps: float, shares: Mapping[float, float], before: Mapping[float, float]) -> bool:
        moved = sum(abs(shares.get(each, 0.0) - before.get(each, 0.0)) for each in {*shares, *before}) / 2.0
        return abs(rps - self._rps) <= self._rate_change * self._rps and moved <= self._mix_change
