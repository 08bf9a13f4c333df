"""Fits the instance types of one cell, a model on one kind of card, over numbers of cards."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.contracts.pool_plan import CostOrigin, InstanceType
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.fitting import COEFFICIENTS, fit_cost
from hmas.mesh.profiling.card_scaling import LEAST_SIZES, CheckedScaling, best_scaling
from hmas.mesh.profiling.known_cells import ProfiledCell
from hmas.mesh.profiling.silicon import MeasuredLoop, Sifted, observations_by_gpus, sift

SIZES = (1, 2, 4, 8)  # cards of one engine
LEAST_KV_TOKENS = 32_768  # less holds no request of the longest context that emulated engines have
CHUNK_TOKENS = 1024  # --max-num-batched-tokens of the types: a longer chunk delays who decodes


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedType:
    """An instance type with how it was checked: on `points` measurements of its own number of cards, `own_error` is
    that of the costs fitted to them and `left_out` that of a fit to the other numbers of cards; None without."""

    kind: InstanceType
    points: int
    own_error: float | None
    left_out: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCell:
    """The types of a cell. `scaling` is None where too few numbers of cards were measured to fit one."""

    name: str
    types: tuple[FittedType, ...]
    scaling: CheckedScaling | None
    sifted: Sifted | None = None


def fit_cell(cell: ProfiledCell, loops: Sequence[MeasuredLoop]) -> FittedCell:
    """Fits the types of a cell on each of `SIZES` on which it fits. Raises ValueError that says why it cannot."""
    if not loops:
        raise ValueError("the table has no measurements of it")
    sifted = sift(loops, {gpus: cell.kv_tokens(gpus) for gpus in {loop.gpus for loop in loops}})
    observed = observations_by_gpus(sifted.loops)
    if not observed:
        raise ValueError("no measurement of it is left: in all of them requests queued or outgrew the KV memory")
    scaling = best_scaling(observed) if len(observed) >= LEAST_SIZES else None
    types = []
    for gpus in SIZES:
        own = observed.get(gpus, [])
        if cell.kv_tokens(gpus) < LEAST_KV_TOKENS:
            continue
        left_out = scaling.left_out.get(gpus) if scaling else None
        if len(own) >= COEFFICIENTS:
            fit = fit_cost(own)
            kind = _kind(cell, gpus, fit.cost, CostOrigin.MEASURED, fit.error.decode_mean)
            types.append(FittedType(kind=kind, points=len(own), own_error=fit.error.decode_mean, left_out=left_out))
        elif scaling is not None:
            origin, error = unmeasured(scaling, gpus)
            kind = _kind(cell, gpus, scaling.scaling.at(gpus), origin, error)
            types.append(FittedType(kind=kind, points=len(own), own_error=None, left_out=left_out))
    if not types:
        raise ValueError(
            f"it has fewer than {COEFFICIENTS} measurements on each number of cards, and fewer than {LEAST_SIZES} "
            "numbers of cards"
        )
    return FittedCell(name=cell.name, types=tuple(types), scaling=scaling, sifted=sifted)


def unmeasured(scaling: CheckedScaling, gpus: int) -> tuple[CostOrigin, float]:
    """Returns the origin and the error of costs on a number of cards that was not measured: between others the mean
    error of those left out, beyond them that of the nearest one, which was then predicted from beyond, too."""
    sizes = sorted(scaling.left_out)
    if sizes[0] < gpus < sizes[-1]:
        return CostOrigin.INTERPOLATED, round(scaling.mean, 4)
    return CostOrigin.ASSUMED, round(scaling.left_out[sizes[0] if gpus <= sizes[0] else sizes[-1]], 4)


def _kind(cell: ProfiledCell, gpus: int, cost: StepCostModel, origin: CostOrigin, error: float | None) -> InstanceType:
    """Makes an instance type. Raises ValueError if a step is shorter than reading the weights takes."""
    alone_s, least_s = cost.c0_s + cost.c_d_s, cell.weights_s(gpus)
    if alone_s < least_s:
        raise ValueError(
            f"on {cell.card.hardware} x {gpus} a step with one sequence comes out as {1000 * alone_s:.2g} ms, but "
            f"reading the weights takes {1000 * least_s:.2g} ms: measurements with few sequences are missing"
        )
    return InstanceType(
        name=f"{cell.name}-tp{gpus}",
        model=cell.model,
        hardware=cell.card.hardware,
        gpus=gpus,
        step=cost,
        kv_tokens=cell.kv_tokens(gpus),
        max_num_batched_tokens=CHUNK_TOKENS,
        start_s=cell.start_s,
        origin=origin,
        error=error,
    )
