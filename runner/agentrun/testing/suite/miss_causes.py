"""Explain a miss by what the agent does differently, in words.

Rule 1  If there is an accepted journal, the run is compared with it up to the miss. Missing records mean nothing.
Rule 2  A difference that both the journal and the cassette show is reported once: for prompts from the cassette, which
        knows the template; for all others from the journal, which knows the turn. A difference that only the cassette
        shows is reported with the name of the sub-agent.
Rule 3  If a ruling blocked a recorded call, the ruling is reported, not the missing result or answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agentrun.cassette.request_diff import RequestDifference
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.facts import APPROVED_ANSWERS
from agentrun.errors import AgentrunError
from agentrun.providers.wire_names import wire_name
from agentrun.report.change import RunChange
from agentrun.report.fact_diff import format_rules
from agentrun.report.journal_diff import compare_journals
from agentrun.report.journal_tree import get_path
from agentrun.spec.safe_text import short_text
from agentrun.testing.suite.case_changes import (
    describe_difference,
    describe_ruling,
    describe_run_changes,
    describe_sections,
    make_change,
    sections_changed_since,
)
from agentrun.testing.suite.evidence import Trajectory
from agentrun.testing.suite.replay import NO_CASSETTE, CaseRuns, CompiledAgent
from agentrun.testing.suite.verdict import CaseChange

_SHOWN_BY_CASSETTE = frozenset({"instructions", "input", "params", "prompt"})
_SHOWN_BY_JOURNAL = frozenset({"history", "argument"})
_CALL = re.compile(CALL_PATTERN)
_BLOCKING_RULINGS = frozenset({"ask", "deny", "defer", "interrupt"})


def find_miss_causes(
    miss: AgentrunError, agent: CompiledAgent, case_runs: CaseRuns, journals: tuple[str, str] | None = None
) -> tuple[CaseChange, ...]:
    """The changes since the recording. `journals`: the accepted one, and the one up to the miss."""
    differences = _read_differences(miss)
    if not differences:
        return (_describe_unusable_cassette(miss),)
    prefix = _sub_agent_prefix(miss.fields.get("path"), case_runs)
    sections = sections_changed_since(case_runs.metadata, agent)
    changes = list(describe_run_changes(_journal_changes(journals), agent, sections))
    if changes:
        others = [each for each in differences if each.kind not in _SHOWN_BY_JOURNAL and each.kind != "absent"]
        changes += [_describe_difference(each, each.sentence(), prefix, agent) for each in others]
    else:
        changes += _blocking_rulings(differences, agent, case_runs, sections) if case_runs.runs else ()
        others = [each for each in differences if not (changes and each.kind in ("absent", "history"))]
        changes += [_describe_difference(each, each.brief or each.sentence(), prefix, agent) for each in others]
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
    calls = Trajectory(case_runs.runs[-1]).calls
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


def _blocking_rulings(
    differences: list[RequestDifference], agent: CompiledAgent, case_runs: CaseRuns, sections: list[str]
) -> Iterator[CaseChange]:
    """The last ruling on each call that differs from the recording, if it blocked the call.

    Calls that a person approved are left out. For a call that a person denied, the answer is reported.
    """
    words = " ".join(each.words for each in differences if each.kind in ("absent", "history", "question"))
    about = set(words.replace(":", " ").split())
    trajectory = Trajectory(case_runs.runs[-1])
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
