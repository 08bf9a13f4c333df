"""The priority of a request in an engine's own convention, from its urgency in the worker's order (lower first)."""

from collections.abc import Iterable

PRIORITY_BOUND = 2**31 - 1
TOP_LEVEL = 10  # SGLang's default --priority-scheduling-preemption-threshold


def vllm_priority(urgency: float) -> int:
    """Returns vLLM's integer priority, lower first, for a rank in seconds: its milliseconds, kept within 32 bits."""
    return int(max(-PRIORITY_BOUND, min(PRIORITY_BOUND, urgency * 1000.0)))


def sglang_level(urgency: float, waiting: Iterable[tuple[float, int]]) -> int:
    """Returns SGLang's priority for a request: a level from 0 to `TOP_LEVEL`, higher first.

    `waiting` holds (urgency, level) of the requests that wait in the engine. The level lies between those of the less
    urgent and of the more urgent ones; if none is left between them, it equals that of one side.

    There are few levels because SGLang keeps metrics for each priority that it ever saw, and because it preempts a
    running request for one whose priority is higher by more than 10.
    """
    below, above = -1, TOP_LEVEL + 1
    for other, level in waiting:
        if other == urgency:
            return level
        if other > urgency:
            below = max(below, level)
        else:
            above = min(above, level)
    return max(0, min(TOP_LEVEL, (below + above) // 2))
