"""Reads aiconfigurator's table of measured serving points: closed loops of constant concurrency."""

import csv
import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hmas.engine.fitting import Observation

FILE = "aiconfigurator_silicon.csv.gz"
MAX_TTFT_S = 5.0  # a mean above it: requests queued, so that fewer ran than the table says
LENGTHS_FOR_PAIRS = 3  # distinct prompt lengths; two cannot tell the attention of prefill from its linear part


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoop:
    """`users` requests at a time of `prompt` and `output` tokens each on `gpus` cards: the mean time per output token
    and to the first token in s, and the day they were measured (ISO, "" if not told)."""

    gpus: int
    prompt: int
    output: int
    users: float
    tpot_s: float
    ttft_s: float
    day: str = ""

    @property
    def load(self) -> tuple[int, int, int, float]:
        """What was measured: loops of the same load are repetitions."""
        return self.gpus, self.prompt, self.output, self.users

    @property
    def held_tokens(self) -> float:
        """The tokens of context that all requests hold when they end."""
        return self.users * (self.prompt + self.output)

    def observation(self, *, quadratic: bool) -> Observation:
        """Returns the mean step of the loop.

        While a request decodes its output, each other request of the loop is replaced once, and the prefill of its
        successor falls between the tokens; so TPOT also depends on the cost of prefill. Mean TTFT depends on how the
        loop was started and is not used. Without `quadratic` the attention term of prefill is left out.
        """
        between = (self.users - 1) / self.output
        return Observation(
            "decode",
            self.tpot_s,
            prefill_tokens=between * self.prompt,
            decode_seqs=self.users,
            context_tokens=self.users * (self.prompt + self.output / 2),
            prefill_pairs=between * self.prompt**2 / 2 if quadratic else 0.0,
        )


@dataclass(frozen=True, slots=True)
class SiliconKey:
    """Which measurements of the table belong together, in its own words; `precision` "" is bf16."""

    model: str
    system: str
    backend: str
    precision: str


def closed_loops(directory: Path, keys: Iterable[SiliconKey]) -> dict[SiliconKey, list[MeasuredLoop]]:
    """Returns the loops of the keys, in the table's order. Raises OSError if the table, which may also stand in the
    folder `perf`, is missing, and ValueError that names the line if a figure is no number."""
    places = [directory / FILE, directory / "perf" / FILE]
    path = next((place for place in places if place.exists()), places[0])
    found: dict[SiliconKey, list[MeasuredLoop]] = {key: [] for key in keys}
    for number, row in enumerate(_rows(path), 2):
        try:
            key = SiliconKey(row["model_path"], row["system"], row["backend"], row["precision"])
            if key in found and row["silicon_concurrency"] and row["silicon_tpot_ms"] and _is_one_engine(row):
                found[key].append(_loop(row))
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}: this is not aiconfigurator's table") from None
    return found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _is_one_engine(row: dict[str, str]) -> bool:
    """Whether the row is of one engine whose cards share each layer: prefill is not apart, and neither requests nor
    experts nor layers are spread over the cards."""
    spread = (row["attention_dp_size"], row["moe_ep_size"], row["pp_size"])
    return row["mode"] == "agg" and all(float(size or 1) <= 1 for size in spread)


def _loop(row: dict[str, str]) -> MeasuredLoop:
    return MeasuredLoop(
        gpus=int(float(row["tp_size"])),
        prompt=int(row["isl"]),
        output=int(row["osl"]),
        users=float(row["silicon_concurrency"]),
        tpot_s=float(row["silicon_tpot_ms"]) / 1000,
        ttft_s=float(row["silicon_ttft_ms"] or 0.0) / 1000,
        day=row["measured"],
    )


@dataclass(frozen=True, slots=True)
class Sifted:
    """The loops that a fit may use, and how many were dropped: `queued` because their mean TTFT is too long,
    `outgrown` because their contexts exceed the KV memory, `repeated` because a later one has the same load."""

    loops: tuple[MeasuredLoop, ...]
    queued: int
    outgrown: int
    repeated: int


def sift(loops: Iterable[MeasuredLoop], kv_tokens: dict[int, int], max_ttft_s: float = MAX_TTFT_S) -> Sifted:
    """Drops the loops that a fit must not use. `kv_tokens` is the KV memory by number of cards; a number that is not
    there has none. Of loops of one load the one measured last is kept, the first of several of one day."""
    kept: dict[tuple[int, int, int, float], MeasuredLoop] = {}
    queued = outgrown = repeated = 0
    for loop in loops:
        if loop.ttft_s > max_ttft_s:
            queued += 1
        elif loop.held_tokens > kv_tokens.get(loop.gpus, 0):
            outgrown += 1
        else:
            repeated += loop.load in kept
            if loop.load not in kept or loop.day > kept[loop.load].day:
                kept[loop.load] = loop
    return Sifted(tuple(kept.values()), queued, outgrown, repeated)


def observations_by_gpus(loops: Iterable[MeasuredLoop]) -> dict[int, list[Observation]]:
    """Returns the observations by number of cards, in rising order."""
    chosen = sorted(loops, key=lambda loop: loop.gpus)
    quadratic = len({loop.prompt for loop in chosen}) >= LENGTHS_FOR_PAIRS
    found: dict[int, list[Observation]] = {}
    for loop in chosen:
        found.setdefault(loop.gpus, []).append(loop.observation(quadratic=quadratic))
    return found
