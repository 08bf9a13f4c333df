"""The sources of engines: a DNS name (stubbed at the resolver), a file, and Kubernetes over a real HTTP server."""

import asyncio
import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from structlog.testing import capture_logs

from hmas.worker.discovery.dns import DnsEngines, resolve_tcp
from hmas.worker.discovery.endpoint_slices import EndpointSlices
from hmas.worker.discovery.file import EngineFileError, FileEngines, parse_engines
from hmas.worker.discovery.kubernetes import ApiServer, KubernetesEngines
from hmas.worker.discovery.source import DnsSource, FileSource, KubernetesSource, source_of
from hmas.worker.settings import EngineSettings, WorkerSettings
from tests.conftest import eventually

# --- HMAS_ENGINES ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("dns+http://vllm-headless:8000", DnsSource("vllm-headless", 8000)),
        ("dns+http://vllm.serving.svc:8000/", DnsSource("vllm.serving.svc", 8000)),
        ("file+/etc/hmas/engines.yaml", FileSource(Path("/etc/hmas/engines.yaml"))),
        ("file+///etc/hmas/engines.yaml", FileSource(Path("/etc/hmas/engines.yaml"))),
        ("kubernetes+http:///app=vllm", KubernetesSource("app=vllm")),
        ("kubernetes+http://:8000/app=vllm,tier!=test", KubernetesSource("app=vllm,tier!=test", "", 8000)),
        (
            "kubernetes+http://serving:8000/kubernetes.io/service-name=vllm",
            KubernetesSource("kubernetes.io/service-name=vllm", "serving", 8000),
        ),
        ("http://a:1,http://b:2", None),
        ('[{"url": "http://a:1"}]', None),
    ],
)
def test_a_source_is_known_by_its_scheme(text: str, source: object) -> None:
    assert source_of(text) == source


@pytest.mark.parametrize(
    "text",
    ["dns+http://vllm", "dns+http://vllm:0", "dns+vllm:80", "file+", "kubernetes+http://serving", "dns+https://a:1",
     "dns+http://a..b:80", f"dns+http://{'a' * 64}:80",
     "kubernetes+http://a:70000/app=vllm", "kubernetes+http:///app=vllm\r\nX: y"],
)  # fmt: skip
def test_a_source_in_no_known_form_is_refused_at_start(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ENGINES", text)
    with pytest.raises(ValueError, match=r"source of engines|by http"):
        WorkerSettings()


def test_settings_of_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAS_POOL", "m")
    monkeypatch.setenv("HMAS_ENGINES", "dns+http://vllm:8000")
    monkeypatch.setenv("HMAS_MAX_NUM_SEQS", "64")
    settings = WorkerSettings()
    assert settings.engine_configs() == ()
    assert settings.worker_config("w", "i", "a:1").discovers
    assert settings.engine_config(EngineSettings(url="http://10.0.0.1:8000")).facts.kv_transfer == ""
    monkeypatch.setenv("HMAS_KV_TRANSFER", "nixl-pull")
    settings = WorkerSettings()
    found = EngineSettings(url="http://10.0.0.2:8000", role="decode")
    facts = settings.engine_config(found).facts
    assert (facts.kv_transfer, facts.role) == ("nixl-pull", "decode")
    config = settings.engine_config(EngineSettings(url="http://10.0.0.1:8000"), epoch=3)
    assert (config.facts.name, config.facts.epoch, config.facts.max_num_seqs) == ("10.0.0.1:8000", 3, 64)


# --- DNS ---------------------------------------------------------------------------------------------------------


def answered(*addresses: str) -> list[tuple[Any, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 8000)) for address in addresses]


async def test_every_address_of_a_name_is_an_engine() -> None:
    async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
        assert (host, port) == ("vllm", 8000)
        return [*answered("10.0.0.2", "10.0.0.1", "10.0.0.2"), (10, 1, 6, "", ("fd00::1", 8000, 0, 0))]

    engines = await DnsEngines(DnsSource("vllm", 8000), 1.0, resolve).read()
    assert [engine.url for engine in engines] == [
        "http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000",
    ]  # fmt: skip


async def test_a_name_that_cannot_be_resolved_changes_nothing() -> None:
    script: list[Any] = [answered("10.0.0.1"), socket.gaierror(-2, "unknown"), [], answered("10.0.0.2")]
    answers = iter([*script, None])
    found: list[tuple[EngineSettings, ...]] = []

    async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
        answer = next(answers, None)
        if isinstance(answer, OSError):
            raise answer
        if answer is None:
            await asyncio.Event().wait()
        return list(answer or [])

    task = asyncio.create_task(DnsEngines(DnsSource("vllm", 8000), 0.001, resolve).run(found.append))
    await eventually(lambda: len(found) == 2)
    task.cancel()
    assert [[engine.url for engine in each] for each in found] == [["http://10.0.0.1:8000"], ["http://10.0.0.2:8000"]]


async def test_a_name_that_no_resolver_takes_is_as_one_that_is_not_known() -> None:
    with capture_logs() as logs:
        assert await DnsEngines(DnsSource("a..b", 8000), 1.0).read() == ()
    assert [entry["event"] for entry in logs] == ["engines_not_resolved"]


async def test_the_machines_resolver_answers_in_the_form_that_is_read() -> None:
    assert {address[0] for *_, address in await resolve_tcp("127.0.0.1", 80)} == {"127.0.0.1"}


# --- a file ------------------------------------------------------------------------------------------------------


def test_a_file_is_read_when_it_changes_and_a_faulty_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    file = FileEngines(path, 1.0)
    assert file.read() is None
    path.write_text("- http://a:1\n- {url: 'http://b:2', hardware: H100, max_num_seqs: 64}\n")
    engines = file.read()
    assert engines is not None
    assert [(engine.label, engine.hardware) for engine in engines] == [("a:1", ""), ("b:2", "H100")]
    assert file.read() is None
    path.write_text("- http://a:1\n  oops")
    assert file.read() is None
    path.write_text("[]")
    assert file.read() == ()


BOMB = b"- &a0 {x: 1, y: 2}\n" + b"".join(
    b"- &a%d {<<: [%b]}\n" % (level, b",".join([b"*a%d" % (level - 1)] * 9)) for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"engines: [http://a:1]", "must be a list"),
        (b"- {url: 'http://a:1', speed: 3}", r"entry 0.speed \(line 1\)"),
        (b"- 3", "entry 0"),
        (b"- http://a:1\n  oops", "not a URL"),
        (b"- http://a:1\n- http://a:1", "in lines 1 and 2, have the same name 'a:1'"),
        (b"- \x00", "not valid YAML"),
        (b"- http://a:1\n" * 1025, "at most 1024"),
        (b" " * (2**20 + 1), "larger than"),
        (b"[" * 100_000, "line 1: it is nested more than 4 deep"),
        (b"{a: " * 100_000, "nested more than 4"),
        (b"- " * 100_000, "nested more than 4"),
        (BOMB, "line 2: what an anchor names must hold no alias"),
        (b"- &a {b: *a}", "must hold no alias"),
        (b"- &a [" + b"x, " * 64 + b"x]", "more than 64 values"),
        (b"- &a x\n" + b"- *a\n" * 4097, "more than 4096 aliases"),
        (b"- [" + b"x, " * 65_536 + b"]", "more than 65536 values"),
        (b"- !!timestamp foo", "the tag 'tag:yaml.org,2002:timestamp' is of no use here"),
        (b"- !!bool foo", "the tag"),
        (b"- 2001-99-99", "not valid YAML: month"),
        (b"- {url: 'http://a:1', max_num_seqs: " + b"9" * 5000 + b"}", "not valid YAML: Exceeds the limit"),
        (
            b"- http://a:1\n- {url: 'http://b:1',\n   max_num_seqs: 1%b}" % (b"0" * 23),
            r"entry 1.max_num_seqs \(line 2\)",
        ),
        (b"- {url: 'http://a:1', max_model_len: 4294967296}", "entry 0.max_model_len"),
        (b"- {url: 'http://a:1', kv_capacity_tokens: .inf}", "entry 0.kv_capacity_tokens"),
        (b"- http://[::1:8000", "entry 0.url .*is not a URL: write one such as http://10.0.0.1:8000"),
        (b"- http://h:99999", "is not a URL"),
        (b"- http://h:0", "is not a URL"),
        (b"- http://", "is not a URL"),
        (b"- http://a..b:1", "is not a URL"),
        (b"- http://%b:1" % (b"a" * 64), "is not a URL"),
        (b"- {url: 'http://h:1', kind: vlm}", "entry 0.kind .*'vllm', 'sglang', 'openai' or 'emulated'"),
        (b'- "http://h\\0x:1"', "is not a URL"),
        (b'- "http://h:1\\r\\nX: y"', "is not a URL"),
        (b"- {url: ''}", "entry 0.url"),
        (b"- {url: 'http://h:1', advertise_url: 'http://h:x'}", "entry 0.advertise_url"),
        (b'- {url: "http://h:1", name: "a\\nb"}', r"entry 0.name \(line 1\): it must be one line"),
        (b"- {url: 'http://h:1', model: '%b'}" % (b"m" * 257), "entry 0.model"),
        (b"- {url: 'http://h:1', kv_events: 'tcp://h:99999'}", "entry 0.kv_events"),
    ],
)
def test_a_faulty_file_says_what_is_wrong(text: bytes, reason: str) -> None:
    """Nothing is built of what is too deep, or would become too large: the interpreter does not survive it, and a merge
    of merges takes minutes."""
    with pytest.raises(EngineFileError, match=reason):
        parse_engines(text)


def test_what_engines_have_in_common_may_be_said_once() -> None:
    text = (
        b"- &base {url: 'http://a:1', hardware: H100, max_num_seqs: 64}\n- {<<: *base, url: 'http://[::1]:8000/v1'}\n"
    )
    assert [(e.label, e.hardware, e.max_num_seqs) for e in parse_engines(text)] == [
        ("a:1", "H100", 64), ("[::1]:8000/v1", "H100", 64),
    ]  # fmt: skip


def test_a_faulty_file_is_looked_at_once_and_is_told_of_once(tmp_path: Path) -> None:
    path = tmp_path / "engines.yaml"
    path.write_bytes(b"- http://a:1\n")
    file = FileEngines(path, 1.0)
    good = file.read()
    with capture_logs() as logs:
        for _ in range(3):
            path.write_bytes(b"[" * 100_000)
            assert file.read() is None
        path.write_bytes(b"- http://a:1\n")
        assert file.read() == good
    assert [line["reason"] for line in logs] == ["line 1: it is nested more than 4 deep"]


# --- Kubernetes --------------------------------------------------------------------------------------------------


def endpoint_slice(name: str, *addresses: str, version: str = "1", **changes: Any) -> dict[str, Any]:
    """An EndpointSlice as the API server writes it; an address after `!` is not ready."""
    endpoints = [
        {"addresses": [a.lstrip("!")], "conditions": {"ready": a[0] != "!", "serving": True}} for a in addresses
    ]
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000}],
        **changes,
    }


def urls(slices: EndpointSlices) -> list[str]:
    return [each.url for each in slices.endpoints()]


def test_ready_endpoints_of_all_slices_are_engines() -> None:
    slices = EndpointSlices(None)
    dual = endpoint_slice("b", "10.0.0.1", addressType="FQDN")
    six = endpoint_slice("c", "fd00::1", addressType="IPv6", ports=[{"name": "", "port": 80}])
    unknown = endpoint_slice("d", "10.0.0.9")
    del unknown["endpoints"][0]["conditions"]["ready"]  # unknown counts as ready
    slices.replace([endpoint_slice("a", "10.0.0.2", "!10.0.0.3"), dual, six, unknown], "5")
    assert urls(slices) == ["http://10.0.0.2:8000", "http://10.0.0.9:8000", "http://[fd00::1]:80"]
    assert slices.apply({"type": "MODIFIED", "object": endpoint_slice("a", "!10.0.0.2", "10.0.0.3", version="6")})
    assert slices.apply({"type": "DELETED", "object": endpoint_slice("d", version="7")})
    assert slices.apply({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}})
    assert (urls(slices), slices.version) == (["http://10.0.0.3:8000", "http://[fd00::1]:80"], "8")
    assert not slices.apply({"type": "ERROR", "object": {"code": 410}})


def test_a_port_that_is_given_counts() -> None:
    slices = EndpointSlices(7000)
    slices.replace([endpoint_slice("a", "10.0.0.2")], "5")
    assert urls(slices) == ["http://10.0.0.2:7000"]


def labelled(name: str, role: str, *addresses: str) -> dict[str, Any]:
    """A slice of a Service that has this role's label."""
    metadata = {"name": name, "resourceVersion": "1", "labels": {"app": "vllm", "llm-d.ai/role": role}}
    return endpoint_slice(name, *addresses, metadata=metadata)


@pytest.mark.parametrize(
    ("labels", "role", "fault"),
    [
        (["prefill"], "prefill", ""),
        (["decode"], "decode", ""),
        (["prefill-decode"], "", ""),
        (["both"], "", ""),  # the same, as it was called before
        ([""], "", ""),
        (["both", "prefill-decode"], "", ""),
        (["decode", ""], "decode", ""),  # a Service of all engines beside that of a role
        (["Prefill"], "", "llm-d.ai/role=Prefill is none of prefill, decode, prefill-decode, both"),
        (["encode"], "", "llm-d.ai/role=encode is none of"),
        (["decode", "encode"], "", "llm-d.ai/role=encode is none of"),
        (["prefill", "decode"], "", "its Services say decode and prefill of it"),
        (["prefill-decode", "decode"], "", "its Services say decode and prefill-decode of it"),
    ],
)
def test_a_slices_label_is_the_role_of_its_engines(labels: list[str], role: str, fault: str) -> None:
    slices = EndpointSlices(None)
    named = [labelled(f"s{n}", label, "10.0.0.2") for n, label in enumerate(labels)]
    slices.replace([endpoint_slice("plain", "10.0.0.2", "10.0.0.3"), *named], "5")
    one, other = slices.endpoints()
    assert (one.role, one.fault[: len(fault)], bool(one.fault)) == (role, fault, bool(fault))
    assert (other.role, other.fault) == ("", "")


@dataclass
class ApiStub:
    """A small API server: `lists` are its answers to lists, in turn (the last one again and again), and what is put
    into `changes` goes to the watch that is open; None ends it."""

    lists: list[Any] = field(default_factory=list)
    changes: "queue.Queue[bytes | None]" = field(default_factory=queue.Queue)
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    def say(self, kind: str, item: dict[str, Any]) -> None:
        self.changes.put(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def watches(self) -> list[str]:
        return [query["resourceVersion"][0] for query in self.asked if "watch" in query]


@contextmanager
def api_server() -> Iterator[ApiStub]:
    stub = ApiStub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            stub.asked.append(query)
            stub.paths.append(url.path)
            stub.tokens.append(self.headers.get("Authorization", ""))
            if "watch" in query:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while (change := stub.changes.get()) is not None:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(change), change))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
                return
            status, page = stub.lists.pop(0) if len(stub.lists) > 1 else stub.lists[0]
            body = json.dumps(page).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield stub
    for _ in range(8):
        stub.changes.put(None)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def api() -> Iterator[ApiStub]:
    with api_server() as stub:
        yield stub


def page(*items: dict[str, Any], version: str, more: str = "") -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "namespace").write_text("serving")
    return tmp_path


class Watching:
    """KubernetesEngines that run inside the `async with` block, and the addresses that they found last."""

    def __init__(self, api: ApiStub, account: Path, selector: str = "app=vllm") -> None:
        self._engines = KubernetesEngines(
            KubernetesSource(selector), ApiServer.of_pod(api.url, account), retry_s=0.01
        )  # fmt: skip
        self.found: list[list[str]] = []
        self.roles: list[str] = []

    def _find(self, engines: tuple[EngineSettings, ...]) -> None:
        self.roles = [engine.role for engine in engines]
        self.found.append([engine.url[len("http://10.0.0.") :] for engine in engines])

    async def __aenter__(self) -> "Watching":
        self._task = asyncio.create_task(self._engines.run(self._find))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def last(self, *urls: str) -> None:
        await eventually(lambda: bool(self.found) and self.found[-1] == list(urls))


async def test_engines_follow_the_watch(api: ApiStub, account: Path) -> None:
    api.lists = [
        page(endpoint_slice("a", "10.0.0.1"), version="5", more="x y"),
        page(endpoint_slice("b", "10.0.0.2"), version="5"),
    ]
    async with Watching(api, account, "kubernetes.io/service-name=vllm") as watching:
        await watching.last("1:8000", "2:8000")
        api.say("MODIFIED", endpoint_slice("a", "10.0.0.1", "10.0.0.3", version="6"))
        await watching.last("1:8000", "2:8000", "3:8000")
        api.say("DELETED", endpoint_slice("b", version="7"))
        await watching.last("1:8000", "3:8000")
    assert set(api.paths) == {"/apis/discovery.k8s.io/v1/namespaces/serving/endpointslices"}
    assert {query["labelSelector"][0] for query in api.asked} == {"kubernetes.io/service-name=vllm"}
    assert set(api.tokens) == {"Bearer t0ken"}
    assert api.asked[1]["continue"] == ["x y"]


async def test_roles_follow_the_watch_and_a_wrong_one_is_told_of_once(api: ApiStub, account: Path) -> None:
    api.lists = [page(labelled("a", "prefill", "10.0.0.1"), labelled("b", "decode", "10.0.0.2"), version="5")]
    async with Watching(api, account) as watching:
        await watching.last("1:8000", "2:8000")
        assert watching.roles == ["prefill", "decode"]
        with capture_logs() as logs:
            api.say("MODIFIED", labelled("b", "decoder", "10.0.0.2"))
            await eventually(lambda: watching.roles == ["prefill", ""])
            api.say("MODIFIED", labelled("a", "decode", "10.0.0.1", "10.0.0.3"))
            await eventually(lambda: watching.roles == ["decode", "", "decode"])
    assert [(each["event"], each["url"]) for each in logs] == [("engine_role_unusable", "http://10.0.0.2:8000")]


async def test_a_watch_that_ends_goes_on_where_it_was(api: ApiStub, account: Path) -> None:
    api.lists = [page(endpoint_slice("a", "10.0.0.1"), version="5")]
    async with Watching(api, account) as watching:
        await watching.last("1:8000")
        api.say("ADDED", endpoint_slice("b", "10.0.0.2", version="9"))
        api.changes.put(None)
        api.say("ADDED", endpoint_slice("c", "10.0.0.3", version="10"))
        await watching.last("1:8000", "2:8000", "3:8000")
        (account / "token").write_text("renewed")
        api.changes.put(None)
        await eventually(lambda: len(api.watches()) == 3)
    assert api.watches() == ["5", "9", "10"]
    assert len(api.asked) == 4  # one list
    assert api.tokens[-1] == "Bearer renewed"


@pytest.mark.parametrize("how", [{"type": "ERROR", "object": {"code": 410}}, {"type": "ADDED"}])
async def test_a_place_that_was_forgotten_is_read_anew_and_nonsense_is_survived(
    api: ApiStub, account: Path, how: dict[str, Any]
) -> None:
    api.lists = [
        page(endpoint_slice("a", "10.0.0.1"), version="5"),
        page(endpoint_slice("z", "10.0.0.9"), version="50"),
    ]
    async with Watching(api, account) as watching:
        await watching.last("1:8000")
        api.changes.put(json.dumps(how).encode() + b"\n")
        api.changes.put(None)
        if how["type"] == "ERROR":
            await watching.last("9:8000")
        api.say("ADDED", endpoint_slice("b", "10.0.0.2", version="60"))
        await eventually(lambda: "2:8000" in watching.found[-1])


async def test_an_api_server_that_refuses_changes_nothing_and_is_asked_again(api: ApiStub, account: Path) -> None:
    api.lists = [(403, {"message": "no"}), (500, {}), page(endpoint_slice("a", "10.0.0.1"), version="5")]
    async with Watching(api, account) as watching:
        await watching.last("1:8000")
    assert watching.found == [["1:8000"]]


def test_outside_of_a_cluster_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(OSError, match="this is not a pod"):
        ApiServer.of_pod(account=tmp_path)
