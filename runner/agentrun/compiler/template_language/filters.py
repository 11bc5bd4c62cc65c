"""The filters of templates: all there are, under the names and with the arguments that Jinja gives them.

Rule 1  Pure: the same arguments give the same result under every locale, hash seed and time zone.
Rule 2  Every argument has a bound, checked before memory is used: Jinja's sandbox lets `indent(10**9)` pass.
Rule 3  What cannot be bounded, or looks at Python attributes, is left out: `format`, `attr`, `map('upper')`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from agentrun.compiler.template_language import lists, texts
from agentrun.compiler.template_language.meter import Json, Meter, Missing, Stop, number, whole

_LONGEST_NUMERAL: Final = 100
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,16}\Z")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\Z")


def _round(_meter: Meter, value: Json, precision: Json = 0, method: Json = "common") -> Json:
    given, places = number(value, "what is rounded"), whole(precision, "precision", -15, 15)
    if method == "common":
        return round(given, places)
    if method not in ("ceil", "floor"):
        raise Stop("method must be 'common', 'ceil' or 'floor'")
    scaled = number(float(given * 10**places), "what is rounded")
    return float((math.ceil if method == "ceil" else math.floor)(scaled) / 10**places)


def _int(meter: Meter, value: Json, default: Json = 0) -> Json:
    if type(value) is bool:
        return int(value)
    if type(value) is str:
        if len(value) < _LONGEST_NUMERAL and _WHOLE.match(value.strip()):
            return whole(int(value), "the number")
        value = _float(meter, value, None)
        if value is None:
            return default
    return whole(int(number(value, "what becomes a number")), "the number")


def _float(_meter: Meter, value: Json, default: Json = 0.0) -> Json:
    if type(value) is not str:
        return float(number(value, "what becomes a number"))
    if len(value) < _LONGEST_NUMERAL and _DECIMAL.match(value.strip()):
        return number(float(value), "the number")
    return default


def _abs(_meter: Meter, value: Json) -> Json:
    return abs(number(value, "what loses its sign"))


FILTERS: Final[Mapping[str, Callable[..., Json | Missing]]] = {
    "abs": _abs,
    "capitalize": texts.capitalize,
    "count": lists.length,
    "d": lists.default,
    "default": lists.default,
    "dictsort": lists.dictsort,
    "first": lists.first,
    "float": _float,
    "indent": texts.indent,
    "int": _int,
    "items": lists.items,
    "join": lists.join,
    "keys": lists.keys,
    "last": lists.last,
    "length": lists.length,
    "list": lists.listed,
    "lower": texts.lower,
    "map": lists.mapped,
    "max": lists.most,
    "min": lists.least,
    "rejectattr": lists.rejectattr,
    "replace": texts.replace,
    "reverse": lists.reverse,
    "round": _round,
    "selectattr": lists.selectattr,
    "sort": lists.sort,
    "string": texts.as_text,
    "sum": lists.total,
    "title": texts.title,
    "tojson": texts.tojson,
    "trim": texts.trim,
    "truncate": texts.truncate,
    "unique": lists.unique,
    "upper": texts.upper,
    "values": lists.values,
    "wordcount": texts.wordcount,
}
