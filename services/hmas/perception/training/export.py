"""Exports the torch networks as one int8 ONNX graph: the quantised encoder with the heads on top."""

import json
import tempfile
import warnings
from collections.abc import Sequence
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
from hmas.perception.training.network import Encoder, Heads

OPSET = 17
_BATCH = 64


def quantised_encoder(backbone: Path, layers: int) -> onnx.ModelProto:
    """Returns the encoder's first `layers` layers as an ONNX graph with int8 weights and dynamic quantisation."""
    ids = torch.ones(2, 8, dtype=torch.long)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        _export(Encoder(backbone, layers).eval(), (ids,), plain, ["ids"], ["pooled"])
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8)
        return onnx.load(small)


def pooled(encoder: onnx.ModelProto, rows: Sequence[list[int]], threads: int) -> NDArray[np.float32]:
    """Returns the encoder's output [n, p] for each prompt's ids, computed by the same graph that is exported."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(encoder.SerializeToString(), options, providers=["CPUExecutionProvider"])
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    parts = []
    for start in range(0, len(order), _BATCH):
        ids = padded([rows[place] for place in order[start : start + _BATCH]])
        parts.append(session.run(["pooled"], {"ids": ids})[0])
    out = np.empty((len(rows), parts[0].shape[1]), np.float32)
    out[order] = np.concatenate(parts)
    return out


def whole_graph(encoder: onnx.ModelProto, heads: Heads, metadata: dict[str, object]) -> onnx.ModelProto:
    """Returns encoder and heads as one graph, with `metadata` in its property `hmas`.

    Its inputs are ids, numbers, grams and model; its outputs are probabilities and tokens.
    """
    rows = torch.zeros(2, 3, dtype=torch.long)
    sample = (torch.zeros(2, heads.task.mean.numel()), torch.zeros(2, NUMBERS), rows, rows[:, 0])
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        _export(heads.eval(), sample, plain, ["pooled", "numbers", "grams", "model"], ["probabilities", "tokens"])
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])
        top = onnx.load(small)
    top.ir_version = encoder.ir_version
    graph = merge_models(encoder, top, io_map=[("pooled", "pooled")], prefix1="encoder/", prefix2="heads/")
    _rename(graph, {"encoder/ids": "ids"})
    _rename(graph, {f"heads/{name}": name for name in ("numbers", "grams", "model", "probabilities", "tokens")})
    onnx.helper.set_model_props(graph, {"hmas": json.dumps(metadata, sort_keys=True)})
    onnx.checker.check_model(graph)
    return graph


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
