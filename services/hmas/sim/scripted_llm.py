"""A script in the place of meta's language model: it reads the same message, follows the guidance of the system prompt
to the letter, and answers after a delay in the same strict JSON, which the agent validates as it would a model's. It
shows how a selector that must be asked works with its latency; it says nothing about a language model's skill.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.contracts.control_agents import AskSelector
from hmas.meta.agent.selectors.llm import build_messages

ANSWER_S = 2.0  # a short answer of a model of 30 B parameters on a server of its own
LATE = 0.05  # share of violated SLOs above which another topology may help
OVERLOAD, BURSTS = 0.1, 0.5  # mean and 95 % quantile of the mismatch above which there is overload or bursts
HEAVY_CV = 1.0  # CV of predicted service times above which long work blocks short work
UNFAIR = 0.8  # Jain's index below which shares are unfair
MIN_SETTLED = 30  # settled requests below which the script keeps the current topology


def answer(ask: AskSelector) -> str:
    """Returns the script's answer, as JSON text, to one question of the meta agent."""
    state = json.loads(build_messages(ask.view, ask.current, ask.hints)[-1]["content"])
    topology, reason = _choose(state["view"], state["current"]["topology"])
    hints = {"lane_gate_s": None, "fast_weight": None}
    return json.dumps({"topology": topology, "reason": reason, "bypass": False, "hints": hints})


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """What answers the questions of a simulated meta controller: `answer` as text, `answer_s` seconds later."""

    answer: Callable[[AskSelector], str] = answer
    answer_s: float = ANSWER_S


def _choose(view: dict[str, Any], current: str) -> tuple[str, str]:
    if sum(share["settled"] for share in view["tenants"]) < MIN_SETTLED:
        return current, "too little seen"
    if view["jain_index"] < UNFAIR and view["violation_rate"] > LATE:
        return TopologyName.WFQ, "unfair shares"
    if view["ttft_violation_rate"] <= LATE:
        return current, "no failure that order repairs"
    if view["mismatch_mean"] > OVERLOAD or view["mismatch_p95"] > BURSTS:
        return TopologyName.SJF, "overload or bursts"
    if view["predicted_total_cv"] > HEAVY_CV:
        return TopologyName.TWO_LANE, "short work blocked by long"
    return TopologyName.EDF, "late without overload"
