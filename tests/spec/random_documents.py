"""Random agent documents generated from the schema, so that a new key needs no change here.

They are made by a plain random generator and not drawn piece by piece by hypothesis, which takes ten times as long for
documents of this size and repeats itself. A seed tells a document.
"""

import random
from typing import Any

from ..documents import yaml_text
from ..schemas import Schema, shipped
from .schema_edges import PATTERNS

TEXTS = [
    *(
        "",
        "a",
        "Be kind.",
        "no",
        "on",
        "null",
        "~",
        "true",
        "1e3",
        "0o17",
        "012",
        "1_000",
        "1:30",
        ".inf",
        "2020-01-01",
    ),
    *("- a", "a: b", "# a", "{a}", "[a", "%a", "@a", "`a", "'a", '"a', "a\\n", "*a", "&a", "!a", "|", ">", "? a", "<<"),
    *(
        " a ",
        "a\nb\n",
        "\n\na",
        "a\tb",
        "é",
        "日本",
        "😀",
        "\u2028",
        "\x85",
        "\x1b[2J",
        "\u202e",
        "\u200b",
        "{{ a }}",
        "${A}",
    ),
]
ANY_VALUES = [None, True, False, 0, -1, 2**53 - 1, 1.5, 1e300, -0.0, [], {}, [1, [None]], {"a": {"b": "c"}, "on": "no"}]
JSON_SCHEMAS = [
    {"type": "string", "default": "x"},
    {"type": "object", "properties": {"id": {"type": "string", "maxLength": 3}}, "required": ["id"]},
    {"type": "array", "items": {"enum": [1, 2.5, None, True, "no"]}},
    {},
]


def agent(seed: int, *, files: bool = True) -> dict[str, Any]:
    """A random agent; without `files` nothing in it is a `{file: …}`."""
    made: dict[str, Any] = _Maker(random.Random(seed), files).value(shipped("agent"))  # noqa: S311 nothing secret
    return made


class _Maker:
    """Makes values that a schema takes. It knows the few forms that our schemas have, and fails on any other."""

    def __init__(self, chance: random.Random, files: bool) -> None:
        self.chance = chance
        self.files = files
        self.defs: Schema = shipped("agent")["$defs"]

    def value(self, schema: Schema) -> Any:
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        if schema.get("if") == {"type": "array"}:  # a shared part; lists and files of parts are laid out on disk
            return self.value(self.definition(schema["else"])["else"])
        if "$ref" in schema:
            definition = self.definition(schema)
            return self.json_schema() if "JsonSchema" in schema["$ref"] else self.value(definition)
        assert not schema.keys() & {"if", "then", "else"}
        if "type" not in schema:
            return self.chance.choice([*ANY_VALUES, *TEXTS])
        choices = {part["if"]["type"]: part["then"] for part in schema.get("allOf", ()) if "type" in part["if"]}
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        usable = [kind for kind in kinds if self.files or "FileRef" not in choices.get(kind, {}).get("$ref", "")]
        kind = self.chance.choice(usable)
        return self.value(choices[kind]) if kind in choices else self.of_type(kind, schema)

    def definition(self, reference: Schema) -> Schema:
        found: Schema = self.defs[reference["$ref"].rpartition("/")[2]]
        return found

    def json_schema(self) -> Any:
        return self.value(self.defs["FileRef"]) if self.files and self.often(0.3) else self.chance.choice(JSON_SCHEMAS)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def of_type(self, kind: str, schema: Schema) -> Any:
        match kind:
            case "string":
                return self.text(schema)
            case "integer":
                edge = self.chance.choice([schema["minimum"], schema["maximum"]])
                return edge if self.often(0.2) else self.chance.randint(schema["minimum"], schema["maximum"])
            case "number":
                low = float(schema.get("minimum") or schema.get("exclusiveMinimum") or 0)
                return schema["maximum"] if self.often(0.2) else self.chance.uniform(low + 0.01, schema["maximum"])
            case "boolean":
                return self.often(0.5)
            case "array":
                least = schema.get("minItems", 0)
                return [self.value(schema["items"]) for _ in range(least + self.chance.randint(0, 2))]
            case "object":
                return self.mapping(schema)
        raise AssertionError(kind)

    def text(self, schema: Schema) -> str:
        if "pattern" in schema:
            return self.chance.choice(PATTERNS[schema["pattern"]][0])
        fits = [text for text in TEXTS if len(text) >= schema.get("minLength", 0)]
        return self.chance.choice(fits) if fits else "x" * int(schema["minLength"])

    def mapping(self, schema: Schema) -> Any:
        if "properties" not in schema:
            names = PATTERNS[schema["propertyNames"]["pattern"]][0] if "propertyNames" in schema else TEXTS[1:]
            names = [name for name in names if name != "<<"]
            inside = schema.get("additionalProperties", {})
            return {name: self.value(inside) for name in self.chance.sample(names, self.chance.randint(0, 2))}
        if "additionalProperties" not in schema:  # tools and sinks, by kind
            return self.value(self.chance.choice(schema["allOf"])["then"])
        used = [key for key in schema["properties"] if key in schema.get("required", ()) or self.often(0.5)]
        self.chance.shuffle(used)
        return {key: self.value(schema["properties"][key]) for key in used}


def write_yaml(document: Any, seed: int) -> str:
    """A document as YAML in one of many styles. A seed always gives the same style."""
    chance = random.Random(seed)  # noqa: S311 as above
    text = yaml_text(
        document,
        quotes=chance.choices((None, "'", '"'), k=64),
        allow_unicode=chance.random() < 0.5,
        default_flow_style=chance.choice((True, False, None)),
        indent=chance.choice((2, 4)),
    )
    return f"# {seed}\n\n{text}" if seed % 2 else text
