"""The stream between a gateway and a worker: in order, soft, and gone with all that is on its way when it breaks."""

from dataclasses import dataclass, field
from typing import Any

from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.gateway import FromWorker, StreamChanged
from hmas.contracts.worker import FromGateway, GatewayConnected, GatewayLost
from hmas.sim.processes.ports import MeshPort
from hmas.sim.processes.process import SimProcess


@dataclass(slots=True, eq=False)
class SimStreamEnd:
    """One end of a stream. `connection` numbers the connection it has, 0 while it is closed. `deaf_s` is since when it
    cannot hear the other end, because the way is parted or the other process is frozen. `stuck` are messages that wait
    for the way to be whole again."""

    process: SimProcess
    connection: int = 0
    deaf_s: float | None = None
    due_s: float = 0.0  # the arrival of the last message that was sent to this end
    stuck: list[tuple[int, Any]] = field(default_factory=list)


class SimStream:
    """The connections, one after another, of one gateway-worker pair.

    A message arrives `relay_s` (and the delay of a fault) after it was sent, in order, unless the connection is closed
    before. Each end closes a connection on which it heard nothing for `silence_s`; the gateway dials again every
    `redial_s`. The pings of the live stream are not events here: an end is deaf or it hears.
    """

    def __init__(self, mesh: MeshPort, gateway: SimProcess, worker: SimProcess) -> None:
        self.delay_s = 0.0
        self._mesh = mesh
        self._heap = mesh.heap
        self._gateway, self._worker = SimStreamEnd(gateway), SimStreamEnd(worker)
        self._met = ""  # the gateway process that the worker's end is connected to
        self._last = 0  # the number of the latest connection; one that is being opened is given up for a later one
        self._parted = False

    # --- connecting

    def open(self) -> None:
        """Connects at once, at the start of a run."""
        self._last += 1
        self._accepted(self._last, 0.0)

    def replace(self, process: SimProcess) -> None:
        """Takes the process that comes in the place of a dead one."""
        if process.name == self._gateway.process.name:
            self._gateway = SimStreamEnd(process)
            process.post(self._dial)
        else:
            self._worker = SimStreamEnd(process)
        self.hearing_changed()

    def _dial(self) -> None:
        gateway, worker = self._gateway, self._worker
        if gateway.connection:
            return
        self._heap.after(self._mesh.setup.redial_s, gateway.process.post, self._dial)  # in case that this one fails
        if worker.process.alive and not worker.process.frozen and not self._parted:
            self._last += 1
            relay_s = self._mesh.setup.delays.relay_s
            self._heap.after(relay_s, worker.process.post, self._accepted, self._last, relay_s)

    def _accepted(self, connection: int, answer_s: float) -> None:
        worker = self._worker
        if connection != self._last or self._parted:
            return
        worker.connection, self._met = connection, self._gateway.process.id
        worker.process.step(GatewayConnected(self._met))
        self._heap.after(answer_s, self._gateway.process.post, self._opened, connection)

    def _opened(self, connection: int) -> None:
        gateway = self._gateway
        if connection == self._last and not self._parted and not gateway.connection:
            gateway.connection = connection
            gateway.process.step(StreamChanged(self._worker.process.name, True))

    # --- messages

    def to_worker(self, message: GatewayMessage) -> None:
        self._send(self._gateway, self._worker, FromGateway(self._gateway.process.id, message))

    def to_gateway(self, gateway: str, message: WorkerMessage) -> None:
        """Sends to the gateway process `gateway`; nothing is sent to another one."""
        if gateway == self._met:
            self._send(self._worker, self._gateway, FromWorker(self._worker.process.name, message))

    def _send(self, sender: SimStreamEnd, to: SimStreamEnd, event: object) -> None:
        if sender.connection:
            to.due_s = max(to.due_s, self._heap.now_s + self._mesh.setup.delays.relay_s + self.delay_s)
            self._heap.at(to.due_s, self._arrived, to, sender.connection, event)

    def _arrived(self, to: SimStreamEnd, connection: int, event: object) -> None:
        if self._parted:
            to.stuck.append((connection, event))
        else:
            to.process.post(self._read, to, connection, event)

    def _read(self, to: SimStreamEnd, connection: int, event: object) -> None:
        if to.connection == connection:
            to.process.step(event)

    # --- faults

    def break_off(self) -> None:
        """Closes the connection; what is on its way is lost."""
        self._last += 1
        for end in (self._gateway, self._worker):
            end.process.post(self._closed, end, end.connection, 0.0)

    def part(self) -> None:
        """Lets nothing through until `heal`, after which it comes late if neither end has closed until then."""
        self._parted = True
        self.hearing_changed()

    def heal(self) -> None:
        self._parted = False
        self.hearing_changed()
        for end, other in ((self._gateway, self._worker), (self._worker, self._gateway)):
            stuck, end.stuck = end.stuck, []
            for connection, event in stuck:
                end.process.post(self._read, end, connection, event)
            if other.connection != end.connection or not other.process.alive:
                end.process.post(self._closed, end, end.connection, 0.0)

    def hearing_changed(self) -> None:
        """Notes which end can hear the other one: the way was parted or healed, or a process froze or woke."""
        for end, other in ((self._gateway, self._worker), (self._worker, self._gateway)):
            deaf = self._parted or other.process.frozen
            if deaf and end.deaf_s is None:
                end.deaf_s = self._heap.now_s
                self._heap.after(self._mesh.setup.silence_s, self._silent, end, end.deaf_s)
            elif not deaf:
                end.deaf_s = None

    def _silent(self, end: SimStreamEnd, deaf_s: float) -> None:
        if end.deaf_s == deaf_s:
            end.process.post(self._closed, end, end.connection, self._mesh.setup.silence_s)

    def thawed(self, name: str, frozen_s: float) -> None:
        """Closes the connection of a process that was frozen for longer than `silence_s`: what came meanwhile is too
        old to act on. Its own sleep is not held against the other one: that was silent for 0 s."""
        end, _ = self._ends(name)
        if frozen_s > self._mesh.setup.silence_s:
            self._closed(end, end.connection, 0.0)

    def died(self, name: str) -> None:
        end, other = self._ends(name)
        end.connection = 0
        if not self._parted:
            self._heap.after(self._mesh.setup.delays.relay_s, other.process.post, self._closed, other, self._last, 0.0)

    def _ends(self, name: str) -> tuple[SimStreamEnd, SimStreamEnd]:
        """Returns the end of the process, and the other one."""
        ours = name == self._gateway.process.name
        return (self._gateway, self._worker) if ours else (self._worker, self._gateway)

    def _closed(self, end: SimStreamEnd, connection: int, silent_s: float) -> None:
        """Closes one end's connection, if it still has this one; the other end hears of it."""
        if not connection or end.connection != connection:
            return
        end.connection = 0
        _, other = self._ends(end.process.name)
        if not self._parted:
            self._heap.after(self._mesh.setup.delays.relay_s, other.process.post, self._closed, other, connection, 0.0)
        if end is self._gateway:
            self._heap.after(self._mesh.setup.redial_s, end.process.post, self._dial)
            end.process.step(StreamChanged(self._worker.process.name, False, silent_s))
        else:
            end.process.step(GatewayLost(self._met))
