"""The length of an answer that the client does not fix: a log-normal draw keyed by the prompt, hence repeatable."""

from dataclasses import dataclass
from hashlib import blake2b
from math import exp
from statistics import NormalDist

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class OutputLength:
    """A log-normal distribution of output lengths: `median` in tokens, `sigma` of the natural logarithm.

    The defaults are those of the Azure 2023 conversation trace.
    """

    median: float = 115.0
    sigma: float = 1.0
    seed: int = 0

    def draw(self, prompt: bytes) -> int:
        """Returns the output length of a prompt, in tokens, at least 1; it depends on the prompt and the seed alone."""
        digest = blake2b(prompt, digest_size=8, key=self.seed.to_bytes(8, "big", signed=True)).digest()
        uniform = (int.from_bytes(digest, "big") + 0.5) / 2**64
        return max(1, round(self.median * exp(self.sigma * _NORMAL.inv_cdf(min(uniform, 1.0 - 1e-12)))))
