"""The full text of the explanation for typical misses."""

from collections.abc import Callable
from typing import Any

import pytest

from agentrun.cassette.miss_explanation import MissExplanation, explain_miss
from agentrun.core.messages import Assistant, Text, ToolCall, ToolResult

from ..core.script import tool
from .recorded_agents import REFUND, SUPPORT, TONE, agent, call_of, explanation_of_change, unplayed_interactions

REPLY_WITH_CALL = Assistant((Text("I look."), ToolCall("c1.0", "refund", '{"order":"1042","amount":50}', None, None)))


def result(text: str) -> ToolResult:
    return ToolResult("c1.0", (Text(text),))


def more_tools() -> MissExplanation:
    args = REFUND | {"required": ["order"], "properties": REFUND["properties"] | {"reason": {"type": "string"}}}
    tools = {"refund": tool(description="Pays it back.", args=args), "later": tool()}
    return explanation_of_change(agent(), agent(tools=tools))


def history() -> MissExplanation:
    run = agent()
    now, was = run.call(REPLY_WITH_CALL, result("paid 50")), run.call(REPLY_WITH_CALL, result("paid 60"))
    return explain_miss(now, unplayed_interactions(was, first=3), run.metadata(), run.here())


def one_call(now: Any, *was: Any, **more: Any) -> MissExplanation:
    run = agent()
    return explain_miss(now, unplayed_interactions(*was, first=2), run.metadata(), run.here(), **more)


def recorded_by_vcrpy() -> MissExplanation:
    """As plain vcrpy recorded it."""
    return explain_miss(
        agent(given={"region": "us"}).call(),
        unplayed_interactions(agent().call()),
        {},
        agent(given={"region": "us"}).here(),
    )


STORIES: dict[str, tuple[Callable[[], MissExplanation], str]] = {
    "a param": (
        lambda: explanation_of_change(agent(), agent(given={"region": "us"})),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  instructions line 3, from specs/prompts/support.md.j2 line 6:
    recorded: Amounts are in euro.
    now:      Amounts are in dollars.
    because params.region changed from "eu" to "us"
  message line 2, from specs/support.yaml line 8:
    recorded: I live in eu.
    now:      I live in us.
    because params.region changed from "eu" to "us"
likely cause: the package did not change, but params.region changed from "eu" to "us"
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "the template": (
        lambda: explanation_of_change(agent(), agent(instructions=[SUPPORT.replace("euro", "EUR"), TONE])),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  instructions line 3, from specs/prompts/support.md.j2 line 4:
    recorded: Amounts are in euro.
    now:      Amounts are in EUR.
    because the template changed
likely cause: the spec's section instructions changed since the recording
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "lines that come and go": (
        lambda: explanation_of_change(agent(), agent(given={"rules": ["Promise nothing.", "Smile."]})),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  instructions line 4 of the cassette, from specs/prompts/support.md.j2 line 9:
    recorded: - Look first.
    now:      (nothing)
    because params.rules changed from ["Look first.","Promise nothing."] to ["Promise nothing.","Smile."]
  instructions line 5, from specs/prompts/support.md.j2 line 9:
    recorded: (nothing)
    now:      - Smile.
    because params.rules changed from ["Look first.","Promise nothing."] to ["Promise nothing.","Smile."]
likely cause: the package did not change, but params.rules changed from ["Look first.","Promise nothing."] to \
["Promise nothing.","Smile."]
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "both": (
        lambda: explanation_of_change(
            agent(), agent(given={"region": "us"}, instructions=[SUPPORT.replace("Am", "All am"), TONE])
        ),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  instructions line 3, from specs/prompts/support.md.j2 line 6:
    recorded: Amounts are in euro.
    now:      All amounts are in dollars.
    because params.region changed from "eu" to "us", and the template changed too
  message line 2, from specs/support.yaml line 8:
    recorded: I live in eu.
    now:      I live in us.
    because params.region changed from "eu" to "us"
likely cause: the spec's section instructions changed since the recording, and params.region changed from "eu" to "us"
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "tools": (
        more_tools,
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  tool later was added
  tool now was removed
  tool refund: description is "Pays it back.", but the cassette has "Pays back."
  tool refund: parameters.properties.reason was added
  tool refund: parameters.required lost amount
likely cause: the spec's section tools changed since the recording
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "settings": (
        lambda: explanation_of_change(agent(), agent(model={"temperature": 0.7, "max_output_tokens": 100})),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  max_completion_tokens is new: 100
  temperature is 0.7, but the cassette has 0
likely cause: the spec's section model changed since the recording
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "history": (
        history,
        """\
the cassette has no reply to this request; the nearest is interaction 3, on line 30 of the cassette
  message 3 (tool): the result of refund is "paid 50", but the cassette has "paid 60"
likely cause: the package and its params did not change, so the difference comes from the message, a tool \
result or another version of agentrun
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "a tool's arguments": (
        lambda: one_call(
            call_of("tool://refund", {"order": "1042", "amount": 60}),
            call_of("tool://now", {}),
            call_of("tool://refund", {"order": "7", "amount": 1}),
            call_of("tool://refund", {"order": "1042", "amount": 50}),
        ),
        """\
the cassette has no reply to this request; the nearest is interaction 4, on line 40 of the cassette
  the call of refund: amount is 60, but the cassette has 50
likely cause: the package and its params did not change, so the difference comes from the message, a tool \
result or another version of agentrun
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "a tool that was not called": (
        lambda: one_call(call_of("tool://refund", {"amount": 60}), call_of("tool://now", {}), agent().call()),
        """\
the cassette has no reply to this request
  the cassette has no further call of refund
likely cause: the package and its params did not change, so the difference comes from the message, a tool \
result or another version of agentrun
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "a question": (
        lambda: one_call(
            call_of("approval://refund", {"value": {"amount": 60}, "rules": ["big"], "reason": "much"}),
            call_of("approval://refund", {"value": {"amount": 50}, "rules": ["big"], "reason": "very much"}),
            path="c2.0",
        ),
        """\
the cassette has no reply to this request of the sub-agent of call c2.0; the nearest is interaction 2, on line 20 of \
the cassette
  the question about refund changed: reason is "much", but the cassette has "very much"
  the question about refund changed: value.amount is 60, but the cassette has 50
likely cause: the package did not change, so the difference comes from params or input
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "once too often": (
        lambda: one_call(agent().call(), agent().call(REPLY_WITH_CALL, result("paid")), played=True),
        """\
the cassette has no reply to this request
  the request was recorded, but fewer times than the run sends it
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "an empty cassette": (
        lambda: one_call(agent().call()),
        """\
the cassette has no reply to this request
  every recorded interaction was already played
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "a recording by others": (
        recorded_by_vcrpy,
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  instructions line 3, from specs/prompts/support.md.j2 line 6:
    recorded: Amounts are in euro.
    now:      Amounts are in dollars.
  message line 2, from specs/support.yaml line 8:
    recorded: I live in eu.
    now:      I live in us.
likely cause: unknown: the cassette has no fingerprints of its package
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
    "another provider": (
        lambda: explanation_of_change(agent(), agent("anthropic")),
        """\
the cassette has no reply to this request; the nearest is interaction 1, on line 10 of the cassette
  the request is for Anthropic Messages, but the cassette has one for OpenAI Chat
  model is "claude-haiku-4-5", but the cassette has "gpt-4.1-mini"
  the address is "https://api.anthropic.com/v1/messages", but the cassette has "https://api.openai.com/v1/chat/completions"
likely cause: the spec's section model changed since the recording
to accept it: agentrun specs/support.yaml --case default --record new""",
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_full_text_of_a_miss(name: str) -> None:
    made, text = STORIES[name]
    found = made()
    assert "\n".join(found.lines()) == text
    assert found.fields()["difference"] in found.message()
    assert len(found.message().splitlines()) == 1


def test_template_lines_match_the_expected_texts() -> None:
    """The lines above are those that a person finds in the files."""
    lines = SUPPORT.splitlines()
    found = [lines[n - 1] for n in (4, 6, 9)]
    assert found == ["Amounts are in euro.", "Amounts are in dollars.", "- {{ rule }}"]
