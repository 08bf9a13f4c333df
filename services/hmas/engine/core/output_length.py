"""How long an answer is when the client does not fix it: a log-normal draw keyed by the prompt, so that it repeats."""

from dataclasses import dataclass
from hashlib import blake2b
from math import exp
from statistics import NormalDist

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class OutputLength:
    """Median and sigma of the logarithm; the defaults are those of the Azure 2023 conversation trace."""

    median: float = 115.0
    sigma: float = 1.0
    seed: int = 0

    def draw(self, prompt: bytes) -> int:
        """Tokens, at least 1. The same for the same prompt and seed, everywhere."""
        digest = blake2b(prompt, digest_size=8, key=self.seed.to_bytes(8, "big", signed=True)).digest()
        uniform = (int.from_bytes(digest, "big") + 0.5) / 2**64
        return max(1, round(self.median * exp(self.sigma * _NORMAL.inv_cdf(min(uniform, 1.0 - 1e-12)))))
