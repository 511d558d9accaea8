"""The schemas of `--json` in docs/schema: is an output valid, and has it no field that its schema does not describe?"""

import json

import jsonschema

from tests.support.doc_blocks import DOCS


def schema_of(name):
    return json.loads((DOCS / "schema" / f"{name}.json").read_text(encoding="utf-8"))


def check(name, content):
    """content: what the verb `name` printed."""
    _check(schema_of(name), content)


def check_other(name, content):
    """name: a definition in others.json."""
    _check(schema_of("others")["$defs"][name], content)


def _check(schema, content):
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(content, schema)
    if "properties" in schema:
        assert sorted(set(schema["required"]) - content.keys()) == []
    _check_described(schema, content)


def _check_described(schema, content):
    """Every field has a description, also those of objects in objects and in lists."""
    if isinstance(content, list):
        for item in content:
            _check_described(schema.get("items", {}), item)
    elif isinstance(content, dict):
        if "properties" in schema:
            assert sorted(content.keys() - schema["properties"].keys()) == []
        for name, value in content.items():
            others = schema.get("additionalProperties")
            inner = schema.get("properties", {}).get(name, others)
            _check_described(inner if isinstance(inner, dict) else {}, value)
