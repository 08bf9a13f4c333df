"""The tagger: a MiniLM encoder that is trained end to end, with heads for task type, output length and tool calls."""

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
POOLED = 2 * HIDDEN
MODEL_WIDTH = 32
MATCH_WIDTH = 96
NEVER_SEEN = -12.0  # log odds of a task type that occurred with no word
LENGTH_WIDTH = 192
MOST_LOG_TOKENS = 10.5  # 36,000 tokens


class Encoder(nn.Module):
    """The lowest `layers` layers of MiniLM. It maps ids [b, s] (0: padding) to [b, POOLED].

    The output is the mean and the maximum over tokens of the last layer's states.
    """

    def __init__(self, backbone: Path, layers: int) -> None:
        super().__init__()
        bert = AutoModel.from_pretrained(backbone, attn_implementation="eager")
        self.embeddings, self.layers = bert.embeddings, bert.encoder.layer[:layers]

    def forward(self, ids: Tensor) -> Tensor:
        present = (ids != PAD).to(torch.float32)
        hole = (present - 1) * 1e4
        states = self.embeddings(ids)
        for layer in self.layers:
            after = layer(states, hole[:, None, None])
            states = after if isinstance(after, Tensor) else after[0]
        states = states.float()
        share = (present / present.sum(1, keepdim=True)).unsqueeze(1)
        return torch.cat([(share @ states).squeeze(1), (states + hole.unsqueeze(2)).amax(1)], dim=1)


class TaskHead(nn.Module):
    """Maps pooled [b, POOLED], numbers [b, NUMBERS] and grams [b, g] to task logits [b, 13].

    It is a product of three experts (Hinton 2002): one reads the encoder, one the matching rules, and one is linear in
    the words and pairs of words of the instruction; `shares` [3] are their exponents. If they were trained as one
    network, the encoder, which learns the wording of every training source, would explain everything, and the other
    two, which also hold for unseen sources, would learn nothing. Calibration sets `temperature` and `prior` [13], which
    is added.
    """

    shares: Tensor
    temperature: Tensor
    prior: Tensor

    def __init__(self, shares: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("shares", torch.tensor(shares))
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("prior", torch.zeros(TASKS))
        self.read = nn.Sequential(nn.Dropout(0.2), nn.Linear(POOLED, TASKS))
        nn.init.normal_(self.read[1].weight, std=0.02)
        self.matches = nn.Sequential(
            nn.Dropout(0.3), nn.Linear(NUMBERS, MATCH_WIDTH), nn.GELU(), nn.Dropout(0.3), nn.Linear(MATCH_WIDTH, TASKS)
        )
        self.words = nn.Embedding.from_pretrained(torch.zeros(GRAMS, TASKS))  # from_pretrained freezes the weights
        self.register_buffer("bias", torch.full((TASKS,), NEVER_SEEN))

    def experts(self, pooled: Tensor, numbers: Tensor, grams: Tensor) -> Tensor:
        """Returns the logits [3, b, 13] of the experts on the encoder, the rules and the words."""
        count = (grams > 0).sum(1, keepdim=True).clamp(min=1)
        words = self.words(grams).sum(1) / count.sqrt() + self.bias
        return torch.stack([self.read(pooled), self.matches(numbers), words])

    def forward(self, pooled: Tensor, numbers: Tensor, grams: Tensor) -> Tensor:
        logits = (self.shares[:, None, None] * self.experts(pooled, numbers, grams)).sum(0)
        return logits / self.temperature + self.prior


class LengthHead(nn.Module):
    """Maps pooled, numbers and model [b] (0: any other) to [b, 2]: median and 90 % quantile of log(1 + output tokens).

    If the prompt states a length, a gate mixes the median from a free estimate and the stated length times a factor, so
    that a stated length counts whatever the words around it are. The quantiles never cross. Calibration sets `line`
    [2], the offset and slope of a straight line through the median, and `stretch`, the conformal correction, which
    multiplies the distance of the upper quantile from the median.
    """

    line: Tensor
    stretch: Tensor

    def __init__(self, models: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.register_buffer("line", torch.tensor([0.0, 1.0]))
        self.register_buffer("stretch", torch.ones(()))
        self.models = nn.Embedding(models, MODEL_WIDTH)
        width = POOLED + FEATURES + MODEL_WIDTH
        self.body = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, LENGTH_WIDTH), nn.GELU(), nn.Dropout(dropout))
        self.out = nn.Linear(LENGTH_WIDTH, 4)
        nn.init.normal_(self.out.weight, std=0.01)
        # The free estimate starts at the usual 150 tokens (log 5), the estimate from a stated length at that length.
        self.out.bias.data = torch.tensor([5.0, 0.0, 0.0, 0.0])

    def forward(self, pooled: Tensor, numbers: Tensor, model: Tensor) -> Tensor:
        seen = torch.cat([pooled, numbers[:, :FEATURES], self.models(model)], dim=1)
        free, spread, gate, factor = self.out(self.body(seen)).unbind(1)
        share = numbers[:, IS_STATED] * torch.sigmoid(gate)
        median = (1 - share) * free + share * (numbers[:, STATED] * STATED_SCALE + factor)
        median = (self.line[0] + self.line[1] * median).clamp(0.0, MOST_LOG_TOKENS)
        return torch.stack([median, median + self.stretch * nn.functional.softplus(spread)], dim=1)


class Heads(nn.Module):
    """Everything on top of the encoder: task probabilities [b, 13], output tokens [b, 2], and the probability [b] that
    an agent that is given the prompt answers with a call of a tool."""

    def __init__(self, models: int, shares: Sequence[float]) -> None:
        super().__init__()
        self.task = TaskHead(shares)
        self.length = LengthHead(models)
        self.tools = nn.Sequential(nn.Dropout(0.2), nn.Linear(POOLED, 1))

    def forward(self, pooled: Tensor, numbers: Tensor, grams: Tensor, model: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tools = torch.sigmoid(self.tools(pooled)).squeeze(1)
        probabilities = self.task(pooled, numbers, grams).softmax(1)
        return probabilities, self.length(pooled, numbers, model).exp() - 1.0, tools


class Tagger(nn.Module):
    """The encoder and its heads, which are trained together."""

    def __init__(self, backbone: Path, layers: int, models: int, shares: Sequence[float]) -> None:
        super().__init__()
        self.encoder = Encoder(backbone, layers)
        self.heads = Heads(models, shares)


def pinball(quantiles: Tensor, target: Tensor, levels: Tensor) -> Tensor:
    """Returns the pinball loss of quantiles [..., b, q] for target [b], summed over `levels` [q].

    Source: Koenker & Bassett 1978.
    """
    gap = target.unsqueeze(-1) - quantiles
    return torch.maximum(levels * gap, (levels - 1) * gap).sum(-1)
