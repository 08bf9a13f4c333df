"""What predicted output lengths are off by, as settled requests show it.

Perception is trained on other traffic than it serves; where it errs, it errs the same way for requests that are alike.
"""

from dataclasses import replace
from math import exp, log1p

from hmas.contracts.request import Request, Tags
from hmas.worker.agent.config import LengthBiasConfig
from hmas.worker.agent.prior import LengthCells


class LengthBias:
    """A factor on predictions: the running geometric mean of actual over predicted, shrunk towards that of the task
    type over all tenants, and that towards 1, by how many were seen. Predictors are never mixed (`Tags.version`).
    Bounded: the oldest cell goes first."""

    def __init__(self, config: LengthBiasConfig) -> None:
        self._doubt = config.doubt
        self._cells: LengthCells[tuple[str, ...]] = LengthCells(config.memory, config.max_cells)

    def corrected(self, request: Request, tags: Tags) -> Tags:
        log_factor = 0.0
        for name in _names(request, tags):
            cell = self._cells.get(name)
            if cell is not None:
                log_factor += cell.count / (cell.count + self._doubt) * (cell.mean - log_factor)
        if not log_factor:
            return tags
        factor = exp(log_factor)
        return replace(
            tags, output_tokens=tags.output_tokens * factor, output_tokens_p90=tags.output_tokens_p90 * factor
        )

    def learn(self, request: Request, tags: Tags, output_tokens: int) -> None:
        """A request ended by itself with this real length; `tags` are as they came. A client's bound that both reach
        says nothing."""
        limit = request.max_tokens
        if limit is not None and output_tokens >= limit and tags.output_tokens >= limit:
            return
        error = log1p(output_tokens) - log1p(tags.output_tokens)
        for name in _names(request, tags):
            self._cells.add(name, error)


def _names(request: Request, tags: Tags) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (tags.version, tags.task.value), (tags.version, tags.task.value, request.tenant)
