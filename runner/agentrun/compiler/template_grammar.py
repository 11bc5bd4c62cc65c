"""The features that a template can use, and the names it reads.

Rule 1  Everything that is allowed is listed: node types, functions, filters, tests and methods. The rest is refused.
Rule 2  Nothing is evaluated during the check, so checking `'a' * 10**9` is cheap.
Rule 3  Fields are checked only for variables from outside, not through `set`, parameters of macros and namespaces.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from jinja2 import nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import _PassArg

from agentrun.compiler.template_filters import FILTERS
from agentrun.compiler.template_meter import Bounds
from agentrun.compiler.template_operations import FUNCTIONS, METHODS, TESTS
from agentrun.compiler.template_parser import (
    TemplateProblems,
    nearest_name_hint,
    normalize_newlines,
    parse_template,
    short_name,
)
from agentrun.compiler.template_sandbox import LOOP_FIELDS, OTHER_FUNCTIONS
from agentrun.spec.problems import is_utf8_text

MAX_TEMPLATE_DEPTH: Final = 100
MAX_TEMPLATE_NUMBER: Final = 2**53
"""Whole numbers up to here are exact in every JSON reader."""
_MAX_CACHED_LENGTH: Final = 1 << 16
_MAX_RANGE_LENGTH: Final = Bounds().range
_ALLOWED_NODES: Final[frozenset[type[nodes.Node]]] = frozenset(
    {
        *(nodes.Output, nodes.If, nodes.For, nodes.Assign, nodes.AssignBlock, nodes.With, nodes.Macro),
        *(nodes.CallBlock, nodes.FilterBlock, nodes.Include, nodes.Import, nodes.FromImport, nodes.NSRef),
        *(nodes.TemplateData, nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Getattr),
        *(nodes.Getitem, nodes.Filter, nodes.Test, nodes.Call, nodes.Compare, nodes.Concat, nodes.And, nodes.Or),
        *(nodes.Not, nodes.CondExpr, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div),
        *(nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Operand, nodes.Pair, nodes.Keyword, nodes.Slice),
    }
)
_RESERVED: Final = frozenset({"loop", "range"})
OTHER_FILTERS: Final = {
    "attr": "write `value.name`",
    "random": "a prompt must be the same each time",
    "pprint": "use `|tojson(indent=2)`",
    "striptags": "removing many tags takes too long; do it in a tool",
    "urlize": "a prompt is not HTML",
    "xmlattr": "a prompt is not HTML",
}
"""The filters of Jinja that are refused, with what to do."""
_OTHER_METHODS: Final = {
    "format": "join parts with `~`, or use the filter: `'%s'|format(value)`",
    "encode": "a template has text, not bytes",
}
_NAMED_IN_ARGUMENTS: Final = {
    "map": ("filter", 0),
    **dict.fromkeys(("select", "reject"), ("test", 0)),
    **dict.fromkeys(("selectattr", "rejectattr"), ("test", 1)),
}
"""Filters with the name of a filter or test at this position of their arguments."""
KnownFields = Collection[str] | None
IncludedNames: TypeAlias = dict[str, frozenset[str]]
"""The files that a template includes or imports, each with the names that are known in every place that does so."""


class ParsedTemplate(NamedTuple):
    """A parsed template: its tree, and the mistakes that do not depend on the available names."""

    source: str
    tree: nodes.Template | None
    faults: TemplateProblems
    tokens: int


def read_template(source: str) -> ParsedTemplate:
    """Read a template. Short templates are cached; long ones are not, because 1 MiB of text takes 10 MiB."""
    return _read_cached(source) if len(source) <= _MAX_CACHED_LENGTH else _read(source)


def _read(source: str) -> ParsedTemplate:
    source = normalize_newlines(source)
    faults = TemplateProblems(source)
    tree, tokens = parse_template(source, faults)
    if tree is not None and not _Grammar(faults).check(tree):
        tree = None
    return ParsedTemplate(source, tree, faults, tokens)


_read_cached = functools.lru_cache(maxsize=16)(_read)


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
        if isinstance(node, (nodes.Macro, nodes.Import, nodes.FromImport)):
            for name in _defined_by(node):
                self._name(name, self._faults.find(name, node.lineno))
        match node:
            case nodes.Name():
                self._name(node.name, node.lineno, is_set=node.ctx != "load")
            case nodes.Const():
                self._constant(node)
            case nodes.Getattr() | nodes.NSRef() if node.attr.startswith("_"):
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
            case nodes.Keyword() if node.key.startswith("_"):
                self._underscore(node.key, max(0, node.value.lineno - len(node.key) - 8), None)
            case nodes.For() if node.recursive:
                self._faults.forbidden(node.lineno, 3, "recursive loops are not allowed", "use nested loops or a macro")
            case nodes.Include() | nodes.Import() | nodes.FromImport():
                self._file(node)
            case _ if type(node) not in _ALLOWED_NODES:
                place = node.lineno or max((part.lineno or 0 for part in node.iter_child_nodes()), default=0)
                self._faults.forbidden(place, 1, f"{type(node).__name__} is not allowed in a template", None)
                return False
        return True

    def _underscore(self, name: str, offset: int, hint: str | None) -> None:
        message = f"{short_name(name)} is not allowed, because it begins with an underscore"
        self._faults.forbidden(self._faults.find(name, offset), len(name), message, hint)

    def _name(self, name: str, offset: int, *, is_set: bool = True) -> None:
        if name.startswith("_") and name != "_":  # `{% for _ in range(3) %}` is usual
            self._underscore(name, offset, None)
        elif not name.isascii():  # a Cyrillic letter makes a different name that looks the same
            message = f"{short_name(name)} is not allowed; names have the letters a to z, digits and underscores"
            self._faults.forbidden(offset, len(name), message)
        elif is_set and name in _RESERVED:
            message = f"`{name}` is reserved and cannot be set"
            self._faults.forbidden(offset, len(name), message, "choose another name")

    def _constant(self, node: nodes.Const) -> None:
        value = node.value
        if (isinstance(value, int) and abs(value) > MAX_TEMPLATE_NUMBER) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            self._faults.syntax(node.lineno, 1, "this number is too large", "the largest number is 2**53")
        elif isinstance(value, str) and not is_utf8_text(value):
            hint = "write the character itself"
            self._faults.syntax(node.lineno, 1, "half of a surrogate pair is not a character", hint)

    def _file(self, node: nodes.Include | nodes.Import | nodes.FromImport) -> None:
        if not isinstance(node.template, nodes.Const) or not isinstance(node.template.value, str):
            message = "the name of the file must be a text in quotes"
            self._faults.forbidden(node.template.lineno, 1, message, "only files of the project can be included")
        elif isinstance(node, nodes.Include) and (node.ignore_missing or not node.with_context):
            message = "`ignore missing` and `without context` are not allowed"
            self._faults.forbidden(node.lineno, len("include"), message, "write `{% include 'file' %}`")

    def _function(self, node: nodes.Filter | nodes.Test) -> None:
        is_filter = isinstance(node, nodes.Filter)
        what, known = ("filter", frozenset(FILTERS)) if is_filter else ("test", frozenset(TESTS))
        offset, width = self._faults.find(node.name.partition(".")[0], node.lineno), len(node.name)
        if node.name not in known:
            hint = OTHER_FILTERS.get(node.name) if is_filter else None
            self._unknown(offset, width, what, node.name, hint or nearest_name_hint(node.name, known))
            return
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._faults.forbidden(offset, width, "`*` and `**` arguments are not allowed", "write the arguments out")
            return
        self._check_arguments(node, what, offset)
        named = _NAMED_IN_ARGUMENTS.get(node.name)
        if named and len(node.args) > named[1] and isinstance(given := node.args[named[1]], nodes.Const):
            inner: Collection[str] = FILTERS if named[0] == "filter" else TESTS
            if given.value not in inner:
                self._unknown(given.lineno, 1, named[0], str(given.value), nearest_name_hint(str(given.value), inner))

    def _unknown(self, offset: int, width: int, what: str, name: str, hint: str | None) -> None:
        self._faults.add(offset, width, "template_unknown_filter", f"there is no {what} {short_name(name)}", hint)

    def _check_arguments(self, node: nodes.Filter | nodes.Test, what: str, offset: int) -> None:
        """Compare the arguments with those that Jinja's function takes."""
        functions: Any = JINJA_FILTERS if what == "filter" else JINJA_TESTS
        function = inspect.unwrap(functions[node.name])
        keywords = [str(keyword.key) for keyword in node.kwargs]
        before = 1 + (_PassArg.from_obj(function) is not None)
        signature = inspect.signature(function if node.name not in ("e", "escape") else str.upper)  # these are of C
        reason = "an argument is given twice" if len(set(keywords)) != len(keywords) else None
        try:
            signature.bind(*[None] * (before + len(node.args)), **dict.fromkeys(keywords))
        except TypeError as error:
            reason = str(error)
        if reason:
            takes = ", ".join(list(signature.parameters)[before:])
            hint = f"`{node.name}` takes {f'({takes})' if takes else 'no arguments'}"
            self._faults.syntax(offset, len(node.name), f"{what} `{node.name}`: {reason}", hint)

    def _call(self, node: nodes.Call) -> bool:
        """Check a call of a function, a macro or a method; return whether to check its arguments."""
        called = node.node
        if isinstance(called, nodes.Name) and called.name == "range":
            return self._range(node)
        if isinstance(called, nodes.Name) and called.name in OTHER_FUNCTIONS:
            name, offset, hint = called.name, called.lineno, f"functions: {', '.join(sorted(FUNCTIONS))}"
        elif isinstance(called, nodes.Getattr) and _is_refused_method(called.attr):
            name, offset = called.attr, self._faults.find(called.attr, called.lineno)
            hint = _OTHER_METHODS.get(called.attr, "a template cannot change values; use a filter or `~`")
        else:
            return True
        self._faults.forbidden(offset, len(name), f"{short_name(name)} cannot be called in a template", hint)
        return False

    def _range(self, node: nodes.Call) -> bool:
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


def _is_refused_method(name: str) -> bool:
    """Whether a name is a method of data that templates cannot call."""
    return any(hasattr(owner, name) for owner in METHODS) and not any(name in METHODS[owner] for owner in METHODS)


class NameCheck:
    """Finds unknown names, and unknown fields of known names. It is recursive; the grammar limits the depth."""

    def __init__(self, names: Mapping[str, KnownFields], faults: TemplateProblems, tree: nodes.Template) -> None:
        self.included: IncludedNames = {}
        self._names = names
        self._faults = faults
        self._set_anywhere = dict.fromkeys(name for node in tree.find_all(nodes.Stmt) for name in _defined_by(node))
        self._visit_all(tree.body, {})

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
            case nodes.Call(node=nodes.Name(name=name)) if name in {*FUNCTIONS, *OTHER_FUNCTIONS}:
                self._visit_all(node.iter_child_nodes(exclude=("node",)), scope)
            case nodes.For() | nodes.Macro() | nodes.CallBlock() | nodes.With() | nodes.FilterBlock():
                self._scoped(node, scope)
            case nodes.Assign() | nodes.AssignBlock():
                self._visit_all(node.iter_child_nodes(exclude=("target", "body")), scope)
                self._visit_all(getattr(node, "body", []), dict(scope))
            case nodes.Include() | nodes.Import() | nodes.FromImport() if isinstance(node.template, nodes.Const):
                sees = frozenset({*self._names, *scope} if node.with_context else ())
                self.included[node.template.value] = sees & self.included.get(node.template.value, sees)
            case _:
                self._visit_all(node.iter_child_nodes() if type(node) in _ALLOWED_NODES else (), scope)
        scope.update(dict.fromkeys(_defined_by(node)))

    def _visit_all(self, children: Iterable[nodes.Node], scope: dict[str, KnownFields]) -> None:
        """Check nodes in order, and add the names they set to `scope`."""
        for child in children:
            self._visit(child, scope)

    def _visit_base(self, node: nodes.Getattr | nodes.Getitem, scope: dict[str, KnownFields]) -> KnownFields:
        self._visit(node.node, scope)
        if isinstance(node.node, nodes.Name):
            return scope[node.node.name] if node.node.name in scope else self._names.get(node.node.name)
        return None

    def _scoped(self, node: nodes.Node, scope: dict[str, KnownFields]) -> None:
        """Check a tag whose body has names of its own."""
        inner = dict(scope)
        match node:
            case nodes.For():
                self._visit(node.iter, scope)
                inner.update(dict.fromkeys(_targets(node.target)))
                self._visit_all([node.test] if node.test is not None else [], inner)
                self._visit_all(node.else_, dict(scope))
                inner["loop"] = LOOP_FIELDS
            case nodes.With():
                self._visit_all(node.values, scope)
                inner.update(dict.fromkeys(name for target in node.targets for name in _targets(target)))
            case nodes.FilterBlock():
                self._visit(node.filter, scope)
            case nodes.Macro() | nodes.CallBlock():  # a macro can use what is set after it and before its call
                self._visit_all([*node.defaults, *([node.call] if isinstance(node, nodes.CallBlock) else [])], scope)
                own = [*(arg.name for arg in node.args), "caller", "varargs", "kwargs", *_defined_by(node)]
                inner = {**self._set_anywhere, **inner, **dict.fromkeys(own)}
                inner.pop("loop", None)
        self._visit_all(node.body, inner)  # type: ignore[attr-defined]  # all of these have one

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


def _defined_by(node: nodes.Node) -> Iterator[str]:
    """Yield the names that a statement defines for the statements after it."""
    match node:
        case nodes.Macro():
            yield node.name
        case nodes.Import():
            yield node.target
        case nodes.FromImport():
            yield from (name if isinstance(name, str) else name[1] for name in node.names)
        case nodes.Assign() | nodes.AssignBlock():
            yield from _targets(node.target)
