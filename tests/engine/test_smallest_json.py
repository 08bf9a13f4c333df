"""The smallest JSON for a schema fits it, and a schema that the emulated engine cannot answer is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hmas.engine.smallest_json import MAX_LENGTH, BadSchema, smallest_json

PERSON = {
    "title": "Person", "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"}, "age": {"type": "integer", "minimum": 18},
        "mail": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, "note": {"type": "string"},
    },
    "required": ["name", "age", "mail"], "additionalProperties": False,
}  # fmt: skip
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object", "properties": {"left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["left"],
        }
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (PERSON, {"name": "", "age": 18, "mail": ""}),
        (TREE, {"left": None}),
        ({}, None),
        ({"type": ["string", "null"]}, ""),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"type": "string", "format": "date"}, "2000-01-01"),
        ({"enum": ["later", "now"]}, "now"),
        ({"type": "string", "enum": [1, "one"]}, "one"),
        ({"const": {"a": 1}}, {"a": 1}),
        ({"type": "boolean"}, True),
        ({"type": "integer", "exclusiveMinimum": 4, "multipleOf": 5}, 5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "number", "minimum": 0.25, "maximum": 0.75}, 0.5),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "number", "minimum": 0.5, "multipleOf": 0.25}, 0.5),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "minItems": 1}, [1]),
        ({"properties": {"a": {"type": "null"}}, "required": ["a", "b"]}, {"a": None, "b": None}),
        ({"oneOf": [{"type": "object", "required": ["x"]}, {"type": "array"}]}, []),
        ({"allOf": [{"$ref": "#/definitions/n"}], "definitions": {"n": {"type": "integer"}}}, 0),
    ],
)
def test_the_smallest_value_fits(schema: dict[str, Any], value: Any) -> None:
    made = smallest_json(schema)
    assert made == value
    assert type(made) is type(value)
    Draft202012Validator(schema).validate(made)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string", "pattern": "^a$"}, "/: the emulated engine does not know the keyword `pattern`"),
        ({"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}, "/a: .*`not`"),
        ({"type": "text"}, "`type` must be one of null, boolean"),
        ({"type": []}, "`type` must be one of"),
        ({"type": "string", "format": "iban"}, "does not know the format 'iban'"),
        ({"type": "string", "minLength": MAX_LENGTH + 1}, "`minLength` must be a number from 0 to 4096"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "no text has at least 3 and at most 2"),
        ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "no number is within these bounds"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "no number is within these bounds"),
        ({"type": "integer", "minimum": 1e300}, "must be numbers up to"),
        ({"type": "number", "minimum": 1, "multipleOf": 1e-300}, "`multipleOf` must be at least"),
        ({"type": "integer", "minimum": 1.2, "multipleOf": 0.5}, "a whole number for integers"),
        ({"type": "integer", "multipleOf": 0}, "`multipleOf` must be at least"),
        ({"enum": [1], "type": [{}]}, "`type` must be one of"),
        ({"enum": [1], "type": 5}, "`type` must be one of"),
        ({"type": "array", "minItems": 2, "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "no list has"),
        ({"$ref": "http://elsewhere/schema"}, "must name a part of this schema"),
        ({"$ref": "#/$defs/none"}, "is not in the schema"),
        ({"$ref": "#"}, "refers to itself"),
        ({"anyOf": [{"type": "string"}], "minLength": 3}, "`minLength` beside `anyOf`"),
        ({"allOf": [{}, {}]}, "must be a list of one schema"),
        ({"enum": []}, "no value of the type"),
        ({"required": ["a"], "type": "object", "additionalProperties": False}, "`a` is required and may not be there"),
        ({"properties": [], "type": "object"}, "`properties` must be an object"),
        ({"required": [1], "type": "object"}, "must be a list of names"),
        ([], "a schema must be an object"),
        (False, "a schema must be an object"),
    ],
)
def test_what_it_cannot_answer_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(BadSchema, match=reason):
        smallest_json(schema)


def test_no_schema_costs_more_than_its_bounds() -> None:
    deep: dict[str, Any] = {"type": "null"}
    for _ in range(100):
        deep = {"type": "array", "items": deep, "minItems": 1}
    levels = {f"l{n}": {"type": "array", "items": {"$ref": f"#/$defs/l{n + 1}"}, "minItems": 4} for n in range(12)}
    wide = {"$ref": "#/$defs/l0", "$defs": {**levels, "l12": {"type": "null"}}}
    either = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 4} for n in range(12)}
    names = [str(number) for number in range(400)]
    long = {"type": "object", "required": names, "additionalProperties": {"type": "string", "minLength": MAX_LENGTH}}
    for schema in (deep, wide, long, {"$ref": "#/$defs/l0", "$defs": {**either, "l12": {"type": "null"}}}):
        with pytest.raises(BadSchema, match="too large or too deep"):
            smallest_json(schema)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    small = st.integers(-5, 5)
    number = st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional={
        "minimum": small, "maximum": small, "exclusiveMinimum": small, "exclusiveMaximum": small,
        "multipleOf": st.integers(1, 4),
    })  # fmt: skip
    text = st.fixed_dictionaries({"type": st.just("string")}, optional={
        "minLength": st.integers(0, 4), "maxLength": st.integers(0, 4), "format": st.sampled_from(["date", "uuid"]),
    })  # fmt: skip
    leaf: st.SearchStrategy[dict[str, Any]] = (
        number | text | st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"enum": [3, "x", None]}, {}])
    )
    return st.recursive(
        leaf,
        lambda inner: (
            st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.integers(0, 3)})
            | st.fixed_dictionaries({
                "type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner),
                "required": st.lists(st.sampled_from("abc"), unique=True),
            })
            | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        ),
        max_leaves=6,
    )  # fmt: skip


@given(schemas())
def test_whatever_is_made_fits(schema: dict[str, Any]) -> None:
    try:
        made = smallest_json(schema)
    except BadSchema:
        return
    Draft202012Validator(schema).validate(made)
