"""Runs of many shapes, for the golden journals in tests/journal/golden.

`python -m tests.journal.shapes` writes those of this release: <shape>.jsonl, its canonical form <shape>.yaml, and what
it comes to, <shape>.json. Released journals stay for good: the next version of the rules gets a folder of its own.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentrun.canonical_json import pretty_json
from agentrun.core.effects import RunChild
from agentrun.core.evolve import fold
from agentrun.core.facts import (
    RULES_VERSION,
    CallSettled,
    CancelRequested,
    ChildSuspended,
    Deny,
    Inject,
    MessageQueued,
    Record,
    RunResumed,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Reasoning, Text, User
from agentrun.core.messages import user_message as message
from agentrun.core.outcome import outcome_of
from agentrun.core.spend import ChildSpend
from agentrun.core.transitions import lost_work
from agentrun.journal.canonical import canonical
from agentrun.journal.storage import MemoryJournal, read_journal_file

from ..core.script import (
    RUN_STARTED,
    SINK,
    Run,
    RunWaits,
    agent_tool,
    calls_reply,
    hook,
    rule,
    text_reply,
    tool,
    writing,
)
from ..packages import ROUTE, package, typed
from .journals import GOLDEN

ALLOW = {"default": "allow"}
READS = {"search": tool(), "read": tool(function="read")}
INVALID_ANSWER, VALID_ANSWER = '{"queue": "kitchen"}', '{"queue": "hardware", "urgent": true}'
OVERLOADED = Fault("provider.overloaded", "too many requests", {"status": 529})


def plain() -> Run:
    return Run(package(), text_reply(Reasoning("c2VjcmV0", "openai/gpt-4.1-mini"), "Hello"))


def repaired() -> Run:
    return Run(typed(), text_reply(INVALID_ANSWER), text_reply(VALID_ANSWER))


def shared() -> Run:
    """Identical reads, of which one runs."""
    return Run(package(tools=READS, policy=ALLOW), calls_reply("search", "read", "search"), text_reply("Done."))


def parallel() -> Run:
    """Three calls, the last one done first."""
    agent = package(tools=READS, policy=ALLOW)
    batch = calls_reply(("search", '{"q": "printer"}'), "read", "unknown", text="Let me look.")
    return Run(agent, batch, text_reply("Found it."), pick=lambda count: count - 1, takes=10)


def approved() -> Run:
    agent = package(
        tools={"refund": writing()}, policy={"rules": [rule("ask", "refund", id="big", reason="a person signs off")]}
    )
    return Run(agent, calls_reply(("refund", '{"q": "50"}')), text_reply("Refunded."), people={"refund": "approved"})


def denied() -> Run:
    agent = package(tools={"refund": writing(), **READS}, policy={"rules": [rule("allow", "search")]})
    return Run(agent, calls_reply("refund", "search"), text_reply("I may not."))


def rewritten() -> Run:
    rules = [rule("allow", "*"), rule("modify", "search", id="safe", set={"q": "printers"})]
    return Run(
        package(tools=READS, policy={"rules": rules}), calls_reply(("search", '{"q": "all"}')), text_reply("Done.")
    )


def with_defaults() -> Run:
    args = {"type": "object", "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "default": 5}}}
    return Run(
        package(tools={"search": tool(args=args)}, policy=ALLOW),
        calls_reply(("search", '{"q": "a"}')),
        text_reply("Done."),
    )


def budget() -> Run:
    agent = package(tools=READS, policy=ALLOW, budgets={"turns": 2, "grace": 1})
    return Run(agent, calls_reply("search"), calls_reply("read"))


def retried() -> Run:
    """The first route fails for good, the second after a while."""
    second = {**ROUTE, "provider": "anthropic", "name": "claude-haiku-4-5"}
    agent = package(model={"routes": [ROUTE, second]}, retry={"attempts": 2})
    return Run(agent, OVERLOADED, OVERLOADED, OVERLOADED, text_reply("At last."))


def hooked() -> Run:
    hooks = [hook("on_input", id="greet"), hook("before_tool", id="guard"), hook("on_stop", id="log")]
    answers: dict[str, Any] = {"greet": Inject("Be kind."), "guard": Deny("not today")}
    return Run(
        package(tools=READS, policy=ALLOW, hooks=hooks), calls_reply("search"), text_reply("Sorry."), hooks=answers
    )


def delivered() -> Run:
    sinks = {"file": SINK, "spare": {**SINK, "delivery": "optional", "path": "spare.txt"}}
    return Run(package(sinks=sinks), text_reply("Hello"), sinks={"spare": Fault("delivery.failed", "it is full")})


def kept_back() -> Run:
    """A rule keeps the answer from a sink that need not have it."""
    rules = [rule("deny", "spare", on="delivery", reason="not outside")]
    return Run(package(sinks={"spare": {**SINK, "delivery": "optional"}}, policy={"rules": rules}), text_reply("Hello"))


def escalated() -> Run:
    agent = package(model={"max_output_tokens": 10}, limits={"on_truncated": "escalate"})
    return Run(agent, text_reply("Once upon", finish="length"), text_reply("Once upon a time."))


def compacted() -> Run:
    """The first summary is longer than what it sums up."""
    small = {**ROUTE, "context_window": 380}
    context = {"overflow": "compact", "keep": 1}
    agent = package(tools=READS, policy=ALLOW, model={"routes": [small]}, context=context)
    begun = replace(RUN_STARTED, input=message("It burns. " * 30))
    summaries = text_reply("It burns. " * 40), text_reply("It burns.")
    return Run(
        agent, calls_reply("search"), *summaries, text_reply("Done."), tools={"search": "x" * 400}, started=begun
    )


def cancelled() -> Run:
    run = Run(package(tools=READS, policy=ALLOW), calls_reply("search", "read"))
    run.until(ToolStarted)
    run.add(CancelRequested("me"))
    return run


def followed_up() -> Run:
    run = Run(package(), text_reply("Hello"), text_reply("Sure."))
    run.add(MessageQueued("q1", message("And the other one?")))
    return run


def resumed() -> Run:
    """The owner goes away while a call runs that must not run twice; somebody has it run again."""
    run = Run(package(tools={"pay": writing()}, policy=ALLOW), calls_reply("pay"), text_reply("Paid."))
    run.until(ToolStarted)
    run.under_way.clear()
    run.add(RunResumed("sha256:0"))
    for fact in lost_work(run.state):
        run.add(fact)
    run.add(CallSettled("c1.0", "retry", "me"))
    return run


BILLING = package(name="billing", input="Pay.")


def slept() -> Run:
    """A child that waits for somebody, and goes on when the run is taken up again."""
    results = [ChildSuspended("", ("c1.0",)), ToolFinished("", (Text("Paid."),))]
    agent = package(tools={"billing": agent_tool()}, agents={"billing": msgspec.to_builtins(BILLING)}, policy=ALLOW)
    run = Run(
        agent,
        calls_reply(("billing", '{"message": "Pay."}')),
        text_reply("Done."),
        tools={"billing": lambda _: results.pop(0)},
    )
    with suppress(RunWaits):
        run.finish()
    run.add(RunResumed("sha256:0"))
    return run


def with_child() -> Run:
    """The run and what its child wrote, under `inner`."""
    agent = package(tools={"billing": agent_tool()}, agents={"billing": msgspec.to_builtins(BILLING)}, policy=ALLOW)

    def work(effect: RunChild) -> tuple[str, ChildSpend]:
        mine = User(message(effect.message or "").parts)
        begun = replace(RUN_STARTED, run=effect.run, agent="billing", input=mine, parent=effect.parent)
        child = Run(effect.package, text_reply("Paid 50."), started=begun)
        outcome = child.finish()
        inner[effect.run] = child
        return str(outcome.answer), ChildSpend(outcome.tokens, outcome.cost, outcome.tool_calls)

    inner: dict[str, Run] = {}
    call = ("billing", '{"message": "Pay 50."}')
    run = Run(agent, calls_reply(call), text_reply("Done."), tools={"billing": work})
    run.inner = inner  # type: ignore[attr-defined]  # only this shape has any
    return run


SHAPES: dict[str, Callable[[], Run]] = {
    shape.__name__: shape
    for shape in (
        plain,
        repaired,
        parallel,
        shared,
        approved,
        denied,
        rewritten,
        with_defaults,
        budget,
        retried,
        hooked,
        delivered,
        kept_back,
        escalated,
        compacted,
        cancelled,
        followed_up,
        resumed,
        slept,
        with_child,
    )
}
"""What each gives is not finished yet."""


def write_journal(run: Run) -> MemoryJournal:
    """The journal of a run, as its owner would have written it."""
    journal, epoch = MemoryJournal(), 1
    for record in run.records:
        epoch += isinstance(record.fact, RunResumed)
        journal.append(Record(record.seq, record.at, epoch, journal.head, record.fact))
    return journal


def outcome_json(records: Iterable[Record]) -> str:
    """What a journal comes to: the outcome, what was said, and what is remembered for the session."""
    state = fold(records)
    outcome = msgspec.to_builtins(outcome_of(state))
    later = ("output", "questions", "until", "waits_for")  # with these defaults they were not part of an outcome
    whole = {
        "outcome": {name: value for name, value in outcome.items() if name not in later or value not in (None, ())},
        "messages": list(state.conversation.transcript),
        "texts": state.detector.texts.totals(),
        "batches": state.detector.batches.totals(),
        "grants": state.grants,
    }
    return pretty_json(whole)


def write() -> None:
    """Today's journals, and the derived files of all: a difference in those of an earlier release breaks a promise."""
    folder = GOLDEN / f"v{RULES_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in SHAPES.items():
        run = shape()
        run.finish()
        (folder / f"{name}.jsonl").write_bytes(write_journal(run).text())
        for child, inner in getattr(run, "inner", {}).items():
            (folder / f"{name}.{child}.jsonl").write_bytes(write_journal(inner).text())
    for path in golden():
        records = tuple(read_journal_file(path))
        path.with_suffix(".json").write_text(outcome_json(records), encoding="utf-8")
        path.with_suffix(".yaml").write_text(canonical(records, children(path)), encoding="utf-8")


def golden() -> list[Path]:
    return sorted(GOLDEN.glob("v*/*.jsonl"))


def children(path: Path) -> dict[str, tuple[Record, ...]]:
    """The journals of a run's children: beside its own, named after it."""
    beside = path.parent.glob(f"{path.stem}.*.jsonl")
    return {child.stem.removeprefix(f"{path.stem}."): tuple(read_journal_file(child)) for child in beside}


if __name__ == "__main__":
    write()
    sys.stderr.write(f"{len(golden())} journals\n")
