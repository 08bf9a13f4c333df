"""Scheduler plug-in for vLLM 0.29 to 0.32, through which the control tuple acts inside the engine.

    vllm serve MODEL --scheduler-cls hmas.plugins.vllm.HmasAsyncScheduler

Use `HmasAsyncScheduler` with async scheduling, vLLM's default on GPUs, and `HmasScheduler` without it (on CPUs). The
environment variable `HMAS_CONTROL_BLOCK` names the control block's file; the worker's engine setting `control_block`
must name the same file, in a folder that both see (/dev/shm, or a memory-backed volume of one pod).

What the plug-in does
- It admits waiting requests only while fewer run than the smaller of two caps: N_run, and the number of sequences whose
  decode tokens (one each, and its draft tokens) fit into B_token. Requests that already run continue.
- It limits the prefill chunk of a step to the slack that the decoding requests have until their next tokens' deadlines
  (Niyama §3.3), but never below `MIN_CHUNK_TOKENS`.
- It orders waiting requests by `hmas_urgency` in their `vllm_xargs`, lower first; preempted requests come first,
  requests without an urgency last.

The file `<control block>.status` holds the limits in force and the number of exceptions caught.
"""

from typing import Any

__all__ = ["HmasAsyncScheduler", "HmasScheduler"]


def __getattr__(name: str) -> Any:
    """Imports a scheduler class when it is first used, because workers import this package too and lack vLLM."""
    if name in __all__:
        from hmas.plugins.vllm import scheduler

        return getattr(scheduler, name)
    raise AttributeError(name)
