"""Shell: puts the emulated engine to sleep and wakes it, over the endpoints of vLLM's development mode.

As in vLLM 0.32, `/sleep` takes `level` (0: no step is taken; 1, the default, and 2: what the KV cache holds is dropped,
too) and `mode`, which says what becomes of the requests that are there: `abort`, the default, ends them with the finish
reason `abort`; `wait` answers once those that run have ended; `keep` lets them go on after `/wake_up`, where levels 1
and 2 have them computed anew. A request that comes meanwhile is accepted, and waits. No memory is freed here, and
falling asleep and waking take no time.
"""

from urllib.parse import parse_qs

import orjson

from hmas.engine.metrics import EngineTelemetry
from hmas.engine.shell import Stepper

SLEEP, WAKE_UP, IS_SLEEPING = ("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")
LEVELS, MODES = ("0", "1", "2"), ("abort", "wait", "keep")
PARTS = frozenset(("weights", "kv_cache"))  # of the memory, which may come back one by one


class SleepDesk:
    """Serves the three endpoints, inside the running event loop."""

    def __init__(self, stepper: Stepper, telemetry: EngineTelemetry) -> None:
        self._stepper, self._telemetry = stepper, telemetry
        self._away: set[str] = set()  # parts of the memory that are not back yet
        self._pauses = 0  # a pause that is over lets nobody fall asleep

    @staticmethod
    def knows(method: str, path: str) -> bool:
        return (method, path) in (SLEEP, WAKE_UP, IS_SLEEPING)

    async def serve(self, method: str, path: str, query: bytes) -> tuple[int, bytes]:
        """Returns status and body of the answer."""
        given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
        if (method, path) == IS_SLEEPING:
            return 200, orjson.dumps({"is_sleeping": self._stepper.paused})
        if (method, path) == WAKE_UP:
            return 200, self._wake_up(given.get("tags"))
        level, mode = given.get("level", ["1"])[-1], given.get("mode", ["abort"])[-1]
        for name, value, allowed in (("level", level, LEVELS), ("mode", mode, MODES)):
            if value not in allowed:
                message = f"{name} is {value[:32]!r}: give one of {', '.join(allowed)}"
                return 422, orjson.dumps({"detail": [{"loc": ["query", name], "msg": message}]})
        await self._sleep(int(level), mode)
        return 200, orjson.dumps({"status": "sleeping", "level": int(level)})

    async def _sleep(self, level: int, mode: str) -> None:
        self._telemetry.falling_asleep += 1
        self._pauses += 1
        pause = self._pauses
        try:
            self._stepper.pause(running=mode == "wait")
            if mode == "abort":
                self._stepper.give_up_all()
            await self._stepper.idle()
            if pause != self._pauses or not self._stepper.paused:
                return  # woken before it slept
            if level:
                self._stepper.drop_cache()
                self._away = set(PARTS)
            self._telemetry.sleep_level = level
        finally:
            self._telemetry.falling_asleep -= 1

    def _wake_up(self, tags: list[str] | None) -> bytes:
        self._away = set() if tags is None else self._away.difference(tags)
        if not self._away:
            self._pauses += 1
            self._telemetry.sleep_level = None
            self._stepper.resume()
        return orjson.dumps({"status": "sleeping" if self._away else "awake", "tags": tags})
