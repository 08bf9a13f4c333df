"""The process of a rehearsal: `python -m hmas.sim.past.rehearse` reads a question from its standard input, gives way to
everything else on the machine, and writes the answer to its standard output.

The question is one line of JSON, a `RehearsalQuestion`; the rows of the past requests follow, a line each.
"""

import gc
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from hmas.contracts.rehearsal import Policy, PoolFacts, Rehearsal
from hmas.engine.core.profile import EngineProfile, builtin_profile, parse_profiles
from hmas.laws.request_rows import RequestRow, parse_row, row_line
from hmas.sim.past.fitted import fitted_profiles
from hmas.sim.past.rehearsal import rehearse
from hmas.sim.past.replay import Scene

MODULE = "hmas.sim.past.rehearse"
MAX_ROWS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalQuestion:
    """What is to be rehearsed. `profile` None: that of the engines' measured pace, which `facts` tell; the most tokens
    of a step do not show in it: `max_num_batched_tokens` states them, or vLLM's default is taken."""

    window_s: float
    facts: PoolFacts
    in_force: Policy
    candidates: tuple[Policy, ...]
    seeds: tuple[int, ...] = (1,)
    profile: EngineProfile | None = None
    profile_name: str = ""  # in its place: of a built-in profile, or a file
    max_num_batched_tokens: int | None = None


_QUESTION = TypeAdapter(RehearsalQuestion)
_ANSWER = TypeAdapter(Rehearsal)


def question_lines(question: RehearsalQuestion, rows: Iterable[RequestRow]) -> bytes:
    """Returns what the process is to read."""
    return _QUESTION.dump_json(question) + b"\n" + b"".join(map(row_line, rows))


def parse_answer(text: bytes) -> Rehearsal:
    """Reads what the process wrote. Raises ValueError if it is not an answer."""
    return _ANSWER.validate_json(text)


def named_profile(name: str) -> EngineProfile | None:
    """Returns the built-in profile of that name, or the first one of a file that `hmas calibrate` wrote; None for no
    name. Raises ValueError, or OSError if the file cannot be read."""
    if not name:
        return None
    path = Path(name)
    if not path.is_file():
        return builtin_profile(name)
    profiles = parse_profiles(path.read_text(encoding="utf-8"))
    if not profiles:
        raise ValueError(f"{name} holds no profile")
    return next(iter(profiles.values()))


def named_profiles(facts: PoolFacts, named: EngineProfile) -> tuple[EngineProfile, ...]:
    """Returns a profile that is named, for each engine; where its instance type is known, with the type's name."""
    types = [each.instance_type for each in facts.engines]
    return tuple(named if kind is None else replace(named, name=kind.name) for kind in types)


def answer(question: RehearsalQuestion, rows: Sequence[RequestRow]) -> Rehearsal:
    """Rehearses in this process. Raises ValueError if the question cannot be answered."""
    facts, began_s = question.facts, time.process_time()
    named = question.profile or named_profile(question.profile_name)
    profiles = fitted_profiles(facts) if named is None else named_profiles(facts, named)
    if (tokens := question.max_num_batched_tokens) is not None:
        profiles = tuple(each.with_limits(max_num_batched_tokens=tokens) for each in profiles)
    scene = Scene(
        rows=tuple(sorted(rows, key=lambda row: row.arrival_s)),
        window_s=question.window_s,
        profiles=profiles,
        workers=facts.workers,
        in_force=question.in_force,
        layouts=facts.layouts,
    )
    found = rehearse(scene, question.candidates, question.seeds)
    return replace(found, cpu_s=time.process_time() - began_s)


def main(source: BinaryIO, sink: BinaryIO) -> None:
    os.nice(19)
    gc.freeze()
    gc.set_threshold(20_000, 50, 1_000)  # a replay leaves few cycles
    question = _QUESTION.validate_json(source.readline())
    rows = [parse_row(line) for _, line in zip(range(MAX_ROWS), source, strict=False)]
    sink.write(_ANSWER.dump_json(answer(question, rows)))


if __name__ == "__main__":
    try:
        main(sys.stdin.buffer, sys.stdout.buffer)
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
