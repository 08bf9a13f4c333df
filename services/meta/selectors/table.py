"""The selectors there are. A new one is one file and one line here."""

from collections.abc import Callable

from services.meta.config import MetaConfig
from services.meta.selectors.llm import NAME as LLM
from services.meta.selectors.rules import RulesSelector
from services.meta.selectors.selector import Selector

SELECTORS: dict[str, Callable[[MetaConfig], Selector]] = {
    "rules": lambda config: RulesSelector(config.rules),
}
ASKED: frozenset[str] = frozenset({LLM})  # answered by `SelectorAnswered`, some time or never


def selector_names() -> tuple[str, ...]:
    return (*SELECTORS, *sorted(ASKED))
