"""The rendered lines of a run, which never contain the answer."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from agentrun.core.facts import CompactionFailed, Fact, ModelReplied, Record, fact_kind
from agentrun.core.fault import Fault
from agentrun.core.messages import Usage
from agentrun.core.outcome import outcome_of
from agentrun.report.formatting import MAX_LINE_LENGTH, MAX_PARAGRAPH_LINES, OutputLine
from agentrun.report.run_renderer import FACT_RENDERERS, RunRenderer, outcome_summary
from agentrun.spec.safe_text import short_text

from ..core.component_key_cases import TOOLS
from ..core.script import RUN_STARTED, SINK, Run, calls_reply, hook, rule, text_reply, tool
from ..core.shape_parts import policy
from ..core.shapes import SHAPES
from ..journal.journals import ANY_FACT, KINDS
from ..journal.shapes import SHAPES as JOURNALS
from ..packages import package, typed
from .rendered_runs import HOSTILE, finished, lines_of, text_of, typical

RUNS = {**SHAPES, **{f"journal_{name}": make for name, make in JOURNALS.items()}}
SILENT = {
    "delivery_skipped",
    "delivery_started",
    "hook_asked",
    "model_failed",
    "time_passed",
}
"""Facts without a line of their own: they prepare, or are told with what follows or came before."""

TYPICAL = """\
triage: It burns.
turn 1
  I look
  them up.
  → search c1.0 {"q": "1042"}
  → search c1.1 {"q":"1043"}
  → nothing {}
  ✗ nothing: tool.unknown: there is no tool 'nothing'; available tools: billing, mail, refund, search
  ← search c1.0: late (2 lines, 16B)
  ← search c1.1 failed: tool.timeout: slow
turn 2
  provider.rate_limited: the provider answered 429: slow down; attempt 2 of 2 in 2s
  → refund {"q": "900"}
  → mail {"q": "ada@example.com"}
  ? refund: needs approval (by big-refunds: a person signs off refunds above 50)
  mail: denied (by no-mail: nobody is written to)
  refund: approved by somebody
  ← refund: done
turn 3
  provider.rate_limited: the provider answered 429: slow down; attempt 2 of 2 in 2s
  provider.rate_limited: the provider answered 429: slow down; continues with anthropic/claude-haiku-4-5
  → billing {"message": "Pay 50."}
  billing: the sub-agent billing starts, with at most 49.9k tokens, $0.249952, 16 calls
    billing: Pay 50.
    turn 1
      → pay {"q": "50"}
      ← pay: done
    turn 2
    completed
  ← billing: Paid 50. [50 tokens, 1 call]
turn 4 · anthropic/claude-haiku-4-5
  {"queue": "kitchen"}
  the answer does not match the output schema, repair 1 of 2
    /queue: the value is not one of "billing", "hardware" or "other"
    the answer: "urgent" is a required property
turn 5 · anthropic/claude-haiku-4-5
[turn 5 of 12 · 175 of 50k tokens · $0.00008 of $0.25 · 5 of 20 calls · 7s of 2m]
"""


def test_typical_run_with_sub_agent_and_summary() -> None:
    nested = typical()
    outcome = nested.run.finish()
    assert nested.rendered_text() == TYPICAL
    assert (
        outcome_summary(outcome)
        == "completed in 5 turns, 100 tokens in, 25 out, 50 more in 1 sub-agent, 5 tool calls, $0.00008"
    )


@pytest.mark.parametrize("name", RUNS)
def test_lines_of_every_run_shape(name: str, snapshot: SnapshotAssertion) -> None:
    run = finished(RUNS[name]())
    story = RunRenderer(run.first)
    lines = [line for record in run.records for line in story.render(record)]
    end = [outcome_summary(outcome_of(run.state))] if run.state.stopped else ["it waits"]
    text = "".join(f"{line.tone:>5} | {text_of([line])}" for line in lines)
    assert "\n".join([text, story.usage, *end]) == snapshot


def test_every_fact_kind_has_a_line_or_is_silent() -> None:
    """Each kind of fact has a line somewhere, or is known to have none."""
    assert set(FACT_RENDERERS) == set(get_args(Fact)) == set(KINDS)
    heard = set()
    for make in RUNS.values():
        run = finished(make())
        story = RunRenderer(run.first)
        heard |= {fact_kind(record.fact) for record in run.records if story.render(record)}
    assert {kind_of_type(kind) for kind in KINDS} - heard == SILENT


def kind_of_type(kind: type[Fact]) -> str:
    return str(kind.__struct_config__.tag)


@given(st.lists(ANY_FACT, max_size=6))
def test_any_facts_are_rendered_safely(facts: list[Fact]) -> None:
    """Whatever comes, in whatever order, something safe is told, and there is something to say about the spending."""
    story = RunRenderer(package())
    for place, fact in enumerate(facts, 1):
        assert_clean(list(story.render(Record(place, 1000 * place, 1, "", fact))))
        assert story.usage.startswith("turn ")


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:20])
def test_hostile_texts_are_escaped_in_every_fact(text: str) -> None:
    """In every place of every fact."""
    for make in RUNS.values():
        run = finished(make())
        story = RunRenderer(run.first)
        for record in run.records:
            before = story._state, story._held, story._checked_calls, story._ended
            assert_clean(list(story.render(replace(record, fact=poisoned(record.fact, text)))))
            story._state, story._held, story._checked_calls, story._ended = before
            story.render(record)


def assert_clean(lines: list[OutputLine]) -> None:
    for line in lines:
        assert line.text.isprintable(), ascii(line.text)
        assert not set(line.text) & set("\u200b\u202e\u2066\u2069\u115f\u2800"), ascii(line.text)
        assert len(line.text) <= MAX_LINE_LENGTH
    assert len(lines) <= MAX_PARAGRAPH_LINES * 2 + 10


CLOSED = {"answer", "finish", "how", "label", "point", "purpose", "ruling", "stage", "status", "why"}
"""Fields whose texts are of a closed list."""


def poisoned(fact: Any, text: str) -> Any:
    """The same fact with a text in place of every text that is not one of a closed list."""
    if isinstance(fact, str):
        return text
    if isinstance(fact, tuple):
        return tuple(poisoned(each, text) for each in fact)
    if isinstance(fact, dict):
        return {key: poisoned(value, text) if text.isascii() else value for key, value in fact.items()}
    if not hasattr(fact, "__struct_fields__"):
        return fact
    closed = CLOSED | ({"reason"} if isinstance(fact, CompactionFailed) else set())
    fields = {name: getattr(fact, name) for name in fact.__struct_fields__}
    open_ones = {name: value for name, value in fields.items() if not (isinstance(value, str) and name in closed)}
    return type(fact)(**fields | {name: poisoned(value, text) for name, value in open_ones.items()})


def test_hostile_text_reaches_the_rendered_lines() -> None:
    """The poison of the test above reaches what is shown."""
    run = finished(RUNS["reading"]())
    (replied,) = [record for record in run.records if isinstance(record.fact, ModelReplied)][:1]
    story = RunRenderer(run.first)
    lines = story.render(replace(replied, fact=poisoned(replied.fact, "\x1b[2J")))
    assert [line.text for line in lines][:2] == ["\\x1b[2J", "→ \\x1b[2J \\x1b[2J \\x1b[2J"]


KEY = "sk-ant-" + "a1b2c3d4" * 4


@pytest.mark.parametrize("before", ["", "\n" * 30, *("x" * size for size in (105, 110, 115, 140, 145, 150, 385, 390))])
def test_secret_is_masked_wherever_the_text_is_cut(before: str) -> None:
    """A key is masked wherever a cut may fall."""
    text = f"{before} {KEY}"
    agent = package(tools={"a": tool()}, policy={"default": "allow"})
    run = Run(
        agent,
        calls_reply(("a", f'{{"q": "{before.strip()} {KEY}"}}'), text=text),
        text_reply("Done."),
        tools={"a": text},
    )
    run.finish()
    assert "sk-ant" not in text_of(lines_of(agent, run.records))


# --- the answer is not told --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_answer_is_never_rendered(name: str) -> None:
    run = finished(RUNS[name]())
    if run.state.stopped is None or run.state.stopped.status != "completed":
        return
    answer = outcome_of(run.state).answer
    told = [line.text for line in lines_of(run.first, run.records)]
    assert answer
    assert not [text for text in told if text in (answer, f"← answer: {answer}", f"← done: {answer}")]


def test_invalid_reply_is_rendered() -> None:
    """A reply that was not the answer is told."""
    run = finished(RUNS["repaired"]())
    assert '{"queue": "kitchen"}' in text_of(lines_of(run.first, run.records))


def test_invalid_reply_is_not_rendered_with_output_hooks() -> None:
    """Where answers are looked at, one that broke its contract is not told either."""
    agent = typed(hooks=[hook("on_output")])
    run = Run(agent, text_reply('{"queue": "kitchen"}'), text_reply('{"queue": "other", "urgent": true}'))
    run.finish()
    assert "kitchen" not in text_of(lines_of(agent, run.records))


def test_results_are_rendered_as_masked() -> None:
    run = finished(RUNS["withheld"]())
    told = text_of(lines_of(run.first, run.records))
    assert "← a: pin ***" in told
    assert "1234" not in told


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("deny", "a: denied (by r1: {})"),
        ("interrupt", "a: stopped (by r1: {})"),
        ("defer", "a: deferred (by r1: {})"),
        ("ask", "? a: needs approval (by r1: {})"),
        ("allow", "a: denied (by default)"),
    ],
)
def test_condition_that_cannot_be_evaluated_is_rendered_in_full(name: str, line: str) -> None:
    """Also below a reason that is cut because it is long."""
    agent = package(
        tools={"a": tool()}, policy=policy(rule(name, "a", when="args.n > 5", reason="why " * 200), default="deny")
    )
    run = finished(Run(agent, calls_reply(("a", '{"q": "x"}')), text_reply("Done.")))
    lines = text_of(lines_of(agent, run.records)).splitlines()
    assert f"  {line.format(short_text('why ' * 200))}" in lines
    after = lines[lines.index(f"  {line.format(short_text('why ' * 200))}") + 1]
    assert after == '    the condition of r1 cannot be evaluated: Key not found in map : "n"'


# --- ends --------------------------------------------------------------------------------------------------


def test_long_texts_are_cut() -> None:
    agent = package(tools={"a": tool()}, policy={"default": "allow"})
    text = "\n".join(f"line {number}" for number in range(1000))
    run = Run(agent, calls_reply("a", text=text), text_reply("Done."), tools={"a": text})
    run.finish()
    told = text_of(lines_of(agent, run.records)).splitlines()
    assert told[2:4] == ["  line 0", "  line 1"]
    assert told[1 + MAX_PARAGRAPH_LINES : 3 + MAX_PARAGRAPH_LINES] == [
        f"  line {MAX_PARAGRAPH_LINES - 1}",
        f"  … and {1000 - MAX_PARAGRAPH_LINES} more lines",
    ]
    assert told[-2] == "  ← a: line 0 (1000 lines, 8.8kB)"


@pytest.mark.parametrize(("result", "given", "told"), [("a.b", "null", 1), (None, "null", 0), ("a.b", "[]", 0)])
def test_result_expression_that_selects_nothing_is_noted(result: str | None, given: str, told: int) -> None:
    agent = package(tools={"a": TOOLS["http"] | {"result": result}}, policy={"default": "allow"})
    run = finished(Run(agent, calls_reply("a"), text_reply("Done."), tools={"a": given}))
    lines = [each.text for each in lines_of(agent, run.records)]
    assert lines.count("`result` of a selected nothing from the reply") == told
    assert f"← a: {given}" in lines


def test_replay_notes_that_nothing_is_delivered() -> None:
    agent = package(sinks={"out": SINK})
    for replayed, line in (
        (False, "delivered to out"),
        (True, "delivered to out when it was recorded; a replay delivers nothing"),
    ):
        run = finished(Run(agent, text_reply("Yes."), started=replace(RUN_STARTED, replayed=replayed)))
        assert line in [each.text for each in lines_of(agent, run.records)]


def test_outcome_summary() -> None:
    run = Run(package(), text_reply("Yes."), started=replace(RUN_STARTED, replayed=True))
    outcome = run.finish()
    assert outcome_summary(outcome) == "completed in 1 turn, 20 tokens in, 5 out (replayed)"
    unknown = replace(outcome, usage=Usage(), label="truncated", replayed=False, turns=2)
    assert outcome_summary(unknown) == (
        "completed, truncated in 2 turns, an unknown number of tokens in, an unknown number out"
    )


def test_truncated_reply_and_its_continuation_are_one_text() -> None:
    """Rendered when the rest of the reply is there: it is not cut at a place where the model did not end a line."""
    agent = package(tools={"a": tool()}, policy={"default": "allow", "rules": []})
    run = finished(
        Run(agent, text_reply("I lo", finish="length"), calls_reply("a", text="ok it up."), text_reply("Done."))
    )
    lines = text_of(lines_of(agent, run.records)).splitlines()
    assert "  I look it up." in lines
    assert [line for line in lines if "I lo" in line] == ["  I look it up."]


def test_truncated_reply_is_rendered_if_the_rest_never_comes() -> None:
    run = Run(package(), text_reply("I lo", finish="length"), Fault("provider.fatal", "no more"))
    lines = text_of(lines_of(run.first, finished(run).records)).splitlines()
    assert lines.count("  I lo") == 1
