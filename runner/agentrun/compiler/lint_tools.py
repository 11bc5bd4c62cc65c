"""Checks of tools: functions exist, schemas, URLs, headers and commands are valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address
from os.path import isabs, isfile, join
from typing import Any

from msgspec import UNSET, UnsetType

from agentrun.compiler.build import NO_ARGUMENTS, CompiledChild, agent_arguments, argument_schema
from agentrun.compiler.command_injection import find_injection_risks
from agentrun.compiler.condition_types import merge_action_schemas
from agentrun.compiler.jmespath import jmespath_problems
from agentrun.compiler.json_schemas import check_schema
from agentrun.compiler.lock_file import Lock, select_pinned_tools
from agentrun.compiler.python_functions import FunctionRefused, PythonFunction, find_function
from agentrun.compiler.spec_reader import Spec
from agentrun.compiler.template import is_template
from agentrun.compiler.url_templates import RESERVED_HEADERS, UnusableUrl, check_url_template
from agentrun.core.package_tools import JsonSchema
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import DocumentPath, MappingNode, Node, ScalarNode
from agentrun.spec.v1 import tools as written

_URL = re.compile(r"(?:https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?|(?:https?://)?\$\{\w+\})(?:[/?].*)?")

MAX_DESCRIPTION_LENGTH = 4096

KnownArguments = dict[str, Collection[str] | None]
_HOST = re.compile(r"(https?)://([^/?$]+?)(?::(\d+))?(?:[/?].*)?", re.DOTALL)
_PORTS = {"http": "80", "https": "443"}


class ToolLint:
    """Checks the tools of one spec. Afterwards `args` has the arguments of each tool (None: unknown), and `schemas`
    the schemas of the arguments that are known, by the names that rules use."""

    def __init__(self, spec: Spec, agents: Mapping[str, CompiledChild], lock: Lock | None) -> None:
        self.spec = spec
        self.args: KnownArguments = {}
        self.schemas: dict[str, JsonSchema] = {}
        self._agents = agents
        self._servers = lock.servers if lock else {}

    def problems(self) -> Iterator[Problem]:
        for name, tool in self.spec.agent.tools.items():
            self.args[name] = None
            path = self.spec.at("tools", name)
            if isinstance(tool, written.ArgsToolSpec):
                yield from self._arguments(path, name, tool)
            match tool:
                case written.PythonToolSpec():
                    yield from self._python(path, name, tool)
                case written.HttpToolSpec():
                    yield from _http(path, tool)
                case written.ShellToolSpec():
                    yield from self._shell(path, tool)
                case written.McpToolSpec():
                    yield from self._mcp(path, tool)
                    pinned = select_pinned_tools(tool, self._servers.get(name, {}))
                    self.schemas |= {f"{name}.{inner}": each.args for inner, each in pinned.items()}
                case written.AgentToolSpec():
                    if name in self._agents:
                        self.schemas[name] = agent_arguments(tool, self._agents[name])
            if tool.description is UNSET and isinstance(tool, (written.HttpToolSpec, written.ShellToolSpec)):
                yield _no_description(path, name, "describe what it does in one sentence")

    def _arguments(self, path: DocumentPath, name: str, tool: written.ArgsToolSpec) -> Iterator[Problem]:
        if tool.args is not UNSET and tool.actions is not UNSET:
            message = "a tool can have `args` or `actions`, not both"
            hint = "describe each action's arguments under `actions`"
            yield path.at("actions").key_problem("spec.args", message, hint)
        elif tool.args is not UNSET:
            found = list(_object_schema(path.at("args").existing_node))
            yield from found
            self.args[name] = None if found else _property_names(tool.args)
            if not found:
                self.schemas[name] = argument_schema(self.spec, "tools", name, "args")
        elif tool.actions is not UNSET:
            actions = [path.at("actions", action).existing_node for action in tool.actions]
            found = [problem for action in actions for problem in _object_schema(action)]
            yield from found
            fields = [_property_names(schema) for schema in tool.actions.values()]
            merged = {"action"}.union(*(known for known in fields if known is not None))
            self.args[name] = None if found or None in fields else merged
            if not found:
                names = [("tools", name, "actions", action) for action in tool.actions]
                self.schemas[name] = merge_action_schemas([argument_schema(self.spec, *each) for each in names])
        elif not isinstance(tool, written.PythonToolSpec):
            self.args[name] = ()
            self.schemas[name] = NO_ARGUMENTS

    def _python(self, path: DocumentPath, name: str, tool: written.PythonToolSpec) -> Iterator[Problem]:
        if tool.env and tool.isolation == "thread":
            hint = "add `isolation: process`, or remove it: the function has the variables of agentrun"
            yield path.at("env").key_problem("spec.python", "`env` works only with `isolation: process`", hint)
        call = path.at("call")
        try:
            function = find_function(self.spec.project, tool.call)
        except FunctionRefused as refused:
            yield refused.problem(call.place)
            return
        if tool.args is UNSET and tool.actions is UNSET:
            if function.schema is None:
                name_of = function.unreadable_parameter
                what = f"the annotation of {quote_text(name_of)}" if name_of else "*args or **kwargs"
                message = f"agentrun cannot read {what} in the signature of {quote_text(tool.call)}"
                hint = "annotate with str, int, float, bool, list[…], dict[str, …], Literal or None, or declare `args:`"
                if model := function.unreadable_class:
                    hint = (
                        f"arguments are plain JSON: annotate it with dict[str, Any], make the {model} in the function "
                        f"(pydantic: {model}.model_validate({name_of})), and declare its fields under `args:`"
                    )
                yield call.problem("spec.python", message, hint)
            else:
                self.args[name] = function.parameters
                self.schemas[name] = function.schema
        elif tool.args is not UNSET and (declared := self.args[name]) is not None:
            yield from _declared_arguments(path.at("args"), tool.call, tool.args, declared, function)
        if tool.description is UNSET and function.description is None:
            yield _no_description(path, name, "add a docstring to the function")
        elif tool.description is UNSET and len(function.description or "") > MAX_DESCRIPTION_LENGTH:
            limit = f"{MAX_DESCRIPTION_LENGTH:,} characters"
            message = f"the first paragraph of the docstring of {quote_text(tool.call)} has more than {limit}"
            hint = "begin with a short paragraph for the model, or add a `description:` to the tool"
            yield call.problem("spec.python", message, hint)

    def _shell(self, path: DocumentPath, tool: written.ShellToolSpec) -> Iterator[Problem]:
        yield from path_problems(tool.cwd, path.at("cwd"))
        if is_template(tool.argv[0]):
            message = "the command cannot be a template; only its arguments can"
            yield path.at("argv", 0).problem("spec.argv", message, "begin `argv` with a fixed command")
            return
        yield from self._command(path.at("argv", 0), tool.argv)
        for index, risk in find_injection_risks(tool.argv):
            if risk == "line":
                message = "this template fills in a part of a shell command line, so the model could run any command"
                hint = """pass it as an argument: [sh, -c, 'ls "$1"', sh, "{{ args.x }}"]"""
                yield path.at("argv", index).problem("spec.shell_line", message, hint)
            else:
                message = "this template fills in code or the name of a program, so the model could run anything"
                hint = "use a fixed program and fill in only its arguments, or let a person approve each call"
                yield Problem(path.at("argv", index).place, "spec.exec_argv", message, hint, "warning")

    def _command(self, path: DocumentPath, words: Sequence[str]) -> Iterator[Problem]:
        """Find a whole command line in place of a command. Only a file may have a space in its name."""
        command = words[0]
        is_file = isabs(command) or isfile(join(self.spec.project.root, command))
        if " " not in command or is_template(command) or is_file:
            return
        try:
            meant = ", ".join(map(quote_text, [*shlex.split(command), *words[1:]]))
        except ValueError:  # an unclosed quote
            meant = "git, log"
        message = f"{quote_text(command)} is used as the name of one command, including the space"
        yield path.problem("spec.argv", message, f"write each word as a separate item: [{meant}]")

    def _mcp(self, path: DocumentPath, tool: written.McpToolSpec) -> Iterator[Problem]:
        if tool.command is not UNSET:
            yield from self._command(path.at("command", 0), tool.command)
        if (tool.command is UNSET) == (tool.url is UNSET):
            message = "an MCP server needs either `command` or `url`"
            hint = "for example command: [npx, some-server]" if tool.url is UNSET else "remove one of the two"
            yield path.key_problem("spec.mcp", message, hint)
        yield from url_problems(path.at("url"))
        yield from private_address_problems(path.at("url"), allowed=tool.private_network)
        for key, other in (("env", "command"), ("headers", "url")):
            if getattr(tool, key) and getattr(tool, other) is UNSET:
                message = f"`{key}` works only for a server with `{other}`"
                yield path.at(key).key_problem("spec.mcp", message, "remove it")


def _no_description(path: DocumentPath, name: str, hint: str) -> Problem:
    message = f"tool {quote_text(name)} has no description, so the model sees only its name"
    return Problem(path.key_place, "spec.no_description", message, hint, "warning")


def _object_schema(node: Node) -> Iterator[Problem]:
    found = check_schema(node)
    yield from found
    kind = node.get("type") if isinstance(node, MappingNode) else None
    if not found and not (isinstance(kind, ScalarNode) and kind.value == "object"):
        hint = "begin the schema with `type: object`"
        yield Problem(node.place, "spec.args", "the arguments of a tool must be an object", hint)


def _declared_arguments(
    path: DocumentPath, call: str, schema: dict[str, Any], declared: Collection[str], function: PythonFunction
) -> Iterator[Problem]:
    for field in declared:
        argument = path.at("properties", field)
        if field not in function.parameters and not function.takes_any:
            message = f"{quote_text(call)} has no parameter {quote_text(field)}"
            yield argument.key_problem("spec.args", message, did_you_mean(field, function.parameters))
        elif (kind := _conflicting_type(schema, field, function)) is not None:
            message = f"{quote_text(call)} takes {quote_text(field)} as {function.types[field]}, not as {kind}"
            yield argument.problem("spec.args", message, "use the type in the annotation of the function")
    for parameter in function.required:
        if parameter not in schema.get("required", ()):
            message = f"{quote_text(call)} needs {quote_text(parameter)}, but `args` does not require it"
            yield path.problem("spec.args", message, f"add {parameter} to `required`, or give the parameter a default")


def _http(path: DocumentPath, tool: written.HttpToolSpec) -> Iterator[Problem]:
    found = list(url_problems(path.at("url")))
    yield from found or private_address_problems(path.at("url"), allowed=tool.private_network)
    try:
        check_url_template(tool.url)
    except UnusableUrl as unusable:
        if not found:
            hint = "use {{ }} only for a path segment or the value of a query parameter"
            yield path.at("url").problem("spec.url", str(unusable), hint)
    yield from header_problems(path, tool.headers, tool.auth)
    yield from _host_problems(path.at("hosts"), tool.url, tool.hosts)
    if result := path.at("result").scalar:
        yield from jmespath_problems(result, "the reply")


def _conflicting_type(schema: dict[str, Any], field: str, function: PythonFunction) -> str | None:
    declared = schema["properties"][field]
    kind = declared.get("type") if isinstance(declared, dict) else None
    takes = function.types.get(field)
    if not isinstance(kind, str) or takes is None or kind == takes or (kind, takes) == ("integer", "number"):
        return None
    return kind


def _property_names(schema: dict[str, object] | UnsetType) -> Collection[str] | None:
    """Return the properties of an object schema; None if it allows others or combines schemas."""
    if schema is UNSET or not isinstance(schema, dict):
        return ()
    open_ended = schema.get("additionalProperties", False) is not False
    if open_ended or {"$ref", "allOf", "anyOf", "oneOf", "patternProperties"} & schema.keys():
        return None
    properties = schema.get("properties", {})
    return tuple(properties) if isinstance(properties, dict) else ()


def url_problems(path: DocumentPath) -> Iterator[Problem]:
    """Check a URL, if there is one: http or https, no credentials, the host is fixed or from the environment."""
    url = path.scalar
    if url and not _URL.fullmatch(url.text):
        hint = "write https://host/path, with a fixed host or ${NAME}; put credentials under `auth:`"
        yield path.problem("spec.url", f"{quote_text(url.text)} is not a valid URL", hint)


def private_address_problems(path: DocumentPath, *, allowed: bool) -> Iterator[Problem]:
    """Warn of a URL with a loopback or private address, to which no request would be sent."""
    found = _HOST.fullmatch(path.scalar.text) if path.scalar and not allowed else None
    if found is not None and _is_private(found[2].strip("[]").lower()):
        message = f"{quote_text(found[2])} is a loopback or private address, so requests to it are blocked"
        yield Problem(path.place, "spec.url", message, "add `private_network: true` to allow it", "warning")


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def path_problems(written: str, path: DocumentPath) -> Iterator[Problem]:
    is_absolute = written.startswith("/") or re.match(r"[A-Za-z]:", written)
    if is_absolute or ".." in written.split("/") or "\\" in written or "\0" in written:
        message = f"{quote_text(written)} is not a path inside the project"
        yield path.problem("spec.path", message, "write a path relative to the project root, without ..")


def header_problems(
    path: DocumentPath, headers: Mapping[str, str], auth: written.AuthSpec | UnsetType
) -> Iterator[Problem]:
    """Find reserved, repeated and invalid headers. `path`: the path of the tool or sink."""
    places = {name: path.at("headers", name).key_place for name in headers}
    texts = dict(headers)
    if auth is not UNSET:
        if auth.header.lower() in map(str.lower, headers):
            message = f"the header {quote_text(auth.header)} is set in both `auth` and `headers`"
            yield path.at("auth", "header").problem("spec.header", message, "remove one of the two")
            return
        places[auth.header], texts[auth.header] = path.at("auth", "header").place, auth.scheme or "x"
    seen: set[str] = set()
    for name, text in texts.items():
        if name.lower() in RESERVED_HEADERS:
            message = f"the header {quote_text(name)} is reserved; agentrun sets it"
            yield Problem(places[name], "spec.header", message, "remove it")
        elif name.lower() in seen:
            message = f"the header {quote_text(name)} is set twice"
            yield Problem(places[name], "spec.header", message, "remove one of the two")
        elif not is_template(text) and not (text.isascii() and text.isprintable() and text == text.strip()):
            message = f"the value of the header {quote_text(name)} is invalid"
            hint = "use printable ASCII characters on one line, without spaces at the start and end"
            yield Problem(places[name], "spec.header", message, hint)
        seen.add(name.lower())


def _host_problems(path: DocumentPath, url: str, hosts: Sequence[str] | UnsetType) -> Iterator[Problem]:
    """Check that `hosts` includes the host of the URL. Otherwise every call would be refused."""
    found = _HOST.fullmatch(url)
    if hosts is UNSET or found is None or found[2].startswith("["):
        return
    host, usual = found[2].lower(), _PORTS[found[1]]
    port = found[3] or usual
    if not any(_covers_host(entry.lower(), host, port, usual) for entry in hosts):
        message = "`hosts` does not include the host of `url`, so every call would be refused"
        yield path.problem("spec.url", message, f"add {host if port == usual else f'{host}:{port}'}")


def _covers_host(entry: str, host: str, port: str, usual: str) -> bool:
    name, _, at = entry.partition(":")
    if int(at or usual) != int(port):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else name == host
