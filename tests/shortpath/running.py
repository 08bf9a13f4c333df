"""What engines do with the runs that gateways send them."""

from typing import TYPE_CHECKING, Any

from hmas.contracts.outcome import Outcome
from tests.shortpath.parts import Engine, Run

if TYPE_CHECKING:
    from tests.shortpath.world import World


class Running:
    """All runs at engines."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def turn(self) -> None:
        due = [c for c in self._world.commands if c[0] <= self._world.tick]
        if due:
            self._world.commands = [c for c in self._world.commands if c[0] > self._world.tick]
            for _, starts, run in due:
                if not starts:
                    self.leave(run)
            for _, starts, run in due:
                if starts and run.active and run.asked.gateway.alive:
                    self.accept(run)
        for engine in self._world.engines.values():
            if engine.hung_until > self._world.tick or not engine.runs:
                continue
            for run in list(engine.runs.values())[: engine.cap]:
                self.advance(engine, run)

    def leave(self, run: Run) -> None:
        if run.running:
            run.running = False
            for engine in run.places:
                del engine.runs[run.asked.id]

    def accept(self, run: Run) -> None:
        for other in self._world.engines.values():
            if run.asked.id in other.runs:
                raise self._world.violation(
                    "two engines", f"{run.asked.id} runs at {other.name} and at {run.place.name}"
                )
        ends = [end for engine in run.places if (end := self.refused(run, engine)) is not None]
        if ends:
            self.answer(run, "end", ends[0])
            return
        for engine in run.places:
            engine.runs[run.asked.id] = run
        run.running = True

    def refused(self, run: Run, engine: Engine) -> dict[str, Any] | None:
        """How a run ends that an engine does not take; None: it takes it."""
        end, asked = _failure(run, engine), run.asked
        if not engine.alive or engine.unreached.get(asked.gateway.name, 0) > self._world.tick:
            end["unreached"] = True
        elif engine.busy_until > self._world.tick:
            end |= {"status": 503, "busy": True}
        elif engine.refusing:
            engine.refusing -= 1
            end = {"outcome": Outcome.ENGINE_REFUSED, "message": "bad", "status": 400}
        elif engine.info.needs_partner and run.prefill is None:
            raise self._world.violation("partners", f"{asked.id} is to run at {engine.name} alone")
        else:
            return None
        return end

    def answer(self, run: Run, what: str, end: dict[str, Any]) -> None:
        gateway = run.asked.gateway
        gateway.post(lambda: gateway.on_engine(run, what, end))

    def advance(self, engine: Engine, run: Run) -> None:
        if engine is not run.place:
            return  # it waits there for its prompt
        run.ticks += 1
        if run.ticks < run.asked.first:
            return
        if run.ticks == run.asked.first:
            if engine.failing:
                engine.failing -= 1
                self.fail(run, 500)
                return
            if engine is not run.engine:
                if run.at_once:
                    del engine.runs[run.asked.id]
                    run.ticks = 0
                else:
                    self.leave(run)
                run.computed = True
                self.answer(run, "computed", {})
                return
            if run.asked.stream:
                self.answer(run, "first", {})
        run.produced += 1
        if run.produced == 2 and engine.dropping:
            engine.dropping -= 1
            self.fail(run, 200)
        elif run.produced >= run.asked.tokens:
            self.leave(run)
            self.answer(run, "end", {"outcome": Outcome.FINISHED, "status": 200, "output_tokens": run.produced})

    def fail(self, run: Run, status: int, engine: Engine | None = None) -> None:
        failed = _failure(run, engine or run.place)
        self.leave(run)
        self.answer(run, "end", failed | {"status": status})


def _failure(run: Run, engine: Engine) -> dict[str, Any]:
    return {"outcome": Outcome.ENGINE_ERROR, "message": "failed", "retryable": True,
            "at_prefill": engine is not run.engine}  # fmt: skip
