"""The scenario of the comparison: the engine's flags, the loads, and the slices of the trace."""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hmas.engine.core.profile import EngineProfile
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.workloads.published import published_trace

TRACE = Path("traces") / "azure_2023_conv.csv.gz"
SPARE_TOKENS = 16  # tokens of the context that stay unused
SEARCH_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayScenario:
    """The engine's flags, and the least length of a replay: in seconds, and in requests, because medians of few vary
    and a slow machine serves few in that time. `hidden` and `layers` size a model with random weights, large enough
    that its steps take longer than the HTTP server's work. The KV memory is too small for `max_num_seqs` sequences of
    the trace, so that the highest load causes preemptions."""

    hidden: int = 256
    layers: int = 4
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 512
    max_model_len: int = 4096
    block_size: int = 32
    num_gpu_blocks: int = 224
    seconds: float = 30.0
    requests: int = 100

    def digest(self) -> str:
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:12]

    def flags(self) -> list[str]:
        """Returns the flags for `vllm serve`."""
        return [
            "--max-num-seqs", str(self.max_num_seqs), "--max-model-len", str(self.max_model_len),
            "--max-num-batched-tokens", str(self.max_num_batched_tokens), "--block-size", str(self.block_size),
            "--num-gpu-blocks-override", str(self.num_gpu_blocks), "--no-enable-prefix-caching", "--dtype", "float32",
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FidelityLoad:
    """A load: `share` of the rate at which an engine that is always full would just keep up (`full_rate_rps`)."""

    name: str
    share: float


LOADS = (FidelityLoad("light", 0.4), FidelityLoad("busy", 0.7), FidelityLoad("memory short", 1.8))


def full_rate_rps(profile: EngineProfile, trace: Trace) -> float:
    """Returns the rate, requests per second, that an engine with all its sequences running can just serve, by the cost
    model of its profile."""
    cost, seqs = profile.cost, profile.limits.max_num_seqs
    seconds = 0.0
    for row in trace.rows:
        context = seqs * (row.input_tokens + row.output_tokens / 2)
        step_s = cost.step_s(0, seqs, int(context), 0.0)
        seconds += cost.c_p_s * row.input_tokens + cost.c_pp_s * row.input_tokens**2 / 2
        seconds += row.output_tokens * step_s / seqs
    return len(trace.rows) / seconds


def slices(scenario: ReplayScenario, profile: EngineProfile, data: Path | None) -> dict[str, Trace]:
    """Returns one slice of the trace per load, by its name: a different part for each, scaled in time to the rate of
    the load. `data` is the folder with traces/; None makes a trace from published statistics."""
    whole = read_trace(data / TRACE) if data else published_trace(1.0, SEARCH_S, seed=7)
    fitting = [
        row for row in whole.rows if row.input_tokens + row.output_tokens <= scenario.max_model_len - SPARE_TOKENS
    ]
    whole = whole.derived(fitting, f"requests within {scenario.max_model_len} tokens")
    rate_rps = full_rate_rps(profile, whole)
    found = {}
    for number, load in enumerate(LOADS, 1):
        rate = rate_rps * load.share
        count = max(scenario.requests, round(rate * scenario.seconds))
        first = number * len(whole.rows) // (len(LOADS) + 1)
        rows = whole.rows[first : first + count]
        start_s, span_s, seconds = rows[0].arrival_s, rows[-1].arrival_s - rows[0].arrival_s, count / rate
        moved = [replace(row, arrival_s=(row.arrival_s - start_s) * seconds / span_s) for row in rows]
        found[load.name] = whole.derived(moved, f"{count} requests from the {first}th on, in {seconds:.1f} s", seconds)
    return found
