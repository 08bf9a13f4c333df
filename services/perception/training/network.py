"""The tagger: the lower layers of a MiniLM encoder, pooled, with a task head and an ensemble of length heads."""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel

from services.perception.features import FEATURES, IS_STATED, STATED, STATED_SCALE
from services.perception.inputs import NUMBERS

TASKS = 13
MODEL_WIDTH = 32
TASK_WIDTH = 192
MATCH_WIDTH = 96
LENGTH_WIDTH = 96
LENGTH_HEADS = 4
LENGTH_INPUT_SCALE = 0.2  # of the 384 standardised states, lest they drown what the prompt says of its answer
MOST_LOG_TOKENS = 10.5  # 36,000 tokens


class Encoder(nn.Module):
    """ids, mask [b, s] -> [b, 4 * hidden]: the mean of each of the three top states kept, and the last one's maximum.

    Lower layers keep the wording that tells a task type; the upper ones of a sentence encoder wash it out.
    """

    def __init__(self, backbone: Path, layers: int) -> None:
        super().__init__()
        self.bert = AutoModel.from_pretrained(backbone, attn_implementation="eager")
        self.bert.encoder.layer = self.bert.encoder.layer[:layers]
        self.bert.pooler = None

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.bert(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        weight = mask.unsqueeze(-1).to(states[-1].dtype)
        means = [(state * weight).sum(1) / weight.sum(1) for state in states[-3:]]
        return torch.cat([*means, (states[-1] + (weight - 1) * 1e4).amax(1)], dim=1)


class TaskHead(nn.Module):
    """pooled [b, p], numbers [b, NUMBERS] -> logits [b, 13], divided by `temperature`.

    A product of two experts (Hinton 2002), each trained on its own loss: one reads the encoder, the other which rules
    match. Trained as one network the encoder, which knows the wording of every source, would explain all, and nothing
    would be learned of the rules, which hold where a source was never seen.
    """

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.register_buffer("temperature", torch.ones(()))
        self.body = _body(mean.numel() + FEATURES, TASK_WIDTH, TASKS)
        self.matches = _body(NUMBERS, MATCH_WIDTH, TASKS)

    def experts(self, pooled: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [b, 13] of each."""
        read = torch.cat([(pooled - self.mean) / self.scale, numbers[:, :FEATURES]], dim=1)
        return self.body(read), self.matches(numbers)

    def forward(self, pooled: Tensor, numbers: Tensor) -> Tensor:
        reader, matcher = self.experts(pooled, numbers)
        logits: Tensor = reader + matcher
        return logits / self.temperature


class LengthHead(nn.Module):
    """pooled, numbers, model [b] (0: any other) -> [b, 2]: median and 90 % quantile of log(1 + output tokens).

    The mean of an ensemble. Where the prompt states a length, the median is mixed, by a gate, of a free estimate and
    of the stated length times a factor: a wish is a wish, whatever the words around it. The quantiles never cross;
    `shift` is the conformal correction of the upper one.
    """

    def __init__(self, mean: Tensor, scale: Tensor, models: int) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", torch.zeros(()))
        self.models = nn.Embedding(models, MODEL_WIDTH)
        nn.init.normal_(self.models.weight)
        self.own = _last_mean(mean.numel())
        width = mean.numel() // 4 + FEATURES + MODEL_WIDTH
        self.hidden = nn.Sequential(nn.Dropout(0.2), nn.Linear(width, LENGTH_HEADS * LENGTH_WIDTH), nn.GELU())
        self.out = nn.Parameter(torch.randn(LENGTH_HEADS, LENGTH_WIDTH, 4) * LENGTH_WIDTH**-0.5)
        # A usual answer has 150 tokens, whose log is 5; one with a stated length begins at that length.
        self.bias = nn.Parameter(torch.tensor([5.0, 0.0, 0.0, 0.0]).repeat(LENGTH_HEADS, 1, 1))

    def members(self, pooled: Tensor, numbers: Tensor, model: Tensor) -> Tensor:
        """[heads, b, 2], without the conformal shift."""
        states = ((pooled - self.mean) / self.scale)[:, self.own] * LENGTH_INPUT_SCALE
        seen = torch.cat([states, numbers[:, :FEATURES], self.models(model)], dim=1)
        hidden = self.hidden(seen).view(-1, LENGTH_HEADS, LENGTH_WIDTH).transpose(0, 1)
        raw = nn.functional.dropout(hidden, 0.2, self.training) @ self.out + self.bias
        free, spread, gate, factor = raw.unbind(-1)
        share = numbers[:, IS_STATED] * torch.sigmoid(gate)
        median = (1 - share) * free + share * (numbers[:, STATED] * STATED_SCALE + factor)
        median = median.clamp(0.0, MOST_LOG_TOKENS)
        return torch.stack([median, median + nn.functional.softplus(spread)], dim=-1)

    def forward(self, pooled: Tensor, numbers: Tensor, model: Tensor) -> Tensor:
        median, upper = self.members(pooled, numbers, model).mean(0).unbind(-1)
        return torch.stack([median, torch.maximum(upper + self.shift, median)], dim=1)


class Heads(nn.Module):
    """What is exported on top of the encoder: probabilities [b, 13] and tokens [b, 2]."""

    def __init__(self, task: TaskHead, length: LengthHead) -> None:
        super().__init__()
        self.task = task
        self.length = length

    def forward(self, pooled: Tensor, numbers: Tensor, model: Tensor) -> tuple[Tensor, Tensor]:
        return self.task(pooled, numbers).softmax(1), self.length(pooled, numbers, model).exp() - 1.0


def _last_mean(width: int) -> slice:
    """Where the last layer's mean stands in the encoder's output; lengths need no more."""
    return slice(width // 2, 3 * width // 4)


def _body(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(0.3), nn.Linear(inputs, width), nn.GELU(), nn.Dropout(0.3), nn.Linear(width, outputs)
    )


def pinball(quantiles: Tensor, target: Tensor, levels: Tensor) -> Tensor:
    """Pinball loss, summed over `levels` [q]; quantiles [..., b, q], target [b] (Koenker & Bassett 1978)."""
    gap = target.unsqueeze(-1) - quantiles
    return torch.maximum(levels * gap, (levels - 1) * gap).sum(-1)
