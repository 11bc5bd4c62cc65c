"""What the journals of a recorded run say about its recording: which interactions are finished, and which results came
from a person.

A process may die between the interaction and its fact. Then the resumed run starts the effect again, and its
interaction is dropped from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentrun.cassette.recording_log import LoggedInteraction
from agentrun.core import facts
from agentrun.core.effect_ids import DeliveryId
from agentrun.core.effects import RunTool, ToolReturn
from agentrun.core.evolve import fold
from agentrun.core.facts import Record
from agentrun.core.messages import Text
from agentrun.core.package import Package, find_tool
from agentrun.core.package_tools import HttpTool
from agentrun.core.state import find_call
from agentrun.core.tool_calls import make_run_tool
from agentrun.engine import cassette_encoding as encoding
from agentrun.engine.memory import Journals
from agentrun.engine.ports import Blobs
from agentrun.errors import RequestError
from agentrun.tools.http import build_request, http_result
from agentrun.wire import HttpCall, HttpReply

_TEXT = (("content-type", "text/plain; charset=utf-8"),)


class _RunHistory(Struct, frozen=True):
    path: str
    package: Package
    records: tuple[Record, ...]


class RecordedHistory:
    def __init__(self, journals: Journals, run: str, package: Package) -> None:
        self._runs = list(_histories(journals, run, package, ""))
        last = self._runs[0].records[-1].fact
        self.is_finished = isinstance(last, facts.RunStopped)

    def keep_finished(self, logged: Sequence[LoggedInteraction]) -> list[LoggedInteraction]:
        """The interactions whose effects are finished, numbered from 1 in the order of their requests."""
        finished = {(each.path, effect) for each in self._runs for effect in _finished_effects(each.records)}
        settled = {(each.path, fact.call) for each in self._runs for fact in _settlements(each.records)}
        kept = [each for each in logged if each.is_settled == (each.key in settled) and each.key in finished]
        kept.sort(key=lambda each: each.number)
        return [replace(each, number=number) for number, each in enumerate(kept, 1)]

    def documents(self) -> Iterator[bytes]:
        """The texts of the runs, as JSON."""
        for each in self._runs:
            for record in each.records:
                if (content := _content(record.fact)) is not None:
                    yield msgspec.json.encode(content)

    def settled_calls(
        self, kept: Sequence[LoggedInteraction], blobs: Blobs
    ) -> Iterator[tuple[HttpCall, HttpReply, str]]:
        """The calls that have their result from a person and are not in the log: request, reply and path."""
        known = {each.key for each in kept}
        for run in self._runs:
            for fact in _settlements(run.records):
                if (run.path, fact.call) not in known:
                    effect = _effect_of_call(run, fact)
                    yield *_exchange(effect, fact, blobs), run.path


def _histories(journals: Journals, run: str, package: Package, path: str) -> Iterator[_RunHistory]:
    records = tuple(journals.records(run))
    yield _RunHistory(path, package, records)
    children = {each.fact.run: each.fact for each in records if isinstance(each.fact, facts.ChildStarted)}
    for child, fact in children.items():
        if child in journals:
            inner = f"{path}.{fact.call}" if path else fact.call
            yield from _histories(journals, child, package.agents[fact.tool], inner)


def _finished_effects(records: Sequence[Record]) -> set[str]:
    finished: set[str] = set()
    questions: dict[str, str] = {}
    for record in records:
        match record.fact:
            case facts.ModelReplied(effect=effect) | facts.ModelFailed(effect=effect):
                finished.add(effect)
            case facts.HookAnswered(effect=effect):
                finished.add(effect)
            case facts.ToolFinished(call=call) | facts.CallSettled(call=call, how="result"):
                finished.add(call)
            case facts.CallSettled(call=call):
                finished.discard(call)
            case facts.CallCancelled(call=call):
                finished |= {call, questions.get(call, "")}
            case facts.DeliveryFinished(sink=sink):
                finished.add(str(DeliveryId(sink)))
            case facts.ApprovalAsked(subject=subject, question=question):
                questions[subject] = question
            case facts.ApprovalAnswered(question=question):
                finished.add(question)
    return finished


def _settlements(records: Sequence[Record]) -> Iterator[facts.CallSettled]:
    for record in records:
        if isinstance(record.fact, facts.CallSettled) and record.fact.how == "result":
            yield record.fact


def _content(fact: facts.Fact) -> Any:
    match fact:
        case facts.RunStarted():
            return [fact.input, fact.params, fact.instructions]
        case facts.ModelReplied(reply=content):
            return content
        case facts.ToolFinished(parts=content) | facts.CallSettled(parts=content):
            return content
        case facts.HookAnswered(answer=content):
            return content
    return None


def _effect_of_call(run: _RunHistory, fact: facts.CallSettled) -> RunTool:
    before = [each for each in run.records if each.fact is not fact]
    state = fold(before[: next(n for n, each in enumerate(run.records) if each.fact is fact)])
    call = find_call(state, fact.call)
    assert call is not None, "a call that is not there cannot be settled"
    tool = find_tool(run.package, call.tool)
    assert tool is not None, "a call that is settled was started"
    return make_run_tool(run.package, state, call, tool)


def _exchange(effect: RunTool, fact: facts.CallSettled, blobs: Blobs) -> tuple[HttpCall, HttpReply]:
    """The call as if it had returned what the person gave."""
    if not isinstance(effect.tool, HttpTool):
        return encoding.encode_tool_call(effect), encoding.encode_tool_result(ToolReturn(fact.parts), blobs)
    text = "".join(part.text for part in fact.parts if isinstance(part, Text))
    reply = HttpReply(200, _TEXT, text.encode("utf-8", "replace"))
    if http_result(effect, reply).parts != fact.parts:
        message = f"the result of {effect.name} ({effect.id}) that a person gave cannot be recorded"
        hint = "record the case again"
        raise RequestError("run.invalid_state", message, hint=hint, fields={"call": effect.id, "tool": effect.name})
    return build_request(effect), reply
