import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import PromptView
from hmas.perception.backends.encoder import CLS, SEP
from hmas.perception.backends.model import ARTEFACTS, MODEL_FILE, TOKENIZER_FILE, ModelBackend

MOST_BYTES = 30_000_000
PLAIN = {
    "Translate the following sentence to Spanish: The weather is lovely today.": TaskType.TRANSLATION,
    "Write a Python function that returns the n-th prime number.": TaskType.CODE_GENERATION,
    "Tom buys 12 apples and gives 5 to Ann. How many apples are left?": TaskType.MATH_REASONING,
    "Summarize the following article in one sentence.\n\nThe council met on Monday.": TaskType.SUMMARIZATION,
    "USER: I need a table for two tonight.\nASSISTANT:": TaskType.DIALOGUE,
    "who wrote the lord of the rings": TaskType.QA,
}


@pytest.fixture(scope="module")
def backend() -> ModelBackend:
    return ModelBackend()


def view(text: str, model: str = "") -> PromptView:
    return PromptView(text=text, prompt_tokens=max(1, len(text) // 4), model=model, tenant="tenant", max_tokens=None)


def test_artefact_is_small_and_says_where_it_is_from(backend: ModelBackend) -> None:
    assert (ARTEFACTS / MODEL_FILE).stat().st_size <= MOST_BYTES
    assert len(backend.metadata["data_sha256"]) == 64
    assert backend.metadata["command"].startswith("hmas train perception")
    assert len(backend.tasks) == 13
    assert TaskType.UNKNOWN not in backend.tasks


def test_plain_prompts_get_their_type(backend: ModelBackend) -> None:
    estimates = backend.estimate([view(text) for text in PLAIN])
    assert [estimate.task for estimate in estimates if estimate] == list(PLAIN.values())


def test_an_empty_prompt_is_none_and_keeps_the_order(backend: ModelBackend) -> None:
    first, empty, blank, last = backend.estimate([view("who is Ada?"), view(""), view(" \n"), view("2 + 2 = ?")])
    assert empty is None
    assert blank is None
    assert first is not None
    assert last is not None


def test_a_batch_answers_as_its_prompts_alone_nearly(backend: ModelBackend) -> None:
    """Activations are quantised over a batch, so answers differ a little; never the type of a plain prompt."""
    texts = [*PLAIN, "x" * 9000, "写一篇关于科技的文章", *(f"Tell me about {n}" for n in range(40))]
    together = backend.predict([view(text) for text in texts])
    alone = [backend.predict([view(text)]) for text in texts]
    assert together.probabilities.shape == (len(texts), 13)
    np.testing.assert_allclose(together.probabilities.sum(axis=1), 1.0, atol=1e-4)
    for row in range(len(PLAIN)):
        assert together.probabilities[row].argmax() == alone[row].probabilities[0].argmax()


def test_quantiles_do_not_cross_and_are_positive(backend: ModelBackend) -> None:
    texts = ["", "a", "?" * 500, "\x00\ud7ff", "Write 5000 words.", "日" * 4000, *PLAIN]
    for estimate in backend.estimate([view(text) for text in texts]):
        if estimate is not None:
            assert 1.0 <= estimate.output_tokens <= estimate.output_tokens_p90
            assert 0.0 <= estimate.confidence <= 1.0 + 1e-6
            assert estimate.tool_call is not None
            assert 0.0 <= estimate.tool_call <= 1.0


def test_a_longer_wish_predicts_a_longer_answer(backend: ModelBackend) -> None:
    short, long = backend.estimate([view("Write a 50 words story."), view("Write a 2000 words story.")])
    assert short is not None
    assert long is not None
    assert long.output_tokens > 2 * short.output_tokens


def test_text_is_cut_to_head_and_tail(backend: ModelBackend) -> None:
    recipe = backend.metadata["recipe"]
    ids = backend.tokenize("alpha " * 3000 + "omega " * 3000)
    assert len(ids) == recipe["head_tokens"] + recipe["tail_tokens"] + 2
    assert (ids[0], ids[-1]) == (CLS, SEP)
    assert backend.tokenize("omega")[1] == ids[-2]


def test_doubt_is_unknown_with_a_length(backend: ModelBackend) -> None:
    backend.least_confidence, before = 1.1, backend.least_confidence
    try:
        (estimate,) = backend.estimate([view("who is Ada?")])
    finally:
        backend.least_confidence = before
    assert estimate is not None
    assert estimate.task is TaskType.UNKNOWN
    assert estimate.output_tokens > 0


def test_a_missing_or_foreign_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="hmas train perception"):
        ModelBackend(tmp_path)
    onnx = pytest.importorskip("onnx", reason="needs the group `train`")
    shutil.copy(ARTEFACTS / TOKENIZER_FILE, tmp_path)
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [out])
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
              tmp_path / MODEL_FILE)  # fmt: skip
    with pytest.raises(ValueError, match="not written by"):
        ModelBackend(tmp_path)


@pytest.mark.parametrize(("setting", "told"), [({}, False), ({"ORT_DISABLE_TELEMETRY": "0"}, True)])
def test_the_runtime_tells_nobody(setting: dict[str, str], told: bool) -> None:
    """Where it can store nothing, ONNX Runtime's telemetry complains as it starts."""
    env = {"PATH": os.environ["PATH"], "HOME": os.devnull, **setting}
    code = "from hmas.perception.backends.model import ModelBackend; ModelBackend()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("telemetry" in done.stderr) == told
