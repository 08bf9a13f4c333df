"""What `hmas compare` and the benchmark on real engines share."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from rich.console import Console

from hmas.contracts.request import TaskType
from hmas.mesh.compare.commands import Comparison
from hmas.mesh.compare.engines import read_lag, reset_lag
from hmas.mesh.compare.workload import ReplayWorkload, SloFactors
from hmas.mesh.state import MeshState
from hmas.perception.agent.backend import PromptView
from hmas.perception.agent.rules import RulesBackend

SENT: list[str] = []


class RealEngine(BaseHTTPRequestHandler):
    """A server that has never heard of an emulated clock."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_DELETE = do_GET

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        SENT.append(body["messages"][0]["content"])
        self.send_error(503)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    SENT.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), RealEngine)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_real_engines_have_no_lag(url: str) -> None:
    reset_lag((url,))
    assert read_lag((url,)) is None


async def test_both_sides_are_sent_the_same_prompts_in_which_perception_finds_types(url: str) -> None:
    """`make run`, `make run-compare`, `hmas compare` and `make bench-vllm` all send by way of `Comparison`."""
    state = MeshState(
        gateway_url=url, nats_url="", nats_password_file="", ops_token_file="", pool="m", engine_urls=(url,),
        ops_urls={}, pids={},
    )  # fmt: skip
    comparison = Comparison(state, ReplayWorkload(None, 4096), Console(quiet=True), window_s=1.0)
    await comparison.direct(60.0, seed=1)
    direct = sorted(SENT)
    SENT.clear()
    await comparison.mesh(60.0, seed=1)
    assert sorted(SENT) == direct
    assert len(direct) == 60
    views = [PromptView(text=t, prompt_tokens=len(t) // 4, model="", tenant="", max_tokens=None) for t in direct]
    typed = [e for e in RulesBackend().estimate(views) if e is not None and e.task is not TaskType.UNKNOWN]
    assert len(typed) > 0.4 * len(direct)  # random words have no type
    assert len({estimate.task for estimate in typed}) > 5


def test_slos_follow_the_pace_of_the_engines() -> None:
    plain, slow = (
        ReplayWorkload(None, 4096, by).at(5.0, 20.0, seed=3).rows for by in (SloFactors(), SloFactors(3.0, 2.0))
    )
    assert len(plain) == len(slow) > 10
    for one, other in zip(plain, slow, strict=True):
        assert one.slo is not None
        assert other.slo is not None
        assert (other.slo.ttft_s, other.slo.tpot_s) == (3 * one.slo.ttft_s, 2 * one.slo.tpot_s)
        assert (one.arrival_s, one.input_tokens, one.task) == (other.arrival_s, other.input_tokens, other.task)


def test_the_rate_is_that_of_the_requests_that_fit() -> None:
    for longest in (3000, 16384):
        rows = ReplayWorkload(None, longest).at(20.0, 60.0, seed=3).rows
        assert len(rows) == 20 * 60
        assert max(r.input_tokens + r.output_tokens for r in rows) < longest
    with pytest.raises(ValueError, match="fits the engines' context"):
        ReplayWorkload(None, 520).at(1.0, 20.0, seed=3)


def test_a_higher_rate_adds_requests_to_a_lower_ones() -> None:
    few, many = (ReplayWorkload(None, 4096).at(rate, 40.0, seed=3).rows for rate in (2.5, 3.5))
    assert (len(few), len(many)) == (100, 140)
    told = {(row.arrival_s, row.input_tokens, row.output_tokens) for row in many}
    assert all((row.arrival_s, row.input_tokens, row.output_tokens) in told for row in few)
