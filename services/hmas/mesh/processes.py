"""Turns options into processes: what the embedded mesh starts, on which ports, and with which settings."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_urlsafe

from hmas.engine.named import named_profile
from hmas.mesh.nats_server import nats_spec, password_file, write_secret
from hmas.mesh.options import MeshOptions
from hmas.mesh.paired_engines import CONNECTOR, KV_TRANSFER, split_rule
from hmas.mesh.planned_engines import DRAIN_S, UNREAD_S, PlannedEngines
from hmas.mesh.planned_pools import PlanFolder
from hmas.mesh.ports import PortRefused, check_wanted, free_port
from hmas.mesh.process import ProcessSpec
from hmas.mesh.secrets import RECOGNISED
from hmas.mesh.state import MeshState
from hmas.wire.permissions import OPERATOR
from hmas.worker.discovery.source import EngineSource, FileSource

CONTROL_AGENTS = ("qos", "meta", "statera")
SHARING = 2  # workers that share the engines of a source, so that one takes over from the other


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """The processes of an embedded mesh, in order of start, and their URLs.

    A process in `first` must be ready before the next starts. `ready_urls` (readiness checks) and `ops_urls` (metrics
    and readiness of services) are by process name, and so is `attached`: the engines of each worker that has engines
    of somebody else, which need not be up.
    """

    processes: tuple[ProcessSpec, ...]
    first: frozenset[str]
    ready_urls: Mapping[str, str]
    attached: Mapping[str, tuple[str, ...]]
    gateway_url: str
    nats_url: str
    nats_password_file: str
    ops_token_file: str
    pool: str
    engine_urls: tuple[str, ...]
    ops_urls: Mapping[str, str]
    console_url: str
    profile: str  # of emulated engines, "" for others
    planned: PlannedEngines | None  # the engines of a plan, which come and go
    console_token_file: str
    console_admin_token_file: str
    roles: Mapping[str, str]  # of the engines that hand KV over, by URL

    def state(self, pids: dict[str, int]) -> MeshState:
        return MeshState(
            gateway_url=self.gateway_url,
            nats_url=self.nats_url,
            nats_password_file=self.nats_password_file,
            ops_token_file=self.ops_token_file,
            pool=self.pool,
            engine_urls=self.engine_urls,
            ops_urls=dict(self.ops_urls),
            pids=pids,
            console_url=self.console_url,
            profile=self.profile,
            plan_folder=str(self.planned.folder) if self.planned is not None else "",
            plan_cards=self.planned.cards if self.planned is not None else "",
        )


def module(name: str, *args: str) -> list[str]:
    return [sys.executable, "-m", f"hmas.{name}", *args]


def wanted_ports(options: MeshOptions) -> set[int]:
    """Returns the ports that an embedded mesh must have because its options name them. Raises PortRefused if one of
    them cannot be bound."""
    wanted = [(options.port, options.host, "--port")]
    if options.nats_url is None:
        wanted.append((options.nats_port, "127.0.0.1", "--nats-port"))
    taken: set[int] = set()
    for port, host, option in wanted:
        if port in taken:
            raise PortRefused(f"port {port} is wanted twice, by --port and {option}: give two ports")
        if port:
            check_wanted(port, host, option)
            taken.add(port)
    return taken


class _Builder:
    """Collects the processes of a plan and assigns their ports."""

    def __init__(self, options: MeshOptions) -> None:
        self.options = options
        self.processes: list[ProcessSpec] = []
        self.first: set[str] = set()
        self.ready: dict[str, str] = {}
        self.ops: dict[str, str] = {}
        self.nats_url = options.nats_url or ""
        self.secrets = options.data_dir.resolve() / "secrets"
        self.secret_file, self.ops_token_file = self.secrets / "mesh", self.secrets / "ops"
        self.plan_folder = PlanFolder(options.data_dir.resolve() / "plan")
        self.console_token, self.console_admin = self.secrets / "console", self.secrets / "console-admin"
        self._taken = wanted_ports(options)  # so that no draw takes one of them
        self.planned: PlannedEngines | None = None

    def port(self, preferred: int = 0, host: str = "127.0.0.1") -> int:
        """Returns a free port that this plan has not assigned yet: `preferred` if possible."""
        port = free_port(preferred, host)
        while port in self._taken:
            port = free_port(host=host)
        self._taken.add(port)
        return port

    def nats(self) -> None:
        if self.options.nats_url is not None:
            return
        port = self.options.nats_port or self.port()
        self.nats_url = f"nats://127.0.0.1:{port}"
        self.processes.append(nats_spec(port, self.options.data_dir, self.secrets))
        self.first.add("nats")
        self.ready["nats"] = f"tcp://127.0.0.1:{port}"

    def password_file(self, user: str) -> str:
        """Returns the path of the file with the password of a user of the embedded server."""
        return str(password_file(self.secrets, user))

    def engines(self) -> tuple[str, ...]:
        """Returns the URLs of the given engines; without any, adds emulated engines to the plan and returns theirs.
        Adds those of an operator's plan, which stand in files."""
        if self.options.planned is not None:
            self.planned = PlannedEngines(self.options.planned, self.plan_folder, self.port, partial(module, "engine"))
            self.processes += self.planned.first()
        if self.options.engine_urls:
            return self.options.engine_urls
        urls = []
        roles = self.options.emulated_roles
        for number in range(1, self.options.emulated + 1):
            name, port = f"engine-{number}", self.port()
            argv = module("engine", "--profile", self.options.profile, "--port", str(port))
            argv += ["--served-model-name", self.options.pool]
            argv += ["--kv-transfer-config", CONNECTOR] if roles else []
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
            "HMAS_OPS_TOKEN_FILE": str(self.ops_token_file),
        }
        if service in RECOGNISED:
            common["HMAS_MESH_SECRET_FILE"] = str(self.secret_file)
        if self.options.nats_url is None:
            common |= {"HMAS_NATS_USER": service, "HMAS_NATS_PASSWORD_FILE": self.password_file(service)}
        self.ops[name] = f"http://127.0.0.1:{port}"
        self.ready[name] = f"{self.ops[name]}/ready"
        given = self.options.settings.get(service, {})
        env = {**given, **common, **env, **self.options.extra_env}
        spec = ProcessSpec(name, module(service), env, stop_grace_s=30.0)
        self.processes.append(spec)

    def console(self) -> str:
        """Adds the console, if one is wanted, and returns its URL, else "". The mesh never waits for it."""
        if self.options.console_port is None:
            return ""
        port = self.port(self.options.console_port)
        env = {
            "HMAS_INSTANCE": "console",
            "HMAS_NATS_URL": self.nats_url,
            "HMAS_LOG_LEVEL": self.options.log_level,
            "HMAS_CONSOLE_PORT": str(port),
            "HMAS_CONSOLE_TOKEN_FILE": str(self.console_token),
            "HMAS_CONSOLE_ADMIN_TOKEN_FILE": str(self.console_admin),
        }
        if self.options.nats_url is None:
            env |= {"HMAS_NATS_USER": OPERATOR, "HMAS_NATS_PASSWORD_FILE": self.password_file(OPERATOR)}
        env |= _rehearsals(self.options)
        for file in (self.console_token, self.console_admin):
            write_secret(file, token_urlsafe(32))
        env = {**self.options.settings.get("console", {}), **env, **self.options.extra_env}
        self.processes.append(ProcessSpec("console", module("console"), env))
        return f"http://127.0.0.1:{port}"


def make_plan(options: MeshOptions) -> MeshPlan:
    """Plans the processes of an embedded mesh, picks their ports and makes its data directory.

    Raises NatsBinaryMissing, PortRefused or ValueError.
    """
    if options.nats_url is None and options.setting("gateway", "HMAS_MESH_CA_FILE") is not None:
        raise ValueError(
            "`hmas up` with a NATS server of its own stays on the loopback, without TLS between its services: unset "
            "HMAS_MESH_CA_FILE, or give --nats-url"
        )
    build = _Builder(options)
    for folder in (options.data_dir, build.secrets):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    for file in (build.secret_file, build.ops_token_file):
        write_secret(file, token_urlsafe(32))
    build.nats()
    engine_urls = build.engines()
    if options.emulated_roles:
        options = replace(options, roles=dict(zip(engine_urls, options.emulated_roles, strict=True)))
    cognition = {}
    for service in ("perception", "prediction"):
        port = build.port()
        cognition[service] = f"127.0.0.1:{port}"
        build.service(service, service, {"HMAS_GRPC_HOST": "127.0.0.1", "HMAS_GRPC_PORT": str(port)})
    gateway_port = options.port or build.port(host=options.host)
    host = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    gateway_url = f"{'https' if options.tls_cert else 'http'}://{host}:{gateway_port}"
    for service in CONTROL_AGENTS:
        # The image's environment names one port for all, of which each would have a container of its own.
        own = {"HMAS_GRPC_HOST": "127.0.0.1", "HMAS_GRPC_PORT": "0"}
        build.service(service, service, own | (_meta(options, build.plan_folder) if service == "meta" else {}))
    workers = {f"worker-{number}": urls for number, urls in enumerate(_shared_out(options, engine_urls), 1)}
    for name, urls in workers.items():
        build.service("worker", name, worker_env(options, urls))
    build.service("gateway", "gateway", _gateway(options, gateway_port, cognition, engine_urls))
    console_url = build.console()
    build.ready["gateway"] = f"{gateway_url}/ready"
    return MeshPlan(
        processes=tuple(build.processes),
        first=frozenset(build.first),
        ready_urls=build.ready,
        attached=workers if options.engine_urls and not options.sources else {},
        gateway_url=gateway_url,
        nats_url=build.nats_url,
        nats_password_file=build.password_file(OPERATOR) if options.nats_url is None else "",
        ops_token_file=str(build.ops_token_file),
        pool=options.pool,
        engine_urls=engine_urls,
        ops_urls=build.ops,
        console_url=console_url,
        profile="" if options.engine_urls else options.profile,
        planned=build.planned,
        console_token_file=str(build.console_token) if console_url else "",
        console_admin_token_file=str(build.console_admin) if console_url else "",
        roles=options.roles,
    )


def _shared_out(options: MeshOptions, engine_urls: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns the engines of each worker, which all serve one model. Each model has a worker, however few are asked
    for, and so has an engine whose model may turn out to be another one. One worker has all that have roles."""
    by_pool: dict[tuple[str, str], list[str]] = {}
    paired = tuple(url for url in engine_urls if url in options.roles)
    for url in engine_urls:
        if url in options.roles:
            continue
        by_pool.setdefault((options.pool_of(url), url if url in options.unnamed else ""), []).append(url)
    shares = [paired] if paired else []
    if options.sources:
        return [(url,) for url in engine_urls for _ in range(options.workers or SHARING)]
    for urls in by_pool.values():
        asked = options.workers * len(urls) // len(engine_urls)
        workers = min(max(1, asked), len(urls)) if options.workers else len(urls)
        shares += [tuple(urls[number::workers]) for number in range(workers)]
    return shares


def _meta(options: MeshOptions, folder: PlanFolder) -> dict[str, str]:
    planned = {} if options.planned is None else options.planned.settings(folder)
    return {**_rehearsals(options), **_llm(options), **planned}


def _rehearsals(options: MeshOptions) -> dict[str, str]:
    """Returns the setting by which rehearsals simulate emulated engines: what they are need not be measured."""
    return {} if options.engine_urls else {"HMAS_REHEARSAL_PROFILE": options.profile}


def _llm(options: MeshOptions) -> dict[str, str]:
    """Returns the settings of the language model that proposes, if one is named."""
    if options.llm_url is None:
        return {}
    key = {"HMAS_LLM_API_KEY_FILE": str(options.llm_api_key_file)} if options.llm_api_key_file else {}
    return {
        "HMAS_SELECTOR": options.setting("meta", "HMAS_SELECTOR") or "llm",
        "HMAS_LLM_URL": options.llm_url,
        "HMAS_LLM_MODEL": options.llm_model,
        **key,
    }


def worker_env(options: MeshOptions, urls: tuple[str, ...]) -> dict[str, str]:
    """Returns the settings of the worker that has these engines."""
    pool = options.pool_of(urls[0])
    env = {
        "HMAS_POOL": pool,
        "HMAS_ENGINES": json.dumps([_engine(options, url) for url in urls]) if not options.sources else urls[0],
        "HMAS_STREAM_HOST": "127.0.0.1",
        "HMAS_STREAM_PORT": "0",
    }
    if options.planned is not None:
        env |= {"HMAS_LEAVE_GRACE_S": f"{DRAIN_S:.0f}", "HMAS_DISCOVERY_PERIOD_S": f"{UNREAD_S / 5.0:g}"}
    if options.sources and options.max_num_seqs:
        env["HMAS_MAX_NUM_SEQS"] = str(options.max_num_seqs)
    if options.sources and options.hardware:
        env["HMAS_HARDWARE"] = options.hardware
    if urls[0] in options.roles:
        env["HMAS_SPLIT"] = split_rule(options)
    if options.aliases_of(pool):
        env["HMAS_ALIASES"] = ",".join(options.aliases_of(pool))
    if options.engine_api_key_file:
        env["HMAS_ENGINE_API_KEY_FILE"] = str(options.engine_api_key_file)
    return env


def _engine(options: MeshOptions, url: str) -> dict[str, object]:
    """Returns an engine's settings: its URL and what engines do not report over HTTP (hardware, max_num_seqs)."""
    known: dict[str, object] = {"hardware": options.hardware, "max_num_seqs": options.max_num_seqs}
    if not options.engine_urls:
        profile = named_profile(options.profile)
        known = {"kind": "emulated", "hardware": profile.hardware, "max_num_seqs": profile.limits.max_num_seqs}
    if url in options.roles:
        known |= {"role": options.roles[url], "kv_transfer": KV_TRANSFER}
    return {"url": url, **{name: value for name, value in known.items() if value}}


def _gateway(
    options: MeshOptions, port: int, cognition: Mapping[str, str], engine_urls: tuple[str, ...]
) -> dict[str, str]:
    env = {
        "HMAS_ENGINE_ENDPOINTS": ",".join(_reached(options, engine_urls)),
        "HMAS_HOST": options.host,
        "HMAS_PORT": str(port),
        "HMAS_PERCEPTION_ADDRESS": cognition["perception"],
        "HMAS_PREDICTION_ADDRESS": cognition["prediction"],
        "HMAS_USAGE_DIR": str(options.data_dir.resolve() / "usage"),
        "HMAS_REPLAY_FIELD": str(options.replay).lower(),
    }
    if options.engine_api_key_file:
        env["HMAS_ENGINE_API_KEY_FILE"] = str(options.engine_api_key_file)
    if options.tls_cert is not None:
        env["HMAS_TLS_CERT_FILE"] = str(options.tls_cert)
    if options.tls_key is not None:
        env["HMAS_TLS_KEY_FILE"] = str(options.tls_key)
    if options.tenants is not None:
        env["HMAS_TENANTS_FILE"] = str(options.tenants)
    return env


def _reached(options: MeshOptions, engine_urls: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the engines, or patterns of them, that the gateway may send to."""
    if options.planned is not None:
        return ("http://127.0.0.1:*",)
    return tuple(map(_any_of, options.sources)) or engine_urls


def _any_of(source: EngineSource) -> str:
    """Returns the pattern of the engines that a source may name: the author of the source says which they are."""
    port = None if isinstance(source, FileSource) else source.port
    return "http://*:*,https://*:*" if port is None else f"http://*:{port}"
