"""From torch to one int8 ONNX file: encoder, quantised and pooled through ONNX Runtime, then the heads on top."""

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

from services.perception.encoder import PAD
from services.perception.inputs import NUMBERS
from services.perception.training.network import Encoder, Heads

OPSET = 17
_BATCH = 64


def quantised_encoder(backbone: Path, layers: int) -> onnx.ModelProto:
    """int8 weights, activations quantised as they come (dynamic quantisation)."""
    ids = torch.ones(2, 8, dtype=torch.long)
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        _export(Encoder(backbone, layers).eval(), (ids, ids), plain, ["ids", "mask"], ["pooled"], {0: "b", 1: "s"})
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8)
        return onnx.load(small)


def pooled(encoder: onnx.ModelProto, rows: Sequence[list[int]], threads: int) -> NDArray[np.float32]:
    """The encoder's output for each prompt's ids, [n, p], computed by the very graph that ships."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(encoder.SerializeToString(), options, providers=["CPUExecutionProvider"])
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    parts = []
    for start in range(0, len(order), _BATCH):
        ids, mask = padded([rows[place] for place in order[start : start + _BATCH]])
        parts.append(session.run(["pooled"], {"ids": ids, "mask": mask})[0])
    out = np.empty((len(rows), parts[0].shape[1]), np.float32)
    out[order] = np.concatenate(parts)
    return out


def whole_graph(encoder: onnx.ModelProto, heads: Heads, metadata: dict[str, object]) -> onnx.ModelProto:
    """Encoder and heads in one graph. Inputs ids, mask, numbers, model; outputs probabilities, tokens."""
    width = heads.task.mean.numel()
    sample = (torch.zeros(2, width), torch.zeros(2, NUMBERS), torch.zeros(2, dtype=torch.long))
    with tempfile.TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "int8.onnx"
        _export(heads.eval(), sample, plain, ["pooled", "numbers", "model"], ["probabilities", "tokens"], {0: "b"})
        quantize_dynamic(plain, small, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])
        top = onnx.load(small)
    top.ir_version = encoder.ir_version
    graph = merge_models(encoder, top, io_map=[("pooled", "pooled")], prefix1="encoder/", prefix2="heads/")
    _rename(graph, {"encoder/ids": "ids", "encoder/mask": "mask"})
    _rename(graph, {f"heads/{name}": name for name in ("numbers", "model", "probabilities", "tokens")})
    onnx.helper.set_model_props(graph, {"hmas": json.dumps(metadata, sort_keys=True)})
    onnx.checker.check_model(graph)
    return graph


def padded(rows: Sequence[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and mask [b, longest], int64."""
    width = max(len(row) for row in rows)
    ids = np.full((len(rows), width), PAD, np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
    return ids, mask


def _export(
    module: nn.Module,
    sample: tuple[torch.Tensor, ...],
    path: Path,
    inputs: list[str],
    outputs: list[str],
    axes: dict[int, str],
) -> None:
    dynamic = {name: axes if name in ("ids", "mask") else {0: "b"} for name in [*inputs, *outputs]}
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
