"""Keyword rules learnt from examples: what rules are worth on a source whose wording nobody has seen. Pure.

A decision list (Rivest 1987; Yarowsky 1994): every word and pair of words votes for the type it tells most, and the
strongest one that a prompt holds decides.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hmas.contracts.request import TaskType
from hmas.perception.backends.grams import words

LEAST_PROMPTS = 3  # that hold a word before it may be a rule
SMOOTHING = 0.1


class DecisionList:
    """Learns from prompt texts and their types, one count a text."""

    def __init__(self, texts: Sequence[str], tasks: Sequence[TaskType]) -> None:
        counts: defaultdict[str, Counter[TaskType]] = defaultdict(Counter)
        for text, task in zip(texts, tasks, strict=True):
            for term in _terms(text):
                counts[term][task] += 1
        self._rules = {term: _rule(found) for term, found in counts.items() if found.total() >= LEAST_PROMPTS}

    def tag(self, text: str) -> TaskType:
        """`unknown` where no word of the text was learnt."""
        found = [self._rules[term] for term in sorted(_terms(text)) if term in self._rules]
        return max(found, key=lambda rule: rule[0])[1] if found else TaskType.UNKNOWN


def _rule(found: Counter[TaskType]) -> tuple[float, TaskType]:
    """Log odds of the type a term tells most, and the type."""
    task, hits = max(found.items(), key=lambda item: (item[1], item[0]))
    return math.log((hits + SMOOTHING) / (found.total() - hits + SMOOTHING)), task


def _terms(text: str) -> set[str]:
    found = words(text)
    return {*found, *(f"{a} {b}" for a, b in pairwise(found))}
