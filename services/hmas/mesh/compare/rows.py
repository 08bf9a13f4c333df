"""The requests of a comparison as a CSV file, one row each: what its figures and its picture are made from."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO

from hmas.laws.scoring import Settlement, is_ok
from hmas.mesh.compare.runs import Replay

HEADER = (
    "side", "seed", "request", "offered_s", "task", "prompt_tokens", "output_tokens", "slo_ttft_s", "slo_tpot_s",
    "ttft_s", "tpot_s", "outcome", "on_time",
)  # fmt: skip


def rows_csv(runs: Mapping[str, Sequence[Replay]], seeds: Sequence[int]) -> str:
    """Returns the requests of all runs, those of a side in the order of `seeds`. Times are in s; a latency is empty if
    the request never got that far."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for side, replays in runs.items():
        for seed, run in zip(seeds, replays, strict=True):
            writer.writerows([side, seed, number, *_row(s)] for number, s in enumerate(run.settlements))
    return text.getvalue()


def _row(s: Settlement) -> tuple[object, ...]:
    times = (s.slo.ttft_s, s.slo.tpot_s, s.ttft_s, s.tpot_s)
    seen = ("" if t is None else f"{t:.4g}" for t in times)
    return f"{s.offered_s:.3f}", s.task, s.prompt_tokens, s.output_tokens, *seen, s.outcome, int(is_ok(s))
