"""The selectors there are. A new one is one file and one line here."""

from collections.abc import Callable

from services.meta.config import MetaConfig
from services.meta.selectors.classifier import ClassifierSelector
from services.meta.selectors.learned import learned
from services.meta.selectors.llm import NAME as LLM
from services.meta.selectors.rules import RulesSelector
from services.meta.selectors.selector import Selector


def _bandit(config: MetaConfig) -> Selector:
    from services.meta.selectors.bandit import BanditSelector  # needs the extra `adaptive`

    return BanditSelector(config.rules, learned())


def _changepoint(config: MetaConfig) -> Selector:
    from services.meta.selectors.changepoint import ChangePointSelector  # needs the extra `adaptive`

    return ChangePointSelector(config.rules, learned())


SELECTORS: dict[str, Callable[[MetaConfig], Selector]] = {
    "rules": lambda config: RulesSelector(config.rules),
    "classifier": lambda config: ClassifierSelector(config.rules, learned()),
    "bandit": _bandit,
    "changepoint": _changepoint,
}
ASKED: frozenset[str] = frozenset({LLM})  # answered by `SelectorAnswered`, some time or never


def selector_names() -> tuple[str, ...]:
    return (*SELECTORS, *sorted(ASKED))
