"""Arrivals drawn from client rates."""

from pathlib import Path

import numpy as np
import pytest

from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import TraceError
from hmas_loadgen.traces.servegen import read

HEADER = "client,window_start_s,rate_rps,cv,iat_dist,dist_p1,dist_p2\n"
RATES = HEADER + "a,0,2.0,1.0,Gamma,1.0,0.5\na,600,6.0,2.0,Gamma,0.25,0.66\nb,600,4.0,1.5,Weibull,0.7,0.2\n"
LENGTHS = "kind,tokens,prob\ninput,100,0.75\ninput,200,0.25\noutput,10.0,1.0\n"


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    (tmp_path / "m_length_hist.csv").write_text(LENGTHS)
    path = tmp_path / "m_client_rates.csv"
    path.write_text(RATES)
    return path


def test_rates_and_burstiness_come_out(rates: Path) -> None:
    trace = read(rates).generate(600.0, 600.0, None, seed=3)
    by_client = {name: [r.arrival_s for r in trace.rows if r.tenant == name] for name in ("client-a", "client-b")}
    assert len(by_client["client-a"]) == pytest.approx(3600, rel=0.15)
    assert len(by_client["client-b"]) == pytest.approx(2400, rel=0.15)
    gaps = np.diff(by_client["client-a"])
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.15)
    assert trace.duration_s == 600.0
    assert 0 <= trace.rows[0].arrival_s <= trace.rows[-1].arrival_s < 600.0


def test_a_target_rate_scales_all_clients_alike(rates: Path) -> None:
    trace = read_trace(rates, start_s=600.0, duration_s=400.0, rate_rps=5.0, seed=1)
    assert len(trace.rows) == pytest.approx(2000, rel=0.15)
    share = sum(row.tenant == "client-a" for row in trace.rows) / len(trace.rows)
    assert share == pytest.approx(0.6, abs=0.08)
    assert {row.input_tokens for row in trace.rows} == {100, 200}
    assert {row.output_tokens for row in trace.rows} == {10}


def test_without_a_start_the_busiest_window_is_taken(rates: Path) -> None:
    assert "from 600 s for 600 s" in read_trace(rates).note


def test_same_seed_same_trace(rates: Path) -> None:
    assert read_trace(rates, seed=5) == read_trace(rates, seed=5)
    assert read_trace(rates, seed=5) != read_trace(rates, seed=6)


def test_errors_say_what_to_do(rates: Path) -> None:
    with pytest.raises(TraceError, match=r"no client is active in \[9000, 9600\) s\. Choose another --start"):
        read(rates).generate(9000.0, 600.0, None, 0)
    rates.write_text(HEADER + "a,0,2.0,1.0,Pareto,1.0,0.5\n")
    with pytest.raises(TraceError, match="line 2: field 'iat_dist' must be Gamma or Weibull, not 'Pareto'"):
        read(rates)
    (rates.parent / "m_length_hist.csv").unlink()
    with pytest.raises(TraceError, match="its length histogram is missing"):
        read(rates)
