"""Prompts of the thirteen task types in our own words, so that perception has language to read where no labelled
prompts are at hand."""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate
from random import Random

import yaml

from hmas.contracts.request import TaskType
from hmas.laws.tokens import BYTES_PER_TOKEN

TOKENS_PER_WORD = 1.4  # of an answer; what a prompt asks for is rounded, and seldom met exactly
LENGTH_SIGMA = 0.2
CONTEXT_BYTES = 200
SENTENCE, SENTENCES = "{opening}, {actor} {act}, {ending}. ", 2_000
_SLOT = re.compile(r"\{(\w+)\}")
_PASSAGE = "\0"  # where a passage goes, whose size is known only when all else is written


@dataclass(frozen=True, slots=True)
class TypedPrompts:
    """`frames` are the prompts of each type, with `{slot}`s to fill. Passages are cut from `prose`, which is ASCII; at
    `starts` its sentences begin."""

    frames: dict[TaskType, tuple[str, ...]]
    slots: dict[str, tuple[str, ...]]
    prose: str = ""
    starts: tuple[int, ...] = ()

    def text(self, task: TaskType, tokens: int, output_tokens: int, draw: Random) -> str:
        """Returns a prompt of the type of exactly `tokens` tokens, by the mesh's estimate. If it asks for a length,
        that is about `output_tokens`; if not even the shortest frame fits, it is cut."""
        frame = draw.choice(self._fitting(task, tokens))
        words = max(10.0, output_tokens / TOKENS_PER_WORD * draw.lognormvariate(0.0, LENGTH_SIGMA))
        step = 10 if words < 100 else 50
        special = {"words": f"{max(step, round(words / step) * step)}"}
        before, hole, after = self._fill(frame, special, draw).partition(_PASSAGE)
        size = tokens * BYTES_PER_TOKEN - len(before) - len(after)
        if not hole:
            # What a prompt without a passage lacks comes before its question as context, or, if short, after it.
            text = (
                f"{self.passage(size - 2, draw)}\n\n{before}"
                if size > CONTEXT_BYTES
                else f"{before} {self.passage(size - 1, draw)}"
            )
            return text[: tokens * BYTES_PER_TOKEN]
        return f"{before}{self.passage(size, draw)}{after}"[: tokens * BYTES_PER_TOKEN]

    def _fitting(self, task: TaskType, tokens: int) -> tuple[str, ...]:
        """Returns the frames that fit in `tokens` tokens, or the shortest one."""
        frames = self.frames[task]
        size = tokens * BYTES_PER_TOKEN
        return tuple(f for f in frames if len(f.encode()) <= size) or (min(frames, key=len),)

    def passage(self, size: int, draw: Random) -> str:
        """Returns sentences of exactly `size` bytes; the last one is cut."""
        parts: list[str] = []
        while size > 0:
            start = draw.choice(self.starts)
            parts.append(self.prose[start : start + size])
            size -= len(parts[-1])
        return "".join(parts)

    def _fill(self, frame: str, special: dict[str, str], draw: Random) -> str:
        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == "passage":
                return _PASSAGE
            return special[name] if name in special else self._fill(draw.choice(self.slots[name]), special, draw)

        return _SLOT.sub(fill, frame)


@cache
def typed_prompts() -> TypedPrompts:
    """Reads the prompts that come with the package."""
    document = yaml.safe_load((files("hmas_loadgen") / "typed_prompts.yaml").read_text(encoding="utf-8"))
    frames = {TaskType(name): tuple(lines) for name, lines in document["frames"].items()}
    slots = {name: tuple(map(str, entries)) for name, entries in {**document["slots"], **document["prose"]}.items()}
    words = TypedPrompts(frames, slots)
    draw = Random("prose")
    sentences = [words._fill(SENTENCE, {}, draw) for _ in range(SENTENCES)]
    lengths = accumulate((len(sentence) for sentence in sentences), initial=0)
    return TypedPrompts(frames, slots, "".join(sentences), tuple(lengths)[:-1])
