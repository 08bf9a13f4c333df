"""The regulator of how many requests decode."""

from hmas.contracts.control import (
    EngineControl,
)
from hmas.worker.agent.engines.flow import FlowRegulator

CONTROL = EngineControl(engine="e1", n_run=10, b_token=6, b_min=2, b_max=8, gain_b=10.0, u_low=0.5, u_high=0.8)


def test_regulator_moves_by_gain_times_the_error_outside_the_band() -> None:
    loop = FlowRegulator()
    loop.adopt(CONTROL, 0)
    loop.regulate(0.6, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (6, 0)
    loop.regulate(1.0, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (4, 0)
    loop.regulate(1.1, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (2, -1)
    loop.adopt(CONTROL, 0)  # repeated: the loop stays where it is
    assert loop.b_token == 2
    loop.regulate(0.0, CONTROL, 0)
    loop.regulate(0.0, CONTROL, 0)
    assert (loop.b_token, loop.saturated) == (8, 1)


def test_regulator_never_goes_below_what_runs() -> None:
    loop = FlowRegulator()
    loop.adopt(CONTROL, 12)
    assert loop.b_token == 12
    loop.regulate(2.0, CONTROL, 12)
    assert (loop.b_token, loop.saturated) == (12, -1)
