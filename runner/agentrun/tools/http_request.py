"""The request of an HTTP tool or sink, as it was declared and with the arguments of one call in it.

Rule 1  Arguments are data. In an address each stays in its place (`compiler/addresses.py`), in a header it is one line
        of plain letters, in a body it is a JSON value or a part of a text.
Rule 2  Only what the spec says names a variable of the environment. `${NAME}` in an argument would be filled in by
        whoever sends the request: it is refused in a header, and percent-encoded in an address.
Rule 3  A body whose text is one `{{ args.x }}` and nothing else has the value itself there: a number stays a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentrun.canon import compact
from agentrun.compiler.addresses import OWN_HEADERS, Unfit, address_with
from agentrun.compiler.template import TemplateStopped, is_template, render
from agentrun.core.effects import RunTool
from agentrun.core.package_tools import Auth, HttpTool
from agentrun.wire import HttpAuth, HttpCall, Reach

IDEMPOTENCY_KEY = "Idempotency-Key"
HARMLESS = ("GET", "HEAD")
_ONE_VALUE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*-?\}\}")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]")
_NOWHERE = object()


def request_of(call: RunTool) -> HttpCall:
    """The request for a call. Raises `Unfit` when the arguments do not make one."""
    tool = call.tool
    assert isinstance(tool, HttpTool)
    values = {**call.params, "args": call.arguments}
    url = address_with(tool.url, tool.query, lambda source: rendered(source, values))
    fields = [(name, _header(name, value, values)) for name, value in tool.headers.items()]
    body = b""
    if tool.body is not None:
        body, kind = _body(tool.body, values)
        fields = with_default(fields, "Content-Type", kind)
    if tool.effect != "read":
        fields = with_default(fields, IDEMPOTENCY_KEY, call.key)
    reach = Reach(tool.hosts, tool.private_network, tool.max_bytes, url)
    return HttpCall(tool.method, url, tuple(fields), body, auth_of(tool.auth), reach)


def auth_of(auth: Auth | None) -> HttpAuth | None:
    if auth is None:
        return None
    prefix = f"{auth.scheme} " if auth.scheme else ""
    return HttpAuth(auth.header, prefix, auth.secret.removeprefix("${").removesuffix("}"))


def with_default(fields: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    """The headers with one that they may have already."""
    return fields if any(field[0].lower() == name.lower() for field in fields) else [*fields, (name, value)]


def rendered(source: str, values: Mapping[str, Any]) -> str:
    """The text of a template. Raises `Unfit`."""
    if not is_template(source):
        return source
    try:
        return render(source, values)
    except TemplateStopped as stopped:
        raise Unfit(f"a template cannot be filled in: {stopped.message}") from None


def _header(name: str, source: str, values: Mapping[str, Any]) -> str:
    if name.lower() in OWN_HEADERS:
        raise Unfit(f"the header {name} is for the request itself to decide")
    if not is_template(source):
        return source
    text = rendered(source, values)
    if not (text.isascii() and text.isprintable()):
        raise Unfit(f"a value for the header {name} holds what no header can: a line end or another odd character")
    if _VARIABLE.search(text):
        raise Unfit(f"a value for the header {name} names a variable of the environment, which only the spec may")
    return text


def _body(declared: Any, values: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body, and its type."""
    body = _filled(declared, values)
    try:
        if isinstance(declared, str) and isinstance(body, str):
            return body.encode(), "text/plain; charset=utf-8"
        return compact(body), "application/json"
    except (UnicodeEncodeError, ValueError, TypeError):
        raise Unfit("the body cannot be written: it holds a value that JSON does not have") from None


def _filled(declared: Any, values: Mapping[str, Any]) -> Any:
    match declared:
        case str():
            value = _value(declared, values)
            return rendered(declared, values) if value is _NOWHERE else value
        case list():
            return [_filled(item, values) for item in declared]
        case dict():
            return {key: _filled(item, values) for key, item in declared.items()}
    return declared


def _value(source: str, values: Mapping[str, Any]) -> Any:
    """The value that a template stands for, when it is one value and nothing else."""
    found = _ONE_VALUE.fullmatch(source)
    value: Any = values if found else _NOWHERE
    for name in found[1].split(".") if found else ():
        value = value.get(name, _NOWHERE) if isinstance(value, Mapping) else _NOWHERE
    return value
