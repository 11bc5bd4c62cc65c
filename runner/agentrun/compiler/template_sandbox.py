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
from collections.abc import Callable, Iterable, Iterator, Mapping
from json.encoder import encode_basestring
from types import CodeType
from typing import Any, Final, NamedTuple

from jinja2 import StrictUndefined, Template, Undefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame, MacroRef
from jinja2.environment import TemplateModule
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import _GroupTuple as GroupTuple
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace, _PassArg, missing

from agentrun.compiler.template_filters import CHOOSING_FILTERS, FILTERS
from agentrun.compiler.template_meter import (
    LISTS,
    STEPS_PER_CALL,
    TEXT,
    Bounds,
    RenderMeter,
    RenderStopped,
    check_defined,
    check_number,
    describe_value,
    is_iterator,
)
from agentrun.compiler.template_operations import FUNCTIONS, METHODS, TESTS, pay_operator
from agentrun.spec.problems import is_utf8_text

LOOP_FIELDS: Final = frozenset(
    {
        *("changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"),
        *("revindex", "revindex0"),
    }
)
OTHER_FUNCTIONS: Final = ("cycler", "joiner", "lipsum")
"""The functions of Jinja that are refused."""
STEPS_PER_FILTER: Final = 4
TOO_MUCH_CODE: Final = "the template has too many variables for its includes, or names that are too long"
_MAX_CODE: Final = 500_000
"""Characters of generated code, without texts. Each include writes all variables, so the product can be large."""
_NODES_PER_STEP: Final = 4
_NODE_WEIGHTS: Final[Mapping[type[nodes.Node], int]] = {
    **dict.fromkeys((nodes.List, nodes.Tuple), 4),
    **dict.fromkeys((nodes.Dict, nodes.For), 8),
    **dict.fromkeys((nodes.CallBlock, nodes.Macro), 24),
}
"""Nodes that make objects, which may be kept: each takes a hundred bytes or more."""
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
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


def _cost(body: Iterable[nodes.Node]) -> int:
    return 1 + sum(map(_count_nodes, body)) // _NODES_PER_STEP


def _count_nodes(node: nodes.Node) -> int:
    """Count the nodes that run once. A loop or macro in it pays for its own body."""
    repeats = isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock))
    inner = sum(map(_count_nodes, node.iter_child_nodes(exclude=("body", "test") if repeats else ())))
    names = len(node.names) if isinstance(node, nodes.FromImport) else 0
    return _NODE_WEIGHTS.get(type(node), 1) + inner + names


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
        self._length = 0

    def write(self, x: str) -> None:
        self._length += len(x)
        if self._length > _MAX_CODE:
            raise RenderStopped(TOO_MUCH_CODE)
        super().write(x)

    def _write_text(self, text: str) -> None:
        """Write a quoted text as it is: `repr` makes ten characters of one that is not printable."""
        literal = encode_basestring(text) if is_utf8_text(text) else repr(text)
        self._length -= len(literal)
        self.write(literal)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: ARG002  # as Jinja calls it
        self._write_text(node.data)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if type(node.value) is str:
            self._write_text(node.value)
        else:
            super().visit_Const(node, frame)

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("undefined = environment.missing_value")

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
        self._loops[id(node.iter)] = _cost([node.target, *node.body, *([node.test] if node.test else [])])
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
        self._macros[id(node.body)] = _cost([*node.args, *node.defaults, *node.body])
        return super().macro_body(node, frame)

    def signature(self, node: Any, frame: Frame, extra_kwargs: Mapping[str, Any] | None = None) -> None:
        """Pay for `*a` and `**a` before Python makes a tuple or a mapping of it."""
        self._loops |= {id(given): 1 for given in (node.dyn_args, node.dyn_kwargs) if given is not None}
        super().signature(node, frame, extra_kwargs)

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


class _PaidTemplate(Template):
    def new_context(self, vars: Any = None, shared: bool = False, locals: Any = None) -> Context:
        """Pay for the variables: an include gets a copy of all."""
        environment: Any = self.environment
        environment.meter.step(len(vars or ()) + len(locals or ()))
        return super().new_context(vars, shared, locals)


class _RenderContext(Context):
    def resolve_or_missing(self, key: str) -> Any:
        found = super().resolve_or_missing(key)
        if found is missing and key in OTHER_FUNCTIONS:
            raise RenderStopped(f"there is no `{key}` in templates")
        return found


def _metered_filter(name: str) -> Callable[..., Any]:
    function: Any = JINJA_FILTERS[name]
    passed = _PassArg.from_obj(function)

    @pass_context
    def metered(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        environment: Any = context.environment
        meter: RenderMeter = environment.meter
        meter.step(STEPS_PER_FILTER)
        value = FILTERS[name](meter, value, *args, **kwargs)
        first = {_PassArg.context: context, _PassArg.eval_context: context.eval_ctx, _PassArg.environment: environment}
        given = (first[passed], value) if passed else (value,)
        result = function(*given, *args, **kwargs)
        return result if name in CHOOSING_FILTERS else meter.result(result)

    return metered


def _metered_test(name: str) -> Callable[..., Any]:
    function: Any = JINJA_TESTS[name]

    @pass_context
    def metered(context: Context, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        environment: Any = context.environment
        TESTS[name](environment.meter, value, *args, **kwargs)
        return function(value, *args, **kwargs)

    @pass_context
    def contained(context: Context, value: Any, /, seq: Any) -> Any:
        environment: Any = context.environment
        return environment.contains(value, seq)

    return contained if name == "in" else metered


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox. Each render uses a copy of it, with a meter of its own."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    intercepted_unops = frozenset({"+", "-"})
    context_class = _RenderContext
    meter: RenderMeter
    marks: set[str]
    templates: Mapping[str, CompiledTemplate]

    def __init__(self) -> None:
        super().__init__(undefined=_Missing, keep_trailing_newline=True, optimized=False)
        self.filters = {name: _metered_filter(name) for name in FILTERS}
        self.tests = {name: _metered_test(name) for name in TESTS}
        self.globals = dict(FUNCTIONS)
        self._loaded: dict[str, Template] = {}

    def stream(
        self, templates: Mapping[str, CompiledTemplate], values: Mapping[str, Any], bounds: Bounds
    ) -> Iterator[Any]:
        """Yield the pieces of the output while they fit into the limits.

        `templates`: the template under the name "", and those it can include."""
        self.meter, self.templates, self._loaded = RenderMeter(bounds, self), templates, {}
        template = _PaidTemplate.from_code(self, templates[""].code, self.globals)
        room = bounds.output
        for piece in template.root_render_func(template.new_context(dict(values))):
            if type(piece) is str:
                room -= len(piece) if piece.isascii() else len(piece.encode("utf-8", "surrogatepass"))
                if room < 0:
                    raise RenderStopped(f"the text is longer than {bounds.output} bytes")
            yield piece

    def get_template(self, name: Any, *_: Any) -> Template:
        """Load an included or imported template; only those of the package exist."""
        if name not in self.templates:
            raise RenderStopped("a file that is included is not in the package")
        self.meter.step(STEPS_PER_CALL + self.templates[name].cost)
        if name not in self._loaded:
            self._loaded[name] = _PaidTemplate.from_code(self, self.templates[name].code, self.globals)
        return self._loaded[name]

    # --- called by the generated code

    def text(self, value: Any) -> str:
        if type(value) is not str:
            self.meter.printed_size(value)
            value = str(value)
        self.meter.pay_text(len(value))
        return value  # type: ignore[no-any-return]  # mypy does not narrow on type()

    def joined(self, *parts: Any) -> str:
        """`a ~ b`."""
        self.meter.step(len(parts))
        texts = [*map(self.meter.text, parts)]
        self.meter.pay_text(sum(map(len, texts)))
        return "".join(texts)

    def compare(self, sign: str, left: Any, right: Any) -> Any:
        if sign in ("in", "notin"):
            return self.contains(left, right) is (sign == "in")
        self.meter.compare(left, right)
        return _COMPARISONS[sign](left, right)

    def contains(self, item: Any, container: Any) -> bool:
        self.meter.contains(container, item)
        if is_iterator(container):
            return any(each is item or self.compare("eq", each, item) for each in container)
        return item in container

    def decide(self, mark: str, value: Any) -> bool:
        """Remember which way a condition goes."""
        self.marks.add(f"{mark}:{'true' if value else 'false'}")
        return bool(value)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        pay_operator(self.meter, operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if type(result) in TEXT:
            self.meter.pay_text(len(result))
        if isinstance(result, float) and not math.isfinite(result):
            raise RenderStopped("the result is not a finite number")
        return result

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        check_number(arg)
        return super().call_unop(context, operator, arg)

    def getattr(self, obj: Any, attribute: str) -> Any:
        found = self._attribute(obj, attribute)
        if found is missing and type(obj) is dict:
            found = obj.get(attribute, missing)
        return self._or_undefined(found, f"there is no `.{attribute[:40]}`: add `|default(…)` if that may be")

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, slice):
            return self._slice(obj, argument)
        found: Any = missing
        if type(obj) is dict:
            found = obj.get(self.meter.key(argument), missing)
        elif type(obj) in (*TEXT, *LISTS, range) and isinstance(argument, int):
            found = obj[argument] if -len(obj) <= argument < len(obj) else missing
        if found is missing:
            found = self._attribute(obj, argument)
        return self._or_undefined(found, "there is no such item: add `|default(…)` if that may be")

    def missing_value(self, *args: Any, **kwargs: Any) -> Undefined:
        self.meter.step()
        return self.undefined(*args, **kwargs)

    def _or_undefined(self, found: Any, hint: str) -> Any:
        self.meter.step()
        return self.missing_value(hint) if found is missing else found

    def _slice(self, obj: Any, part: slice) -> Any:
        check_defined(obj)
        if type(obj) not in (*TEXT, *LISTS, range):
            raise RenderStopped(f"{describe_value(obj)} has no slices")
        for end in (part.start, part.stop, part.step):
            check_number(end)
        size = len(range(*part.indices(len(obj))))
        if type(obj) in TEXT:
            self.meter.pay_text(size)
        else:
            self.meter.step(1 + size)
        return obj[part]

    def _attribute(self, obj: Any, name: Any) -> Any:
        """Return what an object has under a name; for a mapping, its methods and not its items."""
        check_defined(obj)
        if not isinstance(name, str):
            return missing
        allowed = name in METHODS.get(type(obj), ()) or (type(obj) is LoopContext and name in LOOP_FIELDS)
        allowed |= type(obj) in (Namespace, TemplateModule) and not name.startswith("_")
        allowed |= type(obj) is GroupTuple and name in ("grouper", "list")
        if not allowed and hasattr(obj, name):
            raise RenderStopped(f"there is no `.{name[:40]}` in templates")
        return getattr(obj, name, missing)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter = self.meter
        meter.step(STEPS_PER_CALL + len(args) + len(kwargs))
        if type(obj) is Macro:
            return context.call(obj, *args, **kwargs)
        args = tuple(list(arg) if is_iterator(arg) else arg for arg in args)
        kwargs.pop("_loop_vars", None)
        if any(obj is function for function in FUNCTIONS.values()):
            return obj(meter, *args, **kwargs)
        owner = None if isinstance(obj, Undefined) else getattr(obj, "__self__", None)
        if owner is None or obj.__name__ not in METHODS.get(type(owner), ()):
            raise RenderStopped(f"{describe_value(obj)} cannot be called")
        METHODS[type(owner)][obj.__name__](meter, owner, *args, **kwargs)
        return meter.result(obj(*args, **kwargs))


ENVIRONMENT: Final = MeteredEnvironment()


def new_environment() -> MeteredEnvironment:
    environment = copy.copy(ENVIRONMENT)
    environment.marks = set()
    return environment
