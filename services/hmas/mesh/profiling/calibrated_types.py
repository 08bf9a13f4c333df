"""Instance types of engines that the operator has calibrated (`hmas calibrate`)."""

import re
from collections.abc import Sequence
from itertools import product

import numpy as np

from hmas.contracts.pool_plan import CostOrigin, InstanceType
from hmas.engine.core.profile import EngineProfile
from hmas.engine.fitting import Observation
from hmas.mesh.profiling.card_scaling import LEAST_SIZES, CheckedScaling, best_scaling
from hmas.mesh.profiling.fitted_types import SIZES, FittedCell, FittedType, unmeasured

HARDWARE = re.compile(r"(?P<card>.+?) ?x(?P<gpus>[1-9][0-9]{0,2})")
CONTEXTS, CHUNKS = (256, 2048), ((0, 0), (512, 256), (512, 2048))  # tokens; tokens of a chunk and before it
Calibrated = dict[int, EngineProfile]  # by number of cards


def by_cell(profiles: Sequence[EngineProfile]) -> tuple[dict[tuple[str, str], Calibrated], list[str]]:
    """Returns the calibrations by model and card, and a line on each that does not tell what it is of. Of two for one
    number of cards the last counts."""
    found: dict[tuple[str, str], Calibrated] = {}
    refused = []
    for profile in profiles:
        match = HARDWARE.fullmatch(profile.hardware)
        if not profile.model or match is None:
            refused.append(
                f"{profile.name}: it does not tell its model and its cards: calibrate with --hardware, such as "
                "H100x2, or write `model` and `hardware` into its file"
            )
            continue
        found.setdefault((profile.model, match["card"].lower()), {})[int(match["gpus"])] = profile
    return found, refused


def fit_calibrations(model: str, card: str, calibrated: Calibrated) -> FittedCell:
    """Makes the types of one model on one kind of card. Sizes between those calibrated are interpolated if there are
    enough of these; beyond them nothing is assumed."""
    cell = re.sub(r"[^a-z0-9]+", "-", f"{model.rpartition('/')[2]}-{card}".lower()).strip("-")
    sizes = {gpus: _steps(profile) for gpus, profile in sorted(calibrated.items())}
    scaling = best_scaling(sizes) if len(sizes) >= LEAST_SIZES else None
    between = [gpus for gpus in SIZES if gpus not in sizes and min(sizes) < gpus < max(sizes)] if scaling else []
    types = []
    for gpus in sorted([*sizes, *between]):
        if (profile := calibrated.get(gpus)) is None:
            assert scaling is not None
            kind = _interpolated(f"{cell}-tp{gpus}", card, gpus, calibrated, scaling)
            types.append(FittedType(kind=kind, points=0, own_error=None, left_out=None))
            continue
        own_error = profile.fit.decode_mean if profile.fit else None
        kind = InstanceType(
            name=f"{cell}-tp{gpus}",
            model=profile.model,
            hardware=card,
            gpus=gpus,
            step=profile.cost,
            kv_tokens=_kv_tokens(profile),
            max_num_seqs=profile.limits.max_num_seqs,
            max_num_batched_tokens=profile.limits.max_num_batched_tokens,
            origin=CostOrigin.CALIBRATED,
            error=own_error,
        )
        left_out = scaling.left_out[gpus] if scaling else None
        points = profile.fit.points if profile.fit else 0
        types.append(FittedType(kind=kind, points=points, own_error=own_error, left_out=left_out))
    return FittedCell(name=cell, types=tuple(types), scaling=scaling)


def _interpolated(name: str, card: str, gpus: int, calibrated: Calibrated, scaling: CheckedScaling) -> InstanceType:
    """Makes a type between calibrated ones. KV memory grows by the same tokens with each card; limits are the least."""
    sizes = sorted(calibrated)
    profiles = [calibrated[size] for size in sizes]
    origin, error = unmeasured(scaling, gpus)
    return InstanceType(
        name=name,
        model=profiles[0].model,
        hardware=card,
        gpus=gpus,
        step=scaling.scaling.at(gpus),
        kv_tokens=int(np.interp(gpus, sizes, [_kv_tokens(profile) for profile in profiles])),
        max_num_seqs=min(profile.limits.max_num_seqs for profile in profiles),
        max_num_batched_tokens=min(profile.limits.max_num_batched_tokens for profile in profiles),
        origin=origin,
        error=error,
    )


def _steps(profile: EngineProfile) -> list[Observation]:
    """Returns steps of the calibrated law, over batches up to the engine's limit, to which a scaling is fitted."""
    batches = [2**i for i in range(profile.limits.max_num_seqs.bit_length())]
    return [
        Observation(
            "decode",
            profile.cost.step_s(tokens, seqs, seqs * context, tokens * (before + tokens / 2)),
            prefill_tokens=tokens,
            decode_seqs=seqs,
            context_tokens=seqs * context,
            prefill_pairs=tokens * (before + tokens / 2),
        )
        for seqs, context, (tokens, before) in product(batches, CONTEXTS, CHUNKS)
    ]


def _kv_tokens(profile: EngineProfile) -> int:
    return profile.limits.num_gpu_blocks * profile.limits.block_size
