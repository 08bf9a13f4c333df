"""Reads the files of `data/perf` into one form: regressor inputs, targets, and the origin of each row."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import NAMES, model_facts, row

LLM_PILOT, SPLITWISE = "llm_pilot_requests.csv.gz", "splitwise_perf_model.csv.gz"
AICONFIGURATOR, VLLM = "aiconfigurator_silicon.csv.gz", "vllm_measured_requests.csv.gz"
_STATE = ("running", "waiting", "kv_usage", "prompt_tokens", "output_tokens")
_USABLE_MEMORY = 0.9  # share of a device's memory left for weights and KV cache
_KV_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measured requests, n rows: regressor inputs [n, len(NAMES)] and times in seconds [n].

    `tpot_s` is NaN for an answer of a single token. `configuration` names model and hardware, `model` the model alone,
    `source` the file.
    """

    inputs: NDArray[np.float32]
    prefill_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    output_tokens: NDArray[np.float64]
    configuration: NDArray[np.object_]
    model: NDArray[np.object_]
    source: str

    def rows(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "Measurements":
        return Measurements(
            inputs=self.inputs[chosen],
            prefill_s=self.prefill_s[chosen],
            tpot_s=self.tpot_s[chosen],
            output_tokens=self.output_tokens[chosen],
            configuration=self.configuration[chosen],
            model=self.model[chosen],
            source=self.source,
        )

    @property
    def decode_s(self) -> NDArray[np.float64]:
        """Time from the first token to the last, in s; 0 for a single token."""
        return np.nan_to_num(self.tpot_s) * np.maximum(0.0, self.output_tokens - 1)

    @property
    def latency_s(self) -> NDArray[np.float64]:
        return self.prefill_s + self.decode_s


def checksum(files: Iterable[Path]) -> str:
    """Returns the SHA-256 (hexadecimal) over the files' names and contents, in the given order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def perf_files(folder: Path) -> list[Path]:
    """Returns the measurement files in a folder (`data/` or `data/perf/`).

    Raises FileNotFoundError that names the first missing file.
    """
    place = folder / "perf" if (folder / "perf").is_dir() else folder
    files = [place / name for name in (LLM_PILOT, SPLITWISE, AICONFIGURATOR, VLLM)]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"the measurement file {file} is missing: name the project's data folder")
    return files


def read(file: Path) -> Measurements:
    """Reads a measurement file of `data/perf`, whose kind its columns tell. Raises ValueError for an unknown kind."""
    frame = pd.read_csv(file)
    for column, reader in _READERS.items():
        if column in frame.columns:
            return reader(frame)
    raise ValueError(
        f"{file} is no measurement file of a known kind: it needs one of the columns {', '.join(_READERS)}"
    )


def _llm_pilot(frame: pd.DataFrame) -> Measurements:
    """Reads LLM-Pilot measurements, taken in a closed loop with `num_users` requests in flight.

    Prefill time is time to the first message plus TTFT, because the first message carries only metadata.
    """
    frame = frame[frame.output_tokens > 0].reset_index(drop=True)
    hardware = frame.gpu_type + "x" + frame.n_gpus.astype(str)
    prefill = (frame.first_msg_ms + frame.ttft_ms).to_numpy() / 1e3
    end = frame.start_s.to_numpy() + frame.latency_ms.to_numpy() / 1e3
    run = frame.groupby(["model", "gpu_type", "n_gpus", "num_users"], sort=True).ngroup().to_numpy()
    tokens = (frame.input_tokens + frame.output_tokens).to_numpy(float)
    running, waiting, held = _in_flight(run, frame.start_s.to_numpy(), prefill, end, tokens)
    state = frame.assign(
        hardware=hardware, running=running, waiting=waiting, prompt_tokens=frame.input_tokens,
        kv_usage=_kv_usage(frame.model, hardware, held),
    )  # fmt: skip
    tpot = frame.decode_ms.to_numpy() / 1e3 / np.where(frame.output_tokens > 1, frame.output_tokens - 1, np.nan)
    # Each user sends its next request immediately, so that the load on arrival is the number of users.
    return _measurements(state, prefill, tpot, LLM_PILOT, frame.num_users.to_numpy(float))


def _splitwise(frame: pd.DataFrame) -> Measurements:
    frame = frame.reset_index(drop=True)
    hardware = frame.hardware + "x" + frame.tensor_parallel.astype(int).astype(str)
    state = frame.assign(
        hardware=hardware, running=frame.batch_size - 1, waiting=0, kv_usage=np.nan,
        prompt_tokens=frame.prompt_size, output_tokens=frame.token_size,
    )  # fmt: skip
    return _measurements(state, frame.prompt_time_ms.to_numpy() / 1e3, frame.token_time_ms.to_numpy() / 1e3, SPLITWISE)


def _aiconfigurator(frame: pd.DataFrame) -> Measurements:
    """Reads AIConfigurator measurements of aggregated serving; a disaggregated pool is no single engine: left out."""
    frame = frame[(frame["mode"] == "agg") & (frame.silicon_tpot_ms > 0)].reset_index(drop=True)
    devices = (frame.tp_size.fillna(1) * frame.pp_size.fillna(1) * frame.attention_dp_size.fillna(1)).astype(int)
    each = frame.silicon_concurrency / frame.attention_dp_size.fillna(1).clip(lower=1)
    state = frame.assign(
        model=frame.model_path + "-" + frame.precision, hardware=frame.system + "x" + devices.astype(str),
        running=(each - 1).clip(lower=0), waiting=0, kv_usage=np.nan, prompt_tokens=frame.isl, output_tokens=frame.osl,
    )  # fmt: skip
    return _measurements(
        state, frame.silicon_ttft_ms.to_numpy() / 1e3, frame.silicon_tpot_ms.to_numpy() / 1e3, AICONFIGURATOR
    )


def _vllm(frame: pd.DataFrame) -> Measurements:
    frame = frame.reset_index(drop=True)
    hardware = frame.gpu + " x" + frame.tp.astype(int).astype(str)
    wait = (frame.queue_s + frame.prefill_s).to_numpy()
    run = frame.groupby(["model", "gpu", "tp"], sort=True).ngroup().to_numpy()
    tokens = (frame.input_tokens + frame.output_tokens).to_numpy(float)
    start = frame.arrival_s.to_numpy()
    running, waiting, held = _in_flight(run, start, wait, start + wait + frame.decode_s.to_numpy(), tokens)
    state = frame.assign(
        hardware=hardware, running=running, waiting=waiting, kv_usage=np.clip(held / frame.num_kv_tokens, 0, 1),
        prompt_tokens=frame.input_tokens,
    )  # fmt: skip
    tpot = frame.decode_s.to_numpy() / np.where(frame.output_tokens > 1, frame.output_tokens - 1, np.nan)
    return _measurements(state, frame.prefill_s.to_numpy(), tpot, VLLM)


_READERS = {"num_users": _llm_pilot, "token_time_ms": _splitwise, "silicon_tpot_ms": _aiconfigurator, "queue_s": _vllm}


def _in_flight(
    run: NDArray[np.int64],
    start: NDArray[np.float64],
    wait: NDArray[np.float64],
    end: NDArray[np.float64],
    tokens: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns the state that each request met at its arrival, within its run.

    These are the numbers of requests decoding and of requests still without a token, and the tokens held in the KV
    cache. Times are in s; `wait` is the time from `start` to the first token.
    """
    running, waiting, held = (np.zeros(len(run)) for _ in range(3))
    for number in np.unique(run):
        own = np.flatnonzero(run == number)
        at = start[own]
        before = np.searchsorted(np.sort(at), at, "left")
        first = np.searchsorted(np.sort(at + wait[own]), at, "right")
        gone = np.searchsorted(np.sort(end[own]), at, "right")
        by_start, by_end = np.argsort(at, kind="stable"), np.argsort(end[own], kind="stable")
        came = np.concatenate([[0.0], np.cumsum(tokens[own][by_start])])
        left = np.concatenate([[0.0], np.cumsum(tokens[own][by_end])])
        running[own], waiting[own], held[own] = first - gone, before - first, came[before] - left[gone]
    return np.maximum(0, running), np.maximum(0, waiting), np.maximum(0, held)


def _kv_usage(model: pd.Series, hardware: pd.Series, held: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimates KV use in [0, 1]: tokens held over the tokens that fit beside the weights, by the architecture.

    In live service engines report this figure themselves.
    """
    pairs = model + "|" + hardware
    room = {pair: _room(*pair.split("|")) for pair in pairs.unique()}
    return np.clip(held / pairs.map(room).to_numpy(float), 0.0, 1.0)


def _room(model: str, hardware: str) -> float:
    values = dict(zip(NAMES, _nominal_row(model, hardware), strict=True))
    facts = model_facts(model)
    free = values["memory"] * values["devices"] * _USABLE_MEMORY - facts.params * facts.weight_bytes
    per_token = 2 * facts.layers * facts.width * _KV_BYTES / 1e9
    return max(1000.0, free / per_token)


def _nominal_row(model: str, hardware: str) -> tuple[float, ...]:
    """Returns the regressor inputs for a prompt of one token on an idle engine."""
    return row(
        CostQuery(
            prompt_tokens=1,
            output_tokens=1.0,
            model=model,
            hardware=hardware,
            running=0,
            waiting=0,
            kv_usage=0.0,
            task=TaskType.UNKNOWN,
        )
    )


def _measurements(
    state: pd.DataFrame,
    prefill_s: NDArray[np.float64],
    tpot_s: NDArray[np.float64],
    source: str,
    concurrency: NDArray[np.float64] | None = None,
) -> Measurements:
    """Builds the measurements of a file: inputs that depend on model and hardware are computed once per configuration.

    `concurrency` defaults to the requests running and waiting plus the request itself.
    """
    configuration = (state.model + " on " + state.hardware).to_numpy(object)
    inputs = np.empty((len(state), len(NAMES)), np.float32)
    for name, group in state.groupby(["model", "hardware"], sort=True):
        inputs[group.index] = _nominal_row(*name)
    for column in _STATE:
        inputs[:, NAMES.index(column)] = state[column].to_numpy(float)
    load = state.running.to_numpy(float) + state.waiting.to_numpy(float) + 1 if concurrency is None else concurrency
    inputs[:, NAMES.index("concurrency")] = load
    inputs[:, NAMES.index("prefill_work_ms")] *= state.prompt_tokens.to_numpy(float)
    outputs = state.output_tokens.to_numpy(float)
    return Measurements(
        inputs=inputs,
        prefill_s=prefill_s,
        tpot_s=tpot_s,
        output_tokens=outputs,
        configuration=configuration,
        model=state.model.to_numpy(object),
        source=source,
    )
