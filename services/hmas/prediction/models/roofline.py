"""What a request costs by arithmetic: bytes read over bandwidth, operations over their rate, and the fixed times of
layers and sequences. Pure.

The terms are times in ms of a prefill and of one decode step, as a roofline model gives them. `Roofline` adds them up
with a few constants, which training fits; that alone answers where a model or an accelerator is unknown. Trees learn
the ratio of measured to physical times from inputs that an engine which nobody measured has as well: its state and the
shares of the terms, never the size of a model or an accelerator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import Cost
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import facts

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]

STATE = ("concurrency", "running", "waiting", "prompt_tokens", "output_tokens", "graphs")
_KEPT = ("encoder_decoder", "weight_bytes", "nvlink", "devices")  # of the facts, those that the trees read
PREFILL_TERMS = (
    "eager", "two_parts", "graphs", "layers_eager", "layers_graphs", "layers_linked", "weights", "multiply",
    "attention", "ahead", "ahead_long", "load", "sequences", "waiting", "wait", "step_eager", "step_graphs",
    "beside_long", "wait_long",
)  # fmt: skip
DECODE_TERMS = (
    "step", "two_parts", "layers_eager", "layers_graphs", "layers_linked", "weights", "kv", "kv_two_parts",
    "multiply_eager", "multiply_load", "multiply_graphs", "prefills", "sequences_eager", "sequences_graphs",
    "sequences_two_parts",
)  # fmt: skip
NAMES = (*_KEPT, *STATE, *(f"prefill_{name}" for name in PREFILL_TERMS), *(f"decode_{name}" for name in DECODE_TERMS))
PREFILL = slice(len(_KEPT) + len(STATE), len(NAMES) - len(DECODE_TERMS))
DECODE = slice(PREFILL.stop, len(NAMES))
TERMS = {"prefill": PREFILL_TERMS, "decode": DECODE_TERMS}
_READ_BY = {
    time: (*NAMES[: PREFILL.start], *(f"{time}_{name}_share" for name in terms), f"log_{time}")
    for time, terms in TERMS.items()
}
LEARNABLE = (*_READ_BY["prefill"], *_READ_BY["decode"])
READ = (slice(0, len(_READ_BY["prefill"])), slice(len(_READ_BY["prefill"]), len(LEARNABLE)))

_USABLE_MEMORY = 0.9  # share of a device's memory left for weights and KV cache
_KV_BYTES = 2.0
_LEAST_ROOM = 1000.0  # tokens of KV cache
_LEAST_PREFILL_MS, _LEAST_TPOT_MS = 1.0, 0.1


def inputs(fact: Floats, state: Floats) -> Rows:
    """Returns rows of inputs [n, len(NAMES)] for facts [n, k] (`facts`) and states [n, len(STATE)].

    `graphs` is 1 for engines that replay CUDA graphs and prefill in chunks, as those of today do, and 0 for the eager
    ones of 2023, which launched each kernel and let a prefill stop all decoding. `concurrency` counts the request
    itself, what runs and what waits.
    """
    params, active, layers, width, _, weight_bytes, two_parts = fact.T[:7]
    _, bandwidth, tflops, nvlink, narrow, host, devices = fact.T[7:]
    concurrency, running, waiting, prompt, output, graphs = state.T
    eager = 1.0 - graphs
    launch = eager / host
    rate = tflops * devices * 2.0 / np.maximum(weight_bytes, narrow)
    read_gb_s = bandwidth * devices
    part = 1.0 - 0.5 * two_parts  # an encoder reads the prompt and a decoder writes the answer
    kv_gb = _kv_gb(fact)
    batch = running + 1.0
    touched = params * (1.0 - (1.0 - np.minimum(1.0, active / params)) ** batch)  # of a mixture, by any of the batch
    token_ms = 2.0 * active * part / rate
    prompt_ms = token_ms * prompt
    weights_ms = touched * weight_bytes * part / read_gb_s * 1e3
    kv_ms = batch * (prompt + output / 2.0) * kv_gb / read_gb_s * 1e3
    linked = layers * (devices > 1.0)
    step_ms = weights_ms + kv_ms + (0.4 * launch + 0.05) * layers + 12.0 * eager * token_ms * batch
    columns = (
        two_parts, weight_bytes, nvlink, devices, *state.T,
        launch, two_parts / host, graphs, layers * launch, layers * graphs, linked,
        params * weight_bytes * part / read_gb_s * 1e3, prompt_ms, 2.0 * layers * width * prompt**2 / 1e9 / rate,
        token_ms * waiting, prompt_ms * waiting, token_ms * concurrency * eager, batch * launch, waiting / host,
        step_ms * waiting / (batch + 0.05 * concurrency), step_ms * eager, step_ms * graphs,
        prompt_ms * batch * graphs, graphs * step_ms * output * waiting / batch,
        1.0 / host, two_parts / host, layers * launch, layers * graphs, linked, weights_ms, kv_ms, kv_ms * two_parts,
        token_ms * batch * eager, token_ms * concurrency * eager, token_ms * batch * graphs,
        graphs * prompt_ms * batch / (output + 100.0), batch * launch, batch * graphs / devices,
        batch * two_parts / host,
    )  # fmt: skip
    return np.stack(columns, axis=1).astype(np.float32)


def slots(fact: Floats, tokens: Floats) -> Floats:
    """Returns how many sequences of `tokens` tokens [n] fit into the memory beside the weights, at least 1."""
    memory, devices, weights_gb = fact[:, 7], fact[:, 13], fact[:, 0] * fact[:, 5]
    room = np.maximum(_LEAST_ROOM, (memory * devices * _USABLE_MEMORY - weights_gb) / _kv_gb(fact))
    return np.maximum(1.0, room / tokens)


def _kv_gb(fact: Floats) -> Floats:
    """Returns the size of a token in the KV cache."""
    size: Floats = 2.0 * fact[:, 2] * fact[:, 4] * _KV_BYTES / 1e9
    return size


def rows_of(queries: Sequence[CostQuery]) -> Rows:
    """Returns the inputs for queries, of which there is at least one, for an engine of today."""
    state = [
        (q.running + q.waiting + 1.0, q.running, q.waiting, max(1, q.prompt_tokens), max(1.0, q.output_tokens), 1.0)
        for q in queries
    ]
    return inputs(np.array([facts(q.model, q.hardware) for q in queries]), np.array(state, np.float64))


@dataclass(frozen=True, slots=True)
class Roofline:
    """The constants by which the terms are multiplied, in the order of `PREFILL_TERMS` and `DECODE_TERMS`."""

    prefill: tuple[float, ...]
    decode: tuple[float, ...]

    @classmethod
    def named(cls, constants: Mapping[str, Mapping[str, float]]) -> "Roofline":
        """Returns the roofline of constants by the name of the time and of the term."""
        return cls(**{time: tuple(constants[time][name] for name in names) for time, names in TERMS.items()})

    def names(self) -> dict[str, dict[str, float]]:
        """Returns the constants by the name of the time and of the term."""
        return {time: dict(zip(names, getattr(self, time), strict=True)) for time, names in TERMS.items()}

    def seconds(self, rows: Rows) -> Floats:
        """Returns prefill time and time per output token, in s [n, 2], for rows [n, len(NAMES)]."""
        return self._parts(rows)[0] / 1e3

    def learnable(self, rows: Rows) -> tuple[Floats, Rows]:
        """Returns the times as `seconds` does, and what the trees read [n, len(LEARNABLE)]: first those of the prefill
        time, then those of the time per token (`READ`) the engine's state, the share of each term in the physical time,
        and the logarithm of that time in ms."""
        total, prefill, decode = self._parts(rows)
        state, log = rows[:, : PREFILL.start], np.log(total)
        read = (state, prefill / total[:, :1], log[:, :1], state, decode / total[:, 1:], log[:, 1:])
        return total / 1e3, np.concatenate(read, axis=1).astype(np.float32)

    def _parts(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        prefill, decode = rows[:, PREFILL] * np.array(self.prefill), rows[:, DECODE] * np.array(self.decode)
        total = np.stack((prefill.sum(axis=1), decode.sum(axis=1)), axis=1)
        return np.maximum(total, (_LEAST_PREFILL_MS, _LEAST_TPOT_MS)), prefill, decode


class RooflineCostModel:
    """The physical term alone, for engines whose model or accelerator the catalogue does not know."""

    version = "roofline-1"

    def __init__(self, roofline: Roofline) -> None:
        self._roofline = roofline

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        return costs(self._roofline.seconds(rows_of(queries))) if queries else []


def costs(times_s: Floats) -> list[Cost]:
    """Returns the costs of times in s [n, 2]."""
    return [Cost(prefill, tpot) for prefill, tpot in times_s.tolist()]
