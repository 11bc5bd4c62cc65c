"""Walks a template's tree and writes its text.

Rule 1  Every node that is visited is paid for, here and only here.
Rule 2  A node without a rule in the two tables of `Renderer` cannot be rendered.
Rule 3  `MISSING` is no value: it goes from a look-up to `is defined` or `|default`, or stops the render.
Rule 4  What stands in a literal is a scalar: lists of lists of lists, each shared twice, would never end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from jinja2 import nodes

from agentrun.compiler.template_language.filters import FILTERS
from agentrun.compiler.template_language.grammar import ARITHMETIC
from agentrun.compiler.template_language.lists import look_up
from agentrun.compiler.template_language.meter import (
    MISSING,
    Bounds,
    Json,
    Meter,
    Missing,
    Scalar,
    Stop,
    arithmetic,
    before,
    concat,
    contains,
    number,
    same,
    scalar,
    sequence,
    string,
    text,
    whole,
    wrong,
)
from agentrun.compiler.template_language.predicates import TESTS

_ASKS_IF_MISSING: Final = frozenset({"default", "d", "defined", "undefined"})


class Renderer:
    """One render: its scopes, its meter, its output so far."""

    def __init__(self, values: Mapping[str, Json], bounds: Bounds) -> None:
        self.at = 0
        """Offset of what is being rendered, for the place of a stop."""
        self._meter = Meter(bounds)
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
            raise Stop(_absence(node))
        return value

    def _maybe(self, node: nodes.Node) -> Json | Missing:
        self._meter.step()
        self.at = node.lineno
        return self.EXPRESSIONS[type(node)](self, node)

    # --- statements

    def _print(self, node: nodes.Output) -> None:
        for part in node.nodes:
            piece = text(self._value(part))
            self._room -= self._meter.size(piece)
            if self._room < 0:
                raise Stop(f"the text grows over {self._meter.bounds.output} bytes")
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
                raise Stop(f"{len(target.items)} names cannot be filled from {len(items)} values")
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
            string(self._value(pair.key), "a key"): self._scalar(pair.value, "a value in a mapping")
            for pair in node.items
        }

    def _scalar(self, node: nodes.Node, what: str) -> Scalar:
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
            None if end is None else whole(self._value(end), "a slice") for end in (node.start, node.stop, node.step)
        ]
        if ends[2] == 0:
            raise Stop("the step of a slice must not be 0")
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
        return concat(self._meter, [text(self._value(part)) for part in node.nodes])

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
                return contains(self._meter, left, right)
            case "notin":
                return not contains(self._meter, left, right)
            case "eq" | "ne":
                what = "what is compared"
                return same(self._meter, scalar(left, what), scalar(right, what)) == (sign == "eq")
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
        ends = [whole(self._value(arg), "a number in `range`") for arg in node.args]
        if len(ends) == 3 and ends[2] == 0:
            raise Stop("the step of `range` must not be 0")
        numbers = range(*ends)
        if len(numbers) > self._meter.bounds.range:
            raise Stop(f"`range` gives more than {self._meter.bounds.range} numbers")
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
        raise Stop("a filter needs a value")
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
