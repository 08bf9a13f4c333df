"""Compares topologies on a live mesh: each is pinned in turn and gets the same trace at the same rate."""

import asyncio
import re
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.mesh.client import bus_of
from hmas.mesh.compare.commands import Comparison, report_problems, write
from hmas.mesh.compare.runs import Replay
from hmas.mesh.compare.table import comparison_table, scores_json
from hmas.mesh.state import MeshState
from hmas.operator.pin import set_pin

IN_FORCE_S = 30.0  # it takes about a second if nothing is wrong
POLL_S = 0.1


class NotInForce(TimeoutError):
    """A worker did not adopt the pinned topology in time."""


async def ranked(
    comparison: Comparison, topologies: Sequence[TopologyName], rate_rps: float, seeds: Sequence[int],
    json_path: Path | None,
) -> bool:  # fmt: skip
    """Replays directly at the engines, then through the mesh pinned to each topology, and prints one table.

    Returns whether all runs are valid. Raises NotInForce.
    """
    runs: dict[str, list[Replay]] = {"direct": [await comparison.direct(rate_rps, seed) for seed in seeds]}
    for topology in topologies:
        await pinned(comparison.state, topology)
        runs[str(topology)] = [await comparison.mesh(rate_rps, seed) for seed in seeds]
    title = f"{comparison.workload.name}, {rate_rps:.3g} req/s for {comparison.window_s:g} s"
    comparison.console.print(comparison_table(title, runs))
    report_problems(comparison.console, runs)
    if json_path is not None:
        page: dict[str, Any] = {name: scores_json(of) for name, of in runs.items()}
        write(json_path, {"rate_rps": rate_rps, "seeds": list(seeds), "topologies": page})
    return not any(run.reasons for of in runs.values() for run in of)


async def pinned(state: MeshState, topology: TopologyName) -> None:
    """Pins a topology and waits until every worker of the mesh reports it as active. Raises NotInForce."""
    await set_pin(bus_of(state), state.pool, topology)
    workers = [url for name, url in state.ops_urls.items() if name.startswith("worker")]
    requests = [state.ops_request(f"{url}/metrics") for url in workers]
    try:
        async with asyncio.timeout(IN_FORCE_S):
            while True:
                if {await asyncio.to_thread(_topology, request) for request in requests} == {topology.value}:
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise NotInForce(
            f"not every worker adopted the topology {topology} within {IN_FORCE_S:g} s: look for errors in the logs of "
            "workers and meta controller"
        ) from None


def _topology(metrics: urllib.request.Request) -> str:
    """Returns the active topology according to a worker's metrics; "" if they name none."""
    with urllib.request.urlopen(metrics, timeout=5) as reply:
        text = reply.read().decode()
    found = re.search(r'^hmas_worker_topology\{topology="(\w+)"\} 1(\.0)?$', text, re.MULTILINE)
    return found[1] if found else ""
