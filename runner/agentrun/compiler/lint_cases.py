"""What must hold of cases before they run: among themselves, and between them and the spec beside them.

Rule 1  A name is one of the agent as the case runs it, with its profile. What cases have in common is wrong only if it
        is wrong for every one of them.
Rule 2  A spec that cannot be read is told with itself: of its cases only what needs no spec is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from os.path import isfile, join
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from agentrun.compiler.agent_names import ASKING_STAGES, AgentNames
from agentrun.compiler.conditions import known_names_hint
from agentrun.compiler.lint_assertions import AssertionLint, CasePath, check_tool_target
from agentrun.compiler.lint_policy import globs_overlap
from agentrun.compiler.spec_reader import Spec, read_spec
from agentrun.spec.problems import Problem, did_you_mean, quote_text
from agentrun.spec.tree import MappingNode, ScalarNode, SequenceNode, node_at, place_at_path, plain_data
from agentrun.spec.v1.assertions import Assertion, JournalSnapshot, split_part_negations
from agentrun.spec.v1.cases import (
    Case,
    CaseDefaults,
    CaseTurn,
    ClockSetting,
    FaultInjectionSpec,
    InjectedFaultSpec,
    StubSpec,
)
from agentrun.spec.v1.field_types import milliseconds
from agentrun.spec.v1.tools import AgentToolSpec


def lint_cases(root: MappingNode, cases: list[Case], spec: Spec | None) -> Iterator[Problem]:
    """Everything wrong with the cases of a file that its schema takes."""
    return _CaseLint(root, cases, spec).problems()


def lint_case_names(root: MappingNode, cases: list[Case]) -> Iterator[Problem]:
    """Names that are used twice: all that matters to whoever looks for one case and does not judge it."""
    first: dict[str, int] = {}
    for index, case in enumerate(cases):
        if first.setdefault(case.name, index) != index:
            place = place_at_path(root, ["cases", index, "name"])
            before = place_at_path(root, ["cases", first[case.name], "name"])
            message = f"{quote_text(case.name)} is used twice; the first is at {before}"
            yield Problem(place, "spec.duplicate_name", message, "give one of them another name")


class _CaseLint:
    def __init__(self, root: MappingNode, cases: list[Case], spec: Spec | None) -> None:
        self._root = root
        self._cases = cases
        self._spec = spec
        node = node_at(root, ["defaults"])
        self._defaults = (
            CaseDefaults() if node is None else msgspec.convert(split_part_negations(plain_data(node)), CaseDefaults)
        )
        self._claims = AssertionLint(root, None if spec is None else spec.project)
        self._names: dict[str | None, AgentNames | None] = {}

    def problems(self) -> Iterator[Problem]:
        yield from self._defaults_problems()
        yield from lint_case_names(self._root, self._cases)
        for index, case in enumerate(self._cases):
            yield from self._case(["cases", index], case)

    def _names_of(self, case: Case) -> AgentNames | None:
        """What there is in the agent as a case runs it."""
        spec, profile = self._spec, case.profile
        if spec is None or (profile is not UNSET and profile not in spec.agent.profiles):
            return None
        key = None if profile is UNSET else profile
        if key not in self._names:
            with_profile = spec if key is None else read_spec(spec.path, key).spec
            self._names[key] = None if with_profile is None else AgentNames(with_profile)
        return self._names[key]

    def _defaults_problems(self) -> Iterator[Problem]:
        """What is wrong with the defaults, whichever case takes them."""
        if "defaults" not in self._root.entries:
            return
        found = [
            {(each.place, each.message): each for each in self._part(["defaults"], self._defaults, names)}
            for names in dict.fromkeys(map(self._names_of, self._cases))
        ]
        yield from (problem for key, problem in found[0].items() if all(key in others for others in found[1:]))

    def _case(self, path: CasePath, case: Case) -> Iterator[Problem]:
        names = self._names_of(case)
        yield from self._part(path, _own_values(self._root, path, case, self._defaults), names)
        if case.input is not UNSET and case.turns is not UNSET:
            message = "a case has either `input` or `turns`"
            hint = "make the input the first of the turns"
            yield Problem(place_at_path(self._root, [*path, "turns"], key=True), "spec.case", message, hint)
        yield from self._snapshots(path, case)
        yield from self._cassette(path, case)
        for number, turn in enumerate(case.turns if isinstance(case.turns, list) else ()):
            for index, claim in enumerate(turn.assertions if isinstance(turn, CaseTurn) else ()):
                yield from self._of_turn([*path, "turns", number, "assert", index], claim, names)

    def _of_turn(self, path: CasePath, claim: Assertion, names: AgentNames | None) -> Iterator[Problem]:
        if isinstance(claim, JournalSnapshot):
            message = "a snapshot is one of the whole conversation"
            yield Problem(place_at_path(self._root, path), "spec.claim", message, "move it to the `assert` of the case")
        else:
            yield from self._claims.problems(path, claim, names)

    def _snapshots(self, path: CasePath, case: Case) -> Iterator[Problem]:
        given = [index for index, claim in enumerate(case.assertions) if isinstance(claim, JournalSnapshot)]
        before = len(self._defaults.assertions)
        for index in given[1:]:
            if index >= before:
                place = place_at_path(self._root, [*path, "assert", index - before])
                where = "in `defaults`" if given[0] < before else "above"
                yield Problem(place, "spec.claim", f"the case has its snapshot already, {where}", "remove one of them")

    def _cassette(self, path: CasePath, case: Case) -> Iterator[Problem]:
        if self._spec is None or case.cassette is UNSET or case.cassette in [each.name for each in self._cases]:
            return
        project, name = self._spec.project, self._spec.agent.name
        shown = join(project.cassettes, name, f"{case.cassette}.yaml")
        if not isfile(join(project.root, shown)):
            message = f"there is neither a case {quote_text(case.cassette)} nor a recording {quote_text(shown)}"
            hint = (
                did_you_mean(case.cassette, [each.name for each in self._cases])
                or "record it: agentrun test --record new"
            )
            yield Problem(place_at_path(self._root, [*path, "cassette"]), "spec.no_cassette", message, hint, "warning")

    def _part(self, path: CasePath, part: CaseDefaults, names: AgentNames | None) -> Iterator[Problem]:
        """What a case and the defaults have alike."""
        yield from self._clock(path, part)
        yield from self._step(path, part, names)
        yield from self._tags(path)
        for index, claim in enumerate(part.assertions):
            yield from self._claims.problems([*path, "assert", index], claim, names)
        for target, stubs in part.stubs.items():
            yield from check_stubs(self._root, [*path, "stubs", target], target, stubs, names)
        for index, fault in enumerate(part.faults):
            yield from check_fault(self._root, [*path, "faults", index], fault, names)
        if self._spec is not None:
            yield from self._settings(path, part, self._spec)
        if names is not None:
            yield from self._approvals(path, part, names)

    def _clock(self, path: CasePath, part: CaseDefaults) -> Iterator[Problem]:
        if part.clock.start is UNSET:
            return
        try:
            datetime.fromisoformat(part.clock.start)
        except ValueError:
            place = place_at_path(self._root, [*path, "clock", "start"])
            message = f"{quote_text(part.clock.start)} is no date and time that there is"
            yield Problem(place, "spec.case", message, "for example 2026-01-31T09:00:00Z")

    def _step(self, path: CasePath, part: CaseDefaults, names: AgentNames | None) -> Iterator[Problem]:
        """A replay in which every call is late asks the model what no recording has: that is made in real time."""
        if part.clock.step is UNSET or names is None:
            return
        agent = names.spec.agent
        for name, tool in agent.tools.items():
            limit = agent.limits.tool_timeout if tool.timeout is UNSET else tool.timeout
            if not isinstance(tool, AgentToolSpec) and milliseconds(part.clock.step) > milliseconds(limit):
                place = place_at_path(self._root, [*path, "clock", "step"])
                message = f"{quote_text(name)} may take {limit}: with this step each of its calls is too late"
                hint = f"at most {limit}, or a longer `timeout` for the tool"
                yield Problem(place, "spec.case", message, hint, "warning")
                return

    def _tags(self, path: CasePath) -> Iterator[Problem]:
        node = node_at(self._root, [*path, "tags"])
        seen: set[str] = set()
        for item in node.items if isinstance(node, SequenceNode) else ():
            if isinstance(item, ScalarNode) and item.text in seen:
                yield Problem(item.place, "spec.case", f"the tag {quote_text(item.text)} is given twice", "remove one")
            seen.add(item.text if isinstance(item, ScalarNode) else "")

    def _settings(self, path: CasePath, part: CaseDefaults, spec: Spec) -> Iterator[Problem]:
        agent = spec.agent
        for param in part.params:
            if param not in agent.params:
                place = place_at_path(self._root, [*path, "params", param], key=True)
                hint = did_you_mean(param, agent.params) or known_names_hint(agent.params)
                yield Problem(place, "spec.unknown_param", f"param {quote_text(param)} is not declared", hint)
        if part.profile is not UNSET and part.profile not in agent.profiles:
            place = place_at_path(self._root, [*path, "profile"])
            hint = did_you_mean(part.profile, agent.profiles) or known_names_hint(agent.profiles)
            yield Problem(place, "spec.unknown_profile", f"profile {quote_text(part.profile)} is not declared", hint)

    def _approvals(self, path: CasePath, part: CaseDefaults, names: AgentNames) -> Iterator[Problem]:
        """A question of a sub-agent is answered by the name of its own tool."""
        for target in part.approvals:
            if names.any_agent(partial(_may_ask, target), unknown=False):
                continue
            place = place_at_path(self._root, [*path, "approvals", target], key=True)
            known = [*names.tool_names, *names.spec.agent.sinks, *ASKING_STAGES]
            hint = did_you_mean(target, known) or known_names_hint(known)
            inner = target.rpartition("/")[2]
            if inner != target and names.has_tool(target):
                hint = f"a question is answered by the name that the sub-agent gives its tool: {quote_text(inner)}"
            yield Problem(place, "spec.unknown_tool", f"tool {quote_text(target)} is not declared", hint)


def _may_ask(target: str, names: AgentNames) -> bool:
    """Whether an agent itself may ask about a target."""
    return names.has_own_tool(target) or any(
        globs_overlap(target, each) for each in (*ASKING_STAGES, *names.spec.agent.sinks)
    )


def _own_values(root: MappingNode, path: CasePath, case: Case, defaults: CaseDefaults) -> CaseDefaults:
    """What stands in a case itself."""

    def written(key: str) -> MappingNode | None:
        node = node_at(root, [*path, key])
        return node if isinstance(node, MappingNode) else None

    params, approvals, stubs, clock = map(written, ("params", "approvals", "stubs", "clock"))
    return CaseDefaults(
        params={name: value for name, value in case.params.items() if params and name in params.entries},
        profile=case.profile if node_at(root, [*path, "profile"]) is not None else UNSET,
        approvals={name: each for name, each in case.approvals.items() if approvals and name in approvals.entries},
        stubs={name: each for name, each in case.stubs.items() if stubs and name in stubs.entries},
        clock=ClockSetting(
            start=case.clock.start if clock and "start" in clock.entries else UNSET,
            step=case.clock.step if clock and "step" in clock.entries else UNSET,
        ),
        faults=case.faults[len(defaults.faults) :],
        assertions=case.assertions[len(defaults.assertions) :],
    )


# --- what a case lays over its recording, before a run: stubs and faults that can be --------------------------


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
"""What can go wrong, and where."""
HTTP_ONLY_FAULTS = ("status", "refused")
"""What can go wrong with a tool only if it is an HTTP endpoint."""

_PLACE = re.compile(r"(?:([a-z0-9.]+)/)?(model|tool|approval|hook|sink)(?::([^#]+))?(?:#[0-9]+)?")
_CALLS = re.compile(r"c[0-9]+\.[0-9]+(?:\.c[0-9]+\.[0-9]+)*")


def check_stubs(
    root: MappingNode, path: CasePath, target: str, stubs: StubSpec | list[StubSpec], names: AgentNames | None
) -> Iterator[Problem]:
    """`path`: of the tool that stands in for itself no longer."""
    if names is not None and names.is_only_agents(target):
        message = (
            f"{quote_text(target)} is a sub-agent: it is run, and only its own model and tools are played or stubbed"
        )
        hint = f"stub the tools that it uses: {quote_text(f'{target}/TOOL')}"
        yield Problem(place_at_path(root, path, key=True), "spec.stub", message, hint)
    elif names is not None and not names.has_tool(target):
        hint = did_you_mean(target, names.tool_names) or known_names_hint(names.tool_names)
        what = (
            f"{quote_text(target)} matches no tool" if "*" in target else f"tool {quote_text(target)} is not declared"
        )
        yield Problem(place_at_path(root, path, key=True), "spec.unknown_tool", what, hint)
    places = [(path, stubs)] if isinstance(stubs, StubSpec) else [([*path, at], each) for at, each in enumerate(stubs)]
    for place, stub in places:
        if (stub.result is UNSET) == (stub.error is UNSET):
            message = "a stub gives either `result` or `error`"
            hint = (
                "remove one of the two"
                if stub.error is not UNSET
                else "for example {result: done}, or {error: not found}"
            )
            yield Problem(place_at_path(root, place), "spec.stub", message, hint)


class ParsedFaultPlace(NamedTuple):
    """A place as it is written."""

    calls: str | None
    kind: str
    name: str


def check_fault(
    root: MappingNode, path: CasePath, fault: FaultInjectionSpec, names: AgentNames | None
) -> Iterator[Problem]:
    found = _PLACE.fullmatch(fault.at)
    assert found is not None, "the schema has its form"
    where = ParsedFaultPlace(found[1], found[2], found[3] or "")
    yield from _check_inject(root, [*path, "inject"], fault.inject, where, names)
    if where.calls is not None and not _CALLS.fullmatch(where.calls):
        message = f"{quote_text(where.calls)} is no call: a sub-agent is named by the call that started it"
        hint = f"for example c1.0/{where.kind}" + (
            f", or {where.kind}:{where.calls}/{where.name}" if where.name else ""
        )
        yield Problem(place_at_path(root, [*path, "at"]), "spec.fault", message, hint)
    elif names is not None:
        yield from _check_place(root, [*path, "at"], where, names)


def _check_place(root: MappingNode, path: CasePath, where: ParsedFaultPlace, names: AgentNames) -> Iterator[Problem]:
    if where.calls is not None and not names.children:
        message = "the agent has no sub-agents"
        yield Problem(place_at_path(root, path), "spec.fault", message, f"leave out {quote_text(f'{where.calls}/')}")
    elif where.kind == "model":
        return
    elif where.kind == "tool" and where.calls is None:
        yield from check_tool_target(root, path, where.name, names)
        if names.is_only_agents(where.name):
            message = f"{quote_text(where.name)} is a sub-agent, in which its model or its tools can fail"
            yield Problem(
                place_at_path(root, path), "spec.fault", message, f"for example tool:{where.name}/TOOL, or c1.0/model"
            )
    elif not _place_exists(where, names):
        own = _known_targets(where.kind, names)
        hint = did_you_mean(where.name, own) or known_names_hint(own)
        code = "spec.unknown_tool" if where.kind in ("tool", "approval") else "spec.fault"
        yield Problem(
            place_at_path(root, path), code, f"{_NOUNS[where.kind]} {quote_text(where.name)} is not declared", hint
        )


_NOUNS = {"tool": "tool", "approval": "tool, sink or stage", "hook": "hook", "sink": "sink"}
_EXISTS: dict[str, Callable[[AgentNames, str], bool]] = {
    "tool": lambda names, name: names.has_tool(name),
    "approval": lambda names, name: names.has_target(name, ASKING_STAGES),
    "hook": lambda names, name: names.has_hook(name),
    "sink": lambda names, name: names.has_sink(name),
}


def _place_exists(where: ParsedFaultPlace, names: AgentNames) -> bool:
    has = _EXISTS[where.kind]
    return has(names, where.name) if where.calls is None else names.any_sub_agent(lambda child: has(child, where.name))


def _known_targets(kind: str, names: AgentNames) -> list[str]:
    agent = names.spec.agent
    match kind:
        case "hook":
            return [hook.id for hook in agent.hooks]
        case "sink":
            return list(agent.sinks)
        case "approval":
            return [*names.tool_names, *agent.sinks, *ASKING_STAGES]
    return names.tool_names


def _check_inject(
    root: MappingNode, path: CasePath, inject: InjectedFaultSpec, where: ParsedFaultPlace, names: AgentNames | None
) -> Iterator[Problem]:
    given = [kind for kind in PLACES_BY_FAULT if getattr(inject, kind) is not UNSET]
    if len(given) != 1:
        message = "a fault is one thing that goes wrong" + (f", not {' and '.join(given)}" if given else "")
        hint = f"give exactly one of {', '.join(PLACES_BY_FAULT)}"
        yield Problem(place_at_path(root, path), "spec.fault", message, hint)
        return
    kind = given[0]
    place = place_at_path(root, [*path, kind], key=True)
    if where.kind not in PLACES_BY_FAULT[kind]:
        fitting = ", ".join(each for each, places in PLACES_BY_FAULT.items() if where.kind in places)
        message = f"`{kind}` cannot happen to a {_SUBJECTS[where.kind]}"
        yield Problem(place, "spec.fault", message, f"there it can be {fitting}")
    elif where.kind == "tool" and kind in HTTP_ONLY_FAULTS and not _is_http_tool(where, names):
        message = f"`{kind}` can happen only to a tool of kind http, which {quote_text(where.name)} is not"
        yield Problem(place, "spec.fault", message, "for other tools: error, fatal, timeout")
    if inject.retry_after is not UNSET and kind != "status":
        message = "`retry_after` is a header of a reply with `status`"
        yield Problem(place_at_path(root, [*path, "retry_after"], key=True), "spec.fault", message, "remove it")
    if inject.times > 1 and where.kind != "model":
        message = f"`times` counts the attempts at a model; a {_SUBJECTS[where.kind]} is asked once"
        hint = f"remove it; call by call: {where.kind}:{where.name}#1, {where.kind}:{where.name}#2"
        yield Problem(place_at_path(root, [*path, "times"], key=True), "spec.fault", message, hint)


_SUBJECTS = {"model": "model", "tool": "tool", "approval": "question to a person", "hook": "hook", "sink": "sink"}


def _is_http_tool(where: ParsedFaultPlace, names: AgentNames | None) -> bool:
    if names is None or where.calls is not None or not names.has_tool(where.name):
        return True  # not known, or told already
    return names.has_http(where.name)
