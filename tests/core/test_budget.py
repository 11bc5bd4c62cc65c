"""Token and cost budgets: reserved before a model request, charged after the reply."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core import model_request
from agentrun.core.budget import (
    charged_cost,
    charged_tokens,
    estimate_request,
    estimate_tokens,
    reported_usage,
    reserved_cost,
)
from agentrun.core.effects import ModelRequest, OfferedTool
from agentrun.core.facts import CancelRequested, ModelAsked, ModelReplied, RunResumed, RunStopped, WorkLost
from agentrun.core.fault import Fault
from agentrun.core.messages import (
    Assistant,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Reply,
    Text,
    ToolCall,
    ToolResult,
    Transcript,
    Usage,
    User,
)
from agentrun.core.package import Package, Price

from ..packages import ROUTE, package
from .script import Run, calls_reply, text_reply, tool

PRICE = Price(input=3_000_000, output=15_000_000, cached_input=300_000)
"""3, 15 and 0.3 micro-dollars for a token."""
ROW = {"input": 3_000_000, "output": 15_000_000, "cached_input": 300_000}


def agent(price: dict[str, int] | None = None, cap: int | None = None, **budgets: int) -> Package:
    return package(
        model={"routes": [{**ROUTE, "price": price}], "max_output_tokens": cap},
        tools={"search": tool(), "slow": tool(parallel=False)},
        policy={"default": "allow"},
        budgets=budgets,
    )


def model_requests(run: Run) -> list[ModelAsked]:
    return run.of(ModelAsked)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (User(()), 4),
        (User((Text("a"),)), 5),
        (User((Text("abc"),)), 5),
        (User((Text("abcd"),)), 6),
        (User((Text("ää"),)), 7),
        (User((Text("{}"),)), 6),
        (User((Text("A1"),)), 6),
        (User((Text("abc"), Text("abc"))), 6),
        (Assistant((Refusal("abc"), ToolCall("c1.0", "ab", "{}"))), 8),
        (Assistant((Reasoning("abcdef", "openai/gpt"),)), 6),
        (ToolResult("c1.0", (Text("\ud800"),)), 5),
        (User((Image("image/png", "sha256:0", 1),)), 2004),
        (User((File("a.txt", "text/plain", "sha256:0", 10),)), 9),
        (User((File("a.txt", "text/plain", "sha256:0", 11),)), 10),
    ],
)
def test_estimated_tokens_of_each_message_kind(message: Message, tokens: int) -> None:
    assert estimate_tokens(message) == tokens


@given(st.text(), st.text())
def test_more_text_is_never_estimated_lower(one: str, two: str) -> None:
    assert estimate_tokens(User((Text(one),))) <= estimate_tokens(User((Text(one + two),)))


def test_estimate_of_a_request_counts_instructions_output_and_tools() -> None:
    given = package()
    bare = ModelRequest(given.model.routes[0], given.model, "", Transcript(), None)
    assert estimate_request(bare, 0) == 4
    assert estimate_request(bare, 100) == 104
    assert estimate_request(ModelRequest(*_fields(bare, instructions="abcd")), 0) == 6
    assert estimate_request(ModelRequest(*_fields(bare, output={"a": 1})), 0) == 4 + 7, 'for {"a":1}'
    offered = (OfferedTool("a", "b", {}),)
    assert estimate_request(ModelRequest(*_fields(bare, tools=offered)), 0) > 4


def _fields(request: ModelRequest, **changes: Any) -> list[Any]:
    return [changes.get(name, getattr(request, name)) for name in request.__struct_fields__]


# settlement


def test_reported_usage_is_charged_instead_of_the_reservation() -> None:
    assert charged_tokens(Usage(20, 5, 3, 2), 100) == 25
    assert charged_tokens(Usage(20, 500), 100) == 520, "an overshooting reply is counted as it is"
    assert charged_tokens(Usage(0, 0), 100) == 0, "a count of 0 in a journal was looked at before it was written"


@pytest.mark.parametrize("unknown", [None, Usage(), Usage(input=20), Usage(output=5), Usage(cached=3, reasoning=2)])
def test_missing_usage_is_charged_as_reserved(unknown: Usage | None) -> None:
    assert charged_tokens(unknown, 100) == 100
    assert charged_cost(PRICE, unknown, 900) == 900


def test_partial_usage_above_the_reservation_is_charged() -> None:
    assert charged_tokens(Usage(input=101), 100) == 101
    assert charged_tokens(Usage(output=101), 100) == 101
    assert charged_cost(PRICE, Usage(input=101), 302) == 303
    assert charged_cost(PRICE, Usage(output=101), 302) == 1515


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, None),
        (Usage(), Usage()),
        (Usage(1, 1, 0, 0), Usage(1, 1, 0, 0)),
        (Usage(0, 1, 0, 0), Usage(None, 1, 0, 0)),
        (Usage(1, 0, 1, 0), Usage(1, None, 1, 0)),
        (Usage(0, 0, 0, 0), Usage(None, None, 0, 0)),
        (Usage(1, 5, 0, 5), Usage(1, 5, 0, 5)),
    ],
)
@pytest.mark.parametrize(
    "part", [Text("x"), Text(" "), ToolCall("c1.0", "now", ""), Refusal("no"), Reasoning("x", "openai/m")]
)
def test_zero_tokens_for_a_non_empty_reply_is_unknown_usage(
    part: Any, usage: Usage | None, counts: Usage | None
) -> None:
    assert reported_usage(Reply(Assistant((part,)), "stop", usage, None, None)) == counts


@pytest.mark.parametrize(
    ("parts", "finish", "output"),
    [
        ((), "stop", 0),
        ((Text(""),), "stop", 0),
        ((Refusal("blocked"),), "content_filter", 0),
        ((Refusal("no"),), "stop", None),
        ((Text("x"),), "content_filter", None),
        ((Text("x"), Refusal("blocked")), "content_filter", None),
    ],
)
def test_zero_output_tokens_are_accepted_only_without_output(
    parts: tuple[Any, ...], finish: Any, output: int | None
) -> None:
    """A provider that writes nothing, or withholds what was written, may say that it took no tokens."""
    assert reported_usage(Reply(Assistant(parts), finish, Usage(1, 0), None, None)) == Usage(1, output)


@given(
    st.none() | st.builds(Usage, *[st.none() | st.integers(0, 10**6)] * 4), st.integers(1, 10**6), st.integers(1, 10**6)
)
def test_charge_is_never_below_the_reported_usage(usage: Usage | None, tokens: int, cost: int) -> None:
    known = usage or Usage()
    assert charged_tokens(usage, tokens) >= (known.input or 0) + (known.output or 0)
    if known.input is None or known.output is None:
        assert charged_tokens(usage, tokens) >= tokens
        assert charged_cost(PRICE, usage, cost) >= cost


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(1, 0, 0), 3),
        (Usage(0, 1, 0), 15),
        (Usage(10, 0, 10), 3),
        (Usage(1, 0, 1), 1),
        (Usage(4, 0, 4), 2),
        (Usage(10, 1, None), 45),
        (Usage(10, 0, 99), 3),
        (Usage(0, 0, 0), 0),
    ],
)
def test_charged_cost_counts_cached_tokens_and_rounds_up(usage: Usage, cost: int) -> None:
    """Cached tokens are part of the input, and never more than it; what is left of a micro-dollar is rounded up."""
    assert charged_cost(PRICE, usage, 10_000) == cost


def test_reserved_cost_is_rounded_up() -> None:
    assert reserved_cost(PRICE, 10, 2) == 60
    assert reserved_cost(Price(input=1, output=1, cached_input=0), 1, 0) == 1, "rounded up"
    assert reserved_cost(Price(input=1, output=1, cached_input=0), 999_999, 1) == 1
    assert reserved_cost(Price(input=1, output=1, cached_input=0), 999_999, 2) == 2


def test_unknown_price_costs_nothing() -> None:
    assert reserved_cost(None, 10**9, 10**9) == 0
    assert charged_cost(None, Usage(10, 10), 5) == 0
    run = Run(agent(cost=0), text_reply("Yes."))
    outcome = run.finish()
    assert (outcome.status, outcome.cost) == ("completed", 0)


# tokens and cost of a run


def just_enough_tokens_and_cost(price: dict[str, int] | None, cap: int | None, replies: int) -> tuple[int, int]:
    """The tokens and the cost with which a run of so many replies just comes to its end."""
    run = Run(
        agent(price, cap), *[calls_reply(("search", f'{{"q":"{n}"}}')) for n in range(replies - 1)], text_reply("Yes.")
    )
    run.finish()
    paid = sum(fact.cost for fact in run.of(ModelReplied)[:-1])
    return 25 * (replies - 1) + model_requests(run)[-1].reserved, paid + model_requests(run)[-1].cost


@pytest.mark.parametrize("replies", [1, 2, 4])
@pytest.mark.parametrize("cap", [None, 100])
@pytest.mark.parametrize("what", ["tokens", "cost"])
def test_reservation_up_to_the_limit_passes_and_one_more_fails(what: str, cap: int | None, replies: int) -> None:
    """used + reserved = limit passes, one more does not."""
    limit = just_enough_tokens_and_cost(ROW, cap, replies)[what == "cost"]
    answers = [*[calls_reply(("search", f'{{"q":"{n}"}}')) for n in range(replies - 1)], text_reply("Yes.")]
    assert Run(agent(ROW, cap, **{what: limit}), *answers).finish().status == "completed"
    run = Run(agent(ROW, cap, **{what: limit - 1}), *answers)
    outcome = run.finish()
    used = (25 if what == "tokens" else 135) * (replies - 1)
    assert (outcome.code, outcome.exit_code, outcome.retry) == (f"budget.{what}", 5, "user")
    assert outcome.fields == {"used": used, "reserved": limit - used, "limit": limit - 1}
    assert outcome.fault is not None
    assert outcome.fault.hint == f"raise budgets.{what}, or lower model.max_output_tokens"
    assert f"{limit - 1 - used} of {limit - 1} left" in outcome.fault.message
    assert len(run.requests) == replies - 1, "the call that might overshoot is not made"


def test_the_longest_reply_is_reserved() -> None:
    assert just_enough_tokens_and_cost(ROW, 100, 1)[0] == just_enough_tokens_and_cost(ROW, None, 1)[0] + 100
    assert just_enough_tokens_and_cost(ROW, 100, 1)[1] == just_enough_tokens_and_cost(ROW, None, 1)[1] + 1500


def test_planted_missing_reservation_lets_the_request_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the reservation the call is made."""
    monkeypatch.setattr(model_request, "spending_fault", lambda package, state, tokens, cost: None)
    assert Run(agent(tokens=1), text_reply("Yes.")).finish().status == "completed"


def test_overshooting_reply_is_kept_and_the_next_request_fails() -> None:
    """A reply that overshoots is kept; the next call is not made."""
    run = Run(agent(tokens=1000), text_reply("Yes.", usage=Usage(20, 5000, 0, 0)))
    outcome = run.finish()
    assert (outcome.status, outcome.tokens) == ("completed", 5020)
    long = text_reply(ToolCall("", "search", "{}"), finish="tool_calls", usage=Usage(20, 5000, 0, 0))
    run = Run(agent(tokens=1000), long, text_reply("Yes."))
    outcome = run.finish()
    assert outcome.code == "budget.tokens"
    assert (outcome.fields["used"], outcome.fields["limit"]) == (5020, 1000)
    assert outcome.fault is not None
    assert outcome.fault.message == "the budget of 1000 tokens is used up"


def test_token_budget_is_checked_before_cost() -> None:
    assert Run(agent(ROW, tokens=0, cost=0), text_reply("Yes.")).finish().code == "budget.tokens"


def test_run_without_reported_usage_is_charged_as_reserved() -> None:
    silent = text_reply(ToolCall("", "search", "{}"), finish="tool_calls", usage=None)
    run = Run(agent(ROW, 50), silent, text_reply("Yes.", usage=None))
    outcome = run.finish()
    assert outcome.tokens == sum(fact.reserved for fact in model_requests(run)) > 100
    assert outcome.cost == sum(fact.cost for fact in model_requests(run)) > 1500
    assert outcome.usage == Usage(), "not known is not 0"


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=8), st.integers(0, 1500))
def test_budget_is_exceeded_by_one_reply_at_most(used: list[tuple[int, int]], limit: int) -> None:
    replies = [
        text_reply(ToolCall("", "search", f'{{"q":"{n}"}}'), finish="tool_calls", usage=Usage(*pair))
        for n, pair in enumerate(used)
    ]
    run = Run(agent(tokens=limit), *replies, text_reply("Yes."))
    run.finish()
    spent = 0
    for fact, request in zip(run.of(ModelReplied), model_requests(run), strict=True):
        assert spent + request.reserved <= limit
        spent += charged_tokens(fact.reply.usage, request.reserved)
    assert spent == run.state.meter.tokens


# what is not known to have been spent


def test_failed_request_costs_nothing() -> None:
    run = Run(agent(ROW), Fault("provider.fatal", "no"))
    outcome = run.finish()
    assert (outcome.tokens, outcome.cost) == (0, 0)


@pytest.mark.parametrize("how", ["lost", "cancelled", "stopped"])
def test_unfinished_request_costs_what_was_reserved(how: str) -> None:
    run = Run(agent(ROW, 50), text_reply("Yes."))
    run.until(ModelAsked)
    (first,) = model_requests(run)
    if how == "lost":
        run.add(RunResumed("sha256:0"))
        run.add(WorkLost(first.effect))
    elif how == "cancelled":
        run.add(CancelRequested("somebody"))
    else:
        run.add(RunStopped("failed", fault=Fault("internal", "bug")))
    outcome = run.finish()
    more = (25, 135) if how == "lost" else (0, 0)
    assert (outcome.tokens, outcome.cost) == (first.reserved + more[0], first.cost + more[1])


def test_lost_requests_use_up_the_budget() -> None:
    limit, _ = just_enough_tokens_and_cost(None, 100, 1)
    run = Run(agent(None, 100, tokens=limit), text_reply("Yes."))
    run.until(ModelAsked)
    run.add(RunResumed("sha256:0"))
    run.add(WorkLost("m1.1"))
    outcome = run.finish()
    assert (outcome.code, outcome.fields) == ("budget.tokens", {"used": limit, "reserved": limit, "limit": limit})


@pytest.mark.parametrize(
    ("code", "is_charged"),
    [
        ("provider.timeout", True),
        ("provider.zero_output", True),
        ("provider.empty", True),
        ("provider.decode", True),
        ("provider.transient", False),
        ("provider.overloaded", False),
        ("provider.rate_limited", False),
        ("provider.fatal", False),
        ("provider.context_overflow", False),
        ("cassette.miss", False),
    ],
)
def test_failed_request_is_charged_if_the_provider_may_have_worked(code: str, is_charged: bool) -> None:
    """Nobody knows what it took: what was reserved counts."""
    run = Run(package(retry={"attempts": 1}), Fault(code, "no"))
    run.finish()
    (asked,) = run.of(ModelAsked)
    assert run.state.meter.tokens == (asked.reserved if is_charged else 0)
