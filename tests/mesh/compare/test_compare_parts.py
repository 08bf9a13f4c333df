"""What `hmas compare` and the benchmark on real engines share."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from hmas.mesh.compare.engines import read_lag, reset_lag
from hmas.mesh.compare.workload import ReplayWorkload, SloFactors


class RealEngine(BaseHTTPRequestHandler):
    """A server that has never heard of an emulated clock."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_DELETE = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), RealEngine)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_real_engines_have_no_lag(url: str) -> None:
    reset_lag((url,))
    assert read_lag((url,)) is None


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
