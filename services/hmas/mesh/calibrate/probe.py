"""Measures the points of a plan at an endpoint, one after the other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hmas.mesh.calibrate.client import Endpoint
from hmas.mesh.calibrate.journal import MeasurementJournal
from hmas.mesh.calibrate.measurement import Measurement, StreamTimes, measured
from hmas.mesh.calibrate.points import PlanPoint

PROBE_WORDS = 64
WARM_UP = 3  # requests sent before anything is measured
MARGIN = 0.95  # a prompt's length is only estimated from its words: it must stay below the model's limit


@dataclass(frozen=True, slots=True)
class WordRate:
    """The length of a prompt in tokens: `fixed` plus `per_word` for each word."""

    fixed: float
    per_word: float

    def words(self, tokens: int) -> int:
        return max(1, round((tokens - self.fixed) / self.per_word))


async def word_rate(endpoint: Endpoint) -> WordRate:
    """Determines the word rate by two short requests; they and a third also warm the endpoint up."""
    short = await endpoint.stream(PROBE_WORDS, 4, "probe-1")
    long = await endpoint.stream(2 * PROBE_WORDS, 4, "probe-2")
    await endpoint.stream(PROBE_WORDS, 16, "probe-3")
    per_word = max(0.1, (long.prompt_tokens - short.prompt_tokens) / PROBE_WORDS)
    return WordRate(max(0.0, short.prompt_tokens - per_word * PROBE_WORDS), per_word)


async def measure(
    endpoint: Endpoint,
    points: Sequence[PlanPoint],
    journal: MeasurementJournal,
    on_point: Callable[[Measurement], None],
) -> list[Measurement]:
    """Returns the measurements of all points; points in the journal are not measured again.

    `on_point` is called with each measurement. Raises EndpointFailed.
    """
    rate = None
    for point in points:
        if point.id not in journal.done:
            rate = rate or await word_rate(endpoint)
            journal.add(await _one(endpoint, point, rate))
        on_point(journal.done[point.id])
    return [journal.done[point.id] for point in points]


async def _one(endpoint: Endpoint, point: PlanPoint, rate: WordRate) -> Measurement:
    words = rate.words(int(point.prompt_tokens * MARGIN))
    stop = asyncio.Event()
    watching = asyncio.create_task(endpoint.watch(stop))
    try:
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[StreamTimes]] = [
                group.create_task(endpoint.stream(words, point.output_tokens, f"{point.id}-{number}"))
                for number in range(point.batch)
            ]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        stop.set()
        gauges = await watching
    return measured(point, [task.result() for task in tasks], gauges)
