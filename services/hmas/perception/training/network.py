"""The tagger: the lowest layers of a MiniLM encoder, pooled, with a task head and an ensemble of length heads."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel

from hmas.perception.agent.features import FEATURES, IS_STATED, STATED, STATED_SCALE
from hmas.perception.backends.encoder import PAD
from hmas.perception.backends.grams import GRAMS
from hmas.perception.backends.inputs import NUMBERS

TASKS = 13
HIDDEN = 384
MODEL_WIDTH = 32
TASK_WIDTH = 192
MATCH_WIDTH = 96
NEVER_SEEN = -12.0  # log odds of a task type that occurred with no word
LENGTH_WIDTH = 96
LENGTH_HEADS = 4
LENGTH_INPUT_SCALE = 0.2  # of the standardised states, so that they do not outweigh a length that a prompt states
MOST_LOG_TOKENS = 10.5  # 36,000 tokens


class Encoder(nn.Module):
    """The lowest `layers` layers of MiniLM. It maps ids [b, s] (0: padding) to [b, (layers + 2) * HIDDEN].

    The output is the mean over tokens of the embeddings and of every layer's states, and the maximum of the last
    layer's. Lower layers keep the wording that tells a task type; the upper layers of a sentence encoder lose it.
    """

    def __init__(self, backbone: Path, layers: int) -> None:
        super().__init__()
        bert = AutoModel.from_pretrained(backbone, attn_implementation="eager")
        self.embeddings, self.layers = bert.embeddings, bert.encoder.layer[:layers]

    def forward(self, ids: Tensor) -> Tensor:
        present = (ids != PAD).to(torch.float32)
        hole = (present - 1) * 1e4
        states = [self.embeddings(ids)]
        for layer in self.layers:
            after = layer(states[-1], hole[:, None, None])
            states.append(after if isinstance(after, Tensor) else after[0])
        share = (present / present.sum(1, keepdim=True)).unsqueeze(1)
        means = [(share @ state).squeeze(1) for state in states]
        return torch.cat([*means, (states[-1] + hole.unsqueeze(2)).amax(1)], dim=1)


class TaskHead(nn.Module):
    """Maps pooled [b, p], numbers [b, NUMBERS] and grams [b, g] to task logits [b, 13], divided by `temperature`.

    It is a product of three experts (Hinton 2002), each trained on its own loss: one reads the encoder's output, one
    the matching rules, and one is linear in the words and pairs of words of the instruction; `shares` are their
    exponents. If they were trained as one network, the encoder, which knows the wording of every training source,
    would explain everything, and the other two, which also hold for unseen sources, would learn nothing.
    """

    def __init__(self, mean: Tensor, scale: Tensor, shares: Sequence[float]) -> None:
        super().__init__()
        self.shares = shares
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.register_buffer("temperature", torch.ones(()))
        self.body = _body(mean.numel() + FEATURES, TASK_WIDTH, TASKS)
        self.matches = _body(NUMBERS, MATCH_WIDTH, TASKS)
        self.words = nn.Embedding.from_pretrained(torch.zeros(GRAMS, TASKS))  # from_pretrained freezes the weights
        self.register_buffer("bias", torch.full((TASKS,), NEVER_SEEN))

    def networks(self, pooled: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the logits [b, 13] of the expert on the encoder and of the expert on the rules."""
        read = torch.cat([(pooled - self.mean) / self.scale, numbers[:, :FEATURES]], dim=1)
        return self.body(read), self.matches(numbers)

    def forward(self, pooled: Tensor, numbers: Tensor, grams: Tensor) -> Tensor:
        reader, matcher = self.networks(pooled, numbers)
        count = (grams > 0).sum(1, keepdim=True).clamp(min=1)
        words = self.words(grams).sum(1) / count.sqrt() + self.bias
        by_encoder, by_rules, by_words = self.shares
        logits: Tensor = by_encoder * reader + by_rules * matcher + by_words * words
        return logits / self.temperature


class LengthHead(nn.Module):
    """Maps pooled, numbers and model [b] (0: any other) to [b, 2]: median and 90 % quantile of log(1 + output tokens).

    The output is the mean of an ensemble. If the prompt states a length, a gate mixes the median from a free estimate
    and the stated length times a factor, so that a stated length counts whatever the words around it are. The quantiles
    never cross; `shift` is the conformal correction of the upper one.
    """

    def __init__(self, mean: Tensor, scale: Tensor, models: int) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", torch.zeros(()))
        self.models = nn.Embedding(models, MODEL_WIDTH)
        nn.init.normal_(self.models.weight)
        width = HIDDEN + FEATURES + MODEL_WIDTH
        self.hidden = nn.Sequential(nn.Dropout(0.2), nn.Linear(width, LENGTH_HEADS * LENGTH_WIDTH), nn.GELU())
        self.out = nn.Parameter(torch.randn(LENGTH_HEADS, LENGTH_WIDTH, 4) * LENGTH_WIDTH**-0.5)
        # The free estimate starts at the usual 150 tokens (log 5), the estimate from a stated length at that length.
        self.bias = nn.Parameter(torch.tensor([5.0, 0.0, 0.0, 0.0]).repeat(LENGTH_HEADS, 1, 1))

    def members(self, pooled: Tensor, numbers: Tensor, model: Tensor) -> Tensor:
        """Returns the outputs of the ensemble's members [heads, b, 2], without the conformal shift."""
        # These columns are the mean of the last layer's states.
        states = ((pooled - self.mean) / self.scale)[:, -2 * HIDDEN : -HIDDEN] * LENGTH_INPUT_SCALE
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
    """The part exported on top of the encoder: returns task probabilities [b, 13] and output tokens [b, 2]."""

    def __init__(self, task: TaskHead, length: LengthHead) -> None:
        super().__init__()
        self.task = task
        self.length = length

    def forward(self, pooled: Tensor, numbers: Tensor, grams: Tensor, model: Tensor) -> tuple[Tensor, Tensor]:
        return self.task(pooled, numbers, grams).softmax(1), self.length(pooled, numbers, model).exp() - 1.0


def _body(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Dropout(0.3), nn.Linear(inputs, width), nn.GELU(), nn.Dropout(0.3), nn.Linear(width, outputs)
    )


def pinball(quantiles: Tensor, target: Tensor, levels: Tensor) -> Tensor:
    """Returns the pinball loss of quantiles [..., b, q] for target [b], summed over `levels` [q].

    Source: Koenker & Bassett 1978.
    """
    gap = target.unsqueeze(-1) - quantiles
    return torch.maximum(levels * gap, (levels - 1) * gap).sum(-1)
