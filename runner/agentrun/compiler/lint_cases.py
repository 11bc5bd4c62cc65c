"""Checks of test cases before they run, with each other and with the spec next to them.

Names are checked against the agent with the profile of the case. A problem in `defaults` is reported only if every case
has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from os.path import isfile, join
from typing import NamedTuple

from msgspec import UNSET

from agentrun.compiler.agent_names import ASKING_STAGES, AgentNames
from agentrun.compiler.cases import complete_cases
from agentrun.compiler.conditions import near_or_known_hint
from agentrun.compiler.lint_assertions import assertion_problems, check_tool_target
from agentrun.compiler.lint_policy import duplicate_names, overlaps_any
from agentrun.compiler.spec_reader import Spec, read_spec
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import DocumentPath, MappingNode
from agentrun.spec.v1 import cases as written
from agentrun.spec.v1.assertions import JournalSnapshot
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.v1.tools import AgentToolSpec, HttpToolSpec

PLACES_BY_FAULT: dict[str, tuple[str, ...]] = {
    "status": ("model", "tool"),
    "cut_after_chunk": ("model",),
    "refused": ("model", "tool"),
    "timeout": ("model", "tool", "approval", "hook", "sink"),
    "empty": ("model",),
    "error": ("tool", "hook", "sink"),
    "fatal": ("tool",),
    "answer": ("approval",),
}
HTTP_ONLY_FAULTS = ("status", "refused")
_PLACE = re.compile(r"(?:([a-z0-9.]+)/)?(model|tool|approval|hook|sink)(?::([^#]+))?(?:#([0-9]+))?")
_CALLS = re.compile(r"c[0-9]+\.[0-9]+(?:\.c[0-9]+\.[0-9]+)*")
_NOUNS = {"tool": "tool", "approval": "tool, sink or stage", "hook": "hook", "sink": "sink"}
_EXISTS: dict[str, Callable[[AgentNames, str], bool]] = {
    "tool": AgentNames.has_tool,
    "approval": lambda names, name: names.has_target(name, ASKING_STAGES),
    "hook": AgentNames.has_hook,
    "sink": AgentNames.has_sink,
}


def lint_cases(root: MappingNode, file: written.CasesFile, spec: Spec | None) -> Iterator[Problem]:
    """Yield the problems of a cases file. `spec`: the spec next to it, if it can be read."""
    return _CaseLint(root, file, spec).problems()


class _CaseLint:
    def __init__(self, root: MappingNode, file: written.CasesFile, spec: Spec | None) -> None:
        self._root = DocumentPath(root)
        self._defaults = file.defaults
        self._own_cases = file.cases
        self._cases = complete_cases(file)
        self._spec = spec
        self._project = None if spec is None else spec.project
        self._names: dict[str | None, AgentNames | None] = {}

    def problems(self) -> Iterator[Problem]:
        yield from self._defaults_problems()
        yield from duplicate_names(self._root.at("cases"), "name", [case.name for case in self._cases])
        for index, (own, case) in enumerate(zip(self._own_cases, self._cases, strict=True)):
            yield from self._case(self._root.at("cases", index), own, case)

    def _names_of(self, case: written.Case) -> AgentNames | None:
        spec, profile = self._spec, case.profile
        if spec is None or (profile is not UNSET and profile not in spec.agent.profiles):
            return None
        key = None if profile is UNSET else profile
        if key not in self._names:
            with_profile = spec if key is None else read_spec(spec.path, key).spec
            self._names[key] = None if with_profile is None else AgentNames(with_profile)
        return self._names[key]

    def _defaults_problems(self) -> Iterator[Problem]:
        path = self._root.at("defaults")
        if path.node is None:
            return
        found = [
            {(each.place, each.message): each for each in self._part(path, self._defaults, names)}
            for names in dict.fromkeys(map(self._names_of, self._cases))
        ]
        yield from (problem for key, problem in found[0].items() if all(key in others for others in found[1:]))

    def _case(self, path: DocumentPath, own: written.Case, case: written.Case) -> Iterator[Problem]:
        """`own`: the case as it is written. `case`: the same with the defaults of the file."""
        names = self._names_of(case)
        yield from self._part(path, own, names)
        if case.input is not UNSET and case.turns is not UNSET:
            message = "a case can have `input` or `turns`, not both"
            yield path.at("turns").key_problem("spec.case", message, "move the input to the first of the turns")
        yield from self._snapshots(path, case)
        yield from self._cassette(path, case)
        for number, turn in enumerate(case.turns if isinstance(case.turns, list) else ()):
            for index, assertion in enumerate(turn.assertions if isinstance(turn, written.CaseTurn) else ()):
                at = path.at("turns", number, "assert", index)
                if isinstance(assertion, JournalSnapshot):
                    message = "a snapshot is always of the whole conversation"
                    yield at.problem("spec.assertion", message, "move it to the `assert` of the case")
                yield from assertion_problems(at, assertion, names, self._project)

    def _snapshots(self, path: DocumentPath, case: written.Case) -> Iterator[Problem]:
        snapshots = [index for index, assertion in enumerate(case.assertions) if isinstance(assertion, JournalSnapshot)]
        before = len(self._defaults.assertions)
        for index in snapshots[1:]:
            if index >= before:
                message = f"the case already has a snapshot, {'in `defaults`' if snapshots[0] < before else 'above'}"
                yield path.at("assert", index - before).problem("spec.assertion", message, "remove one")

    def _cassette(self, path: DocumentPath, case: written.Case) -> Iterator[Problem]:
        names = [each.name for each in self._cases]
        if self._spec is None or case.cassette is UNSET or case.cassette in names:
            return
        project = self._spec.project
        shown = join(project.cassettes, self._spec.agent.name, f"{case.cassette}.yaml")
        if not isfile(join(project.root, shown)):
            message = f"there is neither a case {quote_text(case.cassette)} nor a cassette {quote_text(shown)}"
            hint = did_you_mean(case.cassette, names) or "record it with `agentrun test --record new`"
            yield Problem(path.at("cassette").place, "spec.no_cassette", message, hint, "warning")

    def _part(self, path: DocumentPath, part: written.CaseDefaults, names: AgentNames | None) -> Iterator[Problem]:
        """Check what both a case and the defaults can have."""
        yield from _clock(path.at("clock"), part.clock, names)
        yield from _tags(path.at("tags"))
        for index, assertion in enumerate(part.assertions):
            yield from assertion_problems(path.at("assert", index), assertion, names, self._project)
        for target, stubs in part.stubs.items():
            yield from _stubs(path.at("stubs", target), target, stubs, names)
        for index, fault in enumerate(part.faults):
            yield from _fault(path.at("faults", index), fault, names)
        if self._spec is not None:
            yield from _settings(path, part, self._spec)
        if names is not None:
            yield from _approvals(path.at("approvals"), part, names)


def _clock(path: DocumentPath, clock: written.ClockSetting, names: AgentNames | None) -> Iterator[Problem]:
    if clock.start is not UNSET:
        try:
            datetime.fromisoformat(clock.start)
        except ValueError:
            message = f"{quote_text(clock.start)} is not a valid date and time"
            yield path.at("start").problem("spec.case", message, "for example 2026-01-31T09:00:00Z")
    if clock.step is UNSET or names is None:
        return
    agent = names.spec.agent
    for name, tool in agent.tools.items():
        limit = agent.limits.tool_timeout if tool.timeout is UNSET else tool.timeout
        if not isinstance(tool, AgentToolSpec) and milliseconds(clock.step) > milliseconds(limit):
            # Then no request after such a call matches the cassette.
            message = f"with this step every call of {quote_text(name)} times out, because its limit is {limit}"
            hint = f"use at most {limit}, or a longer `timeout` for the tool"
            yield Problem(path.at("step").place, "spec.case", message, hint, "warning")
            return


def _tags(path: DocumentPath) -> Iterator[Problem]:
    seen: set[str] = set()
    for tag in path.scalars:
        if tag.text in seen:
            yield Problem(tag.place, "spec.case", f"the tag {quote_text(tag.text)} is set twice", "remove one")
        seen.add(tag.text)


def _settings(path: DocumentPath, part: written.CaseDefaults, spec: Spec) -> Iterator[Problem]:
    agent = spec.agent
    for param in part.params:
        if param not in agent.params:
            message = f"param {quote_text(param)} is not declared"
            hint = near_or_known_hint(param, agent.params)
            yield path.at("params", param).key_problem("spec.unknown_param", message, hint)
    if part.profile is not UNSET and part.profile not in agent.profiles:
        message = f"profile {quote_text(part.profile)} is not declared"
        hint = near_or_known_hint(part.profile, agent.profiles)
        yield path.at("profile").problem("spec.unknown_profile", message, hint)


def _approvals(path: DocumentPath, part: written.CaseDefaults, names: AgentNames) -> Iterator[Problem]:
    """Check the targets of approvals. A question of a sub-agent has the sub-agent's own name for the tool."""
    for target in part.approvals:
        if names.any_agent(partial(_may_ask, target), unknown=False):
            continue
        hint = near_or_known_hint(target, names.targets(ASKING_STAGES))
        inner = target.rpartition("/")[2]
        if inner != target and names.has_tool(target):
            hint = f"use the sub-agent's own name for the tool: {quote_text(inner)}"
        yield path.at(target).key_problem("spec.unknown_tool", f"tool {quote_text(target)} is not declared", hint)


def _may_ask(target: str, names: AgentNames) -> bool:
    """Return whether the agent itself may ask about a target."""
    return names.has_own_tool(target) or overlaps_any(target, (*ASKING_STAGES, *names.spec.agent.sinks))


def _stubs(
    path: DocumentPath, target: str, stubs: written.StubSpec | list[written.StubSpec], names: AgentNames | None
) -> Iterator[Problem]:
    if names is not None and names.is_only_agents(target):
        message = f"{quote_text(target)} is a sub-agent, and only tools can be stubbed"
        hint = f"stub the tools of the sub-agent: {quote_text(f'{target}/TOOL')}"
        yield path.key_problem("spec.stub", message, hint)
    else:
        yield from check_tool_target(path, target, names, key=True)
    placed = [(path.at(at), each) for at, each in enumerate(stubs)] if isinstance(stubs, list) else [(path, stubs)]
    for at, stub in placed:
        if (stub.result is UNSET) == (stub.error is UNSET):
            example = "for example {result: done}, or {error: not found}"
            hint = example if stub.error is UNSET else "remove one of the two"
            yield at.problem("spec.stub", "a stub needs either `result` or `error`", hint)


class ParsedFaultPlace(NamedTuple):
    calls: str | None
    """The path of a sub-agent, if it is given."""
    kind: str
    name: str
    number: int | None


def parse_fault_place(at: str) -> ParsedFaultPlace:
    found = _PLACE.fullmatch(at)
    assert found is not None, "the schema checks the form"
    return ParsedFaultPlace(found[1], found[2], found[3] or "", int(found[4]) if found[4] else None)


def _fault(path: DocumentPath, fault: written.FaultInjectionSpec, names: AgentNames | None) -> Iterator[Problem]:
    where = parse_fault_place(fault.at)
    yield from _check_inject(path.at("inject"), fault.inject, where, names)
    if where.calls is not None and not _CALLS.fullmatch(where.calls):
        message = f"{quote_text(where.calls)} is not a call; name a sub-agent by the call that started it"
        by_tool = f", or {where.kind}:{where.calls}/{where.name}" if where.name else ""
        yield path.at("at").problem("spec.fault", message, f"for example c1.0/{where.kind}{by_tool}")
    elif names is not None:
        yield from _check_place(path.at("at"), where, names)


def _check_place(path: DocumentPath, where: ParsedFaultPlace, names: AgentNames) -> Iterator[Problem]:
    if where.calls is not None and not names.children:
        yield path.problem("spec.fault", "the agent has no sub-agents", f"remove {quote_text(f'{where.calls}/')}")
    elif where.kind == "tool" and where.calls is None:
        yield from check_tool_target(path, where.name, names)
        if names.is_only_agents(where.name):
            message = f"{quote_text(where.name)} is a sub-agent; inject the fault into its model or tools"
            yield path.problem("spec.fault", message, f"for example tool:{where.name}/TOOL, or c1.0/model")
    elif where.kind != "model" and not _place_exists(where, names):
        code = "spec.unknown_tool" if where.kind in ("tool", "approval") else "spec.fault"
        message = f"{_NOUNS[where.kind]} {quote_text(where.name)} is not declared"
        agent = names.spec.agent
        known = {
            "tool": names.tool_names,
            "approval": names.targets(ASKING_STAGES),
            "hook": [hook.id for hook in agent.hooks],
            "sink": list(agent.sinks),
        }
        yield path.problem(code, message, near_or_known_hint(where.name, known[where.kind]))


def _place_exists(where: ParsedFaultPlace, names: AgentNames) -> bool:
    has = _EXISTS[where.kind]
    return has(names, where.name) if where.calls is None else names.any_sub_agent(lambda child: has(child, where.name))


def _check_inject(
    path: DocumentPath, inject: written.InjectedFaultSpec, where: ParsedFaultPlace, names: AgentNames | None
) -> Iterator[Problem]:
    faults = [kind for kind in PLACES_BY_FAULT if getattr(inject, kind) is not UNSET]
    if len(faults) != 1:
        message = "`inject` needs exactly one fault" + (f", not {' and '.join(faults)}" if faults else "")
        yield path.problem("spec.fault", message, f"use one of {', '.join(PLACES_BY_FAULT)}")
        return
    kind = faults[0]
    if where.kind not in PLACES_BY_FAULT[kind]:
        fitting = ", ".join(each for each, places in PLACES_BY_FAULT.items() if where.kind in places)
        message = f"`{kind}` is not possible for {where.kind}s"
        yield path.at(kind).key_problem("spec.fault", message, f"possible: {fitting}")
    elif where.kind == "tool" and kind in HTTP_ONLY_FAULTS and not _is_http_tool(where, names):
        message = f"`{kind}` is possible only for tools of kind http, and {quote_text(where.name)} has another kind"
        yield path.at(kind).key_problem("spec.fault", message, "possible for other tools: error, fatal, timeout")
    if inject.retry_after is not UNSET and kind != "status":
        message = "`retry_after` works only with `status`"
        yield path.at("retry_after").key_problem("spec.fault", message, "remove it")
    if inject.times > 1 and where.kind != "model":
        message = f"`times` works only for model calls; there are no retries for {where.kind}s"
        hint = f"name each call instead: {where.kind}:{where.name}#1, {where.kind}:{where.name}#2"
        yield path.at("times").key_problem("spec.fault", message, hint)


def _is_http_tool(where: ParsedFaultPlace, names: AgentNames | None) -> bool:
    if names is None or where.calls is not None or not names.has_tool(where.name):
        return True  # unknown, or already reported
    return any(tool is None or isinstance(tool, HttpToolSpec) for tool in names.matching_tools(where.name))
