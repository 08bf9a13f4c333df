"""The table of selectors by name. A new selector takes one file and one line here."""

from collections.abc import Callable

from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.classifier import ClassifierSelector
from hmas.meta.agent.selectors.learned import learned
from hmas.meta.agent.selectors.llm import NAME as LLM
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Selector


def _bandit(config: MetaConfig) -> Selector:
    from hmas.meta.agent.selectors.bandit import BanditSelector  # needs the extra `meta`

    return BanditSelector(config.rules, learned())


def _changepoint(config: MetaConfig) -> Selector:
    from hmas.meta.agent.selectors.changepoint import ChangePointSelector  # needs the extra `meta`

    return ChangePointSelector(config.rules, learned())


SELECTORS: dict[str, Callable[[MetaConfig], Selector]] = {
    "rules": lambda config: RulesSelector(config.rules),
    "classifier": lambda config: ClassifierSelector(config.rules, learned()),
    "bandit": _bandit,
    "changepoint": _changepoint,
}
ASKED: frozenset[str] = frozenset({LLM})  # they answer later, by `SelectorAnswered`, or never


def selector_names() -> tuple[str, ...]:
    return (*SELECTORS, *sorted(ASKED))
