"""For every package key that the core acts on: two packages that differ only in it, a run, and the visible difference.
seen of it. Keys of tools, sinks and hooks stand in `component_key_cases.py`."""

from typing import Any

from msgspec.structs import replace

from agentrun.core.facts import (
    BudgetShare,
    CompactionFailed,
    ModelAsked,
    ModelTold,
    Parent,
    RetryPlanned,
    Ruled,
    RunStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, Usage, User

from ..packages import BASE, ROUTE, package
from .key_case import DONE, Changes, Key, Look, Play, answer, asked, code, refused, section, whole
from .script import RULE, STARTED, Run, agent_tool, called, rule, said, tool

SEARCH: Changes = {"tools": {"search": tool()}, "policy": {"default": "allow"}}
A, B = ("search", '{"q": "a"}'), ("search", '{"q": "b"}')
LONG: RunStarted = replace(STARTED, input=User((Text("It burns. " * 50),)))
CHILD: RunStarted = replace(STARTED, parent=Parent("run-0", "c1.0", 1, BudgetShare()))
BUSY, REFUSED = Fault("provider.overloaded", "busy"), Fault("provider.fatal", "no")
TOO_LONG = Fault("provider.context_overflow", "too long")
FREE = {"input": 0, "output": 0, "cached_input": 0}
DEAR = 1_000_000


def _route(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any]) -> Key:
    routes = [[ROUTE | {key: value}] for value in (one, two)]
    return Key({"model": {"routes": routes[0]}}, {"model": {"routes": routes[1]}}, play, look, seen)


def _price(key: str, tokens: int) -> Key:
    """A price of a dollar for one sort of tokens."""
    play = whole(said("Done.", usage=Usage(20, 5, 8, 0)))
    return _route("price", FREE, FREE | {key: DEAR}, play, lambda run: run.state.meter.cost, (0, tokens))


def _request(run: Run) -> ModelAsked:
    first = run.of(ModelAsked)[0]
    assert isinstance(first, ModelAsked)
    return first


MODEL = {
    "model.routes": Key(
        {"model": {"routes": [ROUTE]}},
        {"model": {"routes": [ROUTE, ROUTE | {"name": "spare"}]}},
        whole(REFUSED, DONE),
        code,
        ("provider.fatal", None),
    ),
    "model.routes.provider": _route(
        "provider",
        "openai",
        "other",
        whole(DONE),
        lambda run: _request(run).route,
        ("openai/gpt-4.1-mini", "other/gpt-4.1-mini"),
    ),
    "model.routes.name": _route(
        "name", "small", "large", whole(DONE), lambda run: _request(run).route, ("openai/small", "openai/large")
    ),
    "model.routes.price": _route(
        "price", None, FREE | {"input": DEAR}, whole(DONE), lambda run: _request(run).cost, (0, 19)
    ),
    "model.routes.price.input": _price("input", 12),
    "model.routes.price.output": _price("output", 5),
    "model.routes.price.cached_input": _price("cached_input", 8),
    "model.routes.context_window": _route("context_window", 19, 18, whole(DONE), code, (None, "context.overflow")),
    "model.max_output_tokens": section(
        "model", "max_output_tokens", None, 100, whole(DONE), lambda run: _request(run).reserved, (19, 119)
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


def _ruled(run: Run) -> Any:
    return run.of(Ruled)[0]


def _arguments(run: Run) -> Any:
    return [getattr(effect, "arguments", None) for effect in run.effects][1]


POLICY = {
    "policy.default": section(
        "policy",
        "default",
        "allow",
        "deny",
        whole(called(A), DONE),
        refused,
        ([], ["tool.denied"]),
        tools=SEARCH["tools"],
    ),
    "policy.rules": section(
        "policy", "rules", [], [rule("deny", on="input")], whole(DONE), code, (None, "policy.denied")
    ),
    "policy.rules.id": _rule(
        "id", "r1", "r2", whole(called(A), DONE), lambda run: _ruled(run).rules, (("r1",), ("r2",))
    ),
    "policy.rules.ruling": _rule(
        "ruling", "allow", "interrupt", whole(called(A), DONE), code, (None, "policy.interrupted")
    ),
    "policy.rules.targets": _rule(
        "targets", ["sea*"], ["see*"], whole(called(A), DONE), refused, (["tool.denied"], []), ruling="deny"
    ),
    "policy.rules.on": _rule("on", "input", "output", whole(DONE), asked, (0, 1), ruling="deny"),
    "policy.rules.when": _rule(
        "when", "args.q == 'a'", "args.q == 'b'", whole(called(A), DONE), refused, (["tool.denied"], []), ruling="deny"
    ),
    "policy.rules.set": _rule(
        "set", {"q": "x"}, {"q": "y"}, whole(called(A), DONE), _arguments, ({"q": "x"}, {"q": "y"}), ruling="modify"
    ),
    "policy.rules.mask": _rule(
        "mask", ["[0-9]"], ["x"], whole(said("a1x")), answer, ("a***x", "a1***"), ruling="modify", on="output"
    ),
    "policy.rules.reason": _rule(
        "reason", None, "just so", whole(called(A), DONE), lambda run: _ruled(run).reason, (None, "just so")
    ),
}


def _budget(key: str, one: Any, two: Any, play: Play, look: Look, seen: tuple[Any, Any], **same: Any) -> Key:
    return section("budgets", key, one, two, play, look, seen, **{**SEARCH, **same})


ONE_CALL = whole(called(A), DONE)
USED = 25
"""Tokens of a reply."""


def _tokens() -> tuple[int, int]:
    """A budget that just lets the second request pass, and one that just does not."""
    run = whole(called(A), DONE)(package(**SEARCH))
    needed = USED + run.of(ModelAsked)[1].reserved
    return needed, needed - 1


BUDGETS = {
    "budgets.turns": _budget("turns", 2, 1, ONE_CALL, code, (None, "budget.turns")),
    "budgets.tokens": _budget("tokens", *_tokens(), ONE_CALL, code, (None, "budget.tokens")),
    "budgets.cost": _budget(
        "cost",
        19,
        18,
        whole(DONE),
        code,
        (None, "budget.cost"),
        model={"routes": [ROUTE | {"price": FREE | {"input": DEAR}}]},
        tools={},
    ),
    "budgets.time": _budget("time", 300, 299, whole(called(A), DONE, takes=100), code, (None, "budget.time")),
    "budgets.tool_calls": _budget("tool_calls", 2, 1, whole(called(A, B), DONE), code, (None, "budget.tool_calls")),
    "budgets.on_turns": _budget(
        "on_turns", "fail", "stop", whole(called(A)), code, ("budget.turns", None), budgets={"turns": 1}
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


CUT = said("Once upon", finish="length")

LIMITS = {
    "limits.parallel_tools": _limit(
        "parallel_tools", 2, 1, whole(called(A, B), DONE), code, (None, "guard.parallel_tools")
    ),
    "limits.on_oversize_batch": _limit(
        "on_oversize_batch",
        "reject_all",
        "run_first",
        whole(called(A, B), DONE),
        lambda run: run.ran,
        ([], ["c1.0"]),
        limits={"parallel_tools": 1},
    ),
    "limits.on_truncated": _limit(
        "on_truncated",
        "continue",
        "escalate",
        whole(CUT, said(" a time.")),
        answer,
        ("Once upon a time.", " a time."),
        model={"max_output_tokens": 10},
    ),
    "limits.truncations": _limit("truncations", 1, 2, whole(CUT, CUT, CUT), asked, (2, 3)),
    "limits.depth": _limit(
        "depth",
        1,
        2,
        whole(called(("ask", '{"message": "Hi."}')), DONE, started=CHILD),
        refused,
        (["tool.invalid_call"], []),
        tools={"ask": agent_tool()},
        agents={"ask": BASE},
    ),
    "limits.runs": _limit(
        "runs",
        1,
        2,
        whole(called(("ask", '{"message": "Hi."}'), ("ask", '{"message": "Ho."}')), DONE),
        refused,
        (["tool.invalid_call"], []),
        tools={"ask": agent_tool()},
        agents={"ask": BASE},
    ),
}


def _guard(key: str, one: Any, two: Any, play: Play, seen: tuple[Any, Any], **same: Any) -> Key:
    return section("guards", key, one, two, play, code, seen, **{**SEARCH, **same})


WATCH = {"search": tool(observation=True)}
THREE = whole(called(A), called(B), called(A), DONE)

GUARDS = {
    "guards.repeated_call": _guard("repeated_call", 3, 2, whole(called(A, A), DONE), (None, "guard.repeated_call")),
    "guards.cycle": _guard("cycle", 3, 2, whole(called(A, B, A, B), DONE), (None, "guard.cycle")),
    "guards.repeated_batch": _guard(
        "repeated_batch", 2, 1, whole(called(A), called(A), DONE), (None, "guard.repeated_batch")
    ),
    "guards.batch_scope": _guard(
        "batch_scope", "consecutive", "session", THREE, (None, "guard.repeated_batch"), guards={"repeated_batch": 1}
    ),
    "guards.stagnation": _guard(
        "stagnation", 2, 1, whole(called(A, text="Hm."), called(B, text="Hm."), DONE), (None, "guard.stagnation")
    ),
    "guards.empty_outcome": _guard("empty_outcome", None, 0, whole(DONE), (None, "guard.empty_outcome")),
    "guards.observation": _guard(
        "observation", 3, 2, whole(called(A, A), DONE), (None, "guard.repeated_call"), tools=WATCH
    ),
}


def _waits(run: Run) -> list[int]:
    """The waits between requests, up to the seconds: jitter only shortens, by up to a quarter."""
    return [-(-fact.wait // 1000) for fact in run.of(RetryPlanned)]


RETRY = {
    "retry.attempts": section("retry", "attempts", 2, 3, whole(*[BUSY] * 3), asked, (2, 3)),
    "retry.first_delay": section("retry", "first_delay", 1000, 8000, whole(BUSY, DONE), _waits, ([1], [8])),
    "retry.max_delay": section("retry", "max_delay", 15_000, 1000, whole(BUSY, BUSY, DONE), _waits, ([1, 2], [1, 1])),
    "retry.max_wait": section("retry", "max_wait", 60_000, 0, whole(BUSY, DONE), asked, (2, 1)),
}

COMPACT = {"overflow": "compact", "keep": 0}
SUMMED = whole(TOO_LONG, said("It burns."), DONE, started=LONG)


def _summaries(run: Run) -> int:
    """How often the model was asked for a summary."""
    return sum(request.purpose == "compact" for request in run.requests)


CONTEXT = {
    "context.overflow": section(
        "context", "overflow", "fail", "compact", SUMMED, code, ("provider.context_overflow", None), context=COMPACT
    ),
    "context.keep": section("context", "keep", 0, 1, SUMMED, _summaries, (1, 0), context=COMPACT),
    "context.failures": section(
        "context",
        "failures",
        1,
        2,
        whole(TOO_LONG, said(" "), said("It burns."), DONE, started=LONG),
        lambda run: (len(run.of(CompactionFailed)), code(run)),
        ((1, "context.failed"), (1, None)),
        context=COMPACT,
    ),
}


def _output(key: str, one: Any, two: Any, reply: str, seen: tuple[Any, Any]) -> Key:
    rest = {"schema": {"type": "array"}, "repairs": 0}
    return section("output", key, one, two, whole(said(reply), said(reply)), code, seen, output=rest)


OUTPUT = {
    "output.schema": _output("schema", None, {"type": "array"}, "Done.", (None, "output.invalid")),
    "output.repairs": section(
        "output",
        "repairs",
        0,
        1,
        whole(said("no"), said("[]")),
        code,
        ("output.invalid", None),
        output={"schema": {"type": "array"}},
    ),
    "output.max_bytes": _output("max_bytes", 3, 2, "[1]", (None, "output.invalid")),
    "output.max_depth": _output("max_depth", 2, 1, "[[1]]", (None, "output.invalid")),
}

KEYS: dict[str, Key] = {**MODEL, **POLICY, **BUDGETS, **LIMITS, **GUARDS, **RETRY, **CONTEXT, **OUTPUT}
