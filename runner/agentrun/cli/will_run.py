"""What a question is about, as a person is shown it: what will happen, exactly, and who asks why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, assert_never

from agentrun.compiler.template import TemplateStopped, render
from agentrun.core.package_sinks import FileSink, HttpSink, JsonlSink, Sink, StdoutSink
from agentrun.core.package_tools import AgentTool, HttpTool, McpTool, PythonTool, ShellTool, Tool
from agentrun.engine.approvals import Asked
from agentrun.report.exact import exact, plain
from agentrun.report.question import Item, Sheet, item, sheet, value_item
from agentrun.spec.problems import visible

TITLES = {"input": "approval needed: the input goes to the model", "output": "approval needed: the answer is given"}


def sheet_of(asked: Asked, root: str) -> Sheet:
    """What is asked. `root`: the agent that the user started; of any other one the question says which it is."""
    return sheet(_title(asked), _notes(asked, root), _items(asked), asked.value)


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
    values = {**asked.params, "args": asked.value}
    match tool:
        case PythonTool():
            yield item("function", plain(f"{tool.module}:{tool.function}"))
        case ShellTool():
            yield from _rendered("command", lambda: " ".join(exact(render(part, values)) for part in tool.argv))
            yield item("in", f"the folder {exact(tool.cwd)} of the project")
            stdin = tool.stdin
            if stdin is not None:
                yield from _rendered("stdin", lambda: exact(render(stdin, values)))
        case HttpTool():
            yield from _http(tool, values)
        case McpTool():
            yield item("server", " ".join(map(exact, tool.command)) if tool.command else exact(tool.url or ""))
        case AgentTool():
            yield item("runs", "a sub-agent, under its own policy")
        case _:
            assert_never(tool)


def _http(tool: HttpTool, values: dict[str, Any]) -> Iterator[Item]:
    yield from _rendered("request", lambda: f"{tool.method} {exact(render(tool.url, values))}")
    for name, text in tool.query.items():
        yield from _rendered("query", lambda name=name, text=text: f"{plain(name)} = {exact(render(text, values))}")  # type: ignore[misc]  # bound for the loop
    if tool.body is not None:
        yield value_item("body", tool.body)


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


def _rendered(label: str, made: Callable[[], str]) -> Iterator[Item]:
    """What becomes of a template. One that cannot be filled in will not run either."""
    try:
        yield item(label, made())
    except TemplateStopped as stop:
        yield item(label, f"cannot be made of these arguments: {exact(stop.message)}")
