"""Exports the torch networks as one int8 ONNX graph: the quantised encoder with the heads on top."""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx.compose import merge_models
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn

from hmas.perception.backends.encoder import padded
from hmas.perception.backends.inputs import NUMBERS
from hmas_lab.perception.training.loop import Examples
from hmas_lab.perception.training.network import POOLED, Tagger

OPSET = 17
_BATCH = 16
Floats = NDArray[np.float32]


def whole_graph(tagger: Tagger, metadata: dict[str, object]) -> onnx.ModelProto:
    """Returns encoder and heads as one graph, with `metadata` in its property `hmas`.

    Its inputs are ids, numbers, grams and model; its outputs are probabilities, tokens and tools. Weights are int8,
    activations are quantised as they come.
    """
    ids = torch.ones(2, 8, dtype=torch.long)
    rows = torch.zeros(2, 3, dtype=torch.long)
    sample = (torch.zeros(2, POOLED), torch.zeros(2, NUMBERS), rows, rows[:, 0])
    inputs, results = ["pooled", "numbers", "grams", "model"], ["probabilities", "tokens", "tools"]
    encoder = _quantised(tagger.encoder, (ids,), ["ids"], ["pooled"], None)
    top = _quantised(tagger.heads, sample, inputs, results, ["MatMul"])
    top.ir_version = encoder.ir_version
    graph = merge_models(encoder, top, io_map=[("pooled", "pooled")], prefix1="encoder/", prefix2="heads/")
    _rename(graph, {"encoder/ids": "ids"})
    _rename(graph, {f"heads/{name}": name for name in (*inputs[1:], *results)})
    onnx.helper.set_model_props(graph, {"hmas": json.dumps(metadata, sort_keys=True)})
    onnx.checker.check_model(graph)
    return graph


def outputs(graph: onnx.ModelProto, data: Examples, threads: int = 1) -> tuple[Floats, Floats, Floats]:
    """Returns the graph's probabilities [n, 13], tokens [n, 2] and tools [n] for prompts whose answering model nobody
    names."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    order = sorted(range(len(data.ids)), key=lambda row: len(data.ids[row]))
    parts = []
    for start in range(0, len(order), _BATCH):
        some = order[start : start + _BATCH]
        feed = {
            "ids": padded([data.ids[row] for row in some]),
            "numbers": data.numbers[some],
            "grams": data.grams[some],
            "model": np.zeros(len(some), np.int64),
        }
        parts.append(session.run(["probabilities", "tokens", "tools"], feed))
    back = np.argsort(order)
    probabilities, tokens, tools = (np.concatenate(columns)[back] for columns in zip(*parts, strict=True))
    return probabilities, tokens, tools


def _quantised(
    module: nn.Module,
    sample: tuple[torch.Tensor, ...],
    inputs: list[str],
    outputs: list[str],
    kinds: list[str] | None,
) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        _export(module.eval(), sample, plain, inputs, outputs)
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, op_types_to_quantize=kinds)
        return onnx.load(small)


def _export(
    module: nn.Module,
    sample: tuple[torch.Tensor, ...],
    path: Path,
    inputs: list[str],
    outputs: list[str],
) -> None:
    dynamic = {name: {0: "b"} for name in [*inputs, *outputs]}
    for name in {"ids", "grams"}.intersection(inputs):
        dynamic[name][1] = f"longest_{name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracing exporter announces its successor
        torch.onnx.export(
            module, sample, path, input_names=inputs, output_names=outputs, dynamic_axes=dynamic,
            opset_version=OPSET, dynamo=False,
        )  # fmt: skip


def _rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    for value in [*model.graph.input, *model.graph.output]:
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
