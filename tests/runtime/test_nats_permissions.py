"""Each user of NATS against a real server with the generated configuration: what it may publish and hear, and nothing
else. The expectations are written by hand, so that a slip in the table that makes the configuration is found."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
import structlog.testing
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hmas.contracts.control import Pin, TopologyDecision, TopologyName
from hmas.contracts.routes import ROUTES
from hmas.runtime.bucket import BucketUnavailable, ControlBucket, LeaseBucket
from hmas.runtime.bus import Bus
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.permissions import USERS, authorization, inbox
from hmas.wire.subjects import KEYS
from tests.builders.control import topology_decision
from tests.conftest import PATIENCE_S, eventually
from tests.runtime.conftest import NatsProcess

NAMES = tuple(user.name for user in USERS)
SERVICES = {"gateway", "worker", "perception", "prediction", "qos", "meta", "statera"}
CONTROL = {"qos", "meta", "statera"}
READERS = {"worker", "meta", "statera"}
SECRET = "a password of a test"

# Who may publish there: the one truth that the generated configuration is held against.
PUBLISHERS: dict[str, set[str]] = {
    "hmas.v1.telemetry.worker.w": {"worker"},
    "hmas.v1.telemetry.gateway.g": {"gateway"},
    "hmas.v1.use.g": {"gateway"},
    "hmas.v1.qos.short.p": {"qos"},
    "hmas.v1.qos.long.p": {"qos"},
    "hmas.v1.gain.p": {"meta"},
    "hmas.v1.control.topology.p": {"meta"},
    "hmas.v1.control.layout.p": {"meta"},
    "hmas.v1.control.plan": {"meta"},
    "hmas.v1.control.plan_pin": {"operator"},
    "hmas.v1.control.tuple.w": {"statera"},
    "hmas.v1.control.pin.p": {"operator"},
    "hmas.v1.registry.w": {"worker"},
    "hmas.v1.audit": {"meta", "statera"},
    "hmas.v1.query.why": {"operator"},
    "hmas.v1.query.effects": {"operator"},
    "hmas.v1.query.past": {"operator", "meta"},
    "hmas.v1.anything.else": set(),
    "something.else": set(),
    "$KV.hmas_control.topology.p": {"meta"},
    "$KV.hmas_control.layout.p": {"meta"},
    "$KV.hmas_control.plan": {"meta"},
    "$KV.hmas_control.plan_pin": {"operator"},
    "$KV.hmas_control.tuple.w": {"statera"},
    "$KV.hmas_control.pin.p": {"operator"},
    "$KV.hmas_leases.lease.qos": {"qos"},
    "$KV.hmas_leases.lease.meta": {"meta"},
    "$KV.hmas_leases.lease.statera": {"statera"},
    "$KV.hmas_leases.engine.p.e": {"worker"},
    "$KV.hmas_control.clock.c.d": READERS,
    "$KV.hmas_past.past.p.1": {"qos"},
    "$KV.hmas_past.clock.q": {"qos"},
    "$JS.API.STREAM.INFO.KV_hmas_past": {"qos"},
    "$JS.API.STREAM.MSG.GET.KV_hmas_past": {"qos"},
    "$JS.API.STREAM.CREATE.KV_hmas_past": {"qos"},
    "$KV.hmas_control.lease.qos": set(),
    "$JS.API.STREAM.INFO.KV_hmas_control": {*READERS, "operator"},
    "$JS.API.STREAM.MSG.GET.KV_hmas_control": READERS,
    "$JS.API.STREAM.CREATE.KV_hmas_control": {"meta", "statera"},
    "$JS.API.STREAM.INFO.KV_hmas_leases": CONTROL | {"worker"},
    "$JS.API.STREAM.MSG.GET.KV_hmas_leases": CONTROL | {"worker"},
    "$JS.API.STREAM.CREATE.KV_hmas_leases": CONTROL | {"worker"},
    "$JS.API.STREAM.DELETE.KV_hmas_leases": set(),
    "$JS.API.STREAM.CREATE.HMAS_AUDIT": {"meta"},
    "$JS.API.STREAM.UPDATE.HMAS_AUDIT": {"meta"},
    "$JS.API.STREAM.UPDATE.KV_hmas_control": set(),
    "$JS.API.STREAM.DELETE.KV_hmas_control": set(),
    "$JS.API.STREAM.PURGE.KV_hmas_control": set(),
    "$JS.API.DIRECT.GET.KV_hmas_control": set(),
    "$JS.API.STREAM.CREATE.spy": set(),
    "$JS.API.CONSUMER.CREATE.HMAS_AUDIT": set(),
    **{f"{inbox(name)}.x": set() for name in NAMES},
}
HEARERS: dict[str, set[str]] = {
    "hmas.v1.telemetry.worker.w": {"qos", "statera", "prediction", "operator"},
    "hmas.v1.telemetry.gateway.g": {"qos", "perception", "operator"},
    "hmas.v1.use.g": {"gateway"},
    "hmas.v1.qos.short.p": {"meta", "statera", "gateway", "operator"},
    "hmas.v1.qos.long.p": {"meta", "operator"},
    "hmas.v1.gain.p": {"operator"},
    "hmas.v1.control.topology.p": {"worker", "statera", "meta", "gateway", "operator"},
    "hmas.v1.control.layout.p": {"worker", "meta", "operator"},
    "hmas.v1.control.plan": {"gateway", "meta", "operator"},
    "hmas.v1.control.plan_pin": {"meta"},
    "hmas.v1.control.tuple.w": {"worker", "gateway", "operator"},
    "hmas.v1.control.pin.p": {"meta"},
    "hmas.v1.registry.w": {"gateway", "worker", "qos", "meta", "statera", "operator"},
    "hmas.v1.audit": {"operator"},
    "hmas.v1.query.why": {"gateway"},
    "hmas.v1.query.effects": SERVICES,
    "hmas.v1.query.past": {"qos"},
    "something.else": set(),
    "$KV.hmas_control.pin.p": set(),
    **{f"{inbox(name)}.x": {name} for name in NAMES},
}


def test_every_subject_of_the_mesh_is_tried_below() -> None:
    for route in ROUTES:
        tried = {subject.rpartition(".")[0] if route.about else subject for subject in PUBLISHERS if subject in HEARERS}
        assert f"hmas.v1.{route.subject}" in tried, route
    for key in KEYS:
        assert any(subject.startswith(f"$KV.{key.bucket}.{key.name}") for subject in PUBLISHERS), key


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    """A server with the users of the table and one, `observer`, that may do anything."""
    folder = tmp_path_factory.mktemp("nats")
    users = authorization(dict.fromkeys(NAMES, SECRET))
    users["users"].append({"user": "observer", "password": SECRET})
    (folder / "nats.conf").write_text(json.dumps({"authorization": users}))
    server = NatsProcess(folder / "js", "-c", str(folder / "nats.conf"))
    server.start()
    yield server
    server.kill()


@asynccontextmanager
async def client(server: NatsProcess, user: str) -> AsyncIterator[Client]:
    prefix = inbox(user) if user != "observer" else "_INBOX"

    async def ignore(_: Exception) -> None:
        """Refusals are told here; the tests look at what arrives."""

    one = await nats.connect(
        server.url, user=user, password=SECRET, inbox_prefix=prefix.encode(), allow_reconnect=False, error_cb=ignore
    )
    try:
        yield one
    finally:
        await one.close()


async def settled(one: Client) -> None:
    """Returns when the server has done what `one` asked for. nats-py sends the ping of a flush before what is pending,
    so that only a second one follows it."""
    await one.flush()
    await one.flush()


async def hear(one: Client, subjects: Iterable[str]) -> dict[str, Subscription]:
    """Subscribes to each subject; `pending_msgs` of a subscription is the number of messages that came after it."""
    subscriptions = {subject: await one.subscribe(subject) for subject in subjects}
    await settled(one)
    return subscriptions


async def test_each_user_publishes_what_its_role_says_and_nothing_else(guarded: NatsProcess) -> None:
    arrived: dict[str, set[str]] = defaultdict(set)
    async with client(guarded, "observer") as observer:
        subscriptions = await hear(observer, PUBLISHERS)
        for name in NAMES:
            async with client(guarded, name) as one:
                for subject in PUBLISHERS:
                    await one.publish(subject, name.encode())
                await settled(one)
        await settled(observer)
        for subject, subscription in subscriptions.items():
            while subscription.pending_msgs:
                arrived[subject].add((await subscription.next_msg()).data.decode())
    assert {subject: arrived[subject] for subject in PUBLISHERS} == PUBLISHERS


async def test_each_user_hears_what_its_role_says_and_nothing_else(guarded: NatsProcess) -> None:
    heard: dict[str, set[str]] = defaultdict(set)
    async with client(guarded, "observer") as observer:
        for name in NAMES:
            async with client(guarded, name) as one:
                subscriptions = await hear(one, HEARERS)
                for subject in HEARERS:
                    await observer.publish(subject, b"x")
                await settled(observer)
                await settled(one)
                for subject, subscription in subscriptions.items():
                    if subscription.pending_msgs:
                        heard[subject].add(name)
    assert {subject: heard[subject] for subject in HEARERS} == HEARERS


@pytest.mark.parametrize("everything", [">", "hmas.>", "_INBOX.>", "$KV.>", "hmas.v1.telemetry.>"])
async def test_no_user_hears_more_by_a_wide_wildcard(guarded: NatsProcess, everything: str) -> None:
    async with client(guarded, "observer") as observer, client(guarded, "gateway") as gateway:
        subscriptions = await hear(gateway, [everything])
        for subject in HEARERS:
            await observer.publish(subject, b"x")
        await settled(observer)
        await settled(gateway)
        assert subscriptions[everything].pending_msgs == 0


async def test_a_service_answers_each_request_once(guarded: NatsProcess) -> None:
    async with client(guarded, "operator") as operator:
        for name in sorted(SERVICES):
            async with client(guarded, name) as service:

                async def answer(message: Msg) -> None:
                    await message.respond(b"first")
                    await message.respond(b"second")

                await service.subscribe("hmas.v1.query.effects", cb=answer)
                await settled(service)
                replies: asyncio.Queue[Msg] = asyncio.Queue()
                box = operator.new_inbox()
                await operator.subscribe(box, cb=replies.put)
                await operator.publish("hmas.v1.query.effects", b"", reply=box)
                assert (await asyncio.wait_for(replies.get(), PATIENCE_S)).data == b"first", name
                await settled(service)
                await settled(operator)
                assert replies.empty(), name


def bus_of(server: NatsProcess, user: str, folder: Path) -> Bus:
    file = folder / user
    file.write_text(SECRET)
    return Bus(RuntimeSettings(nats_url=server.url, nats_user=user, nats_password_file=file), user)


@asynccontextmanager
async def connected(server: NatsProcess, user: str, folder: Path) -> AsyncIterator[Bus]:
    bus = bus_of(server, user, folder)
    task = asyncio.create_task(bus.run())
    try:
        await asyncio.wait_for(bus.wait_connected(), PATIENCE_S)
        yield bus
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


async def test_buckets_are_made_written_and_read_by_those_who_need_them(guarded: NatsProcess, tmp_path: Path) -> None:
    pin = Pin("p", TopologyName.EDF, by="somebody")
    async with connected(guarded, "operator", tmp_path) as bus:
        with pytest.raises(BucketUnavailable, match="no bucket hmas_control yet"):
            await ControlBucket(bus, "operator", makes=False).put("pin.p", pin)
    for role in sorted(CONTROL):
        async with connected(guarded, role, tmp_path) as bus:
            leases = LeaseBucket(bus)
            assert await leases.get(f"lease.{role}") is None
            revision = await leases.swap(f"lease.{role}", b"one", 0)
            assert revision is not None
            assert await leases.swap(f"lease.{role}", b"two", revision) is not None
    decision = topology_decision(pool="p", valid_for_s=5.0, reason="")
    async with connected(guarded, "meta", tmp_path) as bus:
        bucket = ControlBucket(bus, "meta")
        await bucket.put("topology.p", decision)
        await bucket.ensure_audit_stream()
        await bucket.ensure_audit_stream()
    async with connected(guarded, "operator", tmp_path) as bus:
        await ControlBucket(bus, "operator", makes=False).put("pin.p", pin)
    async with connected(guarded, "meta", tmp_path) as bus:
        read = await ControlBucket(bus, "meta").read(Pin, "pin.p")
        assert read is not None
        assert read[0] == pin
    for role in ("worker", "statera"):
        async with connected(guarded, role, tmp_path) as bus:
            kept = await ControlBucket(bus, role, makes=False).read(TopologyDecision, "topology.p")
            assert kept is not None
            assert kept[0].topology is TopologyName.EDF


async def test_a_wrong_password_is_told_and_tried_again(
    guarded: NatsProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, tries = bus_of(guarded, "gateway", tmp_path), 0
    tell = bus._on_error

    async def failed(error: Exception) -> None:
        nonlocal tries
        tries += 1
        await tell(error)

    monkeypatch.setattr(bus, "_on_error", failed)
    (tmp_path / "gateway").write_text("wrong")
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(bus.run())
        await eventually(lambda: tries >= 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    told = [(entry["reason"], entry["user"]) for entry in logs if entry["event"] == "nats_refused"]
    assert len(told) == 1
    assert "Authorization Violation" in told[0][0]
    assert told[0][1] == "gateway"
    await bus.close()


async def test_a_stolen_password_of_one_user_is_none_of_another(guarded: NatsProcess) -> None:
    for user, password in (("gateway", "wrong"), ("nobody", SECRET), ("", "")):
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
            await nats.connect(guarded.url, user=user or None, password=password or None, allow_reconnect=False)
