"""Convert annotations in source code to JSON Schemas.

Rule 1  Arguments are plain JSON. A `TypedDict` is supported, because it is a dict at run time. Dataclasses, models and
        enums are not, because the function would get a dict or a text instead.
Rule 2  Names are looked up only among the classes and aliases at the top level of the same module, without recursion.
"""

from __future__ import annotations

import ast
from typing import Any, TypeAlias

from agentrun.spec.problems import is_utf8_text

AnnotationSchema: TypeAlias = dict[str, Any]

MAX_ANNOTATION_DEPTH = 16
MAX_ANNOTATION_PARTS = 1000
"""The maximum number of parts of an annotation, including the types it names."""

_SIMPLE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}
_SIMPLE |= {"list": "array", "dict": "object", "tuple": "array"}
_LISTS = {"list", "List", "Sequence", "Iterable", "Collection"}
_MAPPINGS = {"dict", "Dict", "Mapping", "MutableMapping"}
_BOUNDS = {
    "number": {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"},
    "string": {"min_length": "minLength", "max_length": "maxLength"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
}
_BOUNDS["integer"] = _BOUNDS["number"]


class _UnreadableAnnotation(Exception):
    """An annotation that cannot be converted."""


class AnnotationReader:
    def __init__(self, module: ast.Module) -> None:
        self._classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
        self._aliases: dict[str, ast.expr] = {}
        self._left = 0
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._aliases[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._aliases[name] = value

    def schema(self, node: ast.expr | None) -> AnnotationSchema | None:
        """Return the schema of an annotation; None if it cannot be converted."""
        self._left = MAX_ANNOTATION_PARTS
        try:
            return self._schema(node, 0, ())
        except _UnreadableAnnotation:
            return None

    def _schema(self, node: ast.expr | None, depth: int, trail: tuple[str, ...]) -> AnnotationSchema:
        self._left -= 1
        if depth > MAX_ANNOTATION_DEPTH or self._left < 0:
            raise _UnreadableAnnotation
        match node:
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=str(text)):
                return self._schema(_parse_annotation(text), depth + 1, trail)
            case ast.BinOp(op=ast.BitOr()):
                return _any_of([self._schema(part, depth + 1, trail) for part in _alternatives(node)])
            case ast.Name(id=name) if name in self._classes and name not in trail:
                return self._typed_dict(self._classes[name], depth + 1, (*trail, name))
            case ast.Name(id=name) if name in self._aliases and name not in trail:
                return self._schema(self._aliases[name], depth + 1, (*trail, name))
            case ast.Name(id=name) if name in _SIMPLE:
                return {"type": _SIMPLE[name]}
            case ast.Subscript(value=ast.Name() | ast.Attribute() as outer, slice=inner):
                return self._generic(_name(outer), inner, depth + 1, trail)
        raise _UnreadableAnnotation

    def _generic(self, outer: str, inner: ast.expr, depth: int, trail: tuple[str, ...]) -> AnnotationSchema:
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        match outer:
            case "Optional":
                return _any_of([self._schema(inner, depth, trail), {"type": "null"}])
            case "Union":
                return _any_of([self._schema(part, depth, trail) for part in parts])
            case "Literal":
                return _literal(parts)
            case "Annotated":
                return _add_notes(self._schema(parts[0], depth, trail), parts[1:])
            case "tuple" | "Tuple":
                return self._tuple(parts, depth, trail)
            case _ if outer in _LISTS:
                return {"type": "array", "items": self._schema(inner, depth, trail)}
            case _ if outer in _MAPPINGS and len(parts) == 2 and _name(parts[0]) == "str":
                return {"type": "object", "additionalProperties": self._schema(parts[1], depth, trail)}
        raise _UnreadableAnnotation

    def _tuple(self, parts: list[ast.expr], depth: int, trail: tuple[str, ...]) -> AnnotationSchema:
        match parts:
            case []:
                raise _UnreadableAnnotation
            case [first, ast.Constant(value=rest)] if rest is ...:
                return {"type": "array", "items": self._schema(first, depth, trail)}
        each = [self._schema(part, depth, trail) for part in parts]
        return {"type": "array", "prefixItems": each, "items": False, "minItems": len(each)}

    def _typed_dict(self, node: ast.ClassDef, depth: int, trail: tuple[str, ...]) -> AnnotationSchema:
        """Return the schema of a class if its only base is `TypedDict`."""
        if [_name(base) for base in node.bases] != ["TypedDict"] or node.decorator_list:
            raise _UnreadableAnnotation
        total = not any(each.arg == "total" and _constant(each.value) is False for each in node.keywords)
        properties: dict[str, Any] = {}
        required = []
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                annotation, is_needed = _required(field.annotation, total)
                properties[field.target.id] = self._schema(annotation, depth, trail)
                required += [field.target.id] if is_needed else []
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _required(node: ast.expr, total: bool) -> tuple[ast.expr, bool]:
    match node:
        case ast.Subscript(value=ast.Name() | ast.Attribute() as outer, slice=inner):
            if _name(outer) in ("Required", "NotRequired"):
                return inner, _name(outer) == "Required"
    return node, total


def _add_notes(schema: AnnotationSchema, notes: list[ast.expr]) -> AnnotationSchema:
    """Add `Annotated[int, "how many"]` and `Annotated[int, Field(ge=1, description="how many")]` to a schema."""
    annotated = dict(schema)
    for note in notes:
        match note:
            case ast.Constant(value=str(text)) if is_utf8_text(text):
                annotated["description"] = text
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]) if is_utf8_text(text):
                annotated["description"] = text
            case ast.Call(keywords=keywords):
                annotated |= _bounds(schema.get("type", ""), keywords)
    return annotated


def _bounds(kind: object, keywords: list[ast.keyword]) -> AnnotationSchema:
    names = {"description": "description", **_BOUNDS.get(str(kind), {})}
    found: AnnotationSchema = {}
    for each in keywords:
        value = _constant(each.value)
        fits = isinstance(value, str) if each.arg == "description" else type(value) in (int, float)
        if each.arg in names and fits and is_json_scalar(value):
            found[names[each.arg]] = value
    return found


def _constant(node: ast.expr) -> object:
    """Return the value of a constant, including negative numbers; `...` for everything else."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    return ...


def literal_default(node: ast.expr | None) -> object:
    """Return a default that is a text, a number or a boolean, or a list or dict of these; `...` for all others."""
    match node:
        case None:
            return ...
        case ast.List(elts=items):
            values = [literal_default(item) for item in items]
            return ... if ... in values else values
        case ast.Dict(keys=keys, values=items):
            names = [literal_default(key) for key in keys]
            values = [literal_default(item) for item in items]
            is_json = all(isinstance(name, str) for name in names) and ... not in values
            return dict(zip(names, values, strict=True)) if is_json else ...
    value = _constant(node)
    return value if isinstance(value, int | float | str) and is_json_scalar(value) else ...


def _name(node: ast.expr) -> str:
    """Return the last part of a dotted name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """Return `a`, `b` and `c` of `a | b | c`."""
    right: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        right.append(node.right)
        node = node.left
    return [node, *reversed(right)]


def _parse_annotation(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        raise _UnreadableAnnotation from None


def _any_of(schemas: list[AnnotationSchema]) -> AnnotationSchema:
    return {"anyOf": [inner for schema in schemas for inner in schema.get("anyOf", [schema])]}


def _literal(values: list[ast.expr]) -> AnnotationSchema:
    plain = [each for value in values if is_json_scalar(each := _constant(value)) and not isinstance(each, float)]
    if not plain or len(plain) < len(values):
        raise _UnreadableAnnotation
    return {"enum": plain}


def is_json_scalar(value: object) -> bool:
    match value:
        case None | bool():
            return True
        case int() | float():
            return abs(value) < 2**53
        case str():
            return is_utf8_text(value)
        case _:
            return False
