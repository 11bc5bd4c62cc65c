"""What an agent does differently than accepted or recorded, with the line that changed if it is known.

Rule 1  The line of a prompt is known from its template, unless only the params changed it. The line of a setting of the
        model is known if its name in the request is the same.
Rule 2  The line of a rule is known if the policy changed since the recording. It is the rule that decides now, or else
        the rule that decided before.
Rule 3  A changed section of the spec is a change of its own only if no other change comes from that section.

A miss:

Rule 4  If there is an accepted journal, the run is compared with it up to the miss. Missing records mean nothing.
Rule 5  A difference that both the journal and the cassette show is reported once: for prompts from the cassette, which
        knows the template; for all others from the journal, which knows the turn. A difference that only the cassette
        shows is reported with the name of the sub-agent.
Rule 6  If a ruling blocked a recorded call, the ruling is reported, not the missing result or answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentrun.cassette.miss_context import MissContext, changed_sections, describe_changed_sections
from agentrun.cassette.request_diff import RequestDifference
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.facts import APPROVED_ANSWERS
from agentrun.errors import AgentrunError
from agentrun.providers.request_encoding import wire_name
from agentrun.report.change import RunChange
from agentrun.report.fact_diff import format_rules
from agentrun.report.journal_diff import compare_journals
from agentrun.report.journal_tree import get_path
from agentrun.spec.safe_text import short_text
from agentrun.spec.source_files import display_path
from agentrun.spec.tree import MappingNode, ScalarNode, SequenceNode
from agentrun.testing.suite.evidence import run_trajectory
from agentrun.testing.suite.replay import NO_CASSETTE, CaseRuns, CompiledAgent
from agentrun.testing.suite.verdict import CaseChange

_SECTIONS_OF_DIFFERENCES = {"instructions": "instructions", "input": "input", "tool": "tools", "setting": "model"}
_SECTIONS_OF_CHANGES = {"ruling": "policy", "route": "model", "tools": "tools"}
_MORE = "and "
"""The beginning of the last difference, if only the first ones are listed."""
_SHOWN_BY_CASSETTE = frozenset({"instructions", "input", "params", "prompt"})
_SHOWN_BY_JOURNAL = frozenset({"history", "argument"})
_CALL = re.compile(CALL_PATTERN)
_BLOCKING_RULINGS = frozenset({"ask", "deny", "defer", "interrupt"})


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
        setting = agent.spec.at("model", difference.place)
        is_known = section == "model" and setting.node is not None
        place = (display_path(setting.place.source.path), setting.place.line) if is_known else None
        return _placed_change(text, text, place, section)
    if difference.line is None:
        words = difference.words
        title = f"{words.removeprefix(_MORE)} changed" if words.startswith(_MORE) else words
        return _placed_change(title, text, None, section)
    how = "is new" if difference.was is None else "was removed" if difference.now is None else "changed"
    title, place = f"{difference.place} {how}", _find_template(difference, agent)
    if difference.because and "the template changed" not in difference.because:
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


def find_miss_causes(
    miss: AgentrunError, agent: CompiledAgent, case_runs: CaseRuns, journals: tuple[str, str] | None = None
) -> tuple[CaseChange, ...]:
    """The changes since the recording. `journals`: the accepted one, and the one up to the miss."""
    differences = _read_differences(miss)
    if not differences:
        return (_describe_unusable_cassette(miss),)
    prefix = _sub_agent_prefix(miss.fields.get("path"), case_runs)
    sections = sections_changed_since(case_runs.metadata, agent)
    run_changes = _journal_changes(journals)
    changes = list(describe_run_changes(run_changes, agent, sections))
    if changes:
        has_ruling = any(each.kind == "ruling" for each in run_changes)
        shown = (*_SHOWN_BY_JOURNAL, "absent", *(["question"] if has_ruling else []))
        others = [(each, each.sentence()) for each in differences if each.kind not in shown]
    else:
        changes += _blocking_rulings(differences, agent, case_runs, sections) if case_runs.runs else ()
        shown = ("absent", "history") if changes else ()
        others = [(each, each.brief or each.sentence()) for each in differences if each.kind not in shown]
    for difference, text in others:
        if difference.kind == "question" and not prefix and case_runs.runs:
            changes.append(describe_ruling(difference.sentence(), _asking_rules(case_runs), agent, sections))
        else:
            changes.append(_describe_difference(difference, text, prefix, agent))
    cause = miss.fields.get("cause")
    if isinstance(cause, str) and cause.startswith("the spec's section"):
        changes += describe_sections(sections, changes)
    return tuple(changes) or tuple(_describe_difference(each, each.sentence(), prefix, agent) for each in differences)


def _describe_unusable_cassette(miss: AgentrunError) -> CaseChange:
    """A cassette that is missing or damaged. All cases without a cassette have the same title."""
    text = short_text(miss.message, 400)
    return CaseChange(title=NO_CASSETTE if text.startswith(NO_CASSETTE) else text, text=text)


def _describe_difference(difference: RequestDifference, text: str, prefix: str, agent: CompiledAgent) -> CaseChange:
    """`prefix`: names the sub-agent that sent the request."""
    if prefix:
        return CaseChange(title=prefix + text, text=prefix + text, section="agents")
    return describe_difference(difference, text, agent)


def _sub_agent_prefix(path: object, case_runs: CaseRuns) -> str:
    """`the sub-agent reader: `. Empty: the request came from the run itself."""
    if not isinstance(path, str) or not case_runs.runs:
        return ""
    above = ""
    calls = run_trajectory(case_runs.runs[-1]).calls
    for call in _CALL.findall(path):
        level = (each.tool for each in calls if each.id == call and each.tool.startswith(above))
        tool = next((tool for tool in level if "/" not in tool[len(above) :]), call)
        above = f"{tool if tool.startswith(above) else above + tool}/"
    return f"the sub-agent {short_text(above[:-1])}: " if above else ""


def _read_differences(miss: AgentrunError) -> list[RequestDifference]:
    try:
        return msgspec.convert(miss.fields.get("differences", []), list[RequestDifference])
    except msgspec.ValidationError:
        return []


def _journal_changes(journals: tuple[str, str] | None) -> tuple[RunChange, ...]:
    """The changes up to the miss, except those that the cassette explains better."""
    changes = () if journals is None else compare_journals(*journals, cut=True)
    return tuple(each for each in changes if each.kind not in _SHOWN_BY_CASSETTE and not _is_miss(each.after))


def _is_miss(value: Any) -> bool:
    """Whether a new value in a journal is the miss itself."""
    code = get_path(value, "fault", "code") or get_path(value, "status")
    return isinstance(code, str) and code.startswith("cassette.")


def _asking_rules(case_runs: CaseRuns) -> tuple[str, ...]:
    """The rules that asked the last question of the run."""
    asked = [each.rules for each in run_trajectory(case_runs.runs[-1]).rulings if each.ruling == "ask"]
    return tuple(asked[-1]) if asked else ()


def _blocking_rulings(
    differences: list[RequestDifference], agent: CompiledAgent, case_runs: CaseRuns, sections: list[str]
) -> Iterator[CaseChange]:
    """The last ruling on each call that differs from the recording, if it blocked the call.

    Calls that a person approved are left out. For a call that a person denied, the answer is reported.
    """
    words = " ".join(each.words for each in differences if each.kind in ("absent", "history"))
    about = set(words.replace(":", " ").split())
    trajectory = run_trajectory(case_runs.runs[-1])
    ends = {(call.tool, call.id): call.status for call in trajectory.calls}  # of several sub-agents, the last one
    passed = {call for call, status in ends.items() if status == "ok"}
    passed |= {(each.target, each.subject) for each in trajectory.approvals if each.answer in APPROVED_ANSWERS}
    answers = {(each.target, each.subject): each for each in trajectory.approvals}
    for target, ruling in {each.target: each for each in trajectory.rulings}.items():
        call = target, ruling.subject
        name = target.rpartition("/")[2]
        if ruling.ruling not in _BLOCKING_RULINGS or call in passed or not {name, wire_name(name)} & about:
            continue
        if (answer := answers.get(call)) is not None:
            yield make_change(
                f"the answer about {short_text(target)} is now {answer.answer} by {short_text(answer.by)}"
            )
            continue
        rules = format_rules(list(ruling.rules), ruling.reason)
        text = f"the ruling on {short_text(target)} is now {ruling.ruling} ({rules}), unlike in the recording"
        if "/" in target:
            yield CaseChange(title=text, text=text, section="agents")
        else:
            yield describe_ruling(text, ruling.rules, agent, sections)
