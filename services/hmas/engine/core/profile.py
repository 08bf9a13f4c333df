"""Engine profiles: the duration of a step, and the limits on sequences, tokens and KV memory.

Profiles that were chosen are in `profiles.yaml`, those fitted to measurements in `profiles_fitted.yaml`.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import inf
from typing import Any, Literal, get_args

import yaml

from hmas.contracts.step_cost import StepCostModel

SchedulingPolicy = Literal["fcfs", "priority", "urgency"]


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The engine's limits; they mean what vLLM's flags of the same names mean.

    `watermark` is the share of KV blocks that admission leaves free. `max_num_queued_reqs` None: an unbounded queue.
    The policy `urgency` and `dynamic_chunking` emulate the H-MAS scheduler plug-in: waiting requests are ordered by the
    urgency that each states, and prefill takes no more of a step than the slack of the decoding requests allows, at
    most `max_num_batched_tokens`. Raises ValueError for limits that are out of range or contradict one another.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_gpu_blocks: int = 4096
    max_model_len: int = 32768
    enable_prefix_caching: bool = True
    watermark: float = 0.0
    max_num_queued_reqs: int | None = None
    scheduling_policy: SchedulingPolicy = "fcfs"
    dynamic_chunking: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_gpu_blocks", "max_model_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens must be at least max_num_seqs, got {self.max_num_batched_tokens} and "
                f"{self.max_num_seqs}: raise the one or lower the other"
            )
        if self.num_gpu_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"max_model_len {self.max_model_len} exceeds the KV cache of {self.num_gpu_blocks} blocks of "
                f"{self.block_size} tokens: lower max_model_len or raise num_gpu_blocks"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ValueError(f"watermark must be in [0, 1), got {self.watermark}")
        if self.max_num_queued_reqs is not None and self.max_num_queued_reqs < 0:
            raise ValueError(f"max_num_queued_reqs must be 0 or more, got {self.max_num_queued_reqs}")
        if self.scheduling_policy not in get_args(SchedulingPolicy):
            names = ", ".join(get_args(SchedulingPolicy))
            raise ValueError(f"scheduling_policy must be one of {names}, got {self.scheduling_policy!r}")


@dataclass(frozen=True, slots=True)
class FitError:
    """How well a cost model reproduces the measurements it was fitted to.

    `points` is their number. The others are relative errors as shares, mean and 90 % quantile; None where the source
    has no measurements of that kind.
    """

    points: int
    prefill_mean: float | None
    prefill_p90: float | None
    decode_mean: float | None
    decode_p90: float | None


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """An engine to emulate: its cost model and limits, the `source` of the figures, and the error of their fit.

    `fit` is None for a profile that was chosen, not fitted. `request_overhead_s` is the time that a request spends
    outside the engine's steps (HTTP, tokenizer, transport), in [0, 60); it delays the request and costs the engine
    no time. `model` and `hardware` name what is emulated, for cost models; empty where it is like nothing real.
    `card_gb` is the memory of one of its cards in GB, from which engines derive defaults; None if it is unknown.
    """

    name: str
    cost: StepCostModel
    limits: EngineLimits = field(default_factory=EngineLimits)
    source: str = ""
    fit: FitError | None = None
    request_overhead_s: float = 0.0
    model: str = ""
    hardware: str = ""
    card_gb: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.request_overhead_s < 60.0:
            raise ValueError(f"request_overhead_s must be in [0, 60), got {self.request_overhead_s}")
        if self.card_gb is not None and not 0.0 < self.card_gb < inf:
            raise ValueError(f"card_gb must be a finite number above 0, got {self.card_gb}")

    def with_limits(self, **overrides: Any) -> "EngineProfile":
        """Returns a copy with the given limits replaced. Raises ValueError if the limits contradict one another."""
        return replace(self, limits=replace(self.limits, **overrides))


def parse_profiles(text: str) -> dict[str, EngineProfile]:
    """Returns the profiles of a YAML text `{name: {source, model, hardware, card_gb, cost, limits, fit}}` by name.

    Raises ValueError that names the faulty profile and the reason.
    """
    document = yaml.safe_load(text)
    if not isinstance(document, dict):
        raise ValueError(
            "this profile file is not a YAML mapping: it must map profile names to {source, model, hardware, "
            "card_gb, cost, limits, fit}"
        )
    return {str(name): _profile(str(name), body) for name, body in document.items()}


def _profile(name: str, body: Any) -> EngineProfile:
    try:
        fit = body.get("fit")
        return EngineProfile(
            name=name,
            cost=StepCostModel(**{key: float(value) for key, value in body["cost"].items()}),
            limits=EngineLimits(**body.get("limits", {})),
            source=str(body.get("source", "")),
            fit=FitError(**fit) if fit else None,
            request_overhead_s=float(body.get("request_overhead_s", 0.0)),
            model=str(body.get("model", "")),
            hardware=str(body.get("hardware", "")),
            card_gb=float(body["card_gb"]) if body.get("card_gb") is not None else None,
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"engine profile {name!r} is not valid: {reason}") from error


@cache
def builtin_profiles() -> dict[str, EngineProfile]:
    """Returns the profiles that come with the package, by name."""
    folder = files("hmas.engine.core")
    texts = ((folder / name).read_text(encoding="utf-8") for name in ("profiles.yaml", "profiles_fitted.yaml"))
    return {name: profile for text in texts for name, profile in parse_profiles(text).items()}


def builtin_profile(name: str) -> EngineProfile:
    """Returns the built-in profile of that name. Raises ValueError that lists the known names."""
    profiles = builtin_profiles()
    if name not in profiles:
        raise ValueError(f"no engine profile {name!r}; choose one of: {', '.join(sorted(profiles))}")
    return profiles[name]
