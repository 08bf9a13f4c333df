"""The mesh with docker-compose.pd.yml: two engines compute prompts, a third one writes the answers."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.compose.conftest import running
from tests.compose.docker import Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def split_stack(image: str) -> Iterator[Stack]:
    with running("docker-compose.pd.yml") as stack:
        yield stack


def test_each_request_is_answered_by_two_engines(split_stack: Stack) -> None:
    pairs = set()
    for number in range(4):
        answer = httpx.post(
            f"{split_stack.url}/v1/chat/completions", timeout=60, headers={"x-request-id": f"pd-{number}"},
            json={"model": "emulated", "messages": [{"role": "user", "content": f"{number} hello " * 60}],
                  "max_tokens": 20, "stream": bool(number % 2)},
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        [run] = json.loads(split_stack.compose("run", "--rm", "-T", "hmas", "why", f"pd-{number}", "--json"))["runs"]
        pairs.add((run["prefill_engine"], run["engine"]))
    assert pairs <= {("engine-1", "engine-3"), ("engine-2", "engine-3")}
