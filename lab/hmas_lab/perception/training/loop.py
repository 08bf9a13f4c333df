"""Trains the tagger end to end (cross-entropy for types, pinball for lengths) and calibrates it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier
from torch import Tensor, nn

from hmas.perception.backends.encoder import CLS, PromptEncoder, padded
from hmas.perception.backends.grams import GRAMS, grams
from hmas.perception.backends.inputs import numbers
from hmas_lab.perception.training.corpus import Prompt
from hmas_lab.perception.training.examples import ASSUMED_WEIGHT, length_rows, task_index
from hmas_lab.perception.training.network import POOLED, LengthHead, Tagger, TaskHead, pinball
from hmas_lab.perception.training.phrases import SOURCE

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
LEVELS = torch.tensor([0.5, 0.9])
PRIOR_PENALTY = 1e-3
HEAD_BATCH = 128
MASK = 103  # BERT uncased vocabulary
_POOL = 16  # steps whose prompts are drawn together and sorted by length, so that batches hold little padding


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """All parameters that determine a training run besides the data."""

    seed: int = 0
    layers: int = 3
    head_tokens: int = 24
    tail_tokens: int = 10
    synthetic_per_type: int = 2000
    shares: tuple[float, float, float] = (1.0, 1.0, 0.5)  # exponents of the experts on encoder, rules and words
    steps: int = 400
    left_out_steps: int = 250  # where sources are left out: at most 200 prompts of each other source train
    # Prompts of a batch: synthetic, of a known type, with answers, with a known answer of an agent.
    batch: tuple[int, int, int, int] = (26, 18, 16, 4)
    rate: float = 2e-4  # of the encoder's last layer; each layer below has `layer_decay` of that above it
    layer_decay: float = 0.85
    head_rate: float = 1e-3
    weight_decay: float = 0.01
    warm_up: float = 0.1  # of the steps
    masked: float = 0.1  # word pieces, on average
    smoothing: float = 0.05
    length_share: float = 0.5  # of the length loss beside the task loss
    tools_share: float = 0.25
    model_dropout: float = 0.5  # a served model is rarely one of those that wrote the corpus
    token_scale: float = 150.0  # tokens; the loss adds the error in tokens, over this, to the error in log tokens
    length_epochs: int = 40
    tools_epochs: int = 10
    match_epochs: int = 8
    word_epochs: int = 12
    word_decay: float = 3e-6
    coverage: float = 0.9
    least_confidence: float = 0.5  # below this probability the type is `unknown`
    saved_every: int = 50  # steps between checkpoints; of no influence on the result


@dataclass(frozen=True, slots=True)
class Examples:
    """The network's inputs and targets for n prompts.

    `ids` are word pieces, `numbers` is [n, NUMBERS], `grams` [n, g] is padded with 0, `task` [n] is -1 where the type
    is not known and `tools` [n] -1 where nobody knows whether an agent called a tool.
    """

    prompts: Sequence[Prompt]
    ids: Sequence[list[int]]
    numbers: Floats
    grams: Ints
    task: Ints
    tools: Ints

    def rows(self, chosen: Ints) -> "Examples":
        return Examples(
            [self.prompts[row] for row in chosen],
            [self.ids[row] for row in chosen],
            self.numbers[chosen],
            self.grams[chosen],
            self.task[chosen],
            self.tools[chosen],
        )


def examples(prompts: Sequence[Prompt], encoder: PromptEncoder) -> Examples:
    return Examples(
        prompts,
        [encoder.ids(prompt.text) for prompt in prompts],
        np.array([numbers(prompt.text, prompt.tokens) for prompt in prompts], np.float32),
        padded([grams(prompt.text) for prompt in prompts]),
        task_index(prompts),
        np.array([-1 if prompt.calls_tool is None else int(prompt.calls_tool) for prompt in prompts], np.int64),
    )


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def low_precision(where: torch.device) -> AbstractContextManager[None]:
    """Returns a context in which matrix products are computed in bfloat16, where that is faster."""
    processor = Path("/proc/cpuinfo")
    fast = where.type == "cuda" or (processor.is_file() and "avx512_bf16" in processor.read_text())
    return torch.autocast(where.type, torch.bfloat16, enabled=fast)


def tune(
    tagger: Tagger,
    data: Examples,
    models: Sequence[str],
    recipe: TrainingRecipe,
    checkpoint: Path | None,
    report: Callable[[str], None],
) -> None:
    """Trains all weights of the encoder and of the heads on it, in place; the experts on rules and words are fitted by
    `fit_experts`.

    Steps depend on seed and step number alone, so a run that resumes from `checkpoint` ends as an uninterrupted one.
    The finished state stays in `checkpoint`. Raises ValueError if that is of another recipe or other data.
    """
    where = device()
    tagger.to(where).train()
    optimizer = torch.optim.AdamW(_groups(tagger, recipe), fused=True)
    warm = max(1.0, recipe.warm_up * recipe.steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (recipe.steps - step) / (recipe.steps - warm + 1e-9))
    )
    identity = {**recipe_identity(recipe), "data": _checksum(data)}
    start = _resumed(checkpoint, identity, recipe.steps, tagger, optimizer, schedule) if checkpoint else 0
    if start:
        report(f"resumed at step {start}")
    place = {name: index for index, name in enumerate(models)}
    draws = _Draws(data, recipe)
    for step in range(start, recipe.steps):
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        loss = _loss(tagger, data, draws.batch(step), place, recipe, step, where)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        done = step + 1
        if checkpoint and (done % recipe.saved_every == 0 or done == recipe.steps):
            state = {"tagger": tagger.state_dict(), "step": done, "identity": identity}
            if done < recipe.steps:
                state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
        if done % 50 == 0 or done == recipe.steps:
            report(f"step {done} of {recipe.steps}, loss {float(loss.detach()):.3f}")
    tagger.cpu().eval()


def _groups(tagger: Tagger, recipe: TrainingRecipe) -> list[dict[str, object]]:
    """Returns the parameters with their learning rates, which fall from the last layer down to the embeddings."""
    groups: list[dict[str, object]] = []
    for name, weights in tagger.named_parameters():
        if not weights.requires_grad or name.startswith("heads.task.matches"):
            continue
        rate = recipe.head_rate
        if name.startswith("encoder"):
            layer = int(name.split(".")[2]) if name.startswith("encoder.layers") else -1
            rate = recipe.rate * recipe.layer_decay ** (recipe.layers - 1 - layer)
        decay = recipe.weight_decay if weights.ndim > 1 else 0.0
        groups.append({"params": [weights], "lr": rate, "weight_decay": decay})
    return groups


def recipe_identity(recipe: TrainingRecipe) -> dict[str, object]:
    """Returns what a trained network depends on of its recipe: all but what is chosen after training."""
    return {
        **asdict(recipe),
        "shares": None,
        "length_epochs": None,
        "tools_epochs": None,
        "saved_every": None,
        "coverage": None,
        "least_confidence": None,
    }


def _checksum(data: Examples) -> int:
    pieces = b"".join(np.array(row, np.int32).tobytes() for row in data.ids)
    return crc32(pieces + data.task.tobytes() + data.tools.tobytes() + data.numbers.tobytes())


def _resumed(
    checkpoint: Path,
    identity: dict[str, object],
    steps: int,
    tagger: Tagger,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
) -> int:
    if not checkpoint.is_file():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    if state["identity"] != identity:
        raise ValueError(f"{checkpoint} is of a run with another recipe or other data: remove it to start anew")
    tagger.load_state_dict(state["tagger"])
    if state["step"] < steps:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
    return int(state["step"])


class _Draws:
    """Draws the rows of every batch. Within a kind (see `TrainingRecipe.batch`) sources and types that have many
    prompts are drawn less often than their number says."""

    def __init__(self, data: Examples, recipe: TrainingRecipe) -> None:
        self._recipe = recipe
        self._lengths = np.array([len(row) for row in data.ids])
        made = np.array([prompt.source == SOURCE for prompt in data.prompts])
        answered = np.array([bool(prompt.answers) for prompt in data.prompts])
        kinds = (made, ~made & (data.task >= 0), ~made & answered, ~made & (data.tools >= 0))
        self._kinds = []
        for kind, count in zip(kinds, recipe.batch, strict=True):
            rows = np.flatnonzero(kind)
            if len(rows) and count:
                self._kinds.append((rows, _chances([data.prompts[int(row)] for row in rows]), count))
        self._pool: tuple[int, list[Ints]] = (-1, [])

    def batch(self, step: int) -> Ints:
        number, place = divmod(step, _POOL)
        if self._pool[0] != number:
            rng = np.random.default_rng((self._recipe.seed, number))
            rows = np.concatenate([rng.choice(r, _POOL * count, p=p) for r, p, count in self._kinds])
            order = np.argsort(self._lengths[rows] + rng.normal(0.0, 2.0, len(rows)))
            batches = np.split(rows[order], _POOL)
            rng.shuffle(batches)
            self._pool = (number, batches)
        return self._pool[1][place]


def _chances(prompts: Sequence[Prompt]) -> NDArray[np.float64]:
    genres = Counter((prompt.source, prompt.task, prompt.calls_tool) for prompt in prompts)
    tasks = Counter(prompt.task for prompt in prompts)
    weights = np.array(
        [
            (genres[p.source, p.task, p.calls_tool] * tasks[p.task]) ** -0.25 * math.sqrt(max(1, len(p.answers)))
            for p in prompts
        ]
    )
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances


def _loss(
    tagger: Tagger,
    data: Examples,
    rows: Ints,
    place: dict[str, int],
    recipe: TrainingRecipe,
    step: int,
    where: torch.device,
) -> Tensor:
    ids = torch.from_numpy(padded([data.ids[row] for row in rows]))
    # Some prompts lose many of their word pieces and some none.
    hidden = (torch.rand(ids.shape) < 2 * recipe.masked * torch.rand(len(ids), 1)) & (ids > CLS + 1)
    with low_precision(where):
        pooled = tagger.encoder(torch.where(hidden, MASK, ids).to(where))
    heads = tagger.heads
    task = torch.from_numpy(data.task[rows]).to(where)
    loss = nn.functional.cross_entropy(heads.task.read(pooled), task, ignore_index=-1, label_smoothing=recipe.smoothing)
    tools = torch.from_numpy(data.tools[rows]).to(where)
    if bool((tools >= 0).any()):
        said = heads.tools(pooled).squeeze(1)[tools >= 0]
        called = nn.functional.binary_cross_entropy_with_logits(said, tools[tools >= 0].float())
        loss = loss + recipe.tools_share * called
    rng = np.random.default_rng((recipe.seed, step, 1))
    drawn = [(at, data.prompts[row].answers) for at, row in enumerate(rows) if data.prompts[row].answers]
    if drawn:
        answers = [some[rng.integers(len(some))] for _, some in drawn]
        at = np.array([at for at, _ in drawn])
        weight = torch.tensor([1.0 if a.model else ASSUMED_WEIGHT for a in answers]).to(where)
        tokens = torch.tensor([float(a.tokens) for a in answers]).to(where)
        known = rng.random(len(answers)) >= recipe.model_dropout
        model = torch.tensor([place.get(a.model, 0) if k else 0 for a, k in zip(answers, known, strict=True)])
        seen = torch.from_numpy(data.numbers[rows[at]]).to(where)
        guess = heads.length(pooled[torch.from_numpy(at).to(where)], seen, model.to(where))
        each = _length_loss(guess, tokens, recipe)
        loss = loss + recipe.length_share * (each * weight).sum() / weight.sum().clamp(min=1.0)
    return loss


def fit_experts(head: TaskHead, data: Examples, recipe: TrainingRecipe) -> None:
    """Fits the experts on rules and on words, in place, to the prompts whose type is known; deterministic for a seed on
    one build of torch."""
    rows = np.flatnonzero(data.task >= 0)
    torch.manual_seed(recipe.seed)
    seen, target = torch.from_numpy(data.numbers[rows]), torch.from_numpy(data.task[rows])
    head.matches.train()

    def loss(some: Tensor) -> Tensor:
        guess = head.matches(seen[some])
        return nn.functional.cross_entropy(guess, target[some], label_smoothing=recipe.smoothing)

    _descend(head.matches, len(rows), recipe.match_epochs, loss)
    head.matches.eval()
    _fit_words(head, data.grams[rows], data.task[rows], recipe)


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


def fit_length(tagger: Tagger, data: Examples, models: Sequence[str], recipe: TrainingRecipe) -> None:
    """Trains a new length head, in place, on the states of the trained encoder, which stays as it is. Lengths need more
    rounds over their few prompts than the encoder can take without learning these prompts by heart."""
    torch.manual_seed(recipe.seed)
    head = tagger.heads.length = LengthHead(len(models), dropout=0.5).train()
    answered = data.rows(np.flatnonzero([bool(prompt.answers) for prompt in data.prompts]))
    pooled, seen, rows = (
        states(tagger, answered),
        torch.from_numpy(answered.numbers),
        length_rows(answered.prompts, models),
    )
    prompt, model = torch.from_numpy(rows.prompt), torch.from_numpy(rows.model)
    tokens, weight = torch.from_numpy(rows.tokens), torch.from_numpy(rows.weight)

    def loss(some: Tensor) -> Tensor:
        at, known = prompt[some], torch.rand(len(some)) >= recipe.model_dropout
        guess = head(pooled[at], seen[at], torch.where(known, model[some], 0))
        return (_length_loss(guess, tokens[some], recipe) * weight[some]).mean() / weight.mean()

    _descend(head, len(tokens), recipe.length_epochs, loss)
    head.eval()


def fit_tools(tagger: Tagger, data: Examples, recipe: TrainingRecipe) -> None:
    """Trains the head for calls of tools further, in place, on the states of the trained encoder. Calls and texts weigh
    alike, and so do sources among either, because few prompts are answered by a call and most sources never are."""
    torch.manual_seed(recipe.seed)
    told = data.rows(np.flatnonzero(data.tools >= 0))
    keys = [(prompt.source, prompt.calls_tool) for prompt in told.prompts]
    of_kind, kinds = Counter(keys), Counter(called for _, called in set(keys))
    weight = torch.tensor([1.0 / (of_kind[key] * kinds[key[1]]) for key in keys]) * len(keys) / 2
    pooled, called = states(tagger, told), torch.from_numpy(told.tools).float()
    head = tagger.heads.tools.train()

    def loss(some: Tensor) -> Tensor:
        said = head(pooled[some]).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(said, called[some], weight[some])

    _descend(head, len(keys), recipe.tools_epochs, loss)
    head.eval()


def _descend(head: nn.Module, size: int, epochs: int, loss: Callable[[Tensor], Tensor]) -> None:
    """Minimises `loss` over batches of `size` rows by AdamW with a learning rate that falls linearly to 0."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.05)
    steps = epochs * -(-size // HEAD_BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    for _ in range(epochs):
        for some in torch.randperm(size).split(HEAD_BATCH):
            value = loss(some)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(value)
            nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            schedule.step()


def _length_loss(guess: Tensor, tokens: Tensor, recipe: TrainingRecipe) -> Tensor:
    off = (guess[:, 0].expm1() - tokens).abs() / recipe.token_scale
    return pinball(guess, tokens.log1p(), LEVELS.to(guess.device)) + 0.5 * off


@torch.no_grad()
def states(tagger: Tagger, data: Examples) -> Tensor:
    """Returns what the encoder makes of n prompts, [n, POOLED]."""
    where = device()
    encoder = tagger.encoder.to(where)
    order = sorted(range(len(data.ids)), key=lambda row: len(data.ids[row]))
    out = torch.empty(len(order), POOLED)
    for start in range(0, len(order), 64):
        some = order[start : start + 64]
        with low_precision(where):
            out[some] = encoder(torch.from_numpy(padded([data.ids[row] for row in some])).to(where)).float().cpu()
    tagger.encoder.cpu()
    return out


@torch.no_grad()
def expert_logits(tagger: Tagger, data: Examples) -> Tensor:
    """Returns the logits [3, n, 13] of the task head's experts."""
    seen = torch.from_numpy(data.numbers), torch.from_numpy(data.grams)
    return tagger.heads.task.experts(states(tagger, data), *seen)


def scaling_of(logits: Tensor, task: Tensor) -> tuple[float, Tensor]:
    """Returns the temperature and the prior [13] of least negative log-likelihood (vector scaling with one scale: Guo
    et al. 2017); a penalty keeps the prior small where there are few prompts."""
    scale, prior = torch.zeros((), requires_grad=True), torch.zeros(logits.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([scale, prior], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(logits * scale.exp() + prior, task) + PRIOR_PENALTY * (prior**2).sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    optimizer.step(closure)
    return float((-scale).exp().detach()), prior.detach()


def straight_line(guess: Floats, tokens: Floats) -> tuple[float, float]:
    """Returns offset and slope of the least-squares line from the log of predicted lengths [n] to that of true ones, so
    that neither short nor long predictions are off on average."""
    slope, offset = np.polyfit(np.log1p(guess), np.log1p(tokens), 1)
    return float(offset), float(slope)


def conformal_stretch(median: Floats, upper: Floats, tokens: Floats, coverage: float) -> float:
    """Returns by what to multiply the distance of the upper quantile from the median, so that `coverage` of the answers
    lie below it (Romano et al. 2019). All [n] are in tokens, of answers that training did not see."""
    low = np.log1p(median)
    scores = (np.log1p(tokens) - low) / np.maximum(np.log1p(upper) - low, 1e-6)
    level = min(1.0, coverage * (1 + 1 / len(scores)))
    return max(0.0, float(np.quantile(scores, level)))
