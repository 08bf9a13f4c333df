"""Which pairs of engines may serve a request: all that can, or those that the roles of the engines say. Engines that
need a partner serve in pairs alone, whatever the rule."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import EnginesUnpaired
from hmas.worker.agent.config import SplitConfig
from hmas.worker.agent.engines.engine_state import EngineState

MAX_NAMED = 8  # of the engines that another one is not paired with
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
            return self.whole and not answer.needs_partner and not (self.roles and answer.role == PREFILL)
        if prefill.needs_partner:
            return hands_over(prefill, answer)
        if self.roles and (prefill.role == DECODE or answer.role == PREFILL):
            return False
        return self.split and hands_over(prefill, answer)


ANY = PairRule()
WHOLE = PairRule(split=False)
DECODER_ALONE = PairRule(split=False, roles=True)
SPLIT = PairRule(whole=False, roles=True)


def hands_over(prefill: EngineInfo, answer: EngineInfo) -> bool:
    """Returns whether an engine can hand the KV of prompts to another one."""
    if prefill.kv == "" or (prefill.kv, prefill.kv_version) != (answer.kv, answer.kv_version):
        return False
    if not prefill.needs_partner:
        return True
    return prefill.role == PREFILL and answer.role == DECODE and prefill.bootstrap_port > 0


def unpaired(new: EngineState, engines: Iterable[EngineState]) -> list[EnginesUnpaired]:
    """Returns what is to be logged of an engine that came up: the others that hand KV over in another way, although by
    their roles they could be its partners."""
    if not new.info.kv:
        return []
    apart = [
        each
        for each in engines
        if each.info.kv and _kind(each) != _kind(new) and not (new.info.role and each.info.role == new.info.role)
    ]
    named = tuple((each.name, _way(each)) for each in apart[:MAX_NAMED])
    return [EnginesUnpaired(new.name, _way(new), named)] if named else []


def _way(engine: EngineState) -> str:
    return " ".join(_kind(engine)).strip()


def partnered(engines: list[EngineState]) -> list[EngineState]:
    """Returns those of these engines that can serve requests, alone or with another one of them."""
    bound = [engine.info for engine in engines if engine.info.needs_partner]
    if not bound:
        return engines
    paired = {each.engine for a in bound for b in bound if hands_over(a, b) for each in (a, b)}
    return [engine for engine in engines if not engine.info.needs_partner or engine.name in paired]


def splits(config: SplitConfig, engines: list[EngineState]) -> bool:
    """Returns whether some two of these engines may answer a request together."""
    if any(engine.info.needs_partner for engine in engines):
        return True
    kinds = [_kind(engine) for engine in engines if engine.info.kv]
    return config.rule != "never" and len(kinds) > len(set(kinds))


def _kind(engine: EngineState) -> tuple[str, str]:
    return engine.info.kv, engine.info.kv_version


def rule_for(config: SplitConfig, uncached_tokens: float, engines: Iterable[EngineState]) -> PairRule:
    """Returns the rule for a prompt of which so many tokens are in no cache, and that one of these engines is to serve.
    Without engines of both roles that can hand KV over, what roles say is left out, so that requests go on."""
    if config.rule == "auto":
        return ANY
    handing: dict[str, set[tuple[str, str]]] = {PREFILL: set(), DECODE: set()}
    for engine in engines:
        if engine.info.kv and engine.info.role:
            handing[engine.info.role].add(_kind(engine))
    if config.rule == "never" or not handing[PREFILL] & handing[DECODE]:
        return WHOLE
    return SPLIT if config.rule == "always" or uncached_tokens > config.beyond_tokens else DECODER_ALONE


def in_line(engines: Sequence[EngineState]) -> dict[str, int]:
    """Returns the place of each engine in a line: those meant for prompts first, those meant for answers last."""
    ordered = sorted(engines, key=lambda engine: (_IN_LINE.get(engine.info.role, 1), engine.name))
    return {engine.name: place for place, engine in enumerate(ordered)}
