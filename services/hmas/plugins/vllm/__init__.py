"""Scheduler plug-in for vLLM 0.29 to 0.32: the control tuple acts inside the engine.

    vllm serve MODEL --scheduler-cls hmas.plugins.vllm.HmasAsyncScheduler

`HmasAsyncScheduler` goes with async scheduling, vLLM's default on GPUs; `HmasScheduler` without it (CPUs). The
environment variable `HMAS_CONTROL_BLOCK` names the control block's file, which the worker's engine setting
`control_block` names too (a folder both see: /dev/shm, or a memory-backed volume of one pod).

What it does
- N_run: most running requests. B_token: decode tokens of a step, one (and its drafts) for each running sequence; so
  the least of both caps admissions, and what already runs goes on.
- The prefill chunk has a budget of its own beside the decodes: as large as their slack to the next token's deadline
  allows (Niyama §3.3), never less than `MIN_CHUNK_TOKENS`.
- Waiting requests are ordered by `hmas_urgency` in their `vllm_xargs`, lower first; preempted ones come first, those
  without one last.

`<control block>.status` tells what is in force and how many faults were caught.
"""

from typing import Any

__all__ = ["HmasAsyncScheduler", "HmasScheduler"]


def __getattr__(name: str) -> Any:
    """The classes need vLLM, the worker's end of the control block does not."""
    if name in __all__:
        from hmas.plugins.vllm import scheduler

        return getattr(scheduler, name)
    raise AttributeError(name)
