"""The backends there are. A new one is one file and one line here."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.contracts.request import TagSource
from services.perception.backend import Backend
from services.perception.rules import RulesBackend

if TYPE_CHECKING:
    from services.perception.settings import PerceptionSettings


def _model() -> Backend:
    from services.perception.model import ModelBackend  # ONNX Runtime loads only where it runs

    return ModelBackend()


BACKENDS: dict[str, tuple[TagSource, Callable[["PerceptionSettings"], Backend]]] = {
    "model": (TagSource.MODEL, lambda settings: _model()),
    "rules": (TagSource.RULES, lambda settings: RulesBackend()),
}
