"""Reads the files of `data/perf` into one form: regressor inputs, targets, and the origin of each row."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hmas.prediction.models.catalogue import architecture, card, facts
from hmas.prediction.models.roofline import STATE, inputs, slots

LLM_PILOT, SPLITWISE = "llm_pilot_requests.csv.gz", "splitwise_perf_model.csv.gz"
AICONFIGURATOR, VLLM = "aiconfigurator_silicon.csv.gz", "vllm_measured_requests.csv.gz"
BENCH, LLMPERF = "llm_inference_bench.csv.gz", "llmperf_leaderboard_requests.csv.gz"
_HOLDS_NONE = {
    "experiment_s": "it sums up the runs of llm_pilot_requests.csv.gz, whose single requests are read instead",
    "model_type": "it describes language models and holds no measured time",
    "gpu_architecture": "it describes accelerators and holds no measured time",
    "mlp_up_proj_ms": "it times single operators of one layer, without attention, so that no request's time follows",
}
TRAINING = (LLM_PILOT, SPLITWISE, AICONFIGURATOR, VLLM)
Floats = NDArray[np.float64]


class NoMeasurements(ValueError):
    """A file of data/perf that is known, and holds no measured request. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measured requests, n rows: regressor inputs [n, len(NAMES)] and times in seconds [n].

    `tpot_s` is NaN for an answer of a single token; where a file tells the whole latency alone, `prefill_s` is NaN too.
    `configuration` names model and hardware, `model` the model's architecture and `card` the accelerator, neither with
    the number of devices; `source` names the file. `run` numbers the runs, each on one engine, and `arrival_s` is the
    time of a request's arrival in its run; -1 and NaN where the file does not tell.
    """

    inputs: NDArray[np.float32]
    prefill_s: Floats
    tpot_s: Floats
    latency_s: Floats
    output_tokens: Floats
    configuration: NDArray[np.object_]
    model: NDArray[np.object_]
    card: NDArray[np.object_]
    source: NDArray[np.object_]
    run: NDArray[np.int64]
    arrival_s: Floats

    def __len__(self) -> int:
        return len(self.latency_s)

    def rows(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "Measurements":
        return Measurements(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    @property
    def gaps(self) -> Floats:
        """The number of gaps between tokens of each answer."""
        return np.maximum(0.0, self.output_tokens - 1)

    @property
    def decode_s(self) -> Floats:
        """Time from the first token to the last, in s; 0 for a single token."""
        return np.nan_to_num(self.tpot_s) * self.gaps


def pooled(sets: Iterable[Measurements]) -> Measurements:
    """Returns the rows of all sets. Their runs keep different numbers."""
    sets = list(sets)
    columns: dict[str, Any] = {
        field.name: np.concatenate([getattr(one, field.name) for one in sets]) for field in fields(Measurements)
    }
    start = np.cumsum([0, *(int(one.run.max(initial=-1)) + 1 for one in sets)])
    columns["run"] = np.concatenate(
        [np.where(one.run < 0, -1, one.run + at) for one, at in zip(sets, start[:-1], strict=True)]
    )
    return Measurements(**columns)


def checksum(files: Iterable[Path]) -> str:
    """Returns the SHA-256 (hexadecimal) over the files' names and contents, in the given order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def perf_folder(folder: Path) -> Path:
    return folder / "perf" if (folder / "perf").is_dir() else folder


def perf_files(folder: Path) -> list[Path]:
    """Returns the measurement files in a folder (`data/` or `data/perf/`) that the cost model is trained on.

    Raises FileNotFoundError that names the first missing file.
    """
    files = [perf_folder(folder) / name for name in TRAINING]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"the measurement file {file} is missing: name the project's data folder")
    return files


def read(file: Path) -> Measurements:
    """Reads a measurement file of `data/perf`, whose kind its columns tell. Raises NoMeasurements for one that holds no
    measured request, and ValueError for an unknown kind."""
    frame = pd.read_csv(file)
    for column, reason in _HOLDS_NONE.items():
        if column in frame.columns:
            raise NoMeasurements(reason)
    for column, reader in _READERS.items():
        if column in frame.columns:
            return reader(frame)
    raise ValueError(
        f"{file} is not a measurement file of a known kind: it needs one of the columns {', '.join(_READERS)}"
    )


def _llm_pilot(frame: pd.DataFrame) -> Measurements:
    """Reads LLM-Pilot measurements, taken in a closed loop with `num_users` requests in flight.

    Prefill time is time to the first message plus TTFT, because the first message carries only metadata. Each user
    sends its next request immediately, so that the load on arrival is the number of users.
    """
    frame = frame[frame.output_tokens > 0].reset_index(drop=True)
    hardware = frame.gpu_type + "x" + frame.n_gpus.astype(str)
    start, latency = frame.start_s.to_numpy(), frame.latency_ms.to_numpy() / 1e3
    prefill = (frame.first_msg_ms + frame.ttft_ms).to_numpy() / 1e3
    run = frame.groupby(["model", "gpu_type", "n_gpus", "num_users"], sort=True).ngroup().to_numpy()
    running, waiting = _in_flight(run, start, prefill, start + latency)
    state = frame.assign(
        hardware=hardware, concurrency=frame.num_users, running=running, waiting=waiting,
        prompt_tokens=frame.input_tokens, graphs=0.0, run=run, arrival_s=start,
    )  # fmt: skip
    tpot = frame.decode_ms.to_numpy() / 1e3 / np.where(frame.output_tokens > 1, frame.output_tokens - 1, np.nan)
    return _measurements(state, prefill, tpot, LLM_PILOT)


def _splitwise(frame: pd.DataFrame) -> Measurements:
    """Reads static batches: all requests of a batch are prefilled together and then decoded together."""
    frame = frame.reset_index(drop=True)
    hardware = frame.hardware + "x" + frame.tensor_parallel.astype(int).astype(str)
    state = frame.assign(
        hardware=hardware, concurrency=frame.batch_size, running=frame.batch_size - 1, waiting=0,
        prompt_tokens=frame.prompt_size, output_tokens=frame.token_size, graphs=0.0,
    )  # fmt: skip
    return _measurements(state, frame.prompt_time_ms.to_numpy() / 1e3, frame.token_time_ms.to_numpy() / 1e3, SPLITWISE)


def _aiconfigurator(frame: pd.DataFrame) -> Measurements:
    """Reads AIConfigurator measurements of aggregated serving, without those of disaggregated pools."""
    frame = frame[(frame["mode"] == "agg") & (frame.silicon_tpot_ms > 0)].reset_index(drop=True)
    copies = frame.attention_dp_size.fillna(1).clip(lower=1)
    devices = (frame.tp_size.fillna(1) * frame.pp_size.fillna(1) * copies).clip(lower=1).astype(int)
    load = frame.silicon_concurrency.fillna(frame.batch_size * copies)
    state = frame.assign(
        model=frame.model_path + "-" + frame.precision.fillna(""), hardware=frame.system + "x" + devices.astype(str),
        concurrency=load,
        prompt_tokens=frame.isl, output_tokens=frame.osl, graphs=1.0,
    )  # fmt: skip
    return _measurements(
        state, frame.silicon_ttft_ms.to_numpy() / 1e3, frame.silicon_tpot_ms.to_numpy() / 1e3, AICONFIGURATOR
    )


def _vllm(frame: pd.DataFrame) -> Measurements:
    """Reads requests to vLLM, which tells the time in its queue apart: prefill time and state begin after the queue."""
    frame = frame.reset_index(drop=True)
    hardware = frame.gpu + " x" + frame.tp.astype(int).astype(str)
    start, prefill = (frame.arrival_s + frame.queue_s).to_numpy(), frame.prefill_s.to_numpy()
    run = frame.groupby(["model", "gpu", "tp"], sort=True).ngroup().to_numpy()
    running, waiting = _in_flight(run, start, prefill, start + prefill + frame.decode_s.to_numpy())
    state = frame.assign(
        hardware=hardware, concurrency=running + waiting + 1, running=running, waiting=waiting,
        prompt_tokens=frame.input_tokens, graphs=1.0, run=run,
        arrival_s=start,
    )  # fmt: skip
    tpot = frame.decode_s.to_numpy() / np.where(frame.output_tokens > 1, frame.output_tokens - 1, np.nan)
    return _measurements(state, prefill, tpot, VLLM)


def _bench(frame: pd.DataFrame) -> Measurements:
    """Reads static batches of which the whole latency alone is told."""
    frame = frame.reset_index(drop=True)
    state = frame.assign(
        hardware=frame.hardware + " x" + frame.num_hardware.astype(str), concurrency=frame.batch_size,
        running=frame.batch_size - 1, waiting=0, prompt_tokens=frame.input_output_length,
        output_tokens=frame.input_output_length, graphs=1.0,
    )  # fmt: skip
    unknown = np.full(len(frame), np.nan)
    return _measurements(state, unknown, unknown, BENCH, frame.latency_s.to_numpy())


def _llmperf(frame: pd.DataFrame) -> Measurements:
    """Reads single requests to hosted endpoints, whose accelerators and load nobody tells."""
    frame = frame[(frame.ttft_s > 0) & (frame.output_tokens > 0)].reset_index(drop=True)
    state = frame.assign(
        hardware="", concurrency=1, running=0, waiting=0, prompt_tokens=frame.input_tokens, graphs=1.0,
    )  # fmt: skip
    latency = frame.e2e_s.to_numpy()
    gaps = np.where(frame.output_tokens > 1, frame.output_tokens - 1, np.nan)
    return _measurements(state, frame.ttft_s.to_numpy(), (latency - frame.ttft_s.to_numpy()) / gaps, LLMPERF)


_READERS = {
    "num_users": _llm_pilot, "token_time_ms": _splitwise, "silicon_tpot_ms": _aiconfigurator, "queue_s": _vllm,
    "input_output_length": _bench, "inter_token_latency_s": _llmperf,
}  # fmt: skip


def _in_flight(run: NDArray[np.int64], start: Floats, wait: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Returns the state that each request met at its arrival, within its run.

    These are the numbers of requests decoding and of requests still without a token. Times are in s; `wait` is the time
    from `start` to the first token.
    """
    running, waiting = np.zeros(len(run)), np.zeros(len(run))
    for number in np.unique(run):
        own = np.flatnonzero(run == number)
        at = start[own]
        before = np.searchsorted(np.sort(at), at, "left")
        first = np.searchsorted(np.sort(at + wait[own]), at, "right")
        gone = np.searchsorted(np.sort(end[own]), at, "right")
        running[own], waiting[own] = first - gone, before - first
    return np.maximum(0, running), np.maximum(0, waiting)


def _measurements(
    state: pd.DataFrame, prefill_s: Floats, tpot_s: Floats, source: str, latency_s: Floats | None = None
) -> Measurements:
    """Builds the measurements of a file. Where it tells the load alone, what fits into the memory runs, and the rest
    waits. `latency_s` defaults to prefill time and decode time."""
    fact = np.empty((len(state), len(facts("", ""))))
    model, device = np.empty(len(state), object), np.empty(len(state), object)
    for (name, hardware), group in state.groupby(["model", "hardware"], sort=True):
        fact[group.index] = facts(name, hardware)
        model[group.index], device[group.index] = architecture(name), card(hardware)
    outputs = state.output_tokens.to_numpy(float)
    if "running" not in state:
        load = np.maximum(1.0, state.concurrency.to_numpy(float))
        running = np.minimum(load, slots(fact, state.prompt_tokens.to_numpy(float) + outputs)) - 1.0
        state = state.assign(running=running, waiting=load - 1.0 - running)
    whole = prefill_s + np.nan_to_num(tpot_s) * np.maximum(0.0, outputs - 1) if latency_s is None else latency_s
    return Measurements(
        inputs=inputs(fact, state[list(STATE)].to_numpy(float)),
        prefill_s=prefill_s,
        tpot_s=tpot_s,
        latency_s=whole,
        output_tokens=outputs,
        configuration=(state.model + " on " + state.hardware).to_numpy(object),
        model=model,
        card=device,
        source=np.full(len(state), source, object),
        run=state.run.to_numpy(np.int64) if "run" in state else np.full(len(state), -1),
        arrival_s=state.arrival_s.to_numpy(float) if "arrival_s" in state else np.full(len(state), np.nan),
    )
