"""A wrong setting is named with advice, and no secret that stands in it is repeated."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from hmas.gateway.engines.allowed import parse_rules
from hmas.gateway.settings import GatewaySettings
from hmas.runtime.faulty_settings import unusable_file, wrong_settings
from hmas.runtime.settings import RuntimeSettings
from hmas.worker.settings import WorkerSettings

SECRET = "sk-secret-123"
ENGINE: dict[str, Any] = {"name": "e", "url": "http://x:1"}


def refused(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What the worker says of these variables."""
    for name, value in {"HMAS_POOL": "m", "HMAS_ENGINES": "http://x:1", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as found:
        WorkerSettings()
    return wrong_settings(found.value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([{**ENGINE, "api_key": SECRET}], "HMAS_ENGINES[list][0][api_key]: there is no such field: "),
        ([{**ENGINE, "colour": SECRET}], "HMAS_ENGINES[list][0][colour]: there is no such field: "),
        ([{"url": f"http://me:{SECRET}@[x:1"}], "HMAS_ENGINES[list][0][url]: "),
        ({"api_key": SECRET}, "HMAS_ENGINES: "),
        ({**ENGINE, "api_key": SECRET}, "HMAS_ENGINES: "),
    ],
)
def test_no_secret_in_a_list_of_engines_is_repeated(monkeypatch: pytest.MonkeyPatch, value: Any, where: str) -> None:
    told = refused(monkeypatch, HMAS_ENGINES=orjson.dumps(value).decode())
    assert told.startswith(where)
    assert SECRET not in told
    assert "Source" not in told  # forms that nobody chose
    assert ";" not in told.removesuffix("; a secret is given in a file, by a field such as api_key_file")


def test_an_unknown_field_that_is_named_like_a_secret_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, advised in (("api_key", True), ("auth_token", True), ("colour", False), ("max_tokens", False)):
        told = refused(monkeypatch, HMAS_ENGINES=orjson.dumps([{**ENGINE, name: SECRET}]).decode())
        assert ("api_key_file" in told) is advised


def test_a_short_number_or_word_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(monkeypatch, HMAS_MAX_QUEUED="abc").endswith(", not 'abc'")
    assert refused(monkeypatch, HMAS_MAX_QUEUED_TOKENS="abc").endswith(", not 'abc'")
    assert refused(monkeypatch, HMAS_MAX_QUEUED="-1", HMAS_MAX_QUEUED_TOKENS="1").endswith(", not '-1'")
    assert refused(monkeypatch, HMAS_MAX_QUEUED="x" * 41).endswith("as an integer")
    monkeypatch.setenv("HMAS_MAX_QUEUED", "1")
    kind = refused(monkeypatch, HMAS_ENGINES=orjson.dumps([{**ENGINE, "kind": "llm"}]).decode())
    assert kind.endswith(", not 'llm'")


class Sealed(RuntimeSettings):
    """Settings with a number that is named like a secret."""

    pass_key: int = 0
    ops_folder: Path | None = None


def test_no_value_of_a_field_that_is_named_like_a_secret_is_repeated() -> None:
    with pytest.raises(ValidationError) as found:
        Sealed.model_validate({"pass_key": SECRET})
    told = wrong_settings(found.value)
    assert "PASS_KEY: Input should be a valid integer" in told
    assert SECRET not in told


def test_a_secret_in_the_place_of_its_file_is_not_repeated(tmp_path: Path) -> None:
    error = FileNotFoundError(2, "No such file or directory", SECRET)
    told = unusable_file(error, GatewaySettings(engine_api_key_file=Path(SECRET)))
    assert told == "HMAS_ENGINE_API_KEY_FILE: No such file or directory: it must be the path of a file"
    pasted = Path("k" * 5000)
    with pytest.raises(OSError, match="too long") as found:
        pasted.read_text()
    assert "kkk" not in unusable_file(found.value, GatewaySettings(engine_api_key_file=pasted))
    listed = GatewaySettings(engine_endpoints=orjson.dumps([{"url": "http://x:1", "api_key_file": SECRET}]).decode())
    assert unusable_file(error, listed).startswith("HMAS_ENGINE_ENDPOINTS: ")
    nested = WorkerSettings.model_validate({"pool": "m", "engines": [{**ENGINE, "api_key_file": SECRET}]})
    assert unusable_file(error, nested).startswith("HMAS_ENGINES[0][api_key_file]: ")
    assert unusable_file(error, Sealed(ops_folder=Path(SECRET))) == str(error)
    assert unusable_file(error, None) == str(error)
    there = PermissionError(13, "Permission denied", str(tmp_path))
    assert unusable_file(there, GatewaySettings(engine_api_key_file=tmp_path)) == str(there)


def test_a_faulty_list_of_allowed_engines_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="not a pattern of URLs") as found:
        parse_rules(orjson.dumps({"url": "http://x:1", "api_key": SECRET}).decode())
    assert SECRET not in str(found.value)
