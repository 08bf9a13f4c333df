"""Both ends of the gateway-worker stream over real gRPC and a real Unix socket, through a wire that can be cut."""

import asyncio
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from hmas.contracts.registry import WorkerHeartbeat
from hmas.gateway.streams import StreamConfig, WorkerStreams
from hmas.runtime.framing import FramingConfig
from hmas.runtime.local import FrameStream, LocalListener
from hmas.runtime.rpc import RpcServer
from hmas.wire.v1 import execution_pb2 as pb
from hmas.wire.v1 import execution_pb2_grpc
from hmas.worker.streams import ExecutionServer, GatewaySession, StreamServerConfig

LONG_S = 60.0
NOTICED_S = 30.0  # more than gRPC's keep-alive takes to notice a dead connection that nothing else told it of


class CuttableWire:
    """A TCP relay; `cut` breaks its connections, `refuse` lets no new ones through."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._local: set[FrameStream[pb.GatewayFrame]] = set()
        self.refuse = False
        self.port = 0
        self.local_connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for stream in self._local:
            stream.abort()

    async def locally(self, server: ExecutionServer, stream: FrameStream[pb.GatewayFrame]) -> None:
        """A connection over the Unix socket."""
        if self.refuse:
            return
        self.local_connections += 1
        self._local.add(stream)
        try:
            await server.converse_locally(stream)
        finally:
            self._local.discard(stream)

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ends = {writer, far_writer}
        self._writers |= ends

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
            except ConnectionError:
                pass
            for end in ends:
                end.transport.abort()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        self._writers -= ends


class GatewaySide:
    def __init__(self) -> None:
        self.tokens: dict[str, list[bytes]] = {}
        self.finished: Counter[str] = Counter()
        self.handbacks: list[str] = []
        self.events: list[object] = []
        self.changed = asyncio.Event()

    def on_tokens(self, worker: str, message: pb.Tokens) -> None:
        assert not self.finished[message.request_id]
        self.tokens.setdefault(message.request_id, []).append(message.data)
        self.changed.set()

    def on_finished(self, worker: str, message: pb.Finished) -> None:
        self.finished[message.request_id] += 1
        self.changed.set()

    def on_handback(self, worker: str, message: pb.Handback) -> None:
        self.handbacks.append(message.request_id)
        self.changed.set()

    def on_load(self, worker: str, message: pb.Load) -> None: ...

    def on_connected(self, worker: str, connected: bool) -> None:
        self.events.append(connected)
        self.changed.set()

    def on_vanished(self, worker: str, reason: str) -> None:
        self.events.append(reason)
        self.changed.set()

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(NOTICED_S):
            while not condition():  # type: ignore[operator]
                self.changed.clear()
                await self.changed.wait()


class WorkerSide:
    """Keeps submits; answers them when told."""

    def __init__(self) -> None:
        self.submits: dict[str, tuple[GatewaySession, pb.Submit]] = {}
        self.order: list[str] = []
        self.other: list[tuple[str, str]] = []
        self.lost: list[str] = []
        self.changed = asyncio.Event()

    def on_submit(self, session: GatewaySession, message: pb.Submit) -> None:
        self.submits[message.request_id] = (session, message)
        self.order.append(message.request_id)
        self.changed.set()

    def on_annotate(self, session: GatewaySession, message: pb.Annotate) -> None:
        self._note("annotate", message.request_id)

    def on_cancel(self, session: GatewaySession, message: pb.Cancel) -> None:
        self._note("cancel", message.request_id)

    def on_recall(self, session: GatewaySession, message: pb.Recall) -> None:
        self._note("recall", message.request_id)

    def on_gateway_lost(self, session: GatewaySession) -> None:
        self.lost.append(session.owner[0])
        self.changed.set()

    def _note(self, kind: str, request_id: str) -> None:
        self.other.append((kind, request_id))
        self.changed.set()

    async def until(self, condition: object) -> None:
        await GatewaySide.until(self, condition)  # type: ignore[arg-type]


class Pair:
    def __init__(self, *, gateway_grace_s: float, worker_grace_s: float, local: bool = False) -> None:
        self.gateway, self.worker = GatewaySide(), WorkerSide()
        self.local = local
        self.listener: LocalListener[pb.GatewayFrame] | None = None
        self._run = uuid.uuid4().hex  # the names of local sockets are the machine's
        self.worker_grace_s = worker_grace_s
        framing = FramingConfig(window_s=0.001)
        config = StreamConfig(grace_s=gateway_grace_s, backoff_s=0.01, max_backoff_s=0.02, framing=framing)
        self.streams = WorkerStreams("g", "g-1", self.gateway, config)
        self.wire: CuttableWire

    async def start(self) -> None:
        self.wire = CuttableWire(0)
        self.wire._target = await self.start_worker("w-1", 0)
        await self.wire.start()
        self.streams.ensure(self.heartbeat("w-1"))
        await self.gateway.until(lambda: self.gateway.events == [True])

    async def start_worker(self, incarnation: str, port: int) -> int:
        incarnation = f"{self._run}-{incarnation}"
        self.server = server = ExecutionServer(
            StreamServerConfig(worker="w", incarnation=incarnation, grace_s=self.worker_grace_s)
        )
        self.server.open(self.worker)
        if self.local:
            self.listener = LocalListener(pb.GatewayFrame.FromString, lambda stream: self.wire.locally(server, stream))
            assert await self.listener.start(incarnation)
        self.rpc = RpcServer()
        execution_pb2_grpc.add_ExecutionServicer_to_server(self.server, self.rpc.server)  # type: ignore[no-untyped-call]
        return await self.rpc.start("127.0.0.1", port, [])

    async def stop_worker(self) -> None:
        await self.server.close()
        if self.listener is not None:
            await self.listener.close()
        await self.rpc.stop(0)

    def heartbeat(self, incarnation: str) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            worker="w",
            incarnation=f"{self._run}-{incarnation}",
            address=f"127.0.0.1:{self.wire.port}",
            wire_version=1,
            pool="m",
            aliases=(),
            engines=(),
            queued=0,
            queued_tokens=0,
            running=0,
            max_queued=9,
            max_queued_tokens=9,
            backlog_s=0.0,
            draining=False,
        )

    def submit(self, request_id: str, body: bytes = b"{}") -> None:
        self.streams.submit("w", pb.Submit(request_id=request_id, attempt=1, body=body))

    def answer(self, request_id: str, index: int) -> None:
        self.worker.submits[request_id][0].send_tokens(request_id, 1, b"%d," % index, 1, index, urgent=index == 0)

    def finish(self, request_id: str) -> None:
        self.worker.submits[request_id][0].send("finished", pb.Finished(request_id=request_id, attempt=1))

    async def close(self) -> None:
        await self.streams.close()
        await self.wire.stop()
        await self.stop_worker()


@pytest.fixture(params=["grpc", "local"])
def local(request: pytest.FixtureRequest) -> bool:
    if request.param == "local" and sys.platform != "linux":
        pytest.skip("abstract sockets are Linux's")
    return bool(request.param == "local")


@pytest.fixture
async def pair(local: bool) -> AsyncIterator[Pair]:
    pair = Pair(gateway_grace_s=LONG_S, worker_grace_s=LONG_S, local=local)
    await pair.start()
    yield pair
    assert bool(pair.wire.local_connections) is local
    await pair.close()


@pytest.fixture
async def hasty(local: bool) -> AsyncIterator[Pair]:
    """Sessions whose grace ends at once."""
    pair = Pair(gateway_grace_s=0.05, worker_grace_s=0.05, local=local)
    await pair.start()
    yield pair
    await pair.close()


async def test_every_operation_arrives_in_order(pair: Pair) -> None:
    pair.submit("a", b"x" * 3_000_000)
    pair.streams.annotate("w", pb.Annotate(request_id="a", attempt=1))
    pair.streams.recall("w", "a", 1)
    pair.streams.cancel("w", "a", 1)
    await pair.worker.until(lambda: len(pair.worker.other) == 3)
    assert pair.worker.order == ["a"]
    assert len(pair.worker.submits["a"][1].body) == 3_000_000
    assert pair.worker.other == [("annotate", "a"), ("recall", "a"), ("cancel", "a")]
    pair.worker.submits["a"][0].send("handback", pb.Handback(request_id="a", attempt=1))
    await pair.gateway.until(lambda: pair.gateway.handbacks == ["a"])


async def test_nothing_is_lost_or_doubled_over_broken_connections(pair: Pair) -> None:
    requests = [f"r{i}" for i in range(8)]
    for i, request in enumerate(requests):
        pair.submit(request)
        if i == 4:
            pair.wire.cut()
    await pair.worker.until(lambda: len(pair.worker.submits) == 8)
    for index in range(200):
        for request in requests:
            pair.answer(request, index)
        if index % 50 == 25:
            pair.wire.cut()
        await asyncio.sleep(0.001)
    for request in requests:
        pair.finish(request)
    pair.wire.cut()
    await pair.gateway.until(lambda: sum(pair.gateway.finished.values()) == 8)
    expected = b"".join(b"%d," % i for i in range(200))
    assert {r: b"".join(data) for r, data in pair.gateway.tokens.items()} == dict.fromkeys(requests, expected)
    assert pair.worker.order == requests
    assert set(pair.gateway.finished.values()) == {1}
    assert pair.gateway.events.count(True) > 1
    assert not [event for event in pair.gateway.events if isinstance(event, str)]
    assert pair.worker.lost == []


async def test_what_is_submitted_while_the_stream_is_broken_arrives_when_it_is_back(pair: Pair) -> None:
    pair.wire.refuse = True
    pair.wire.cut()
    await pair.gateway.until(lambda: pair.gateway.events[-1] is False)
    pair.submit("late")
    pair.wire.refuse = False
    await pair.worker.until(lambda: pair.worker.order == ["late"])


async def test_a_worker_that_restarted_has_vanished_once_and_is_connected_to_again(pair: Pair) -> None:
    pair.submit("a")
    await pair.worker.until(lambda: "a" in pair.worker.submits)
    port = pair.wire._target
    await pair.stop_worker()
    await pair.start_worker("w-2", port)
    await pair.gateway.until(lambda: pair.gateway.events[-1] is True and len(pair.gateway.events) > 1)
    assert [event for event in pair.gateway.events if isinstance(event, str)] == ["it was restarted"]
    pair.streams.ensure(pair.heartbeat("w-1"))  # late, of the process before
    pair.streams.ensure(pair.heartbeat("w-2"))
    pair.submit("b")
    await pair.worker.until(lambda: pair.worker.order == ["a", "b"])
    assert pair.gateway.events.count("it was restarted") == 1


async def test_a_heartbeat_of_another_process_is_enough_to_vanish(pair: Pair) -> None:
    pair.wire.refuse = True
    pair.wire.cut()
    pair.submit("a")
    pair.streams.ensure(pair.heartbeat("w-2"))
    await pair.gateway.until(lambda: "it was restarted" in pair.gateway.events)


async def test_a_stream_broken_past_its_grace_ends_the_session_on_both_sides(hasty: Pair) -> None:
    hasty.submit("a")
    await hasty.worker.until(lambda: "a" in hasty.worker.submits)
    hasty.wire.refuse = True
    hasty.wire.cut()
    await hasty.gateway.until(lambda: "its stream stayed broken" in hasty.gateway.events)
    await hasty.worker.until(lambda: hasty.worker.lost == ["g"])
    hasty.finish("a")  # for a session that is over: goes nowhere
    hasty.wire.refuse = False
    await hasty.gateway.until(lambda: hasty.gateway.events[-1] is True)
    hasty.submit("b")
    await hasty.worker.until(lambda: hasty.worker.order == ["a", "b"])
    assert hasty.gateway.finished["a"] == 0
    assert hasty.gateway.events == [True, False, "its stream stayed broken", True]


async def test_a_session_that_the_worker_no_longer_knows_has_vanished(local: bool) -> None:
    pair = Pair(gateway_grace_s=LONG_S, worker_grace_s=0.01, local=local)
    await pair.start()
    pair.submit("a")
    await pair.worker.until(lambda: "a" in pair.worker.submits)
    pair.wire.refuse = True
    pair.wire.cut()
    await pair.worker.until(lambda: pair.worker.lost == ["g"])
    pair.wire.refuse = False
    await pair.gateway.until(lambda: "it no longer knows the session of this gateway" in pair.gateway.events)
    await pair.gateway.until(lambda: pair.gateway.events[-1] is True)
    await pair.close()


async def test_operations_for_a_worker_without_a_stream_say_so(pair: Pair) -> None:
    pair.streams.submit("nobody", pb.Submit(request_id="a", attempt=1))
    assert pair.gateway.events[-1] == "the gateway has no stream to it"


async def test_a_stream_that_does_not_begin_with_a_hello_is_refused(pair: Pair) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{pair.wire._target}") as channel:
        call = execution_pb2_grpc.ExecutionStub(channel).Connect()  # type: ignore[no-untyped-call]
        await call.write(pb.GatewayFrame(seq=1))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
async def test_a_session_heals_over_grpc_where_the_unix_socket_is_gone() -> None:
    pair = Pair(gateway_grace_s=LONG_S, worker_grace_s=LONG_S, local=True)
    await pair.start()
    pair.submit("a")
    await pair.worker.until(lambda: "a" in pair.worker.submits)
    assert pair.listener is not None
    pair.answer("a", 0)
    await pair.listener.close()
    pair.answer("a", 1)
    pair.finish("a")
    pair.submit("b")
    await pair.gateway.until(lambda: pair.gateway.finished["a"] == 1)
    await pair.worker.until(lambda: pair.worker.order == ["a", "b"])
    assert b"".join(pair.gateway.tokens["a"]) == b"0,1,"
    assert pair.gateway.events == [True, False, True]
    assert pair.wire.local_connections == 1
    await pair.close()
