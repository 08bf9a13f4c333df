"""Replays one slice of a trace against an engine, real or emulated, and stores the result in a file."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import httpx

from hmas_loadgen.plan import Api, Lengths, LoadPlan, Target
from hmas_loadgen.result import LoadResult
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace

DRAIN_S = 90.0
SEED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one replay. `tokens_per_s` is the number of output tokens over the time from the first request to
    the last token. `preemptions` is counted by the engine."""

    tokens_per_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    requests: int
    completed: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request of a replay: its prompt and output lengths in tokens, and when it was sent and got its first and last
    token, in seconds since the start."""

    prompt: int
    output: int
    sent_s: float
    first_s: float
    last_s: float


COMPARED = tuple(f.name for f in fields(Figures))[:5]


async def replay(name: str, url: str, model: str, trace: Trace) -> tuple[Figures, list[Seen]]:
    """Replays `trace` against the engine at `url`. Returns the figures and the times of each request. Raises ValueError
    if the run is invalid, because the load generator was late for example."""
    target = Target(base_urls=(url,), model=model, api=Api.COMPLETIONS, lengths=Lengths.DIRECT, api_key="unused")
    plan = LoadPlan(name=name, trace=trace, target=target, seed=SEED, window_s=trace.duration_s, drain_s=DRAIN_S)
    before = preemptions(url)
    result = await run_load(plan)
    if result.reasons:
        raise ValueError(f"the replay {name!r} is invalid, repeat it: {'; '.join(result.reasons)}")
    return figures(result, preemptions(url) - before), requests(result)


def figures(result: LoadResult, preempted: int) -> Figures:
    score = result.score()
    done = [r for r in result.records if r.last_token_s is not None]
    span_s = max(r.last_token_s or 0.0 for r in done) - min(r.sent_s for r in done)
    return Figures(
        tokens_per_s=sum(r.output_tokens for r in done) / span_s,
        ttft_p50_s=score.ttft_p50_s,
        ttft_p95_s=score.ttft_p95_s,
        tpot_p50_s=score.tpot_p50_s,
        tpot_p95_s=score.tpot_p95_s,
        requests=score.offered,
        completed=score.completed,
        preemptions=preempted,
    )


def requests(result: LoadResult) -> list[Seen]:
    return [
        Seen(
            prompt=r.prompt_tokens,
            output=r.output_tokens,
            sent_s=r.sent_s,
            first_s=r.first_token_s or 0.0,
            last_s=r.last_token_s or 0.0,
        )
        for r in result.records
    ]


def preemptions(url: str) -> int:
    page = httpx.get(f"{url}/metrics", timeout=10).text
    lines = [line for line in page.splitlines() if line.startswith("vllm:num_preemptions_total")]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


class Store:
    """Keeps the replays of one scenario as JSON files in a folder, one per replay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self._folder / f"{name.replace(' ', '-')}.json"

    def has(self, name: str) -> bool:
        return self.path(name).exists()

    def save(self, name: str, found: Figures, seen: list[Seen], probes_s: tuple[float, ...] = ()) -> None:
        rows = [asdict(one) for one in seen]
        self.path(name).write_text(json.dumps({"figures": asdict(found), "requests": rows, "probes_s": probes_s}))

    def load(self, name: str) -> Figures:
        return Figures(**self._page(name)["figures"])

    def seen(self, name: str) -> list[Seen]:
        """Returns the requests of a stored replay, all of which must have ended."""
        return [Seen(**row) for row in self._page(name)["requests"]]

    def probes_s(self, name: str) -> tuple[float, ...]:
        return tuple(self._page(name)["probes_s"])

    def _page(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.path(name).read_text()))
