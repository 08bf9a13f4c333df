"""The estimate of prompt tokens follows what the engines count."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.gateway.token_scale import LEAST, MOST_ADDED, MOST_KEYS, MOST_RATIO, TokenScale
from tests.gateway.gateway_harness import CHAT, PATH, client, gateway
from tests.worker.adapters.scripted_engine import Peer


def test_the_ratio_is_believed_after_some_prompts_and_follows() -> None:
    scale = TokenScale()
    for _ in range(LEAST - 1):
        scale.learn("m", "p", 100, 80)
    assert scale.scaled("m", "p", 100) == 100
    scale.learn("m", "p", 100, 80)
    assert scale.scaled("m", "p", 100) == 80
    assert scale.scaled("m", "p", 1) == 1
    assert scale.scaled("m", "other", 100) == scale.scaled("other", "p", 100) == 100
    for _ in range(900):
        scale.learn("m", "p", 1000, 1300)
    assert scale.scaled("m", "p", 100) == pytest.approx(130, abs=1)


@pytest.mark.parametrize(("added", "ratio"), [(0, 1.3), (25, 0.9), (70, 1.0)])
def test_what_a_template_adds_is_told_from_what_the_tokenizer_does(added: int, ratio: float) -> None:
    """A ratio alone would count long prompts by short ones."""
    scale = TokenScale()
    for number in range(200):
        estimate = (6, 20, 70, 300, 2000)[number % 5]
        scale.learn("m", "p", estimate, round(added + ratio * estimate))
    for estimate in (10, 100, 1000, 8000):
        assert scale.scaled("m", "p", estimate) == pytest.approx(added + ratio * estimate, rel=0.06)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 2**31)), min_size=LEAST, max_size=60))
def test_no_engine_leads_it_astray(counts: list[tuple[int, int]]) -> None:
    scale = TokenScale()
    for estimate, counted in counts:
        scale.learn("m", "p", estimate, counted)
    assert 100 / MOST_RATIO - 1 <= scale.scaled("m", "p", 100) <= 100 * MOST_RATIO + MOST_ADDED


def test_pools_are_bounded() -> None:
    scale = TokenScale()
    for number in range(MOST_KEYS + 5):
        scale.learn(f"p{number}", "p", 100, 50)
    assert len(scale._lines) == MOST_KEYS


async def test_a_gateway_learns_it_from_the_answers() -> None:
    chat: dict[str, Any] = {**CHAT, "messages": [{"role": "user", "content": "abc " * 96}]}  # estimated as 100

    async def counted(peer: Peer) -> None:
        usage = {"prompt_tokens": 60, "completion_tokens": 1}
        await peer.reply(orjson.dumps({"choices": [{"finish_reason": "stop"}], "usage": usage}))

    async with gateway(behave=counted) as g, client(g) as c:
        for _ in range(LEAST + 1):
            assert (await c.post(PATH, json=chat)).status_code == 200
        told = [submit.request.prompt_tokens for _, submit in g.workers.submits]
    assert told == [100] * LEAST + [60]
