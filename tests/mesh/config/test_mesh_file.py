"""The configuration file of `hmas up`: what it may say, and which error says what is wrong where."""

from pathlib import Path

import pytest

from hmas.mesh.config.flags import flags_of
from hmas.mesh.config.mesh_file import MAX_FAULTS, MAX_FILE_BYTES, MeshFile, MeshFileFault, read_mesh_file
from hmas.mesh.config.sections import SECTIONS, UP
from hmas.mesh.config.values_in_force import check_in_force
from hmas.mesh.up_cli import up

WHOLE = """
up:
  engine: [http://10.0.0.5:8000, http://10.0.0.6:8000]
  port: 9000
  console: off
every_service:
  otlp_endpoint: http://collector:4318
gateway:
  max_requests: 20000
  fail_open: no
  cors_origins: [https://a.example, https://b.example]
meta:
  rehearse: off
worker:
  mode:
"""


def read(tmp_path: Path, text: str | bytes) -> MeshFile:
    path = tmp_path / "hmas.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_mesh_file(path, flags_of(up))


def refused(tmp_path: Path, text: str | bytes) -> str:
    """What is said of a faulty file, without the name of its folder."""
    with pytest.raises(MeshFileFault) as found:
        read(tmp_path, text)
    return str(found.value).replace(f"{tmp_path}/", "")


def test_a_file_holds_flags_and_settings_as_they_are_written(tmp_path: Path) -> None:
    file = read(tmp_path, WHOLE)
    assert file.flags == {
        "engine": ["http://10.0.0.5:8000", "http://10.0.0.6:8000"],
        "port": 9000,
        "shows": False,
    }
    assert {section: dict(texts) for section, texts in file.settings.items() if texts} == {
        "every_service": {"otlp_endpoint": "http://collector:4318"},
        "gateway": {
            "max_requests": "20000", "fail_open": "no", "cors_origins": "https://a.example,https://b.example",
        },
        "meta": {"rehearse": "off"},  # YAML takes it for a switch
    }  # fmt: skip
    assert file.place("gateway", "fail_open") == "hmas.yaml:10"
    check_in_force(file, {})


def test_an_empty_file_and_an_empty_section_say_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "gateway:\nup: {}\n"):
        file = read(tmp_path, text)
        assert not file.flags
        assert not any(file.settings.values())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gatway: {}", "line 1, gatway: there is no such section: did you mean gateway?"),
        ("up:\n  prot: 1", "line 2, up.prot: `hmas up` has no such flag: did you mean port?"),
        ("up:\n  llm-url: x", "line 2, up.llm-url: `hmas up` has no such flag: did you mean llm_url?"),
        ("up:\n  config: x", "line 2, up.config: `hmas up` has no such flag"),
        (
            "up:\n  port: abc",
            "line 2, up.port: Input should be a valid integer, unable to parse string as an integer, not 'abc'",
        ),
        ("up:\n  port: [1, 2]", "line 2, up.port: it must be one value"),
        ("up:\n  engine: {a: b}", "line 2, up.engine: it must be a list of texts"),
        ("up:\n  emulated: 65", "line 2, up.emulated: Input should be less than or equal to 64, not '65'"),
        (
            "gateway:\n  max_request: 1",
            "line 2, gateway.max_request: there is no such setting: did you mean max_requests?",
        ),
        (
            "gateway:\n  HMAS_JOURNAL: 1",
            "line 2, gateway.HMAS_JOURNAL: there is no such setting: did you mean journal?",
        ),
        ("gateway:\n  u_high: 0.9", "line 2, gateway.u_high: it is a setting of statera: write it there"),
        ("worker:\n  stream_grace_s: 1", "line 2, worker.stream_grace_s: it was removed: HMAS_FAIL_OPEN_AFTER_S says"),
        ("gateway:\n  port: 1", "line 2, gateway.port: `hmas up` sets it itself: write `port` in the section up"),
        ("qos:\n  grpc_port: 1", "line 2, qos.grpc_port: `hmas up` sets it itself: leave it out"),
        ("worker:\n  ops_port: 1", "line 2, worker.ops_port: `hmas up` sets it itself: leave it out"),
        ("gateway:\n\n  max_requests: many", "line 3, gateway.max_requests: Input should be a valid integer"),
        ("gateway:\n  max_requests: many", ", not 'many'"),
        ("gateway:\n  max_requests: 0", "line 2, gateway.max_requests: Input should be greater than or equal to 1"),
        ("gateway:\n  max_requests: true", "line 2, gateway.max_requests: Input should be a valid integer"),
        ("gateway:\n  mode: {a: b}", "line 2, gateway.mode: it must be one value"),
        ("gateway:\n  cors_origins: ['a,b']", "line 2, gateway.cors_origins: it must be one value, or a list"),
        ("gateway: 5", "line 1, gateway: it must be a mapping of names to values"),
        ("gateway: {1: 2}", "line 1, gateway.1: a name must be a text"),
        ("gateway:\n  journal: 1\n  journal: 2", "line 3, gateway.journal: this name is given twice"),
        ("- a", "it must be a mapping with some of the sections up, every_service, gateway"),
        ("a: [", "it is not valid YAML: "),
        ("gateway: \x01", "it is not valid YAML: "),
        (b"gateway: \xff", "it is not valid YAML: "),
        ("a: {b: {c: {d: {e: 1}}}}", "line 1: it is nested more than 4 deep"),
        ("[" * 100_000, "line 1: it is nested more than 4 deep"),
        ("a: !!python/object:os.system x", "is of no use here: leave it out"),
        ("a: &a [x]\nb: [" + "*a," * 300 + "]", "line 2: it has more than 256 aliases"),
        ("a: [" + "x," * 5000 + "]", "line 1: it has more than 4096 values"),
        ("a: &a {b: *a}", "what an anchor names must hold no alias"),
        ("#" * (MAX_FILE_BYTES + 1), "it is larger than 1048576 bytes"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str | bytes, told: str) -> None:
    said = refused(tmp_path, text)
    assert said.startswith("hmas.yaml")
    assert told in said
    assert "\n" not in said


def test_all_faults_are_told_in_their_order_within_bounds(tmp_path: Path) -> None:
    assert refused(tmp_path, "statera:\n  a: 1\ngateway:\n  b: 2").split("; ") == [
        "hmas.yaml, line 2, statera.a: there is no such setting",
        "hmas.yaml, line 4, gateway.b: there is no such setting",
    ]
    many = "gateway:\n" + "".join(f"  wrong{number}: 1\n" for number in range(MAX_FAULTS + 3))
    assert refused(tmp_path, many).endswith("; and 3 more")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MeshFileFault, match=r"there is no file .*none\.yaml: correct --config"):
        read_mesh_file(tmp_path / "none.yaml", flags_of(up))


def test_no_value_that_may_be_a_secret_is_repeated(tmp_path: Path) -> None:
    text = "gateway:\n  api_key: sk-secret\n  engine_api_key: sk-secret\n  nats_creds_file: []\n"
    assert "sk-secret" not in refused(tmp_path, text)


def test_what_environment_and_file_contradict_is_told(tmp_path: Path) -> None:
    file = read(tmp_path, "gateway:\n  mode: observe\n  max_requests: 5\n")
    with pytest.raises(MeshFileFault) as found:
        check_in_force(file, {"HMAS_MAX_REQUESTS": "none"})
    assert str(found.value).split("; ") == [
        "HMAS_MAX_REQUESTS, max_requests: Input should be a valid integer, unable to parse string as an integer, not "
        "'none'",
        "mode is observe for gateway (hmas.yaml:2) and schedule for worker (default): both need the same",
    ]
    check_in_force(file, {"HMAS_MODE": "schedule"})


def test_every_section_is_one_of_the_file(tmp_path: Path) -> None:
    text = "".join(f"{section}:\n" for section in (UP, *SECTIONS))
    assert set(read(tmp_path, text).settings) == set(SECTIONS)
