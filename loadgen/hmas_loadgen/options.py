"""Turns the options of the command line into plans, each with its result folder. Every error is a ValueError whose
message says what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson
import yaml

from hmas_loadgen.plan import Api, Lengths, LoadPlan, Target
from hmas_loadgen.prompts import Corpus, load_corpus
from hmas_loadgen.source import Source
from hmas_loadgen.workflows.source import WorkflowSource
from hmas_loadgen.worth import read_worth

MODELS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `hmas load run` as given, not yet checked. Several rates or seeds make a series of runs."""

    trace: str
    url: Sequence[str] | None = None
    model: str = ""
    api: str = "chat"
    replay_field: bool = False
    natural: bool = False
    send_slo: bool = False
    api_key: str | None = None
    tenants: Path | None = None
    header: Sequence[str] | None = None
    body: Sequence[str] | None = None
    start: float = 0.0
    duration: float | None = None
    rate: Sequence[float] | None = None
    factor: float | None = None
    by_time: bool = False
    speed: float = 1.0
    seed: Sequence[int] | None = None
    warmup: float = 0.0
    timeout: float = 600.0
    drain: float = 60.0
    max_tokens: int | None = None
    processes: int = 1
    prompts: Path | None = None
    out: Path | None = None
    resume: bool = False
    workflow: str = ""
    job_budget: float | None = None
    name_jobs: bool = False
    worth: Path | None = None


@dataclass(frozen=True, slots=True)
class TenantMix:
    """One tenant of the file that --tenants names: its share of the requests (any positive scale), and its API key or
    None."""

    share: float
    key: str | None


def read_tenants(path: Path | None) -> dict[str, TenantMix]:
    """Reads the YAML file of --tenants: `name: {share: 1, key: ...}`, where both fields may be left out. Returns {} for
    no path; raises ValueError if the file has another form."""
    if path is None:
        return {}
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"--tenants: {path} is not YAML: {error}") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(f"--tenants: {path} must map at least one tenant name to {{share, key}}")
    found: dict[str, TenantMix] = {}
    for name, fields in content.items():
        fields = fields or {}
        if not isinstance(fields, dict) or set(fields) - {"share", "key"}:
            raise ValueError(f"--tenants: {path}: tenant {name!r} must have no fields but share and key")
        found[str(name)] = TenantMix(float(fields.get("share", 1.0)), fields.get("key"))
    return found


def _pairs(items: Sequence[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items or ():
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise ValueError(f"{option} {item!r} must have the form NAME=VALUE")
        pairs[name] = value
    return pairs


def _json_pairs(items: Sequence[str] | None) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in _pairs(items, "--body").items():
        try:
            fields[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise ValueError(f"--body {name}: {value!r} is not JSON (quote a text: {name}='\"text\"')") from None
    return fields


def _lengths(options: RunOptions) -> Lengths:
    if options.natural:
        return Lengths.NATURAL
    return Lengths.REPLAY_FIELD if options.replay_field else Lengths.DIRECT


def first_model(base_url: str, key: str | None) -> str:
    """Asks `GET /v1/models` of `base_url`, with the API key `key` if given, and returns the first model listed. Raises
    ValueError if the target does not answer or lists none. Blocks."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = f"{base_url.rstrip('/')}/v1/models"
    try:
        with urlopen(Request(address, headers=headers), timeout=MODELS_TIMEOUT_S) as response:
            return str(orjson.loads(response.read(1 << 20))["data"][0]["id"])
    except (URLError, OSError, orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise ValueError(f"{address} lists no model ({error}); start the target or give --model") from None


def build_target(options: RunOptions, tenants: Mapping[str, TenantMix]) -> Target:
    """Returns the endpoint that all runs of the series send to. Raises ValueError for options that are missing or
    wrong."""
    if not options.url:
        raise ValueError("no target: give --url http://HOST:PORT (repeat it to balance over several)")
    if options.api not in set(Api):
        raise ValueError(f"--api {options.api!r} is not known: use {' or '.join(Api)}")
    keys = {name: tenant.key for name, tenant in tenants.items() if tenant.key}
    model = options.model or first_model(options.url[0], options.api_key or next(iter(keys.values()), None))
    return Target(
        base_urls=tuple(options.url),
        model=model,
        api=Api(options.api),
        lengths=_lengths(options),
        api_key=options.api_key,
        tenant_keys=keys,
        headers=_pairs(options.header, "--header"),
        body=_json_pairs(options.body),
        send_slo=options.send_slo,
        name_jobs=options.name_jobs,
    )


def build_plans(options: RunOptions) -> list[tuple[LoadPlan, Path]]:
    """Returns one plan and its result folder per rate and seed. A single run's folder is --out itself; the runs of a
    series get one folder each below it."""
    tenants = read_tenants(options.tenants)
    target = build_target(options, tenants)
    name = Path(options.workflow or options.trace).name.split(".")[0]
    root = options.out or Path("out") / "load" / name
    variants = [(rate, seed) for rate in options.rate or (None,) for seed in options.seed or (0,)]
    plans: list[tuple[LoadPlan, Path]] = []
    for rate, seed in variants:
        label = "-".join([name, *([f"r{rate:g}"] if rate is not None else []), f"s{seed}"])
        source = _source(options, rate, seed, {tenant: fields.share for tenant, fields in tenants.items()})
        plan = _plan(options, label, source, target)
        plans.append((plan, root if len(variants) == 1 else root / label))
    return plans


def _source(options: RunOptions, rate: float | None, seed: int, shares: Mapping[str, float]) -> Source | WorkflowSource:
    if options.workflow:
        if options.start or options.factor is not None or options.by_time or options.speed != 1.0:
            raise ValueError("--start, --factor, --by-time and --speed change a trace; jobs have --rate and --duration")
        return WorkflowSource(
            workflow=options.workflow,
            jobs_per_s=rate,
            duration_s=options.duration,
            budget_s=options.job_budget,
            seed=seed,
            tenants=shares,
        )
    if options.job_budget is not None or options.name_jobs:
        raise ValueError("--job-budget and --name-jobs are about jobs: give --workflow")
    return Source(
        trace=options.trace,
        start_s=options.start,
        duration_s=options.duration,
        rate_rps=rate,
        factor=options.factor,
        by_time=options.by_time,
        speed=options.speed,
        seed=seed,
        tenants=shares,
    )


def _plan(options: RunOptions, name: str, source: Source | WorkflowSource, target: Target) -> LoadPlan:
    settings: dict[str, Any] = {
        "warmup_s": options.warmup,
        "timeout_s": options.timeout,
        "drain_s": options.drain,
        "max_tokens": options.max_tokens,
        "processes": options.processes,
        "worth": read_worth(options.worth),
    }
    return LoadPlan(name=name, trace=source.load(), target=target, seed=source.seed, **settings)


def load_prompts(folder: Path | None, data: Path | None) -> Corpus | None:
    """Reads labelled prompts from `folder` (--prompts), otherwise from `data`/prompts ($HMAS_DATA). Returns None if
    there are none, so that prompts are made of synthetic text."""
    if folder is not None:
        return load_corpus(folder)
    if data is not None and (data / "prompts").is_dir():
        return load_corpus(data / "prompts")
    return None
