"""N_run in bursts, with a regulator that moves limits: it is not cut while requests wait in the worker and the resource
that binds is below the band, whatever waits inside the engine for prefill."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hmas.engine.core.profile import builtin_profile
from hmas.sim.mesh import MeshSim
from hmas.sim.regulated import Regulated
from hmas.sim.setup import POOL
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.systems import REGULATORS
from hmas.statera.agent.band import BandController
from hmas.worker.agent.config import WorkerConfig

PROFILE = builtin_profile("qwen3-32b-h100x2")
# With so many seconds of prefill in advance, many wait in the engine while a burst fills it.
AHEAD = [pytest.param(None, 4.0, id="memory plenty"), pytest.param(2500, 60.0, id="memory short")]


def regulated(kv_blocks: int | None, prefill_window_s: float) -> tuple[Regulated, ...]:
    """Returns what the regulator did in a minute of bursts on one engine."""
    blocks = kv_blocks or PROFILE.limits.num_gpu_blocks
    profile = replace(PROFILE, limits=replace(PROFILE.limits, max_num_batched_tokens=1024, num_gpu_blocks=blocks))
    worker = WorkerConfig(
        worker="w0", incarnation="1", address="", pool=POOL, prefill_window_s=prefill_window_s
    )  # fmt: skip
    setup = replace(REGULATORS["hmas-moving"], estimator="noisy", costs="engine", worker_config=worker)
    workload = build(WorkloadSpec(kind="burst", duration_s=60.0, stated=True), 6.0, 1).fitting(profile)
    return MeshSim(setup, profile, 1, workload, seed=1, cutoff_s=10.0).run().run.regulated


def false_cuts(rows: tuple[Regulated, ...]) -> Iterator[Regulated]:
    """Yields the rows in which N_run was cut although requests waited and nothing was above the band's lower edge."""
    for before, row in itertools.pairwise(rows):
        if row.n_run < before.n_run and row.queued and max(row.utilisation, row.kv_usage) < row.band_low:
            yield row


@pytest.mark.parametrize(("kv_blocks", "prefill_window_s"), AHEAD)
def test_no_cut_while_requests_wait_and_what_binds_is_below_the_band(
    kv_blocks: int | None, prefill_window_s: float
) -> None:
    rows = regulated(kv_blocks, prefill_window_s)
    assert max(row.queued for row in rows) > 10
    assert list(false_cuts(rows)) == []


@pytest.mark.parametrize(("kv_blocks", "prefill_window_s"), AHEAD)
def test_what_waits_inside_the_engine_as_the_only_sign_of_a_limit_cuts_in_the_first_burst(
    kv_blocks: int | None, prefill_window_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the check above finds it."""

    def notice(self: BandController, now_s: float) -> None:
        spare = self._spare(self._peak_running)
        if self._peak_running and self._least_waiting > spare:
            self._limit = (now_s, self._peak_running + spare)

    monkeypatch.setattr(BandController, "_notice_limit", notice)
    rows = regulated(kv_blocks, prefill_window_s)
    first = next(false_cuts(rows))
    assert (first.at_s < 5.0, first.n_run < 32, first.queued > 10) == (True, True, True)
