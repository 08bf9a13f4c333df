"""Draws prompt and answer lengths in tokens for synthetic workloads: those of the Azure trace (H-MAS §2), or by task
type."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas_loadgen.slo import TASK_LENGTHS

Tokens = NDArray[np.int64]

# Input tokens (H-MAS §2): 0-512 hold 20.3-26.2 % of the requests, 2048-4096 hold 22.3-24.3 %, more than 4096 up to
# 9.2 %; P95 is 5894. The rest of the requests lie in 512-2048. `LONGEST_INPUT` puts P95 at 5894 for a log-uniform tail.
INPUT_EDGES = (32, 512, 2048, 4096)
SHORT_SHARE = 0.2325
LONG_SHARES = (0.233, 0.077)
LONGEST_INPUT = 11_590
LONG_SHARE_SWING = 0.1565  # from lowest to highest share of requests above 2048 tokens, within `SWING_PERIOD_S`
SWING_PERIOD_S = 300.0
# Output tokens: the quantiles of Azure's published 2023 conversation trace, which H-MAS does not print.
OUTPUT_QUANTILES = ((0.0, 7), (0.5, 115), (0.9, 421), (0.99, 598), (1.0, 1000))
MAX_TASK_INPUT = 16_384
MAX_TASK_OUTPUT = 4096


def azure_like_inputs(arrivals_s: NDArray[np.float64], rng: np.random.Generator) -> Tokens:
    """Draws a prompt length for each arrival. The share of long prompts rises and falls over time, as H-MAS §2 reports
    of the Azure trace."""
    swing = LONG_SHARE_SWING / 2 * np.sin(2 * np.pi * arrivals_s / SWING_PERIOD_S)
    long_share = sum(LONG_SHARES) + swing
    draw = rng.random(arrivals_s.size)
    long = draw < long_share
    very_long = draw < long_share * LONG_SHARES[1] / sum(LONG_SHARES)
    short = draw > 1 - SHORT_SHARE
    low = np.select([very_long, long, short], [INPUT_EDGES[3], INPUT_EDGES[2], INPUT_EDGES[0]], INPUT_EDGES[1])
    high = np.select([very_long, long, short], [LONGEST_INPUT, INPUT_EDGES[3], INPUT_EDGES[1]], INPUT_EDGES[2])
    tokens: Tokens = np.rint(low * (high / low) ** rng.random(arrivals_s.size)).astype(np.int64)
    return tokens


def azure_like_outputs(count: int, rng: np.random.Generator) -> Tokens:
    """Draws `count` answer lengths by interpolating `OUTPUT_QUANTILES` logarithmically."""
    levels, tokens = zip(*OUTPUT_QUANTILES, strict=True)
    drawn = np.exp(np.interp(rng.random(count), levels, np.log(tokens)))
    rounded: Tokens = np.maximum(1, np.rint(drawn)).astype(np.int64)
    return rounded


def task_lengths(tasks: Sequence[TaskType], rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Draws a prompt and an answer length for each task type in `tasks` from the log-normal distributions of that
    type."""
    found = [TASK_LENGTHS[task] for task in tasks]
    inputs = _lognormal([x.input_p50 for x in found], [x.input_sigma for x in found], MAX_TASK_INPUT, rng)
    outputs = _lognormal([x.output_p50 for x in found], [x.output_sigma for x in found], MAX_TASK_OUTPUT, rng)
    return inputs, outputs


def _lognormal(p50: Sequence[float], sigma: Sequence[float], most: int, rng: np.random.Generator) -> Tokens:
    drawn = np.array(p50) * np.exp(np.array(sigma) * rng.standard_normal(len(p50)))
    tokens: Tokens = np.clip(np.rint(drawn), 1, most).astype(np.int64)
    return tokens
