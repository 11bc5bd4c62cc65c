"""What a question is about, as a person is shown it: what will happen, exactly, and who asks why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never
from urllib.parse import urlsplit

from agentrun.compiler.addresses import Unfit
from agentrun.core.effects import RunTool
from agentrun.core.package_sinks import FileSink, HttpSink, JsonlSink, Sink, StdoutSink
from agentrun.core.package_tools import AgentTool, HttpTool, McpTool, PythonTool, ShellTool, Tool
from agentrun.engine.approvals import Asked
from agentrun.report.exact import exact, plain
from agentrun.report.question import Item, Sheet, item, sheet, value_item
from agentrun.spec.problems import visible
from agentrun.tools.command_line import Refused, arguments, standard_input
from agentrun.tools.http_request import IDEMPOTENCY_KEY, request_of

TITLES = {"input": "approval needed: the input goes to the model", "output": "approval needed: the answer is given"}


def sheet_of(asked: Asked, root: str) -> Sheet:
    """What is asked. `root`: the agent that the user started; of any other one the question says which it is."""
    # The params of a sub-agent are written by its parent's model, and templates fill them in.
    params = asked.params if isinstance(asked.tool, HttpTool | ShellTool) else None
    return sheet(_title(asked), _notes(asked, root), _items(asked), asked.value, params)


def _title(asked: Asked) -> str:
    name = plain(asked.target)
    if asked.sink is not None:
        return f"approval needed: the answer goes to the sink {name}"
    if asked.tool is None and asked.target in TITLES and asked.subject == asked.target:
        return TITLES[asked.target]
    return f"approval needed: the tool {name} runs"


def _notes(asked: Asked, root: str) -> Iterator[Item]:
    if asked.agent != root:
        yield item("agent", plain(asked.agent))
    yield item("rule", ", ".join(map(plain, asked.rules)) or "the policy's default")
    if asked.reason:
        yield item("reason", visible(asked.reason))


def _items(asked: Asked) -> Iterator[Item]:
    if asked.sink is not None:
        yield from _sink(asked.sink)
    if asked.tool is not None:
        yield from _tool(asked, asked.tool)
    if not isinstance(asked.value, dict):
        yield value_item("text", asked.value)
        return
    for name, value in asked.value.items():
        yield value_item("argument", value, name)
    if not asked.value:
        yield item("argument", "none")


def _tool(asked: Asked, tool: Tool) -> Iterator[Item]:
    match tool:
        case PythonTool():
            yield item("function", plain(f"{tool.module}:{tool.function}"))
        case ShellTool():
            yield from _shell(asked, tool)
        case HttpTool():
            yield from _http(asked, tool)
        case McpTool():
            started = [asked.program or tool.command[0], *tool.command[1:]] if tool.command else [tool.url or ""]
            yield item("server", " ".join(map(exact, started)))
        case AgentTool():
            yield item("runs", "a sub-agent, under its own policy")
        case _:
            assert_never(tool)


def _shell(asked: Asked, tool: ShellTool) -> Iterator[Item]:
    """The command as it will be started. What cannot be filled in will not run either."""
    values = {**asked.params, "args": asked.value}
    try:
        argv, given = arguments(tool, values), standard_input(tool, values)
    except Refused as refused:
        yield item("command", f"will not run: {visible(str(refused))}")
        return
    yield item("command", " ".join(map(exact, [asked.program or argv[0], *argv[1:]])))
    yield item("in", "the project's folder" if tool.cwd == "." else f"{exact(tool.cwd)} in the project")
    if given is not None:
        yield value_item("stdin", given.decode())


def _http(asked: Asked, tool: HttpTool) -> Iterator[Item]:
    """The request as it will be sent. Variables of the environment stand there by name."""
    call = RunTool(asked.subject, asked.target, tool, asked.value, "", 0, 0, asked.params)
    try:
        request = request_of(call)
    except Unfit as unfit:
        yield item("request", f"will not be sent: {visible(str(unfit))}")
        return
    yield item("request", f"{request.method} {exact(request.url)}")
    yield item("host", exact(urlsplit(request.url).netloc))
    for name, value in request.headers:
        if (name, value) != (IDEMPOTENCY_KEY, ""):  # it is made when the call runs, of what is shown here
            yield item("header", f"{plain(name)}: {exact(value)}")
    if request.body:
        yield value_item("body", request.body.decode())
    if request.auth is not None:
        yield item("secret", f"${{{request.auth.name}}} as {exact(request.auth.header)}")


def _sink(sink: Sink) -> Iterator[Item]:
    match sink:
        case FileSink() | JsonlSink():
            yield item("file", exact(sink.path))
        case HttpSink():
            yield item("request", f"POST {exact(sink.url)}")
        case StdoutSink():
            yield item("to", "standard output")
        case _:
            assert_never(sink)
