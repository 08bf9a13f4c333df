"""Which pairs of engines may serve a request: all that can, or those that the roles of the engines say."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.contracts.registry import EngineInfo
from hmas.worker.agent.config import SplitConfig
from hmas.worker.agent.engines.engine_state import EngineState

PREFILL, DECODE = "prefill", "decode"
_IN_LINE = {PREFILL: 0, DECODE: 2}


@dataclass(frozen=True, slots=True)
class PairRule:
    """`whole`, `split`: whether one engine may serve a request, and whether two may. `roles`: whether what its operator
    means an engine for binds it."""

    whole: bool = True
    split: bool = True
    roles: bool = False

    def allows(self, prefill: EngineInfo, answer: EngineInfo, *, whole: bool) -> bool:
        """Returns whether an engine may compute the prompt for another, or for itself if `whole`."""
        if whole:
            return self.whole and not (self.roles and answer.role == PREFILL)
        if self.roles and (prefill.role == DECODE or answer.role == PREFILL):
            return False
        return self.split and prefill.kv != "" and prefill.kv == answer.kv


ANY = PairRule()
WHOLE = PairRule(split=False)
DECODER_ALONE = PairRule(split=False, roles=True)
SPLIT = PairRule(whole=False, roles=True)


def rule_for(config: SplitConfig, uncached_tokens: float, roles: set[str]) -> PairRule:
    """Returns the rule for a prompt of which so many tokens are in no cache. Without engines of both roles, what roles
    say is left out, so that requests go on."""
    if config.rule == "auto":
        return ANY
    if not {PREFILL, DECODE} <= roles:
        return WHOLE
    return SPLIT if config.rule == "always" or uncached_tokens > config.beyond_tokens else DECODER_ALONE


def in_line(engines: Sequence[EngineState]) -> dict[str, int]:
    """Returns the place of each engine in a line: those meant for prompts first, those meant for answers last."""
    ordered = sorted(engines, key=lambda engine: (_IN_LINE.get(engine.info.role, 1), engine.name))
    return {engine.name: place for place, engine in enumerate(ordered)}
