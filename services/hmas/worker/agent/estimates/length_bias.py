"""Corrects predicted output lengths by the factor that they were wrong by for earlier, similar requests.

Perception is trained on other traffic than it serves; where it errs, it errs the same way for requests that are alike.
"""

from dataclasses import replace
from math import erfc, exp, log1p, pi, sqrt

from hmas.contracts.request import Request, Tags
from hmas.worker.agent.config import LengthBiasConfig
from hmas.worker.agent.entry.entry import QueueEntry

_FAR = 6.0  # standard deviations: what is that much likelier than not needs no integral


class LengthBias:
    """The factor by which predicted output lengths are multiplied: the geometric mean of actual over predicted length
    for a tenant and task type.

    While few requests were seen, it is drawn towards the mean of the task type over all tenants, and that one towards
    1, unless they agree on another. Predictors (by `Tags.version`) are kept apart. At `max_cells` means the oldest one
    is forgotten.

    Short answers end first, so those that have ended are too short a sample of the requests that began lately. Running
    ones count as well (`_Cell`).
    """

    def __init__(self, config: LengthBiasConfig) -> None:
        self._config = config
        self._cells: dict[tuple[str, ...], _Cell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def corrected(self, request: Request, tags: Tags) -> Tags:
        log_factor = 0.0
        for name in _names(request, tags):
            cell = self._cells.get(name)
            if cell is not None and cell.errors:
                cell.estimate()
                log_factor += cell.trust(log_factor) * (cell.mean - log_factor)
        if not log_factor:
            return tags
        factor = exp(log_factor)
        return replace(
            tags, output_tokens=tags.output_tokens * factor, output_tokens_p90=tags.output_tokens_p90 * factor
        )

    def began(self, entry: QueueEntry) -> None:
        """Counts a request that was granted. Its `claimed`, cognition's tags before any correction, must be there and
        stay until it has ended or is forgotten."""
        for name in _names(entry.request, _claimed(entry)):
            self._cell(name).add(entry)

    def learn(self, entry: QueueEntry) -> None:
        """Records that a request that was counted has ended by itself, with all of its output tokens.

        If both the prediction and the answer reach the request's `max_tokens`, nothing can be learnt from it.
        """
        tags, limit = _claimed(entry), entry.request.max_tokens
        if limit is not None and entry.output_tokens >= limit and tags.output_tokens >= limit:
            return
        for name in _names(entry.request, tags):
            cell = self._cells.get(name)
            if cell is not None:
                cell.end(entry)

    def forget(self, entry: QueueEntry) -> None:
        """Forgets a request if it still runs, because how long its answer would be is not going to be known."""
        if entry.claimed is not None:
            for name in _names(entry.request, entry.claimed):
                cell = self._cells.get(name)
                if cell is not None:
                    cell.forget(entry)

    def _cell(self, name: tuple[str, ...]) -> "_Cell":
        cell = self._cells.get(name)
        if cell is None:
            if len(self._cells) >= self._config.max_cells:
                del self._cells[next(iter(self._cells))]
            cell = self._cells[name] = _Cell(self._config)
        return cell


class _Cell:
    """The errors log(actual / predicted length) of some requests of one group, in the order in which they began.

    That of a running request is known to be above what its answer has got so far. The errors are taken for normally
    distributed, and their mean and variance are those of greatest likelihood for such a sample, censored on the right
    (Tobin, Estimation of Relationships for Limited Dependent Variables, Econometrica 26, 1958), found by expectation
    maximisation, of which each estimate makes one step.

    Beyond `memory` requests the oldest is forgotten, whether it runs or not, and while `most_running` of them run,
    those that begin are not counted. Neither depends on the length of an answer, and the sample reaches back as far as
    answers take to end, however many begin in a second.
    """

    __slots__ = ("_config", "_mean", "_running", "_variance", "errors", "mean")

    def __init__(self, config: LengthBiasConfig) -> None:
        self._config = config
        self.errors: dict[str, float | QueueEntry] = {}  # by request; the entry while it runs
        self.mean = 0.0  # as last estimated
        self._running = 0
        self._mean = 0.0  # with one request without error beside, so that bounds alone do not drive it away
        self._variance = config.sd**2

    def add(self, entry: QueueEntry) -> None:
        if entry.request.id in self.errors or self._running >= self._config.most_running:
            return
        if len(self.errors) >= self._config.memory:
            oldest = next(iter(self.errors))
            self._running -= isinstance(self.errors.pop(oldest), QueueEntry)
        self.errors[entry.request.id] = entry
        self._running += 1

    def end(self, entry: QueueEntry) -> None:
        if self.errors.get(entry.request.id) is entry:
            self.errors[entry.request.id] = _error(entry)
            self._running -= 1

    def forget(self, entry: QueueEntry) -> None:
        if self.errors.get(entry.request.id) is entry:
            del self.errors[entry.request.id]
            self._running -= 1

    def trust(self, prior: float) -> float:
        """Returns the weight of the estimate against `prior`: the more errors, and the farther their mean is from it in
        standard errors, the more (as James and Stein shrink a mean: Estimation with Quadratic Loss, 1961)."""
        count, distance = len(self.errors), self.mean - prior
        least = count / (count + self._config.doubt)
        noise = self._config.certain**2 * self._variance
        return max(least, 1.0 - noise / (count * distance * distance)) if distance else least

    def _turn(self) -> None:
        """Forgets the older errors if the newest contradict them, because tenants and models begin to behave otherwise
        at once. A running request contradicts by what it has got beyond the mean."""
        newest, count = self._config.newest, len(self.errors)
        if count < 2 * newest:
            return
        known = [max(self._mean, _error(e)) if isinstance(e, QueueEntry) else e for e in self.errors.values()]
        old, new = known[:-newest], known[-newest:]
        allowed = self._config.contradicts * sqrt(self._config.sd**2 * (1.0 / newest + 1.0 / len(old)))
        if abs(sum(new) / newest - sum(old) / len(old)) > allowed + sqrt(self._variance):
            for name in list(self.errors)[:-newest]:
                self._running -= isinstance(self.errors.pop(name), QueueEntry)

    def estimate(self) -> None:
        """Estimates the mean error anew. There must be one at least."""
        self._turn()
        sd, count, doubt = sqrt(self._variance), len(self.errors), self._config.doubt
        total = square = 0.0
        for error in self.errors.values():
            if isinstance(error, QueueEntry):
                mean, variance = _above(_error(error), self._mean, sd)
                total += mean
                square += mean * mean + variance
            else:
                total += error
                square += error * error
        mean = total / count
        spread = max(0.0, square - total * mean) + doubt * self._config.sd**2
        self._variance = min(self._config.most_sd**2, spread / (count + doubt))
        self._mean = total / (count + 1)
        self.mean = mean


def _above(bound: float, mean: float, sd: float) -> tuple[float, float]:
    """Returns mean and variance of a normally distributed variable of which it is known that it is above `bound`."""
    at = (bound - mean) / sd
    if at < -_FAR:
        return mean, sd * sd
    if at > _FAR:
        return bound + sd / at, (sd / at) ** 2
    hazard = exp(-at * at / 2.0) * sqrt(2.0 / pi) / erfc(at / sqrt(2.0))
    return mean + sd * hazard, sd * sd * (1.0 + at * hazard - hazard * hazard)


def _error(entry: QueueEntry) -> float:
    return log1p(entry.output_tokens) - log1p(_claimed(entry).output_tokens)


def _claimed(entry: QueueEntry) -> Tags:
    assert entry.claimed is not None
    return entry.claimed


def _names(request: Request, tags: Tags) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (tags.version, tags.task.value), (tags.version, tags.task.value, request.tenant)
