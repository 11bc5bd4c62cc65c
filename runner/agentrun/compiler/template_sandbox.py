"""Jinja's compiler and sandbox under a meter.

Rule 1  Jinja compiles and renders. The code generator only adds calls of the methods below, which pay for an operation
        before it runs. Nothing is evaluated while a template is compiled.
Rule 2  A template reaches items of data, the fields of `loop`, namespaces, macros, and the listed methods and
        functions. It reaches no other attribute of a Python object.
Rule 3  A loop pass and a call of a macro pay for the nodes of their body, so that small operations need not pay.
"""

# ruff: noqa: N802 - the visitors have the names of Jinja's nodes

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, Final, NamedTuple

from jinja2 import StrictUndefined, Template, Undefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame, MacroRef
from jinja2.environment import TemplateModule
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace, _PassArg, missing

from agentrun.compiler.template_meter import (
    CALL_STEPS,
    FILTERS,
    LIST_FILTERS,
    METHODS,
    SIZED,
    TESTS,
    Bounds,
    RenderMeter,
    RenderStopped,
    is_iterator,
    kind,
    pay_operator,
    pay_test,
    whole,
)

LOOP_FIELDS: Final = frozenset(
    {"changed", "cycle", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}
)
_NODES_PER_STEP: Final = 4
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


class CompiledTemplate(NamedTuple):
    code: CodeType
    places: tuple[tuple[int, int], ...]
    """Offsets in the template, each with its first line in the code."""
    cost: int

    def offset(self, line: int) -> int:
        return next((offset for offset, first in reversed(self.places) if first <= line), 0)


def compile_template(
    tree: nodes.Template, name: str = "", *, traced: bool = False, marks: Mapping[int, str] | None = None
) -> CompiledTemplate:
    """Compile a checked template, whose nodes have offsets as line numbers.

    `traced`: before each piece of the output come the name of the template, an offset, and whether it is plain text.
    `marks`: ids of bodies and conditions, each with the mark of a render that reaches it.
    """
    generator = _MeteredCode(ENVIRONMENT, name, name, optimized=False)
    generator.traced, generator.marks = traced, marks or {}
    generator.visit(tree)
    code = compile(generator.stream.getvalue(), f"<template {name}>", "exec")  # type: ignore[attr-defined]  # a StringIO
    return CompiledTemplate(code, tuple(generator.debug_info), _cost(tree.body))


def _cost(body: list[nodes.Node]) -> int:
    return 1 + sum(map(_count_nodes, body)) // _NODES_PER_STEP


def _count_nodes(node: nodes.Node) -> int:
    """Count the nodes that run once. A loop or macro in it pays for its own body."""
    repeats = isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock))
    return 1 + sum(map(_count_nodes, node.iter_child_nodes(exclude=("body", "test") if repeats else ())))


class _MeteredCode(CodeGenerator):
    """Adds calls that pay, around the operations that Jinja's own sandbox does not intercept."""

    traced = False
    marks: Mapping[int, str] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[int, int] = {}
        """What is looped over, with the cost of one pass."""
        self._macros: dict[int, int] = {}
        """Bodies of macros, with the cost of one call."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> None:
        before, after = "", ""
        if (cost := self._loops.get(id(node))) is not None:
            before, after = "environment.meter.items(", f", {cost})"
        elif (mark := self.marks.get(id(node))) is not None:
            before, after = f"environment.decide({mark!r}, ", ")"
        if before:
            self.write(before)
        super().visit(node, *args, **kwargs)
        if after:
            self.write(after)

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        if (cost := self._macros.get(id(nodes))) is not None:
            self.writeline(f"environment.meter.step({cost})")
        if (mark := self.marks.get(id(nodes))) is not None:
            self.writeline(f"environment.marks.add({mark!r})")
        super().blockvisit(nodes, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self._loops[id(node.iter)] = _cost([*node.body, *([node.test] if node.test else [])])
        self._with_else(super().visit_For, node, frame)

    def visit_If(self, node: nodes.If, frame: Frame) -> None:
        self._with_else(super().visit_If, node, frame)

    def _with_else(self, visit: Callable[[Any, Frame], None], node: nodes.For | nodes.If, frame: Frame) -> None:
        """Write the else of a tag that has none, if it has a mark."""
        is_added = not node.else_ and id(node.else_) in self.marks
        if is_added:
            node.else_.append(nodes.Output([]))
        visit(node, frame)
        if is_added:
            node.else_.clear()

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> tuple[Frame, MacroRef]:
        self._macros[id(node.body)] = _cost(node.body)
        return super().macro_body(node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        for child in node.nodes:
            self.start_write(frame, child)
            self._write_call("environment.text", frame, child)
            self.end_write(frame)

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        if self.traced and frame.buffer is None and node is not None:
            self.writeline(f"yield {self.name!r}, {first_offset(node)}, {isinstance(node, nodes.TemplateData)}")
        super().start_write(frame, node)

    def simple_write(self, s: str, frame: Frame, node: nodes.Node | None = None) -> None:
        is_event = self.traced and frame.buffer is not None and s == "event"  # of an include, and maybe a place
        super().simple_write("event if type(event) is str else ''" if is_event else s, frame, node)

    def _write_call(self, function: str, frame: Frame, *parts: nodes.Node) -> None:
        self.write(f"{function}(")
        for part in parts:
            self.visit(part, frame)
            self.write(", ")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._write_call("environment.joined", frame, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        self._write_call("environment.getitem", frame, node.node, node.arg)

    def visit_Slice(self, node: nodes.Slice, frame: Frame) -> None:
        self._write_call("slice", frame, *(part or nodes.Const(None) for part in (node.start, node.stop, node.step)))

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for pair in node.items:
            self._write_call("environment.meter.key", frame, pair.key)
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("}")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """`a < b < c` is two comparisons, and `b` is evaluated once."""
        self.write("(")
        left = ""
        for part in node.ops:
            self.write(f"{left and ' and '}environment.compare({part.op!r}, {left}")
            if not left:
                self.visit(node.expr, frame)
            left = self.temporary_identifier()
            self.write(f", ({left} := ")
            self.visit(part.expr, frame)
            self.write("))")
        self.write(")")


def first_offset(node: nodes.Node) -> int:
    """Return the offset of the first word of an expression. Jinja places `a|b` at `b`."""
    first = node.lineno
    pending: list[nodes.Node] = [node]
    while pending:
        one = pending.pop()
        if one.lineno is not None:  # the right side of a comparison has no place, but its parts have
            first = min(first, one.lineno)
        pending.extend(one.iter_child_nodes())
    return first


class _Missing(StrictUndefined):
    """A missing value: every use of it stops the render."""

    @property
    def _undefined_message(self) -> str:
        return self._undefined_hint or f"`{str(self._undefined_name)[:40]}` is not set"


def _range(meter: RenderMeter, *ends: Any) -> range:
    for end in ends:
        whole(end)
    numbers = range(*ends)
    if len(numbers) > meter.bounds.range:
        raise RenderStopped(f"`range` gives more than {meter.bounds.range} numbers")
    return numbers


def _dict(meter: RenderMeter, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    for given in args:
        for item in meter.items(given):
            meter.key(item if type(given) is dict else item[0])
    return dict(*args, **kwargs)


def _namespace(meter: RenderMeter, *args: Any, **kwargs: Any) -> Namespace:
    return Namespace(_dict(meter, *args, **kwargs))


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"dict": _dict, "namespace": _namespace, "range": _range}
"""The functions of templates: all there are."""


def _metered_filter(name: str) -> Callable[..., Any]:
    function: Any = JINJA_FILTERS[name]
    passed = _PassArg.from_obj(function)

    @pass_context
    def metered(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment: Any = context.environment
        meter: RenderMeter = environment.meter
        if name in LIST_FILTERS and type(value) not in SIZED:
            value = list(meter.items(value))
        FILTERS[name](meter, value, *args, **kwargs)
        first = {_PassArg.context: context, _PassArg.eval_context: context.eval_ctx, _PassArg.environment: environment}
        given = (first[passed], value) if passed else (value,)
        return meter.result(function(*given, *args, **kwargs))

    return metered


def _metered_test(name: str) -> Callable[..., Any]:
    function: Any = JINJA_TESTS[name]

    @pass_context
    def metered(context: Context, value: Any, *args: Any) -> Any:
        environment: Any = context.environment
        pay_test(environment.meter, name, value, *args)
        return function(value, *args)

    return metered


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox. Each render uses a copy of it, with a meter of its own."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    intercepted_unops = frozenset({"+", "-"})
    meter: RenderMeter
    marks: set[str]
    files: Mapping[str, CompiledTemplate]

    def __init__(self) -> None:
        super().__init__(undefined=_Missing, keep_trailing_newline=True, optimized=False)
        self.filters = {name: _metered_filter(name) for name in FILTERS}
        self.tests = {name: _metered_test(name) for name in TESTS}
        self.globals = dict(FUNCTIONS)
        self._loaded: dict[str, Template] = {}

    def stream(
        self,
        compiled: CompiledTemplate,
        values: Mapping[str, Any],
        bounds: Bounds,
        files: Mapping[str, CompiledTemplate],
    ) -> Iterator[Any]:
        """Yield the pieces of the output while they fit into the limits. `files`: the templates it can include."""
        self.meter, self.files, self.marks, self._loaded = RenderMeter(bounds), files, set(), {}
        template = Template.from_code(self, compiled.code, self.globals)
        room = bounds.output
        for piece in template.root_render_func(template.new_context(dict(values))):
            if type(piece) is str:
                room -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
                if room < 0:
                    raise RenderStopped(f"the text grows over {bounds.output} bytes")
            yield piece

    def get_template(self, name: Any, *_: Any) -> Template:
        """Load an included or imported template; only those of the package exist."""
        if name not in self.files:
            raise RenderStopped("a file that is included is not in the package")
        self.meter.step(CALL_STEPS + self.files[name].cost)
        if name not in self._loaded:
            self._loaded[name] = Template.from_code(self, self.files[name].code, self.globals)
        return self._loaded[name]

    # --- called by the generated code

    def text(self, value: Any) -> str:
        """Print a value."""
        if type(value) is not str:
            self.meter.size(value)
            value = str(value)
        self.meter.made(len(value))
        return value  # type: ignore[no-any-return]  # mypy does not narrow on type()

    def joined(self, *parts: Any) -> str:
        """`a ~ b`."""
        for part in parts:
            self.meter.size(part)
        texts = [str(part) for part in parts]
        self.meter.made(sum(map(len, texts)))
        return "".join(texts)

    def compare(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("in", "notin"):
            self.meter.contains(right, left)
        else:
            self.meter.compare(left, right)
        return _COMPARISONS[sign](left, right)

    def decide(self, mark: str, value: Any) -> bool:
        """Remember which way a condition goes."""
        self.marks.add(f"{mark}:{'true' if value else 'false'}")
        return bool(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        pay_operator(self.meter, operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, float) and not math.isfinite(result):
            raise RenderStopped("the result is not a finite number")
        return result

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        whole(arg)
        return super().call_unop(context, operator, arg)

    def getattr(self, obj: Any, attribute: str) -> Any:
        found = self._find(obj, attribute)
        if found is missing and type(obj) is dict and not hasattr(dict, attribute):
            found = obj.get(attribute, missing)
        if found is not missing:
            return found
        return self.undefined(f"there is no `.{attribute[:40]}`: add `|default(…)` if that may be")

    def getitem(self, obj: Any, argument: Any) -> Any:
        found: Any = missing
        if isinstance(argument, slice) and type(obj) in SIZED:
            for end in (argument.start, argument.stop, argument.step):
                whole(end)
            self.meter.copied(obj, len(obj))
            return obj[argument]
        if type(obj) is dict:
            self.meter.key(argument)
            found = obj.get(argument, missing)
        elif type(obj) in SIZED and isinstance(argument, int):
            found = obj[argument] if -len(obj) <= argument < len(obj) else missing
        if found is missing and isinstance(argument, str):
            found = self._find(obj, argument)
        return self.undefined("there is no such item: add `|default(…)` if that may be") if found is missing else found

    def _find(self, obj: Any, name: str) -> Any:
        """Return what an object has under a name; for a mapping, its methods and not its items."""
        allowed = name in METHODS.get(type(obj), ()) or (type(obj) is LoopContext and name in LOOP_FIELDS)
        allowed |= type(obj) in (Namespace, TemplateModule) and not name.startswith("_")
        allowed |= type(obj).__name__ == "_GroupTuple" and name in ("grouper", "list")
        if isinstance(obj, Undefined):
            str(obj)  # raises
        return getattr(obj, name, missing) if allowed else missing

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as in Jinja
        meter = __self.meter
        meter.step(CALL_STEPS)
        if type(__obj) is Macro:
            return __context.call(__obj, *args, **kwargs)
        args = tuple(list(arg) if is_iterator(arg) else arg for arg in args)
        kwargs.pop("_loop_vars", None)
        if any(__obj is function for function in FUNCTIONS.values()):
            return __obj(meter, *args, **kwargs)
        owner = None if isinstance(__obj, Undefined) else getattr(__obj, "__self__", None)
        if owner is None or __obj.__name__ not in METHODS.get(type(owner), ()):
            raise RenderStopped(f"{kind(__obj)} cannot be called")
        given = (args,) if type(owner) is LoopContext else (owner, *args)
        METHODS[type(owner)][__obj.__name__](meter, *given, **kwargs)
        return meter.result(__obj(*args, **kwargs))


ENVIRONMENT: Final = MeteredEnvironment()


def new_environment() -> MeteredEnvironment:
    """Return an environment for one render."""
    return copy.copy(ENVIRONMENT)
