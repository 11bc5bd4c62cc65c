"""Progress lines for single facts: tool calls, hooks, policy decisions, approvals, model requests and the run.

Each function gets the state before the fact. The package is None if it is not known, as for a single journal file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from msgspec import UNSET

from agentrun.canonical_json import sorted_json
from agentrun.core import facts
from agentrun.core.call_validation import parse_arguments
from agentrun.core.effect_ids import DeliveryId, parse_effect_id
from agentrun.core.effects import route_name
from agentrun.core.fault import Fault
from agentrun.core.messages import Content, File, Image, Text, ToolCall, User, text_of
from agentrun.core.package import BUDGET_KINDS, Package, Ruling, find_tool
from agentrun.core.package_tools import HttpTool
from agentrun.core.policy import split_reason
from agentrun.core.spend import BudgetShare, ChildSpend
from agentrun.core.state import GateState, State, find_call
from agentrun.report.formatting import (
    MAX_LINE_LENGTH,
    OutputLine,
    Tone,
    format_budget,
    format_count,
    format_dollars,
    format_duration,
    format_time,
    make_line,
    preview_text,
)
from agentrun.spec.safe_text import plural, short_text

MAX_SHOWN_ARGUMENTS = 160
MAX_SHOWN_NAME = 60
"""Characters of a name, because a model may use a name of any length for a tool."""
SUBJECT_LABELS = {
    "input": "the input",
    "request": "the request",
    "reply": "the reply",
    "output": "the answer",
    "stop": "the end",
}
RULING_TEXTS: dict[Ruling, tuple[str, Tone]] = {
    "allow": ("allowed", "dim"),
    "modify": ("changed", "warn"),
    "ask": ("approved earlier in the session", "good"),
    "defer": ("deferred", "warn"),
    "deny": ("denied", "bad"),
    "interrupt": ("stopped", "bad"),
}
ANSWER_TEXTS: dict[facts.ApprovalAnswer, tuple[str, Tone]] = {
    "approved": ("approved by {}", "good"),
    "approved_for_session": ("approved for the session by {}", "good"),
    "denied": ("denied by {}", "bad"),
    "timed_out": ("no answer in time", "bad"),
    "cancelled": ("the question was cancelled by {}", "bad"),
    "unavailable": ("no one can answer the approval", "bad"),
}
MAX_SHOWN_ERRORS = 3
LABEL_TEXTS: dict[facts.AnswerLabel, str] = {
    "budget.turns": "the turn limit is reached: the last reply is the answer",
    "filtered": "the provider's content filter cut off the answer",
    "refused": "the model refuses to answer",
    "truncated": "the answer is cut off",
    "unknown_finish": "the provider gave no reason why the answer ended",
}
REASON_TEXTS: dict[facts.MessageReason, str] = {
    "wrap_up": "is asked to finish",
    "continue": "was cut off and is asked to continue",
    "nudge": "stopped and is asked to continue",
    "follow_up": "gets a message",
}


def render_call(package: Package | None, state: State, fact: facts.CallFact) -> tuple[OutputLine, ...]:
    if isinstance(fact, facts.ResultsGiven):
        return ()
    name = call_label(state, fact.call)
    match fact:
        case facts.ArgumentsCompleted():
            return (make_line(f"{name}: by default {_short_json(_filled_in(state, fact))}", "dim", 1),)
        case facts.CallRefused():
            return _render_refused_call(name, fact)
        case facts.CallCancelled():
            why = f"not needed after {call_label(state, fact.by)}" if fact.by else "cancelled because the run ends"
            return (make_line(f"✗ {name}: {why}", "warn", 1),)
        case facts.ToolStarted():
            return (make_line(f"→ {name} runs again", "warn", 1),) if _has_run(state, fact.call) else ()
        case facts.ResultShared():
            return (make_line(f"{name}: gets the result of the identical call {fact.source}", "dim", 1),)
        case facts.ChildStarted():
            return (_render_child(package, state, fact),)
        case facts.ToolFinished():
            return (_render_finished(state, fact),)
        case facts.ChildSuspended():
            waits_for = ", ".join(short_text(each, MAX_SHOWN_NAME) for each in fact.waits_for)
            return (make_line(f"{name}: the sub-agent is suspended and waits for {waits_for}", "warn", 1),)
        case facts.CallSettled():
            return (_render_settled(name, fact),)
        case _:
            assert_never(fact)


def render_requested_call(calls: Sequence[ToolCall], call: ToolCall) -> OutputLine:
    """The arguments are shown as the model wrote them; if they have several lines, as compact JSON."""
    text = call.arguments
    if "\n" in text and (found := parse_arguments(text)) is not None:
        text = sorted_json(found).decode()
    return make_line(f"→ {_label(calls, call)} {short_text(text.strip(), MAX_SHOWN_ARGUMENTS)}", indent=1)


def render_result(state: State, call: str, parts: Iterable[Content], spent: ChildSpend | None = None) -> OutputLine:
    cost = "" if spent is None else f" [{_format_spent(spent)}]"
    return make_line(f"← {call_label(state, call)}: {_format_contents(parts)}{cost}", "dim", 1)


def warn_empty_result(
    package: Package | None, state: State, call: str, parts: Iterable[Content]
) -> tuple[OutputLine, ...]:
    """Warn if `result` of an HTTP tool selected null. That is a valid result, but rarely intended."""
    tool = None if package is None else find_tool(package, tool_of_call(state, call))
    if not isinstance(tool, HttpTool) or tool.result is None or tuple(parts) != (Text("null"),):
        return ()
    return (make_line(f"`result` of {call_label(state, call)} selected nothing from the reply", "warn", 1),)


def call_label(state: State, call: str) -> str:
    """The name of a call: its tool, and its id if another call has the same tool."""
    found = find_call(state, call)
    if found is None:
        return short_text(call, MAX_SHOWN_NAME)
    return _label([each.call for each in state.calls], found.call)


def tool_of_call(state: State, call: str) -> str:
    found = find_call(state, call)
    return "" if found is None else found.call.tool


def _label(calls: Sequence[ToolCall], call: ToolCall) -> str:
    name = short_text(call.tool, MAX_SHOWN_NAME)
    is_only = sum(each.tool == call.tool for each in calls) < 2
    return name if is_only else f"{name} {short_text(call.id, MAX_SHOWN_NAME)}"


def _has_run(state: State, call: str) -> bool:
    found = find_call(state, call)
    return found is not None and found.counted


def _format_contents(parts: Iterable[Content]) -> str:
    texts, others = [], []
    for part in parts:
        match part:
            case Text():
                texts.append(part.text)
            case Image():
                others.append(f"[{short_text(part.media_type, MAX_SHOWN_NAME)}, {format_count(part.size)}B]")
            case File():
                others.append(f"[{short_text(part.name, MAX_SHOWN_NAME)}, {format_count(part.size)}B]")
            case _:
                assert_never(part)
    return " ".join([preview_text("".join(texts)), *others] if texts or not others else others)


def _render_finished(state: State, fact: facts.ToolFinished) -> OutputLine:
    if fact.fault is None:
        return render_result(state, fact.call, fact.parts, fact.spent)
    at = fact.fault.fields.get("at")  # the place in the project's code that raised the exception
    place = f" ({short_text(at, MAX_SHOWN_NAME)})" if isinstance(at, str) else ""
    fault = f"{short_text(fact.fault.code)}: {preview_text(fact.fault.message)}{place}"
    return make_line(f"← {call_label(state, fact.call)} failed: {fault}", "bad", 1)


def _render_refused_call(name: str, fact: facts.CallRefused) -> tuple[OutputLine, ...]:
    if fact.code == "tool.denied":
        return ()  # the line of the policy decision already says who denied it, and why
    text = preview_text(fact.told)
    text = text if text.startswith(fact.code) else f"{short_text(fact.code)}: {text}"
    return (make_line(f"✗ {name}: {text}", "warn", 1),)


def _render_settled(name: str, fact: facts.CallSettled) -> OutputLine:
    by = short_text(fact.by, MAX_SHOWN_NAME)
    match fact.how:
        case "retry":
            return make_line(f"{name}: runs again, as {by} decided", "warn", 1)
        case "result":
            return make_line(f"← {name}, result set by {by}: {_format_contents(fact.parts)}", "warn", 1)
        case "stop":
            return make_line(f"{name}: the run stops here, as {by} decided", "warn", 1)
        case _:
            assert_never(fact.how)


def _filled_in(state: State, fact: facts.ArgumentsCompleted) -> dict[str, Any]:
    """The arguments that are not as the model wrote them."""
    call = find_call(state, fact.call)
    before = (call and call.arguments) or {}
    return {name: value for name, value in fact.arguments.items() if name not in before or value != before[name]}


def _render_child(package: Package | None, state: State, fact: facts.ChildStarted) -> OutputLine:
    agent = None if package is None else package.agents.get(fact.tool)
    name = call_label(state, fact.call)
    who = f"the sub-agent {short_text(agent.name, MAX_SHOWN_NAME)}" if agent else "a sub-agent"
    verb = "continues" if _has_run(state, fact.call) else "starts"
    return make_line(f"{name}: {who} {verb}{_format_share(fact.share, agent)}", "plain", 1)


def _format_share(share: BudgetShare, agent: Package | None) -> str:
    """The budget of a child: its share of the parent's budget, or its own if that is less."""
    found = []
    for name in BUDGET_KINDS:
        if name in ("turns", "time"):  # turns are not shared, and the time that is left differs in every run
            continue
        limits = [getattr(each, name) for each in (share, agent.budgets if agent else share)]
        least = min((limit for limit in limits if limit is not None), default=None)
        if least is not None:
            found.append(format_budget(name, least))
    return f", with at most {', '.join(found)}" if found else ""


def _format_spent(spent: ChildSpend) -> str:
    amounts = {name: getattr(spent, name, 0) for name in BUDGET_KINDS}
    return ", ".join(format_budget(name, amount) for name, amount in amounts.items() if amount or name == "tokens")


def render_gate(_: Package | None, state: State, fact: facts.GateFact) -> tuple[OutputLine, ...]:
    match fact:
        case facts.HookAsked():
            return ()
        case facts.HookAnswered():
            return _render_hook_answer(state, fact)
        case facts.Ruled():
            return _render_ruling(state, fact)
        case facts.ApprovalAsked():
            line = f"? {subject_label(state, fact.subject)}: needs approval {_format_reason(fact.rules, fact.reason)}"
            return (make_line(line, "warn", 1), *_render_failed_conditions(fact.reason))
        case facts.ApprovalAnswered():
            text, tone = ANSWER_TEXTS[fact.answer]
            text = text.format(short_text(fact.by, MAX_SHOWN_NAME))
            text += "" if fact.reason is UNSET else f": {short_text(fact.reason)}"
            return (make_line(f"{subject_label(state, fact.subject)}: {text}", tone, 1),)
        case _:
            assert_never(fact)


def subject_label(state: State, name: str, *, after: bool = False) -> str:
    """The subject of a decision. `after`: the result of a call."""
    if name in SUBJECT_LABELS:
        return SUBJECT_LABELS[name]
    if isinstance(delivery := parse_effect_id(name), DeliveryId):
        return f"the delivery to {short_text(delivery.sink, MAX_SHOWN_NAME)}"
    named = call_label(state, name)
    return f"the result of {named}" if after else named


def _render_ruling(state: State, fact: facts.Ruled) -> tuple[OutputLine, ...]:
    return () if fact.ruling == "allow" else render_any_ruling(state, fact)


def render_any_ruling(state: State, fact: facts.Ruled) -> tuple[OutputLine, ...]:
    is_asked = fact.ruling == "ask" or fact.person is True
    if is_asked and not fact.granted:
        return ()  # the question has its own fact
    word, tone = RULING_TEXTS["ask" if is_asked else fact.ruling]
    word += "" if fact.until is UNSET else f" until {format_time(fact.until)}"
    what = subject_label(state, fact.subject, after=fact.stage == "tool_result")
    become = "" if fact.arguments is UNSET else f" → {_short_json(fact.arguments)}"
    line = make_line(f"{what}: {word} {_format_reason(fact.rules, fact.reason)}{become}", tone, 1)
    return (line, *_render_failed_conditions(fact.reason))


def until_text(gate: GateState) -> str:
    """The end of a deferral, if it has a time."""
    return "" if gate.until is None else f" until {format_time(gate.until)}"


def _short_json(arguments: Any) -> str:
    return short_text(sorted_json(arguments).decode(), MAX_SHOWN_ARGUMENTS)


def _format_reason(rules: tuple[str, ...], reason: str | None) -> str:
    by = f"by {', '.join(short_text(rule, MAX_SHOWN_NAME) for rule in rules)}" if rules else "by default"
    own, _ = split_reason(reason)
    return f"({by})" if own is None else f"({by}: {short_text(own)})"


def _render_failed_conditions(reason: str | None) -> tuple[OutputLine, ...]:
    """Why a rule matches, or does not match, although its condition has no value."""
    _, failures = split_reason(reason)
    return tuple(make_line(short_text(each, MAX_LINE_LENGTH), "warn", 2) for each in failures)


def _render_hook_answer(state: State, fact: facts.HookAnswered) -> tuple[OutputLine, ...]:
    what = subject_label(state, fact.subject, after=fact.point == "after_tool")
    hook = f"the hook {short_text(fact.hook, MAX_SHOWN_NAME)}"
    match fact.answer:
        case facts.Continue():
            return ()
        case facts.Deny(reason):
            return (make_line(f"{what}: denied by {hook}: {preview_text(reason)}", "bad", 1),)
        case facts.Modify(dict() as value):
            return (make_line(f"{what}: changed by {hook} → {_short_json(value)}", "warn", 1),)
        case facts.Modify():
            return (make_line(f"{what}: changed by {hook}", "warn", 1),)
        case facts.Inject(text):
            return (make_line(f"{hook} adds a message for the model: {preview_text(text)}", "warn", 1),)
        case facts.HookFailure(fault):
            meaning = "which counts as denied" if fact.closes else "and the run continues"
            why = f"{short_text(fault.code)}: {preview_text(fault.message)}"
            return (make_line(f"{what}: {hook} failed, {meaning}: {why}", "bad" if fact.closes else "warn", 1),)
        case _:
            assert_never(fact.answer)


def render_model(package: Package | None, state: State, fact: facts.ModelFact) -> tuple[OutputLine, ...]:
    match fact:
        case facts.ModelAsked(purpose="compact"):
            why = f"{_fault_line(state.requests.fault)}; " if state.phase == "failed" and state.requests.fault else ""
            return (make_line(f"{why}the model summarises the conversation", "warn", 1),)
        case facts.ModelAsked():
            if state.in_turn:
                return ()  # a retry in the same turn
            is_first = package is not None and fact.route == route_name(package.model.routes[0])
            named = "" if is_first else f" · {short_text(fact.route)}"
            return (make_line(f"turn {fact.turn}{named}"),)
        case facts.ModelReplied() | facts.ModelFailed():
            return ()  # RunRenderer shows replies; a failure is shown with the retry or the end of the run
        case facts.RetryPlanned():
            why = f"{_fault_line(state.requests.fault)}; " if state.requests.fault else ""
            attempt = f"attempt {state.requests.tries + 1}{_of(None if package is None else package.retry.attempts)}"
            return (make_line(f"{why}{attempt} in {format_duration(fact.wait)}", "warn", 1),)
        case facts.RouteSwitched():
            return (make_line(f"{_fault_line(fact.fault)}; continues with {short_text(fact.target)}", "warn", 1),)
        case facts.ReplyDiscarded():
            cap = format_count(fact.cap)
            return (make_line(f"the reply was cut off; requested again with up to {cap} tokens", "warn", 1),)
        case _:
            assert_never(fact)


def render_usage(fact: facts.ModelReplied) -> tuple[OutputLine, ...]:
    """What a reply used, as the provider reported it."""
    usage = fact.reply.usage
    if usage is None:
        return (make_line("the provider did not report what it used", "dim", 1),)
    read = "an unknown number of" if usage.input is None else format_count(usage.input)
    written = "an unknown number" if usage.output is None else format_count(usage.output)
    cost = f", {format_dollars(fact.cost)}" if fact.cost else ""
    return (make_line(f"{read} tokens in, {written} out{cost}", "dim", 1),)


def render_run(package: Package | None, state: State, fact: facts.RunFact) -> tuple[OutputLine, ...]:
    match fact:
        case facts.RunStarted():
            message = "continues" if fact.input is None else _preview_message(fact.input)
            line = make_line(f"{short_text(fact.agent, MAX_SHOWN_NAME)}: {message}", "dim")
            return (line, *_history_lines(fact.earlier))
        case facts.MessageQueued():
            return (make_line(f"a message is queued: {_preview_message(fact.message)}", "warn", 1),)
        case facts.CancelRequested():
            return (make_line(f"cancelled by {short_text(fact.by, MAX_SHOWN_NAME)}", "warn", 1),)
        case facts.RunResumed():
            other = "" if fact.package == state.package else ", with another package"
            return (make_line(f"the run is resumed{other}", "warn"),)
        case facts.WorkLost():
            return (
                make_line(f"{lost_work_label(state, fact.effect)} was lost: it may or may not have run", "warn", 1),
            )
        case facts.ModelTold():
            return tuple(
                make_line(f"the model {REASON_TEXTS[fact.why]}: {_preview_message(each)}", "warn", 1)
                for each in fact.messages
            )
        case facts.ContextCompacted():
            sizes = f"{format_count(fact.before)} tokens became {format_count(fact.after)}"
            return (make_line(f"{plural(fact.replaced, 'message')} summarised: {sizes}", "warn", 1),)
        case facts.CompactionFailed():
            count = f"failure {fact.failures}{_of(None if package is None else package.context.failures)}"
            return (make_line(f"the summary cannot be used: {fact.reason.replace('_', ' ')}, {count}", "bad", 1),)
        case facts.OutputRefused():
            return _render_refused_output(package, state, fact)
        case facts.AnswerReached():
            return () if fact.label is None else (make_line(LABEL_TEXTS[fact.label], "warn", 1),)
        case facts.DeliveryFinished():
            return (_render_delivery(state, fact),)
        case facts.DeliveryStarted() | facts.DeliverySkipped() | facts.TimePassed():
            return ()  # the reason for a skipped delivery already has its own line
        case facts.RunEnding():
            return render_end(fact.stop)
        case facts.RunStopped():
            return render_end(fact)
        case _:
            assert_never(fact)


def render_end(stop: facts.RunStopped, *, is_child: bool = False) -> tuple[OutputLine, ...]:
    """The end of a run. A run that completed ends with its answer, which is not shown here; a child needs a line."""
    if stop.fault is None:
        return (make_line(stop.status, "good"),) if is_child else ()
    hint = (make_line(f"→ {preview_text(stop.fault.hint)}", "dim", 1),) if stop.fault.hint else ()
    return (make_line(_fault_line(stop.fault), "bad"), *hint)


def _render_refused_output(package: Package | None, state: State, fact: facts.OutputRefused) -> tuple[OutputLine, ...]:
    repair = f"repair {state.ending.repairs + 1}{_of(None if package is None else package.output.repairs)}"
    more = len(fact.errors) - MAX_SHOWN_ERRORS
    return (
        make_line(f"the answer does not match the output schema, {repair}", "warn", 1),
        *(make_line(preview_text(error), "warn", 2) for error in fact.errors[:MAX_SHOWN_ERRORS]),
        *((make_line(f"… and {more} more", "warn", 2),) if more > 0 else ()),
    )


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit}"


def _render_delivery(state: State, fact: facts.DeliveryFinished) -> OutputLine:
    sink = short_text(fact.sink, MAX_SHOWN_NAME)
    if fact.fault is None:
        if state.phase != "fresh" and state.started.replayed:
            return make_line(f"delivered to {sink} when it was recorded; a replay delivers nothing", "dim", 1)
        return make_line(f"delivered to {sink}", "good", 1)
    return make_line(f"not delivered to {sink}: {_fault_line(fact.fault)}", "bad", 1)


def lost_work_label(state: State, effect: str) -> str:
    """The effect that was lost. A call is shown with its id, which is needed to settle it."""
    if state.requests.asking is not None and state.requests.asking.effect == effect:
        return "the request"
    if tool := tool_of_call(state, effect):
        return f"{short_text(tool, MAX_SHOWN_NAME)} ({short_text(effect, MAX_SHOWN_NAME)})"
    return subject_label(state, effect)


def _history_lines(earlier: facts.EarlierRuns) -> Iterator[OutputLine]:
    """Where the messages before the input come from. Later ones came with the request."""
    if earlier.origins is not UNSET and earlier.origins:
        count = sum(each.messages for each in earlier.origins)
        last = short_text(earlier.origins[-1].run, MAX_SHOWN_NAME)
        runs = plural(len(earlier.origins), "run")
        yield make_line(f"history: {plural(count, 'message')} of {runs}, the last is {last}", "dim", 1)


def _preview_message(message: User) -> str:
    return preview_text(text_of(message.parts))


def _fault_line(fault: Fault) -> str:
    return f"{short_text(fault.code, MAX_SHOWN_NAME)}: {preview_text(fault.message)}"
