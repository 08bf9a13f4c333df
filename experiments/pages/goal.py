"""A goal of an experiment, and what came of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in words, what came of it, and whether it is met; None: the runs for it are not finished."""

    words: str
    found: str
    met: bool | None

    @property
    def line(self) -> str:
        verdict = "not measured yet" if self.met is None else f"{self.found}: {'met' if self.met else '**missed**'}"
        return f"{self.words}: {verdict}"
