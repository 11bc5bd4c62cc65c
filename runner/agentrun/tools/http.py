"""Calls HTTP endpoints.

Rule 1  Every request is a call of the sender, also one that is sent again and each hop of a redirection: a tape has
        them all.
Rule 2  Redirections of GET and HEAD are followed, five at most, under the same rules. Of any other request they are the
        result.
Rule 3  When the connection fails or the reply is lost, a call that may be repeated is, once, under the same key.
Rule 4  A call that must not be repeated, was sent and got no whole reply: nobody knows, and `tool.indeterminate` says
        so. What was never sent has just failed.
Rule 5  Nothing of this needs a network: over a tape it works as it did.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urljoin

from msgspec.structs import replace

from agentrun.compiler.addresses import Unfit
from agentrun.core.effects import Returned, RunTool
from agentrun.core.facts_base import Fault
from agentrun.core.package_tools import HttpTool
from agentrun.errors import ProviderError
from agentrun.net.environment import PLACE
from agentrun.tools.http_request import HARMLESS, request_of
from agentrun.tools.http_result import field, result_of
from agentrun.wire import HttpCall, HttpReply, Sender

MOST_HOPS = 5
_MOVED = (301, 302, 303, 307, 308)
_LOST = ("provider.transient", "provider.zero_output")
_AS_WRITTEN = "!$&'()*+,;=:@/?%-._~[]"
"""What stays as it is in the address that a redirection names. `{` does not: no server names our variables."""


class HttpTools:
    """Calls HTTP endpoints through a sender: a real one, or a tape."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def over(self, wrap: Callable[[Sender], Sender]) -> HttpTools:
        """The same through another sender, made of this one's."""
        return HttpTools(wrap(self._sender))

    async def run(self, call: RunTool) -> Returned:
        tool = call.tool
        assert isinstance(tool, HttpTool)
        try:
            request = request_of(call)
            for _ in range(MOST_HOPS + 1):
                reply = await self._reply(request, tool)
                if tool.method not in HARMLESS or reply.status not in _MOVED or not field(reply, "location"):
                    return result_of(call, reply)
                request = replace(request, url=_next(request.url, field(reply, "location")))
        except Unfit as unfit:
            return _failed(call, str(unfit))
        except ProviderError as error:
            return _lost(call, tool, error)
        return _failed(call, f"the endpoint redirects more than {MOST_HOPS} times", reason="redirects")

    async def _reply(self, request: HttpCall, tool: HttpTool) -> HttpReply:
        try:
            return await self._send(request, tool)
        except ProviderError as error:
            if error.code not in _LOST or tool.effect == "at_most_once":
                raise
        return await self._send(request, tool)

    async def _send(self, request: HttpCall, tool: HttpTool) -> HttpReply:
        # A call that may be repeated is stopped from outside when its time is over. Of one that may not, it has to be
        # found out here, just before, whether it was sent.
        time = tool.timeout - min(250, tool.timeout // 10) if tool.effect == "at_most_once" else tool.timeout + 1000
        return await self._sender.send(request, gap=time, time=time)


def _next(url: str, location: str) -> str:
    """Where a redirection leads. Raises `Unfit`."""
    home = PLACE.match(url)
    start = home[0] if home and location.startswith(home[0]) else ""
    written = quote(location[len(start) :].strip().partition("#")[0].encode("latin-1", "replace"), safe=_AS_WRITTEN)
    if start:
        return start + written
    try:
        found = urljoin("" if home else url, written)
    except ValueError:
        found = ""
    if found.partition("://")[0].lower() not in ("http", "https"):
        raise Unfit("the endpoint redirects to something that is no whole http or https address")
    return found


def _lost(call: RunTool, tool: HttpTool, error: ProviderError) -> Returned:
    """What a request without a whole reply means."""
    was_answered = error.code == "provider.decode" and error.fields.get("status") is not None
    if tool.effect == "at_most_once" and error.fields.get("sent") and not was_answered:
        message = f"the request was sent, and whether it took effect is not known: {error.message}"
        return Returned(fault=Fault("tool.indeterminate", message, {"tool": call.name, "call": call.id}))
    if error.code == "provider.timeout":
        limit = {"tool": call.name, "limit": tool.timeout}
        return Returned(fault=Fault("tool.timeout", f"the call took longer than {tool.timeout} ms", limit))
    reason = error.fields.get("reason", error.code.partition(".")[2])
    status = error.fields.get("status")
    return _failed(call, error.message, reason=reason, **({} if status is None else {"status": status}))


def _failed(call: RunTool, message: str, **fields: str | int) -> Returned:
    return Returned(fault=Fault("tool.execution", message, {"tool": call.name, **fields}))
