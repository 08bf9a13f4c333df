"""The table of selectors by name. A new selector takes one file and one line here."""

from collections.abc import Callable, Mapping

from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.llm import NAME as LLM
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Selector

RULES = "rules"
MakeSelector = Callable[[MetaConfig], Selector]
SELECTORS: Mapping[str, MakeSelector] = {
    RULES: lambda config: RulesSelector(config.rules),
}
ASKED: frozenset[str] = frozenset({LLM})  # they answer later, by `SelectorAnswered`, or never
REMOVED: dict[str, str] = {
    **dict.fromkeys(("classifier", "changepoint"), "it always chose one topology"),  # ADR 38
    "bandit": "one fixed topology was ahead of it on every workload",  # ADR 49
}


def selector_names(selectors: Mapping[str, MakeSelector] = SELECTORS) -> tuple[str, ...]:
    return (*selectors, *sorted(ASKED))


def check_selector(name: str, selectors: Mapping[str, MakeSelector] = SELECTORS) -> None:
    """Raises ValueError, with advice, if there is no selector of that name."""
    if name in selector_names(selectors):
        return
    known = ", ".join(selector_names(selectors))
    if name in REMOVED:
        raise ValueError(f"the selector {name!r} was removed, because {REMOVED[name]}: choose one of {known}")
    raise ValueError(f"unknown selector {name!r}: choose one of {known}")
