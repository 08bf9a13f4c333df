"""Corrects the estimate of prompt tokens by what engines count: their tokenizers differ from one another and from four
bytes a token, and the template of a chat adds a text of its own to every prompt, such as a system prompt."""

from dataclasses import dataclass

LEAST = 20  # prompts that were counted before their line is believed
MEMORY = 100  # prompts over which it is averaged
MOST_KEYS = 1024
MOST_RATIO = 3.0
MOST_ADDED = 256.0  # tokens that a template may add
USUAL_ADDED = 100.0  # how far from 0 what a template adds is believed to be, before anything was counted
SMALLEST = 4  # tokens of a prompt that tells something; every chat has as many


@dataclass(slots=True)
class _Line:
    """counted = added + ratio * estimate, by least squares of the relative errors, over the last prompts.

    The means are weighted by the inverse square of what was counted. `USUAL_ADDED` keeps the line through the origin
    where all prompts are of one length, which cannot tell the two apart.
    """

    count: int = 0
    weight: float = 0.0
    x: float = 0.0
    xx: float = 0.0
    y: float = 0.0
    xy: float = 0.0

    def learn(self, estimate: float, counted: float) -> None:
        self.count = min(self.count + 1, MEMORY)
        weight, share = 1.0 / (counted * counted), 1.0 / self.count
        self.weight += (weight - self.weight) * share
        self.x += (weight * estimate - self.x) * share
        self.xx += (weight * estimate * estimate - self.xx) * share
        self.y += (weight * counted - self.y) * share
        self.xy += (weight * estimate * counted - self.xy) * share

    def counted(self, estimate: float) -> float:
        weight = self.weight + 1.0 / (self.count * USUAL_ADDED**2)
        ratio = (weight * self.xy - self.x * self.y) / (weight * self.xx - self.x * self.x)
        return (self.y - ratio * self.x) / weight + ratio * estimate


class TokenScale:
    """The line by which an engine's count follows from the estimate, by pool and path of the API: only some of the
    paths have a template."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    def scaled(self, pool: str, path: str, estimate: int) -> int:
        """Returns a prompt's tokens by its estimate, at least 1."""
        line = self._lines.get((pool, path))
        if line is None or line.count < LEAST or estimate < SMALLEST:
            return estimate
        return max(1, round(_believable(estimate, line.counted(estimate))))

    def learn(self, pool: str, path: str, estimate: int, counted: int) -> None:
        """Records what an engine counted where this was the estimate."""
        if estimate < SMALLEST or counted <= 0:
            return
        line = self._lines.pop((pool, path), None) or _Line()
        if len(self._lines) >= MOST_KEYS:
            del self._lines[next(iter(self._lines))]
        line.learn(estimate, _believable(estimate, counted))
        self._lines[pool, path] = line


def _believable(estimate: float, counted: float) -> float:
    return min(max(counted, estimate / MOST_RATIO), MOST_RATIO * estimate + MOST_ADDED)
