"""Turns options into processes: what the embedded mesh starts, on which ports, and with which settings."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hmas.engine.core.profile import builtin_profile
from hmas.mesh.nats_server import NATS_USER, free_port, nats_spec
from hmas.mesh.options import MeshOptions
from hmas.mesh.process import ProcessSpec
from hmas.mesh.state import MeshState

CONTROL_AGENTS = ("qos", "meta", "statera")


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """The processes of an embedded mesh, in order of start, and their URLs.

    A process in `first` must be ready before the next starts. `ready_urls` (readiness checks) and `ops_urls` (metrics
    and readiness of services) are by process name.
    """

    processes: tuple[ProcessSpec, ...]
    first: frozenset[str]
    ready_urls: Mapping[str, str]
    gateway_url: str
    nats_url: str
    nats_password_file: str
    pool: str
    engine_urls: tuple[str, ...]
    ops_urls: Mapping[str, str]

    def state(self, pids: dict[str, int]) -> MeshState:
        return MeshState(
            gateway_url=self.gateway_url,
            nats_url=self.nats_url,
            nats_password_file=self.nats_password_file,
            pool=self.pool,
            engine_urls=self.engine_urls,
            ops_urls=dict(self.ops_urls),
            pids=pids,
        )


def module(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", f"hmas.{name}", *args]


class _Builder:
    """Collects the processes of a plan and assigns their ports."""

    def __init__(self, options: MeshOptions) -> None:
        self.options = options
        self.processes: list[ProcessSpec] = []
        self.first: set[str] = set()
        self.ready: dict[str, str] = {}
        self.ops: dict[str, str] = {}
        self.nats_url = options.nats_url or ""
        self.nats_password_file: Path | None = None  # of the embedded server; None with an external one
        self._taken: set[int] = set()

    def port(self, preferred: int = 0) -> int:
        """Returns a free port that this plan has not assigned yet: `preferred` if possible."""
        port = free_port(preferred)
        while port in self._taken:
            port = free_port()
        self._taken.add(port)
        return port

    def nats(self) -> None:
        if self.options.nats_url is not None:
            return
        port = self.port(self.options.nats_port)
        self.nats_url = f"nats://127.0.0.1:{port}"
        self.nats_password_file = self.options.data_dir.resolve() / "nats.password"
        self.processes.append(nats_spec(port, self.options.data_dir, self.nats_password_file))
        self.first.add("nats")
        self.ready["nats"] = f"tcp://127.0.0.1:{port}"

    def engines(self) -> tuple[str, ...]:
        """Returns the URLs of the given engines; without any, adds emulated engines to the plan and returns theirs."""
        if self.options.engine_urls:
            return self.options.engine_urls
        urls = []
        for number in range(1, self.options.emulated + 1):
            name, port = f"engine-{number}", self.port()
            argv = module("engine", "--profile", self.options.profile, "--port", str(port))
            argv += ["--served-model-name", self.options.pool]
            # An emulated engine shares the machine's cores, but its steps must end on time, and the kernel lets a
            # woken process wait for a whole time slice of another, about 3 ms.
            self.processes.append(ProcessSpec(name, argv, prompt=True))
            urls.append(f"http://127.0.0.1:{port}")
            self.ready[name] = f"{urls[-1]}/health"
        return tuple(urls)

    def service(self, service: str, name: str, env: Mapping[str, str]) -> None:
        """Adds a service of the mesh with its ops port; it counts as ready when its /ready answers 2xx."""
        port = self.port()
        common = {
            "HMAS_INSTANCE": name,
            "HMAS_NATS_URL": self.nats_url,
            "HMAS_OPS_PORT": str(port),
            "HMAS_LOG_LEVEL": self.options.log_level,
        }
        if self.nats_password_file is not None:
            common |= {"HMAS_NATS_USER": NATS_USER, "HMAS_NATS_PASSWORD_FILE": str(self.nats_password_file)}
        self.ops[name] = f"http://127.0.0.1:{port}"
        self.ready[name] = f"{self.ops[name]}/ready"
        spec = ProcessSpec(name, module(service), {**common, **env, **self.options.extra_env}, stop_grace_s=30.0)
        self.processes.append(spec)


def make_plan(options: MeshOptions) -> MeshPlan:
    """Plans the processes of an embedded mesh, picks their ports and makes its data directory.

    Raises NatsBinaryMissing.
    """
    options.data_dir.mkdir(parents=True, exist_ok=True)
    options.data_dir.chmod(0o700)
    build = _Builder(options)
    build.nats()
    engine_urls = build.engines()
    cognition = {}
    for service in ("perception", "prediction"):
        port = build.port()
        cognition[service] = f"127.0.0.1:{port}"
        build.service(service, service, {"HMAS_GRPC_HOST": "127.0.0.1", "HMAS_GRPC_PORT": str(port)})
    for service in CONTROL_AGENTS:
        build.service(service, service, _llm(options) if service == "meta" else {})
    workers = min(options.workers or len(engine_urls), len(engine_urls))
    for number in range(1, workers + 1):
        urls = engine_urls[number - 1 :: workers]
        build.service("worker", f"worker-{number}", _worker(options, urls))
    gateway_port = build.port(options.port)
    build.service("gateway", "gateway", _gateway(options, gateway_port, cognition, engine_urls))
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    gateway_url = f"http://{host}:{gateway_port}"
    build.ready["gateway"] = f"{gateway_url}/ready"
    build.ops["gateway"] = gateway_url
    return MeshPlan(
        processes=tuple(build.processes),
        first=frozenset(build.first),
        ready_urls=build.ready,
        gateway_url=gateway_url,
        nats_url=build.nats_url,
        nats_password_file=str(build.nats_password_file or ""),
        pool=options.pool,
        engine_urls=engine_urls,
        ops_urls=build.ops,
    )


def _llm(options: MeshOptions) -> dict[str, str]:
    if options.llm_url is None:
        return {}
    key = {"HMAS_LLM_API_KEY_FILE": str(options.llm_api_key_file)} if options.llm_api_key_file else {}
    return {"HMAS_SELECTOR": "llm", "HMAS_LLM_URL": options.llm_url, "HMAS_LLM_MODEL": options.llm_model, **key}


def _worker(options: MeshOptions, urls: tuple[str, ...]) -> dict[str, str]:
    env = {
        "HMAS_POOL": options.pool,
        "HMAS_ENGINES": json.dumps([_engine(options, url) for url in urls]),
        "HMAS_STREAM_HOST": "127.0.0.1",
        "HMAS_STREAM_PORT": "0",
    }
    if options.aliases:
        env["HMAS_ALIASES"] = ",".join(options.aliases)
    if options.engine_api_key_file:
        env["HMAS_ENGINE_API_KEY_FILE"] = str(options.engine_api_key_file)
    return env


def _engine(options: MeshOptions, url: str) -> dict[str, object]:
    """Returns an engine's settings: its URL and what engines do not report over HTTP (hardware, max_num_seqs)."""
    if options.engine_urls:
        known = {"hardware": options.hardware, "max_num_seqs": options.max_num_seqs}
        return {"url": url, **{name: value for name, value in known.items() if value}}
    limits = builtin_profile(options.profile).limits
    return {"url": url, "kind": "emulated", "hardware": options.profile, "max_num_seqs": limits.max_num_seqs}


def _gateway(
    options: MeshOptions, port: int, cognition: Mapping[str, str], engine_urls: tuple[str, ...]
) -> dict[str, str]:
    env = {
        "HMAS_ENGINE_ENDPOINTS": ",".join(engine_urls),
        "HMAS_HOST": options.host,
        "HMAS_PORT": str(port),
        "HMAS_PERCEPTION_ADDRESS": cognition["perception"],
        "HMAS_PREDICTION_ADDRESS": cognition["prediction"],
        "HMAS_REPLAY_FIELD": str(options.replay).lower(),
    }
    if options.engine_api_key_file:
        env["HMAS_ENGINE_API_KEY_FILE"] = str(options.engine_api_key_file)
    if options.tenants is not None:
        env["HMAS_TENANTS_FILE"] = str(options.tenants)
    return env
