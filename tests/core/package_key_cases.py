"""For every package key that the core acts on: two packages that differ only in it, a run, and the visible difference.
seen of it. Keys of tools, sinks and hooks stand in `component_key_cases.py`."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from agentrun.core.facts import CompactionFailed, ModelAsked, ModelTold, Parent, RetryPlanned, Ruled, RunStarted
from agentrun.core.fault import Fault
from agentrun.core.messages import Reply, Text, Usage, User
from agentrun.core.package import Package
from agentrun.core.spend import BudgetShare

from ..packages import BASE, ROUTE, package
from .key_case import (
    DONE_REPLY,
    Changes,
    Key,
    Look,
    Play,
    answer,
    code,
    count_requests,
    refusal_codes,
    run_to_end,
    section,
)
from .script import RULE, RUN_STARTED, Run, agent_tool, calls_reply, rule, text_reply, tool

SEARCH: Changes = {"tools": {"search": tool()}, "policy": {"default": "allow"}}
A, B = ("search", '{"q": "a"}'), ("search", '{"q": "b"}')
LONG: RunStarted = replace(RUN_STARTED, input=User((Text("It burns. " * 50),)))
CHILD: RunStarted = replace(RUN_STARTED, parent=Parent("run-0", "c1.0", 1, BudgetShare()))
OVERLOADED, FATAL = Fault("provider.overloaded", "busy"), Fault("provider.fatal", "no")
TOO_LONG = Fault("provider.context_overflow", "too long")
FREE = {"input": 0, "output": 0, "cached_input": 0}
DEAR = 1_000_000


def _route(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any]) -> Key:
    routes = [[ROUTE | {key: value}] for value in (one, two)]
    return Key({"model": {"routes": routes[0]}}, {"model": {"routes": routes[1]}}, play, look, seen)


def _price(key: str, tokens: int) -> Key:
    """A price of a dollar for one sort of tokens."""
    play = run_to_end(text_reply("Done.", usage=Usage(20, 5, 8, 0)))
    return _route("price", FREE, FREE | {key: DEAR}, play, lambda run: run.state.meter.cost, (0, tokens))


def _request(run: Run) -> ModelAsked:
    first = run.of(ModelAsked)[0]
    assert isinstance(first, ModelAsked)
    return first


MODEL = {
    "model.routes": Key(
        {"model": {"routes": [ROUTE]}},
        {"model": {"routes": [ROUTE, ROUTE | {"name": "spare"}]}},
        run_to_end(FATAL, DONE_REPLY),
        code,
        ("provider.fatal", None),
    ),
    "model.routes.provider": _route(
        "provider",
        "openai",
        "other",
        run_to_end(DONE_REPLY),
        lambda run: _request(run).route,
        ("openai/gpt-4.1-mini", "other/gpt-4.1-mini"),
    ),
    "model.routes.name": _route(
        "name",
        "small",
        "large",
        run_to_end(DONE_REPLY),
        lambda run: _request(run).route,
        ("openai/small", "openai/large"),
    ),
    "model.routes.price": _route(
        "price", None, FREE | {"input": DEAR}, run_to_end(DONE_REPLY), lambda run: _request(run).cost, (0, 19)
    ),
    "model.routes.price.input": _price("input", 12),
    "model.routes.price.output": _price("output", 5),
    "model.routes.price.cached_input": _price("cached_input", 8),
    "model.routes.context_window": _route(
        "context_window", 19, 18, run_to_end(DONE_REPLY), code, (None, "context.overflow")
    ),
    "model.max_output_tokens": section(
        "model", "max_output_tokens", None, 100, run_to_end(DONE_REPLY), lambda run: _request(run).reserved, (19, 119)
    ),
}


def _rule(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    rules = [[RULE | {**same, key: value}] for value in (one, two)]
    return Key(
        {**SEARCH, "policy": {"default": "allow", "rules": rules[0]}},
        {**SEARCH, "policy": {"default": "allow", "rules": rules[1]}},
        play,
        look,
        seen,
    )


def _first_ruling(run: Run) -> Any:
    return run.of(Ruled)[0]


def _play_until_deferred(agent: Package) -> Run:
    run = Run(agent, calls_reply(A), DONE_REPLY)
    run.until(Ruled)
    return run


def _deferral(run: Run) -> Any:
    return _first_ruling(run).until, _first_ruling(run).person


def _arguments(run: Run) -> Any:
    return [getattr(effect, "arguments", None) for effect in run.effects][1]


POLICY = {
    "policy.default": section(
        "policy",
        "default",
        "allow",
        "deny",
        run_to_end(calls_reply(A), DONE_REPLY),
        refusal_codes,
        ([], ["tool.denied"]),
        tools=SEARCH["tools"],
    ),
    "policy.rules": section(
        "policy", "rules", [], [rule("deny", on="input")], run_to_end(DONE_REPLY), code, (None, "policy.denied")
    ),
    "policy.rules.id": _rule(
        "id",
        "r1",
        "r2",
        run_to_end(calls_reply(A), DONE_REPLY),
        lambda run: _first_ruling(run).rules,
        (("r1",), ("r2",)),
    ),
    "policy.rules.ruling": _rule(
        "ruling", "allow", "interrupt", run_to_end(calls_reply(A), DONE_REPLY), code, (None, "policy.interrupted")
    ),
    "policy.rules.targets": _rule(
        "targets",
        ["sea*"],
        ["see*"],
        run_to_end(calls_reply(A), DONE_REPLY),
        refusal_codes,
        (["tool.denied"], []),
        ruling="deny",
    ),
    "policy.rules.on": _rule("on", "input", "output", run_to_end(DONE_REPLY), count_requests, (0, 1), ruling="deny"),
    "policy.rules.when": _rule(
        "when",
        "args.q == 'a'",
        "args.q == 'b'",
        run_to_end(calls_reply(A), DONE_REPLY),
        refusal_codes,
        (["tool.denied"], []),
        ruling="deny",
    ),
    "policy.rules.set": _rule(
        "set",
        {"q": "x"},
        {"q": "y"},
        run_to_end(calls_reply(A), DONE_REPLY),
        _arguments,
        ({"q": "x"}, {"q": "y"}),
        ruling="modify",
    ),
    "policy.rules.mask": _rule(
        "mask",
        ["[0-9]"],
        ["x"],
        run_to_end(text_reply("a1x")),
        answer,
        ("a***x", "a1***"),
        ruling="modify",
        on="output",
    ),
    "policy.rules.reason": _rule(
        "reason",
        None,
        "just so",
        run_to_end(calls_reply(A), DONE_REPLY),
        lambda run: _first_ruling(run).reason,
        (None, "just so"),
    ),
    "policy.rules.until": _rule(
        "until", 10, 20, _play_until_deferred, _deferral, ((10, UNSET), (20, UNSET)), ruling="defer"
    ),
    "policy.rules.wait": _rule(
        "wait", 30, 40, _play_until_deferred, _deferral, ((30, UNSET), (40, UNSET)), ruling="defer"
    ),
    "policy.rules.person": _rule(
        "person", False, True, _play_until_deferred, _deferral, ((UNSET, UNSET), (UNSET, True)), ruling="defer"
    ),
}


def _budget(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    return section("budgets", key, one, two, play, look, seen, **{**SEARCH, **same})


ONE_CALL = run_to_end(calls_reply(A), DONE_REPLY)
USED_TOKENS = 25
"""Tokens of a reply."""


def _tokens() -> tuple[int, int]:
    """A budget that just lets the second request pass, and one that just does not."""
    run = run_to_end(calls_reply(A), DONE_REPLY)(package(**SEARCH))
    needed = USED_TOKENS + run.of(ModelAsked)[1].reserved
    return needed, needed - 1


BUDGETS = {
    "budgets.turns": _budget("turns", 2, 1, ONE_CALL, code, (None, "budget.turns")),
    "budgets.tokens": _budget("tokens", *_tokens(), ONE_CALL, code, (None, "budget.tokens")),
    "budgets.cost": _budget(
        "cost",
        19,
        18,
        run_to_end(DONE_REPLY),
        code,
        (None, "budget.cost"),
        model={"routes": [ROUTE | {"price": FREE | {"input": DEAR}}]},
        tools={},
    ),
    "budgets.time": _budget(
        "time", 300, 299, run_to_end(calls_reply(A), DONE_REPLY, takes=100), code, (None, "budget.time")
    ),
    "budgets.tool_calls": _budget(
        "tool_calls", 2, 1, run_to_end(calls_reply(A, B), DONE_REPLY), code, (None, "budget.tool_calls")
    ),
    "budgets.on_turns": _budget(
        "on_turns", "fail", "stop", run_to_end(calls_reply(A)), code, ("budget.turns", None), budgets={"turns": 1}
    ),
    "budgets.grace": _budget(
        "grace",
        None,
        1,
        ONE_CALL,
        lambda run: [fact.why for fact in run.of(ModelTold)],
        ([], ["wrap_up"]),
        budgets={"turns": 2},
    ),
}


def _limit(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    return section("limits", key, one, two, play, look, seen, **{**SEARCH, **same})


CUT_REPLY = text_reply("Once upon", finish="length")

LIMITS = {
    "limits.parallel_tools": _limit(
        "parallel_tools", 2, 1, run_to_end(calls_reply(A, B), DONE_REPLY), code, (None, "guard.parallel_tools")
    ),
    "limits.on_oversize_batch": _limit(
        "on_oversize_batch",
        "reject_all",
        "run_first",
        run_to_end(calls_reply(A, B), DONE_REPLY),
        lambda run: run.ran,
        ([], ["c1.0"]),
        limits={"parallel_tools": 1},
    ),
    "limits.on_truncated": _limit(
        "on_truncated",
        "continue",
        "escalate",
        run_to_end(CUT_REPLY, text_reply(" a time.")),
        answer,
        ("Once upon a time.", " a time."),
        model={"max_output_tokens": 10},
    ),
    "limits.truncations": _limit(
        "truncations", 1, 2, run_to_end(CUT_REPLY, CUT_REPLY, CUT_REPLY), count_requests, (2, 3)
    ),
    "limits.depth": _limit(
        "depth",
        1,
        2,
        run_to_end(calls_reply(("ask", '{"message": "Hi."}')), DONE_REPLY, started=CHILD),
        refusal_codes,
        (["tool.invalid_call"], []),
        tools={"ask": agent_tool()},
        agents={"ask": BASE},
    ),
    "limits.runs": _limit(
        "runs",
        1,
        2,
        run_to_end(calls_reply(("ask", '{"message": "Hi."}'), ("ask", '{"message": "Ho."}')), DONE_REPLY),
        refusal_codes,
        (["tool.invalid_call"], []),
        tools={"ask": agent_tool()},
        agents={"ask": BASE},
    ),
}


def _guard(key: str, one: Any, two: Any, play: Play, seen: tuple[Any, Any], **same: Any) -> Key:
    return section("guards", key, one, two, play, code, seen, **{**SEARCH, **same})


def _changing(*answers: Reply) -> Play:
    """A run in which every call has a result of its own."""
    return run_to_end(*answers, DONE_REPLY, tools={"search": lambda effect: f"found at {effect.id}"})


OBSERVATION_TOOL = {"search": tool(observation=True)}
THREE = run_to_end(calls_reply(A), calls_reply(B), calls_reply(A), DONE_REPLY)

GUARDS = {
    "guards.repeated_call": _guard(
        "repeated_call", 3, 2, run_to_end(calls_reply(A), calls_reply(A), DONE_REPLY), (None, "guard.repeated_call")
    ),
    "guards.call_compare": _guard(
        "call_compare",
        "results",
        "calls",
        _changing(calls_reply(A), calls_reply(A), calls_reply(A)),
        (None, "guard.repeated_call"),
    ),
    "guards.cycle": _guard(
        "cycle",
        3,
        2,
        run_to_end(calls_reply(A), calls_reply(B), calls_reply(A), calls_reply(B), DONE_REPLY),
        (None, "guard.cycle"),
    ),
    "guards.cycle_compare": _guard(
        "cycle_compare", "results", "calls", _changing(*[calls_reply(A), calls_reply(B)] * 3), (None, "guard.cycle")
    ),
    "guards.repeated_batch": _guard(
        "repeated_batch", 2, 1, run_to_end(calls_reply(A), calls_reply(A), DONE_REPLY), (None, "guard.repeated_batch")
    ),
    "guards.batch_compare": _guard(
        "batch_compare",
        "results",
        "calls",
        _changing(calls_reply(A), calls_reply(A), calls_reply(A)),
        (None, "guard.repeated_batch"),
    ),
    "guards.batch_scope": _guard(
        "batch_scope", "consecutive", "session", THREE, (None, "guard.repeated_batch"), guards={"repeated_batch": 1}
    ),
    "guards.stagnation": _guard(
        "stagnation",
        2,
        1,
        run_to_end(calls_reply(A, text="Hm."), calls_reply(B, text="Hm."), DONE_REPLY),
        (None, "guard.stagnation"),
    ),
    "guards.empty_outcome": _guard("empty_outcome", None, 0, run_to_end(DONE_REPLY), (None, "guard.empty_outcome")),
    "guards.observation": _guard(
        "observation",
        3,
        2,
        run_to_end(calls_reply(A), calls_reply(A), DONE_REPLY),
        (None, "guard.repeated_call"),
        tools=OBSERVATION_TOOL,
    ),
}


def _waits(run: Run) -> list[int]:
    """The waits between requests, up to the seconds: jitter only shortens, by up to a quarter."""
    return [-(-fact.wait // 1000) for fact in run.of(RetryPlanned)]


RETRY = {
    "retry.attempts": section("retry", "attempts", 2, 3, run_to_end(*[OVERLOADED] * 3), count_requests, (2, 3)),
    "retry.first_delay": section(
        "retry", "first_delay", 1000, 8000, run_to_end(OVERLOADED, DONE_REPLY), _waits, ([1], [8])
    ),
    "retry.max_delay": section(
        "retry", "max_delay", 15_000, 1000, run_to_end(OVERLOADED, OVERLOADED, DONE_REPLY), _waits, ([1, 2], [1, 1])
    ),
    "retry.max_wait": section(
        "retry", "max_wait", 60_000, 0, run_to_end(OVERLOADED, DONE_REPLY), count_requests, (2, 1)
    ),
}

COMPACT = {"overflow": "compact", "keep": 0}
COMPACTED_RUN = run_to_end(TOO_LONG, text_reply("It burns."), DONE_REPLY, started=LONG)


def _summaries(run: Run) -> int:
    """How often the model was asked for a summary."""
    return sum(request.purpose == "compact" for request in run.requests)


CONTEXT = {
    "context.overflow": section(
        "context",
        "overflow",
        "fail",
        "compact",
        COMPACTED_RUN,
        code,
        ("provider.context_overflow", None),
        context=COMPACT,
    ),
    "context.keep": section("context", "keep", 0, 1, COMPACTED_RUN, _summaries, (1, 0), context=COMPACT),
    "context.failures": section(
        "context",
        "failures",
        1,
        2,
        run_to_end(TOO_LONG, text_reply(" "), text_reply("It burns."), DONE_REPLY, started=LONG),
        lambda run: (len(run.of(CompactionFailed)), code(run)),
        ((1, "context.failed"), (1, None)),
        context=COMPACT,
    ),
}


def _output(key: str, one: Any, two: Any, reply: str, seen: tuple[Any, Any]) -> Key:
    rest = {"schema": {"type": "array"}, "repairs": 0}
    return section("output", key, one, two, run_to_end(text_reply(reply), text_reply(reply)), code, seen, output=rest)


OUTPUT = {
    "output.schema": _output("schema", None, {"type": "array"}, "Done.", (None, "output.invalid")),
    "output.repairs": section(
        "output",
        "repairs",
        0,
        1,
        run_to_end(text_reply("no"), text_reply("[]")),
        code,
        ("output.invalid", None),
        output={"schema": {"type": "array"}},
    ),
    "output.max_bytes": _output("max_bytes", 3, 2, "[1]", (None, "output.invalid")),
    "output.max_depth": _output("max_depth", 2, 1, "[[1]]", (None, "output.invalid")),
}

KEYS: dict[str, Key] = {**MODEL, **POLICY, **BUDGETS, **LIMITS, **GUARDS, **RETRY, **CONTEXT, **OUTPUT}
