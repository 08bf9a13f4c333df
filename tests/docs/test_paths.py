"""Every file, module and command that docs and docstrings name exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT, files, folders, written

_QUOTED = re.compile(r"`([^`\n]+)`")
_QUOTED_IN_PROSE = re.compile(r"`((?:[^`\n]|\n(?!\n))+)`")  # may go on in the next line
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_MODULE = re.compile(r"(?<!\w)(?:hmas|hmas_loadgen|hmas_lab|experiments|benchmarks)(?:\.[A-Za-z_]\w*)+")
_COMMAND = re.compile(r"(?<![\w-])-m (hmas|hmas_loadgen|hmas_lab|experiments|benchmarks|docs)\b((?:\.\w+)*)")
_PATH = re.compile(r"(?:[\w.*<>-]+/)*[\w.*<>-]+/?")
_ROOTS = (
    "services",
    "loadgen",
    "lab",
    "experiments",
    "benchmarks",
    "examples",
    "tests",
    "docs",
    "deploy",
    "protos",
    ".ci",
)
_IMPORTED_FROM = ("services", "loadgen", "lab", ".")
# Subjects, groups of entry points, files of users.
_NOT_MODULES = ("hmas.v1", "hmas.topologies", "hmas.selectors", "hmas.yaml", "hmas.schema.json")
_UPSTREAM = (  # files of the projects that baselines were written after
    "req_queue/chunked_prefill/impl.py",
    "managers/schedule_policy.py",
    "managers/schedule_batch.py",
    "server_args.py",
    "model_runner_kv_cache_mixin.py",
    "api_cli.py",
    "sarathi/config/config.py",
    "vllm/engine/arg_utils.py",
    "deadline_scheduler.py",
)


def paths(text: str) -> Iterator[str]:
    """Words of quoted code that can only be a file or folder of ours: Python, Markdown, or below a folder of ours."""
    for word in text.split():
        path = word.strip(",;:()\"'")
        if not _PATH.fullmatch(path) or path.startswith(("-", "*")):
            continue
        first = path.split("/")[0]
        if path.endswith((".py", ".md")) or ("/" in path and (first in _ROOTS or first in rooms())):
            yield path.rstrip("/").removeprefix("./")


def rooms() -> frozenset[str]:
    return frozenset(folder.split("/")[2] for folder in folders() if re.fullmatch(r"services/hmas/\w+", folder))


def exists(path: str, below: str = "") -> bool:
    """Whether a file or folder of ours, below that folder, has this path or ends with it. `*` and `<name>` stand for
    one name."""
    pattern = re.compile(rf"(?:.*/)?{re.sub(r'<[^<>]*>|[*]', '[^/]*', path)}".replace(".py", r"\.py"))
    return any(pattern.fullmatch(name) for name in (*files(), *folders()) if name.startswith(below))


def module_exists(dotted: str) -> bool:
    """A module or package, or a name that stands in the text of the one before it."""
    names = dotted.split(".")
    if _source(names) is not None:
        return True
    owner = _source(names[:-1])
    return owner is not None and re.search(rf"\b{names[-1]}\b", owner) is not None


def _source(names: list[str]) -> str | None:
    for root in _IMPORTED_FROM:
        path = ROOT.joinpath(root, *names)
        if path.is_dir():
            return (path / "__init__.py").read_text() if (path / "__init__.py").exists() else ""
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py").read_text()
    return None


def runs(dotted: str) -> bool:
    """Whether `python -m` can run it."""
    path = dotted.replace(".", "/")
    return any((ROOT / r / f"{path}.py").exists() or (ROOT / r / path / "__main__.py").exists() for r in _IMPORTED_FROM)


def lost(name: str, text: str) -> Iterator[str]:
    """What the text of file `name` points to and nothing has."""
    code = name.endswith(".py")
    quoted = _QUOTED.findall(text) if code else _QUOTED_IN_PROSE.findall(_FENCE.sub("", text))
    if not code:
        quoted += _FENCE.findall(text)
        for target in _LINK.findall(text):
            if "://" not in target and not (ROOT / name).parent.joinpath(target).exists():
                yield f"{name}: link {target}"
    for span in quoted:
        for path in paths(span):
            bare = code and path.endswith(".py") and "/" not in path
            if path not in _UPSTREAM and not exists(path, _home(name) if bare else ""):
                yield f"{name}: {path}"
        for found in _MODULE.finditer(span):
            if span[: found.start()].endswith(("/", "-", ".")) or found[0].startswith(_NOT_MODULES):
                continue
            if not re.match(r"/|\.\w*[*<{]", span[found.end() :]) and not module_exists(found[0]):
                yield f"{name}: {found[0]}"


def _home(name: str) -> str:
    """The room that a bare file name is looked for in: services/hmas/<room>, loadgen/hmas_loadgen, ..."""
    parts = Path(name).parts
    return "/".join(parts[: 3 if parts[0] == "services" else 2 if parts[0] in ("loadgen", "lab") else 1])


PAGES = [
    (name, text)
    for name, text in written(".md", ".py")
    if name != "CHANGELOG.md" and not name.startswith(("tests/docs/", "docs/lab/"))  # history names what was
]


def test_every_path_and_module_exists() -> None:
    gone = [found for name, text in PAGES for found in lost(name, text)]
    assert gone == [], "\n".join(gone)


def test_every_command_runs() -> None:
    named = {
        (name, found[1] + found[2])
        for name, text in written(".md", ".py", ".yml", ".yaml", ".toml", "Makefile", "Dockerfile", "run", "NOTICE")
        if name != "CHANGELOG.md"
        for found in _COMMAND.finditer(text)
    }
    assert {f"{name}: -m {module}" for name, module in named if not runs(module)} == set()
    assert len(named) > 10


def test_what_notice_names_exists() -> None:
    named = re.findall(r"^(services/\S+?)(?:, (\w+\.\w+))?$", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    folder = [path.rsplit("/", 1)[0] for path, _ in named]
    wanted = [path for path, _ in named] + [f"{at}/{more}" for at, (_, more) in zip(folder, named, strict=True) if more]
    assert [path for path in wanted if not exists(path)] == []
    assert wanted


@pytest.mark.parametrize(
    "text",
    [
        "see `worker/service.py`",
        "see `nowhere.py`",
        "`hmas.worker.service` runs it",
        "`hmas.worker.agent.Nobody`",
        "```\nhmas sim run experiments/nothing.yaml\n```",
        "`hmas sim run\nexperiments/nothing.yaml`",
        "[a page](nowhere.md)",
        "`services/hmas/worker/engines`",
    ],
)
def test_what_is_gone_is_found(text: str) -> None:
    assert list(lost("docs/page.md", text))


@pytest.mark.parametrize(
    "text",
    [
        "`worker/agent/agent.py` and `admission.py`",
        "`hmas.worker.agent` has `hmas.worker.agent.agent.WorkerAgent`",
        "`hmas.v1.telemetry.worker.<worker>` is a subject, `hmas sim run FILE` a command",
        "`tests/e2e`, `services/hmas/<room>/agent`, `experiments/scaling/engines-*.yaml`",
        "```\nhelm install hmas deploy/helm/hmas -f deploy/helm/values/vllm.yaml\n```",
        "`out/sim-cells` and `tenants.yaml` come at run time",
    ],
)
def test_what_exists_is_left_alone(text: str) -> None:
    assert list(lost("docs/page.md", text)) == []
