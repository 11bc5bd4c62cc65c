"""Which names a template reads, and which of them do not exist.

Rule 1  Scopes are Jinja's: each round of a loop has its own, a choice (`if`) has none.
Rule 2  A name set in only one branch counts as set; if the other branch is taken, the render stops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jinja2 import nodes

from agentrun.compiler.template_language.fault import Faults, nearest, short
from agentrun.compiler.template_language.grammar import ALLOWED, LOOP_FIELDS

Fields = Collection[str] | None


class Names:
    """Finds free names, and unknown fields of known ones. It recurses: the grammar has bounded the depth."""

    def __init__(self, names: Mapping[str, Fields], faults: Faults | None) -> None:
        self._names = names
        self._faults = faults
        self.free: set[str] = set()

    def body(self, statements: list[nodes.Node], scope: dict[str, Fields]) -> None:
        """Statements in order; `scope` gains what they set."""
        for statement in statements:
            self._visit(statement, scope)

    def _visit(self, node: nodes.Node, scope: dict[str, Fields]) -> None:
        match node:
            case nodes.Name():
                self._loaded(node, scope)
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
            case _ if type(node) in ALLOWED:
                for child in node.iter_child_nodes():
                    self._visit(child, scope)
            case _:  # refused by the grammar; what it would have defined is not reported a second time
                scope.update(dict.fromkeys(_defined_by(node)))

    def _visit_base(self, node: nodes.Getattr | nodes.Getitem, scope: dict[str, Fields]) -> Fields:
        self._visit(node.node, scope)
        if isinstance(node.node, nodes.Name):
            return scope[node.node.name] if node.node.name in scope else self._names.get(node.node.name)
        return None

    def _loop(self, node: nodes.For, scope: dict[str, Fields]) -> None:
        self._visit(node.iter, scope)
        inner: dict[str, Fields] = {**scope, **dict.fromkeys(_targets(node.target))}
        if node.test is not None:
            self._visit(node.test, inner)
        self.body(node.body, {**inner, "loop": LOOP_FIELDS})
        self.body(node.else_, dict(scope))

    def _loaded(self, node: nodes.Name, scope: dict[str, Fields]) -> None:
        if node.name in scope:
            return
        self.free.add(node.name)
        if self._faults is not None and not self._faults.full and node.name not in self._names:
            hint = nearest(node.name, {*self._names, *scope})
            if node.name == "loop":
                hint = "`loop` is known inside a `{% for %}` only"
            message = f"{short(node.name)} is not known here"
            self._faults.add(node.lineno, len(node.name), "template_unknown_name", message, hint)

    def _field(self, base: nodes.Node, field: str, fields: Fields, offset: int) -> None:
        if self._faults is None or self._faults.full or fields is None:
            return
        if field not in fields:
            owner = base.name if isinstance(base, nodes.Name) else ""
            message = f"{short(owner)} has no field {short(field)}"
            place = self._faults.find(field, offset)
            self._faults.add(place, len(field), "template_unknown_name", message, nearest(field, fields))


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
