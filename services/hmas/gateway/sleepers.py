"""Which engines are asleep, as workers tell, for `hmas why`: what a request that has not ended waits for."""

from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.gateway.exchange import Exchange

MAX_WORKERS = 1024


class SleepingEngines:
    """The engines of the workers that have one which is asleep, by their last heartbeats; at most `max_workers`."""

    def __init__(self, max_workers: int = MAX_WORKERS) -> None:
        self._max_workers = max_workers
        self._engines: dict[str, tuple[EngineInfo, ...]] = {}

    def on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        known = self._engines.pop(heartbeat.worker, None) is not None
        asleep = any(each.sleep_level is not None for each in heartbeat.engines)
        if asleep and (known or len(self._engines) < self._max_workers):
            self._engines[heartbeat.worker] = heartbeat.engines

    def awaited_by(self, exchange: Exchange) -> str:
        """Returns which sleeping engines a request waits for, in words: the one that it runs on, or at the worker that
        has it all those that could take it. Empty if it waits for none."""
        if exchange.outcome is not None:
            return ""
        run = exchange.runs[-1] if exchange.runs and exchange.runs[-1].ended_s is None else None
        worker = exchange.worker if run is None else run.worker
        up = [each for each in self._engines.get(worker, ()) if each.up]
        if run is not None:
            slept = any(each.engine == run.engine and each.sleep_level is not None for each in up)
            return f"{worker}/{run.engine} to wake: somebody has put it to sleep" if slept else ""
        fitting = [each for each in up if _could_hold(each, exchange.request.prompt_tokens)]
        if not fitting or any(each.serves for each in fitting):
            return ""
        names = ", ".join(f"{worker}/{each.engine}" for each in fitting)
        return f"{names} to wake: somebody has put to sleep what could take it at its worker"


def _could_hold(engine: EngineInfo, prompt_tokens: int) -> bool:
    limits = (engine.max_model_len, engine.kv_capacity_tokens)
    return all(prompt_tokens < limit for limit in limits if limit)
