"""Identical reads of one reply: one of them runs, and each gets that result."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrun.core.effects import AskHook, RunTool
from agentrun.core.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallCancelled,
    CallRefused,
    CallSettled,
    HookAnswered,
    Modify,
    ResultsGiven,
    ResultShared,
    Ruled,
    ToolFinished,
    ToolStarted,
)
from agentrun.core.fault import Fault
from agentrun.core.messages import Text, ToolResult, text_of
from agentrun.core.package import Package
from agentrun.core.state import pending_effects

from ..packages import package
from .script import Run, RunWaits, calls_reply, hook, mcp_tool, rule, text_reply, tool, writing
from .shape_parts import policy, resumes

A = ("a", '{"q": "x"}')


def agent(*rules: dict[str, Any], **changes: Any) -> Package:
    tools = {"a": tool(), "b": tool(), "slow": tool(parallel=False), "again": tool(effect="idempotent"), "w": writing()}
    return package(**{"tools": tools, "policy": policy(*rules), "guards": {"repeated_call": 5}, **changes})


def finished(given: Package, *calls: Any, **world: Any) -> Run:
    run = Run(given, calls_reply(*calls), text_reply("Done."), **{"tools": {"a": "found", "slow": "found"}, **world})
    run.finish()
    return run


def results(run: Run) -> dict[str, str]:
    """The results that the model read, by call."""
    return {
        each.call: text_of(each.parts) for each in run.requests[-1].request.messages if isinstance(each, ToolResult)
    }


@pytest.mark.parametrize("name", ["a", "slow"])
def test_identical_reads_run_once_and_each_gets_the_result(name: str) -> None:
    run = finished(agent(), name, name, name)
    assert run.ran == ["c1.0"]
    assert run.of(ResultShared) == [ResultShared(f"c1.{index}", name, "c1.0") for index in (1, 2)]
    assert [fact.call for fact in run.of(ToolFinished)] == ["c1.0", "c1.1", "c1.2"]
    assert results(run) == {"c1.0": "found", "c1.1": "found", "c1.2": "found"}
    assert run.of(ResultsGiven) == [ResultsGiven(1, repeats=("c1.1", "c1.2"))]
    assert (run.state.meter.tool_calls, run.state.meter.calls) == (1, {name: 1})


def test_calls_that_differ_all_run() -> None:
    run = finished(agent(), A, ("a", '{"q": "y"}'), ("b", '{"q": "x"}'), "again", "again", "w", "w")
    assert run.ran == ["c1.0", "c1.1", "c1.2", "c1.3", "c1.4", "c1.5", "c1.6"]
    assert run.of(ResultShared) == []
    assert run.of(ResultsGiven) == [ResultsGiven(1)]


def test_arguments_are_compared_as_values() -> None:
    run = finished(agent(), A, ("a", ' { "q" : "\\u0078" }'))
    assert run.ran == ["c1.0"]
    loose = agent(tools={"a": tool(args={"type": "object"})})
    assert finished(loose, ("a", '{"n": 1}'), ("a", '{"n": true}')).ran == ["c1.0", "c1.1"]


def test_identical_reads_of_two_replies_both_run() -> None:
    run = Run(
        agent(), calls_reply("a", "a"), calls_reply("a"), text_reply("Done."), tools={"a": lambda effect: effect.id}
    )
    run.finish()
    assert run.ran == ["c1.0", "c2.0"]
    assert results(run) == {"c1.0": "c1.0", "c1.1": "c1.0", "c2.0": "c2.0"}


def test_reads_of_an_mcp_server_run_once() -> None:
    server = mcp_tool("get", "put", effect="at_most_once", effects={"get": "read"})
    run = finished(agent(tools={"s": server}), "s.get", "s.get", "s.put", "s.put")
    assert run.ran == ["c1.0", "c1.2", "c1.3"]


@pytest.mark.parametrize("compare", ["calls", None])
def test_with_compare_calls_every_read_runs(compare: str | None) -> None:
    """And with packages of earlier releases, which do not say what is compared."""
    plain = {"repeated_call": 5} | ({} if compare is None else {"call_compare": compare})
    given = agent(guards=plain)
    if compare is None:
        given = package_of_an_earlier_release(given)
    run = finished(given, "a", "a", "a")
    assert run.ran == ["c1.0", "c1.1", "c1.2"]
    assert (run.of(ResultShared), run.of(ResultsGiven)) == ([], [ResultsGiven(1)])


def package_of_an_earlier_release(given: Package) -> Package:
    plain = msgspec.to_builtins(given)
    for name in ("call_compare", "cycle_compare", "batch_compare"):
        del plain["guards"][name]
    return msgspec.convert(plain, Package)


# each call is checked, ruled on and approved by itself


def test_each_call_is_ruled_on_and_approved() -> None:
    run = finished(agent(rule("ask")), "a", "a", people={"a": "approved"})
    assert [(fact.subject, fact.ruling) for fact in run.of(Ruled)] == [("c1.0", "ask"), ("c1.1", "ask")]
    assert [fact.subject for fact in run.of(ApprovalAsked)] == ["c1.0", "c1.1"]
    assert run.ran == ["c1.0"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("answers", "ran"), [("yy", ["c1.0"]), ("yn", ["c1.0"]), ("ny", ["c1.1"]), ("nn", [])])
def test_denied_call_gets_no_result_and_the_next_one_runs(order: tuple[int, int], answers: str, ran: list[str]) -> None:
    """In whatever order people answer: a call waits for the answers about the identical ones before it."""
    run = Run(agent(rule("ask")), calls_reply("a", "a"), text_reply("Done."), tools={"a": "found"})
    for index in order:
        with pytest.raises(RunWaits) as stuck:
            run.finish()
        question = next(each for each in stuck.value.wait.questions if each.subject == f"c1.{index}")
        answer: Any = "approved" if answers[index] == "y" else "denied"
        run.add(ApprovalAnswered(question.subject, question.question, answer, "somebody"))
    run.finish()
    assert run.ran == ran
    found = ["found" if each == "y" else "tool.denied: a was not approved: the request was denied" for each in answers]
    assert list(results(run).values()) == found
    assert len(run.of(ResultShared)) == (answers == "yy")


def test_deferred_reads_run_once_when_the_rule_allows_them() -> None:
    later = rule("defer", "a", when="spend.time < 1500")
    run = Run(
        agent(later), calls_reply("a", "b", "a"), text_reply("Done."), tools={"a": "found"}, takes=1000, helps=resumes
    )
    run.finish()
    assert run.ran == ["c1.1", "c1.0"]
    assert list(results(run).values()) == ["found", "done", "found"]


def test_refused_call_has_no_result_to_share() -> None:
    invalid = ("a", '{"q": 1}')
    run = finished(agent(), invalid, invalid)
    assert [fact.call for fact in run.of(CallRefused)] == ["c1.0", "c1.1"]
    assert (run.ran, run.of(ResultShared)) == ([], [])


def rewrites(**arguments: str) -> Any:
    """A hook that changes the arguments of some calls."""

    def answer(effect: AskHook) -> Modify:
        return Modify({"q": arguments.get(effect.subject.replace(".", "_"), "x")})

    return answer


@pytest.mark.parametrize("pick", [lambda count: 0, lambda count: count - 1])
def test_rewritten_arguments_are_compared_too(pick: Any) -> None:
    given = agent(hooks=[hook("before_tool")])
    run = finished(given, "a", "a", "a", hooks={"watch": rewrites(c1_1="y")}, pick=pick)
    assert run.ran == ["c1.0", "c1.1"], "the second has other arguments"
    assert run.of(ResultShared) == [ResultShared("c1.2", "a", "c1.0")]
    run = finished(given, "a", "a", "a", hooks={"watch": rewrites(c1_0="y")}, pick=pick)
    assert run.ran == ["c1.0", "c1.1"]
    assert run.of(ResultShared) == [ResultShared("c1.2", "a", "c1.1")]
    run = finished(given, A, ("a", '{"q": "y"}'), hooks={"watch": rewrites()}, pick=pick)
    assert run.ran == ["c1.0", "c1.1"], "the model asked for different things"


# results


def test_each_result_passes_hooks_and_rules_from_the_start() -> None:
    """The second call gets what the tool returned, not what a hook made of it for the first."""
    given = agent(rule("modify", on="tool_result", mask=["[0-9]+"]), hooks=[hook("after_tool")])
    footers = {"c1.0": "one 1", "c1.1": "two 2"}
    seen: list[Any] = []

    def watch(effect: AskHook) -> Modify:
        seen.append(effect.value)
        return Modify(footers[effect.subject])

    run = finished(given, "a", "a", hooks={"watch": watch})
    assert seen == ["found", "found"]
    assert results(run) == {"c1.0": "one ***", "c1.1": "two ***"}
    assert [fact.subject for fact in run.of(HookAnswered)] == ["c1.0", "c1.1"]


def test_result_that_is_denied_to_one_call_is_ruled_on_for_the_next() -> None:
    given = agent(rule("deny", "a", on="tool_result", reason="secret"))
    run = finished(given, "a", "a")
    assert run.ran == ["c1.0"]
    assert [fact.call for fact in run.of(CallRefused)] == ["c1.0", "c1.1"]


def test_failure_and_cut_result_are_shared() -> None:
    fault = Fault("tool.execution", "no such file", {"tool": "a"})
    run = finished(agent(), "a", "a", tools={"a": fault})
    assert (run.ran, [fact.fault for fact in run.of(ToolFinished)]) == (["c1.0"], [fault, fault])
    cut = ToolFinished("", (Text("head … tail"),), None, "sha256:1")
    run = finished(agent(), "a", "a", tools={"a": cut})
    assert [(fact.parts, fact.blob) for fact in run.of(ToolFinished)] == [(cut.parts, cut.blob)] * 2


def test_fatal_result_ends_the_run_before_it_is_shared() -> None:
    fatal = Fault("tool.fatal", "end it", {"tool": "a", "reason": "bad"})
    run = Run(agent(), calls_reply("a", "a"), tools={"a": fatal})
    assert run.finish().code == "tool.fatal"
    assert run.of(ResultShared) == []


def test_terminal_read_ends_the_run_with_its_first_call() -> None:
    run = Run(agent(tools={"end": tool(terminal=True)}), calls_reply("end", "end"), tools={"end": "That is it."})
    assert run.finish().answer == "That is it."
    assert [(fact.call, fact.by) for fact in run.of(CallCancelled)] == [("c1.1", "c1.0")]


# budgets


def test_shared_results_need_no_budget() -> None:
    assert finished(agent(budgets={"tool_calls": 1}), "a", "a", "a").ran == ["c1.0"]
    run = Run(agent(budgets={"tool_calls": 1}), calls_reply("a", "a", "b"))
    assert run.finish().fields == {"used": 0, "reserved": 2, "limit": 1}


def test_budget_is_kept_if_the_first_call_is_denied() -> None:
    """The second runs in its place; a third that differs does not fit."""
    given = agent(rule("deny", "a", when="args.q == 'x'"), hooks=[hook("before_tool")], budgets={"tool_calls": 1})
    run = finished(given, "a", "a", hooks={"watch": rewrites(c1_1="y")})
    assert (run.ran, run.state.meter.tool_calls) == (["c1.1"], 1)


# interruptions


def test_lost_read_runs_again_and_the_others_wait() -> None:
    run = Run(agent(), calls_reply("a", "a"), text_reply("Done."), tools={"a": "found"})
    run.until(ToolStarted)
    assert pending_effects(run.state) == ("c1.0",)
    run.crash()
    run.finish()
    assert [fact.call for fact in run.of(ToolStarted)] == ["c1.0", "c1.0"]
    assert len(run.of(ResultShared)) == 1
    assert run.state.meter.tool_calls == 1


def test_lost_shared_result_is_shared_again() -> None:
    run = Run(agent(), calls_reply("a", "a"), text_reply("Done."), tools={"a": "found"})
    run.until(ResultShared)
    run.crash()
    run.finish()
    assert [fact.call for fact in run.of(ToolStarted)] == ["c1.0"]
    assert len(run.of(ResultShared)) == 2
    assert list(results(run).values()) == ["found", "found"]


def test_result_set_by_a_person_is_shared() -> None:
    run = Run(agent(), calls_reply("a", "a"), text_reply("Done."))
    run.until(ToolStarted)
    run.crash()
    run.add(CallSettled("c1.0", "result", "somebody", (Text("by hand"),)))
    run.finish()
    assert list(results(run).values()) == ["by hand", "by hand"]


def test_run_resumed_with_another_package_follows_that_one() -> None:
    every, once = agent(guards={"repeated_call": 5, "call_compare": "calls"}), agent()
    run = Run(once, calls_reply("a", "a"), text_reply("Done."))
    run.until(ToolStarted)
    run.crash(every)
    run.finish()
    assert run.ran == ["c1.0", "c1.0", "c1.1"]
    run = Run(every, calls_reply("a", "a"), text_reply("Done."))
    run.until(ToolStarted)
    run.crash(once)
    run.finish()
    assert [fact.call for fact in run.of(ToolStarted)] == ["c1.0", "c1.1", "c1.0"]
    assert run.of(ResultShared) == [ResultShared("c1.1", "a", "c1.0")]


@given(st.lists(st.sampled_from(["a", "b", "slow", "w", "again"]), min_size=1, max_size=7), st.data())
def test_order_of_arrival_does_not_matter(names: list[str], data: st.DataObject) -> None:
    """Hooks and results arrive in any order: the same calls run, and share the same results."""

    def facts_by_call(pick: Any) -> Any:
        given = agent(
            guards={"repeated_call": None, "cycle": None, "repeated_batch": None},
            hooks=[hook("before_tool"), hook("after_tool", id="late")],
        )
        run = Run(
            given,
            calls_reply(*names),
            text_reply("Done."),
            tools=dict.fromkeys(names, lambda effect: effect.id),
            pick=pick,
        )
        run.finish()
        started = [fact for fact in run.facts if isinstance(fact, ToolStarted | ResultShared)]
        return sorted(started, key=lambda fact: fact.call), results(run), run.of(ResultsGiven)

    assert facts_by_call(lambda count: data.draw(st.integers(0, count - 1))) == facts_by_call(lambda count: 0)


def test_effect_of_a_shared_result_has_the_result() -> None:
    run = finished(agent(), A, A)
    effect = next(each for each in run.effects if isinstance(each, RunTool) and each.shared)
    assert effect.shared is not None
    assert (effect.id, effect.shared.source, text_of(effect.shared.returned.parts)) == ("c1.1", "c1.0", "found")
