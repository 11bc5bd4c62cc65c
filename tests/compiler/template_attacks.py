"""Templates that want the machine, each with its values (THREATS group B). `test_template_attacks.py` runs them."""

import json
from collections.abc import Callable
from typing import NamedTuple

from agentrun.compiler.template import Json

MIB = 1 << 20
BIG = "a" * (MIB - 1)
TemplateValues = dict[str, Json]


class Attack(NamedTuple):
    source: str
    values: Callable[[], TemplateValues] = dict
    harmless: bool = False
    """The text comes out, because it is small after all."""


def each(body: str, outer: int = 9999, inner: int = 9999) -> str:
    return f"{{% for i in range({outer}) %}}{{% for j in range({inner}) %}}{body}{{% endfor %}}{{% endfor %}}"


def nest(value: Json, levels: int) -> Json:
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


def kept(value: str, outer: int = 9999, copies: int = 8) -> str:
    """Keep all that an expression gives."""
    more = ", ".join([value] * copies)
    return "{% set ns = namespace(l=[]) %}" + each(f"{{% set ns.l = [ns.l, {more}] %}}", outer)


def nested_tuple(use: str) -> str:
    """A small tuple whose hash takes for ever."""
    return "{% set a = (1,) %}" + "{% set a = (a, a) %}" * 60 + f"{{{{ {use} }}}}"


def files(**texts: str) -> str:
    """The files of a template, as they follow it in a package."""
    return f"{{# files: {json.dumps(texts)} #}}"


def doublings(step: str, count: int = 60) -> str:
    return "{% set a = 'aaaaaaaa' %}" + step * count + "{{ a }}"


NAMES = ",".join(f"a{n}" for n in range(1900))
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
    "format of a value": Attack("{{ '%r' % x }}", lambda: {"x": "a"}, harmless=True),
    "address of a generator": Attack("{{ range(3)|map('string')|format }}"),
    "address of a method": Attack("{{ ['a']|join(',', attribute='upper') }}"),
    "address in a list": Attack("{{ ['a'.upper, 1] ~ '' }}"),
    "names of parameters": Attack(
        "{% macro m() %}{% endmacro %}{{ dict(**{'_MeteredEnvironment__self': 1}) }}", harmless=True
    ),
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
    "round down": Attack("{{ 5|round(-10000000) }}"),
    "round up": Attack("{{ 5|round(1000000, 'ceil') }}"),
    "odd format": Attack("{{ '%1000000000d' is odd }}"),
    "divided format": Attack("{{ '%1000000000d' is divisibleby(1) }}"),
    "huge index": Attack("{{ [1][x] }}", lambda: {"x": 1 << 10_000_000}),
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
    "indent more lines": Attack("{{ x|indent(0) }}", lambda: {"x": "\n" * 1_000_000}),
    "title of many": Attack("{{ x|title|length }}", lambda: {"x": "a-" * 500_000}),
    "wordcount": Attack(each("{% set a = x|wordcount %}"), lambda: {"x": "a " * 100_000}),
    "truncate": Attack("{{ x|truncate(99999999) }}", lambda: {"x": "a" * 20 * MIB}),
    "trim by much": Attack("{{ x|trim(y) }}", lambda: {"x": BIG, "y": "".join(map(chr, range(500)))}),
    "round": Attack("{{ 1.5|round(1000000000) }}"),
    "int of much": Attack("{{ x|int }}", lambda: {"x": "9" * 1_000_000}),
    "trim by more": Attack("{{ x|trim(y) }}", lambda: {"x": "\u4e00" * 900_000, "y": "\u4e01" * 20_000 + "\u4e00"}),
    "strip": Attack("{% set y = x.rstrip(y) %}", lambda: {"x": "\u4e00" * MIB, "y": "\u4e01" * 47_000 + "\u4e00"}),
    "trimmed spaces": Attack(each("{% set y = x|trim %}"), lambda: {"x": "\u3000" * MIB}),
    "wrapped by fractions": Attack("{{ x|wordwrap(1.5, true, y)|length }}", lambda: {"x": "a " * 130, "y": BIG}),
    "wrapped by truth": Attack("{{ x|wordwrap(true, true, y)|length }}", lambda: {"x": "a " * 130, "y": BIG}),
    "wrapped long word": Attack("{{ x|wordwrap(1)|length }}", lambda: {"x": "\U0001f600" * 74_000}),
    "indented by other line ends": Attack("{{ x|indent(900000) }}", lambda: {"x": "a\v" * 1000}),
    "indented json": Attack("{{ [[1] * 1000]|tojson(indent=x) }}", lambda: {"x": BIG}),
    "int of no number": Attack(each("{% set y = x|int %}"), lambda: {"x": "\u4e00\v" * 2000}),
    "int by another base": Attack(each("{% set y = x|int(base=3) %}"), lambda: {"x": "2" * 4299}),
    "wide json": Attack("{{ [x, x]|tojson|length }}", lambda: {"x": "\U0001f600" * 900_000}),
    "wide url": Attack("{{ {'a': x, 'b': x}|urlencode|length }}", lambda: {"x": "\U0001f600" * 900_000}),
    "format of texts": Attack("{{ ([x] * 400)|format|length }}", lambda: {"x": BIG}),
    "format of shared lists": Attack("{{ x|format|length }}", lambda: {"x": shared(40)}),
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
    "searched backwards": Attack(
        "{% for i in range(9) %}{% set a = x.rfind(y) %}{% endfor %}", lambda: {"x": BIG, "y": "ab" + "a" * 5000}
    ),
    "split backwards": Attack("{{ x.rsplit(y)|length }}", lambda: {"x": "a" * 500_000, "y": "ab" + "a" * 9000}),
    "cut backwards": Attack("{{ x.rpartition(y)|length }}", lambda: {"x": BIG, "y": "ab" + "a" * 9000}),
    "in generator": Attack("{{ y in x|select }}", lambda: {"x": [BIG] * 140_000, "y": BIG[:-1] + "b"}),
    "in generator, as test": Attack("{{ y is in(x|select) }}", lambda: {"x": [BIG] * 140_000, "y": BIG[:-1] + "b"}),
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
    "sort of values": Attack("{{ x|dictsort(by='value')|length }}", lambda: {"x": {str(n): BIG for n in range(400)}}),
    "keys of ranges": Attack(
        "{% set ns = namespace(l=[]) %}{% for i in range(600) %}"
        "{% set ns.l = ns.l + [[range(i * 2305843009213693951, i * 2305843009213693951 + 1), 1]] %}{% endfor %}"
        "{% for j in range(190) %}{% set d = dict(ns.l) %}{% endfor %}"
    ),
    "unique of colliding": Attack("{{ x|unique|length }}", lambda: {"x": [n * ((1 << 61) - 1) for n in range(20_000)]}),
    "keys collide": Attack("{{ {'a': 1, 'a': 2}|tojson }}", harmless=True),
    # values that are larger than they look
    "lists in lists": Attack("{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a|tojson }}"),
    "lists in mappings": Attack("{% set a = {} %}" + "{% set a = {'a': a, 'b': a} %}" * 60 + "{{ a|tojson }}"),
    "pairs of pairs": Attack("{% set a = x|items %}" + "{% set a = a|items %}" * 60, lambda: {"x": {"a": 1}}, True),
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
        lambda: {"x": nest(1, 500)},
    ),
    "deep json with indent": Attack(
        "{{ x|tojson(indent=8) }}",
        lambda: {"x": nest([0] * 90_000, 60)},
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
    "sets of keys": Attack(each("{% set a = x.keys() - [] %}"), lambda: {"x": {str(n): n for n in range(4000)}}),
    # what is kept
    "kept lists": Attack(kept("[], []")),
    "kept mappings": Attack(kept("{}")),
    "kept pairs": Attack(kept("{'a': 1}")),
    "kept missing values": Attack(kept("x.y"), lambda: {"x": {}}),
    "kept methods": Attack(kept("'a'.upper")),
    "kept generators": Attack(kept("[]|map('upper')|select|reverse")),
    "kept words": Attack(kept("x.split()", copies=1), lambda: {"x": "\u4e00\u4e00 " * 1000}),
    "kept macros": Attack(
        "{% set ns = namespace(l=[]) %}" + each("{% macro m(a, b=1) %}{% endmacro %}{% set ns.l = [ns.l, m] %}")
    ),
    "kept copies": Attack(kept("dict(**x)", copies=1), lambda: {"x": {str(n): n for n in range(4000)}}),
    "kept namespaces": Attack(kept("namespace(a=1, **x)", copies=1), lambda: {"x": {str(n): n for n in range(8000)}}),
    "kept after much code": Attack(
        "{% if x.a is defined %}" + "{{ x<x<x }}" * 1100 + "{% endif %}{% set y = y ~ '' %}{% set z = y ~ '' %}"
        "{% set u = y ~ '' %}" + kept("x.y"),
        lambda: {"x": {}, "y": "\U0001f600" * 1_000_000},
    ),
    # macros, generators and what else Jinja has
    "arguments of a cycle": Attack(
        "{% for i in range(9999) %}{{ loop.cycle(*x) }}{% endfor %}", lambda: {"x": [0] * 9999}
    ),
    "arguments of a macro": Attack(
        "{% macro m() %}{{ varargs|length }}{% endmacro %}" + each("{% set a = m(*x) %}"), lambda: {"x": [0] * 9999}
    ),
    "names of a macro": Attack(
        "{% macro m() %}{{ kwargs|length }}{% endmacro %}" + each("{% set a = m(**x) %}"),
        lambda: {"x": {str(n): n for n in range(3000)}},
    ),
    "names of a mapping": Attack(each("{% set a = dict(**x) %}"), lambda: {"x": {str(n): n for n in range(3000)}}),
    "include in a loop": Attack(
        "".join(f"{{% set v{n} = 1 %}}" for n in range(1200))
        + "{% for i in range(9999) %}{% include 'b' %}{% endfor %}"
        + files(b="x")
    ),
    "import in a loop": Attack(
        "".join(f"{{% set v{n} = 1 %}}" for n in range(1200))
        + "{% for i in range(9999) %}{% import 'b' as b with context %}{% endfor %}"
        + files(b="x")
    ),
    "many files": Attack(
        "".join(f"{{% include 'f{n}' %}}" for n in range(50))
        + files(**{f"f{n}": "{{ a }}" * 2000 + str(n) for n in range(50)}),
        lambda: {"a": 1},
    ),
    "tree of files": Attack(
        "{% include 'a' %}"
        + files(a="{% include 'b' %}" * 90, b="{% include 'c' %}" * 90, c="{% include 'd' %}" * 90, d="")
    ),
    "hashed name of a filter": Attack(nested_tuple("[1]|map(a)|list")),
    "hashed name of a test": Attack(nested_tuple("[1]|select(a)|list")),
    "hashed way to round": Attack(nested_tuple("5|round(0, a)")),
    "hashed attribute": Attack(nested_tuple("[{}]|map(attribute=a)|list")),
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
    # hashes, arguments and quotes that nobody counted
    "hashed in empty keys": Attack(nested_tuple("a in {}.keys()")),
    "hashed in empty items": Attack(nested_tuple("(a, 1) not in {}.items()")),
    "hashed as test in empty keys": Attack(nested_tuple("[a]|select('in', {}.keys())|list")),
    "text as arguments of a macro": Attack(
        "{% macro m() %}{% endmacro %}{{ m(*x) }}", lambda: {"x": "\u4e00" * 1_000_000}
    ),
    "text as arguments of a method": Attack("{{ x.join(*x) }}", lambda: {"x": "\u4e00" * 1_000_000}),
    "list as arguments": Attack("{{ dict(*x) }}", lambda: {"x": [1] * 3_000_000}),
    "mapping as arguments": Attack("{{ dict(**x)|length }}", lambda: {"x": {str(n): n for n in range(600_000)}}),
    "quoted in a list": Attack("{{ [x] }}", lambda: {"x": "\U0001f600" + "\U000e0000" * 1_040_000}),
    "quoted in a format": Attack("{{ '%s' % [x] }}", lambda: {"x": "\U0001f600" + "\U000e0000" * 1_000_000}),
    "quoted in a join": Attack("{{ [[x]]|join }}", lambda: {"x": "\U0001f600" + "\U000e0000" * 1_000_000}),
    "quoted and cut": Attack(each("{% set z = '%.1s' % [x] %}"), lambda: {"x": "\U000e0000" * 100_000}),
    "quoted text and cut": Attack(each("{% set z = '%.1r' % x %}"), lambda: {"x": "\U000e0000" * 100_000}),
    "compared, not quoted": Attack(
        each("{% set z = {'a': x} != y %}", 9, 999), lambda: {"x": "\U000e0000" * 250_000, "y": [1]}
    ),
    "quoted key": Attack("{{ {x: 1}|string }}", lambda: {"x": "\U0001f600" + "\U000e0000" * 1_000_000}),
    "parameters of a macro": Attack(f"{{% macro m({NAMES}) %}}{{% endmacro %}}" + each("{% set z = m() %}", 9999, 1)),
    "defaults of a macro": Attack(
        f"{{% macro m({NAMES.replace(',', '=1,')}=1) %}}{{% endmacro %}}" + each("{% set z = m() %}", 9999, 1)
    ),
    "names of an import": Attack(each(f"{{% from 'b' import {NAMES} %}}", 9999, 1) + files(b="")),
    "names of a loop": Attack(f"{{% for {NAMES} in [range({NAMES.count(',') + 1})] * 140000 %}}{{% endfor %}}"),
    "kept missing names": Attack(
        "{% if 0 %}{% set q = 1 %}{% endif %}{% set ns = namespace(l=[]) %}"
        + each("{% set ns.l = [ns.l" + ", q" * 500 + "] %}", 9999, 1)
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
    "power of negative": Attack("{{ 2 ** -1000000000 }}", harmless=True),
    "int by base": Attack("{{ x|int(base=32) }}", lambda: {"x": "7" * 1_000_000}),
    "escaped": Attack("{{ x|e|length }}{{ x|urlencode|length }}", lambda: {"x": "\U0001f600" * 500_000}),
    "escaped in a list": Attack("{{ x|string|length }}", lambda: {"x": ["\U000e0000" * 500_000]}),
    "loops in loops": Attack("{% for i in [1] %}" * 32 + "{% endfor %}" * 32),
    "many macros": Attack("{% macro m(a=1) %}{{ a }}{% endmacro %}" * 500, harmless=True),
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
    "many outputs": Attack("{{a}}" * 6500, lambda: {"a": 1}),
    "much code": Attack("{{a<a<a}}" * 2800, lambda: {"a": 1}),
    "much code, nearly": Attack("{{a<a<a}}" * 1100, lambda: {"a": 1}, harmless=True),
    "variables for each include": Attack(
        "".join(f"{{% set v{n} = 1 %}}" for n in range(650)) + "{% include 'b' %}" * 950 + files(b="x")
    ),
    "parameters for each include": Attack(
        f"{{% macro m({NAMES}) %}}" + "{% include 'b' %}" * 900 + "{% endmacro %}{{ m() }}" + files(b="x")
    ),
    "long names for each include": Attack(
        "".join(f"{{% set v{'x' * 5000}{n} = 1 %}}" for n in range(100)) + "{% include 'b' %}" * 1500 + files(b="")
    ),
    "code of an import": Attack(
        "{% from 'b' import " + ",".join(f"a{n}" for n in range(3700)) + " %}{% set y = y ~ '' %}{% set z = y ~ '' %}"
        "{% set u = y ~ '' %}" + kept("x.y") + files(b="x"),
        lambda: {"x": {}, "y": "\U0001f600" * 1_000_000},
    ),
    "mebibyte that is not printable": Attack("\U000e0000" * 250_000 + "{{ 1 }}", harmless=True),
    "quotes that are not printable": Attack("{{ '" + "\U000e0000" * 1_000_000 + "'|length }}", harmless=True),
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
