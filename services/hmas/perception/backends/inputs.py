"""The inputs of the model's heads besides the encoder's output: a prompt's features and its matching rules. Pure."""

from hmas.perception.agent.features import FEATURES, features
from hmas.perception.agent.rules import MATCHES, matches

NUMBERS = FEATURES + MATCHES


def numbers(text: str, prompt_tokens: int) -> list[float]:
    """Returns a prompt's `FEATURES` features, followed by `MATCHES` zeros and ones that say which rules match it."""
    return [*features(text, prompt_tokens), *matches(text)]
