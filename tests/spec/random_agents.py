"""Random agent documents that the schema takes, made from the schema: a new key is in them without a line here."""

import random
import re
from functools import cache
from typing import Any

import yaml
from hypothesis import strategies as st

from ..schemas import Schema, shipped

Strategy = st.SearchStrategy[Any]

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff"), max_size=12)
NAMES = TEXTS.filter(lambda text: text not in ("", "<<"))
LINES = st.lists(TEXTS, max_size=3).map("\n".join)
JSON_SCHEMAS = st.sampled_from(
    [
        {"type": "string", "default": "x"},
        {"type": "object", "properties": {"id": {"type": "string", "maxLength": 3}}, "required": ["id"]},
        {"type": "array", "items": {"enum": [1, 2.5, None, True, "no"]}},
        {},
    ]
)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False, width=32)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)


def agents(*, files: bool = True) -> Strategy:
    """Agent documents; without `files` nothing in them is a `{file: …}`."""
    return _agents(files)


@cache
def _agents(files: bool) -> Strategy:
    return _Maker(files).values(shipped("agent"))


class _Maker:
    """Makes values that a schema takes. It knows the few forms that our schemas have, and fails on any other."""

    def __init__(self, files: bool) -> None:
        self.files = files
        self.defs: Schema = shipped("agent")["$defs"]

    def values(self, schema: Schema) -> Strategy:
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        if schema.get("$ref", "").endswith("/JsonSchema"):
            return JSON_SCHEMAS | self.values(self.defs["FileRef"]) if self.files else JSON_SCHEMAS
        if schema.get("if") == {"type": "array"}:  # a shared part; lists and files of parts are laid out on disk
            return self.values(self.defs[schema["else"]["$ref"].rpartition("/")[2]]["else"])
        if "$ref" in schema:
            return self.values(self.defs[schema["$ref"].rpartition("/")[2]])
        assert "if" not in schema
        kinds = schema.get("type")
        if kinds is None:
            return ANYTHING
        return st.one_of([self.of_type(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)])

    def of_type(self, kind: str, schema: Schema) -> Strategy:
        choices = {part["if"]["type"]: part["then"] for part in schema.get("allOf", ()) if "type" in part["if"]}
        if kind in choices:
            return (
                self.values(choices[kind])
                if self.files or not choices[kind].get("$ref", "").endswith("FileRef")
                else st.nothing()
            )
        match kind:
            case "string":
                return _texts(schema)
            case "integer":
                return st.integers(schema["minimum"], schema["maximum"])
            case "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum"))
                return st.floats(low, schema["maximum"], exclude_min="exclusiveMinimum" in schema)
            case "boolean":
                return st.booleans()
            case "array":
                least = schema.get("minItems", 0)
                return st.lists(self.values(schema["items"]), min_size=least, max_size=least + 2)
            case "object":
                return self.objects(schema)
        raise AssertionError(kind)

    def objects(self, schema: Schema) -> Strategy:
        if "properties" not in schema:
            inside = schema.get("additionalProperties", {})
            names = _texts(schema["propertyNames"]) if "propertyNames" in schema else NAMES
            return st.dictionaries(names, self.values(inside), max_size=2)
        if "additionalProperties" not in schema:  # tools and sinks, by kind
            return st.one_of([self.values(part["then"]) for part in schema["allOf"]])
        made = {key: self.values(inner) for key, inner in schema["properties"].items()}
        required = {key: made[key] for key in schema.get("required", ())}
        optional = {key: value for key, value in made.items() if key not in required}
        return st.fixed_dictionaries(required, optional=optional)


def _texts(schema: Schema) -> Strategy:
    if "pattern" in schema:
        longest = schema.get("maxLength", 1000)
        return st.from_regex(re.compile(schema["pattern"]), fullmatch=True).filter(lambda t: len(t) <= longest)
    if schema.get("maxLength", 1000) < 20_000:
        least = schema.get("minLength", 0)
        return TEXTS.map(lambda text: text if len(text) >= least else text + "x" * least)
    return LINES


def written(document: Any, seed: int) -> str:
    """A document as YAML in one of many styles. One seed writes equal values in the same style."""
    chance = random.Random(seed)  # noqa: S311 no secret is made here
    quotes = chance.choices((None, "'", '"'), k=64)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_text(self, text: str) -> yaml.Node:
            simple = re.fullmatch(r"[A-Za-z][A-Za-z0-9_ /-]*[A-Za-z_]", text)
            style = quotes[len(text) % 64] if simple else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    flow = chance.choice((True, False, None))
    text: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=chance.random() < 0.5, width=10_000,
        default_flow_style=flow, indent=chance.choice((2, 4)),
    )  # fmt: skip
    return f"# {seed}\n\n{text}" if seed % 2 else text
