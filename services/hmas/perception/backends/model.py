"""The `model` backend: a small encoder with heads for task type and output length, in one int8 ONNX file.

It opens files and is therefore part of the shell; its results depend on the prompts alone.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.backends.encoder import PromptEncoder, padded
from hmas.perception.backends.grams import grams
from hmas.perception.backends.inputs import numbers

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
MODEL_FILE = "perception.onnx"
TOKENIZER_FILE = "tokenizer.json"
SLOWER_FUSED = ["SkipLayerNormFusion"]  # this fused kernel takes four times as long as the two kernels that it replaces
MOST_PER_RUN = 16  # prompts; with more in one run the data exceed the CPU cache and each prompt takes longer


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's output for n prompts.

    `probabilities` [n, 13] are over `ModelBackend.tasks`; `tokens` [n, 2] are the output length's median and 90 %
    quantile; `tools` [n] is the probability that an agent answers with a call of a tool.
    """

    probabilities: NDArray[np.float32]
    tokens: NDArray[np.float32]
    tools: NDArray[np.float32]

    def rows(self, chosen: Sequence[int] | NDArray[np.int64]) -> "Prediction":
        return Prediction(self.probabilities[chosen], self.tokens[chosen], self.tools[chosen])


class ModelBackend:
    """The trained tagger. `folder` holds its model and tokenizer files; `threads` is ONNX Runtime's number of threads.

    The constructor raises FileNotFoundError if the model is missing, ValueError if `hmas train perception` did
    not write it.
    """

    def __init__(self, folder: Path = ARTEFACTS, threads: int = 1) -> None:
        path = folder / MODEL_FILE
        if not path.is_file():
            raise FileNotFoundError(f"the perception model {path} is missing: train one with `hmas train perception`")
        self._session = _session(path, threads)
        properties = self._session.get_modelmeta().custom_metadata_map.get("hmas")
        if properties is None:
            raise ValueError(f"{path} was not written by `hmas train perception`: train the model again")
        self.metadata = json.loads(properties)
        recipe = self.metadata["recipe"]
        self.tasks = tuple(TaskType(name) for name in self.metadata["tasks"])
        self._models = {name: place for place, name in enumerate(self.metadata["models"]) if name}
        self.least_confidence = float(recipe["least_confidence"])
        self._encoder = PromptEncoder(folder / TOKENIZER_FILE, recipe["head_tokens"], recipe["tail_tokens"])
        self._version = f"model-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"

    @property
    def version(self) -> str:
        return self._version

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        """Returns an estimate per prompt, None for a prompt without text.

        If the best task type is less probable than `least_confidence`, the estimate's type is `unknown`.
        """
        places = [place for place, prompt in enumerate(prompts) if prompt.text.strip()]
        estimates: list[Estimate | None] = [None] * len(prompts)
        if places:
            prediction = self.predict([prompts[place] for place in places])
            for row, place in enumerate(places):
                estimates[place] = self._estimate(prediction, row)
        return estimates

    def predict(self, prompts: Sequence[PromptView]) -> Prediction:
        """Returns the model's raw output, without any threshold. `prompts` must not be empty."""
        rows = [self._encoder.ids(prompt.text) for prompt in prompts]
        if len(rows) <= MOST_PER_RUN:
            return self._run(prompts, rows)
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        parts = [
            self._run([prompts[place] for place in some], [rows[place] for place in some])
            for some in (order[start : start + MOST_PER_RUN] for start in range(0, len(order), MOST_PER_RUN))
        ]
        together = Prediction(
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.tools for part in parts]),
        )
        return together.rows(np.argsort(order))

    def tokenize(self, text: str) -> list[int]:
        """Returns the word-piece ids that the model reads from a prompt."""
        return self._encoder.ids(text)

    def _run(self, prompts: Sequence[PromptView], rows: Sequence[list[int]]) -> Prediction:
        feed = {
            "ids": padded(rows),
            "numbers": np.array([numbers(prompt.text, prompt.prompt_tokens) for prompt in prompts], np.float32),
            "grams": padded([grams(prompt.text) for prompt in prompts]),
            "model": np.array([self._models.get(prompt.model, 0) for prompt in prompts], np.int64),
        }
        return Prediction(*self._session.run(["probabilities", "tokens", "tools"], feed))

    def _estimate(self, prediction: Prediction, row: int) -> Estimate:
        best = int(prediction.probabilities[row].argmax())
        confidence = float(prediction.probabilities[row, best])
        task = self.tasks[best] if confidence >= self.least_confidence else TaskType.UNKNOWN
        median, upper = (max(1.0, float(value)) for value in prediction.tokens[row])
        return Estimate(task, confidence, median, upper, float(prediction.tools[row]))


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # No busy waiting, because other processes share the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER_FUSED
    )
