"""Training of the heads over a fixed encoder's output: task cross-entropy, length pinball; calibration after it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.perception.training.examples import LengthRows
from services.perception.training.network import LengthHead, TaskHead, pinball

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
LEVELS = torch.tensor([0.5, 0.9])


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that fixes a run besides the data."""

    seed: int = 0
    layers: int = 3
    head_tokens: int = 26
    tail_tokens: int = 12
    synthetic_per_type: int = 700
    batch_size: int = 128
    task_epochs: int = 8
    length_epochs: int = 40
    rate: float = 1e-3
    smoothing: float = 0.05
    weight_decay: float = 0.05  # of the task head
    length_weight_decay: float = 0.01
    model_dropout: float = 0.3  # a fleet's model is mostly none of those that wrote the corpus
    token_scale: float = 150.0  # tokens; the error in tokens counts beside the error in log tokens
    coverage: float = 0.9
    folds: int = 2  # of the training part, for scores by heads that did not see the answer
    least_confidence: float = 0.5  # below it the type is `unknown`


def train_task(pooled: Floats, numbers: Floats, task: Ints, recipe: Recipe) -> TaskHead:
    """`task` [n] has no -1. Deterministic for a seed on one build of torch."""
    torch.manual_seed(recipe.seed)
    inputs, extra, target = torch.from_numpy(pooled), torch.from_numpy(numbers), torch.from_numpy(task)
    head = TaskHead(inputs.mean(0), inputs.std(0) + 1e-3).train()

    def loss(rows: Tensor) -> Tensor:
        experts = head.experts(inputs[rows], extra[rows])
        losses = [nn.functional.cross_entropy(e, target[rows], label_smoothing=recipe.smoothing) for e in experts]
        return torch.stack(losses).sum()

    _descend(head, len(task), recipe.task_epochs, recipe.weight_decay, recipe, loss)
    return head.eval()


def train_length(pooled: Floats, numbers: Floats, rows: LengthRows, models: int, recipe: Recipe) -> LengthHead:
    torch.manual_seed(recipe.seed)
    inputs, extra = torch.from_numpy(pooled), torch.from_numpy(numbers)
    prompt, model = torch.from_numpy(rows.prompt), torch.from_numpy(rows.model)
    tokens, weight = torch.from_numpy(rows.tokens), torch.from_numpy(rows.weight)
    head = LengthHead(inputs.mean(0), inputs.std(0) + 1e-3, models).train()

    def loss(batch: Tensor) -> Tensor:
        known = torch.rand(len(batch)) >= recipe.model_dropout
        at = prompt[batch]
        guess = head.members(inputs[at], extra[at], torch.where(known, model[batch], 0))
        off = (guess[..., 0].expm1() - tokens[batch]).abs() / recipe.token_scale
        each = pinball(guess, tokens[batch].log1p(), LEVELS) + 0.5 * off
        return (each * weight[batch]).mean() / weight.mean()

    _descend(head, len(tokens), recipe.length_epochs, recipe.length_weight_decay, recipe, loss)
    return head.eval()


def _descend(
    head: nn.Module, size: int, epochs: int, decay: float, recipe: Recipe, loss: Callable[[Tensor], Tensor]
) -> None:
    """AdamW, linear decay to zero, batches in an order that the seed gives."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=recipe.rate, weight_decay=decay)
    order = np.random.default_rng(recipe.seed)
    steps = epochs * -(-size // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    for _ in range(epochs):
        for rows in torch.from_numpy(order.permutation(size)).split(recipe.batch_size):
            value = loss(rows)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def calibrate_task(head: TaskHead, pooled: Floats, numbers: Floats, task: Ints) -> float:
    """Sets and returns the temperature of least negative log-likelihood (Guo et al. 2017), by grid."""
    logits = head(torch.from_numpy(pooled), torch.from_numpy(numbers))
    target = torch.from_numpy(task)
    grid = torch.linspace(0.3, 3.0, 109)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, target) for t in grid])
    head.temperature.copy_(grid[losses.argmin()])
    return float(head.temperature)


@torch.no_grad()
def length_scores(head: LengthHead, pooled: Floats, numbers: Floats, rows: LengthRows) -> Floats:
    """Conformity scores of the upper quantile, log tokens: how far above it each answer lies.

    Scored as if the answering model were none of the corpus: such are the models of most meshes.
    """
    model = torch.zeros(len(rows.tokens), dtype=torch.long)
    guess = head(torch.from_numpy(pooled[rows.prompt]), torch.from_numpy(numbers[rows.prompt]), model)
    scores: Floats = (torch.from_numpy(rows.tokens).log1p() - guess[:, 1]).numpy()
    return scores


def conformal_shift(scores: Floats, coverage: float) -> float:
    """What to add to the upper quantile (Romano et al. 2019); scores of heads that did not see the answers."""
    level = min(1.0, coverage * (1 + 1 / len(scores)))
    return float(np.quantile(scores, level))
