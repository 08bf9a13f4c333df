"""Our side of the comparison with AlpaServe's code: one slot, a fixed time, all of what its simulator adds."""

import pytest

from hmas_lab.placement.alpaserve_check import OVERHEAD_S, STAGE_PENALTY, OneSlotSetting, Ours, main

LIKE = OneSlotSetting(name="like", seconds=(1.0, 1.0), slos_s=(1.1, 1.1), rates_rps=(1.0, 1.0))


def test_a_group_serves_one_at_a_time_in_a_fixed_time() -> None:
    setting = OneSlotSetting(
        name="two", seconds=(1.0, 1.0), slos_s=(1.0 + STAGE_PENALTY + OVERHEAD_S, 0.5), rates_rps=(1, 1)
    )
    ours = Ours(setting)
    arrivals = {"a": [0.0, 0.1, 1.01], "b": [0.0]}  # the second finds the group busy, the third finds it just free
    assert ours.attainment(arrivals, {"a": (1, 1), "b": (1, 1)}) == 2 / 4
    assert ours.attainment(arrivals, {"a": (1, 2), "b": (4, 1)}) == 4 / 4


def test_like_models_have_groups_of_one_size_and_unlike_ones_their_own() -> None:
    bursts = {"a": [0.0] * 5, "b": [0.0] * 3}
    assert Ours(LIKE).placed(bursts) == {"a": (1, 5), "b": (1, 3)}
    unlike = OneSlotSetting(name="unlike", seconds=(1.0, 3.0), slos_s=(1.1, 1.1), rates_rps=(1.0, 1.0))
    assert Ours(unlike).placed({"a": [0.0] * 4, "b": [0.0]}) == {"a": (1, 4), "b": (4, 1)}


def test_the_command_needs_a_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "checkout" in capsys.readouterr().err
