"""What each tool says: functions that exist, schemas that hold, addresses that are addresses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from os.path import isabs, isfile, join
from typing import Any

from msgspec import UNSET, UnsetType

from agentrun.compiler.command_injection import find_injection_risks
from agentrun.compiler.jmespath import UnusableJmespath, check_jmespath_syntax
from agentrun.compiler.json_schemas import check_schema
from agentrun.compiler.python_functions import FunctionRefused, PythonFunction, find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import is_template
from agentrun.compiler.url_templates import RESERVED_HEADERS, UnusableUrl, check_url_template
from agentrun.spec.problems import Problem, SourcePlace, did_you_mean, quote_text
from agentrun.spec.tree import MappingNode, ScalarNode, node_at, place_at_path
from agentrun.spec.v1.tools import (
    AgentToolSpec,
    ArgsToolSpec,
    AuthSpec,
    HttpToolSpec,
    McpToolSpec,
    PythonToolSpec,
    ShellToolSpec,
    ToolSpec,
)

_URL = re.compile(r"(?:https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?|(?:https?://)?\$\{\w+\})(?:[/?].*)?")

MAX_DESCRIPTION_LENGTH = 4096

KnownArguments = dict[str, Collection[str] | None]


class ToolLint:
    """Checks the tools of one spec; `args` holds afterwards which arguments each tool has (None: not known)."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.args: KnownArguments = {}

    def problems(self) -> Iterator[Problem]:
        for name, tool in self.spec.agent.tools.items():
            self.args[name] = None
            if isinstance(tool, ArgsToolSpec):
                yield from self._arguments(name, tool)
            match tool:
                case PythonToolSpec():
                    yield from self._python(name, tool)
                case HttpToolSpec():
                    yield from self._http(name, tool)
                case ShellToolSpec():
                    yield from self._shell(name, tool)
                case McpToolSpec():
                    yield from self._mcp(name, tool)
                case AgentToolSpec():
                    pass
            yield from self._description(name, tool)

    def _place(self, name: str, *path: str | int, key: bool = False) -> SourcePlace:
        return place_at_path(self.spec.root, ["tools", name, *path], key=key)

    def _description(self, name: str, tool: ToolSpec) -> Iterator[Problem]:
        if tool.description is UNSET and isinstance(tool, (HttpToolSpec, ShellToolSpec)):
            message = f"tool {quote_text(name)} has no description: the model sees only its name"
            place = self._place(name, key=True)
            yield Problem(place, "spec.no_description", message, "say what it does in a sentence", "warning")

    def _arguments(self, name: str, tool: ArgsToolSpec) -> Iterator[Problem]:
        if tool.args is not UNSET and tool.actions is not UNSET:
            message = "a tool has either `args` or `actions`"
            place = self._place(name, "actions", key=True)
            yield Problem(place, "spec.args", message, "describe each action's arguments under `actions`")
            return
        if tool.args is not UNSET:
            found = list(self._object_schema(["tools", name, "args"]))
            yield from found
            self.args[name] = None if found else _property_names(tool.args)
        elif tool.actions is not UNSET:
            found = [p for action in tool.actions for p in self._object_schema(["tools", name, "actions", action])]
            yield from found
            fields = [_property_names(schema) for schema in tool.actions.values()]
            merged = {"action"}.union(*(known for known in fields if known is not None))
            self.args[name] = None if found or None in fields else merged
        elif not isinstance(tool, PythonToolSpec):
            self.args[name] = ()

    def _object_schema(self, path: list[str | int]) -> Iterator[Problem]:
        node = node_at(self.spec.root, path)
        assert node is not None
        found = check_schema(node)
        yield from found
        kind = node.get("type") if isinstance(node, MappingNode) else None
        if not found and not (isinstance(kind, ScalarNode) and kind.value == "object"):
            hint = "begin the schema with `type: object`"
            yield Problem(node.place, "spec.args", "the arguments of a tool are an object", hint)

    def _python(self, name: str, tool: PythonToolSpec) -> Iterator[Problem]:
        try:
            function = find_function(self.spec.project, tool.call)
        except FunctionRefused as refused:
            yield Problem(self._place(name, "call"), refused.code, refused.message, refused.hint)
            return
        if tool.args is UNSET and tool.actions is UNSET:
            if function.schema is None:
                what = (
                    f"parameter {quote_text(function.unreadable_parameter)}"
                    if function.unreadable_parameter
                    else "its *args or **kwargs"
                )
                message = f"the arguments of {quote_text(tool.call)} cannot be read from its signature: {what}"
                hint = (
                    "annotate it with str, int, float, bool, list[…], dict[str, …], Literal or None, or declare `args:`"
                )
                yield Problem(self._place(name, "call"), "spec.python", message, hint)
            else:
                self.args[name] = function.parameters
        else:
            yield from self._declared_arguments(name, tool, function)
        if tool.description is UNSET and function.description is None:
            message = f"tool {quote_text(name)} has no description: the model sees only its name"
            place = self._place(name, key=True)
            yield Problem(place, "spec.no_description", message, "give the function a docstring", "warning")
        elif tool.description is UNSET and len(function.description or "") > MAX_DESCRIPTION_LENGTH:
            message = (
                f"the docstring of {quote_text(tool.call)} begins with more than {MAX_DESCRIPTION_LENGTH:,} characters"
            )
            hint = "begin it with a paragraph for the model, or give the tool a `description:`"
            yield Problem(self._place(name, "call"), "spec.python", message, hint)

    def _declared_arguments(self, name: str, tool: PythonToolSpec, function: PythonFunction) -> Iterator[Problem]:
        """Declared arguments against the function that gets them, where they are right and all known."""
        declared = self.args[name]
        if tool.args is UNSET or declared is None:
            return
        for field in declared:
            if field not in function.parameters and not function.takes_any:
                place = self._place(name, "args", "properties", field, key=True)
                hint = did_you_mean(field, function.parameters)
                yield Problem(
                    place, "spec.args", f"{quote_text(tool.call)} takes no parameter {quote_text(field)}", hint
                )
            elif (kind := _conflicting_type(tool.args, field, function)) is not None:
                place = self._place(name, "args", "properties", field)
                message = f"{quote_text(tool.call)} takes {quote_text(field)} as {function.types[field]}, not as {kind}"
                yield Problem(place, "spec.args", message, "declare the type that the function is annotated with")
        for parameter in function.required:
            if parameter not in tool.args.get("required", ()):
                message = f"{quote_text(tool.call)} needs {quote_text(parameter)}, but `args` does not require it"
                hint = f"add {parameter} to `required`, or give the parameter a default"
                yield Problem(self._place(name, "args"), "spec.args", message, hint)

    def _http(self, name: str, tool: HttpToolSpec) -> Iterator[Problem]:
        url = node_at(self.spec.root, ["tools", name, "url"])
        found = list(url_problems(url))
        yield from found
        try:
            check_url_template(tool.url)
        except UnusableUrl as unfit:
            if not found:
                hint = "{{ }} fills a segment of the path, or the value of a query parameter"
                yield Problem(self._place(name, "url"), "spec.url", f"{unfit}", hint)
        yield from header_problems(self.spec, ["tools", name], tool.headers, tool.auth)
        yield from host_problems(self.spec, name, tool.url, tool.hosts)
        result = node_at(self.spec.root, ["tools", name, "result"])
        if isinstance(result, ScalarNode) and tool.result is not UNSET:
            try:
                check_jmespath_syntax(tool.result)
            except UnusableJmespath as unusable:
                place = result.place_at(unusable.offset, 1)
                hint = unusable.hint or "for example items[*].name; a text of it is in single quotes"
                yield Problem(place, "spec.jmespath", unusable.message, hint)

    def _shell(self, name: str, tool: ShellToolSpec) -> Iterator[Problem]:
        yield from path_problems(tool.cwd, self._place(name, "cwd"))
        if is_template(tool.argv[0]):
            message = "the command itself is fixed; only its arguments may be templates"
            yield Problem(self._place(name, "argv", 0), "spec.argv", message, "begin `argv` with the command's name")
            return
        yield from self._command(name, "argv", tool.argv)
        for index, danger in find_injection_risks(tool.argv):
            place = self._place(name, "argv", index)
            if danger == "line":
                message = "what is filled in here becomes a part of a shell line, and is run"
                hint = """give it to the line as an argument: [sh, -c, 'ls "$1"', sh, "{{ args.x }}"]"""
                yield Problem(place, "spec.shell_line", message, hint)
            else:
                message = "what is filled in here is run, as code or as a program"
                hint = "write it out, and let only its arguments be filled in; or let a person approve each call"
                yield Problem(place, "spec.exec_argv", message, hint, "warning")

    def _command(self, name: str, key: str, words: Sequence[str]) -> Iterator[Problem]:
        """A whole line in the place of a command, which may have a space in its name only if it is a file."""
        command = words[0]
        if (
            " " not in command
            or is_template(command)
            or isabs(command)
            or isfile(join(self.spec.project.root, command))
        ):
            return
        try:
            meant = ", ".join(map(quote_text, [*shlex.split(command), *words[1:]]))
        except ValueError:  # a quote that does not end
            meant = "git, log"
        message = f"{quote_text(command)} is looked for as one command, with the space in its name"
        yield Problem(self._place(name, key, 0), "spec.argv", message, f"write each word by itself: [{meant}]")

    def _mcp(self, name: str, tool: McpToolSpec) -> Iterator[Problem]:
        if tool.command is not UNSET:
            yield from self._command(name, "command", tool.command)
        if (tool.command is UNSET) == (tool.url is UNSET):
            message = "a server is reached by either `command` or `url`"
            hint = "for example command: [npx, some-server]" if tool.url is UNSET else "remove one of the two"
            yield Problem(self._place(name, key=True), "spec.mcp", message, hint)
        url = node_at(self.spec.root, ["tools", name, "url"])
        if url is not None:
            yield from url_problems(url)
        for key, other in (("env", "command"), ("headers", "url")):
            if getattr(tool, key) and getattr(tool, other) is UNSET:
                message = f"`{key}` belongs to a server with `{other}`"
                yield Problem(self._place(name, key, key=True), "spec.mcp", message, "remove it")


def _conflicting_type(schema: dict[str, Any], field: str, function: PythonFunction) -> str | None:
    """The declared type of an argument that the function's annotation does not allow, where both say one."""
    declared = schema["properties"][field]
    kind = declared.get("type") if isinstance(declared, dict) else None
    takes = function.types.get(field)
    if not isinstance(kind, str) or takes is None or kind == takes or (kind, takes) == ("integer", "number"):
        return None
    return kind


def _property_names(schema: dict[str, object] | UnsetType) -> Collection[str] | None:
    """The properties of an object schema; None when it allows others or composes them."""
    if schema is UNSET or not isinstance(schema, dict):
        return ()
    open_ended = schema.get("additionalProperties", False) is not False
    if open_ended or {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"} & schema.keys():
        return None
    properties = schema.get("properties", {})
    return tuple(properties) if isinstance(properties, dict) else ()


def url_problems(node: object) -> Iterator[Problem]:
    """An address: http or https, no credentials in it, the host fixed or from the environment."""
    if isinstance(node, ScalarNode) and not _URL.fullmatch(node.text):
        hint = "write https://host/path; the host is fixed text or ${NAME}, and credentials go into `auth:`"
        yield Problem(node.place, "spec.url", f"{quote_text(node.text)} is not an address that can be used", hint)


def path_problems(path: str, place: SourcePlace) -> Iterator[Problem]:
    """A path inside the project, relative to its root."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or re.match(r"[A-Za-z]:", path):
        message = f"{quote_text(path)} is not a path inside the project"
        yield Problem(place, "spec.path", message, "write it relative to the project's root, without ..")


# --- what the requests of tools and sinks say about themselves: their headers ---------------------------------


_HOST = re.compile(r"(https?)://([^/?$]+?)(?::(\d+))?(?:[/?].*)?", re.DOTALL)
_PORTS = {"http": "80", "https": "443"}


def header_problems(
    spec: Spec, path: Sequence[str], headers: Mapping[str, str], auth: AuthSpec | UnsetType
) -> Iterator[Problem]:
    """Headers that no request can have, or that say one thing twice. `path`: of the tool or sink."""
    places = {name: place_at_path(spec.root, [*path, "headers", name], key=True) for name in headers}
    texts = dict(headers)
    if auth is not UNSET:
        place = place_at_path(spec.root, [*path, "auth", "header"])
        if auth.header.lower() in map(str.lower, headers):
            message = f"the header {quote_text(auth.header)} is set by `auth` and by `headers`"
            yield Problem(place, "spec.header", message, "remove one of the two")
            return
        places[auth.header], texts[auth.header] = place, auth.scheme or "x"
    seen: set[str] = set()
    for name, text in texts.items():
        if name.lower() in RESERVED_HEADERS:
            message = f"the header {quote_text(name)} is for the request itself to decide"
            yield Problem(places[name], "spec.header", message, "remove it")
        elif name.lower() in seen:
            yield Problem(
                places[name], "spec.header", f"the header {quote_text(name)} is there twice", "remove one of them"
            )
        elif not is_template(text) and not (text.isascii() and text.isprintable() and text == text.strip()):
            message = (
                f"the header {quote_text(name)} holds what no header can: a line end, a blank around it, an odd letter"
            )
            yield Problem(places[name], "spec.header", message, "write it in one line of plain letters")
        seen.add(name.lower())


def host_problems(spec: Spec, name: str, url: str, hosts: Sequence[str] | UnsetType) -> Iterator[Problem]:
    """A list of hosts that the address itself is not in: every call would be refused."""
    found = _HOST.fullmatch(url)
    if hosts is UNSET or found is None or found[2].startswith("["):
        return
    host, port = found[2].lower(), found[3] or _PORTS[found[1]]
    if not any(_covers_host(entry.lower(), host, port, _PORTS[found[1]]) for entry in hosts):
        message = "`hosts` does not list the host of `url`, so that no call would reach it"
        entry = host if port == _PORTS[found[1]] else f"{host}:{port}"
        yield Problem(place_at_path(spec.root, ["tools", name, "hosts"]), "spec.url", message, f"add {entry}")


def _covers_host(entry: str, host: str, port: str, usual: str) -> bool:
    name, _, at = entry.partition(":")
    if int(at or usual) != int(port):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else name == host
