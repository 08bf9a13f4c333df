"""The choice of a pool's layout: the split that the pace law and the observed demand say keeps the most on time."""

from dataclasses import dataclass

from hmas.contracts.control import Split
from hmas.contracts.views import VLong
from hmas.laws.layout import described_split
from hmas.laws.pace import Offered, best_split, expected, mean_pace
from hmas.meta.agent.config import LayoutConfig


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A split that is to replace the one in force, and the reason."""

    split: Split
    reason: str


def choose_layout(config: LayoutConfig, view: VLong, current: Split, engines: int) -> LayoutChoice | None:
    """Returns the split that should replace `current` for a pool of `engines` engines that are up; None keeps it.

    It is replaced only for a gain above the margin, so that an error of the model or a passing change of the demand
    moves nothing. Too little demand or too few observations of the engines' pace say nothing.
    """
    pace = mean_pace(view.paces, config.min_observations)
    requests = sum(demand.requests for demand in view.demands)
    offered = sum(demand.rps for demand in view.demands)
    if pace is None or engines < 2 or requests < config.min_requests or view.arrival_rps <= 0.0:
        return None
    demands: list[Offered] = [(d, view.arrival_rps * d.rps / offered) for d in view.demands]
    fitting = len(current.engines) <= engines and (not current.cuts_s or sum(current.engines) == engines)
    now_rps = expected(demands, pace, current, engines, config.pace) if fitting else 0.0
    split, then_rps = best_split(demands, pace, engines, config.pace, classes=config.classes, cuts=config.cuts)
    gain = (then_rps - now_rps) / view.arrival_rps
    if split == current or gain <= (config.shift if current.cuts_s and split.cuts_s else config.margin):
        return None
    shares = f"{now_rps / view.arrival_rps:.1%} to {then_rps / view.arrival_rps:.1%}"
    return LayoutChoice(split, f"on time, as expected: {shares} with {described_split(split)}")
