"""Run HTTP tools.

Rule 1  Every request goes through the sender, including retries and redirects, so a cassette contains all of them.
Rule 2  Redirects of GET and HEAD are followed, at most five, under the same rules. For other methods a redirect is the
        result.
Rule 3  If the connection fails or the reply is lost, a call that may be repeated is sent once more with the same key.
Rule 4  If a call that must not be repeated was sent but got no complete reply, its outcome is unknown:
        `tool.indeterminate`. If it was not sent, it failed.
Rule 5  All this works the same way with a cassette as with a network.
"""

from __future__ import annotations

import json
import re
from codecs import lookup
from collections.abc import Callable, Mapping
from typing import Any, Never
from urllib.parse import quote, urljoin

from msgspec.structs import replace

from agentrun.canonical_json import map_json, sorted_json
from agentrun.compiler.jmespath import UnusableJmespath, evaluate_jmespath
from agentrun.compiler.template import TemplateRenderError, is_template, render_template
from agentrun.compiler.url_templates import RESERVED_HEADERS, UnusableUrl, render_url
from agentrun.core import model_texts as texts
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.fault import Fault
from agentrun.core.messages import Text
from agentrun.core.package_tools import Auth, HttpTool
from agentrun.errors import ProviderError
from agentrun.net.environment import HOST_VARIABLE
from agentrun.tools.call_results import NotSerializable, failed_call, result_text
from agentrun.wire import HttpAuth, HttpCall, HttpReply, NetworkAccess, Sender

MAX_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)
_LOST = ("provider.transient", "provider.zero_output")
_AS_WRITTEN = "!$&'()*+,;=:@/?%-._~[]"
"""The characters of a redirect address that are not escaped. `{` is, so that a server cannot name a variable."""
IDEMPOTENCY_KEY = "Idempotency-Key"
SAFE_METHODS = ("GET", "HEAD")
_ONE_VALUE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*-?\}\}")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]")
_MISSING = object()
_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "csv", "x-www-form-urlencoded", "graphql", "sql", "toml")
_ENCODINGS = ("utf-8", "ascii", "utf-16", "utf-16-be", "utf-16-le", "gbk", "gb18030", "big5", "shift_jis", "koi8-r")
_FAMILIES = ("iso8859-", "cp125", "euc_", "iso2022_jp")
_MEDIA = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")


class HttpTools:
    """Calls HTTP endpoints through a real sender or a cassette."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def with_sender(self, wrap: Callable[[Sender], Sender]) -> HttpTools:
        """A copy with a wrapped sender."""
        return HttpTools(wrap(self._sender))

    async def run(self, call: RunTool) -> ToolReturn:
        tool = call.tool
        assert isinstance(tool, HttpTool)
        try:
            request = build_request(call)
            for _ in range(MAX_REDIRECTS + 1):
                reply = await self._reply(request, tool)
                if tool.method not in SAFE_METHODS or reply.status not in _MOVED or not reply.header("location"):
                    return http_result(call, reply)
                url = _redirect_url(request.url, reply.header("location"))
                request = replace(request, url=url, without_defaults=None)
        except UnusableUrl as unfit:
            return failed_call(call.name, str(unfit))
        except ProviderError as error:
            return _unanswered_result(call, tool, error)
        return failed_call(call.name, texts.TOO_MANY_REDIRECTS.format(MAX_REDIRECTS), reason="redirects")

    async def _reply(self, request: HttpCall, tool: HttpTool) -> HttpReply:
        try:
            return await self._send(request, tool)
        except ProviderError as error:
            if error.code not in _LOST or tool.effect == "at_most_once":
                raise
        return await self._send(request, tool)

    async def _send(self, request: HttpCall, tool: HttpTool) -> HttpReply:
        # A call that may be repeated is stopped by its timeout. For one that must not be repeated, the limit here is a
        # little shorter, so that it is known whether the request was sent.
        time = tool.timeout - min(250, tool.timeout // 10) if tool.effect == "at_most_once" else tool.timeout + 1000
        return await self._sender.send(request, gap=time, time=time)


def _redirect_url(url: str, location: str) -> str:
    """The address of a redirect. Raises `UnusableUrl`."""
    home = HOST_VARIABLE.match(url)
    start = home[0] if home and location.startswith(home[0]) else ""
    written = quote(location[len(start) :].strip().partition("#")[0].encode("latin-1", "replace"), safe=_AS_WRITTEN)
    if start:
        return start + written
    try:
        found = urljoin("" if home else url, written)
    except ValueError:
        found = ""
    if found.partition("://")[0].lower() not in ("http", "https"):
        raise UnusableUrl(texts.REDIRECT_UNUSABLE)
    return found


def _unanswered_result(call: RunTool, tool: HttpTool, error: ProviderError) -> ToolReturn:
    """The result of a request without a complete reply (rule 4)."""
    was_answered = error.code == "provider.decode" and error.fields.get("status") is not None
    if tool.effect == "at_most_once" and error.fields.get("sent") and not was_answered:
        message = texts.HTTP_OUTCOME_UNKNOWN.format(error.message)
        return ToolReturn(fault=Fault("tool.indeterminate", message, {"tool": call.name, "call": call.id}))
    if error.code == "provider.timeout":
        limit = {"tool": call.name, "limit": tool.timeout}
        return ToolReturn(fault=Fault("tool.timeout", texts.TIMED_OUT.format(tool.timeout), limit))
    reason = error.fields.get("reason", error.code.partition(".")[2])
    status = error.fields.get("status")
    return failed_call(call.name, error.message, reason=reason, **({} if status is None else {"status": status}))


def build_request(call: RunTool) -> HttpCall:
    """The request for a call. Raises `UnusableUrl` if the arguments give no valid request."""
    request = _build_request(call, call.arguments)
    if call.arguments_without_defaults is None:
        return request
    try:
        return replace(request, without_defaults=_build_request(call, call.arguments_without_defaults))
    except UnusableUrl:
        return request


def _build_request(call: RunTool, arguments: Mapping[str, Any]) -> HttpCall:
    tool = call.tool
    assert isinstance(tool, HttpTool)
    values = {**call.params, "args": arguments}
    url = render_url(tool.url, tool.query, lambda source: render_argument(source, values))
    fields = [(name, _render_header(name, value, values)) for name, value in tool.headers.items()]
    body = b""
    if tool.body is not None:
        body, kind = _render_body(tool.body, values)
        fields = with_default_header(fields, "Content-Type", kind)
    if tool.effect != "read":
        fields = with_default_header(fields, IDEMPOTENCY_KEY, call.key)
    reach = NetworkAccess(tool.hosts, tool.private_network, tool.max_bytes, url)
    return HttpCall(tool.method, url, tuple(fields), body, http_auth(tool.auth), reach, effect=call.id)


def http_auth(auth: Auth | None) -> HttpAuth | None:
    if auth is None:
        return None
    prefix = f"{auth.scheme} " if auth.scheme else ""
    return HttpAuth(auth.header, prefix, auth.secret.removeprefix("${").removesuffix("}"))


def with_default_header(fields: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    """Add a header unless it exists."""
    return fields if any(field[0].lower() == name.lower() for field in fields) else [*fields, (name, value)]


def render_argument(source: str, values: Mapping[str, Any]) -> str:
    """Render a template. Raises `UnusableUrl`."""
    if not is_template(source):
        return source
    try:
        return render_template(source, values)
    except TemplateRenderError as stopped:
        raise UnusableUrl(texts.TEMPLATE_FAILED.format(stopped.message)) from None


def _render_header(name: str, source: str, values: Mapping[str, Any]) -> str:
    if name.lower() in RESERVED_HEADERS:
        raise UnusableUrl(texts.HEADER_RESERVED.format(name))
    if not is_template(source):
        return source
    text = render_argument(source, values)
    if not (text.isascii() and text.isprintable()):
        raise UnusableUrl(texts.HEADER_UNUSABLE.format(name))
    if _VARIABLE.search(text):
        raise UnusableUrl(texts.HEADER_NAMES_VARIABLE.format(name))
    return text


def _render_body(declared: Any, values: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body and its content type."""

    def fill(source: str) -> Any:
        value = _single_value(source, values)
        return render_argument(source, values) if value is _MISSING else value

    body = map_json(declared, text=fill)
    try:
        if isinstance(declared, str) and isinstance(body, str):
            return body.encode(), "text/plain; charset=utf-8"
        return sorted_json(body), "application/json"
    except (UnicodeEncodeError, ValueError, TypeError):
        raise UnusableUrl(texts.BODY_UNUSABLE) from None


def _single_value(source: str, values: Mapping[str, Any]) -> Any:
    """The value of a template that consists of a single variable."""
    found = _ONE_VALUE.fullmatch(source)
    value: Any = values if found else _MISSING
    for name in found[1].split(".") if found else ():
        value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
    return value


def http_result(call: RunTool, reply: HttpReply) -> ToolReturn:
    tool = call.tool
    assert isinstance(tool, HttpTool)
    if 300 <= reply.status < 400:
        head = texts.http_status(reply.status, reply.header("location"))
        return ToolReturn((Text(_with_body(head, reply)),))
    if not 200 <= reply.status < 300:
        head = texts.with_code("tool.execution", texts.http_status(reply.status))
        message = texts.HTTP_FAILED.format(reply.status)
        return failed_call(call.name, message, _with_body(head, reply), status=reply.status)
    if tool.method == "HEAD" or not reply.body:
        return ToolReturn((Text(texts.HTTP_NO_BODY.format(reply.status)),))
    if tool.result is None:
        return ToolReturn((Text(_body_text(reply)),))
    try:
        value = evaluate_jmespath(tool.result, json.loads(reply.body, parse_constant=_refuse))
        return ToolReturn((Text("null" if value is None else result_text(value)),))
    except (NotSerializable, UnusableJmespath, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, NotSerializable | UnusableJmespath) else texts.NOT_JSON_REPLY
        return failed_call(call.name, why, status=reply.status)


def _with_body(head: str, reply: HttpReply) -> str:
    return f"{head}\n{_body_text(reply)}" if reply.body else head


def _body_text(reply: HttpReply) -> str:
    """The body as text, or a description of a body that is not text."""
    media, *parameters = (part.strip().lower() for part in reply.header("content-type").split(";"))
    charset = next((part[8:].strip(' "') for part in parameters if part.startswith("charset=")), "")
    if not media or media.startswith("text/") or charset or any(word in media for word in _TEXTS):
        try:
            return reply.body.decode(_encoding(charset), "replace" if media else "strict")
        except UnicodeDecodeError:
            media = ""
    return texts.binary_body(len(reply.body), media if _MEDIA.fullmatch(media) else None)


def _encoding(charset: str) -> str:
    try:
        name = lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name in _ENCODINGS or name.startswith(_FAMILIES) else "utf-8"


def _refuse(constant: str) -> Never:
    raise ValueError(constant)
