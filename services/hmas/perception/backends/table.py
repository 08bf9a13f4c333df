"""The table of perception backends. A new backend is one file and one line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hmas.contracts.request import TagSource
from hmas.perception.agent.backend import Backend
from hmas.perception.agent.rules import RulesBackend
from hmas.runtime.extras import needs

if TYPE_CHECKING:
    from hmas.perception.settings import PerceptionSettings


def _model() -> Backend:
    with needs("perception", "set HMAS_PERCEPTION_BACKEND=rules"):
        from hmas.perception.backends.model import ModelBackend  # loads ONNX Runtime

    return ModelBackend()


def _generative(settings: "PerceptionSettings") -> Backend:
    from hmas.perception.backends.generative import EndpointCompletion, GenerativeBackend, LocalCompletion

    name = settings.generative_model
    if not settings.generative_url:
        with needs("train", "set HMAS_GENERATIVE_URL"):
            return GenerativeBackend(LocalCompletion(name, settings.generative_adapter), f"generative-{name}")
    with needs("meta"):
        complete = EndpointCompletion(
            settings.generative_url, name, settings.generative_api_key(), settings.perception_budget_s
        )
    return GenerativeBackend(complete, f"generative-{name}")


BACKENDS: dict[str, tuple[TagSource, Callable[["PerceptionSettings"], Backend]]] = {
    "model": (TagSource.MODEL, lambda settings: _model()),
    "generative": (TagSource.GENERATIVE, _generative),
    "rules": (TagSource.RULES, lambda settings: RulesBackend()),
}
