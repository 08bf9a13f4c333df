"""The real image and the real docker-compose.yml: up, used, hurt, measured, down."""

import asyncio
import time
from collections import Counter

import httpx
import openai
import pytest

from tests.chaos.load import Load
from tests.compose.conftest import wait_healthy
from tests.compose.docker import ROOT, Stack, docker

# The first test builds the image, and before it, where there is none, a Docker engine and its base images.
pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

IMAGE_LIMIT_MB = 900
BEFORE_S, AFTER_S = 2.0, 3.0
RECOVERY_S = 90.0
SERVICES = (
    "perception", "prediction", "qos", "meta", "statera", "nats", "worker-1", "worker-2", "engine-1", "engine-2",
    "gateway",
)  # fmt: skip
# Behind these stand others, or nothing on the path of a request.
UNSEEN = {"perception", "prediction", "qos", "meta", "statera", "nats"}


def report(line: str) -> None:
    """Printed, and kept in out/compose.md."""
    print(line)
    path = ROOT / "out" / "compose.md"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(line + "\n")


def test_the_image_is_small_and_bare(stack: Stack) -> None:
    (ROOT / "out" / "compose.md").unlink(missing_ok=True)
    size_mb = int(docker("image", "inspect", "--format", "{{.Size}}", stack.image)) / 1e6
    report(f"image: {size_mb:.0f} MB\n")
    assert size_mb <= IMAGE_LIMIT_MB
    run = ["run", "--rm", "--network", "none", stack.image]
    assert docker(*run, "id", "-u").strip() == "10001"
    assert docker(*run, "sh", "-c", "for c in gcc cc make git curl; do command -v $c || true; done").strip() == ""
    assert "torch" not in docker(*run, "ls", "/opt/hmas/lib/python3.11/site-packages").split()
    assert "hmas" in docker(*run, "hmas", "--help")


def test_containers_are_locked_down_and_tell_no_secret(stack: Stack) -> None:
    assert sorted(SERVICES) == stack.services()
    secret = docker("exec", stack.container("gateway"), "cat", "/run/hmas/secrets/nats_password").strip()
    assert len(secret) >= 32
    for service in SERVICES:
        facts = stack.inspect(service)
        host = facts["HostConfig"]
        assert host["ReadonlyRootfs"], service
        assert host["Memory"] > 0, service
        assert host["CapDrop"] == ["ALL"], service
        assert host["RestartPolicy"]["Name"] == "unless-stopped", service
        assert not facts["Config"]["User"].startswith(("0", "root")), service
        assert secret not in str(facts), service
    assert secret not in stack.compose("logs")
    published = [s for s in SERVICES if any(stack.inspect(s)["NetworkSettings"]["Ports"].values())]
    assert published == ["gateway"]


def test_nats_asks_for_the_password(stack: Stack) -> None:
    code = "import asyncio, nats; asyncio.run(nats.connect('nats://nats:4222', allow_reconnect=False))"
    with pytest.raises(RuntimeError, match="Authorization Violation"):
        docker("exec", stack.container("gateway"), "python", "-c", code)


FORGE = """
import asyncio, nats
from hmas.wire.permissions import inbox

async def main():
    told = []
    async def tell(error): told.append(str(error))
    password = open("/run/hmas/secrets/nats_password").read()
    client = await nats.connect("nats://nats:4222", user="gateway", password=password, error_cb=tell,
                                inbox_prefix=inbox("gateway").encode())
    for subject in ("hmas.v1.control.topology.emulated", "hmas.v1.registry.forged", "hmas.v1.telemetry.worker.forged"):
        await client.publish(subject, b"x")
    for _ in range(2):
        await client.flush()
    print(len([error for error in told if "permissions violation" in error]))

asyncio.run(main())
"""


def test_a_stolen_gateway_can_publish_neither_controls_nor_registrations(stack: Stack) -> None:
    assert docker("exec", stack.container("gateway"), "python", "-c", FORGE).strip() == "3"
    mine = docker("exec", stack.container("gateway"), "ls", "/run/hmas/secrets").split()
    assert sorted(mine) == ["mesh_secret", "nats_password"]
    assert docker("exec", stack.container("qos"), "ls", "/run/hmas/secrets").split() == ["nats_password"]


def test_only_the_gateway_and_meta_have_a_way_out(stack: Stack) -> None:
    out = set()
    for service in SERVICES:
        for network in stack.inspect(service)["NetworkSettings"]["Networks"]:
            if docker("network", "inspect", "--format", "{{.Internal}}", network).strip() != "true":
                out.add(service)
    assert out == {"gateway", "meta"}


def test_the_openai_client(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=60)
    assert [m.id for m in client.models.list()] == ["emulated"]
    answer = client.chat.completions.create(
        model="emulated", messages=[{"role": "user", "content": "Say something"}], max_tokens=20
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 20
    stream = client.completions.create(model="emulated", prompt="Say it again", max_tokens=20, stream=True)
    assert "".join(c.choices[0].text for c in stream if c.choices)


def test_catboost_predicts_the_costs(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=60)
    for number in range(40):
        client.completions.create(model="emulated", prompt=f"Who was number {number}?", max_tokens=20)
    page = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9100/metrics').read().decode())"
    lines = docker("exec", stack.container("prediction"), "python", "-c", page).splitlines()
    counts = [line.split() for line in lines if line.startswith("hmas_prediction_answers_total{")]
    by_catboost = sum(float(value) for name, value in counts if 'model="catboost"' in name)
    assert by_catboost >= 0.95 * sum(float(value) for _, value in counts) > 0.0


def test_commands_inside(stack: Stack) -> None:
    run = ("run", "--rm", "-T", "hmas")
    assert "pinned to edf" in stack.compose(*run, "pin", "edf", "--pool", "emulated")
    assert "engine-2" in stack.compose(*run, "top", "--once", "3")
    assert "pin lifted" in stack.compose(*run, "pin", "off", "--pool", "emulated")


async def under_load(stack: Stack, service: str) -> Load:
    async with Load(stack.url) as load:
        await asyncio.sleep(BEFORE_S)
        killed_s = time.monotonic()
        await asyncio.to_thread(stack.kill, service)
        await asyncio.sleep(AFTER_S)
        await asyncio.to_thread(wait_healthy, stack, [service], RECOVERY_S)
        back_s = time.monotonic() - killed_s
    counts = ", ".join(f"{n} {end}" for end, n in load.ends.most_common())
    report(f"kill -9 {service}: {counts}; healthy again after {back_s:.0f} s")
    return load


@pytest.mark.parametrize("service", SERVICES)
async def test_a_killed_container_comes_back_and_nothing_is_lost(stack: Stack, service: str) -> None:
    restarts = stack.inspect(service)["RestartCount"]
    load = await under_load(stack, service)
    assert stack.inspect(service)["RestartCount"] > restarts
    assert load.lost == 0, (load.ends, load.details)
    assert load.ends["finished"] > 0
    if service in UNSEEN:
        assert set(load.ends) == {"finished"}
    if service != "gateway":
        assert load.ends["connection"] == 0
    assert await served(stack) == {"finished"}


async def served(stack: Stack) -> set[str]:
    """How requests end now. A worker meets its gateway again within a few heartbeats."""
    deadline_s = time.monotonic() + RECOVERY_S
    while True:
        async with Load(stack.url) as load:
            await asyncio.sleep(2)
        if set(load.ends) == {"finished"} or time.monotonic() > deadline_s:
            return set(load.ends)


async def test_the_next_image_under_load(stack: Stack) -> None:
    """`HMAS_IMAGE` of the next version, then one service after the other (`docker compose up -d --no-deps SERVICE`).
    Only while the one gateway is replaced, at last, clients cannot connect."""
    assert await served(stack) == {"finished"}
    image = await asyncio.to_thread(stack.next_image)
    *before, gateway = (service for service in SERVICES if service != "nats")
    for services in (before, [gateway]):
        async with Load(stack.url, rate=6) as load:
            await asyncio.sleep(BEFORE_S)
            started_s = time.monotonic()
            for service in services:
                await asyncio.to_thread(stack.compose, "up", "-d", "--no-deps", service)
                await asyncio.to_thread(wait_healthy, stack, [service], RECOVERY_S)
            took_s = time.monotonic() - started_s
            await asyncio.sleep(AFTER_S)
        counts = ", ".join(f"{n} {end}" for end, n in load.ends.most_common())
        report(f"the next image, {', '.join(services)}: {took_s:.0f} s; {counts}; {load.cut} cut off")
        assert load.lost == load.cut == 0, (load.ends, load.details)
        assert set(load.ends) <= ({"finished", "connection", "error:503"} if services == [gateway] else {"finished"})
    assert {stack.inspect(service)["Image"] for service in (*before, gateway)} == {image}
    assert await served(stack) == {"finished"}


def test_memory_of_each_service(stack: Stack) -> None:
    report("\n| service | resident MiB | limit MiB |\n|---|---|---|")
    used = {s: stack.resident_mib(s) for s in SERVICES}
    limits = {s: stack.inspect(s)["HostConfig"]["Memory"] / 2**20 for s in SERVICES}
    for service in SERVICES:
        report(f"| {service} | {used[service]:.0f} | {limits[service]:.0f} |")
    report(f"| all | {sum(used.values()):.0f} | {sum(limits.values()):.0f} |\n")
    assert all(0 < used[s] < limits[s] / 2 for s in SERVICES), "a limit leaves too little room"
    for service in SERVICES:
        state = stack.inspect(service)["State"]
        assert not state["OOMKilled"]
        assert state["Health"]["Status"] != "unhealthy", service


def test_keys_as_the_readme_says(stack: Stack) -> None:
    key = stack.compose("run", "--rm", "keys", "make", "chat").strip().splitlines()[-1]
    stack.env["HMAS_TENANTS_FILE"] = "/etc/hmas/tenants/tenants.yaml"
    stack.compose("up", "-d")
    wait_healthy(stack, stack.services(), RECOVERY_S)
    ask = {"model": "emulated", "prompt": "Hello", "max_tokens": 5}
    assert httpx.post(f"{stack.url}/v1/completions", json=ask, timeout=60).status_code == 401
    client = openai.OpenAI(base_url=f"{stack.url}/v1", api_key=key, max_retries=3, timeout=60)
    assert client.completions.create(model="emulated", prompt="Hello", max_tokens=5).choices[0].text
    assert key not in stack.compose("logs")
    del stack.env["HMAS_TENANTS_FILE"]
    stack.compose("up", "-d")
    wait_healthy(stack, stack.services(), RECOVERY_S)


async def test_down_within_the_grace_time_and_nothing_cut(stack: Stack) -> None:
    """Last: afterwards the containers stand still."""
    assert await served(stack) == {"finished"}
    grace_s = sum(max(stack.inspect(s)["Config"]["StopTimeout"] for s in group) for group in (
        ["gateway"], ["worker-1", "meta"], ["engine-1", "nats"],
    ))  # fmt: skip
    async with Load(stack.url, rate=6) as load:
        await asyncio.sleep(BEFORE_S)
        started_s = time.monotonic()
        await asyncio.to_thread(stack.compose, "stop")
        took_s = time.monotonic() - started_s
    codes = Counter({s: stack.inspect(s)["State"]["ExitCode"] for s in SERVICES})
    counts = ", ".join(f"{n} {end}" for end, n in load.ends.most_common())
    report(f"down under load: {took_s:.0f} s of {grace_s} s; {counts}")
    assert load.lost == 0, (load.ends, load.details)
    assert set(load.ends) <= {"finished", "connection", "error:503"}
    assert all(code in (0, 143) for code in codes.values()), codes  # 137 would be a SIGKILL after the grace time
    assert took_s <= grace_s
