"""The table of selectors by name. A new selector takes one file and one line here."""

from collections.abc import Callable

from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.llm import NAME as LLM
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Selector


def _bandit(config: MetaConfig) -> Selector:
    from hmas.meta.agent.selectors.bandit import BanditSelector  # needs the extra `meta`

    return BanditSelector(config.rules)


SELECTORS: dict[str, Callable[[MetaConfig], Selector]] = {
    "rules": lambda config: RulesSelector(config.rules),
    "bandit": _bandit,
}
ASKED: frozenset[str] = frozenset({LLM})  # they answer later, by `SelectorAnswered`, or never
REMOVED = frozenset({"classifier", "changepoint"})  # ADR 38


def selector_names() -> tuple[str, ...]:
    return (*SELECTORS, *sorted(ASKED))


def check_selector(name: str) -> None:
    """Raises ValueError, with advice, if there is no selector of that name."""
    if name in selector_names():
        return
    known = ", ".join(selector_names())
    if name in REMOVED:
        raise ValueError(
            f"the selector {name!r} was removed, because it always chose one topology: choose one of {known}"
        )
    raise ValueError(f"unknown selector {name!r}: choose one of {known}")
