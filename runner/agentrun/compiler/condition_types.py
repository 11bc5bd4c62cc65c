"""Types in conditions: an expression must work with the arguments of each tool that its rule names.

Rule 1  A path such as `args.options.depth` or `args['options'].depth` has the type of its schema: text, a number, true
        or false, a list of these, or an object.
Rule 2  All other paths can be anything: `anyOf`, several types, what is inside the objects of a list, unknown schemas.
Rule 3  JSON has one kind of number. Whole and decimal numbers can be mixed, and every value can be compared with null.
Rule 4  CEL checks the types. It gets the expression with a variable in place of each path, padded to the same length,
        so that the positions of its errors are right. `has(…)` is replaced by a boolean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from cel_expr_python import cel

from agentrun.compiler.conditions import (
    FILL,
    TYPE_DESCRIPTIONS,
    CompileError,
    compile_errors,
    literal_text,
    near_or_known_hint,
    operator_sign,
    overload_error,
    without_literals,
)
from agentrun.core.condition import CONDITION_TYPES
from agentrun.core.package_tools import JsonSchema
from agentrun.spec.problems import Problem, quote_text
from agentrun.spec.tree import ScalarNode

ArgumentSchemas: TypeAlias = Mapping[str, JsonSchema]
"""The schemas of the arguments of tools, by the names that rules use. An empty schema allows anything."""

_path = re.compile(rf"(?<![\w.])args(?:\s*+(?:\.\s*+[A-Za-z_]\w*+(?!\s*+\()|\[\s*+{FILL}++\s*+\]))++")
_step = re.compile(rf"\.\s*+([A-Za-z_]\w*+)|\[\s*+({FILL}++)\s*+\]")
_presence = re.compile(rf"(?<![\w.])has\s*+\(\s*+{_path.pattern}\s*+\)")
_COMBINATIONS = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if"})
_SCALARS = {"string": "string", "integer": "int", "number": "double", "boolean": "bool", "null": "null_type"}
_TYPES = {
    "string": cel.Type.STRING,
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "bool": cel.Type.BOOL,
    "null_type": cel.Type.NULL,
    "dyn": cel.Type.DYN,
}
_PLURALS = {"string": "texts", "int": "whole numbers", "double": "numbers", "bool": "booleans"}
_NUMERIC_OPERATORS = {f"_{sign}_" for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "?_:")}
_NUMERIC_OPERATORS |= {"@in", "timestamp"}
_NUMBER = re.compile(r"(?:list\()*+(?:int|uint|double)\)*")
_operand = re.compile(r"expression of type '(.*)' cannot be the operand of a select")
_range = re.compile(r"expression of type '(.*)' cannot be the range of a comprehension")
MAX_TYPE_WORK = 300_000
"""How many types can be looked up for all conditions of a spec: about a second."""
WORK_OF_COMPILER = 50
"""How many types can be looked up in the time in which CEL checks an expression."""
MAX_SHOWN_PATHS = 3
"""The number of arguments whose types are shown with an error."""


class PathStep(NamedTuple):
    name: str
    start: int
    """The offset of the name in the expression."""
    end: int
    """The offset after the step."""


class ArgumentPath(NamedTuple):
    start: int
    steps: list[PathStep]

    def name(self, count: int) -> str:
        """Return the path up to a number of steps."""
        return ".".join(["args", *(step.name for step in self.steps[:count])])


class TypedPath(NamedTuple):
    """A path, or the first part of one, with its type in the notation of CEL."""

    start: int
    end: int
    name: str
    type: str


class ConditionTypes:
    """Checks the conditions of one spec, up to a limit of work."""

    def __init__(self) -> None:
        self.work = 0

    def problems(self, node: ScalarNode, schemas: ArgumentSchemas) -> list[Problem]:
        """Return the mistakes of a valid expression about the arguments of these tools."""
        if self.work > MAX_TYPE_WORK:
            return []  # the spec is refused already
        paths = list(argument_paths(node.text))
        self.work += len(schemas) * sum(len(path.steps) for path in paths)
        problems = list(_unknown_field_problems(node, paths, schemas.values())) if self.work <= MAX_TYPE_WORK else []
        checked: set[tuple[TypedPath, ...]] = set()
        for tool, schema in schemas.items():
            if problems or self.work > MAX_TYPE_WORK:
                break
            typed = tuple(each for path in paths if (each := _typed_path(path, schema)) is not None)
            if typed and typed not in checked:
                checked.add(typed)
                self.work += WORK_OF_COMPILER
                problems = _type_problems(node, tool, typed)
        if self.work > MAX_TYPE_WORK:
            message = "there are too many conditions about tools with different arguments"
            return [Problem(node.place, "spec.too_large", message, "use fewer conditions, or name fewer tools in them")]
        return problems


def argument_paths(text: str) -> Iterator[ArgumentPath]:
    """Yield the paths into `args` that an expression reads."""
    bare = without_literals(text)
    for match in _path.finditer(bare):
        steps = []
        for step in _step.finditer(bare, match.start() + len("args"), match.end()):
            group = 1 if step[1] is not None else 2
            name = step[1] if group == 1 else literal_text(text[step.start(2) : step.end(2)])
            if name is None:  # a literal with escapes
                break
            steps.append(PathStep(name, text.index(name, step.start(group)), step.end()))
        if steps:
            yield ArgumentPath(match.start(), steps)


def known_fields(schema: Any) -> dict[str, Any] | None:
    """Return the fields of an object with their schemas; None if it can have others, or is no object."""
    if not isinstance(schema, dict) or not _COMBINATIONS.isdisjoint(schema) or "patternProperties" in schema:
        return None
    properties = schema.get("properties", {})
    is_closed = schema.get("additionalProperties", not properties) is False
    return properties if isinstance(properties, dict) and is_closed else None


def merge_action_schemas(actions: Sequence[JsonSchema]) -> JsonSchema:
    """Return one schema for all actions of a tool. A field that has several types can be anything."""
    fields: dict[str, Any] = {"action": {"type": "string"}}
    for schema in actions:
        for name, inner in schema.get("properties", {}).items():
            fields[name] = inner if fields.get(name, inner) == inner else {}
    is_closed = all(known_fields(schema) is not None for schema in actions)
    return {"type": "object", "properties": fields, "additionalProperties": not is_closed}


def _unknown_field_problems(
    node: ScalarNode, paths: list[ArgumentPath], schemas: Iterable[JsonSchema]
) -> Iterator[Problem]:
    """Find fields inside of objects that no tool has. `check_condition` finds unknown arguments."""
    for path in paths:
        parents: list[Any] = list(schemas)
        for before, step in pairwise(path.steps):
            parents = [found for parent in parents if (found := _field_schema(parent, before.name)) is not None]
            fields = [known_fields(parent) for parent in parents]
            if not fields or None in fields:
                break
            names = {name: None for each in fields for name in each or ()}
            if step.name not in names:
                message = f"{path.name(path.steps.index(step))} has no field {quote_text(step.name)}"
                place = node.place_at(step.start, len(step.name))
                yield Problem(place, "spec.unknown_arg", message, near_or_known_hint(step.name, names))
                break


def _field_schema(schema: Any, name: str) -> Any:
    """Return the schema of a field; `True` if it can be anything, None if there is no such field."""
    if not isinstance(schema, dict) or not _COMBINATIONS.isdisjoint(schema):
        return True
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return True if known_fields(schema) is None else None


def _typed_path(path: ArgumentPath, schema: JsonSchema) -> TypedPath | None:
    """Return the longest part of a path that has a type."""
    found: TypedPath | None = None
    inner: Any = schema
    for count, step in enumerate(path.steps, 1):
        inner = _field_schema(inner, step.name)
        kind = _cel_type(inner)
        if inner is None or kind == "dyn":
            break
        found = TypedPath(path.start, step.end, path.name(count), kind)
    return found


def _cel_type(schema: Any) -> str:
    """Return the type of a schema in the notation of CEL."""
    if not isinstance(schema, dict) or not _COMBINATIONS.isdisjoint(schema):
        return "dyn"
    kind = schema.get("type")
    if kind is None:
        kinds = {_json_type(value) for value in schema.get("enum", [schema.get("const")])}
        kind = kinds.pop() if len(kinds) == 1 else None
    if kind == "array":
        return f"list({'dyn' if 'prefixItems' in schema else _cel_type(schema.get('items'))})"
    if kind == "object":
        others = schema.get("additionalProperties") if "properties" not in schema else None
        return f"map(string, {_cel_type(others)})"
    return _SCALARS.get(kind, "dyn") if isinstance(kind, str) else "dyn"


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return ""


def _to_type(kind: str) -> cel.Type:
    if kind.startswith("list("):
        return cel.Type.List(_to_type(kind[5:-1]))
    if kind.startswith("map("):
        return cel.Type.Map(cel.Type.STRING, _to_type(kind.partition(", ")[2][:-1]))
    return _TYPES[kind]


def _type_problems(node: ScalarNode, tool: str, typed: Sequence[TypedPath]) -> list[Problem]:
    text, variables = _with_variables(node.text, typed)
    errors, kind = _check_types(text, tuple(variables.items()))
    named = {each.name: f"{each.name} of {tool} is {_describe(each.type)}" for each in typed}
    hint = "; ".join(list(named.values())[:MAX_SHOWN_PATHS])
    problems = []
    for line, column, error in errors:
        message, width = _explain(error)
        problems.append(Problem(node.place_at_line(line, column, width), "spec.condition", message, hint))
    if not errors and kind not in ("BOOL", "DYN"):
        message = f"a condition must be true or false, but this is {_describe(kind.lower())}"
        problems.append(Problem(node.place, "spec.condition", message, hint))
    return problems


def _with_variables(text: str, typed: Sequence[TypedPath]) -> tuple[str, dict[str, str]]:
    """Return the expression with variables in place of paths, and the types of the variables."""
    names: dict[str, str] = {}
    types: dict[str, str] = {}
    presences = [match.span() for match in _presence.finditer(without_literals(text))]
    for start, end in presences:
        text = _overwrite(text, start, end, "true")
    for each in typed:
        if any(start < each.start < end for start, end in presences):
            continue
        name = names.setdefault(each.name, f"_{len(names)}")
        if "\n" not in text[each.start : each.start + len(name)]:
            text = _overwrite(text, each.start, each.end, name)
            types[name] = each.type
    return text, types


def _overwrite(text: str, start: int, end: int, word: str) -> str:
    rest = re.sub(r"[^\n]", " ", text[start + len(word) : end])
    return text[:start] + word + rest + text[end:]


@lru_cache(maxsize=1024)
def _environment(variables: tuple[tuple[str, str], ...]) -> cel.Env:
    return cel.NewEnv(variables={**CONDITION_TYPES, **{name: _to_type(kind) for name, kind in variables}})


@lru_cache(maxsize=4096)
def _check_types(text: str, variables: tuple[tuple[str, str], ...]) -> tuple[tuple[CompileError, ...], str]:
    """Return the errors of an expression and the type of its value."""
    try:
        return (), _environment(variables).compile(text).return_type().name()
    except RuntimeError as error:
        return tuple(each for each in compile_errors(str(error)) if not _works_at_run_time(each[2])), "DYN"


def _works_at_run_time(error: str) -> bool:
    found = overload_error(error)
    if found is None:
        return False
    function, types = found
    if function in ("_==_", "_!=_") and "null_type" in types:
        return True
    if function == "_[_]":
        return types[1] == "double"
    operands = types[1:] if function == "_?_:_" else types
    return function in _NUMERIC_OPERATORS and all(_NUMBER.fullmatch(kind) for kind in operands)


def _explain(error: str) -> tuple[str, int]:
    """Return the message of an error, and the width of the text that it is about."""
    if found := overload_error(error):
        sign = operator_sign(found[0])
        width = 1 if sign.isalpha() or " " in sign else len(sign)
        return f"{sign} does not work on {' and '.join(map(_describe, found[1]))}", width
    if operand := _operand.match(error):
        return f"{_describe(operand[1])} has no fields", 1
    if looped := _range.match(error):
        return f"all, exists, map and filter need a list, but this is {_describe(looped[1])}", 1
    return error[:200], 1


def _describe(kind: str) -> str:
    """Return a type in words. `number` in a schema and a decimal number are the same type."""
    outer, _, inner = kind.replace("<", "(").rstrip(">)").partition("(")
    if outer == "list" and inner in _PLURALS:
        return f"a list of {_PLURALS[inner]}"
    return "a number" if outer == "double" else TYPE_DESCRIPTIONS.get(outer, outer)
