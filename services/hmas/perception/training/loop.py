"""Trains the heads on a fixed encoder's output (cross-entropy for types, pinball for lengths); calibrates them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from torch import Tensor, nn

from hmas.perception.backends.grams import GRAMS
from hmas.perception.training.examples import LengthRows
from hmas.perception.training.network import LengthHead, TaskHead, pinball

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
LEVELS = torch.tensor([0.5, 0.9])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """All parameters that determine a training run besides the data."""

    seed: int = 0
    layers: int = 1
    head_tokens: int = 12
    tail_tokens: int = 6
    synthetic_per_type: int = 2000
    shares: tuple[float, float, float] = (1.0, 1.5, 0.75)  # exponents of the experts on encoder, rules and words
    batch_size: int = 128
    task_epochs: int = 8
    length_epochs: int = 40
    rate: float = 1e-3
    smoothing: float = 0.05
    weight_decay: float = 0.05  # of the task head's networks
    word_epochs: int = 12
    word_decay: float = 3e-6
    length_weight_decay: float = 0.01
    model_dropout: float = 0.3  # a served model is rarely one of those that wrote the corpus
    token_scale: float = 150.0  # tokens; the loss adds the error in tokens, over this, to the error in log tokens
    coverage: float = 0.9
    folds: int = 2  # of the training part, for conformity scores by heads that did not see the answer
    least_confidence: float = 0.5  # below this probability the type is `unknown`


@dataclass(frozen=True, slots=True)
class Arrays:
    """The heads' inputs for n prompts.

    `pooled` [n, p] is the encoder's output, `numbers` is [n, NUMBERS], and `grams` [n, g] is padded with 0.
    """

    pooled: Floats
    numbers: Floats
    grams: Ints

    def rows(self, chosen: Ints | NDArray[np.bool_] | list[int]) -> "Arrays":
        return Arrays(self.pooled[chosen], self.numbers[chosen], self.grams[chosen])

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.from_numpy(self.pooled), torch.from_numpy(self.numbers), torch.from_numpy(self.grams)


def train_task(arrays: Arrays, task: Ints, recipe: TrainingRecipe) -> TaskHead:
    """Trains the task head on task indices `task` [n], none of them -1.

    The result is deterministic for a seed on one build of torch.
    """
    torch.manual_seed(recipe.seed)
    (pooled, numbers, _), target = arrays.tensors(), torch.from_numpy(task)
    head = TaskHead(pooled.mean(0), pooled.std(0) + 1e-3, recipe.shares).train()

    def loss(rows: Tensor) -> Tensor:
        experts = head.networks(pooled[rows], numbers[rows])
        losses = [nn.functional.cross_entropy(e, target[rows], label_smoothing=recipe.smoothing) for e in experts]
        return torch.stack(losses).sum()

    _descend(head, len(task), recipe.task_epochs, recipe.weight_decay, recipe, loss)
    _fit_words(head, arrays.grams, task, recipe)
    return head.eval()


def train_length(arrays: Arrays, rows: LengthRows, models: int, recipe: TrainingRecipe) -> LengthHead:
    torch.manual_seed(recipe.seed)
    pooled, numbers, _ = arrays.tensors()
    prompt, model = torch.from_numpy(rows.prompt), torch.from_numpy(rows.model)
    tokens, weight = torch.from_numpy(rows.tokens), torch.from_numpy(rows.weight)
    head = LengthHead(pooled.mean(0), pooled.std(0) + 1e-3, models).train()

    def loss(batch: Tensor) -> Tensor:
        known = torch.rand(len(batch)) >= recipe.model_dropout
        at = prompt[batch]
        guess = head.members(pooled[at], numbers[at], torch.where(known, model[batch], 0))
        off = (guess[..., 0].expm1() - tokens[batch]).abs() / recipe.token_scale
        each = pinball(guess, tokens[batch].log1p(), LEVELS) + 0.5 * off
        return (each * weight[batch]).mean() / weight.mean()

    _descend(head, len(tokens), recipe.length_epochs, recipe.length_weight_decay, recipe, loss)
    return head.eval()


def _descend(
    head: nn.Module, size: int, epochs: int, decay: float, recipe: TrainingRecipe, loss: Callable[[Tensor], Tensor]
) -> None:
    """Minimises `loss` by AdamW with a learning rate that falls linearly to 0; the seed determines the batches."""
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
def _fit_words(head: TaskHead, grams: Ints, task: Ints, recipe: TrainingRecipe) -> None:
    """Sets the head's word weights by one logistic regression per task type (averaged stochastic gradient descent)."""
    held = grams > 0
    count = held.sum(1)
    starts = np.concatenate([[0], count.cumsum()])
    shape = (len(grams), GRAMS)
    words = csr_matrix((np.repeat(np.maximum(count, 1) ** -0.5, count), grams[held], starts), shape=shape)
    model = SGDClassifier(
        loss="log_loss", alpha=recipe.word_decay, max_iter=recipe.word_epochs, tol=None, average=True,
        random_state=recipe.seed,
    ).fit(words, task)  # fmt: skip
    head.words.weight[:, model.classes_] = torch.from_numpy(model.coef_.T).float()
    head.bias[model.classes_] = torch.from_numpy(model.intercept_).float()


@torch.no_grad()
def calibrate_task(head: TaskHead, arrays: Arrays, task: Ints) -> float:
    """Sets the head's temperature to that of least negative log-likelihood (Guo et al. 2017) on a grid; returns it."""
    logits = head(*arrays.tensors())
    target = torch.from_numpy(task)
    grid = torch.linspace(0.3, 6.0, 229)
    losses = torch.stack([nn.functional.cross_entropy(logits / t, target) for t in grid])
    head.temperature.copy_(grid[losses.argmin()])
    return float(head.temperature)


@torch.no_grad()
def length_scores(head: LengthHead, arrays: Arrays, rows: LengthRows) -> Floats:
    """Returns the conformity scores of the upper quantile: by how many log tokens each answer exceeds it.

    Every answer is scored as if its model were not in the corpus, as is true of most served models.
    """
    model = torch.zeros(len(rows.tokens), dtype=torch.long)
    pooled, numbers, _ = arrays.rows(rows.prompt).tensors()
    guess = head(pooled, numbers, model)
    scores: Floats = (torch.from_numpy(rows.tokens).log1p() - guess[:, 1]).numpy()
    return scores


def conformal_shift(scores: Floats, coverage: float) -> float:
    """Returns what to add to the upper quantile (log tokens) to reach `coverage` (Romano et al. 2019).

    `scores` must come from heads that did not see the answers in training.
    """
    level = min(1.0, coverage * (1 + 1 / len(scores)))
    return float(np.quantile(scores, level))
