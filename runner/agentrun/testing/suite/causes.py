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

from agentrun.cassette.cause import changed_sections, of_sections
from agentrun.cassette.difference import Difference
from agentrun.cassette.here import Here
from agentrun.core.effect_ids import CALL_PATTERN
from agentrun.core.evolve_gates import APPROVED
from agentrun.errors import AgentrunError
from agentrun.providers.names import wire_name
from agentrun.report.changes import Change, changes_between
from agentrun.report.nouns import by_rules
from agentrun.report.steps import look
from agentrun.spec.text import short
from agentrun.testing.suite.found import Found
from agentrun.testing.suite.played import Played
from agentrun.testing.suite.prepared import Prepared
from agentrun.testing.suite.snapshots import snapshot_of
from agentrun.testing.suite.trail import Trail

_BY_THE_TAPE = frozenset({"instructions", "input", "params", "prompt"})
_BY_THE_JOURNAL = frozenset({"history", "argument"})
_CALL = re.compile(CALL_PATTERN)
_STRICT = frozenset({"ask", "deny", "defer", "interrupt"})


def causes_of(miss: AgentrunError, played: Played, accepted: str | None = None) -> tuple[str, ...]:
    """What changed since the recording was made. `accepted`: the journal as it was accepted, if it was."""
    found = _differences(miss)
    if not found:
        return (short(miss.message, 400),)
    who = _sub_agent(miss.fields.get("path"), played)
    known = _since(accepted, played)
    told = [change.text for change in known]
    if not known and played.runs:
        told += _rulings(found, played)
    if not known:
        left = [each for each in found if not (told and each.kind in ("absent", "history"))]
        told += [who + (each.brief or each.sentence()) for each in left]
    else:
        left = [each for each in found if each.kind not in _BY_THE_JOURNAL and each.kind != "absent"]
        told += [who + each.sentence() for each in left]
    cause = miss.fields.get("cause")
    if isinstance(cause, str) and cause.startswith("the spec's section"):
        told.append(short(cause, 400))
    return tuple(told) or tuple(who + each.sentence() for each in found)


def sections_changed(found: Found, prepared: Prepared) -> tuple[str, ...]:
    """Which sections of the spec are not those that a case was recorded with. Nothing: none, or it is not known."""
    try:
        tape = prepared.load_cassette(found)
    except AgentrunError:
        return ()
    names = changed_sections(tape.metadata, Here(sections=prepared.file.sections))
    return (of_sections(names),) if names else ()


def _sub_agent(path: object, played: Played) -> str:
    """`the sub-agent reader: `. Nothing: it is the run itself that asked."""
    if not isinstance(path, str) or not played.runs:
        return ""
    above = ""
    calls = Trail(played.runs[-1]).calls
    for call in _CALL.findall(path):
        level = (each.tool for each in calls if each.id == call and each.tool.startswith(above))
        tool = next((tool for tool in level if "/" not in tool[len(above) :]), call)
        above = f"{tool if tool.startswith(above) else above + tool}/"
    return f"the sub-agent {short(above[:-1])}: " if above else ""


def _differences(miss: AgentrunError) -> list[Difference]:
    try:
        return msgspec.convert(miss.fields.get("differences", []), list[Difference])
    except msgspec.ValidationError:
        return []


def _since(accepted: str | None, played: Played) -> tuple[Change, ...]:
    """What the runs did differently as far as they came, but for what the tape tells better."""
    if accepted is None or not played.runs:
        return ()
    found = changes_between(accepted, snapshot_of(played.runs), cut=True)
    return tuple(each for each in found if each.kind not in _BY_THE_TAPE and not _is_miss(each.after))


def _is_miss(value: Any) -> bool:
    """Whether something new in a journal is the miss itself."""
    code = look(value, "fault", "code") or look(value, "status")
    return isinstance(code, str) and code.startswith("cassette.")


def _rulings(found: list[Difference], played: Played) -> Iterator[str]:
    """The rulings on calls that are not recorded as they went: the last of each, if it held the call back.

    A call that a person let pass was not, and one that a person denied is told as that: the tape may know the question.
    """
    words = " ".join(each.words for each in found if each.kind in ("absent", "history", "question"))
    about = set(words.replace(":", " ").split())
    trail = Trail(played.runs[-1])
    ends = {(call.tool, call.id): call.status for call in trail.calls}  # of sub-agents alike, how it went in the last
    passed = {call for call, status in ends.items() if status == "ok"}
    passed |= {(each.target, each.subject) for each in trail.approvals if each.answer in APPROVED}
    answers = {(each.target, each.subject): each for each in trail.approvals}
    for target, ruling in {each.target: each for each in trail.rulings}.items():
        asked = target, ruling.subject
        name = target.rpartition("/")[2]
        if ruling.ruling not in _STRICT or asked in passed or not {name, wire_name(name)} & about:
            continue
        if (answer := answers.get(asked)) is not None:
            yield f"the answer about {short(target)} is now {answer.answer} by {short(answer.by)}"
        else:
            rules = by_rules(list(ruling.rules), ruling.reason)
            yield f"the ruling on {short(target)} is now {ruling.ruling} ({rules}), which the recording does not know"
