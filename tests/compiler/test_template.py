"""What a template can say, what it is reported when it says something else, and that values stay values."""

# ruff: noqa: E501 - a template in a table is read in one line, not in pieces

import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import jinja2
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
from agentrun.compiler.template_grammar import OTHER_FILTERS
from agentrun.compiler.template_meter import FILTERS, TESTS
from agentrun.compiler.template_parser import MAX_TEMPLATE_PROBLEMS

VALUES: dict[str, Json] = {
    "name": "Ada",
    "count": 3,
    "price": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "empty": [],
    "words": ["pear", "Apple", "fig", "apple"],
    "numbers": [3, 1, 2, 1],
    "order": {"id": "1042", "items": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}], "_id": "x", "note": None},
    "people": [{"name": "Bo", "age": 30, "on": True}, {"name": "Al", "on": False}],
    "ages": {"b": 2, "A": 3, "c": 1},
    "lines": "one\n\n  two",
}
NAMES: dict[str, Collection[str] | None] = dict.fromkeys(VALUES)

# Both we and Jinja itself must give this text. Jinja is asked too, so that the table cannot be wrong the way we are.
SAME_AS_JINJA = {
    "plain text\n": "plain text\n",
    "Hello {{ name }}!": "Hello Ada!",
    "{{ name }}\n": "Ada\n",
    "{{ order.id }} {{ order['id'] }} {{ order['_id'] }} {{ order['items'].0.sku }}": "1042 1042 x a",
    "{{ words[0] }} {{ words[-1] }} {{ words.1 }} {{ name[0] }}": "pear apple Apple A",
    "{{ words[1:3]|join('+') }} {{ name[::-1] }} {{ name[:2] }} {{ words[::2]|length }}": "Apple+fig adA Ad 2",
    "{{ 1 + 2 }} {{ 5 - 7 }} {{ 4 * 2.5 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ -count }} {{ +count }}":
        "3 -2 10.0 3.5 3 3 -3 3",
    "{{ 'a' + 'b' ~ 1 ~ price }} {{ 'x' 'y' }}": "ab12.5 xy",
    "{{ 'a\\n\\x41\\u00e9\\\\' }}": "a\nAé\\",
    "{% if count > 2 and name == 'Ada' %}a{% elif yes %}b{% else %}c{% endif %}": "a",
    "{% if count > 3 or no %}a{% elif yes %}b{% else %}c{% endif %}": "b",
    "{% if not yes %}a{% elif no %}b{% else %}c{% endif %}": "c",
    "{{ 'in' if 'd' in name else 'out' }} {{ 'in' if 'z' in name else 'out' }} {{ 'x' if no }}|": "in out |",
    "{{ 'y' if 1 in numbers and 9 not in numbers and 'id' in order and 1 < 2 <= 2 != 3 >= 3 > 1 }}": "y",
    "{% for w in words %}{{ loop.index }}{{ w }}{{ ', ' if not loop.last }}{% endfor %}":
        "1pear, 2Apple, 3fig, 4apple",
    "{% for w in words %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }} {% endfor %}":
        "0434 1324 2214 3104 ",
    "{% for w in words if 'p' in w %}{{ loop.index }}/{{ loop.length }} {% endfor %}": "1/3 2/3 3/3 ",
    "{% for w in empty %}{{ w }}{% else %}none{% endfor %}": "none",
    "{% for key, value in ages|items %}{{ key }}={{ value }};{% endfor %}": "b=2;A=3;c=1;",
    "{% for key in ages %}{{ key }}{% endfor %}{% for char in name %}{{ char }}.{% endfor %}": "bAcA.d.a.",
    "{% for i in range(3) %}{{ i }}{% endfor %}{{ range(1, 9, 3)|join(',') }}{{ range(3, 0, -1)|list|length }}":
        "0121,4,73",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{% endfor %}":
        "100 201 110 211 ",
    "{% set total = count * 2 %}{{ total }}{% set a, b = 1, 2 %}{{ a }}{{ b }}": "612",
    "{% set x = 1 %}{% for i in range(2) %}{{ x }}{% set x = x + 5 %}{{ x }} {% endfor %}{{ x }}": "16 16 1",
    "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}": "1",
    "{% set x = 'outer' %}{% for x in range(1) %}{{ x }}{% endfor %}{{ x }}": "0outer",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n": "a\n\nb\n\nc\n",
    "a\n  {%- if yes %}\n  b\n  {%- endif %}\nc": "a\n  b\nc",
    "a {%- if yes -%} b {%- endif -%} c {{- name -}} d": "abcAdad",
    "  {%+ if yes %}x{% endif %}": "  x",
    "a{# note {{ x }} {% if %} #}b\n{# alone #}\nc": "ab\n\nc",
    "{% raw %}{{ name }} {% if %}{% endraw %}": "{{ name }} {% if %}",
    "# for x in y\n## not a statement {{ name }}": "# for x in y\n## not a statement Ada",
    "{{ missing|default('d') }} {{ order.nope|d('e') }} {{ nothing|default('f', true) }} {{ empty|first|d('g') }}":
        "d e f g",
    "{{ name|upper }} {{ name|lower }} {{ 'the end-of (it)'|title }} {{ 'aBC'|capitalize }}":
        "ADA ada The End-Of (It) Abc",
    "[{{ '  x '|trim }}] [{{ 'xxaxx'|trim('x') }}] {{ 'a-b-c'|replace('-', '+') }} {{ 'aaa'|replace('a', 'b', 2) }}":
        "[x] [a] a+b+c bba",
    "{{ words|length }} {{ name|count }} {{ order|length }} {{ words|first }} {{ words|last }}":
        "4 3 4 pear apple",
    "{{ numbers|join(', ') }} {{ people|join(' & ', attribute='name') }}": "3, 1, 2, 1 Bo & Al",
    "{{ numbers|sort|join }} {{ numbers|sort(reverse=true)|join }} {{ words|sort|join(' ') }}":
        "1123 3211 Apple apple fig pear",
    "{{ words|sort(case_sensitive=true)|join(' ') }} {{ people|sort(attribute='name')|map(attribute='name')|join }}":
        "Apple apple fig pear AlBo",
    "{{ numbers|unique|join }} {{ words|unique|join(' ') }} {{ words|unique(true)|list|length }}":
        "312 pear Apple fig 4",
    "{{ numbers|reverse|join }} {{ name|reverse }} {{ 'abc'|list|join('.') }}": "1213 adA a.b.c",
    "{{ people|map(attribute='name')|join(',') }} {{ people|map(attribute='age', default=0)|join(',') }}":
        "Bo,Al 30,0",
    "{{ order['items']|map(attribute='sku')|join }} {{ people|map(attribute='name')|first }}": "ab Bo",
    "{{ people|selectattr('on')|map(attribute='name')|join }} {{ people|rejectattr('on')|map(attribute='name')|join }}":
        "Bo Al",
    "{{ people|selectattr('name', 'eq', 'Al')|list|length }} {{ people|selectattr('age', 'defined')|list|length }}":
        "1 1",
    "{{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 25|round(-1) }}":
        "2.57 3.0 2.0 20",
    "{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '1.5'|float }} {{ 'x'|float(2.5) }}":
        "42 4 7 3 1.5 2.5",
    "{{ (-3)|abs }} {{ numbers|min }} {{ numbers|max }} {{ numbers|sum }}": "3 1 3 7",
    "{{ words|min }} {{ words|max }} {{ (people|max(attribute='name')).age }}": "Apple pear 30",
    "{{ order['items']|sum(attribute='n') }} {{ numbers|sum(start=10) }}": "3 17",
    "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(1, blank=true) }}|{{ lines|indent('> ') }}":
        "one\n\n      two|  one\n\n    two|one\n \n   two|one\n\n>   two",
    "{{ 'hello big world'|truncate(9) }} {{ 'hello big world'|truncate(9, true, '-', 0) }} {{ 'ab'|truncate(3) }}":
        "hello... hello bi- ab",
    "{{ 'one two, three'|wordcount }} {{ 12|string|length }}": "3 2",
    "{% for k, v in ages|dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in ages|dictsort(by='value') %}{{ k }}{% endfor %}":
        "A3b2c1 cbA",
    "{% for k, v in ages|dictsort(true, reverse=true) %}{{ k }}{% endfor %}": "cbA",
    "{% if name is string and count is number and yes is boolean and order is mapping and words is sequence %}y{% endif %}":
        "y",
    "{% if missing is undefined and name is defined and order.nope is not defined and nothing is none %}y{% endif %}":
        "y",
    "{% if yes is true and no is false and 3 is odd and 4 is even and 9 is divisibleby 3 and 1 is in numbers %}y{% endif %}":
        "y",
    "{% if 1 is eq 1 and 1 is ne 2 and 1 is lt 2 and 1 is le 1 and 2 is gt 1 and 2 is ge(2) %}y{% endif %}": "y",
    "{{ (1, 2)|join }} {{ [1, 'a']|join }} {{ {'a': 1}.a }} {{ {'a': 1, 'b': 2}|length }}": "12 1a 1 2",
    "{{ name or 'x' }} {{ '' or 'x' }} {{ name and 'x' }}": "Ada x x",
}  # fmt: skip

# Only Jinja says what these give.
LIKE_JINJA = [
    "{{ yes }} {{ no }} {{ nothing }} {{ true ~ none }} {{ True }} {{ None }}",
    "{{ words }} {{ order }} {{ (1, 'a') }} {{ people|join }} {{ words ~ 'a' }} {{ words|string }}",
    "{{ order|tojson }} {{ '<é>\U0001f600'|tojson }} {{ {'b': 1, 'a': 2}|tojson(indent=1) }} {{ {1: 2}|tojson }}",
    "{{ [1, true, 1.0, 'true']|unique|join(',') }} {{ yes == 1 }} {{ 1 == 1.0 }} {{ 1 in [true] }}",
    "{{ 'a\r\nb' }}", "a\r\nb\rc",
    "{{ yes + 1 }} {{ words + words }} {{ name * 3 }} {{ 2 * [1, 2] }} {{ '-' * 20 }} {{ 'a' * -1 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 9007199254740992 + 1 }} {{ 9007199254740992 * 9007199254740992 }} {{ 1.5 * 2 }} {{ 7 % 3 }} {{ -7 // 2 }} {{ 1e3 }}",
    "{{ words == words }} {{ words in words }} {{ [1, 2] < [1, 3] }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' not in name }}",
    "{{ [words] }} {{ {'a': words} }} {{ {'a': {'b': [1, {'c': 2}]}}.a.b[1].c }}",
    "{{ '%s is %d' % (name, count) }} {{ '%05.2f'|format(price) }} {{ '%(a)s'|format(a=1) }} {{ '100%%' % () }} {{ '%s' % name }}",
    "{{ name|indent(65) }} {{ name|indent(-1) }} {{ lines|indent(width=3, first=true) }}",
    "{{ name|replace('', 'x') }} {{ 'aaa'|replace('a', 'bb', count=2) }} {{ words|trim }}",
    "{% set x = missing %}{{ x is defined }}",
    "{% set x %}a {{ name }} b{% endset %}{{ x|upper }} {% set y | upper %}abc{% endset %}{{ y }}",
    "{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}",
    "{% macro item(x, y=2) %}<{{ x|upper }}:{{ y }}>{% endmacro %}{{ item('a') }}{{ item(name, 3) }}{{ item(y=1, x='q') }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ varargs|join('+') }} {{ kwargs|dictsort }}{% endmacro %}{{ f(1, 2, a=3) }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}",
    "{% macro f() %}a{% endmacro %}{{ f()|length }}{{ f() ~ f() }}{{ f() + '<' }}{% if f() == 'a' %}y{% endif %}",
    "{% macro box(t) %}[{{ t }}: {{ caller() }}]{% endmacro %}{% call box('T') %}in {{ name }}{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each(words) %}- {{ x }}\n{% endcall %}",
    "{% set ns = namespace(n=0, found=false) %}{% for i in numbers %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }} {{ ns.found }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{% set ns.c = 3 %}{{ ns.a + ns.b + ns.c }}",
    "{% with a = 1, b = name %}{{ a }}{{ b }}{% endwith %}{% with %}{% set q = 5 %}{{ q }}{% endwith %}",
    "{% filter upper %}hello {{ name }}{% endfilter %} {% filter indent(2)|replace('o', '0') %}foo\nboo{% endfilter %}",
    "{% for x in words %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {{ loop.previtem|d('-') }} {{ loop.nextitem|d('-') }};{% endfor %}",
    "{% for x in words|map('upper') %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% else %}none{% endfor %}",
    "{% for k, v in ages.items() %}{{ k }}{{ v }}{% endfor %}{% for k in ages.keys() %}{{ k }}{% endfor %}{{ ages.values()|list }}",
    "{{ ages.items()|list|length }} {{ ages.get('b') }} {{ ages.get('z', 0) }} {{ ages.get('z') }} {{ ages.items() }}",
    "{{ name.upper() }} {{ name.lower() }} {{ 'a b'.title() }} {{ ' x '.strip() }} {{ 'xax'.strip('x') }} {{ 'xa'.lstrip('x') }}",
    "{{ 'a,b,c'.split(',') }} {{ 'a b'.split() }} {{ 'a,b,c'.split(',', 1)|last }} {{ 'a\nb'.splitlines() }} {{ 'a=b'.partition('=') }}",
    "{{ name.startswith('A') }} {{ name.endswith(('a', 'b')) }} {{ 'hello'.find('l') }} {{ 'hello'.count('l') }} {{ 'hello'.index('e') }}",
    "{{ ', '.join(words) }} {{ '-'.join(numbers|map('string')) }} {{ 'abc'.replace('b', 'x') }} {{ '7'.zfill(3) }} {{ 'a'.center(5, '*') }}|",
    "{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}|{{ 'Abc'.swapcase() }} {{ 'abc'.capitalize() }} {{ 'ab'.removeprefix('a') }} {{ '12'.isdigit() }}",
    "{{ numbers.index(2) }} {{ numbers.count(1) }} {{ (1, 2).index(2) }}",
    "{{ dict(a=1, b=2) }} {{ dict([('a', 1)]).a }} {{ dict(ages, z=9)|length }} {{ range(3) }} {{ range(2, 5)|list }}",
    "{{ words|map('upper')|list }} {{ words|map('length')|sum }} {{ words|map('replace', 'p', 'q')|join(' ') }}",
    "{{ numbers|select('odd')|list }} {{ numbers|reject('odd')|list }} {{ numbers|select('gt', 1)|list }} {{ [0, 1, '']|select|list }}",
    "{{ numbers|select('==', 1)|list }} {{ people|selectattr('age', 'defined')|map(attribute='name')|list }}",
    "{% for g in people|groupby('on') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}{% for on, l in people|groupby('on') %}{{ on }}{{ l|length }}{% endfor %}",
    "{{ numbers|batch(2)|list }} {{ numbers|batch(3, 'x')|list }} {{ numbers|slice(2)|list }} {% for r in words|batch(2) %}{{ r|join }};{% endfor %}",
    "{{ 'the quick brown fox jumps'|wordwrap(9) }} {{ 'abc'|center(9) }}| {{ 'a b'|urlencode }} {{ {'a': 1}|urlencode }}",
    "{{ '<b>'|e }} {{ '<b>'|escape ~ '<' }} {{ '<b>'|safe }} {{ ('<b>'|safe)|forceescape }} {{ 1536|filesizeformat }} {{ 1536|filesizeformat(true) }}",
    "{{ '0x1f'|int(base=16) }} {{ 'z'|int(-1) }} {{ '1e2'|float }} {{ 1.5|round(16) }} {{ 7.5|round(method='ceil')|int }} {{ none|int }}",
    "{{ [[1], [2]]|sum(start=[]) }} {{ [3, 1]|max }} {{ ages|dictsort(by='value', reverse=true) }} {{ ['b', 'A']|sort }}",
    "{{ 1 is integer }} {{ 1.0 is float }} {{ 'a' is lower }} {{ 'A' is upper }} {{ words is iterable }} {{ 1 is sameas 1 }} {{ 2 is equalto 2 }}",
    "{{ 3 is greaterthan 2 }} {{ 3 is lessthan 2 }} {{ 1 is not none }} {{ nothing is none }} {{ 'a' is in 'abc' }}",
    "{{ name if missing is defined else 'none' }} {{ (missing or 'x') if missing is defined else 'y' }} {{ 'a' if no }}|",
    "{{ name[0] }} {{ name[-1:] }} {{ words[1:3] }} {{ words[::-1] }} {{ (1, 2, 3)[1:] }} {{ range(9)[2:4]|list }} {{ order['items'][0]['sku'] }}",
    "a\n  {%- if yes %}\n  b\n  {%- endif %}\nc", "{% if yes -%}   x   {%- endif %}|\n\n{{- name -}}\n\n|", "x {#- c -#} y",
    "{% raw %}{{ x }} {% if %}{# #}{% endraw %}|{%- raw -%}  {{ y }}  {%- endraw -%}  |",
    "- a\n{% for w in words %}\n- {{ w }}\n{% endfor %}\nend\n", "{% for w in words -%}\n- {{ w }}\n{% endfor %}\n",
    "{% if yes %}{% set z = 1 %}{% else %}{% set z = 2 %}{% endif %}{{ z }}{% for i in [1] %}{% set z = 5 %}{% endfor %}{{ z }}",
    "{{ 'a' 'b' }} {{ \"q'q\" }} {{ 'q\\'q' }} {{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0.5 }}",
    "{{ not yes }} {{ not (yes and no) }} {{ yes and 'x' or 'y' }} {{ 1 if yes else 2 if no else 3 }} {{ 1 + 2 * 3 - 4 / 2 }}",
    "{{ people|map(attribute='name')|sort|first }} {{ people|sort(attribute='name', reverse=true)|map(attribute='name')|list }}",
    "{% for p in people if p.on %}{{ p.name }}{% else %}-{% endfor %}{% for p in people if p.age is defined and p.age > 40 %}x{% else %}-{% endfor %}",
    "{{ order.items }}"[:0] + "{% set items = order['items'] %}{{ items|map(attribute='sku')|join }}{{ items[0].n }}",
    "{% macro t(a) %}{% if a is mapping %}{% for k, v in a.items() %}{{ k }}({{ t(v) }}){% endfor %}{% else %}{{ a }}{% endif %}{% endmacro %}{{ t(ages) }}",
    "{%+ if yes %}x{%+ endif %}\n{{ 1 }}{% if no %}{% elif yes %}e{% endif %}",
    "{{ words|first|upper }}{{ words|last }}{{ 'abc'|first }}{{ numbers|min }}{{ 'b,a'.split(',')|sort|join('<') }}",
    "{{ 'über straße'|upper }} {{ 'ÜBER'|lower }} {{ 'İ'.lower()|length }} {{ 'x'|string is string }} {{ '\u2028'|length }}",
]  # fmt: skip


@pytest.mark.parametrize("source", LIKE_JINJA)
def test_like_jinja(source: str) -> None:
    assert check_template(source, {**NAMES, "missing": None}) == []
    assert render_template(source, VALUES) == ORACLE.from_string(source).render(VALUES)


def test_enough_templates_are_compared() -> None:
    assert len(LIKE_JINJA) >= 60


ORACLE = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # noqa: S701  # an oracle


@pytest.mark.parametrize("source", SAME_AS_JINJA)
def test_same_as_jinja(source: str) -> None:
    expected = SAME_AS_JINJA[source]
    assert ORACLE.from_string(source).render(VALUES) == expected
    assert check_template(source, {**NAMES, "missing": None}) == []
    assert render_template(source, VALUES) == expected


def test_every_filter_and_test_is_shown() -> None:
    shown = " ".join([*SAME_AS_JINJA, *LIKE_JINJA])
    assert [name for name in FILTERS if f"|{name}" not in shown] == []
    words = [name for name in TESTS if name.isalpha()]
    assert [name for name in words if f"is {name}" not in shown and f"is not {name}" not in shown] == []


def test_every_filter_of_jinja_is_allowed_or_refused_with_a_reason() -> None:
    assert {*FILTERS, *OTHER_FILTERS} == set(jinja2.filters.FILTERS)


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
            render_template(source, VALUES)
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
        render_template("\n" + source, VALUES)
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
    values: dict[str, Json] = {**dict.fromkeys(VALUES, "hunter2"), "secret": {"hunter2": ["hunter2"]}}
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
    with pytest.raises(TemplateRenderError, match="over 1048576 bytes"):
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
WORDS = [
    "{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "{%-", "-%}", "if", "elif", "else", "endif", "for", "endfor",
    "in", "set", "raw", "endraw", "include", "macro", "endmacro", "x", "y", "x.y", "loop.index", "range(3)", "1",
    "2.5", "'a'", '"b"', "'", "\\", "(", ")", "[", "]", "{", "}", ",", ":", "|", ".", "+", "-", "*", "**", "/", "//",
    "%", "~", "==", "!=", "<", ">", "=", "and", "or", "not", "is", "|upper", "|join(',')", "|default('')", "|tojson",
    "|length", "|map(attribute='a')", "|sort", "is defined", "is string", "is not", "__class__", "_", "1e9", "0x",
    "1_", "\n", "é", "\ud800", "\x00", "#", "##", "!", "$", "x=1", "(x)", "[1,2]", "{'a':1}", "recursive", "import",
    "as", "with", "endset", "call", "true", "none",
]
# fmt: on
fragments = st.lists(st.sampled_from(WORDS) | st.text(max_size=2), max_size=25)


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


whole = st.integers(-20, 20).map(str)
quoted = st.text("abAB ", max_size=4).map(repr)
numbers = st.recursive(
    whole | st.just("n"),
    lambda n: (
        st.tuples(n, st.sampled_from(["+", "-", "*", "//", "%", "/"]), n).map("({0[0]} {0[1]} {0[2]})".format)
        | st.tuples(n, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), n, n, n).map(
            "({0[3]} if {0[0]} {0[1]} {0[2]} else {0[4]})".format
        )
        | n.map("({}|abs)".format)
    ),
)
texts = st.recursive(
    quoted | st.just("t"),
    lambda t: (
        st.tuples(t, t).map("({0[0]} ~ {0[1]})".format)
        | st.tuples(t, st.sampled_from(["upper", "lower", "title", "trim", "reverse", "capitalize"])).map(
            "({0[0]}|{0[1]})".format
        )
        | st.tuples(t, t, t).map("({0[0]}|replace('a' ~ {0[1]}, {0[2]}))".format)
        | st.tuples(t, numbers).map("({0[0]} ~ ({0[1]}|round(2)))".format)
        | st.lists(t, max_size=3).map(lambda items: f"([{', '.join(items)}]|sort|join('-'))")
    ),
)


@given(numbers | texts)
def test_expressions_give_what_jinja_gives(expression: str) -> None:
    source = f"{{{{ {expression} }}}}"
    values: dict[str, Json] = {"n": 7, "t": "Abba"}
    try:
        ours = render_template(source, values)
    except TemplateRenderError as stopped:
        assert any(part in stopped.message for part in ("zero", "2**53", "deeply"))  # noqa: PT017  # only what Jinja refuses comes here
        return
    assert ours == jinja2.Environment().from_string(source).render(values)  # noqa: S701  # an oracle
