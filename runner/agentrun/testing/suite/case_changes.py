"""What an agent does differently than accepted or recorded, with the line that changed if it is known.

Rule 1  The line of a prompt is known from its template, unless only the params changed it.
Rule 2  The line of a rule is known if the policy changed since the recording. It is the rule that decides now, or else
        the rule that decided before.
Rule 3  A changed section of the spec is a change of its own only if no other change comes from that section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrun.cassette.miss_context import MissContext, changed_sections, describe_changed_sections
from agentrun.cassette.request_diff import RequestDifference
from agentrun.report.change import RunChange
from agentrun.report.journal_tree import get_path
from agentrun.spec.source_files import display_path
from agentrun.spec.tree import MappingNode, ScalarNode, SequenceNode
from agentrun.testing.suite.replay import CompiledAgent
from agentrun.testing.suite.verdict import CaseChange

_SECTIONS_OF_DIFFERENCES = {"instructions": "instructions", "input": "input", "tool": "tools", "setting": "model"}
_SECTIONS_OF_CHANGES = {"ruling": "policy", "route": "model", "tools": "tools"}
_MORE = "and "
"""The beginning of the last difference, if only the first ones are listed."""


def sections_changed_since(metadata: Mapping[str, Any], agent: CompiledAgent) -> list[str]:
    """The sections of the spec that changed since the recording. Empty: none, or unknown."""
    return changed_sections(metadata, MissContext(sections=agent.file.sections, package=agent.file.agent)) or []


def describe_sections(sections: Sequence[str], others: Iterable[CaseChange]) -> tuple[CaseChange, ...]:
    """The changed sections that no other change comes from, as one change."""
    explained = {each.section for each in others}
    names = [name for name in sections if name not in explained]
    return (make_change(describe_changed_sections(names)),) if names else ()


def make_change(text: str) -> CaseChange:
    return CaseChange(title=text, text=text)


def describe_run_changes(
    changes: Iterable[RunChange], agent: CompiledAgent, sections: Sequence[str]
) -> Iterator[CaseChange]:
    """`sections`: those that changed since the recording."""
    for change in changes:
        place = None
        if change.kind == "ruling" and not change.path and "policy" in sections:
            rules = (get_path(data, "rules") for data in (change.after, change.before))
            place = next(filter(None, (find_rule(agent, names) for names in rules)), None)
        section = None if change.path else _SECTIONS_OF_CHANGES.get(change.kind)
        yield _placed_change(change.words or change.text, change.text, place, section)


def describe_ruling(text: str, rules: Sequence[str], agent: CompiledAgent, sections: Sequence[str]) -> CaseChange:
    """A ruling of this agent's policy that differs from the recording."""
    return _placed_change(text, text, find_rule(agent, rules) if "policy" in sections else None, "policy")


def describe_difference(difference: RequestDifference, text: str, agent: CompiledAgent) -> CaseChange:
    """A difference of a request of this agent, not of a sub-agent."""
    section = _SECTIONS_OF_DIFFERENCES.get(difference.kind)
    if section not in ("instructions", "input"):
        return _placed_change(text, text, None, section)
    if difference.line is None:
        words = difference.words
        title = f"{words.removeprefix(_MORE)} changed" if words.startswith(_MORE) else words
        return _placed_change(title, text, None, section)
    how = "is new" if difference.was is None else "was removed" if difference.now is None else "changed"
    title, place = f"{difference.place} {how}", _find_template(difference, agent)
    if difference.because and not _is_template_changed(difference):
        title, place = f"{title}, because {difference.because}", None
    file, line = place or (None, None)
    return CaseChange(
        title=title,
        text=text,
        file=file,
        line=line,
        section=section,
        recorded_line=difference.was,
        current_line=difference.now,
    )


def _is_template_changed(difference: RequestDifference) -> bool:
    return "the template changed" in (difference.because or "")


def _placed_change(title: str, text: str, place: tuple[str, int] | None, section: str | None) -> CaseChange:
    file, line = place or (None, None)
    return CaseChange(title=title, text=text, file=file, line=line, section=section)


def find_rule(agent: CompiledAgent, names: object) -> tuple[str, int] | None:
    """The file and line of the first of these rules that the spec has."""
    rules = agent.spec.at("policy", "rules").node
    nodes = [each for each in rules.items if isinstance(each, MappingNode)] if isinstance(rules, SequenceNode) else []
    ids = {node.text: each.place for each in nodes if isinstance(node := each.get("id"), ScalarNode)}
    for name in names if isinstance(names, list | tuple) else ():
        if name in ids:
            return display_path(ids[name].source.path), ids[name].line
    return None


def _find_template(difference: RequestDifference, agent: CompiledAgent) -> tuple[str, int] | None:
    """The file and line of the template that a line of a prompt comes from."""
    if difference.template is None or difference.template_line is None:
        return None
    spec = agent.spec
    paths: dict[str, Path] = {source.display_name: source.path for source in (spec.source, *spec.files)}
    paths |= {name: source.path for name, source in spec.templates.items()}
    path = paths.get(difference.template)
    return None if path is None else (display_path(path), difference.template_line)
