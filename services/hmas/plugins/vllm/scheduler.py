"""The scheduler classes that vLLM loads: vLLM's own schedulers, with steering before and after `schedule()`.

vLLM's scheduler interface is not public, so that `schedule` passes on whatever arguments a version has.
"""

import os
from pathlib import Path
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from hmas.plugins.vllm.channel import ControlChannel
from hmas.plugins.vllm.steering import Steering

logger = init_logger("vllm.hmas")


class _Steered:
    """Base class that adds steering to a vLLM scheduler, which must be the next base.

    If steering cannot be set up, the scheduler works as vLLM's own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steering: Steering | None = None
        try:
            path = os.environ.get("HMAS_CONTROL_BLOCK")
            self._steering = Steering(self, ControlChannel(Path(path) if path else None), _warn)
            logger.info("H-MAS steers this engine; control block: %s", path or "none (HMAS_CONTROL_BLOCK is not set)")
        except Exception as error:
            _warn(f"this vLLM cannot be steered and schedules on its own: {type(error).__name__}: {error}")

    def add_request(self, request: Any) -> None:
        super().add_request(request)
        if self._steering is not None:
            self._steering.added()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        if self._steering is None:
            return super().schedule(*args, **kwargs)
        self._steering.before()
        output = super().schedule(*args, **kwargs)
        self._steering.after(output)
        return output


class HmasScheduler(_Steered, Scheduler):
    """vLLM's synchronous scheduler, as used on CPUs, with H-MAS steering."""


class HmasAsyncScheduler(_Steered, AsyncScheduler):
    """vLLM's async scheduler (its default on GPUs) with H-MAS steering."""


def _warn(message: str) -> None:
    logger.warning("H-MAS: %s", message)
