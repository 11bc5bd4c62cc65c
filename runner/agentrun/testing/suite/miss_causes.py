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

from agentrun.cassette.miss_context import MissContext, changed_sections, describe_changed_sections
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
from agentrun.testing.suite.discovery import LocatedCase
from agentrun.testing.suite.evidence import Trajectory
from agentrun.testing.suite.replay import CaseRuns, CompiledAgent
from agentrun.testing.suite.snapshots import snapshot_text

_SHOWN_BY_CASSETTE = frozenset({"instructions", "input", "params", "prompt"})
_SHOWN_BY_JOURNAL = frozenset({"history", "argument"})
_CALL = re.compile(CALL_PATTERN)
_BLOCKING_RULINGS = frozenset({"ask", "deny", "defer", "interrupt"})


def find_miss_causes(miss: AgentrunError, case_runs: CaseRuns, accepted: str | None = None) -> tuple[str, ...]:
    """The changes since the recording. `accepted`: the accepted journal."""
    differences = _read_differences(miss)
    if not differences:
        return (short_text(miss.message, 400),)
    prefix = _sub_agent_prefix(miss.fields.get("path"), case_runs)
    changes = _journal_changes(accepted, case_runs)
    texts = [change.text for change in changes]
    if changes:
        others = [each for each in differences if each.kind not in _SHOWN_BY_JOURNAL and each.kind != "absent"]
        texts += [prefix + each.sentence() for each in others]
    else:
        texts += _blocking_ruling_texts(differences, case_runs) if case_runs.runs else ()
        others = [each for each in differences if not (texts and each.kind in ("absent", "history"))]
        texts += [prefix + (each.brief or each.sentence()) for each in others]
    cause = miss.fields.get("cause")
    if isinstance(cause, str) and cause.startswith("the spec's section"):
        texts.append(short_text(cause, 400))
    return tuple(texts) or tuple(prefix + each.sentence() for each in differences)


def changed_section_texts(located: LocatedCase, agent: CompiledAgent) -> tuple[str, ...]:
    """The sections of the spec that changed since the recording, in words. Empty: none, or unknown."""
    try:
        cassette = agent.load_cassette(located)
    except AgentrunError:
        return ()
    names = changed_sections(cassette.metadata, MissContext(sections=agent.file.sections))
    return (describe_changed_sections(names),) if names else ()


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


def _journal_changes(accepted: str | None, case_runs: CaseRuns) -> tuple[RunChange, ...]:
    """The changes up to the miss, except those that the cassette explains better."""
    if accepted is None or not case_runs.runs:
        return ()
    changes = compare_journals(accepted, snapshot_text(case_runs.runs), cut=True)
    return tuple(each for each in changes if each.kind not in _SHOWN_BY_CASSETTE and not _is_miss(each.after))


def _is_miss(value: Any) -> bool:
    """Whether a new value in a journal is the miss itself."""
    code = get_path(value, "fault", "code") or get_path(value, "status")
    return isinstance(code, str) and code.startswith("cassette.")


def _blocking_ruling_texts(differences: list[RequestDifference], case_runs: CaseRuns) -> Iterator[str]:
    """The last ruling on each call that differs from the recording, if it blocked the call.

    Calls that a person approved are left out. For a call that a person denied, the answer is reported.
    """
    words = " ".join(each.words for each in differences if each.kind in ("absent", "history", "question"))
    about = set(words.replace(":", " ").split())
    trail = Trajectory(case_runs.runs[-1])
    ends = {(call.tool, call.id): call.status for call in trail.calls}  # of several sub-agents, the last one
    passed = {call for call, status in ends.items() if status == "ok"}
    passed |= {(each.target, each.subject) for each in trail.approvals if each.answer in APPROVED_ANSWERS}
    answers = {(each.target, each.subject): each for each in trail.approvals}
    for target, ruling in {each.target: each for each in trail.rulings}.items():
        call = target, ruling.subject
        name = target.rpartition("/")[2]
        if ruling.ruling not in _BLOCKING_RULINGS or call in passed or not {name, wire_name(name)} & about:
            continue
        if (answer := answers.get(call)) is not None:
            yield f"the answer about {short_text(target)} is now {answer.answer} by {short_text(answer.by)}"
        else:
            rules = format_rules(list(ruling.rules), ruling.reason)
            yield f"the ruling on {short_text(target)} is now {ruling.ruling} ({rules}), unlike in the recording"
