"""Why a recording does not fit any more: what the agent does differently, in words.

Rule 1  Where a snapshot was accepted, the run is compared with it as far as it came. What it lacks says nothing.
Rule 2  A difference that both the journal and the tape show is told once: a prompt by the tape, which knows its
        template, anything else by the journal, which knows its turn.
        What only the tape shows is told with the sub-agent that it is of.
Rule 3  A ruling that kept a call from what is recorded of it is told as a ruling, not as a result or a missing answer.
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
from agentrun.report.fact_diff import format_rules
from agentrun.report.journal_diff import RunChange, compare_journals
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


def find_miss_causes(miss: AgentrunError, played: CaseRuns, accepted: str | None = None) -> tuple[str, ...]:
    """What changed since the recording was made. `accepted`: the journal as it was accepted, if it was."""
    found = _read_differences(miss)
    if not found:
        return (short_text(miss.message, 400),)
    who = _sub_agent_prefix(miss.fields.get("path"), played)
    known = _journal_changes(accepted, played)
    told = [change.text for change in known]
    if not known and played.runs:
        told += _blocking_ruling_texts(found, played)
    if not known:
        left = [each for each in found if not (told and each.kind in ("absent", "history"))]
        told += [who + (each.brief or each.sentence()) for each in left]
    else:
        left = [each for each in found if each.kind not in _SHOWN_BY_JOURNAL and each.kind != "absent"]
        told += [who + each.sentence() for each in left]
    cause = miss.fields.get("cause")
    if isinstance(cause, str) and cause.startswith("the spec's section"):
        told.append(short_text(cause, 400))
    return tuple(told) or tuple(who + each.sentence() for each in found)


def changed_section_texts(found: LocatedCase, prepared: CompiledAgent) -> tuple[str, ...]:
    """Which sections of the spec are not those that a case was recorded with. Nothing: none, or it is not known."""
    try:
        tape = prepared.load_cassette(found)
    except AgentrunError:
        return ()
    names = changed_sections(tape.metadata, MissContext(sections=prepared.file.sections))
    return (describe_changed_sections(names),) if names else ()


def _sub_agent_prefix(path: object, played: CaseRuns) -> str:
    """`the sub-agent reader: `. Nothing: it is the run itself that asked."""
    if not isinstance(path, str) or not played.runs:
        return ""
    above = ""
    calls = Trajectory(played.runs[-1]).calls
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


def _journal_changes(accepted: str | None, played: CaseRuns) -> tuple[RunChange, ...]:
    """What the runs did differently as far as they came, but for what the tape tells better."""
    if accepted is None or not played.runs:
        return ()
    found = compare_journals(accepted, snapshot_text(played.runs), cut=True)
    return tuple(each for each in found if each.kind not in _SHOWN_BY_CASSETTE and not _is_miss(each.after))


def _is_miss(value: Any) -> bool:
    """Whether something new in a journal is the miss itself."""
    code = get_path(value, "fault", "code") or get_path(value, "status")
    return isinstance(code, str) and code.startswith("cassette.")


def _blocking_ruling_texts(found: list[RequestDifference], played: CaseRuns) -> Iterator[str]:
    """The rulings on calls that are not recorded as they went: the last of each, if it held the call back.

    A call that a person let pass was not, and one that a person denied is told as that: the tape may know the question.
    """
    words = " ".join(each.words for each in found if each.kind in ("absent", "history", "question"))
    about = set(words.replace(":", " ").split())
    trail = Trajectory(played.runs[-1])
    ends = {(call.tool, call.id): call.status for call in trail.calls}  # of sub-agents alike, how it went in the last
    passed = {call for call, status in ends.items() if status == "ok"}
    passed |= {(each.target, each.subject) for each in trail.approvals if each.answer in APPROVED_ANSWERS}
    answers = {(each.target, each.subject): each for each in trail.approvals}
    for target, ruling in {each.target: each for each in trail.rulings}.items():
        asked = target, ruling.subject
        name = target.rpartition("/")[2]
        if ruling.ruling not in _BLOCKING_RULINGS or asked in passed or not {name, wire_name(name)} & about:
            continue
        if (answer := answers.get(asked)) is not None:
            yield f"the answer about {short_text(target)} is now {answer.answer} by {short_text(answer.by)}"
        else:
            rules = format_rules(list(ruling.rules), ruling.reason)
            now = f"{ruling.ruling} ({rules})"
            yield f"the ruling on {short_text(target)} is now {now}, which the recording does not know"
