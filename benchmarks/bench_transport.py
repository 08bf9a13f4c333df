"""The stream between a gateway and a worker: frames over a Unix socket, and over TCP as ratios to it. The two ends are
two processes; CPU is the sum of both."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import uvloop

from hmas.contracts.execution import Ended, FirstToken, Grant, Load, Progress, Started, Submit, Synced, Timeline
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request, Slo
from hmas.runtime.frames import FrameConnection, FrameListener, connect
from hmas.wire.execution import add, deliver
from hmas.wire.v1 import execution_pb2 as pb

ROUND_TRIPS, REQUESTS, OUTSTANDING, ROUNDS = 3000, 6000, 64, 7
MODULE = "benchmarks.bench_transport"
SILENCE_S = 60.0
LOCAL, REMOTE = "Unix socket", "TCP"
ONE_CPU, ONE_LATENCY = "CPU per Submit and Grant", "latency of Submit and Grant"
MANY_CPU, MANY_RATE = f"CPU per request, {OUTSTANDING} at a time", f"requests of 6 messages, {OUTSTANDING} at a time"
Outgoing = Callable[[], Any]

_REQUEST = Request(
    id="req-0123456789abcdef", model="qwen3-32b", tenant="team-a", flow="flow-17", prompt_tokens=512, max_tokens=256,
    stream=True, slo=Slo(1.0, 0.05), slo_stated=True, priority=0, weight=1.0, importance=0.75, arrival_s=1.0,
)  # fmt: skip
_ID = _REQUEST.id
SUBMIT = Submit(request=_REQUEST, attempt=1)
GRANT = Grant(
    request_id=_ID, attempt=1, grant=7, engine="vllm-0", urgency=0.5, pace_s=0.05, priority=3,
    timeline=Timeline(engine="vllm-0", topology="fcfs", queued_s=0.1, queue_length=3, overtaken=0, switches=0,
                      upper_output_tokens=300.0, relegated=False),
)  # fmt: skip
AFTER_GRANT = (
    Started(_ID, 7), FirstToken(_ID, 7), Progress((_ID,), (12,)),
    Ended(request_id=_ID, grant=7, outcome=Outcome.FINISHED, status=200, output_tokens=200, prompt_tokens=512,
          cached_tokens=0),
)  # fmt: skip


def rows() -> list[dict[str, object]]:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "rpc")
        with subprocess.Popen([sys.executable, "-m", MODULE, path], stdout=subprocess.PIPE, text=True) as worker:
            try:
                assert worker.stdout is not None
                found = uvloop.run(_measured(path, int(worker.stdout.readline())))
            finally:
                worker.terminate()
    rows: list[dict[str, object]] = [
        {"name": f"stream, {LOCAL}: {what}", "value": median(v[LOCAL] for v in values), "unit": unit}
        for (what, unit), values in found.items()
    ]
    for (what, _), values in found.items():
        ratio = median(v[REMOTE] / v[LOCAL] for v in values)
        rows.append({"name": f"stream, {REMOTE}: {what}", "value": ratio, "unit": f"x {LOCAL}"})
    return rows


async def _measured(path: str, port: int) -> dict[tuple[str, str], list[dict[str, float]]]:
    """Returns for each measure its values by way, one set a round; the ways take turns within each."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    async with AsyncExitStack() as stack:
        ends = {way: await stack.enter_async_context(_end(way, path, port)) for way in (LOCAL, REMOTE)}
        for n in range(1 + ROUNDS):
            by_way = {way: await _round_trips(end) | await _requests(end) for way, end in ends.items()}
            if n > 0:  # the first round warms up
                for measure in by_way[LOCAL]:
                    found.setdefault(measure, []).append({way: values[measure] for way, values in by_way.items()})
    return found


# --- what is measured ---------------------------------------------------------------------------------------------


class TransportEnd:
    """The gateway's end of one stream: `heard` is called with what the worker sends."""

    def __init__(self) -> None:
        self.outgoing: Outgoing
        self.heard: Callable[[Any], None]

    def send(self, message: Any) -> None:
        add(self.outgoing(), time.monotonic(), message)

    def deliver(self, frame: pb.WorkerFrame) -> None:
        deliver(frame, time.monotonic(), "", lambda _, message: self.heard(message))

    async def cpu_s(self) -> float:
        """Returns the CPU time of both processes, once the worker has taken all that was sent."""
        answer: asyncio.Future[Load] = asyncio.get_running_loop().create_future()
        self.heard = answer.set_result
        self.send(Synced())
        return (await answer).backlog_s + time.process_time()


async def _round_trips(end: TransportEnd) -> dict[tuple[str, str], float]:
    """Submit and Grant, one request at a time."""
    done, times = asyncio.Event(), [0.0]
    before_s = await end.cpu_s()

    def again(message: Any = None) -> None:
        now_s = time.perf_counter()
        times[-1] = now_s - times[-1]
        if len(times) > ROUND_TRIPS:
            done.set()
            return
        times.append(now_s)
        end.send(SUBMIT)

    end.heard = again
    again()
    await done.wait()
    spent_s = await end.cpu_s() - before_s
    return {
        (ONE_CPU, "us"): spent_s / ROUND_TRIPS * 1e6,
        (ONE_LATENCY, "us"): median(times[1:]) * 1e6,
    }


async def _requests(end: TransportEnd) -> dict[tuple[str, str], float]:
    """Six messages per request, each in a turn of its own; `OUTSTANDING` requests at a time. What arrives together is
    answered together, so that the requests soon go in step and nearly all frames are full."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    begun = ended = 0
    before_s, started_s = await end.cpu_s(), time.perf_counter()

    def begin() -> None:
        nonlocal begun
        if begun < REQUESTS:
            begun += 1
            end.send(SUBMIT)

    def go_on(step: int) -> None:
        nonlocal ended
        end.send(AFTER_GRANT[step])
        if step + 1 < len(AFTER_GRANT):
            loop.call_soon(go_on, step + 1)
            return
        ended += 1
        begin()
        if ended == REQUESTS:
            done.set()

    end.heard = lambda _: go_on(0)
    for _ in range(OUTSTANDING):
        begin()
    await done.wait()
    spent_s = await end.cpu_s() - before_s
    return {
        (MANY_CPU, "us"): spent_s / REQUESTS * 1e6,
        (MANY_RATE, "1/s"): REQUESTS / (time.perf_counter() - started_s),
    }


# --- the ways -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _end(way: str, path: str, port: int) -> AsyncIterator[TransportEnd]:
    """Connects to the worker and yields the gateway's end."""
    end = TransportEnd()

    class Owner:
        def on_open(self, connection: FrameConnection) -> None: ...

        def on_frame(self, connection: FrameConnection, frame: Any) -> None:
            end.deliver(frame)

        def on_closed(self, connection: FrameConnection, reason: str) -> None: ...

    # The worker listens locally under an address of its own, so that the other one is reached over TCP.
    address = path if way == LOCAL else f"127.0.0.1:{port}"
    made = await connect(address, lambda: FrameConnection(pb.WorkerFrame, pb.GatewayFrame, Owner(), SILENCE_S))
    assert made.local is (way == LOCAL)
    end.outgoing = made.outgoing
    yield end
    made.close("the end")


def _answer(outgoing: Outgoing, message: Any) -> None:
    """The worker's part: it grants every request, and tells its CPU time after a snapshot."""
    if isinstance(message, Submit):
        add(outgoing(), time.monotonic(), GRANT)
    elif isinstance(message, Synced):
        spent = Load(queued=0, queued_tokens=0, running=0, backlog_s=time.process_time(), draining=False)
        add(outgoing(), time.monotonic(), spent)


class Answering:
    def on_open(self, connection: FrameConnection) -> None: ...

    def on_frame(self, connection: FrameConnection, frame: Any) -> None:
        deliver(frame, time.monotonic(), "", lambda _, message: _answer(connection.outgoing, message))

    def on_closed(self, connection: FrameConnection, reason: str) -> None: ...


async def _worker(path: str) -> None:
    listener = FrameListener(lambda: FrameConnection(pb.GatewayFrame, pb.WorkerFrame, Answering(), SILENCE_S))
    port = await listener.start("127.0.0.1", 0)
    await listener.start_local(path)
    print(port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(_worker(sys.argv[1]))
    else:
        sys.stdout.write(orjson.dumps(rows(), option=orjson.OPT_INDENT_2).decode())
