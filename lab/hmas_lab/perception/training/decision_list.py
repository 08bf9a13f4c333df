"""Keyword rules learnt from examples, a baseline for sources whose wording was not seen in training. Pure.

A decision list (Rivest 1987; Yarowsky 1994): each word and pair of words is a rule for the task type it occurs with
most, and the strongest rule whose words are in a prompt decides.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from hmas.contracts.request import TaskType
from hmas.perception.backends.grams import words

LEAST_PROMPTS = 3  # a word must occur in this many prompts to become a rule
SMOOTHING = 0.1


class DecisionList:
    """A decision list learnt from prompt texts and their task types; a word counts once per text."""

    def __init__(self, texts: Sequence[str], tasks: Sequence[TaskType]) -> None:
        counts: defaultdict[str, Counter[TaskType]] = defaultdict(Counter)
        for text, task in zip(texts, tasks, strict=True):
            for term in _terms(text):
                counts[term][task] += 1
        self._rules = {term: _rule(found) for term, found in counts.items() if found.total() >= LEAST_PROMPTS}

    def tag(self, text: str) -> TaskType:
        """Returns the task type of a text; `unknown` if no rule's words occur in it."""
        found = [self._rules[term] for term in sorted(_terms(text)) if term in self._rules]
        return max(found, key=lambda rule: rule[0])[1] if found else TaskType.UNKNOWN


def _rule(found: Counter[TaskType]) -> tuple[float, TaskType]:
    """Returns the smoothed log odds of the task type that a term occurs with most, and that type."""
    task, hits = max(found.items(), key=lambda item: (item[1], item[0]))
    return math.log((hits + SMOOTHING) / (found.total() - hits + SMOOTHING)), task


def _terms(text: str) -> set[str]:
    found = words(text)
    return {*found, *(f"{a} {b}" for a, b in pairwise(found))}
