"""What the heads read of a prompt beside the encoder's output: its features, then which rules match it. Pure."""

from hmas.perception.agent.features import FEATURES, features
from hmas.perception.agent.rules import MATCHES, matches

NUMBERS = FEATURES + MATCHES


def numbers(text: str, prompt_tokens: int) -> list[float]:
    """`NUMBERS` numbers: the first `FEATURES` are `features`, the others `matches`."""
    return [*features(text, prompt_tokens), *matches(text)]
