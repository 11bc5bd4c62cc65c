"""The filters on lists and mappings, and looking into them.

Rule 1  A look-up finds an item of a mapping, list or text; never an attribute of a Python object.
Rule 2  Items are passed on, not wrapped. Only `items` and `dictsort` make pairs, of mappings; a pair is no
        mapping, so it cannot be paired again.
Rule 3  Order is the given one or that of the values: never that of a hash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from jinja2 import nodes

from agentrun.compiler import template_meter
from agentrun.compiler.template_meter import (
    ARITHMETIC,
    MISSING,
    TESTS,
    Bounds,
    Json,
    Missing,
    RenderMeter,
    RenderStopped,
    TemplateScalar,
    arithmetic,
    before,
    charged_text,
    concat,
    json_contains,
    misuse,
    number,
    require_mapping,
    require_string,
    scalar,
    scalar_text,
    scalars_equal,
    sequence,
    whole_number,
    wrong,
)

_MAX_PATH = 256


def look_up(value: Json, key: Json) -> Json | Missing:
    """`value[key]` and `value.key`."""
    if type(value) is dict:
        return value.get(key, MISSING) if type(key) is str else MISSING
    if (type(value) is list or type(value) is str) and type(key) is int:
        return value[key] if -len(value) <= key < len(value) else MISSING
    return MISSING


def _attribute(meter: RenderMeter, value: Json, path: Json) -> Json | Missing:
    """Follow `a.b.0` into a value, as `map(attribute=…)` and its kin do."""
    if type(path) is int:
        return look_up(value, path)
    if len(require_string(path, "attribute")) > _MAX_PATH:  # it is taken apart again for every item
        raise RenderStopped(f"an attribute must be at most {_MAX_PATH} characters")
    found: Json | Missing = value
    for part in require_string(path, "attribute").split("."):
        meter.step()
        index = part.isascii() and part.isdecimal() and len(part) < 10
        found = MISSING if found is MISSING else look_up(found, int(part) if index else part)
    return found


def _picked(meter: RenderMeter, value: Json, attribute: Json) -> list[Json]:
    """The items of a list, or one attribute of each."""
    items = sequence(meter, value, "what is filtered")
    if attribute is None:
        return items
    picked: list[Json] = []
    for item in items:
        found = _attribute(meter, item, attribute)
        if found is MISSING:
            raise RenderStopped("an item has no such attribute")
        picked.append(found)
    return picked


def default(_meter: RenderMeter, value: Json | Missing, default_value: Json = "", boolean: Json = False) -> Json:
    return default_value if value is MISSING or (boolean and not value) else value


def length(_meter: RenderMeter, value: Json) -> Json:
    if type(value) is str or type(value) is list or type(value) is dict:
        return len(value)
    wrong("what has a length must be text, a list or a mapping", value)


def first(_meter: RenderMeter, value: Json) -> Json | Missing:
    return next(iter(value), MISSING) if type(value) is dict else look_up(value, 0)


def last(_meter: RenderMeter, value: Json) -> Json | Missing:
    return next(reversed(value), MISSING) if type(value) is dict else look_up(value, -1)


def join(meter: RenderMeter, value: Json, d: Json = "", attribute: Json = None) -> Json:
    parts = [scalar_text(item) for item in _picked(meter, value, attribute)]
    return concat(meter, parts, require_string(d, "the separator"))


def list_filter(meter: RenderMeter, value: Json) -> Json:
    return sequence(meter, value, "what becomes a list")


def reverse(meter: RenderMeter, value: Json) -> Json:
    if type(value) is str:
        return charged_text(meter, value)[::-1]
    return sequence(meter, value, "what is reversed")[::-1]


def items(meter: RenderMeter, value: Json) -> Json:
    return list(_pairs(meter, value))


def keys(meter: RenderMeter, value: Json) -> Json:
    return sequence(meter, require_mapping(value, "what has keys"), "what has keys")


def values(meter: RenderMeter, value: Json) -> Json:
    meter.step(len(require_mapping(value, "what has values")))
    return list(require_mapping(value, "what has values").values())


def _pairs(meter: RenderMeter, value: Json) -> list[list[Json]]:
    meter.step(2 * len(require_mapping(value, "what has items")))
    return [[key, item] for key, item in require_mapping(value, "what has items").items()]


# --- in order


def _ordered(meter: RenderMeter, given: list[Json], by: list[Json], case_sensitive: Json, turned: Json) -> list[Json]:
    """Items ordered by keys that are all text or all numbers; equal ones stay as they stood."""
    rounds = len(given).bit_length()
    meter.step(len(given) * rounds)
    order = list(range(len(given)))
    if all(type(key) is str for key in by):
        texts = [scalar_text(key) if case_sensitive else charged_text(meter, key).lower() for key in by]
        meter.step(rounds * (sum(map(len, texts)) >> 10))
        order.sort(key=texts.__getitem__, reverse=bool(turned))
    else:
        numbers = [number(key, "what is sorted") for key in by]
        order.sort(key=numbers.__getitem__, reverse=bool(turned))
    return [given[index] for index in order]


def sort(
    meter: RenderMeter, value: Json, reverse: Json = False, case_sensitive: Json = False, attribute: Json = None
) -> Json:
    given = sequence(meter, value, "what is sorted")
    return _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, reverse)


def dictsort(
    meter: RenderMeter, value: Json, case_sensitive: Json = False, by: Json = "key", reverse: Json = False
) -> Json:
    if by not in ("key", "value"):
        raise RenderStopped("by must be 'key' or 'value'")
    pairs = _pairs(meter, value)
    return _ordered(meter, list(pairs), [pair[by == "value"] for pair in pairs], case_sensitive, reverse)


def least(meter: RenderMeter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    given = sequence(meter, value, "what is compared")
    ordered = _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, False)
    return ordered[0] if ordered else MISSING


def most(meter: RenderMeter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json | Missing:
    given = sequence(meter, value, "what is compared")
    ordered = _ordered(meter, given, _picked(meter, value, attribute), case_sensitive, True)
    return ordered[0] if ordered else MISSING


def total(meter: RenderMeter, value: Json, attribute: Json = None, start: Json = 0) -> Json:
    result: Json = number(start, "start")
    for item in _picked(meter, value, attribute):
        result = arithmetic(meter, "+", result, number(item, "what is summed"))
    return result


def unique(meter: RenderMeter, value: Json, case_sensitive: Json = False, attribute: Json = None) -> Json:
    seen: set[str] = set()
    kept: list[Json] = []
    picked = _picked(meter, value, attribute)
    for item, key in zip(sequence(meter, value, "what is made unique"), picked, strict=True):
        # Texts as keys: numbers can be chosen so that all their hashes collide, and the set turns quadratic.
        name = charged_text(meter, scalar(key, "what is made unique"))
        if type(key) is str:
            name = "'" + (name if case_sensitive else name.lower())
        elif type(key) is float and key.is_integer():
            name = scalar_text(int(key))
        if name not in seen:
            seen.add(name)
            kept.append(item)
    return kept


# --- one attribute of each item


def mapped(meter: RenderMeter, value: Json, *, attribute: Json, default: Json | Missing = MISSING) -> Json:
    if default is MISSING:
        return _picked(meter, value, attribute)
    found = [_attribute(meter, item, attribute) for item in sequence(meter, value, "what is mapped")]
    return [scalar(default, "default") if item is MISSING else item for item in found]


def selectattr(meter: RenderMeter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return [item for item in sequence(meter, value, "the list") if _fits(meter, item, attribute, test, args)]


def rejectattr(meter: RenderMeter, value: Json, attribute: Json, test: Json = None, *args: Json) -> Json:
    return [item for item in sequence(meter, value, "the list") if not _fits(meter, item, attribute, test, args)]


def _fits(meter: RenderMeter, item: Json, attribute: Json, test: Json, args: tuple[Json, ...]) -> bool:
    meter.step(4)
    found = _attribute(meter, item, attribute)
    if test is None:
        return found is not MISSING and bool(found)
    if type(test) is not str or test not in TESTS or misuse(TESTS[test], len(args), []):
        raise RenderStopped("there is no such test, or it takes other arguments")
    return (found is not MISSING or test in ("defined", "undefined")) and TESTS[test](meter, found, *args)


# --- the filters of templates: all there are ------------------------------------------------------------------


_LONGEST_NUMERAL: Final = 100
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,16}\Z")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\Z")


def _round(_meter: RenderMeter, value: Json, precision: Json = 0, method: Json = "common") -> Json:
    given, places = number(value, "what is rounded"), whole_number(precision, "precision", -15, 15)
    if method == "common":
        return round(given, places)
    if method not in ("ceil", "floor"):
        raise RenderStopped("method must be 'common', 'ceil' or 'floor'")
    scaled = number(float(given * 10**places), "what is rounded")
    return float((math.ceil if method == "ceil" else math.floor)(scaled) / 10**places)


def _int(meter: RenderMeter, value: Json, default: Json = 0) -> Json:
    if type(value) is bool:
        return int(value)
    if type(value) is str:
        if len(value) < _LONGEST_NUMERAL and _WHOLE.match(value.strip()):
            return whole_number(int(value), "the number")
        value = _float(meter, value, None)
        if value is None:
            return default
    return whole_number(int(number(value, "what becomes a number")), "the number")


def _float(_meter: RenderMeter, value: Json, default: Json = 0.0) -> Json:
    if type(value) is not str:
        return float(number(value, "what becomes a number"))
    if len(value) < _LONGEST_NUMERAL and _DECIMAL.match(value.strip()):
        return number(float(value), "the number")
    return default


def _abs(_meter: RenderMeter, value: Json) -> Json:
    return abs(number(value, "what loses its sign"))


FILTERS: Final[Mapping[str, Callable[..., Json | Missing]]] = {
    "abs": _abs,
    "capitalize": template_meter.capitalize,
    "count": length,
    "d": default,
    "default": default,
    "dictsort": dictsort,
    "first": first,
    "float": _float,
    "indent": template_meter.indent,
    "int": _int,
    "items": items,
    "join": join,
    "keys": keys,
    "last": last,
    "length": length,
    "list": list_filter,
    "lower": template_meter.lower,
    "map": mapped,
    "max": most,
    "min": least,
    "rejectattr": rejectattr,
    "replace": template_meter.replace,
    "reverse": reverse,
    "round": _round,
    "selectattr": selectattr,
    "sort": sort,
    "string": template_meter.string_filter,
    "sum": total,
    "title": template_meter.title,
    "tojson": template_meter.tojson,
    "trim": template_meter.trim,
    "truncate": template_meter.truncate,
    "unique": unique,
    "upper": template_meter.upper,
    "values": values,
    "wordcount": template_meter.wordcount,
}


# --- walks a template's tree and writes its text --------------------------------------------------------------


_ASKS_IF_MISSING: Final = frozenset({"default", "d", "defined", "undefined"})


class Renderer:
    """One render: its scopes, its meter, its output so far."""

    def __init__(self, values: Mapping[str, Json], bounds: Bounds) -> None:
        self.at = 0
        """Offset of what is being rendered, for the place of a stop."""
        self._meter = RenderMeter(bounds)
        self._scopes: list[dict[str, Json]] = [dict(values)]
        self._output: list[str] = []
        self._printed: list[nodes.Expr] = []
        """What gave each piece of the output."""
        self._room = bounds.output

    def text(self, tree: nodes.Template) -> str:
        self._body(tree.body)
        return "".join(self._output)

    def pieces(self) -> Iterator[tuple[str, nodes.Expr]]:
        """The output in its pieces, each with the node that gave it."""
        return zip(self._output, self._printed, strict=True)

    def _body(self, statements: list[nodes.Node]) -> None:
        for statement in statements:
            self._meter.step()
            self.at = statement.lineno
            self.STATEMENTS[type(statement)](self, statement)

    def _value(self, node: nodes.Node) -> Json:
        value = self._maybe(node)
        if value is MISSING:
            self.at = node.lineno
            raise RenderStopped(_absence(node))
        return value

    def _maybe(self, node: nodes.Node) -> Json | Missing:
        self._meter.step()
        self.at = node.lineno
        return self.EXPRESSIONS[type(node)](self, node)

    # --- statements

    def _print(self, node: nodes.Output) -> None:
        for part in node.nodes:
            piece = scalar_text(self._value(part))
            self._room -= self._meter.size(piece)
            if self._room < 0:
                raise RenderStopped(f"the text grows over {self._meter.bounds.output} bytes")
            self._output.append(piece)
            self._printed.append(part)

    def _choose(self, node: nodes.If) -> None:
        for branch in (node, *node.elif_):
            if self._value(branch.test):
                return self._body(branch.body)
        return self._body(node.else_)

    def _set(self, node: nodes.Assign) -> None:
        self._fill(self._scopes[-1], node.target, self._value(node.node))

    def _loop(self, node: nodes.For) -> None:
        items = sequence(self._meter, self._value(node.iter), "what is looped over")
        if node.test is not None:
            items = [item for item in items if self._wanted(node, node.test, item)]
        for index, item in enumerate(items):
            self._meter.step(2)
            scope = self._enter(node.target, item)
            scope["loop"] = _loop_fields(index, len(items))
            self._body(node.body)
            self._scopes.pop()
        if not items:
            self._scopes.append({})
            self._body(node.else_)
            self._scopes.pop()

    def _wanted(self, node: nodes.For, test: nodes.Node, item: Json) -> bool:
        self._enter(node.target, item)
        wanted = bool(self._value(test))
        self._scopes.pop()
        return wanted

    def _enter(self, target: nodes.Node, item: Json) -> dict[str, Json]:
        scope: dict[str, Json] = {}
        self._fill(scope, target, item)
        self._scopes.append(scope)
        return scope

    def _fill(self, scope: dict[str, Json], target: nodes.Node, value: Json) -> None:
        if isinstance(target, nodes.Name):
            scope[target.name] = value
        elif isinstance(target, nodes.Tuple):
            items = sequence(self._meter, value, "what fills several names")
            if len(items) != len(target.items):
                raise RenderStopped(f"{len(target.items)} names cannot be filled from {len(items)} values")
            for part, item in zip(target.items, items, strict=True):
                self._fill(scope, part, item)

    # --- names, literals, look-ups

    def _data(self, node: nodes.TemplateData) -> Json:
        return node.data

    def _constant(self, node: nodes.Const) -> Json:
        return node.value  # type: ignore[no-any-return]  # the parser makes constants of scalars only

    def _name(self, node: nodes.Name) -> Json | Missing:
        for scope in reversed(self._scopes):
            if node.name in scope:
                return scope[node.name]
        return MISSING

    def _list(self, node: nodes.List | nodes.Tuple) -> Json:
        return [self._scalar(item, "an item of a list") for item in node.items]

    def _mapping(self, node: nodes.Dict) -> Json:
        return {
            require_string(self._value(pair.key), "a key"): self._scalar(pair.value, "a value in a mapping")
            for pair in node.items
        }

    def _scalar(self, node: nodes.Node, what: str) -> TemplateScalar:
        return scalar(self._value(node), what)

    def _field(self, node: nodes.Getattr) -> Json | Missing:
        return look_up(self._value(node.node), node.attr)

    def _item(self, node: nodes.Getitem) -> Json | Missing:
        value = self._value(node.node)
        if isinstance(node.arg, nodes.Slice):
            return self._slice(value, node.arg)
        return look_up(value, self._value(node.arg))

    def _slice(self, value: Json, node: nodes.Slice) -> Json:
        ends = [
            None if end is None else whole_number(self._value(end), "a slice")
            for end in (node.start, node.stop, node.step)
        ]
        if ends[2] == 0:
            raise RenderStopped("the step of a slice must not be 0")
        if type(value) is str:
            self._meter.made(len(range(*slice(*ends).indices(len(value)))))
            return value[slice(*ends)]
        if type(value) is list:
            self._meter.step(len(range(*slice(*ends).indices(len(value)))))
            return value[slice(*ends)]
        wrong("what is sliced must be a list or text", value)

    # --- operators and functions

    def _arithmetic(self, node: nodes.BinExpr) -> Json:
        left, right = self._value(node.left), self._value(node.right)
        self.at = node.lineno
        return arithmetic(self._meter, ARITHMETIC[type(node)], left, right)

    def _negative(self, node: nodes.Neg) -> Json:
        return -number(self._value(node.node), "what has a sign")

    def _positive(self, node: nodes.Pos) -> Json:
        return number(self._value(node.node), "what has a sign")

    def _concat(self, node: nodes.Concat) -> Json:
        return concat(self._meter, [scalar_text(self._value(part)) for part in node.nodes])

    def _and(self, node: nodes.And) -> Json:
        return self._value(node.left) and self._value(node.right)

    def _or(self, node: nodes.Or) -> Json:
        return self._value(node.left) or self._value(node.right)

    def _not(self, node: nodes.Not) -> Json:
        return not self._value(node.node)

    def _either(self, node: nodes.CondExpr) -> Json:
        if self._value(node.test):
            return self._value(node.expr1)
        return "" if node.expr2 is None else self._value(node.expr2)

    def _compare(self, node: nodes.Compare) -> Json:
        left = self._value(node.expr)
        for part in node.ops:
            right = self._value(part.expr)
            if not self._holds(part.op, left, right):
                return False
            left = right
        return True

    def _holds(self, sign: str, left: Json, right: Json) -> bool:
        match sign:
            case "in":
                return json_contains(self._meter, left, right)
            case "notin":
                return not json_contains(self._meter, left, right)
            case "eq" | "ne":
                what = "what is compared"
                return scalars_equal(self._meter, scalar(left, what), scalar(right, what)) == (sign == "eq")
            case "lt" | "gteq":
                return before(self._meter, left, right) == (sign == "lt")
            case _:
                return before(self._meter, right, left) == (sign == "gt")

    def _apply(self, node: nodes.Filter | nodes.Test) -> Json | Missing:
        functions: Mapping[str, Callable[..., Json | Missing]] = FILTERS if isinstance(node, nodes.Filter) else TESTS
        asks = node.name in _ASKS_IF_MISSING
        operand = self._maybe(_operand(node)) if asks else self._value(_operand(node))
        args = [self._value(arg) for arg in node.args]
        keywords = {str(keyword.key): self._value(keyword.value) for keyword in node.kwargs}
        self._meter.step(2)
        self.at = node.lineno
        return functions[node.name](self._meter, operand, *args, **keywords)

    def _range(self, node: nodes.Call) -> Json:
        ends = [whole_number(self._value(arg), "a number in `range`") for arg in node.args]
        if len(ends) == 3 and ends[2] == 0:
            raise RenderStopped("the step of `range` must not be 0")
        numbers = range(*ends)
        if len(numbers) > self._meter.bounds.range:
            raise RenderStopped(f"`range` gives more than {self._meter.bounds.range} numbers")
        self._meter.step(len(numbers))
        return list(numbers)

    # `Any`: each rule takes its own kind of node, and a table of them cannot say so.
    STATEMENTS: ClassVar[Mapping[type[nodes.Node], Callable[[Renderer, Any], None]]] = {
        nodes.Output: _print,
        nodes.If: _choose,
        nodes.For: _loop,
        nodes.Assign: _set,
    }
    EXPRESSIONS: ClassVar[Mapping[type[nodes.Node], Callable[[Renderer, Any], Json | Missing]]] = {
        nodes.TemplateData: _data,
        nodes.Const: _constant,
        nodes.Name: _name,
        nodes.List: _list,
        nodes.Tuple: _list,
        nodes.Dict: _mapping,
        nodes.Getattr: _field,
        nodes.Getitem: _item,
        nodes.Neg: _negative,
        nodes.Pos: _positive,
        nodes.Concat: _concat,
        nodes.And: _and,
        nodes.Or: _or,
        nodes.Not: _not,
        nodes.CondExpr: _either,
        nodes.Compare: _compare,
        nodes.Filter: _apply,
        nodes.Test: _apply,
        nodes.Call: _range,
        **dict.fromkeys(ARITHMETIC, _arithmetic),
    }


def _operand(node: nodes.Filter | nodes.Test) -> nodes.Node:
    if node.node is None:  # only a filter block has none, and the grammar refuses those
        raise RenderStopped("a filter needs a value")
    return node.node


def _loop_fields(index: int, length: int) -> dict[str, Json]:
    return {
        "index": index + 1,
        "index0": index,
        "revindex": length - index,
        "revindex0": length - index - 1,
        "first": index == 0,
        "last": index == length - 1,
        "length": length,
    }


def _absence(node: nodes.Node) -> str:
    match node:
        case nodes.Name():
            return f"`{node.name[:40]}` is not set"
        case nodes.Getattr():
            return f"there is no `.{node.attr[:40]}`: add `|default(…)` if that may be"
        case nodes.Getitem():
            return "there is no such item: add `|default(…)` if that may be"
    return "there is no such value: add `|default(…)` if that may be"
