"""What a question is about, as a person is shown it: what will happen, exactly, and who asks why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never
from urllib.parse import urlsplit

from agentrun.compiler.url_templates import UnusableUrl
from agentrun.core.effects import RunTool
from agentrun.core.package import FileSink, HttpSink, JsonlSink, Sink, StdoutSink
from agentrun.core.package_tools import AgentTool, HttpTool, McpTool, PythonTool, ShellTool, Tool
from agentrun.engine.approvals import Asked
from agentrun.report.approval_question import ApprovalQuestion, QuestionItem, make_question, text_item, value_item
from agentrun.report.escape import escape_name, escape_text
from agentrun.spec.problems import escape_invisible
from agentrun.tools.commands import CommandRefused, build_argv, build_stdin
from agentrun.tools.http import IDEMPOTENCY_KEY, build_request

TITLES = {"input": "approval needed: the input goes to the model", "output": "approval needed: the answer is given"}


def sheet_of(asked: Asked, root: str) -> ApprovalQuestion:
    """What is asked. `root`: the agent that the user started; of any other one the question says which it is."""
    # The params of a sub-agent are written by its parent's model, and templates fill them in.
    params = asked.params if isinstance(asked.tool, HttpTool | ShellTool) else None
    return make_question(_title(asked), _notes(asked, root), _items(asked), asked.value, params)


def _title(asked: Asked) -> str:
    name = escape_name(asked.target)
    if asked.sink is not None:
        return f"approval needed: the answer goes to the sink {name}"
    if asked.tool is None and asked.target in TITLES and asked.subject == asked.target:
        return TITLES[asked.target]
    return f"approval needed: the tool {name} runs"


def _notes(asked: Asked, root: str) -> Iterator[QuestionItem]:
    if asked.agent != root:
        yield text_item("agent", escape_name(asked.agent))
    yield text_item("rule", ", ".join(map(escape_name, asked.rules)) or "the policy's default")
    if asked.reason:
        yield text_item("reason", escape_invisible(asked.reason))


def _items(asked: Asked) -> Iterator[QuestionItem]:
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
        yield text_item("argument", "none")


def _tool(asked: Asked, tool: Tool) -> Iterator[QuestionItem]:
    match tool:
        case PythonTool():
            yield text_item("function", escape_name(f"{tool.module}:{tool.function}"))
        case ShellTool():
            yield from _shell(asked, tool)
        case HttpTool():
            yield from _http(asked, tool)
        case McpTool():
            started = [asked.program or tool.command[0], *tool.command[1:]] if tool.command else [tool.url or ""]
            yield text_item("server", " ".join(map(escape_text, started)))
        case AgentTool():
            yield text_item("runs", "a sub-agent, under its own policy")
        case _:
            assert_never(tool)


def _shell(asked: Asked, tool: ShellTool) -> Iterator[QuestionItem]:
    """The command as it will be started. What cannot be filled in will not run either."""
    values = {**asked.params, "args": asked.value}
    try:
        argv, given = build_argv(tool, values), build_stdin(tool, values)
    except CommandRefused as refused:
        yield text_item("command", f"will not run: {escape_invisible(str(refused))}")
        return
    yield text_item("command", " ".join(map(escape_text, [asked.program or argv[0], *argv[1:]])))
    yield text_item("in", "the project's folder" if tool.cwd == "." else f"{escape_text(tool.cwd)} in the project")
    if given is not None:
        yield value_item("stdin", given.decode())


def _http(asked: Asked, tool: HttpTool) -> Iterator[QuestionItem]:
    """The request as it will be sent. Variables of the environment stand there by name."""
    call = RunTool(asked.subject, asked.target, tool, asked.value, "", 0, 0, asked.params)
    try:
        request = build_request(call)
    except UnusableUrl as unfit:
        yield text_item("request", f"will not be sent: {escape_invisible(str(unfit))}")
        return
    yield text_item("request", f"{request.method} {escape_text(request.url)}")
    yield text_item("host", escape_text(urlsplit(request.url).netloc))
    for name, value in request.headers:
        if (name, value) != (IDEMPOTENCY_KEY, ""):  # it is made when the call runs, of what is shown here
            yield text_item("header", f"{escape_name(name)}: {escape_text(value)}")
    if request.body:
        yield value_item("body", request.body.decode())
    if request.auth is not None:
        yield text_item("secret", f"${{{request.auth.name}}} as {escape_text(request.auth.header)}")


def _sink(sink: Sink) -> Iterator[QuestionItem]:
    match sink:
        case FileSink() | JsonlSink():
            yield text_item("file", escape_text(sink.path))
        case HttpSink():
            yield text_item("request", f"POST {escape_text(sink.url)}")
        case StdoutSink():
            yield text_item("to", "standard output")
        case _:
            assert_never(sink)
