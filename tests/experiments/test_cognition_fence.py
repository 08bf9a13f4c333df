import random

import pytest

from experiments.cognition.fence import PHASES, REQUESTS, WARM_UP, bucket_of, drifting
from hmas.perception.backends.model import ModelBackend
from hmas_lab.perception.training.corpus import CorpusAnswer, Prompt


@pytest.mark.long
def test_the_fence_holds_its_level_on_a_drifting_stream() -> None:
    """Sources whose answers are four times as long as one another's: a fixed quantile would miss by far."""
    rng = random.Random(0)
    texts = [f"Tell me about subject {n} of {n % 7}." for n in range(120)]
    prompts = [
        Prompt(
            group=str(n),
            text=text,
            tokens=8 + (n % 3) * 200,
            task=None,
            source=f"s{n % PHASES}",
            answers=tuple(
                CorpusAnswer("m", max(1, int(rng.lognormvariate(4 + (n % PHASES) / 2, 0.5)))) for _ in range(3)
            ),
        )
        for n, text in enumerate(texts)
    ]
    figures = drifting(ModelBackend(), prompts)
    assert figures.requests == REQUESTS - WARM_UP
    assert abs(figures.missed - figures.epsilon) < 0.02
    assert sum(b.requests for b in figures.buckets) == figures.requests
    assert [b.prompt_upto for b in figures.buckets] == [128, 512]
    assert all(b.low < figures.epsilon < b.high for b in figures.buckets)


def test_an_interval_is_that_of_clopper_and_pearson() -> None:
    bucket = bucket_of(128, 100, 5)
    assert bucket.missed == 0.05
    assert (bucket.low, bucket.high) == pytest.approx((0.01643, 0.11283), abs=1e-5)
