"""Posts answers to HTTP endpoints.

    POST <url>
    Content-Type: application/json
    Idempotency-Key: <key>

    {"answer": "<the text>", "key": "<key>", "output": <the parsed answer, if there is an output contract>}

Rule 1  A status of 2xx means that it was delivered. Nothing is followed and nothing else is read.
Rule 2  When the reply is lost it is posted once more, under the same key: whoever gets it twice can tell.
Rule 3  It goes to the origin that was declared, past the same guard as the requests of tools.
"""

from __future__ import annotations

from msgspec import UNSET

from agentrun.canon import compact
from agentrun.compiler.addresses import OWN_HEADERS
from agentrun.core.effects import Deliver
from agentrun.core.facts_base import Fault
from agentrun.core.package_sinks import HttpSink
from agentrun.errors import ProviderError
from agentrun.tools.http_request import IDEMPOTENCY_KEY, auth_of, with_default
from agentrun.wire import HttpCall, HttpReply, Reach, Sender

MOST_READ = 1024 * 1024
_LOST = ("provider.transient", "provider.zero_output")


class HttpSinks:
    """Posts answers as JSON."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def deliver(self, delivery: Deliver) -> Fault | None:
        sink = delivery.sink
        assert isinstance(sink, HttpSink)
        own = [name for name in sink.headers if name.lower() in OWN_HEADERS]
        if own:
            return _failed(delivery, f"cannot be reached: the header {own[0]} is for the request itself to decide")
        try:
            reply = await self._posted(_request(delivery, sink), sink.timeout + 1000)
        except ProviderError as error:
            reason = error.fields.get("reason", error.code.partition(".")[2])
            return _failed(delivery, f"did not take the answer: {error.message}", reason=reason)
        if 200 <= reply.status < 300:
            return None
        return _failed(delivery, f"refused the answer with status {reply.status}", status=reply.status)

    async def _posted(self, request: HttpCall, time: int) -> HttpReply:
        try:
            return await self._sender.send(request, gap=time, time=time)
        except ProviderError as error:
            if error.code not in _LOST:
                raise
        return await self._sender.send(request, gap=time, time=time)


def _request(delivery: Deliver, sink: HttpSink) -> HttpCall:
    output = {} if delivery.output is UNSET else {"output": delivery.output}
    body = compact({"answer": delivery.text, "key": delivery.key, **output})
    fields = with_default(list(sink.headers.items()), "Content-Type", "application/json")
    fields = with_default(fields, IDEMPOTENCY_KEY, delivery.key)
    reach = Reach((), sink.private_network, MOST_READ, sink.url)
    return HttpCall("POST", sink.url, tuple(fields), body, auth_of(sink.auth), reach)


def _failed(delivery: Deliver, what: str, **fields: str | int) -> Fault:
    return Fault("delivery.failed", f"the sink {delivery.name} {what}", {"sink": delivery.name, **fields})
