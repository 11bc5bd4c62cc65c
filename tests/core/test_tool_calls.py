"""Tool calls of a reply: order, refusals, failures, terminal tools and limits."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentrun.core import tool_calls
from agentrun.core.effects import RunTool
from agentrun.core.facts import CallCancelled, CallRefused, CallSettled, ResultsGiven, ToolFinished, ToolStarted
from agentrun.core.fault import Fault
from agentrun.core.messages import Assistant, Reply, Text, ToolResult, text_of
from agentrun.core.package import Package
from agentrun.core.state import pending_effects

from ..packages import package, typed
from .script import RUN_STARTED, Run, RunWaits, calls_reply, hook, rule, text_reply, tool, writing
from .shape_parts import ALLOW, BAD, GOOD, TRANSIENT, policy


def results(run: Run, turn: int = 2) -> list[tuple[str, str]]:
    """The results that the model reads with its request of a turn."""
    request = next(request for request in run.requests if request.turn == turn)
    found = [message for message in request.request.messages if isinstance(message, ToolResult)]
    return [(message.call, text_of(message.parts)) for message in found]


def tools(**those: Any) -> dict[str, Any]:
    return {"tools": those, "policy": ALLOW}


def test_result_of_a_call_is_in_the_next_request() -> None:
    run = Run(
        package(**tools(a=tool())),
        calls_reply(("a", '{"q": "x"}'), text="Let me see."),
        text_reply("Done."),
        tools={"a": "found"},
    )
    outcome = run.finish()
    assert (outcome.answer, outcome.turns, outcome.tool_calls) == ("Done.", 2, 1)
    assert run.kinds()[3:-4] == ["ruled", "tool_started", "tool_finished", "results_given"]
    (effect,) = [effect for effect in run.effects if isinstance(effect, RunTool)]
    assert (effect.id, effect.name, effect.arguments) == ("c1.0", "a", {"q": "x"})
    assert (effect.max_lines, effect.max_bytes) == (2000, 51_200)
    _, assistant, result = run.requests[1].request.messages
    assert isinstance(assistant, Assistant)
    assert (assistant.text, assistant.calls[0].id) == ("Let me see.", "c1.0")
    assert result == ToolResult("c1.0", (Text("found"),))


def test_request_ids_count_attempts_per_turn() -> None:
    agent = package(**tools(a=tool()))
    run = Run(agent, TRANSIENT, calls_reply("a"), TRANSIENT, calls_reply(("a", '{"q": "x"}')), text_reply("Done."))
    run.finish()
    assert [request.id for request in run.requests] == ["m1.1", "m1.2", "m2.1", "m2.2", "m3.1"]


def test_idempotency_key_depends_on_run_call_tool_and_arguments() -> None:
    def key(agent: Package, *calls: tuple[str, str], run: str = "run-1") -> str:
        it = Run(agent, calls_reply(*calls), text_reply("Done."), started=replace(RUN_STARTED, run=run))
        it.finish()
        return str(it.of(ToolStarted)[-1].key)

    agent = package(**tools(a=tool(), b=tool()))
    one = key(agent, ("a", '{"q": "x"}'))
    assert key(agent, ("a", '{ "q":"x" }')) == one, "arguments are compared as values"
    others = {
        key(agent, ("a", '{"q": "y"}')),
        key(agent, ("b", '{"q": "x"}')),
        key(agent, ("nothing", "{}"), ("a", '{"q": "x"}')),
        key(agent, ("a", '{"q": "x"}'), run="run-2"),
    }
    assert len(others | {one}) == 5


def test_parallel_calls_run_first_then_the_others_one_by_one() -> None:
    """Those that may run together first and together, the others one at a time in call order."""
    agent = package(**tools(r=tool(), w=writing(), v=writing()))
    run = Run(agent, calls_reply("w", ("r", '{"q": "1"}'), "v", ("r", '{"q": "2"}')), text_reply("Done."))
    run.until(ToolStarted)
    assert pending_effects(run.state) == ("c1.1", "c1.3")
    run.until(ToolFinished)
    assert pending_effects(run.state) == ("c1.3",), "an unsafe call waits for all that run together"
    run.finish()
    assert run.ran == ["c1.1", "c1.3", "c1.0", "c1.2"]
    started = [run.facts.index(fact) for fact in run.of(ToolStarted)]
    finished = [run.facts.index(fact) for fact in run.of(ToolFinished)]
    assert started[2] > finished[1]
    assert started[3] > finished[2], "one at a time"
    assert [call for call, _ in results(run)] == ["c1.0", "c1.1", "c1.2", "c1.3"]


def test_planted_ready_calls_run_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tool_calls,
        "ready_calls",
        lambda package, state: [
            (call, package.tools[call.call.tool]) for call in state.calls if call.status == "ready"
        ],
    )
    agent = package(**tools(r=tool(), w=writing()))
    run = Run(agent, calls_reply("w", "r"), text_reply("Done."))
    run.until(ToolStarted)
    assert pending_effects(run.state) != ("c1.1",)


def test_steps_of_a_call_come_in_order() -> None:
    """Known, visible, arguments; hooks; policy; a person; the call; hooks; policy."""
    agent = package(
        tools={"a": writing()},
        policy=policy(rule("ask", "a"), rule("modify", "a", on="tool_result", mask=["x"])),
        hooks=[hook("before_tool"), hook("after_tool", id="late")],
    )
    run = Run(agent, calls_reply("a"), text_reply("Done."), people={"a": "approved"}, tools={"a": "xyz"})
    run.finish()
    assert run.kinds()[3:-4] == [
        "hook_asked",
        "hook_answered",
        "ruled",
        "approval_asked",
        "approval_answered",
        "tool_started",
        "tool_finished",
        "hook_asked",
        "hook_answered",
        "ruled",
        "results_given",
    ]
    assert results(run) == [("c1.0", "***yz")]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("nothing", "{}"), "tool.unknown"),
        (("shy", "{}"), "tool.hidden"),
        (("a", "{"), "tool.invalid_arguments"),
        (("a", '{"q": 1}'), "tool.invalid_arguments"),
        (("b", "{}"), "tool.missing_field"),
    ],
)
def test_invalid_call_is_refused_before_hooks_and_rules(call: tuple[str, str], code: str) -> None:
    """The model reads why; no hook, rule or person is asked, and nothing runs."""
    needs = tool(args={"type": "object", "required": ["q"]})
    agent = package(
        tools={"a": tool(), "b": needs, "shy": tool(visible="spend.turns > 5")},
        policy=policy(rule("ask")),
        hooks=[hook("before_tool")],
    )
    run = Run(agent, calls_reply(call), text_reply("Well."))
    assert run.finish().answer == "Well."
    (refused,) = run.of(CallRefused)
    assert (refused.code, refused.fields["tool"]) == (code, call[0])
    assert run.kinds()[3:5] == ["call_refused", "results_given"]
    assert results(run) == [("c1.0", refused.told)]
    assert refused.told.startswith(f"{code}: ")


@pytest.mark.parametrize("code", ["tool.execution", "tool.timeout", "tool.denied"])
def test_tool_failure_is_sent_to_the_model(code: str) -> None:
    fault = Fault(code, "it broke", {"tool": "a"})
    run = Run(package(**tools(a=tool())), calls_reply("a"), text_reply("Well."), tools={"a": fault})
    assert run.finish().status == "completed"
    assert results(run) == [("c1.0", f"{code}: it broke")]


def test_denied_result_ends_the_run_with_on_denied_stop() -> None:
    fault = Fault("tool.denied", "not there", {"tool": "a"}, "a hint")
    outcome = Run(package(**tools(a=tool(on_denied="stop"))), calls_reply("a"), tools={"a": fault}).finish()
    assert (outcome.code, outcome.exit_code) == ("tool.denied", 4)
    assert outcome.fault is not None
    assert (outcome.fields, outcome.fault.hint) == ({"tool": "a", "call": "c1.0"}, "a hint")


@pytest.mark.parametrize(
    ("code", "exit_code", "retry"),
    [("tool.fatal", 6, "not_retryable"), ("tool.aborted", 6, "not_retryable"), ("tool.drift", 6, "user")],
)
def test_fatal_tool_failure_ends_the_run(code: str, exit_code: int, retry: str) -> None:
    fault = Fault(code, "it ends", {"tool": "a", "reason": "because"})
    run = Run(package(**tools(a=tool(), b=writing())), calls_reply("a", "b"), tools={"a": fault})
    outcome = run.finish()
    assert (outcome.fault, outcome.exit_code, outcome.retry) == (fault, exit_code, retry)
    assert run.ran == ["c1.0"]
    assert run.of(CallCancelled) == [CallCancelled("c1.1", "tool.aborted: the run ended before this call finished")]
    assert run.kinds()[-3:] == ["run_ending", "call_cancelled", "run_stopped"], "the reason comes first"


def test_terminal_tool_gives_the_answer_and_cancels_its_siblings() -> None:
    agent = package(**tools(a=tool(), final=tool(terminal=True), w=writing()))
    run = Run(
        agent, calls_reply("w", "a", "final", text="Now."), tools={"final": "That is it."}, pick=lambda count: count - 1
    )
    outcome = run.finish()
    assert (outcome.answer, outcome.label, outcome.turns) == ("That is it.", None, 1)
    told = "tool.aborted: final made this call unnecessary"
    assert run.of(CallCancelled) == [CallCancelled("c1.0", told, "c1.2"), CallCancelled("c1.1", told, "c1.2")]
    assert run.of(ResultsGiven) == [ResultsGiven(1, "c1.2")]
    results = run.state.conversation.transcript.since(2)
    assert [text_of(message.parts) for message in results] == [told, told, "That is it."]  # type: ignore[arg-type]  # they are results


def test_failed_terminal_tool_does_not_end_the_run() -> None:
    agent = package(**tools(final=tool(terminal=True)))
    run = Run(agent, calls_reply("final"), text_reply("Then not."), tools={"final": Fault("tool.execution", "broken")})
    assert run.finish().answer == "Then not."


def test_terminal_tool_with_a_denied_result_does_not_end_the_run() -> None:
    agent = package(tools={"final": tool(terminal=True)}, policy=policy(rule("deny", on="tool_result")))
    assert Run(agent, calls_reply("final"), text_reply("Then not.")).finish().answer == "Then not."


def test_first_terminal_tool_has_the_answer() -> None:
    agent = package(**tools(final=tool(terminal=True), last=tool(terminal=True, parallel=False)))
    run = Run(agent, calls_reply("last", "final"), tools={"final": "first", "last": "second"})
    assert run.finish().answer == "first", "the other was not begun"
    assert run.ran == ["c1.1"]


def test_terminal_tool_result_is_repaired_to_the_output_schema() -> None:
    agent = typed(**tools(final=tool(terminal=True)))
    given = iter([BAD, GOOD])
    run = Run(agent, calls_reply("final"), calls_reply("final"), tools={"final": lambda effect: next(given)})
    assert run.finish().output == {"queue": "hardware", "urgent": True}
    messages = tuple(run.requests[1].request.messages)
    assert [type(message).__name__ for message in messages] == ["User", "Assistant", "ToolResult", "User"]


def test_tool_with_aborts_siblings_cancels_the_other_calls() -> None:
    agent = package(**tools(a=tool(), enough=tool(aborts_siblings=True), w=writing()))
    run = Run(agent, calls_reply("w", "a", "enough"), text_reply("Done."), pick=lambda count: count - 1)
    assert run.finish().answer == "Done."
    told = "tool.aborted: enough made this call unnecessary"
    assert results(run) == [("c1.0", told), ("c1.1", told), ("c1.2", "done")]
    assert run.ran == ["c1.1", "c1.2"]


@pytest.mark.parametrize("effect", ["read", "at_most_once"])
def test_aborted_lost_call_is_dropped_only_if_it_is_read_only(effect: str) -> None:
    """What a lost call did is still to be found out, whatever its siblings say."""
    agent = package(**tools(a=tool(effect=effect), enough=tool(aborts_siblings=True)))
    run = Run(agent, calls_reply("a", "enough"), text_reply("Done."), pick=lambda count: count - 1)
    run.until(ToolStarted)
    run.crash()
    if effect == "read":
        run.add(ToolStarted("c1.1", "enough", run.of(ToolStarted)[1].key))
        run.add(ToolFinished("c1.1", (Text("enough"),)))
        run.until(CallCancelled)
        assert [call.status for call in run.state.calls] == ["done", "finished"]
    else:
        with pytest.raises(RunWaits) as caught:
            run.finish()
        assert caught.value.wait.waits_for == ("c1.0",)
        assert run.of(CallCancelled) == []
        run.add(CallSettled("c1.0", "result", "somebody", (Text("it did"),)))
        run.finish()
        assert results(run) == [("c1.0", "it did"), ("c1.1", "done")]


def test_failed_call_does_not_abort_its_siblings() -> None:
    agent = package(**tools(enough=tool(aborts_siblings=True), w=writing()))
    run = Run(
        agent, calls_reply("w", "enough"), text_reply("Done."), tools={"enough": Fault("tool.execution", "broken")}
    )
    run.finish()
    assert run.of(CallCancelled) == []


def calls(count: int) -> Reply:
    return calls_reply(*(("a", f'{{"q": "{place}"}}') for place in range(count)))


@pytest.mark.parametrize("mode", ["fail", "reject_all", "run_first"])
def test_batch_at_the_parallel_limit_runs(mode: str) -> None:
    agent = package(**tools(a=tool()), limits={"parallel_tools": 3, "on_oversize_batch": mode})
    run = Run(agent, calls(3), text_reply("Done."))
    run.finish()
    assert len(run.ran) == 3


@pytest.mark.parametrize(("mode", "ran"), [("fail", []), ("reject_all", []), ("run_first", ["c1.0", "c1.1", "c1.2"])])
def test_batch_above_the_parallel_limit(mode: str, ran: list[str]) -> None:
    agent = package(**tools(a=tool()), limits={"parallel_tools": 3, "on_oversize_batch": mode})
    run = Run(agent, calls(4), text_reply("Done."))
    outcome = run.finish()
    assert run.ran == ran
    refused = [(fact.call, fact.code, fact.fields) for fact in run.of(CallRefused)]
    fields = {"tool": "a", "reason": "parallel_tools", "count": 4, "limit": 3}
    if mode == "fail":
        assert (outcome.code, outcome.fields) == ("guard.parallel_tools", {"count": 4, "limit": 3, "turn": 1})
        assert (outcome.exit_code, outcome.retry) == (5, "not_retryable")
    else:
        first = 0 if mode == "reject_all" else 3
        assert refused == [(f"c1.{place}", "tool.invalid_call", fields) for place in range(first, 4)]
        assert outcome.answer == "Done."


def test_batch_beyond_the_call_budget_does_not_run() -> None:
    for limit, code in ((2, None), (1, "budget.tool_calls")):
        run = Run(package(**tools(a=tool()), budgets={"tool_calls": limit}), calls(2), text_reply("Done."))
        assert run.finish().code == code
        assert len(run.ran) == (2 if code is None else 0)


def test_refused_calls_do_not_count_for_the_budget() -> None:
    run = Run(package(**tools(a=tool()), budgets={"tool_calls": 0}), calls_reply("nothing"), text_reply("Done."))
    assert run.finish().tool_calls == 0


def test_batch_with_a_denied_result_resets_the_empty_outcome_guard() -> None:
    agent = package(
        tools={"a": tool()},
        policy=policy(rule("deny", on="tool_result")),
        guards={"empty_outcome": 1, "stagnation": None},
    )
    run = Run(agent, text_reply("1"), calls_reply("a"), text_reply("2"), text_reply("3"))
    outcome = run.finish()
    assert (outcome.code, outcome.turns) == ("guard.empty_outcome", 4)
    run = Run(agent, text_reply("1"), calls_reply("nothing"), text_reply("2"))
    assert (run.finish().code, run.state.turns) == ("guard.empty_outcome", 3), "what did not run resets nothing"
