"""The features that a template can use, and the names it reads.

Rule 1  Everything that is allowed is listed: node types, one function, filters and tests. The rest is refused.
Rule 2  The renderer has a rule for exactly the node types in these lists; a test compares them.
Rule 3  Nothing is evaluated during the check, so checking `'a' * 10**9` is cheap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from jinja2 import nodes

from agentrun.compiler.template_meter import ARITHMETIC, MAX_TEMPLATE_NUMBER, TESTS, Bounds, filter_arguments, misuse
from agentrun.compiler.template_parser import (
    TemplateProblems,
    nearest_name_hint,
    normalize_newlines,
    parse_template,
    short_name,
)
from agentrun.compiler.template_renderer import FILTERS
from agentrun.spec.problems import is_utf8_text

MAX_TEMPLATE_DEPTH: Final = 100
_MAX_CACHED_LENGTH: Final = 1 << 16
_MAX_RANGE_LENGTH: Final = Bounds().range
LOOP_FIELDS: Final = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
ALLOWED_STATEMENTS: Final = frozenset({nodes.Output, nodes.If, nodes.For, nodes.Assign})
ALLOWED_EXPRESSIONS: Final[frozenset[type[nodes.Node]]] = frozenset(
    {
        *(nodes.TemplateData, nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Getattr),
        *(nodes.Getitem, nodes.Filter, nodes.Test, nodes.Call, nodes.Compare, nodes.Concat, nodes.And, nodes.Or),
        *(nodes.Not, nodes.CondExpr, nodes.Neg, nodes.Pos),
        *ARITHMETIC,
    }
)
ALLOWED_NODES: Final = (
    ALLOWED_STATEMENTS | ALLOWED_EXPRESSIONS | {nodes.Operand, nodes.Pair, nodes.Keyword, nodes.Slice}
)
_BUILT_IN: Final = frozenset({"loop", "range"})
_OTHER_FILTERS: Final = {
    "attr": "write `value.name`",
    "format": "join parts with `~`, round numbers with `|round`",
    "random": "a prompt must be the same each time",
    "pprint": "use `|tojson(indent=2)`",
    "safe": "remove it; nothing is escaped here",
    "e": "remove it; nothing is escaped here",
    "escape": "remove it; nothing is escaped here",
    "select": "filter in a loop: `{% for x in list if x %}`",
    "reject": "filter in a loop: `{% for x in list if not x %}`",
}
_METHODS: Final = {
    **{name: f"use the filter: `value|{name}`" for name in FILTERS},
    "strip": "use the filter: `value|trim`",
    "get": "use `value.name|default(…)`",
    "format": _OTHER_FILTERS["format"],
    "startswith": "compare a slice: `value[:3] == 'abc'`",
    "endswith": "compare a slice: `value[-3:] == 'abc'`",
}


class ParsedTemplate(NamedTuple):
    """A parsed template: its tree, and the mistakes that do not depend on the available names."""

    source: str
    tree: nodes.Template | None
    faults: TemplateProblems


def read_template(source: str) -> ParsedTemplate:
    """Read a template. Short templates are cached; long ones are not, because 1 MiB of text takes 10 MiB."""
    return _read_cached(source) if len(source) <= _MAX_CACHED_LENGTH else _read(source)


@functools.lru_cache(maxsize=16)
def _read_cached(source: str) -> ParsedTemplate:
    return _read(source)


def _read(source: str) -> ParsedTemplate:
    source = normalize_newlines(source)
    faults = TemplateProblems(source)
    tree = parse_template(source, faults)
    if tree is not None and not _Grammar(faults).check(tree):
        tree = None
    return ParsedTemplate(source, tree, faults)


class _Grammar:
    """Checks a tree without recursion, because a chain like `a+a+a…` is as deep as it is long."""

    def __init__(self, faults: TemplateProblems) -> None:
        self._faults = faults

    def check(self, tree: nodes.Template) -> bool:
        """Add everything that is not allowed; return whether the tree is shallow enough for recursive walks."""
        pending: list[tuple[nodes.Node, int]] = [(node, 1) for node in tree.body]
        while pending and not self._faults.full:
            node, depth = pending.pop()
            if depth > MAX_TEMPLATE_DEPTH:
                offset = node.lineno or 0
                self._faults.syntax(offset, 1, "this is nested too deeply", "move parts of it to `{% set %}`")
                return False
            if self._check_node(node):
                pending.extend((child, depth + 1) for child in node.iter_child_nodes())
        return not pending

    def _check_node(self, node: nodes.Node) -> bool:
        """Check one node; return whether to check its children."""
        match node:
            case nodes.Name():
                self._name(node)
            case nodes.Const():
                self._constant(node)
            case nodes.Getattr():
                if node.attr.startswith("_"):
                    hint = None if node.attr.startswith("__") else f'write `["{node.attr[:40]}"]`'
                    self._underscore(node.attr, node.lineno, hint)
            case nodes.Getitem():
                if isinstance(node.arg, nodes.Const) and str(node.arg.value).startswith("__"):
                    self._underscore(str(node.arg.value), node.lineno, None)
                if isinstance(node.arg, nodes.Tuple):
                    self._faults.forbidden(node.lineno, 1, "only one key or slice is allowed", "write `value[a][b]`")
            case nodes.Filter() | nodes.Test():
                self._function(node)
            case nodes.Call():
                return self._call(node)
            case nodes.For():
                if node.recursive:
                    hint = "use nested loops"
                    self._faults.forbidden(node.lineno, 3, "recursive loops are not allowed", hint)
                self._target(node.target)
            case nodes.Assign():
                self._target(node.target)
            case _:
                return self._kind(node)
        return True

    def _kind(self, node: nodes.Node) -> bool:
        if type(node) in ALLOWED_NODES:
            if isinstance(node, nodes.BinExpr) and type(node) in ARITHMETIC:
                self._operands(node, ARITHMETIC[type(node)])
            return True
        place = node.lineno or max((part.lineno or 0 for part in node.iter_child_nodes()), default=0)
        if isinstance(node, nodes.Pow):
            self._faults.forbidden(place, 1, "`**` is not allowed in a template", "write a product: `n * n`")
        elif isinstance(node, nodes.AssignBlock):
            hint = "use `{% set name = value %}`; join parts with `~`"
            self._faults.forbidden(place, 3, "`{% set %}` without `=` is not allowed in a template", hint)
        else:
            self._faults.forbidden(place, 1, f"{type(node).__name__} is not allowed in a template", None)
        return False

    def _operands(self, node: nodes.BinExpr, sign: str) -> None:
        """Refuse `'a' * 1000000000` here, before the renderer has to stop it."""
        for side in (node.left, node.right):
            literal = isinstance(side, (nodes.List, nodes.Tuple, nodes.Dict))
            if isinstance(side, nodes.Const):
                literal = type(side.value) not in (int, float) and not (sign == "+" and type(side.value) is str)
            if literal:
                hint = "join texts with `~`, and repeat them with `{% for %}`"
                self._faults.forbidden(side.lineno, 1, f"`{sign}` works only for numbers", hint)

    def _underscore(self, name: str, offset: int, hint: str | None) -> None:
        message = f"{short_name(name)} is not allowed, because it begins with an underscore"
        self._faults.forbidden(self._faults.find(name, offset), len(name), message, hint)

    def _name(self, node: nodes.Name) -> None:
        if node.name.startswith("_"):
            self._underscore(node.name, node.lineno, None)
        elif not node.name.isascii():  # a Cyrillic letter makes a different name that looks the same
            message = f"{short_name(node.name)} is not allowed; names have the letters a to z, digits and underscores"
            self._faults.forbidden(node.lineno, len(node.name), message)
        elif node.ctx == "store" and node.name in _BUILT_IN:
            message = f"`{node.name}` is reserved and cannot be set"
            self._faults.forbidden(node.lineno, len(node.name), message, "choose another name")

    def _constant(self, node: nodes.Const) -> None:
        value = node.value
        if (isinstance(value, int) and abs(value) > MAX_TEMPLATE_NUMBER) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            self._faults.syntax(node.lineno, 1, "this number is too large", "the largest number is 2**53")
        elif isinstance(value, str) and not is_utf8_text(value):
            hint = "write the character itself"
            self._faults.syntax(node.lineno, 1, "half of a surrogate pair is not a character", hint)

    def _target(self, target: nodes.Node) -> None:
        """Allow a name or a list of names, but not `ns.x` and not nested lists."""
        parts = target.items if isinstance(target, nodes.Tuple) else [target]
        for part in parts:
            if not isinstance(part, nodes.Name):
                message = "only a name, or names separated by commas, can be set here"
                self._faults.forbidden(part.lineno, 1, message, None)

    def _function(self, node: nodes.Filter | nodes.Test) -> None:
        what, known = ("filter", FILTERS) if isinstance(node, nodes.Filter) else ("test", TESTS)
        offset, width = self._faults.find(node.name.partition(".")[0], node.lineno), len(node.name)
        if node.name not in known:
            hint = _OTHER_FILTERS.get(node.name) if what == "filter" else None
            message = f"there is no {what} {short_name(node.name)}"
            code = "template_unknown_filter"
            self._faults.add(offset, width, code, message, hint or nearest_name_hint(node.name, known))
            return
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._faults.forbidden(offset, width, "`*` and `**` arguments are not allowed", "write the arguments out")
            return
        reason = misuse(known[node.name], len(node.args), [str(keyword.key) for keyword in node.kwargs])
        if reason:
            takes = ", ".join(filter_arguments(known[node.name]))
            hint = f"`{node.name}` takes {f'({takes})' if takes else 'no arguments'}"
            self._faults.syntax(offset, width, f"{what} `{node.name}`: {reason}", hint)
        if node.name in ("selectattr", "rejectattr") and len(node.args) > 1:
            test = node.args[1]
            if isinstance(test, nodes.Const) and test.value not in TESTS:
                hint = nearest_name_hint(str(test.value), TESTS)
                message = f"there is no test {short_name(str(test.value))}"
                self._faults.add(test.lineno, 1, "template_unknown_filter", message, hint)

    def _call(self, node: nodes.Call) -> bool:
        """Check a call. `range(…)` is the only function."""
        if isinstance(node.node, nodes.Name) and node.node.name == "range":
            extra = node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None
            if extra or not 1 <= len(node.args) <= 3:
                hint = "write `range(stop)`, `range(start, stop)` or `range(start, stop, step)`"
                self._faults.syntax(node.node.lineno, 5, "`range` takes one to three numbers", hint)
                return False
            ends = [end.value for end in node.args if isinstance(end, nodes.Const) and type(end.value) is int]
            if len(ends) == len(node.args) and 0 not in ends[2:] and len(range(*ends)) > _MAX_RANGE_LENGTH:
                message = f"this `range` has more than {_MAX_RANGE_LENGTH} numbers"
                self._faults.forbidden(node.node.lineno, 5, message, "loop over a list of values instead")
            return True
        name, offset = "this", node.lineno
        if isinstance(node.node, nodes.Name):
            name, offset = node.node.name, node.node.lineno
        elif isinstance(node.node, nodes.Getattr):
            name, offset = node.node.attr, self._faults.find(node.node.attr, node.node.lineno)
        hint = _METHODS.get(name, "only `range(…)` can be called; use a filter instead: `value|upper`")
        self._faults.forbidden(offset, len(name), f"{short_name(name)} cannot be called in a template", hint)
        return False


KnownFields = Collection[str] | None


class NameCheck:
    """Finds unknown names, and unknown fields of known names. It is recursive; the grammar limits the depth."""

    def __init__(self, names: Mapping[str, KnownFields], faults: TemplateProblems) -> None:
        self._names = names
        self._faults = faults

    def body(self, statements: list[nodes.Node], scope: dict[str, KnownFields]) -> None:
        """Check statements in order, and add the names they set to `scope`."""
        for statement in statements:
            self._visit(statement, scope)

    def _visit(self, node: nodes.Node, scope: dict[str, KnownFields]) -> None:
        match node:
            case nodes.Name():
                self._check_name(node, scope)
            case nodes.Getattr():
                self._field(node.node, node.attr, self._visit_base(node, scope), node.lineno)
            case nodes.Getitem():
                fields = self._visit_base(node, scope)
                if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                    self._field(node.node, node.arg.value, fields, node.lineno)
                else:
                    self._visit(node.arg, scope)
            case nodes.For():
                self._loop(node, scope)
            case nodes.Assign():
                self._visit(node.node, scope)
                scope.update(dict.fromkeys(_targets(node.target)))
            case nodes.Call():
                for argument in node.args:
                    self._visit(argument, scope)
            case _ if type(node) in ALLOWED_NODES:
                for child in node.iter_child_nodes():
                    self._visit(child, scope)
            case _:  # refused by the grammar; the names it would define are not reported again
                scope.update(dict.fromkeys(_defined_by(node)))

    def _visit_base(self, node: nodes.Getattr | nodes.Getitem, scope: dict[str, KnownFields]) -> KnownFields:
        self._visit(node.node, scope)
        if isinstance(node.node, nodes.Name):
            return scope[node.node.name] if node.node.name in scope else self._names.get(node.node.name)
        return None

    def _loop(self, node: nodes.For, scope: dict[str, KnownFields]) -> None:
        self._visit(node.iter, scope)
        inner: dict[str, KnownFields] = {**scope, **dict.fromkeys(_targets(node.target))}
        if node.test is not None:
            self._visit(node.test, inner)
        self.body(node.body, {**inner, "loop": LOOP_FIELDS})
        self.body(node.else_, dict(scope))

    def _check_name(self, node: nodes.Name, scope: dict[str, KnownFields]) -> None:
        if node.name in scope:
            return
        if not self._faults.full and node.name not in self._names:
            hint = nearest_name_hint(node.name, {*self._names, *scope})
            if node.name == "loop":
                hint = "`loop` is available only inside a `{% for %}`"
            message = f"unknown variable {short_name(node.name)}"
            self._faults.add(node.lineno, len(node.name), "template_unknown_name", message, hint)

    def _field(self, base: nodes.Node, field: str, fields: KnownFields, offset: int) -> None:
        if self._faults.full or fields is None:
            return
        if field not in fields:
            owner = base.name if isinstance(base, nodes.Name) else ""
            message = f"{short_name(owner)} has no field {short_name(field)}"
            place = self._faults.find(field, offset)
            self._faults.add(place, len(field), "template_unknown_name", message, nearest_name_hint(field, fields))


def _targets(target: nodes.Node) -> list[str]:
    return [name.name for name in [target, *target.find_all(nodes.Name)] if isinstance(name, nodes.Name)]


def _defined_by(node: nodes.Node) -> list[str]:
    match node:
        case nodes.Macro():
            return [node.name]
        case nodes.Import():
            return [node.target]
        case nodes.FromImport():
            return [name if isinstance(name, str) else name[1] for name in node.names]
        case nodes.AssignBlock():
            return _targets(node.target)
    return []
