"""Context of the run that missed, used to explain the miss, and its likely cause.

Rule 1  Anyone may have edited the metadata of a cassette. Metadata of the wrong form counts as missing.
Rule 2  No guesses: without recorded fingerprints there is no cause.
Rule 3  An upgrade of agentrun is not a change of the spec. A field that is added to a package is listed in
        `ADDED_FIELDS` with its default, unless its absence already means that. A field of tools that the compiler
        reads from their source is in `ADDED_TOOL_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, to_builtins

from agentrun.canonical_json import fingerprint, same_json
from agentrun.compiler.package_file import PackageFile
from agentrun.compiler.prompts import complete_params
from agentrun.compiler.spec_reader import Spec
from agentrun.core.package import Package
from agentrun.secret import mask
from agentrun.spec.safe_text import join_words, json_text
from agentrun.spec.tree import Node, ScalarNode, SequenceNode, node_at

LIVE_RESULT_CHANGED = (
    "a live tool returned something different from the recording; if the value is new in every run, such as an id, "
    "list its place in `replay.volatile`"
)
MAX_NAMED_CHANGES = 5


class Template(Struct, frozen=True):
    label: str
    """Its file as shown to people: `specs/prompts/support.md.j2`."""
    first_line: int
    """The line of that file on which the template begins."""
    source: str
    files: dict[str, str] = {}
    """The files that it includes, as shown to people, by the names that it uses."""


class OverruledAnswer(Struct, frozen=True):
    """A recorded answer to an approval that was not used."""

    why: str
    """The answer that was used instead, and its source."""
    fix: str | None = None
    """What to do if there was no other answer."""


class MissContext(Struct, frozen=True):
    sections: dict[str, str] = {}
    package: Package | None = None
    params: dict[str, Any] = {}
    instructions: tuple[Template, ...] = ()
    input: Template | None = None
    record_command: str | None = None
    """The command that runs this case: `agentrun specs/support.yaml --case default`."""
    needs_full_recording: bool = False
    """Whether `--record all` is needed, because `--record new` would keep an interaction that causes the difference."""


def recorded_params(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    params = metadata.get("params")
    return params if isinstance(params, dict) and all(isinstance(name, str) for name in params) else None


def recorded_sections(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    sections = metadata.get("sections")
    if not isinstance(sections, dict) or not sections:
        return None
    return sections if all(isinstance(part, str) for pair in sections.items() for part in pair) else None


def changed_params(metadata: Mapping[str, Any], context: MissContext) -> dict[str, tuple[Any, Any]]:
    """The params whose value changed since the recording: (recorded, current)."""
    recorded = recorded_params(metadata) or {}
    return {
        name: (recorded[name], context.params[name])
        for name in sorted(recorded.keys() & context.params.keys())
        if not same_json(recorded[name], context.params[name])
    }


def changed_sections(metadata: Mapping[str, Any], context: MissContext) -> list[str] | None:
    """The sections whose fingerprint changed since the recording. None: unknown."""
    recorded = recorded_sections(metadata)
    if recorded is None or not context.sections:
        return None
    names = [*context.sections, *(name for name in sorted(recorded) if name not in context.sections)]
    changed = [name for name in names if recorded.get(name) != context.sections.get(name)]
    former = former_sections(context.package) if changed and context.package is not None else {}
    return [name for name in changed if name not in former or recorded.get(name) != former[name]]


def describe_changed_params(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """`params.region changed from "eu" to "us"`."""
    if len(changed) > 1:
        return f"{join_words(_first_names([f'params.{name}' for name in changed]))} changed"
    ((name, (was, now)),) = changed.items()
    return f"params.{name} changed from {json_text(was, name)} to {json_text(now, name)}"


def describe_changed_sections(names: list[str]) -> str:
    """`the spec's section budgets changed since the recording`."""
    listed = join_words(_first_names([mask(name)[:60] for name in names]))
    return f"the spec's section{'s' * (len(names) > 1)} {listed} changed since the recording"


def likely_cause(metadata: Mapping[str, Any], context: MissContext | None, kinds: Collection[str]) -> str | None:
    """The likely cause of a miss with these kinds of differences, as a sentence."""
    if context is None:
        return None
    sections, params = changed_sections(metadata, context), changed_params(metadata, context)
    if sections is None:
        return describe_changed_params(params) if params else "unknown: the cassette has no fingerprints of its package"
    if sections:
        cause = describe_changed_sections(sections)
        return f"{cause}, and {describe_changed_params(params)}" if params else cause
    if params:
        return f"the package did not change, but {describe_changed_params(params)}"
    if recorded_params(metadata) is None:
        return "the package did not change, so the difference comes from params or input"
    if context.needs_full_recording and set(kinds) == {"history"}:
        return LIVE_RESULT_CHANGED
    source = "the message" if "input" in kinds else "the message, a tool result or another version of agentrun"
    return f"the package and its params did not change, so the difference comes from {source}"


def _first_names(names: list[str]) -> list[str]:
    more = len(names) - MAX_NAMED_CHANGES
    return [*names[:MAX_NAMED_CHANGES], f"{more} more"] if more > 0 else names


def make_miss_context(
    spec: Spec, file: PackageFile, *, message: str | None, params: Mapping[str, Any], accept: str, whole: bool
) -> MissContext:
    """`message`: None for the input of the spec. `accept`: the command that records this case."""
    instructions, given = node_at(spec.root, ["instructions"]), node_at(spec.root, ["input"])
    assert instructions is not None
    nodes = instructions.items if isinstance(instructions, SequenceNode) else [instructions]
    files = {name: source.display_name for name, source in spec.templates.items()}
    return MissContext(
        sections=file.sections,
        package=file.agent,
        params=complete_params(file.agent, params),
        instructions=tuple(
            Template(*_file_and_line(node), source, files)
            for node, source in zip(nodes, file.agent.instructions, strict=True)
        ),
        input=None
        if message is not None or given is None or file.agent.input is None
        else Template(*_file_and_line(given), file.agent.input, files),
        record_command=accept,
        needs_full_recording=whole,
    )


def _file_and_line(node: Node) -> tuple[str, int]:
    place = node.place_at(0) if isinstance(node, ScalarNode) else node.place
    return place.source.display_name, place.line


ADDED_FIELDS: dict[str, dict[str, Any]] = {
    "guards": {"call_compare": "results", "cycle_compare": "results", "batch_compare": "results"},
}

ADDED_TOOL_FIELDS = frozenset({"defaults"})


def former_sections(package: Package) -> dict[str, str]:
    """The fingerprint of each section as an earlier release made it. A field that the spec sets makes a difference."""
    return {name: fingerprint(section) for name, section in _without_added_fields(to_builtins(package)).items()}


def _without_added_fields(package: dict[str, Any]) -> dict[str, Any]:
    former = dict(package)
    for section, added in ADDED_FIELDS.items():
        former[section] = {key: value for key, value in package[section].items() if (key, value) not in added.items()}
    former["tools"] = {
        name: {key: value for key, value in tool.items() if key not in ADDED_TOOL_FIELDS}
        for name, tool in package["tools"].items()
    }
    former["agents"] = {name: _without_added_fields(agent) for name, agent in package["agents"].items()}
    return former
