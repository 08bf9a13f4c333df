"""An LLM behind the meta controller that misbehaves is never applied, never delays a request, and is audited."""

import asyncio
import json
import select
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import nats
import openai
import pytest
from nats.aio.client import Client

from hmas.contracts.control import AuditRecord, TopologyDecision
from hmas.contracts.routes import ROUTES
from hmas.wire.codec import decode
from hmas.wire.permissions import OPERATOR, inbox
from hmas.wire.subjects import AUDIT, pattern

pytestmark = pytest.mark.e2e


class ScriptedLlm:
    """An OpenAI-compatible server that answers what the test says: text, a status, or nothing."""

    def __init__(self) -> None:
        self.content: str | None = "not set"
        self.status = 200
        self.asked = 0
        self.pending = 0  # questions whose asker waits for the answer
        self.release = threading.Event()
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                script.asked += 1
                if script.content is None:
                    script.pending += 1
                    while not select.select([self.connection], [], [], 0.02)[0] and not script.release.is_set():
                        pass  # until who asked hangs up
                    script.pending -= 1
                    return
                message = {"role": "assistant", "content": script.content}
                body = json.dumps(
                    {"id": "x", "object": "chat.completion", "created": 0, "model": "llm",
                     "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
                ).encode()  # fmt: skip
                self.send_response(script.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    llm = ScriptedLlm()
    env = {"HMAS_META_PERIOD_S": "2", "HMAS_MIN_DWELL_S": "0", "HMAS_LLM_TIMEOUT_S": "1.5"}
    directory = tmp_path_factory.mktemp("governed")
    args = ("--emulated", "1", "--llm-url", llm.url, "--llm-model", "llm")
    with start_mesh(directory, *args, env=env) as mesh:
        yield mesh, llm
    llm.close()


async def ask(client: openai.AsyncOpenAI) -> float:
    """Seconds that one short request took."""
    started = time.monotonic()
    await client.chat.completions.create(model="emulated", messages=[{"role": "user", "content": "hi"}], max_tokens=3)
    return time.monotonic() - started


async def test_requests_are_served_while_a_question_waits_for_its_answer(governed: Any) -> None:
    """Each of them begins after the question was put and ends before it is given up."""
    mesh, llm = governed
    llm.content = None
    served: dict[bool, list[float]] = {True: [], False: []}  # by whether a question waited from its start to its end
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        async with asyncio.timeout(40):
            while len(served[True]) < 5 or len(served[False]) < 5:
                asked, pending = llm.asked, llm.pending
                took_s = await ask(client)
                if (llm.asked, llm.pending) == (asked, pending):
                    served[pending > 0].append(took_s)
    waiting, idle = (1e3 * median(served[question]) for question in (True, False))
    print(f"median of a request: {waiting:.0f} ms while a question waits, {idle:.0f} ms while none does")


async def connect(mesh: Any) -> Client:
    state = mesh.state
    password = Path(state["nats_password_file"]).read_text()
    return await nats.connect(
        state["nats_url"], user=OPERATOR, inbox_prefix=inbox(OPERATOR).encode(), password=password
    )


async def test_a_stranger_cannot_connect(governed: Any) -> None:
    mesh, _ = governed
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await nats.connect(mesh.state["nats_url"], allow_reconnect=False, connect_timeout=5)


TOPOLOGIES = pattern(next(route for route in ROUTES if route.message is TopologyDecision))
VALID = {"topology": "edf", "hints": {}, "bypass": False, "reason": "deadlines are missed"}
BAD: list[tuple[str, str | None, int]] = [
    ("garbage", "I would suggest using the EDF policy!", 200),
    ("not in omega", json.dumps({**VALID, "topology": "bogosort"}), 200),
    ("wrong shape", json.dumps({"choice": ["edf"]}), 200),
    ("wrong types", json.dumps({**VALID, "bypass": "no"}), 200),
    ("http 500", json.dumps(VALID), 500),
    ("silence", None, 200),
]


@pytest.mark.parametrize(
    ("content", "status"),
    [pytest.param(*b[1:], id=b[0], marks=[] if b is BAD[0] else pytest.mark.long) for b in BAD],
)
async def test_a_bad_answer_is_rejected_audited_and_the_rules_decide(
    governed: Any, content: str | None, status: int
) -> None:
    mesh, llm = governed
    audits: list[AuditRecord] = []
    decisions: list[TopologyDecision] = []
    connection = await connect(mesh)

    async def on_audit(message: Any) -> None:
        audits.append(decode(AuditRecord, message.data))

    async def on_decision(message: Any) -> None:
        decisions.append(decode(TopologyDecision, message.data))

    llm.content, llm.status = content, status
    asked = llm.asked
    await asyncio.sleep(2.5)  # answers to questions put before the script changed are out of the way
    await connection.subscribe(AUDIT, cb=on_audit)
    await connection.subscribe(TOPOLOGIES, cb=on_decision)
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        async with asyncio.timeout(40):
            while not any(a.kind == "rejected" for a in audits) or not decisions:
                await ask(client)
    await connection.close()
    llm.release.set()
    llm.release.clear()
    assert llm.asked > asked
    rejected = next(a for a in audits if a.kind == "rejected")
    assert rejected.reason
    assert rejected.view_json
    assert all(d.selector != "llm" for d in decisions)


async def test_a_good_answer_is_applied(governed: Any) -> None:
    mesh, llm = governed
    llm.content, llm.status = json.dumps(VALID), 200
    decisions: list[TopologyDecision] = []
    connection = await connect(mesh)

    async def on_decision(message: Any) -> None:
        decisions.append(decode(TopologyDecision, message.data))

    await connection.subscribe(TOPOLOGIES, cb=on_decision)
    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="x", max_retries=0, timeout=30) as client:
        async with asyncio.timeout(60):
            while not any(d.topology == "edf" and d.selector == "llm" for d in decisions):
                await ask(client)
    await connection.close()
