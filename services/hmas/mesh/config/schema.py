"""The JSON schema of a configuration file, by which editors complete names and mark what is wrong."""

from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings

from hmas.mesh.config.flags import UpFlag
from hmas.mesh.config.sections import SECTIONS, UP, flag_that_sets
from hmas.runtime.settings import RuntimeSettings


def config_schema(flags: Mapping[str, UpFlag]) -> dict[str, Any]:
    """Returns the schema of the file; `flags` are those of `hmas up`."""
    definitions: dict[str, Any] = {}
    properties = {UP: _flags_schema(flags)}
    for section, cls in SECTIONS.items():
        properties[section] = _section_schema(section, cls, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of hmas up",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _flags_schema(flags: Mapping[str, UpFlag]) -> dict[str, Any]:
    properties = {}
    for name, flag in flags.items():
        kind = flag.values.json_schema()
        if flag.many:
            kind = {"anyOf": [{"type": "array", "items": kind}, kind]}
        properties[name] = {**kind, "description": flag.description}
    return _mapping("Flags of `hmas up`", properties)


def _section_schema(section: str, cls: type[BaseSettings], definitions: dict[str, Any]) -> dict[str, Any]:
    schema = cls.model_json_schema(ref_template="#/$defs/{model}")
    kept = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema["properties"].items()
        if flag_that_sets(section, name) is None
    }
    named = str(kept)
    definitions |= {name: each for name, each in schema.get("$defs", {}).items() if f"#/$defs/{name}'" in named}
    for name, field in kept.items():
        if field.get("type") == "string" and "separated by commas" in field.get("description", ""):
            either = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
            kept[name] = {**either, **{key: value for key, value in field.items() if key != "type"}}
    told = "Settings of all services" if cls is RuntimeSettings else f"Settings of the service {section}"
    return _mapping(told, kept)


def _mapping(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": properties,
    }
