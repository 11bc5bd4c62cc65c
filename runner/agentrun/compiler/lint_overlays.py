"""What a case lays over its recording, before a run: stubs and faults that can be, at places that there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import UNSET

from agentrun.compiler.case_names import ASKING_STAGES, Names
from agentrun.compiler.conditions import known_names
from agentrun.compiler.lint_case_steps import Path, check_tool
from agentrun.spec.problems import Problem, did_you_mean, quoted
from agentrun.spec.tree import Mapping, place_of
from agentrun.spec.v1.cases import FaultAt, Inject, Stub

KINDS: dict[str, tuple[str, ...]] = {
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
OVER_HTTP = ("status", "refused")
"""What can go wrong with a tool only if it is an HTTP endpoint."""

_PLACE = re.compile(r"(?:([a-z0-9.]+)/)?(model|tool|approval|hook|sink)(?::([^#]+))?(?:#[0-9]+)?")
_CALLS = re.compile(r"c[0-9]+\.[0-9]+(?:\.c[0-9]+\.[0-9]+)*")


def check_stubs(
    root: Mapping, path: Path, target: str, stubs: Stub | list[Stub], names: Names | None
) -> Iterator[Problem]:
    """`path`: of the tool that stands in for itself no longer."""
    if names is not None and names.is_only_agents(target):
        message = f"{quoted(target)} is a sub-agent: it is run, and only its own model and tools are played or stubbed"
        hint = f"stub the tools that it uses: {quoted(f'{target}/TOOL')}"
        yield Problem(place_of(root, path, key=True), "spec.stub", message, hint)
    elif names is not None and not names.has_tool(target):
        hint = did_you_mean(target, names.tools) or known_names(names.tools)
        what = f"{quoted(target)} matches no tool" if "*" in target else f"tool {quoted(target)} is not declared"
        yield Problem(place_of(root, path, key=True), "spec.unknown_tool", what, hint)
    places = [(path, stubs)] if isinstance(stubs, Stub) else [([*path, at], each) for at, each in enumerate(stubs)]
    for place, stub in places:
        if (stub.result is UNSET) == (stub.error is UNSET):
            message = "a stub gives either `result` or `error`"
            hint = (
                "remove one of the two"
                if stub.error is not UNSET
                else "for example {result: done}, or {error: not found}"
            )
            yield Problem(place_of(root, place), "spec.stub", message, hint)


class Where(NamedTuple):
    """A place as it is written."""

    calls: str | None
    kind: str
    name: str


def check_fault(root: Mapping, path: Path, fault: FaultAt, names: Names | None) -> Iterator[Problem]:
    found = _PLACE.fullmatch(fault.at)
    assert found is not None, "the schema has its form"
    where = Where(found[1], found[2], found[3] or "")
    yield from _inject(root, [*path, "inject"], fault.inject, where, names)
    if where.calls is not None and not _CALLS.fullmatch(where.calls):
        message = f"{quoted(where.calls)} is no call: a sub-agent is named by the call that started it"
        hint = f"for example c1.0/{where.kind}" + (
            f", or {where.kind}:{where.calls}/{where.name}" if where.name else ""
        )
        yield Problem(place_of(root, [*path, "at"]), "spec.fault", message, hint)
    elif names is not None:
        yield from _place(root, [*path, "at"], where, names)


def _place(root: Mapping, path: Path, where: Where, names: Names) -> Iterator[Problem]:
    if where.calls is not None and not names.children:
        message = "the agent has no sub-agents"
        yield Problem(place_of(root, path), "spec.fault", message, f"leave out {quoted(f'{where.calls}/')}")
    elif where.kind == "model":
        return
    elif where.kind == "tool" and where.calls is None:
        yield from check_tool(root, path, where.name, names)
        if names.is_only_agents(where.name):
            message = f"{quoted(where.name)} is a sub-agent, in which its model or its tools can fail"
            yield Problem(
                place_of(root, path), "spec.fault", message, f"for example tool:{where.name}/TOOL, or c1.0/model"
            )
    elif not _is_there(where, names):
        own = _known(where.kind, names)
        hint = did_you_mean(where.name, own) or known_names(own)
        code = "spec.unknown_tool" if where.kind in ("tool", "approval") else "spec.fault"
        yield Problem(place_of(root, path), code, f"{_NOUNS[where.kind]} {quoted(where.name)} is not declared", hint)


_NOUNS = {"tool": "tool", "approval": "tool, sink or stage", "hook": "hook", "sink": "sink"}
_HAS: dict[str, Callable[[Names, str], bool]] = {
    "tool": lambda names, name: names.has_tool(name),
    "approval": lambda names, name: names.has_target(name, ASKING_STAGES),
    "hook": lambda names, name: names.has_hook(name),
    "sink": lambda names, name: names.has_sink(name),
}


def _is_there(where: Where, names: Names) -> bool:
    has = _HAS[where.kind]
    return has(names, where.name) if where.calls is None else names.below(lambda child: has(child, where.name))


def _known(kind: str, names: Names) -> list[str]:
    agent = names.spec.agent
    match kind:
        case "hook":
            return [hook.id for hook in agent.hooks]
        case "sink":
            return list(agent.sinks)
        case "approval":
            return [*names.tools, *agent.sinks, *ASKING_STAGES]
    return names.tools


def _inject(root: Mapping, path: Path, inject: Inject, where: Where, names: Names | None) -> Iterator[Problem]:
    given = [kind for kind in KINDS if getattr(inject, kind) is not UNSET]
    if len(given) != 1:
        message = "a fault is one thing that goes wrong" + (f", not {' and '.join(given)}" if given else "")
        hint = f"give exactly one of {', '.join(KINDS)}"
        yield Problem(place_of(root, path), "spec.fault", message, hint)
        return
    kind = given[0]
    place = place_of(root, [*path, kind], key=True)
    if where.kind not in KINDS[kind]:
        fitting = ", ".join(each for each, places in KINDS.items() if where.kind in places)
        message = f"`{kind}` cannot happen to a {_SUBJECTS[where.kind]}"
        yield Problem(place, "spec.fault", message, f"there it can be {fitting}")
    elif where.kind == "tool" and kind in OVER_HTTP and not _over_http(where, names):
        message = f"`{kind}` can happen only to a tool of kind http, which {quoted(where.name)} is not"
        yield Problem(place, "spec.fault", message, "for other tools: error, fatal, timeout")
    if inject.retry_after is not UNSET and kind != "status":
        message = "`retry_after` is a header of a reply with `status`"
        yield Problem(place_of(root, [*path, "retry_after"], key=True), "spec.fault", message, "remove it")
    if inject.times > 1 and where.kind != "model":
        message = f"`times` counts the attempts at a model; a {_SUBJECTS[where.kind]} is asked once"
        hint = f"remove it; call by call: {where.kind}:{where.name}#1, {where.kind}:{where.name}#2"
        yield Problem(place_of(root, [*path, "times"], key=True), "spec.fault", message, hint)


_SUBJECTS = {"model": "model", "tool": "tool", "approval": "question to a person", "hook": "hook", "sink": "sink"}


def _over_http(where: Where, names: Names | None) -> bool:
    if names is None or where.calls is not None or not names.has_tool(where.name):
        return True  # not known, or told already
    return names.has_http(where.name)
