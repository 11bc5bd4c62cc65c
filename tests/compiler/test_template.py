"""What a template can say, what it is reported when it says something else, and that values stay values."""

# ruff: noqa: E501 - a template in a table is read in one line, not in pieces

import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.compiler import template
from agentrun.compiler.template import (
    Json,
    TemplateProblem,
    TemplateRenderError,
    check_template,
    is_template,
    render_template,
)
from agentrun.compiler.template_filters import FILTERS
from agentrun.compiler.template_parser import MAX_TEMPLATE_PROBLEMS

from .test_template_comparison import NAMES, TEMPLATE_VALUES

# --- mistakes: source -> line, column, width, code (without `template_`), part of the hint

MISTAKES: dict[str, tuple[int, int, int, str, str]] = {
    "{{ nme }}": (1, 4, 3, "unknown_name", 'did you mean "name"?'),
    "a\n\n  {{ name ~ nme }}": (3, 13, 3, "unknown_name", '"name"'),
    "{{ args.idd }}": (1, 9, 3, "unknown_name", 'did you mean "id"?'),
    "{{ args['resaon'] }}": (1, 10, 6, "unknown_name", '"reason"'),
    "{{ args . idd }}": (1, 11, 3, "unknown_name", '"id"'),
    "{% if args.idd is defined %}{% endif %}": (1, 12, 3, "unknown_name", '"id"'),
    "{{ loop.index }}": (1, 4, 4, "unknown_name", "inside"),
    "{% for x in words %}{{ loop.idx }}{% endfor %}": (1, 29, 3, "unknown_name", '"index"'),
    "{% for x in words %}{% endfor %}{{ x }}": (1, 36, 1, "unknown_name", ""),
    "{% for x in words %}{% set y = 1 %}{% endfor %}{{ y }}": (1, 51, 1, "unknown_name", ""),
    "{% for x in words if loop.first %}{% endfor %}": (1, 22, 4, "unknown_name", "inside"),
    "{{ x }}{% set x = 1 %}": (1, 4, 1, "unknown_name", ""),
    "{{ self }}": (1, 4, 4, "unknown_name", ""),
    "{{ range }}": (1, 4, 5, "unknown_name", ""),
    "{{ name|uper }}": (1, 9, 4, "unknown_filter", 'did you mean "upper"?'),
    "{{ name\n  |uper }}": (2, 4, 4, "unknown_filter", '"upper"'),
    "{{ name|attr('x') }}": (1, 9, 4, "unknown_filter", "value.name"),
    "{{ words|random }}": (1, 10, 6, "unknown_filter", "same"),
    "{{ name|a.b }}": (1, 9, 3, "unknown_filter", ""),
    "{{ name is strng }}": (1, 12, 5, "unknown_filter", '"string"'),
    "{{ name is callable }}": (1, 12, 8, "unknown_filter", ""),
    "{{ people|selectattr('a', 'eqq', 1) }}": (1, 27, 1, "unknown_filter", '"eq"'),
    "{{ name|upper(1) }}": (1, 9, 5, "syntax", "no arguments"),
    "{{ name|replace('a') }}": (1, 9, 7, "syntax", "old, new, count"),
    "{{ name|join(x=1) }}": (1, 9, 4, "syntax", "d, attribute"),
    "{{ name|upper(*words) }}": (1, 9, 5, "forbidden", "write the arguments out"),
    "{{ '{}'.format(1) }}": (1, 9, 6, "forbidden", "~"),
    "{{ cycler(1, 2) }}": (1, 4, 6, "forbidden", "range"),
    "{{ range() }}": (1, 4, 5, "syntax", "range(stop)"),
    "{{ range(*words) }}": (1, 4, 5, "syntax", "range(stop)"),
    "{{ name.__class__ }}": (1, 9, 9, "forbidden", ""),
    "{{ name['__class__'] }}": (1, 10, 9, "forbidden", ""),
    "{{ order._id }}": (1, 10, 3, "forbidden", '["_id"]'),
    "{{ _x }}": (1, 4, 2, "forbidden", ""),
    "{% set _x = 1 %}": (1, 8, 2, "forbidden", ""),
    "{% set range = 1 %}": (1, 8, 5, "forbidden", "another name"),
    "{% for loop in words %}{% endfor %}": (1, 8, 4, "forbidden", "another name"),
    "{{ n\u0430me }}": (1, 4, 4, "forbidden", ""),
    "{{ range(10001) }}": (1, 4, 5, "forbidden", "list of values"),
    "{{ words[1, 2] }}": (1, 9, 1, "forbidden", "[a][b]"),
    "{% for x in words recursive %}{% endfor %}": (1, 4, 3, "forbidden", "nested loops"),
    "{% extends 'x' %}": (1, 4, 7, "forbidden", "instructions:"),
    "{% block a %}{% endblock %}": (1, 4, 5, "forbidden", "instructions:"),
    "{% autoescape true %}{% endautoescape %}": (1, 4, 10, "forbidden", ""),
    "{% print name %}": (1, 4, 5, "forbidden", "{{ value }}"),
    "{% do words %}": (1, 4, 2, "forbidden", ""),
    "{% for x in words %}{% break %}{% endfor %}": (1, 24, 5, "forbidden", "for x in list if"),
    "{% trans %}a{% endtrans %}": (1, 4, 5, "forbidden", ""),
    "{{ words.append(1) }}": (1, 10, 6, "forbidden", "change values"),
    "{{ words|map('uper') }}": (1, 14, 1, "unknown_filter", '"upper"'),
    "{{ words|select('od') }}": (1, 17, 1, "unknown_filter", '"odd"'),
    "{% macro _f() %}{% endmacro %}": (1, 10, 2, "forbidden", ""),
    "{% macro f(_x) %}{% endmacro %}": (1, 12, 2, "forbidden", ""),
    "{% macro f(x) %}{{ y }}{% endmacro %}": (1, 20, 1, "unknown_name", ""),
    "{% macro f(x) %}{% endmacro %}{{ x }}": (1, 34, 1, "unknown_name", ""),
    "{% with x = 1 %}{% endwith %}{{ x }}": (1, 33, 1, "unknown_name", ""),
    "{% set x %}{{ y }}{% endset %}{{ x }}": (1, 15, 1, "unknown_name", ""),
    "{% filter uper %}{% endfilter %}": (1, 11, 4, "unknown_filter", '"upper"'),
    "{{ f(1) }}": (1, 4, 1, "unknown_name", ""),
    "{% set ns = namespace() %}{% set ns._x = 1 %}": (1, 37, 2, "forbidden", ""),
    "{{ dict(_x=1) }}": (1, 9, 2, "forbidden", ""),
    "{% include name %}": (1, 12, 1, "forbidden", "files of the project"),
    "{% include ['a', 'b'] %}": (1, 12, 1, "forbidden", "files of the project"),
    "{% include 'x' ignore missing %}": (1, 4, 7, "forbidden", "include 'file'"),
    "{% iff name %}{% endif %}": (1, 4, 3, "syntax", 'did you mean "if"?'),
    "{% 5 %}": (1, 1, 2, "syntax", "{{ value }}"),
    "{% endraw %}": (1, 4, 6, "syntax", ""),
    "{% if name %}": (1, 4, 2, "syntax", "{% endif %}"),
    "{% if name %}{% for x in words %}{% endif %}": (1, 37, 5, "syntax", "close `{% for %}` first"),
    "a{% endif %}": (1, 5, 5, "syntax", "remove it"),
    "{% else %}": (1, 4, 4, "syntax", "remove it"),
    "{% if %}{% endif %}": (1, 7, 2, "syntax", "value"),
    "{{ name": (1, 1, 2, "syntax", "}}"),
    "a\n {% if name": (2, 2, 2, "syntax", "%}"),
    "{# a": (1, 1, 2, "syntax", "#}"),
    "{% raw %} a": (1, 1, 2, "syntax", "{% endraw %}"),
    "{{ 'a }}": (1, 4, 1, "syntax", "quote"),
    "{{ a ! b }}": (1, 6, 1, "syntax", ""),
    "{{ (name }}": (1, 10, 1, "syntax", "reverse order"),
    "{{ name) }}": (1, 8, 1, "syntax", ""),
    "{{ name name }}": (1, 9, 4, "syntax", "~"),
    "{{ }}": (1, 4, 2, "syntax", "value"),
    "{{ '\\d' }}": (1, 5, 2, "syntax", "two backslashes"),
    "{{ '\\ud800' }}": (1, 4, 1, "syntax", ""),
    "{{ 9007199254740993 }}": (1, 4, 1, "syntax", "2**53"),
    "{{ 1e999 }}": (1, 4, 1, "syntax", ""),
    "{{ " + "1" * 33 + " }}": (1, 4, 33, "syntax", ""),
}


@pytest.mark.parametrize("source", MISTAKES)
def test_mistake(source: str) -> None:
    line, column, width, code, hint = MISTAKES[source]
    faults = check_template(source, {**NAMES, "args": {"id", "reason"}})
    assert [(f.line, f.column, f.width, f.code) for f in faults] == [(line, column, width, f"template_{code}")]
    assert hint in (faults[0].hint or "")
    if code != "unknown_name":
        with pytest.raises(TemplateRenderError) as stopped:
            render_template(source, TEMPLATE_VALUES)
        assert (stopped.value.line, stopped.value.column) == (line, column)


def test_all_mistakes_at_once() -> None:
    source = """{% extends 'x' %}
{{ a b }} {{ nme }}
{% if c d %}{{ name|uper }}{% endif %}
{% do x %}{{ name.format() }}{{ '' '' '' }}{{ 1 + }}
"""
    assert [(f.line, f.column, f.code) for f in check_template(source, {"name": None})] == [
        (1, 4, "template_forbidden"),
        (2, 6, "template_syntax"),
        (2, 14, "template_unknown_name"),
        (3, 9, "template_syntax"),
        (3, 21, "template_unknown_filter"),
        (4, 4, "template_forbidden"),
        (4, 19, "template_forbidden"),
        (4, 51, "template_syntax"),
    ]


def test_places_after_stripped_white_space() -> None:
    source = "x\n   {%- if name -%}\n\n   {{ nme }}\n  {% endif %}\n{# c #}\n\n {{ nmee }}"
    assert [(f.line, f.column) for f in check_template(source, NAMES)] == [(4, 7), (8, 5)]


def test_places_with_other_line_ends() -> None:
    assert [(f.line, f.column) for f in check_template("a\r\n{{ x }}\r{{ y }}", {})] == [(2, 4), (3, 4)]


def test_mistakes_are_bounded() -> None:
    assert len(check_template("{{ x }}" * 1000, {})) == MAX_TEMPLATE_PROBLEMS


def test_hint_shows_no_control_characters() -> None:
    (fault,) = check_template("{{ a\x1b }}", {})
    assert fault.message.isprintable()


def test_fault_does_not_depend_on_depth_of_caller() -> None:
    def deep(left: int) -> list[TemplateProblem]:
        return deep(left - 1) if left else check_template("{{ ((((((((((name)))))))))) }}{# unique #}", NAMES)

    room = sys.getrecursionlimit()
    assert [fault.message for fault in deep(room - 130)] == ["the template is nested too deeply"]
    assert deep(10) == []  # and the failure was not kept


# --- stops: source -> part of the message

STOPS = {
    "{{ missing }}": "`missing` is not set",
    "{{ order.nope }}": "no `.nope`",
    "{{ order.nope.deep|default('x') }}": "no `.nope`",
    "{{ words[9] }}": "no such item",
    "{{ words['a'] }}": "no such item",
    "{{ order[1] }}": "no such item",
    "{{ name.upper }}": "a method without `()`",
    "{{ order.keys }}": "a method without `()`",
    "{{ count.real }}": "no `.real`",
    "{{ words.append }}": "no `.append`",
    "{{ order.pop }}": "no `.pop`",
    "{{ words|map('upper') }}": "a generator without `|list`",
    "{% macro f() %}{% endmacro %}{{ f }}": "Macro cannot be printed",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "nested too deeply",
    "{{ name() }}": "text cannot be called",
    "{{ empty|first }}": "sequence was empty",
    "{{ empty|max }}": "sequence was empty",
    "{% if no %}{% set x = 1 %}{% endif %}{{ x }}": "`x` is not set",
    "{% for a, b in words %}{% endfor %}": "too many values to unpack",
    "{% for x in count %}{% endfor %}": "not iterable",
    "{{ 1 + 'a' }}": "for +: 'int' and 'str'",
    "{{ name % 3 }}": "not all arguments converted",
    "{{ '%1000d' % 3 }}": "at most three digits",
    "{{ 1 / 0 }}": "division by zero",
    "{{ 1 % 0 }}": "division by zero",
    "{{ 1e300 * 1e300 }}": "not a finite number",
    "{{ 2 ** 513 }}": "too large",
    "{{ {words: 1} }}": "a list cannot be a key",
    "{{ words[order] }}": "no such item",
    "{{ 1 in name }}": "requires string as left operand, not int",
    "{{ 1 in 2 }}": "not iterable",
    "{{ 1 < 'a' }}": "'<' not supported between",
    "{{ [1, 'a']|sort }}": "not supported between",
    "{{ people|map(attribute='age')|list }}": "no such item",
    "{{ 1.5|round(1, 'up') }}": "method must be",
    "{{ name|truncate(2) }}": "cannot be used here",
    "{{ order|tojson(indent=9) }}": "within ±8",
    "{{ range(10001 * 1) }}": "more than 10000 numbers",
    "{{ range(1, 2, 0) }}": "must not be zero",
    "{{ range(1.5) }}": "'float' object cannot be interpreted",
    "{{ words[::0] }}": "cannot be zero",
    "{{ ages|dictsort(by='x') }}": "You can only sort by",
    "{{ count|length }}": "has no len()",
    "{{ nothing is even }}": "for %: 'NoneType' and 'int'",
    "{{ -name }}": "bad operand type",
}  # fmt: skip


@pytest.mark.parametrize("source", STOPS)
def test_stop(source: str) -> None:
    with pytest.raises(TemplateRenderError) as stopped:
        render_template("\n" + source, TEMPLATE_VALUES)
    assert STOPS[source] in stopped.value.message
    assert stopped.value.line == 2


NOT_JSON = {
    "a subclass of str": type("Secret", (str,), {"__str__": lambda self: "hunter2"})("hunter2"),
    "an object": object(),
    "bytes": b"hunter2",
    "nan": float("nan"),
    "infinity": float("inf"),
    "a number of 5,000 digits": 10**5000,
}


@pytest.mark.parametrize("value", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("source", ["{{ x }}", "{{ x|tojson }}", "{{ 'a' ~ x }}", "{{ x|upper }}"])
def test_only_plain_data(source: str, value: object) -> None:
    with pytest.raises(TemplateRenderError):
        render_template(source, {"x": value})  # type: ignore[dict-item]  # that is the test


def test_large_whole_numbers_print() -> None:
    assert render_template("{{ x }} {{ x|tojson }}", {"x": 2**63}) == "9223372036854775808 9223372036854775808"


@pytest.mark.parametrize("source", [*STOPS, *(f"{{{{ secret|{name} }}}}" for name in FILTERS)])
def test_no_value_in_a_message(source: str) -> None:
    values: dict[str, Json] = {**dict.fromkeys(TEMPLATE_VALUES, "hunter2"), "secret": {"hunter2": ["hunter2"]}}
    try:
        render_template(source, values)
    except TemplateRenderError as stopped:
        message = str(stopped) + stopped.message
    else:
        message = ""
    assert "hunter2" not in message


# --- the small ones


def test_is_template() -> None:
    assert [is_template(text) for text in ("{{", "a {% b", "{#", "{ {", "}}", "")] == [True] * 3 + [False] * 3


def unknown_variables(source: str) -> set[str]:
    problems = check_template(source, {})
    assert {problem.code for problem in problems} <= {"template_unknown_name"}
    return {problem.message.split('"')[1] for problem in problems}


def test_every_variable_that_is_not_declared_is_reported() -> None:
    source = (
        "{{ a.b }}{% for c in d if c.x > e %}{{ c }}{{ loop.index }}{{ f }}{% else %}{{ c }}{% endfor %}"
        "{% set g = h %}{{ g }}{{ range(i) }}{{ j|default(k) }}{% if l is defined %}{% endif %}{{ m[n] }}"
    )
    assert unknown_variables(source) == set("acdefhijklmn")
    assert unknown_variables("plain") == set()


def test_set_declares_a_variable_only_for_the_text_after_it() -> None:
    assert unknown_variables("{{ a }}{% set a = 1 %}") == {"a"}
    assert unknown_variables("{% set a = 1 %}{{ a }}") == set()


def test_same_on_every_machine() -> None:
    program = """if True:
        import json, sys
        from agentrun.compiler.template import check_template, render_template
        print([render_template(*json.load(sys.stdin)), check_template('{{ oder }}', dict.fromkeys(['order', 'older']))])
    """
    source = "{{ x|tojson }}{{ 'ß I i'|upper|lower }}{% for k, v in x|dictsort %}{{ k }}{% endfor %}{{ 1.5 }}{{ y|unique|join }}"
    given = json.dumps([source, {"x": {"b": 1, "a": "é"}, "y": list("hash seed")}])
    results = set()
    for seed, locale in [("0", "C"), ("1", "tr_TR.UTF-8")]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONUTF8": "1"}
        environment["PYTHONPATH"] = str(Path(template.__file__).parents[2])
        results.add(subprocess.check_output([sys.executable, "-c", program], input=given.encode(), env=environment))
    assert len(results) == 1


def test_renders_in_threads_have_meters_of_their_own() -> None:
    source = "{% for i in range(9999) %}{{ i }}{% endfor %}"  # a quarter of the steps: ten on one meter would stop
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(render_template(source, {}))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {"".join(map(str, range(9999)))}
    assert len(results) == 10


def test_output_up_to_the_bound() -> None:
    text = "é" * (1 << 19)
    assert render_template("{{ x }}", {"x": text}) == text
    with pytest.raises(TemplateRenderError, match="longer than 1048576 bytes"):
        render_template("{{ x }}.", {"x": text})


# --- properties

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
syntax = st.sampled_from(["{{ x }}", "{% raw %}", "{#", "{{", "}}", "%}", "{% if %}", "{{ 7*7 }}", "\r\n", "\\n"])


@given(st.lists(syntax | st.text(max_size=5)).map("".join))
def test_values_come_out_as_they_are(value: str) -> None:
    assert render_template("<{{ x }}>", {"x": value}) == f"<{value}>"
    assert render_template("{% for x in y %}{{ x ~ '' }}{% endfor %}", {"y": [value]}) == value
    assert render_template("{{ (y|first).z|default('') }}", {"y": [{"z": value}]}) == value


@given(json_values)
def test_render_is_a_function(value: Json) -> None:
    source = "{{ x|tojson }}{% if x is mapping %}{% for k in x %}{{ k }}{% endfor %}{% endif %}"

    def once() -> str:
        try:
            return render_template(source, {"x": value})
        except TemplateRenderError as stopped:
            return str(stopped)

    assert once() == once()


# fmt: off
TEMPLATE_TOKENS = [
    "{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "{%-", "-%}", "if", "elif", "else", "endif", "for", "endfor",
    "in", "set", "raw", "endraw", "include", "macro", "endmacro", "x", "y", "x.y", "loop.index", "range(3)", "1",
    "2.5", "'a'", '"b"', "'", "\\", "(", ")", "[", "]", "{", "}", ",", ":", "|", ".", "+", "-", "*", "**", "/", "//",
    "%", "~", "==", "!=", "<", ">", "=", "and", "or", "not", "is", "|upper", "|join(',')", "|default('')", "|tojson",
    "|length", "|map(attribute='a')", "|sort", "is defined", "is string", "is not", "__class__", "_", "1e9", "0x",
    "1_", "\n", "é", "\ud800", "\x00", "#", "##", "!", "$", "x=1", "(x)", "[1,2]", "{'a':1}", "recursive", "import",
    "as", "with", "endset", "call", "true", "none",
]
# fmt: on
fragments = st.lists(st.sampled_from(TEMPLATE_TOKENS) | st.text(max_size=2), max_size=25)


@given(fragments.map(" ".join) | fragments.map("".join), json_values)
def test_any_text_is_read_or_refused(source: str, value: Json) -> None:
    names: Mapping[str, Collection[str] | None] = {"x": None, "y": {"a"}}
    faults = check_template(source, names)
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for fault in faults:
        assert 1 <= fault.line <= len(lines)
        assert 1 <= fault.column <= len(lines[fault.line - 1]) + 1
        assert fault.width >= 1
    assert faults == sorted(faults, key=lambda fault: (fault.line, fault.column))
    line = None
    try:
        render_template(source, {"x": value, "y": {"a": value}})
    except TemplateRenderError as stopped:
        line = stopped.line
    if line is None:
        assert {fault.code for fault in faults} <= {"template_unknown_name"}
    else:
        assert 1 <= line <= len(lines)
