"""What a model reads of a reply.

Rule 1  A reply with a status of 2xx is a success. Of any other the model reads the status and the body, as a failure.
Rule 2  `result` picks out of JSON. Without it the body is read as it came.
Rule 3  A text is read in the encoding that the reply names, if that is one for texts on the web. What is no text is
        told of and not shown.
Rule 4  Nothing is cut here: what must not be shown is taken out of the whole first.
"""

from __future__ import annotations

import json
import re
from codecs import lookup
from typing import Any, Never

from agentrun.compiler.picks import Unusable, picked
from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.messages import Text
from agentrun.core.package_tools import HttpTool
from agentrun.tools.values import NoText, as_text
from agentrun.wire import HttpReply

_TEXTS = ("json", "xml", "javascript", "ecmascript", "yaml", "csv", "x-www-form-urlencoded", "graphql", "sql", "toml")
_ENCODINGS = ("utf-8", "ascii", "utf-16", "utf-16-be", "utf-16-le", "gbk", "gb18030", "big5", "shift_jis", "koi8-r")
_FAMILIES = ("iso8859-", "cp125", "euc_", "iso2022_jp")
_MEDIA = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}|of no type that is named")


def result_of(call: RunTool, reply: HttpReply) -> Returned:
    """What a reply gives that is no redirection to follow."""
    tool = call.tool
    assert isinstance(tool, HttpTool)
    if 300 <= reply.status < 400:
        where = field(reply, "location")
        head = f"status {reply.status}" + (f", location: {where}" if where else "")
        return Returned((Text(_with_body(head, reply)),))
    if not 200 <= reply.status < 300:
        fields = {"tool": call.name, "status": reply.status}
        fault = Fault("tool.execution", f"the endpoint answered with status {reply.status}", fields)
        return Returned((Text(_with_body(f"tool.execution: status {reply.status}", reply)),), fault)
    if tool.method == "HEAD" or not reply.body:
        return Returned((Text(f"status {reply.status}, no body"),))
    if tool.result is None:
        return Returned((Text(_words(reply)),))
    try:
        value = picked(tool.result, _json(reply.body))
        return Returned((Text("null" if value is None else as_text(value)),))
    except (NoText, Unusable, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, NoText | Unusable) else "the reply is not JSON"
        return Returned(fault=Fault("tool.execution", why, {"tool": call.name, "status": reply.status}))


def field(reply: HttpReply, name: str) -> str:
    """A header of a reply, or nothing."""
    return next((value for each, value in reply.headers if each.lower() == name), "")


def _with_body(head: str, reply: HttpReply) -> str:
    return f"{head}\n{_words(reply)}" if reply.body else head


def _words(reply: HttpReply) -> str:
    """The body as text, or what there is to say about it."""
    media, *parameters = (part.strip().lower() for part in field(reply, "content-type").split(";"))
    charset = next((part[8:].strip(' "') for part in parameters if part.startswith("charset=")), "")
    if not media or media.startswith("text/") or charset or any(word in media for word in _TEXTS):
        try:
            return reply.body.decode(_encoding(charset), "replace" if media else "strict")
        except UnicodeDecodeError:
            media = "of no type that is named"
    return f"[{len(reply.body):,} bytes that are no text: {media if _MEDIA.fullmatch(media) else 'of an odd type'}]"


def _encoding(charset: str) -> str:
    try:
        name = lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name in _ENCODINGS or name.startswith(_FAMILIES) else "utf-8"


def _json(body: bytes) -> Any:
    return json.loads(body, parse_constant=_refuse)


def _refuse(constant: str) -> Never:
    raise ValueError(constant)
