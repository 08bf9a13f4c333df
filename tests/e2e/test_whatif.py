"""`hmas whatif` on a running mesh: what it says, that its memory survives its owner, and that the meta controller
rehearses what a language model proposes."""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from hmas.contracts.control import AuditRecord
from hmas.wire.codec import decode
from hmas.wire.permissions import OPERATOR, inbox
from hmas.wire.subjects import AUDIT
from tests.conftest import HMAS
from tests.e2e.test_meta_llm import ScriptedLlm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(560), pytest.mark.long]

ALL = ("--last", "30m")
CALIBRATED = Path(__file__).parents[2] / "docs/results/own-engines.yaml"  # written by `hmas calibrate`


@pytest.fixture(scope="module")
def rehearsing(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    """A mesh under more load than two engines take, whose language model always proposes arrival order."""
    llm = ScriptedLlm()
    llm.content = json.dumps({"topology": "fcfs", "hints": {}, "bypass": False, "reason": "first come, first served"})
    env = {"HMAS_META_PERIOD_S": "5", "HMAS_REHEARSE": "on", "HMAS_MIN_DWELL_S": "0", "HMAS_SELECTOR": "llm"}
    directory = tmp_path_factory.mktemp("rehearsing")
    with start_mesh(directory, "--replay", "--llm-url", llm.url, "--llm-model", "llm", env=env) as mesh:
        yield mesh
    llm.close()


def load(mesh: Any, seconds: int, out: Path) -> None:
    """Its status says whether it kept its own pace, which a busy machine may not let it."""
    mesh_command(mesh, "load", "run", "burst", "--url", mesh.url, "--replay-field", "--duration", str(seconds),
                 "--rate", "9", "--out", str(out))  # fmt: skip
    assert out.exists()


def mesh_command(mesh: Any, *args: str) -> Any:

    return subprocess.run([HMAS, *args], capture_output=True, text=True, timeout=400, check=False)


async def audits_while(mesh: Any, work: Any, most_s: float, kind: str) -> list[AuditRecord]:
    """Returns the audit records that come while `work` runs in a thread, and until one of the kind came."""

    state = mesh.state
    password = Path(state["nats_password_file"]).read_text()
    connection = await nats.connect(
        state["nats_url"], user=OPERATOR, inbox_prefix=inbox(OPERATOR).encode(), password=password
    )
    found: list[AuditRecord] = []

    async def on_audit(message: Any) -> None:
        found.append(decode(AuditRecord, message.data))

    await connection.subscribe(AUDIT, cb=on_audit)
    await asyncio.to_thread(work)
    until = time.monotonic() + most_s
    while time.monotonic() < until and not any(kind in record.reason for record in found):
        await asyncio.sleep(0.2)
    await connection.close()
    return [record for record in found if record.source == "meta"]


def exported(mesh: Any, path: Path) -> list[Any]:
    done = mesh.hmas("whatif", *ALL, "--export", str(path), timeout=150)
    assert done.returncode == 0, done.stderr
    return path.read_text().splitlines()


async def test_a_mesh_rehearses_tells_and_remembers(rehearsing: Any, tmp_path: Path) -> None:
    mesh = rehearsing
    records = await audits_while(mesh, lambda: load(mesh, 30, tmp_path / "load"), 60.0, "points predicted")
    assert any("rehears" in r.reason or "points predicted" in r.reason for r in records), records
    assert all(r.decision != "fcfs" or r.kind != "decided" for r in records)

    before = exported(mesh, tmp_path / "past.jsonl")
    assert len(before) > 200
    head = json.loads(before[0])
    assert (len(head["facts"]["engines"]), head["in_force"]["topology"]) == (2, "max_on_time")
    assert all(set(json.loads(line)) <= set(FIELDS) for line in before[1:])

    live = mesh.hmas("whatif", *ALL, "--topology", "fcfs", timeout=300)
    assert live.returncode in (0, 3), live.stderr
    lines = [line for line in live.stdout.splitlines() if line.strip()]
    assert [line.split()[0].rstrip(":") for line in lines[2:5]] == ["observed", "in", "fcfs"]
    assert ("do not believe" in live.stdout) is (live.returncode == 3)

    def asked(*options: str) -> Any:
        done = mesh.hmas("whatif", str(tmp_path / "past.jsonl"), *ALL, *options, "--json", timeout=300)
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout)

    assert asked("--engines", "+1")["candidates"][0]["policy"]["engines"] == 3
    assert asked("--objective", "tokens")["candidates"][0]["policy"]["hints"]["by_tokens"]
    tenant = json.loads(before[1])["tenant"]
    strict = asked("--slo", f"{tenant}:ttft=1")["candidates"][0]
    assert strict["gain"] < asked("--slo", f"{tenant}:ttft=100000")["candidates"][0]["gain"], "no first token in 1 ms"
    measured = asked("--profile", str(CALIBRATED), "--topology", "edf")
    assert measured["candidates"][0]["policy"]["topology"] == "edf"
    assert measured["in_force"] != asked("--topology", "edf")["in_force"], "these engines are slower than the mesh's"

    time.sleep(11.0)  # the growing block is kept every ten seconds
    mesh.kill("qos")
    after: list[Any] = []
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline and len(after) < len(before):
        done = mesh.hmas("whatif", *ALL, "--export", str(tmp_path / "after.jsonl"), timeout=150)
        if done.returncode == 0:
            after = (tmp_path / "after.jsonl").read_text().splitlines()
    assert len(after) >= len(before) - 20
    assert mesh.hmas("whatif", *ALL, "--export", str(tmp_path / "m.jsonl"), "--mooncake", timeout=150).returncode == 0
    foreign = mesh.hmas("whatif", str(tmp_path / "m.jsonl"), *ALL, "--profile", "tiny-emulated", "--engines", "2",
                        "--topology", "sjf", timeout=300)  # fmt: skip
    assert foreign.returncode == 3
    assert "no latency was observed" in foreign.stdout


def test_wrong_options_are_told(rehearsing: Any) -> None:
    for args, told in (
        (("--last", "soon"), "not a duration"),
        (("--topology", "bogosort"), "not a topology"),
        (("--engines", "-9"), "at least one must stay"),
        (("--slo", "nobody:ttft=5"), "no request was of"),
        (("--profile", "no-such-card"), "no engine profile"),
        (("/no/such/file",), "No such file"),
    ):
        done = rehearsing.hmas("whatif", *args, timeout=150)
        assert done.returncode == 1, args
        assert told in done.stderr, (args, done.stderr)


FIELDS = (
    "arrival_s", "tenant", "prompt_tokens", "slo", "model", "job", "weight", "max_tokens", "stream", "stated",
    "priority", "importance", "relegate", "topology", "task", "tagged_by", "confidence", "predicted_output_tokens",
    "predicted_output_tokens_p90", "outcome", "output_tokens", "ttft_s", "tpot_s", "last_token_s",
)  # fmt: skip
