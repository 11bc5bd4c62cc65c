"""A run as data for a page: its head, its timeline, its story, and the details behind each line.

Rule 1  The story is that of `run_story`, line by line, so that the page and the terminal never disagree.
Rule 2  Nothing here reads files. What is not known is left out: a package, a cassette, the templates of a spec.
Rule 3  Long conversations stay linear: a request shows what is new since the request before it.
Rule 4  Texts are data. The page shows them as text, and only the page decides how they look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from agentrun.core import facts
from agentrun.core.budget import allowance, used_budgets
from agentrun.core.package import BUDGET_KINDS, Package, find_tool
from agentrun.core.package_tools import HttpTool
from agentrun.core.state import State
from agentrun.journal.family import ReadJournal, RunFamily, call_of
from agentrun.report.cassette_text import reply_lines, request_lines
from agentrun.report.formatting import OutputLine, format_budget, format_dollars, format_duration, format_time
from agentrun.report.ruling_explanation import TriedRule, explain_ruling
from agentrun.report.run_story import Story, StoryStep, make_story
from agentrun.spec.safe_text import plural, short_text

if TYPE_CHECKING:
    from agentrun.cassette.parsed_interaction import ModelExchange, ParsedCassette, ParsedInteraction

BarKind: TypeAlias = Literal["model", "tool", "retry", "wait", "approval", "child", "hook", "delivery"]
Line: TypeAlias = tuple[str, str, int]
"""Text, tone and indent."""
_SHORT_FINGERPRINT = len("sha256:") + 12
EntryPlace: TypeAlias = tuple[int, int]
"""The run, by its index, and the number of the record."""


class BudgetBar(Struct, frozen=True):
    name: str
    text: str
    """`1.2k of 50k tokens`."""
    used: int
    limit: int | None


class TurnUsage(Struct, frozen=True):
    entry: int
    turn: int
    tokens: int
    cost: int


class Bar(Struct, frozen=True):
    entry: int
    kind: BarKind
    label: str
    start: int
    """Milliseconds since the beginning of the run."""
    end: int


class PromptText(Struct, frozen=True, omit_defaults=True):
    """A line of the prompt."""

    text: str
    place: str = ""
    """`specs/prompts/support.md.j2:5`."""
    params: tuple[str, ...] = ()
    """The params that the line of the template uses."""


class Prompt(Struct, frozen=True):
    lines: tuple[PromptText, ...]
    changes: tuple[str, ...] = ()
    """What is different in the cassette."""


class RecordedExchange(Struct, frozen=True, omit_defaults=True):
    """An interaction of the cassette."""

    number: int
    line: int
    """Where it begins in the file."""
    request: tuple[str, ...]
    reply: tuple[str, ...]
    same_as: int | None = None
    """The earlier interaction whose first messages are the same, and are not repeated."""
    kept: int = 0
    """How many messages are the same."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """A record of a journal."""

    run: int
    seq: int
    at: int
    """Milliseconds since the beginning of the run."""
    kind: str
    turn: int
    fact: Any
    lines: tuple[Line, ...] = ()
    call: str | None = None
    rules: tuple[TriedRule, ...] = ()
    default: str | None = None
    """The default of the policy, if no rule matched."""
    budgets: tuple[BudgetBar, ...] = ()
    """Left out if nothing changed since the entry before it."""
    guards: tuple[str, ...] = ()
    exchange: int | None = None
    """The interaction that answered it, by its index."""


class RunPart(Struct, frozen=True):
    """A run of the family: the root first, then its sub-agents."""

    run: str
    agent: str
    depth: int
    records: int
    checked: str
    """Whether its chain and its end are those of the journal."""


class RunView(Struct, frozen=True, omit_defaults=True):
    title: str
    status: str
    head: tuple[Line, ...]
    facts: tuple[tuple[str, str], ...]
    """What the header lists: agent, case, package, source, match tier, time."""
    runs: tuple[RunPart, ...]
    entries: tuple[Entry, ...]
    bars: tuple[Bar, ...]
    budgets: tuple[BudgetBar, ...]
    usage: tuple[TurnUsage, ...]
    end: tuple[Line, ...]
    prompt: Prompt | None = None
    exchanges: tuple[RecordedExchange, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands to copy."""


class ViewSource(Struct, frozen=True, kw_only=True):
    """What is known about a run besides its journal."""

    source: str
    """`replayed from cassettes/support/default.yaml`, `run run-5f0c of the store`."""
    case: str | None = None
    tier: str | None = None
    cassette: ParsedCassette | None = None
    prompt: Prompt | None = None
    commands: tuple[str, ...] = ()


def view_run(family: RunFamily, packages: Mapping[str, Package], source: ViewSource) -> RunView:
    story = make_story(family, packages)
    journals = list({id(step.journal): step.journal for step in story.steps}.values())
    indexes = {id(journal): index for index, journal in enumerate(journals)}
    exchanges = () if source.cassette is None else tuple(_exchanges(source.cassette))
    answered = {} if source.cassette is None else _match(story.steps, indexes, source.cassette, family.root)
    entries = tuple(_entries(story, indexes, answered))
    last = next(step for step in reversed(story.steps) if step.journal is family.root)
    started = family.root.started
    return RunView(
        title=short_text(started.agent) + (f" · {short_text(source.case)}" if source.case else ""),
        status=_status(family.root),
        head=_lines(story.head),
        facts=tuple(_header_facts(family.root, last, source)),
        runs=tuple(_part(journal) for journal in journals),
        entries=entries,
        bars=tuple(_bars(story.steps)),
        budgets=_budgets(last.package, last.after),
        usage=tuple(_usage(story.steps)),
        end=_lines(story.end),
        prompt=source.prompt or Prompt(tuple(PromptText(text) for text in started.instructions.split("\n"))),
        exchanges=exchanges,
        commands=source.commands,
    )


def _status(journal: ReadJournal) -> str:
    last = journal.records[-1].fact
    return last.status if isinstance(last, facts.RunStopped) else "not finished"


def _lines(lines: Sequence[OutputLine]) -> tuple[Line, ...]:
    return tuple((line.text, line.tone, line.indent) for line in lines)


def _part(journal: ReadJournal) -> RunPart:
    parent = journal.started.parent
    if journal.error is not None:
        checked = f"damaged: {short_text(journal.error.message)}"
    else:
        head = ", and its head names the last record" if journal.has_head else ""
        checked = f"the chain of {plural(journal.length, 'record')} is intact{head}"
    return RunPart(
        run=short_text(str(journal.run)),
        agent=short_text(journal.started.agent),
        depth=parent.depth if parent else 0,
        records=journal.length,
        checked=checked,
    )


def _header_facts(journal: ReadJournal, last: StoryStep, source: ViewSource) -> Iterator[tuple[str, str]]:
    started, state = journal.started, last.after
    yield "agent", short_text(started.agent)
    if source.case:
        yield "case", short_text(source.case)
    yield "package", short_text(started.package[:_SHORT_FINGERPRINT])
    yield "source", source.source
    yield "mode", "replayed" if started.replayed else "live"
    if source.tier:
        yield "match tier", source.tier
    yield "outcome", _outcome(journal)
    yield "turns", str(state.turns)
    yield "calls", str(state.meter.tool_calls)
    yield "spent", f"{format_budget('tokens', state.meter.tokens)}, {format_dollars(state.meter.cost)}"
    yield "started", format_time(journal.records[0].at)
    yield "took", format_duration(max(state.elapsed, 0))


def _outcome(journal: ReadJournal) -> str:
    last = journal.records[-1].fact
    if not isinstance(last, facts.RunStopped):
        return "not finished"
    return last.status if last.fault is None else f"{last.status}: {short_text(last.fault.code)}"


# --- entries --------------------------------------------------------------------------------------------------------


def _entries(story: Story, indexes: Mapping[int, int], answered: Mapping[EntryPlace, int]) -> Iterator[Entry]:
    start = story.steps[0].record.at
    shown: dict[int, tuple[BudgetBar, ...]] = {}
    for step in story.steps:
        run, record, fact = indexes[id(step.journal)], step.record, step.record.fact
        budgets = _budgets(step.package, step.after)
        is_new = budgets != shown.get(run)
        shown[run] = budgets
        rules, default = _rules(step)
        yield Entry(
            run=run,
            seq=record.seq,
            at=record.at - start,
            kind=facts.fact_kind(fact),
            turn=step.after.turns,
            fact=_plain(fact),
            lines=_lines(step.lines),
            call=call_of(fact) if not isinstance(fact, facts.UnknownFact) else None,
            rules=rules,
            default=default,
            budgets=budgets if is_new else (),
            guards=tuple(_guards(step)),
            exchange=answered.get((run, record.seq)),
        )


def _plain(fact: facts.Fact | facts.UnknownFact) -> Any:
    return fact.data if isinstance(fact, facts.UnknownFact) else msgspec.to_builtins(fact)


def _rules(step: StoryStep) -> tuple[tuple[TriedRule, ...], str | None]:
    fact = step.record.fact
    if not isinstance(fact, facts.Ruled) or step.package is None:
        return (), None
    default = step.package.policy.default if fact.stage == "tool_call" else "allow"
    return explain_ruling(step.package, step.before, fact), None if fact.rules else default


def _budgets(package: Package | None, state: State) -> tuple[BudgetBar, ...]:
    if package is None or state.phase == "fresh":
        return ()
    limits = allowance(package, state)
    return tuple(
        BudgetBar(name, format_budget(name, max(used, 0), limit), max(used, 0), limit)
        for name, used in used_budgets(state, state.meter).items()
        for limit in [package.budgets.turns if name == "turns" else getattr(limits, name)]
        if name in BUDGET_KINDS and (limit is not None or used)
    )


def _guards(step: StoryStep) -> Iterator[str]:
    """What the guards count after a reply, where it is more than one."""
    if not isinstance(step.record.fact, facts.ModelReplied) or step.package is None:
        return
    guards, detector = step.package.guards, step.after.detector
    if guards.repeated_batch is not None and detector.in_a_row > 1:
        yield f"the same batch of calls: {detector.in_a_row} in a row, {guards.repeated_batch} are allowed"
    if guards.repeated_call is not None and detector.call_streaks[0]:
        count = detector.call_streaks[0] + 1
        yield f"the same call: {count} in a row, {guards.repeated_call} stop the run"
    if guards.empty_outcome is not None and detector.empty:
        yield f"stops without a tool call: {detector.empty} of {guards.empty_outcome}"


# --- timeline -------------------------------------------------------------------------------------------------------


def _bars(steps: Sequence[StoryStep]) -> Iterator[Bar]:
    """One bar for each thing that took time. What did not end, ends with the last record."""
    start, last = steps[0].record.at, max(step.record.at for step in steps)
    ends = {key: step.record.at for step in steps if (key := _end_key(step)) is not None}
    for index, step in enumerate(steps):
        found = _begun(step)
        if found is not None:
            kind, label, key, until = found
            end = until if until is not None else ends.get((id(step.journal), *key), last)
            yield Bar(index, kind, label, step.record.at - start, max(end, step.record.at) - start)


def _end_key(step: StoryStep) -> tuple[Any, ...] | None:
    match step.record.fact:
        case facts.ModelReplied(effect=effect) | facts.ModelFailed(effect=effect) | facts.HookAnswered(effect=effect):
            key = ("effect", effect)
        case facts.ToolFinished(call=call) | facts.CallCancelled(call=call) | facts.ChildSuspended(call=call):
            key = ("call", call)
        case facts.ApprovalAnswered(question=question):
            key = ("question", question)
        case facts.DeliveryFinished(sink=sink):
            key = ("sink", sink)
        case _:
            return None
    return (id(step.journal), *key)


def _begun(step: StoryStep) -> tuple[BarKind, str, tuple[str, str], int | None] | None:
    """The kind, the label and the key of its end, or the time of its end."""
    match step.record.fact:
        case facts.ModelAsked() as asked:
            what = "summary" if asked.purpose == "compact" else f"turn {asked.turn}"
            return "model", f"{what} · {short_text(asked.route)}", ("effect", asked.effect), None
        case facts.ToolStarted() as tool:
            return "tool", short_text(tool.tool), ("call", tool.call), None
        case facts.ChildStarted() as child:
            return "child", short_text(child.tool), ("call", child.call), None
        case facts.RetryPlanned() as retry:
            return "retry", f"waits {format_duration(retry.wait)} before the next attempt", ("", ""), retry.until
        case facts.ApprovalAsked() as asked:
            return "approval", f"approval of {short_text(asked.target)}", ("question", asked.question), None
        case facts.HookAsked() as asked:
            return "hook", f"hook {short_text(asked.hook)}", ("effect", asked.effect), None
        case facts.DeliveryStarted() as delivery:
            return "delivery", f"delivery to {short_text(delivery.sink)}", ("sink", delivery.sink), None
        case facts.Ruled(ruling="defer") as ruled if ruled.until is not UNSET:
            return "wait", f"deferred until {format_time(ruled.until)}", ("", ""), ruled.until
    return None


def _usage(steps: Sequence[StoryStep]) -> Iterator[TurnUsage]:
    for index, step in enumerate(steps):
        fact = step.record.fact
        if isinstance(fact, facts.ModelReplied):
            usage = fact.reply.usage
            tokens = 0 if usage is None else (usage.input or 0) + (usage.output or 0)
            yield TurnUsage(index, fact.turn, tokens, fact.cost)


# --- the cassette ---------------------------------------------------------------------------------------------------


def _match(
    steps: Sequence[StoryStep], indexes: Mapping[int, int], cassette: ParsedCassette, root: ReadJournal
) -> dict[EntryPlace, int]:
    """The interaction behind each record that began one: the next of the same run, kind and name."""
    waiting: dict[tuple[str, str], deque[int]] = {}
    for index, each in enumerate(cassette.interactions):
        waiting.setdefault((each.recorded.path, _interaction_key(each)), deque()).append(index)
    found: dict[EntryPlace, int] = {}
    for step in steps:
        key = _step_key(step)
        path = str(step.journal.run).removeprefix(str(root.run)).removeprefix(".")
        queue = waiting.get((path, key)) if key is not None else None
        if queue:
            found[indexes[id(step.journal)], step.record.seq] = queue.popleft()
    return found


def _interaction_key(each: ParsedInteraction) -> str:
    return each.kind if each.kind in ("model", "http") else each.recorded.request.url


def _step_key(step: StoryStep) -> str | None:
    match step.record.fact:
        case facts.ModelAsked():
            return "model"
        case facts.ToolStarted() as tool:
            declared = None if step.package is None else find_tool(step.package, tool.tool)
            return "http" if isinstance(declared, HttpTool) else f"tool://{tool.tool}"
        case facts.ApprovalAsked() as asked:
            return f"approval://{asked.target}"
        case facts.HookAsked() as asked:
            return f"hook://{asked.hook}"
        case facts.DeliveryStarted() as delivery:
            return f"sink://{delivery.sink}"
    return None


def _exchanges(cassette: ParsedCassette) -> Iterator[RecordedExchange]:
    earlier: dict[str, ParsedInteraction] = {}
    for each in cassette.interactions:
        recorded = each.recorded
        before = earlier.get(recorded.path)
        kept, same_as = 0, None
        if each.exchange is not None:
            if before is not None and before.exchange is not None:
                kept = _same_messages(before.exchange, each.exchange)
                same_as = before.number if kept else None
            earlier[recorded.path] = each
        yield RecordedExchange(
            number=each.number,
            line=recorded.line,
            request=tuple(request_lines(each, kept)),
            reply=tuple(reply_lines(each)),
            same_as=same_as,
            kept=kept,
        )


def _same_messages(before: ModelExchange, after: ModelExchange) -> int:
    one, two = before.request, after.request
    if (one.instructions, one.tools, one.settings) != (two.instructions, two.tools, two.settings):
        return 0
    pairs = zip(one.messages, two.messages, strict=False)
    return next((index for index, (was, now) in enumerate(pairs) if was != now), len(one.messages))
