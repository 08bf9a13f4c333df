"""A script in the place of the meta controller's language model: it reads the same message, follows the guidance of the
system prompt to the letter, and answers after a delay in the same strict JSON, which the agent validates like any
other. What it shows is the path of an asked selector with its latency; it says nothing about a language model's skill.
"""

import json
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.contracts.control_agents import AskSelector
from hmas.meta.agent.selectors.llm import build_messages

ANSWER_S = 2.0  # a short answer of a model of 30 B on a server of its own
LATE = 0.05  # of first tokens: a failure that order can repair
OVERLOAD, BURSTS = 0.1, 0.5  # mismatch: mean, p95
HEAVY_CV = 1.0
UNFAIR = 0.8
MIN_SETTLED = 30


def answer(ask: AskSelector) -> str:
    """The answer to one question."""
    state = json.loads(build_messages(ask.view, ask.current, ask.hints)[-1]["content"])
    topology, reason = _choose(state["view"], state["current"]["topology"])
    hints = {"lane_gate_s": None, "fast_weight": None, "quantum_tokens": None}
    return json.dumps({"topology": topology, "reason": reason, "bypass": False, "hints": hints})


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
