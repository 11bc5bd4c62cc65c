"""What is particular to each kind of tool and sink: what runs it in a live run, and what a person is shown before.

The modules of a kind are imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import urlsplit

from agentrun.compiler.url_templates import UnusableUrl
from agentrun.core.effects import RunTool
from agentrun.core.package import FileSink, HttpSink, JsonlSink, Sink, StdoutSink
from agentrun.core.package_tools import AgentTool, HttpTool, McpTool, PythonTool, ShellTool, Tool
from agentrun.engine.approvals import DetailedQuestion
from agentrun.engine.ports import Executor, SinkPort
from agentrun.net.environment import Lookup
from agentrun.report.approval_question import QuestionItem, escape_name, escape_text, text_item, value_item
from agentrun.spec.problems import escape_invisible
from agentrun.wire import Sender


def open_executor(
    kind: str,
    root: Path,
    import_roots: tuple[Path, ...],
    programs: Mapping[str, str],
    lookup: Lookup,
    sender: Sender,
    shown: dict[str, Any],
) -> Executor:
    """What runs the tools of a kind. `shown`: what shows and redacts the output of Python code."""
    match kind:
        case "python":
            from agentrun.tools.python import PythonTools  # late: only for this kind

            return PythonTools(import_roots, lookup=lookup, **shown)
        case "http":
            from agentrun.tools.http import HttpTools  # late: only for this kind

            return HttpTools(sender)
        case "shell":
            from agentrun.tools.shell import ShellTools  # late: only for this kind

            return ShellTools(root, programs, lookup)
        case "mcp":
            from agentrun.tools.mcp import McpServers  # late: only for this kind

            return McpServers(root, programs, lookup, clean=shown["clean"])
        case _:
            raise ValueError(kind)


def tool_items(question: DetailedQuestion, tool: Tool) -> Iterator[QuestionItem]:
    match tool:
        case PythonTool():
            yield text_item("function", escape_name(f"{tool.module}:{tool.function}"))
        case ShellTool():
            yield from _shell_items(question, tool)
        case HttpTool():
            yield from _http_items(question, tool)
        case McpTool():
            started = [question.program or tool.command[0], *tool.command[1:]] if tool.command else [tool.url or ""]
            yield text_item("server", " ".join(map(escape_text, started)))
        case AgentTool():
            yield text_item("runs", "a sub-agent, under its own policy")
        case _:
            assert_never(tool)


def _shell_items(question: DetailedQuestion, tool: ShellTool) -> Iterator[QuestionItem]:
    from agentrun.tools.shell import CommandRefused, build_argv, build_stdin  # late: only for this kind

    values = {**question.params, "args": question.value}
    try:
        argv, stdin = build_argv(tool, values), build_stdin(tool, values)
    except CommandRefused as refused:
        yield text_item("command", f"will not run: {escape_invisible(str(refused))}")
        return
    yield text_item("command", " ".join(map(escape_text, [question.program or argv[0], *argv[1:]])))
    yield text_item("in", "the project's folder" if tool.cwd == "." else f"{escape_text(tool.cwd)} in the project")
    if stdin is not None:
        yield value_item("stdin", stdin.decode())


def _http_items(question: DetailedQuestion, tool: HttpTool) -> Iterator[QuestionItem]:
    from agentrun.tools.http import IDEMPOTENCY_KEY, build_request  # late: only for this kind

    call = RunTool(question.subject, question.target, tool, question.value, "", 0, 0, question.params)
    try:
        request = build_request(call)
    except UnusableUrl as unfit:
        yield text_item("request", f"will not be sent: {escape_invisible(str(unfit))}")
        return
    yield text_item("request", f"{request.method} {escape_text(request.url)}")
    yield text_item("host", escape_text(urlsplit(request.url).netloc))
    for name, value in request.headers:
        if (name, value) != (IDEMPOTENCY_KEY, ""):  # computed when the call runs, from the values shown here
            yield text_item("header", f"{escape_name(name)}: {escape_text(value)}")
    if request.body:
        yield value_item("body", request.body.decode())
    if request.auth is not None:
        yield text_item("secret", f"${{{request.auth.name}}} as {escape_text(request.auth.header)}")


def open_sink(kind: str, root: Path, sender: Sender, write: Callable[[str], None]) -> SinkPort:
    """What delivers to the sinks of a kind. `write` prints a line to standard output."""
    from agentrun.tools import sinks  # late: only for runs with sinks

    match kind:
        case "file":
            return sinks.FileSinks(root)
        case "jsonl":
            return sinks.JsonlSinks(root)
        case "http":
            return sinks.HttpSinks(sender)
        case "stdout":
            return sinks.StdoutSinks(write)
        case _:
            raise ValueError(kind)


def sink_items(sink: Sink) -> Iterator[QuestionItem]:
    match sink:
        case FileSink() | JsonlSink():
            yield text_item("file", escape_text(sink.path))
        case HttpSink():
            yield text_item("request", f"POST {escape_text(sink.url)}")
        case StdoutSink():
            yield text_item("to", "standard output")
        case _:
            assert_never(sink)
