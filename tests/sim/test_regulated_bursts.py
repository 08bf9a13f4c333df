"""N_run in bursts, whichever rule moves it: it is not cut while requests wait in the worker and the resource
that binds is below the band, whatever waits inside the engine for prefill."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from hmas.engine.core.profile import builtin_profile
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL
from hmas.statera.agent.band import NRunController
from hmas.worker.agent.config import WorkerConfig
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_lab.sim.systems import HMAS, MESHES

PROFILE = builtin_profile("qwen3-32b-h100x2")
# With so many seconds of prefill in advance, many wait in the engine while a burst fills it.
AHEAD = [pytest.param(None, 4.0, id="memory plenty"), pytest.param(2500, 60.0, id="memory short")]
MOVED = "hmas-moving"


@dataclass(frozen=True, slots=True)
class Move:
    """A move of N_run: `queued` requests waited in the worker, and `below`: utilisation was below the band in the
    mean of the window before."""

    at_s: float
    before: int
    n_run: int
    queued: int
    below: bool


def regulated(
    kv_blocks: int | None, prefill_window_s: float, system: str, monkeypatch: pytest.MonkeyPatch
) -> list[Move]:
    """Returns all moves in a minute of bursts on one engine."""
    blocks = kv_blocks or PROFILE.limits.num_gpu_blocks
    profile = replace(PROFILE, limits=replace(PROFILE.limits, max_num_batched_tokens=1024, num_gpu_blocks=blocks))
    worker = WorkerConfig(
        worker="w0", incarnation="1", address="", pool=POOL, prefill_window_s=prefill_window_s
    )  # fmt: skip
    setup = replace(MESHES[system], estimator="noisy", costs="engine", worker_config=worker)
    workload = build(WorkloadSpec(kind="burst", duration_s=60.0, stated=True), 6.0, 1).fitting(profile)
    moves: list[Move] = []
    move = NRunController.move

    def noted(self: NRunController, now_s: float, in_flight: int, queued: int) -> bool:
        before, below = self.n_run, self._errors < 0.0
        changed = move(self, now_s, in_flight, queued)
        moves.append(Move(now_s, before, self.n_run, queued, below))
        return changed

    monkeypatch.setattr(NRunController, "move", noted)
    MeshSim(setup, profile, 1, workload, seed=1, cutoff_s=10.0).run()
    return moves


def false_cuts(moves: list[Move]) -> Iterator[Move]:
    """Yields the cuts of N_run while requests waited and nothing was above the band's lower edge."""
    return (move for move in moves if move.n_run < move.before and move.queued and move.below)


@pytest.mark.parametrize("system", [HMAS, MOVED])
@pytest.mark.parametrize(("kv_blocks", "prefill_window_s"), AHEAD)
def test_no_cut_while_requests_wait_and_what_binds_is_below_the_band(
    kv_blocks: int | None, prefill_window_s: float, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = regulated(kv_blocks, prefill_window_s, system, monkeypatch)
    assert max(move.queued for move in moves) > 10
    assert list(false_cuts(moves)) == []


@pytest.mark.parametrize(("kv_blocks", "prefill_window_s"), AHEAD)
def test_what_waits_inside_the_engine_as_the_only_sign_of_a_limit_cuts_falsely(
    kv_blocks: int | None, prefill_window_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the check above finds it."""

    def notice(self: NRunController, now_s: float) -> None:
        spare = self._spare(self._peak_running)
        if self._peak_running and self._least_waiting > spare:
            self._limit = (now_s, self._peak_running + spare)

    monkeypatch.setattr(NRunController, "_notice_limit", notice)
    first = next(false_cuts(regulated(kv_blocks, prefill_window_s, MOVED, monkeypatch)))
    assert (first.n_run < 32, first.queued > 10) == (True, True)
