"""The fit finds a cost model back, never a negative one, and says how sure it is."""

from dataclasses import astuple

import numpy as np
import pytest

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.fitting import Observation, fit_cost

TRUE = StepCostModel(c0_s=0.012, c_p_s=5e-5, c_d_s=8e-5, c_k_s=4e-8, c_pp_s=2e-9)


def observations(cost: StepCostModel, noise: float) -> list[Observation]:
    rng = np.random.default_rng(3)
    result = []
    for tokens in (64, 256, 1024, 2048, 4096, 8192):
        seconds = cost.step_s(tokens, 0, 0, tokens**2 / 2)
        result.append(Observation("prefill", seconds, prefill_tokens=tokens, prefill_pairs=tokens**2 / 2))
    for seqs in (1, 4, 16, 64, 128):
        for context in (100, 1000, 4000):
            seconds = cost.step_s(0, seqs, seqs * context, 0)
            result.append(Observation("decode", seconds, decode_seqs=seqs, context_tokens=seqs * context))
    return [Observation(o.kind, o.seconds * (1 + noise * rng.standard_normal()), *o.features()) for o in result * 4]


def test_exact_observations_give_the_model_back() -> None:
    fit = fit_cost(observations(TRUE, 0.0))
    assert astuple(fit.cost) == pytest.approx(astuple(TRUE), rel=1e-3)
    assert fit.error.points == 84
    assert fit.error.prefill_mean == pytest.approx(0.0, abs=1e-3)


def test_noise_stays_within_the_confidence_intervals() -> None:
    fit = fit_cost(observations(TRUE, 0.03))
    for found, true, width in zip(astuple(fit.cost), astuple(TRUE), fit.half_width_95, strict=True):
        assert 0 < width < true
        assert abs(found - true) < 2 * width
    assert fit.error.decode_mean is not None
    assert 0.01 < fit.error.decode_mean < 0.05


def test_coefficients_are_never_negative() -> None:
    shrinking = [
        Observation("decode", 0.02 - 0.00005 * seqs, decode_seqs=seqs, context_tokens=seqs * 10)
        for seqs in range(1, 20)
    ]
    fit = fit_cost(shrinking)
    assert fit.cost.c_d_s == fit.cost.c_k_s == 0.0
    assert fit.error.prefill_mean is None
    assert fit.half_width_95[2] == 0.0


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        fit_cost([])
    with pytest.raises(ValueError, match="above 0"):
        fit_cost([Observation("decode", 0.0)] * 5)
    proportional = [Observation("prefill", 1e-5 * n, prefill_tokens=n) for n in range(1, 9)]
    with pytest.raises(ValueError, match="empty step"):
        fit_cost(proportional)
