"""What a sleep takes from an engine: all KV that it holds. What runs is kept, and computed anew."""

from hmas.engine.core.core import EngineCore
from hmas.engine.core.step import StepPlan


def lose_kv(core: EngineCore) -> list[str]:
    """Takes their KV from all that run, and from prompts that are kept for other engines, so that the cache can be
    reset. Returns the ids of the requests that ran. No step may be in flight."""
    preempted = [*core.running]
    for request_id in reversed(preempted):  # each goes to the front of the queue
        core.preempt(core.running[request_id], StepPlan())
    for request_id in [*core.handed.lent]:
        core.handed.give_back(request_id)
    core.kv.disown()
    return preempted
