"""How many requests are expected to be late on an engine by what else it is given."""

from dataclasses import dataclass
from math import tanh

from hmas.worker.agent.engines.engine_state import EngineState

STEEP = 0.8  # tanh(0.8 x) is near the normal distribution's 2 F(x) - 1


@dataclass(frozen=True, slots=True)
class Slack:
    """By how many seconds a request may end later than is expected now, give or take `around_s`, and how many tokens it
    has yet to write."""

    seconds: float
    tokens: float
    around_s: float


def slacks(engine: EngineState, now_s: float, error: float) -> list[Slack]:
    """Returns the slack of each request that answers on an engine, or is to; none of those that are late anyway.

    Each is delayed by what has been granted there: one that has a token by all prompts that are pending, one that waits
    for its own by those behind it. `error` is the share of a predicted time by which it may be off.
    """
    step, step_s = engine.step_room.step, engine.counts.step_now_s(now_s)
    bare_s = 0.0 if step is None else step.base_s + engine.step_room.used_s
    behind_s, found = 0.0, []
    for each in reversed(engine.running.values()):
        delay_s = engine.prefill.seconds
        if each.first_token_s is None and not each.prefill_on:
            delay_s, behind_s = behind_s, behind_s + each.pending_s
        if each.relegated or each.prefill_on == engine.name:
            continue
        token_s, written, first_s = bare_s or each.tpot_s, 0.0, now_s
        if each.first_token_s is not None:
            first_s = each.first_token_s
            written = max(float(each.output_tokens), (now_s - first_s) / max(token_s, step_s))
        tokens = max(each.predicted_tokens, written + 1.0)
        due_s = each.deadline_s if each.slo.whole else first_s + each.slo.tpot_s * (tokens - 1.0)
        left = tokens - written
        found.append(Slack(due_s - now_s - left * token_s - delay_s, left, error * tokens * token_s))
    return found


def harm(found: list[Slack], prompt_s: float = 0.0, step_s: float = 0.0) -> float:
    """Returns how many of these more are expected to be late if a prompt takes `prompt_s`, and each further step
    `step_s` more."""
    return sum(
        odds_late(prompt_s + step_s * each.tokens - each.seconds, each.around_s)
        - odds_late(-each.seconds, each.around_s)
        for each in found
    )


def odds_late(late_s: float, around_s: float) -> float:
    """Returns how probable it is that something ends too late which is expected `late_s` after it is due, give or take
    `around_s`."""
    return 0.5 * (1.0 + tanh(STEEP * late_s / around_s)) if around_s > 0.0 else float(late_s > 0.0)
