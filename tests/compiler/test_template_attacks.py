"""Templates that want the machine: each is refused or harmless within a number of steps and 64 MiB (THREATS group B).

Each runs in a process of its own, whose memory is limited by the system and whose steps are counted; this file is also
the program that starts them. The planted twins run there too, with a guard taken away: readings that do not see those
would see nothing.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import agentrun.compiler.template as template
from agentrun.compiler import template_parser
from agentrun.compiler.template import Json, TemplateRenderError, check_template, render_template
from agentrun.compiler.template_meter import Bounds, RenderMeter

from ..steps import at_most

MIB = 1 << 20
MEMORY = 64 * MIB
STEPS = 12_000_000
"""The most for one template, `steps.py` says of what. The costliest one takes 3.8 million."""
KILL = 30
"""Seconds of CPU after which the system kills a process that hangs in C code."""
UNBOUNDED = Bounds(steps=1 << 60, text=1 << 60, string=1 << 60, output=1 << 60, range=1 << 60)

BIG = "a" * (MIB - 1)
Values = dict[str, Json]


class Attack(NamedTuple):
    source: str
    values: Callable[[], Values] = dict
    harmless: bool = False
    """The text comes out, because it is small after all."""


def each(body: str, outer: int = 9999, inner: int = 9999) -> str:
    return f"{{% for i in range({outer}) %}}{{% for j in range({inner}) %}}{body}{{% endfor %}}{{% endfor %}}"


def nested(value: Json, levels: int) -> Json:
    for _ in range(levels):
        value = [value]
    return value


def shared(levels: int) -> Json:
    """A small value that is 2**levels long when it is written out."""
    value: Json = []
    for _ in range(levels):
        value = [value, value]
    return value


def cycle() -> Json:
    ring: list[Json] = []
    ring.append(ring)
    return ring


def doublings(step: str, count: int = 60) -> str:
    return "{% set a = 'aaaaaaaa' %}" + step * count + "{{ a }}"


ATTACKS: dict[str, Attack] = {
    # THREATS 17: into Python
    "class": Attack("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "class by item": Attack("{{ ''['__class__'] }}"),
    "class by joined item": Attack("{{ ''['__cl' ~ 'ass__'] }}"),
    "class by attribute": Attack("{{ x|map(attribute='__class__')|list|tojson }}", lambda: {"x": [1]}),
    "class by path": Attack("{{ x|join(attribute='a.__class__') }}", lambda: {"x": [{"a": 1}]}),
    "class by sort": Attack("{{ x|sort(attribute='__len__')|join }}", lambda: {"x": [{"a": 1}, {"a": 2}]}),
    "class by select": Attack("{{ x|selectattr('__class__')|join }}", lambda: {"x": ["a"]}),
    "globals": Attack("{{ cycler.__init__.__globals__.os.popen('id').read() }}"),
    "globals by item": Attack("{{ joiner['__init__']['__globals__'] }}"),
    "attr filter": Attack("{{ ''|attr('__class__') }}"),
    "map attr": Attack("{{ ['']|map('attr', '__class__')|list }}"),
    "self": Attack("{{ self.__init__ }}"),
    "self without underscores": Attack("{{ self._TemplateReference__context }}"),
    "super": Attack("{{ super() }}"),
    "caller": Attack("{{ caller() }}"),
    "varargs": Attack("{{ varargs }}{{ kwargs }}"),
    "namespace": Attack("{% set ns = namespace(a=1) %}{{ ns.__class__ }}{{ ns['__class__'] }}"),
    "namespace by item": Attack("{% set ns = namespace(a=1) %}{{ ns['_Namespace__attrs'] }}"),
    "dict": Attack("{{ dict.__class__ }}"),
    "range object": Attack("{{ range(3).start }}"),
    "function": Attack("{{ range.__globals__ }}"),
    "macro object": Attack("{% macro m() %}{% endmacro %}{{ m._environment }}{{ m['_func'] }}"),
    "macro name": Attack("{% macro m() %}{% endmacro %}{{ m.name }}"),
    "bound method": Attack("{{ x.upper['__self__'] }}", lambda: {"x": "a"}),
    "generator frame": Attack("{{ (x|map('upper')).gi_frame }}", lambda: {"x": ["a"]}),
    "loop by item": Attack("{% for i in x %}{{ loop['_iterable'] }}{% endfor %}", lambda: {"x": ["a"]}),
    "groups": Attack("{{ (x|groupby('a')|first)._replace }}", lambda: {"x": [{"a": 1}]}),
    "changing a value": Attack("{{ x.append(1) }}", lambda: {"x": []}),
    "changing by item": Attack("{{ x['append'](1) }}", lambda: {"x": []}),
    "keyword of the runtime": Attack("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(_loop_vars=1) }}"),
    "loop object": Attack("{% for x in [1] %}{{ loop.__class__ }}{% endfor %}"),
    "loop call": Attack("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
    "method": Attack("{{ x.append }}", lambda: {"x": []}),
    "undefined": Attack("{{ missing.__class__ }}"),
    "format string": Attack("{{ '{0.__class__}'.format(1) }}"),
    "format map": Attack("{{ '{a.__class__}'.format_map({'a': 1}) }}"),
    "format of an object": Attack("{% macro m() %}{% endmacro %}{{ '%s' % m }}"),
    "format of a value": Attack("{{ '%r' % x }}", lambda: {"x": "a"}),
    "hidden unicode": Attack("{{ ''.\uff3f\uff3fclass\uff3f\uff3f }}"),
    "unicode name": Attack("{{ \u1d52\u1d56\u1d57 }}"),
    "import": Attack("{% import 'os' as os %}{{ os.system('id') }}"),
    "debug": Attack("{% debug %}"),
    "line statement": Attack("# for x in range(9)\nx\n# endfor\n", harmless=True),
    # THREATS 19 and 21: values as templates, names as files
    "value is template": Attack("{{ x }}", lambda: {"x": "{{ '' .__class__ }}{% for i in x %}"}, harmless=True),
    "value in value": Attack("{% set y = x %}{{ y }}{{ y ~ '}}' }}", lambda: {"x": "{{ secrets.X "}, harmless=True),
    "raw is not undone": Attack("{% raw %}{{ x }}{% endraw %}", harmless=True),
    "include": Attack("{% include '../../etc/passwd' %}"),
    "include by value": Attack("{% include x %}", lambda: {"x": "/etc/passwd"}),
    "include of name with null": Attack("{% include 'a\\x00b' %}"),
    "extends": Attack("{% extends x %}", lambda: {"x": "/etc/passwd"}),
    # THREATS 18: arithmetic
    "times": Attack("{{ 'a' * 1000000000 }}"),
    "times list": Attack("{{ [0] * 1000000000 }}"),
    "power": Attack("{{ 10 ** (10 ** 8) }}"),
    "power in times": Attack("{{ 'a' * 10 ** 9 }}"),
    "product": Attack("{% set a = 9007199254740991 %}" + "{% set a = a * a %}" * 30),
    "product of floats": Attack("{% set a = 1e300 %}{{ a * a }}"),
    "centre": Attack("{{ 'a'.center(1000000000) }}"),
    "format filter": Attack("{{ '%1000000000d'|format(1) }}"),
    "format number": Attack("{{ '%1000000000d' % 1 }}"),
    "lipsum": Attack("{{ lipsum(n=100000) }}"),
    "huge int value": Attack("{{ x }}", lambda: {"x": 1 << 10_000_000}),
    "huge int compared": Attack("{{ x < 1 }}", lambda: {"x": 1 << 10_000_000}),
    # loops
    "loops": Attack(each("")),
    "loops with text": Attack(each("{{ i }}")),
    "loops with set": Attack(each("{% set x = i * j %}")),
    "loops with filters": Attack(each("{% set x = i|string|upper|trim|length %}")),
    "loops with small lists": Attack(each("{% set x = [3, 2, 1]|sort|reverse|unique|list %}")),
    "loops with small json": Attack(each("{% set x = {'a': 1, 'b': 2}|tojson(indent=2) %}")),
    "loops with ranges": Attack(each("{% set x = range(9999) %}")),
    "loops with tests": Attack(each("{% if i is divisibleby 3 or j is in [1, 2, 3] %}{% endif %}")),
    "loops with test": Attack("{% for i in range(9999) for j in range(9999) %}{% endfor %}"),
    "filtered loops": Attack("{% for i in range(9999) if i < 0 %}{% endfor %}" * 1000),
    "ten loops deep": Attack("{% for i in range(9) %}" * 30 + "{% endfor %}" * 30),
    "loops side by side": Attack("{% for i in range(9999) %}{{ i }}{% endfor %}" * 600),
    "loop over text": Attack("{% for c in x %}{% for d in x %}{% endfor %}{% endfor %}", lambda: {"x": BIG}),
    "loop over value": Attack("{% for i in x %}{% for j in x %}{% endfor %}{% endfor %}", lambda: {"x": [0] * 100_000}),
    "loop that prints text": Attack("{% for i in range(9999) %}" + BIG[:900_000] + "{% endfor %}"),
    "else without loop": Attack("{% for i in [] %}{% else %}" * 30 + each("") + "{% endfor %}" * 30),
    "range": Attack("{{ range(1000000000)|length }}"),
    "range by steps": Attack("{{ range(0, 9007199254740992, 1)|length }}"),
    # texts that grow
    "doubled by tilde": Attack(doublings("{% set a = a ~ a %}")),
    "doubled by plus": Attack(doublings("{% set a = a + a %}")),
    "doubled by join": Attack(doublings("{% set a = [a, a]|join %}")),
    "doubled by separator": Attack(doublings("{% set a = [a, a]|join(a) %}")),
    "doubled by replace": Attack(doublings("{% set a = a|replace('a', 'aa') %}")),
    "doubled by indent": Attack(doublings("{% set a = (a ~ '\\n')|indent(64, true, true) %}")),
    "doubled by json": Attack(doublings("{% set a = a|tojson|tojson|tojson %}")),
    "doubled by truncate": Attack(
        doublings("{% set a = (a ~ 'aaaaaa aaaaaa')|truncate(9, false, a) %}"), harmless=True
    ),
    "doubled by default": Attack(doublings("{% set a = missing|default(a ~ a) %}")),
    "doubled in loop": Attack("{% for x in [1, 2] %}" * 30 + "{{ 'aaaa' }}" + "{% endfor %}" * 30),
    "joined joins": Attack("{{ [[x, x]|join, [x, x]|join]|join }}", lambda: {"x": BIG[:500_000]}),
    "join of one text": Attack("{{ x|join }}", lambda: {"x": [BIG] * 100_000}),
    "join of nothing by much": Attack("{{ x|join(y) }}", lambda: {"x": [""] * 100_000, "y": BIG}),
    "replace nothing": Attack("{{ x|replace('', x) }}", lambda: {"x": BIG}),
    "replace all": Attack("{{ x|replace('a', x) }}", lambda: {"x": BIG}),
    "many large": Attack("".join(f"{{% set a{n} = x ~ '' %}}" for n in range(600)), lambda: {"x": BIG[:900_000]}),
    "many wide": Attack(
        "".join(f"{{% set a{n} = x ~ '' %}}" for n in range(600)),
        lambda: {"x": "\U0001f600" + BIG[:1000]},
        True,
    ),
    "many wider": Attack(
        "".join(f"{{% set a{n} = x ~ '' %}}" for n in range(600)),
        lambda: {"x": "\U0001f600" + BIG[:900_000]},
    ),
    "many slices": Attack("".join(f"{{% set a{n} = x[1:] %}}" for n in range(600)), lambda: {"x": BIG}),
    "many upper": Attack(each("{% set a = x|upper %}"), lambda: {"x": BIG}),
    "upper grows": Attack("{{ x|upper }}", lambda: {"x": "\u0390" * 500_000}),
    "indent wide": Attack("{{ x|indent(1000000000) }}", lambda: {"x": "a\nb"}),
    "indent lines": Attack("{{ x|indent(64, true, true) }}", lambda: {"x": "\n" * 100_000}),
    "indent more lines": Attack("{{ x|indent(0) }}", lambda: {"x": "\n" * 1_000_000}, harmless=True),
    "title of many": Attack("{{ x|title|length }}", lambda: {"x": "a-" * 500_000}),
    "wordcount": Attack(each("{% set a = x|wordcount %}"), lambda: {"x": "a " * 100_000}),
    "truncate": Attack("{{ x|truncate(99999999) }}", lambda: {"x": "a" * 20 * MIB}),
    "trim by much": Attack("{{ x|trim(y) }}", lambda: {"x": BIG, "y": "".join(map(chr, range(500)))}),
    "round": Attack("{{ 1.5|round(1000000000) }}"),
    "int of much": Attack("{{ x|int }}", lambda: {"x": "9" * 1_000_000}, harmless=True),
    "output of one": Attack("{{ x }}", lambda: {"x": "a" * 20 * MIB}),
    "output of many": Attack("{{ x }}" * 2000, lambda: {"x": BIG[:1000]}),
    # searching and comparing
    "in, by plain comparison": Attack(
        each("{% if y in x %}{% endif %}"), lambda: {"x": "a" * 29_000, "y": "a" * 90 + "b" + "a" * 8}
    ),
    "in, short": Attack(each("{% if y in x %}{% endif %}"), lambda: {"x": "a" * 2499, "y": "a" * 1200 + "ba"}),
    "in, not so often": Attack(
        each("{% if y in x %}{% endif %}", 1, 5000), lambda: {"x": "a" * 2499, "y": "a" * 1200 + "ba"}
    ),
    "in, long": Attack(each("{% if 'aaaab' in x %}{% endif %}"), lambda: {"x": BIG}),
    "in, long in long": Attack(
        each("{% if y in x %}{% endif %}"), lambda: {"x": "ab" * 500_000, "y": "ab" * 200_000 + "b"}
    ),
    "in list of texts": Attack(each("{% if y in x %}{% endif %}"), lambda: {"x": [BIG] * 1000, "y": BIG[:-1] + "b"}),
    "in as test": Attack(each("{% if 'ab' is in x %}{% endif %}"), lambda: {"x": BIG}),
    "replace searched": Attack(each("{% set a = x|replace('aab', '') %}"), lambda: {"x": BIG}),
    "equal": Attack(each("{% if x == y %}{% endif %}"), lambda: {"x": BIG + "a", "y": BIG + "b"}),
    "order": Attack(each("{% if x < y %}{% endif %}"), lambda: {"x": BIG + "a", "y": BIG + "b"}),
    "select equal": Attack(
        each("{% set a = l|selectattr('a', 'eq', y) %}"),
        lambda: {"l": [{"a": BIG}] * 100, "y": BIG[:-1] + "b"},
    ),
    "sort": Attack("{{ x|sort|length }}", lambda: {"x": [*range(100_000, 0, -1)]}),
    "sort of long": Attack("{{ x|sort(case_sensitive=true)|length }}", lambda: {"x": [BIG, BIG[:-1] + "b"] * 5000}),
    "unique of long": Attack("{{ x|unique(true)|length }}", lambda: {"x": [BIG] * 10_000}),
    "unique of colliding": Attack("{{ x|unique|length }}", lambda: {"x": [n * ((1 << 61) - 1) for n in range(20_000)]}),
    "keys collide": Attack("{{ {'a': 1, 'a': 2}|tojson }}", harmless=True),
    # values that are larger than they look
    "lists in lists": Attack("{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a|tojson }}"),
    "lists in mappings": Attack("{% set a = {} %}" + "{% set a = {'a': a, 'b': a} %}" * 60 + "{{ a|tojson }}"),
    "pairs of pairs": Attack("{% set a = x|items %}" + "{% set a = a|items %}" * 60, lambda: {"x": {"a": 1}}),
    "shared value as json": Attack("{{ x|tojson }}", lambda: {"x": shared(60)}),
    "shared value as indented json": Attack("{{ x|tojson(indent=8) }}", lambda: {"x": shared(60)}),
    "shared value compared": Attack("{{ x == x }}", lambda: {"x": shared(60)}),
    "shared value in": Attack("{{ 1 in x }}", lambda: {"x": shared(60)}, harmless=True),
    "shared value sorted": Attack("{{ x|sort }}", lambda: {"x": shared(60)}),
    "shared value unique": Attack("{{ x|unique }}", lambda: {"x": shared(60)}),
    "shared value printed": Attack("{{ x }}", lambda: {"x": shared(60)}),
    "cycle as json": Attack("{{ x|tojson }}", lambda: {"x": cycle()}),
    "deep value as json": Attack(
        "{{ x|tojson }}",
        lambda: {"x": nested(1, 500)},
    ),
    "deep json with indent": Attack(
        "{{ x|tojson(indent=8) }}",
        lambda: {"x": nested([0] * 90_000, 60)},
    ),
    "json of escapes": Attack("{{ x|tojson }}", lambda: {"x": ["\x01" * 500_000] * 2}),
    "json of one key": Attack("{{ x|tojson }}", lambda: {"x": [{BIG[:1000]: 1}] * 100_000}),
    "list of text": Attack("{{ x|list|length }}", lambda: {"x": "\u00e9" * 1_000_000}),
    "many lists of text": Attack(
        "".join(f"{{% set a{n} = x|list %}}" for n in range(600)), lambda: {"x": "\u4e00" * 100_000}
    ),
    "many items": Attack(
        "".join(f"{{% set a{n} = x|items %}}" for n in range(600)),
        lambda: {"x": {str(n): n for n in range(9999)}},
    ),
    "path of dots": Attack(
        each("{% set a = x|map(attribute=y, default=1) %}"), lambda: {"x": [1] * 100, "y": "." * MIB}
    ),
    # macros, generators and what else Jinja has
    "macro twice": Attack(
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "macro for ever": Attack("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
    "callers": Attack(
        "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call m() %}" * 25 + "x" + "{% endcall %}" * 25
    ),
    "lists in a loop": Attack("{% for i in range(9999) %}{% set z = range(9999)|list %}{% endfor %}"),
    "list doubled": Attack(
        "{% set ns = namespace(l=[0] * 10) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"
        "{{ ns.l|length }}"
    ),
    "large body": Attack("{% for i in range(9999) %}" + "{% if i %}{% endif %}" * 1000 + "{% endfor %}"),
    "large macro": Attack(
        "{% macro m() %}" + "{% if 1 %}{% endif %}" * 1000 + "{% endmacro %}"
        "{% for i in range(9999) %}{{ m() }}{% endfor %}"
    ),
    "text in set": Attack("{% set x %}{% for i in range(9999) %}" + BIG[:900_000] + "{% endfor %}{% endset %}"),
    "text in macro": Attack(
        "{% macro m() %}{% for i in range(9999) %}" + BIG[:90_000] + "{% endfor %}{% endmacro %}{{ m() }}"
    ),
    "text in filter": Attack(
        "{% filter upper %}{% for i in range(9999) %}" + BIG[:90_000] + "{% endfor %}{% endfilter %}"
    ),
    "generators": Attack(
        "{% set g = range(9999)|map('string') %}" + "{% set g = g|map('string') %}" * 60 + "{{ g|list|length }}"
    ),
    "generators in loops": Attack(each("{% set g = x|map('string')|select|list %}"), lambda: {"x": [1] * 100}),
    "compared lists": Attack(
        "{% set a = [1] %}{% set b = [1] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ a == b }}"
    ),
    "hashed tuples": Attack("{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ {a: 1} }}"),
    "hashed tuple looked up": Attack("{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ {}.get(a) }}"),
    "hashed tuple in": Attack("{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ a in {} }}"),
    "unique tuples": Attack("{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + "{{ [a]|unique|list }}"),
    "colliding keys": Attack("{{ dict(x)|length }}", lambda: {"x": [[n * ((1 << 61) - 1), 1] for n in range(20_000)]}),
    "unique by attribute": Attack(
        "{{ x|unique(attribute='a')|list|length }}",
        lambda: {"x": [{"a": n * ((1 << 61) - 1)} for n in range(20_000)]},
    ),
    "joined by attribute": Attack("{{ x|join(attribute='a') }}", lambda: {"x": [{"a": BIG}] * 1000}),
    "summed lists": Attack("{{ x|sum(start=[])|length }}", lambda: {"x": [[1] * 10] * 10_000}),
    "changed": Attack("{% for i in range(9999) %}{{ loop.changed(x) }}{% endfor %}", lambda: {"x": shared(60)}),
    "fields of one text": Attack("{{ x % y }}", lambda: {"x": "%(a)s" * 100_000, "y": {"a": BIG}}),
    "width by star": Attack("{{ '%*d' % (1000000000, 1) }}"),
    "wide": Attack("{{ 'a'.ljust(1000000000) }}{{ 'a'.zfill(1000000000) }}"),
    "center filter": Attack("{{ 'a'|center(1000000000) }}"),
    "wrapped": Attack("{{ x|wordwrap(1)|length }}", lambda: {"x": "-" * 200_000}),
    "wrapped by much": Attack("{{ 'a b'|wordwrap(1, wrapstring=x) }}", lambda: {"x": BIG}),
    "split": Attack("{{ x.split()|length }}", lambda: {"x": "a " * 500_000}),
    "joined by method": Attack("{{ x.join(y) }}", lambda: {"x": BIG, "y": ["a"] * 1000}),
    "replaced by method": Attack("{{ x.replace('', x) }}", lambda: {"x": BIG}),
    "searched by method": Attack(each("{% set a = x.count('aab') %}"), lambda: {"x": BIG}),
    "batch": Attack("{{ [1]|batch(1000000000, 0)|list }}"),
    "slice": Attack("{{ [1]|slice(1000000000)|list }}"),
    "is upper": Attack(each("{% if x is upper %}{% endif %}"), lambda: {"x": BIG.upper()}),
    "huge int is even": Attack(each("{% if x is even %}{% endif %}"), lambda: {"x": 1 << 10_000_000}),
    "huge int negated": Attack(each("{% set a = -x %}"), lambda: {"x": 1 << 10_000_000}),
    "power of floats": Attack("{{ 2.0 ** 1000000000 }}"),
    "power of negative": Attack("{{ 2 ** -1000000000 }}"),
    "int by base": Attack("{{ x|int(base=32) }}", lambda: {"x": "7" * 1_000_000}),
    "escaped": Attack("{{ x|e|length }}{{ x|urlencode|length }}", lambda: {"x": "\U0001f600" * 500_000}),
    "escaped in a list": Attack("{{ x|string|length }}", lambda: {"x": ["\U000e0000" * 500_000]}),
    "loops in loops": Attack("{% for i in [1] %}" * 32 + "{% endfor %}" * 32),
    "many macros": Attack("{% macro m(a=1) %}{{ a }}{% endmacro %}" * 900, harmless=True),
    # the text of the template itself
    "open ifs": Attack("{% if 1 %}" * 100_000),
    "nested ifs": Attack("{% if 1 %}" * 1500 + "{% endif %}" * 1500),
    "nested brackets": Attack("{{ " + "(" * 100_000 + ")" * 100_000 + " }}"),
    "some nested brackets": Attack("{{ " + "(" * 300 + "1" + ")" * 300 + " }}"),
    "nested lists": Attack("{{ " + "[" * 300 + "]" * 300 + " }}"),
    "nested calls": Attack("{{ " + "range(" * 300 + "1" + ")" * 300 + " }}"),
    "nested filters": Attack("{{ " + "1|default(" * 300 + "1" + ")" * 300 + " }}"),
    "nots": Attack("{{ " + "not " * 4000 + "1 }}"),
    "signs": Attack("{{ " + "-" * 4000 + "1 }}"),
    "elses": Attack("{{ " + "1 if 0 else " * 1000 + "1 }}"),
    "sum of many": Attack("{{ " + "1 + " * 2000 + "1 }}"),
    "product of many": Attack("{{ " + "1 * " * 2000 + "1 }}"),
    "filters in a row": Attack("{{ 'a'" + "|upper" * 3000 + " }}"),
    "fields in a row": Attack("{{ x" + ".a" * 3000 + " }}", lambda: {"x": {}}),
    "slices in a row": Attack("{{ x" + "[:]" * 1500 + " }}", lambda: {"x": "a"}),
    "ands": Attack("{{ " + "1 and " * 2000 + "1 }}"),
    "comparisons": Attack("{{ " + "1 < " * 2000 + "1 }}", harmless=True),
    "elifs": Attack("{% if 0 %}" + "{% elif 0 %}" * 1000 + "{% endif %}", harmless=True),
    "mebibyte of tags": Attack("{{1}}" * 200_000),
    "mebibyte of comments": Attack("{##}" * 260_000),
    "mebibyte in a comment": Attack("{#" + "{#" * 500_000 + "#}", harmless=True),
    "open comment": Attack("{#" * 500_000),
    "mebibyte of text": Attack("x" * MIB, harmless=True),
    "more than a mebibyte": Attack("x" * (MIB + 1)),
    "mebibyte of lines": Attack("\r\n" * (MIB // 2) + "{{ 1 }}"[:0], harmless=True),
    "mebibyte of braces": Attack("{" * MIB),
    "mebibyte of spaces": Attack("{%" + " " * (MIB - 10) + "raw"),
    "mebibyte of raw": Attack("{% raw %}" + "{% " * 300_000 + "{% endraw %}", harmless=True),
    "open raw": Attack("{% raw %}" + "{% " * 300_000),
    "mebibyte of digits": Attack("{{ " + "1" * 1_000_000 + " }}"),
    "mebibyte of digits after a quote": Attack("{{ '}}' ~ " + "1" * 1_000_000 + " }}"),
    "mebibyte of digits in fives": Attack("{{ " + "11111_" * 170_000 + " }}"),
    "mebibyte of hex": Attack("{{ 0x" + "f" * 1_000_000 + " }}"),
    "numbers just too long": Attack("{{ [" + ("1" * 9_000 + ",") * 100 + "] }}"),
    "mebibyte of digits, as text": Attack("1" * 1_000_000 + "{{ 1 }}", harmless=True),
    "mebibyte of escapes": Attack("{{ '" + "\\n" * 500_000 + "' }}"),
    "open quote of backslashes": Attack("{{ '" + "\\" * 1_000_000),
    "mebibyte of name": Attack("{{ " + "a" * 1_000_000 + " }}"),
    "unknown names": Attack(
        "".join(f"{{{{ n{n}ame }}}}" for n in range(2000)), lambda: {f"name{n}": 1 for n in range(2000)}
    ),
    "unknown filters": Attack("".join(f"{{{{ 1|f{n} }}}}" for n in range(1500))),
    "syntax errors": Attack("{{ a b }}" * 1200),
    "unclosed brackets": Attack("{{ ( }}" * 1000),
    "sets and loops": Attack(
        "".join(f"{{% set a{n} = 1 %}}" for n in range(400)) + "{% for x in [] %}{% endfor %}" * 300,
        harmless=True,
    ),
    "null bytes": Attack("{{ '\x00' }}\x00{{ x\x00 }}"),
}

# A guard is taken away: the readings must show it.
TWINS: dict[str, tuple[str, Callable[[], Values], Callable[[], Any]]] = {
    "no meter on loops": (
        each("", 9999, 250),
        dict,
        lambda: mock.patch.object(template, "_BOUNDS", UNBOUNDED),
    ),
    "no meter on text": (
        doublings("{% set a = a ~ a %}", 24) + "",
        dict,
        lambda: mock.patch.object(template, "_BOUNDS", UNBOUNDED),
    ),
    "no meter on all text": (
        "".join(f"{{% set a{n} = x ~ '' %}}" for n in range(100)),
        lambda: {"x": BIG},
        lambda: mock.patch.object(template, "_BOUNDS", Bounds(text=1 << 60)),
    ),
    "no meter on search": (
        ATTACKS["in, not so often"].source,
        ATTACKS["in, not so often"].values,
        lambda: mock.patch.object(RenderMeter, "search", return_value=None),
    ),
    "no look before lexing": (
        ATTACKS["mebibyte of digits"].source,
        dict,
        lambda: mock.patch.object(template_parser, "_is_lexable", return_value=True),
    ),
}


class Reading(NamedTuple):
    stopped: str | None
    """It took more steps, or hung."""
    bytes: int
    refused: bool


def memory(field: str) -> int:
    """VmRSS or VmHWM. Not `ru_maxrss`: that begins with the peak of the process we were forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


def measured(text: str, values: Values) -> Reading:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = memory("VmRSS")
    refused, stopped = False, None
    try:
        with at_most(STEPS):
            refused = bool(check_template(text, dict.fromkeys(values)))
            render_template(text, values)
    except TemplateRenderError:
        refused = True
    except (AssertionError, MemoryError) as error:
        stopped = repr(error)
    return Reading(stopped, memory("VmHWM") - before, refused)


def started(text: str, values: Callable[[], Values], guard: Callable[[], Any]) -> tuple[int, int]:
    """Measured in a process that has done nothing else: memory freed by another attack would not count."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        given = values()
        room = memory("VmSize") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CPU, (KILL, KILL))
        with guard():
            os.write(send, json.dumps(measured(text, given)).encode())
        os._exit(0)
    os.close(send)
    return child, receive


def finished(child: int, receive: int) -> Reading:
    os.waitpid(child, 0)
    with os.fdopen(receive) as result:
        said = result.read()
    return Reading(*json.loads(said)) if said else Reading("it was killed", 0, False)


def main() -> None:
    measured("{{ x|upper|tojson }}{% if y is string %}{% endif %}{{ x|sort }}", {"x": "innocent"})
    work = {name: (attack.source, attack.values, nullcontext) for name, attack in ATTACKS.items()} | TWINS
    names = list(work)
    found: dict[str, Reading] = {}
    for pair in zip(names[::2], [*names[1::2], names[0]], strict=False):  # two at a time
        children = [started(*work[name]) for name in pair]
        found |= {name: finished(*child) for name, child in zip(pair, children, strict=True)}
    sys.stdout.write(json.dumps(found))


@pytest.fixture(scope="module")
def readings() -> dict[str, Reading]:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from Linux's /proc")
    environment = {**os.environ, "PYTHONPATH": str(Path(template.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.compiler.test_template_attacks"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: Reading(*reading) for name, reading in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(readings: dict[str, Reading], name: str) -> None:
    reading = readings[name]
    assert reading.stopped is None
    assert reading.bytes <= MEMORY
    assert reading.refused is not ATTACKS[name].harmless


@pytest.mark.parametrize("name", TWINS)
def test_without_its_guard_it_is_seen(readings: dict[str, Reading], name: str) -> None:
    reading = readings[name]
    assert reading.stopped or reading.bytes > MEMORY or not reading.refused


if __name__ == "__main__":
    main()
