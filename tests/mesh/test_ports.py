"""Ports that processes of a mesh will bind a moment later."""

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from hmas.mesh import ports
from hmas.mesh.options import MeshOptions
from hmas.mesh.ports import PortRefused, check_wanted, free_port, is_free
from hmas.mesh.processes import make_plan, wanted_ports
from hmas.mesh.up import serve


def test_a_port_that_is_taken_is_not_given_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


def on(option: str, port: int, options: MeshOptions) -> MeshOptions:
    return replace(options, port=port) if option == "--port" else replace(options, nats_port=port)


@pytest.mark.parametrize("option", ["--port", "--nats-port"])
def test_a_port_that_is_asked_for_and_taken_is_refused_by_name(option: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = on(option, port, MeshOptions(port=0, data_dir=tmp_path))
        told = rf"port {port} is taken: .*{option} \(0: any free port\)"
        with pytest.raises(PortRefused, match=told):
            make_plan(options)
        with pytest.raises(PortRefused, match=told):  # before it asks the engines, which may be down for long
            asyncio.run(serve(replace(options, engine_urls=("http://127.0.0.1:1",)), Console()))
        assert make_plan(on(option, 0, options)).gateway_url
    assert str(port) in (make_plan(options).gateway_url + make_plan(options).nats_url)


def test_a_port_counts_as_taken_on_its_own_address_alone() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert is_free(port)
        check_wanted(port, "localhost", "--port")
        for host in ("127.0.0.2", "0.0.0.0"):
            with pytest.raises(PortRefused, match=f"listens there on {host}"):
                check_wanted(port, host, "--port")
    with pytest.raises(PortRefused, match=r"cannot be opened on 192\.0\.2\.1: "):
        check_wanted(port, "192.0.2.1", "--port")
    with pytest.raises(PortRefused, match="wanted twice, by --port and --nats-port"):
        wanted_ports(MeshOptions(port=port, nats_port=port))


def test_no_draw_takes_a_port_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        wanted = probe.getsockname()[1]
    monkeypatch.setattr(ports, "_PORTS", [wanted])
    plan = make_plan(MeshOptions(port=wanted, data_dir=tmp_path))
    assert plan.gateway_url.endswith(f":{wanted}")
    assert not any(str(wanted) in url for url in (plan.nats_url, *plan.ops_urls.values(), *plan.engine_urls))


def test_no_outgoing_connection_takes_a_free_port() -> None:
    """A port that the system itself picks would be given to the next connection of any process."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    assert all(free_port() < lowest for _ in range(50))


def test_a_port_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by this process nor by another, although nothing has bound it yet; a port that is wished for is given."""
    first = free_port()
    few = range(first, first + 10)
    monkeypatch.setattr(ports, "_PORTS", few)
    drawn = [port for _ in range(12) if (port := free_port()) in few]
    assert len(drawn) == len(set(drawn)) > 5
    other = f"from hmas.mesh import ports; ports._PORTS = {drawn}; print(ports.free_port())"
    printed = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True).stdout
    assert int(printed) not in drawn
    assert free_port(drawn[0]) == drawn[0]


def test_the_last_ones_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_reserved", deque())
    monkeypatch.setattr(ports, "_MOST_RESERVED", 2)
    drawn = [free_port() for _ in range(4)]
    bound = [is_bound(port) for port in drawn]
    for held in ports._reserved:
        os.close(held)
    assert bound == [False, False, True, True]


def is_bound(port: int) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
