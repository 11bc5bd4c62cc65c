"""The shipped schemas match the models, are valid, and are documented for editors."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no types of its own
import jsonschema_rs
import msgspec
import pytest

from agentrun.compiler.schema_files import DOCUMENT_MODELS, SCHEMA_NAMES, schema_text
from agentrun.spec.schema_check import PATTERN_DESCRIPTIONS

from ..documents import split_into_files
from ..full_cases import CASES
from ..full_provider_script import SCRIPT
from ..full_spec import BUDGETS, POLICY, RICH, TOOLS
from ..schemas import ROOT, Schema, flat, shipped

DOCUMENT_KINDS = tuple(DOCUMENT_MODELS)
"""The schemas of what people write; the others are of what the compiler and the runtime write."""

_MAPS = ("properties", "$defs")
_ONE = ("items", "additionalProperties", "propertyNames", "if", "then", "else")


def subschemas(schema: Any, at: str = "", *, asked: bool = False) -> Iterator[tuple[str, Schema, bool]]:
    """Every schema inside a schema, its place, and whether it is only a question (inside an `if`)."""
    if not isinstance(schema, dict):
        return
    yield at, schema, asked
    for keyword in _MAPS:
        for name, inner in schema.get(keyword, {}).items():
            yield from subschemas(inner, f"{at}/{keyword}/{name}", asked=asked)
    for keyword in _ONE:
        yield from subschemas(schema.get(keyword), f"{at}/{keyword}", asked=asked or keyword == "if")
    for index, inner in enumerate(schema.get("allOf", ())):
        yield from subschemas(inner, f"{at}/allOf/{index}", asked=asked)


def test_schema_folder_contains_exactly_the_known_schemas() -> None:
    assert {path.name for path in (ROOT / "schemas").iterdir()} == {f"{name}.schema.json" for name in SCHEMA_NAMES}


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_shipped_schema_matches_the_models(name: str) -> None:
    held = (ROOT / "schemas" / f"{name}.schema.json").read_bytes()
    assert held == schema_text(name).encode(), "run `make schemas`"


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema_is_valid_draft_2020_12(name: str) -> None:
    assert shipped(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(shipped(name))
    jsonschema.Draft202012Validator.check_schema(shipped(name))


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema_has_no_anyof_oneof_or_not(name: str) -> None:
    """A failed anyOf or oneOf says only that no branch fits."""
    known = {*_MAPS, *_ONE, "allOf"}
    for at, schema, _ in subschemas(shipped(name)):
        assert not schema.keys() & {"anyOf", "oneOf", "not", "discriminator"}, at
        nested = {
            key for key, value in schema.items() if key not in ("default", "enum", "const") and _has_schemas(value)
        }
        assert nested <= known, f"{at}: this test does not look into {nested - known}"


def _has_schemas(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, dict) for item in items)


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_every_key_has_a_description(name: str) -> None:
    for at, schema, asked in subschemas(shipped(name)):
        for key, inner in {} if asked else schema.get("properties", {}).items():
            text = inner.get("description", "")
            enough = 3 if name in DOCUMENT_KINDS else 1
            assert len(text.split()) >= enough, f"{name}{at}: {key} says {text!r}"
            assert name not in DOCUMENT_KINDS or text[0].isupper() or text[0] == "`", f"{name}{at}: {key} says {text!r}"
            assert text.rstrip("`")[-1] in ".:)", f"{name}{at}: {key} says {text!r}"


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_every_object_has_a_description_and_is_closed(name: str) -> None:
    for at, schema, asked in subschemas(shipped(name)):
        if at.startswith("/$defs/") and at.count("/") == 2 and "properties" in schema:
            assert schema["additionalProperties"] is False, at
            assert at.endswith("/Profile") or schema["description"], at
        assert asked or "additionalProperties" not in schema or schema["type"] == "object", at


@pytest.mark.parametrize("name", DOCUMENT_KINDS)
def test_every_pattern_has_a_description(name: str) -> None:
    used = {schema["pattern"] for _, schema, _ in subschemas(shipped(name)) if "pattern" in schema}
    assert used <= PATTERN_DESCRIPTIONS.keys()


def test_every_pattern_description_is_used() -> None:
    used = {
        schema["pattern"]
        for name in DOCUMENT_KINDS
        for _, schema, _ in subschemas(shipped(name))
        if "pattern" in schema
    }
    assert PATTERN_DESCRIPTIONS.keys() <= used


@pytest.mark.parametrize("name", DOCUMENT_KINDS)
def test_defaults_are_valid_and_shown(name: str) -> None:
    """A default that its own schema refuses could not be written down; one that is not shown is not known."""
    for _, schema, _ in subschemas(shipped(name)):
        if "default" in schema:
            whole = {**schema, "$defs": shipped(name)["$defs"]}
            jsonschema_rs.Draft202012Validator(whole, offline=True).validate(schema["default"])
    for model in DOCUMENT_MODELS.values():
        for struct in _structs(model):
            definition = shipped(name)["$defs"].get(struct.__name__, {"properties": {}})
            for field in msgspec.structs.fields(struct):
                if field.name in definition["properties"] and not field.required and field.default is not msgspec.UNSET:
                    assert "default" in definition["properties"][field.name], f"{struct.__name__}.{field.name}"


def _structs(model: type) -> Iterator[type]:
    seen: set[type] = set()

    def visit(info: Any) -> None:
        if isinstance(info, msgspec.inspect.StructType) and info.cls not in seen:
            seen.add(info.cls)
            for field in info.fields:
                visit(field.type)
        for slot in ("types", "item_type", "value_type"):
            inner = getattr(info, slot, ())
            for one in inner if isinstance(inner, tuple) else (inner,):
                visit(one)

    visit(msgspec.inspect.type_info(model))
    yield from seen


DOCUMENTS_OF: dict[str, list[Any]] = {
    "agent": [RICH, split_into_files(RICH)[0], split_into_files(RICH, parts=False)[0]],
    "tools": [{"agentrun": "1", "tools": TOOLS}],
    "policy": [{"agentrun": "1", "policy": POLICY}],
    "budgets": [{"agentrun": "1", "budgets": BUDGETS}],
    "cases": CASES,
    "provider": [SCRIPT],
}


@pytest.mark.parametrize("name", DOCUMENT_KINDS)
def test_python_jsonschema_agrees_with_our_validator(name: str) -> None:
    """Editors use other validators than we do: the schemas mean the same to the one written in Python."""
    python = jsonschema.Draft202012Validator(shipped(name))
    for document in DOCUMENTS_OF[name]:
        assert list(python.iter_errors(document)) == []
        key = next(key for key in document if key != "agentrun")
        assert not python.is_valid({**document, key: 5})
        assert not python.is_valid({**document, "unknown": 5})


def test_tool_kind_selects_the_keys_of_that_kind() -> None:
    """What is said about a tool of a kind is what concerns that kind, with its own text for the key `kind`."""
    tool = flat("agent", shipped("agent")["$defs"]["ToolsPart"], TOOLS)["additionalProperties"]
    said = flat("agent", tool, TOOLS["run"])
    assert "argv" in said["properties"]
    assert "url" not in said["properties"]
    assert said["properties"]["kind"] == {"description": "A command, run without a shell.", "enum": ["shell"]}


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema_file_is_indented_json(name: str) -> None:
    """Two spaces, a line end, letters as they are: a diff of a schema is readable."""
    text = (ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


# --- planted ------------------------------------------------------------------------------------------------


def test_parts_reaches_nested_schemas() -> None:
    planted = {"properties": {"a": {"allOf": [{"if": {"properties": {"x": {}}}, "then": {"anyOf": [{}]}}]}}}
    seen = {at: (schema, asked) for at, schema, asked in subschemas(planted)}
    assert "anyOf" in seen["/properties/a/allOf/0/then"][0]
    assert seen["/properties/a/allOf/0/if"][1] is True
    assert seen["/properties/a"][1] is False
