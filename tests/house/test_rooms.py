"""Every room, and every service with a user of NATS, stands wherever it must: a new one is forgotten nowhere."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.benchmarks import ROOMS as MEASURED
from docs.services import SERVICE_SETTINGS
from hmas.mesh.options import MeshOptions
from hmas.mesh.processes import make_plan
from hmas.wire.permissions import SERVICES, USERS
from tests.house.repository import ROOT, files
from tests.rooms import TESTS, main

PRODUCT = ROOT / "services/hmas"
FOLDERS = frozenset(folder.name for folder in PRODUCT.iterdir() if (folder / "__init__.py").exists())
PROCESSES = frozenset(name for name in FOLDERS if (PRODUCT / name / "__main__.py").exists())
ROOMS = PROCESSES - {"console"}  # what decides, and the emulated engine
ROLES = frozenset(role.value for role in SERVICES)
ENTRIES = frozenset(user.name for user in USERS)  # the services, and the operator's commands

# The folders that each contract of import-linter must name. A contract without a row names no room, or a pattern.
CONTRACTS: dict[str, dict[str, Iterable[str]]] = {
    "Contracts import nothing of ours": {"forbidden_modules": FOLDERS - {"contracts"}},
    "Laws import contracts only": {"forbidden_modules": FOLDERS - {"contracts", "laws"}},
    "Rooms never import one another": {"modules": ROOMS},
    "The load generator knows contracts, laws and the HTTP client only": {
        "forbidden_modules": FOLDERS - {"contracts", "laws"}
    },
    "What runs inside an engine knows nothing else of ours": {"forbidden_modules": FOLDERS - {"plugins"}},
    "The console hears, asks and pins, and knows no room": {"forbidden_modules": {*ROOMS, "plugins", "mesh", "sim"}},
    "No room, and nothing that a room stands on, knows the console": {"source_modules": {*ROOMS, "runtime", "wire"}},
}


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def contracts() -> dict[str, dict[str, Any]]:
    found = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    return {contract["name"]: contract for contract in found}


def missing(wanted: Iterable[str], named: Iterable[str]) -> list[str]:
    """The rooms of `wanted` that no dotted name in `named` is."""
    return sorted(set(wanted) - {name.removeprefix("hmas.") for name in named})


def compose() -> dict[str, dict[str, Any]]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(read("docker-compose.yml"))["services"]
    return services


def room_of(service: dict[str, Any]) -> str:
    """The room that a service of Compose runs, else ""."""
    found = re.search(r"\bhmas\.(\w+)", " ".join(map(str, service.get("command", ()))))
    return found[1] if found else ""


def test_rooms_and_services_are_the_ones_that_have_processes() -> None:
    assert ROOMS - {"engine"} == ROLES
    assert {name for name in FOLDERS if list((PRODUCT / name).glob("agent/agent.py"))} == ROOMS - {"engine"}
    assert len(FOLDERS) > 15


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_of_imports_names_every_room_that_it_is_about(name: str) -> None:
    contract = contracts()[name]
    assert {key: missing(wanted, contract[key]) for key, wanted in CONTRACTS[name].items()} == {
        key: [] for key in CONTRACTS[name]
    }


def test_the_page_of_the_architecture_names_every_room() -> None:
    page = read("docs/architecture.md")
    sentence = re.search(r"The rooms are ([^.]*)\.", page)
    assert sentence
    assert set(re.findall(r"\w+", sentence[1])) - {"and"} == ROOMS
    assert [name for name in sorted(FOLDERS - ROOMS) if f"| `services/hmas/{name}` |" not in page] == []


def test_every_room_has_tests() -> None:
    assert FOLDERS - set(TESTS) == set()
    folders = {Path(file).parent.as_posix() for file in files() if re.fullmatch(r".*/test_\w+\.py", file)}
    assert [
        folder for tests in TESTS.values() for folder in tests if not any(f.startswith(folder) for f in folders)
    ] == []
    own = {room for room in TESTS if f"tests/{room}" in folders}
    assert [room for room in sorted(own) if f"tests/{room}" not in TESTS[room]] == []
    assert len(own) > 15


def test_a_room_without_tests_is_told_which_rooms_have_some() -> None:
    for words in ([], ["nowhere"]):
        with pytest.raises(SystemExit, match="is not a room with tests: choose one of benchmarks, console, contracts"):
            main(words)


def test_every_service_has_its_settings_in_the_documentation() -> None:
    assert missing(ROLES | {"console"}, SERVICE_SETTINGS) == []


def test_live_figures_depend_on_the_code_of_every_room() -> None:
    assert missing(ROOMS, MEASURED) == []


def test_compose_starts_every_room() -> None:
    assert missing(PROCESSES, map(room_of, compose().values())) == []


def test_compose_and_the_image_have_the_secrets_of_every_user() -> None:
    made = {volume.rpartition("/")[2] for volume in compose()["init"]["volumes"] if volume.startswith("secrets-")}
    assert missing(ENTRIES, made) == []
    assert missing((f"secrets-{user}" for user in ENTRIES), yaml.safe_load(read("docker-compose.yml"))["volumes"]) == []
    folders = re.search(r"for role in ([\w ]+);", read("deploy/Dockerfile"))
    assert folders
    assert missing(ENTRIES, folders[1].split()) == []


def test_prometheus_scrapes_every_room_but_the_console() -> None:
    config = yaml.safe_load(read("deploy/prometheus/prometheus.yml"))
    targets = {t.split(":")[0] for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    assert targets == {name for name, service in compose().items() if room_of(service) in ROOMS}


def test_the_chart_has_values_a_workload_and_a_secret_of_every_service() -> None:
    chart = "deploy/helm/hmas"
    values, schema = yaml.safe_load(read(f"{chart}/values.yaml")), yaml.safe_load(read(f"{chart}/values.schema.json"))
    assert missing(ROLES | {"console"}, values) == []
    assert missing(ROLES | {"console"}, schema["properties"]) == []
    egress = schema["properties"]["networkPolicy"]["properties"]["httpsEgress"]["items"]["enum"]
    assert missing(ROOMS | {"console"}, egress) == []
    assert missing(ROLES | {"console"}, re.findall(r'"(\w+)"', read(f"{chart}/templates/services.yaml"))) == []
    users = re.search(r'define "hmas.users" -}}\n([\w ]+)\n', read(f"{chart}/templates/_helpers.tpl"))
    assert users
    assert set(users[1].split()) == ENTRIES


def test_the_embedded_mesh_starts_every_room(tmp_path: Path) -> None:
    plan = make_plan(MeshOptions(data_dir=tmp_path, port=0, console_port=0))
    assert missing(PROCESSES, (process.argv[2] for process in plan.processes if "-m" in process.argv)) == []


def test_a_room_that_is_forgotten_is_found() -> None:
    assert missing({"qos", "worker"}, ["hmas.worker", "hmas.qosish"]) == ["qos"]
    assert room_of({"command": ["python", "-m", "hmas.engine", "--host", "0.0.0.0"]}) == "engine"
    assert room_of({"command": ["hmas", "secrets"]}) == room_of({}) == ""
