"""Corrects predicted output lengths by the factor that they were wrong by for earlier, similar requests.

Perception is trained on other traffic than it serves; where it errs, it errs the same way for requests that are alike.
"""

from dataclasses import replace
from math import exp, log1p

from hmas.contracts.request import Request, Tags
from hmas.worker.agent.config import LengthBiasConfig
from hmas.worker.agent.prior import LengthCells


class LengthBias:
    """The factor by which predicted output lengths are multiplied.

    It is the running geometric mean of actual over predicted length for a tenant and task type. While few requests were
    seen, it is drawn towards the mean of the task type over all tenants, and that one towards 1. Predictors (by
    `Tags.version`) are kept apart. At `max_cells` means the oldest one is forgotten.
    """

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
        """Records the answer length of a request that ended by itself; `tags` are cognition's, before any correction.

        If both the prediction and the answer reach the request's `max_tokens`, nothing can be learnt from it.
        """
        limit = request.max_tokens
        if limit is not None and output_tokens >= limit and tags.output_tokens >= limit:
            return
        error = log1p(output_tokens) - log1p(tags.output_tokens)
        for name in _names(request, tags):
            self._cells.add(name, error)


def _names(request: Request, tags: Tags) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (tags.version, tags.task.value), (tags.version, tags.task.value, request.tenant)
