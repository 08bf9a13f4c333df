"""The table of perception backends. A new backend is one file and one line here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hmas.contracts.request import TagSource
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.perception.agent.rules import RulesBackend
from hmas.runtime.extras import needs


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeConfig:
    """A causal LM: `model` is its name at the OpenAI endpoint `url`, or without one a local folder."""

    model: str
    url: str
    api_key_file: Path | None
    adapter: Path | None  # LoRA weights for the local model
    timeout_s: float  # of one answer of the endpoint

    def api_key(self) -> str:
        """Raises OSError if the file cannot be read."""
        return self.api_key_file.read_text().strip() if self.api_key_file is not None else ""


def _model(_: GenerativeConfig) -> Backend:
    with needs("perception", "set HMAS_PERCEPTION_BACKEND=rules"):
        from hmas.perception.backends.model import ModelBackend  # loads ONNX Runtime

    return ModelBackend()


def _generative(config: GenerativeConfig) -> Backend:
    from hmas.perception.backends.generative import EndpointCompletion, GenerativeBackend, LocalCompletion

    version = f"generative-{config.model}"
    if not config.url:
        with needs("generative", "set HMAS_GENERATIVE_URL"):
            return GenerativeBackend(LocalCompletion(config.model, config.adapter), version)
    with needs("meta"):
        complete = EndpointCompletion(config.url, config.model, config.api_key(), config.timeout_s)
    return GenerativeBackend(complete, version)


class SilentBackend:
    """Knows nothing of any prompt, so that the historical prior answers for all."""

    version = "silent-1"

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        return [None] * len(prompts)


BACKENDS: dict[str, tuple[TagSource, Callable[[GenerativeConfig], Backend]]] = {
    "model": (TagSource.MODEL, _model),
    "generative": (TagSource.GENERATIVE, _generative),
    "rules": (TagSource.RULES, lambda _: RulesBackend()),
    "prior": (TagSource.PRIOR, lambda _: SilentBackend()),
}
