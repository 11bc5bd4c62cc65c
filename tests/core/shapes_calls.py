"""Run shapes with tool calls: refusals, rulings, hooks, failures and sub-agents."""

from typing import Any

from agentrun.core.effects import Wait
from agentrun.core.facts import Deny, Fact, Inject, Modify
from agentrun.core.fault import Fault

from ..packages import package, typed
from .script import Run, agent_tool, calls_reply, hook, rule, text_reply, tool, writing
from .shape_parts import ALLOW, BAD, GOOD, one_of, policy, resumes, settles, shape, sleeping

POINTS = ("on_input", "before_model", "after_model", "before_tool", "after_tool", "on_output", "on_stop")


@shape
def reading() -> Run:
    """Parallel calls, some of which cannot be made."""
    agent = package(tools={"search": tool(), "slow": tool(effect="idempotent")}, policy=ALLOW)
    calls = calls_reply(("search", '{"q": "a"}'), "slow", "nothing", ("search", "{"), text="Let me see.")
    return Run(agent, calls, text_reply("Found."), tools={"slow": Fault("tool.timeout", "too slow", {"tool": "slow"})})


@shape
def with_defaults() -> Run:
    """Calls that leave out arguments with a default. A rule rewrites one of them."""
    args = {"type": "object", "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "default": 5}}}
    agent = package(
        tools={"search": tool(args=args), "set": tool(args=args)}, policy=policy(rule("modify", "set", set={"q": "b"}))
    )
    calls = calls_reply(("search", '{"q": "a"}'), ("set", '{"q": "a"}'), ("search", '{"limit": 1}'))
    return Run(agent, calls, text_reply("Done."))


@shape
def shared() -> Run:
    """Identical reads: one of them runs, and each has hooks and rules of its own."""
    agent = package(
        tools={"search": tool()},
        policy=policy(rule("modify", on="tool_result", mask=["x"])),
        hooks=[hook("before_tool"), hook("after_tool", id="late")],
    )
    return Run(agent, calls_reply("search", "search", "search"), text_reply("Found."), tools={"search": "xyz"})


@shape
def writes() -> Run:
    agent = package(tools={"search": tool(), "refund": writing(), "mail": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("refund", "search", "mail"), text_reply("Done."), helps=resumes)
    run.tools["refund"] = "refunded"
    return run


@shape
def refused() -> Run:
    """All calls are refused before anything runs."""
    return Run(package(tools={"search": tool()}, policy=ALLOW), calls_reply("a", "b"), text_reply("Well."))


@shape
def rejected_all() -> Run:
    agent = package(
        tools={"search": tool()}, policy=ALLOW, limits={"parallel_tools": 2, "on_oversize_batch": "reject_all"}
    )
    return Run(agent, calls_reply("search", ("search", '{"q": "b"}'), ("search", '{"q": "c"}')), text_reply("Well."))


@shape
def ran_first() -> Run:
    agent = package(
        tools={"search": tool()}, policy=ALLOW, limits={"parallel_tools": 2, "on_oversize_batch": "run_first"}
    )
    calls = [("search", f'{{"q": "{letter}"}}') for letter in "abcd"]
    return Run(agent, calls_reply(*calls), text_reply("Well."))


@shape
def tripped() -> Run:
    agent = package(tools={"search": tool()}, policy=ALLOW, limits={"parallel_tools": 2})
    return Run(agent, calls_reply("search", ("search", '{"q": "b"}'), ("search", '{"q": "c"}')))


@shape
def ruled() -> Run:
    """Every ruling on calls that goes on: modify, deny, ask with yes and no, allow."""
    agent = package(
        tools={name: tool() for name in ("free", "set", "no", "yes", "nope")},
        policy=policy(
            rule("modify", "set", set={"q": "other"}),
            rule("deny", "no", reason="never"),
            rule("ask", "yes"),
            rule("ask", "nope"),
        ),
    )
    people: Any = {"yes": "approved", "nope": "denied"}
    return Run(
        agent, calls_reply("free", ("set", '{"q": "a"}'), "no", "yes", "nope"), text_reply("Done."), people=people
    )


@shape
def denied_stop() -> Run:
    agent = package(tools={"no": tool(on_denied="stop"), "refund": writing()}, policy=policy(rule("deny", "no")))
    return Run(agent, calls_reply("refund", "no", "refund"), helps=resumes)


@shape
def interrupted() -> Run:
    agent = package(tools={"a": tool(), "b": tool()}, policy=policy(rule("interrupt", "b")))
    return Run(agent, calls_reply("a", "b"))


@shape
def deferred() -> Run:
    agent = package(
        tools={"search": tool(), "later": tool()},
        policy=policy(rule("defer", "later", when="spend.time < 1500")),
    )
    return Run(agent, calls_reply("later", "search"), text_reply("Done."), takes=1000, helps=resumes)


@shape
def deferred_until() -> Run:
    agent = package(
        tools={"search": tool(), "later": tool()},
        policy=policy(rule("defer", "later", wait=1500), rule("defer", "search", until=2500)),
    )

    def resumes_later(run: Run, wait: Wait) -> Fact | None:
        run.now += 1000
        return resumes(run, wait)

    return Run(agent, calls_reply("later", "search"), text_reply("Done."), takes=1000, helps=resumes_later)


@shape
def deferred_to_person() -> Run:
    held = rule("defer", "yes", "no", person=True, reason="the boss decides")
    agent = package(tools={name: tool() for name in ("search", "yes", "no")}, policy=policy(held))
    people: Any = {"yes": "approved", "no": "denied"}
    return Run(agent, calls_reply("yes", "search", "no"), text_reply("Done."), people=people)


@shape
def abandoned() -> Run:
    agent = package(tools={"refund": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("refund", ("refund", '{"q": "b"}')), text_reply("Done."), helps=settles("stop"))
    run.disturb[6] = Run.crash
    return run


@shape
def settled_again() -> Run:
    agent = package(tools={"refund": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("refund"), text_reply("Done."), helps=settles("retry"))
    run.disturb[5] = Run.crash
    return run


@shape
def fatal() -> Run:
    agent = package(tools={"a": tool(), "b": writing()}, policy=ALLOW)
    return Run(agent, calls_reply("a", "b"), tools={"a": Fault("tool.fatal", "end it", {"tool": "a", "reason": "bad"})})


@shape
def terminal() -> Run:
    agent = package(tools={"a": tool(), "answer": tool(terminal=True), "b": writing()}, policy=ALLOW)
    return Run(agent, calls_reply("a", "answer", "b"), tools={"answer": "That is it."}, pick=lambda count: count - 1)


@shape
def terminal_repaired() -> Run:
    agent = typed(tools={"answer": tool(terminal=True)}, policy=ALLOW)
    return Run(agent, calls_reply("answer"), calls_reply(("answer", '{"q": "b"}')), tools={"answer": one_of(BAD, GOOD)})


@shape
def aborting() -> Run:
    agent = package(tools={"stop": tool(aborts_siblings=True), "a": tool(), "b": writing()}, policy=ALLOW)
    return Run(agent, calls_reply("a", "stop", "b"), text_reply("Done."), pick=lambda count: count - 1)


@shape
def out_of_calls() -> Run:
    agent = package(tools={"a": tool(), "b": writing()}, policy=ALLOW, budgets={"tool_calls": 1})
    return Run(agent, calls_reply("b", "a", "b"))


@shape
def withheld() -> Run:
    """Rules on results: one masked, one denied."""
    agent = package(
        tools={"a": tool(), "b": tool()},
        policy=policy(
            rule("modify", "a", on="tool_result", mask=["[0-9]+"]),
            rule("deny", "b", on="tool_result", reason="secret"),
        ),
    )
    return Run(agent, calls_reply("a", "b"), text_reply("Done."), tools={"a": "pin 1234"})


@shape
def result_interrupted() -> Run:
    agent = package(tools={"a": tool(), "b": writing()}, policy=policy(rule("interrupt", "a", on="tool_result")))
    return Run(agent, calls_reply("a", "b"))


@shape
def hooked() -> Run:
    """A hook at every point."""
    hooks = [hook(point, id=f"{point}.{place}", order=place) for point in POINTS for place in (1, 2)]
    agent = package(tools={"a": tool(), "b": writing()}, policy=policy(), hooks=hooks)
    answers: Any = {
        "on_input.1": Inject("Be kind."),
        "on_input.2": Modify("It smokes."),
        "before_model.1": Inject("Be brief."),
        "after_model.1": Modify("Reworded."),
        "before_tool.1": Modify({"q": "hooked"}),
        "after_tool.2": Modify("result"),
        "on_output.2": Modify("Final."),
    }
    return Run(agent, calls_reply("a", "b"), text_reply("Done."), hooks=answers, helps=resumes)


@shape
def hook_denied() -> Run:
    hooks = [hook("before_tool"), hook("after_tool", id="late")]
    agent = package(tools={"a": tool(), "b": tool()}, policy=ALLOW, hooks=hooks)

    def answer(effect: Any) -> Any:
        return (
            Deny("not this") if effect.target == "a" else Deny("not that") if effect.hook.id == "late" else Modify({})
        )

    return Run(agent, calls_reply("a", "b"), text_reply("Done."), hooks={"watch": answer, "late": answer})


@shape
def with_child() -> Run:
    child = package(name="child", budgets={"tokens": 50})
    agent = package(
        tools={"helper": agent_tool(), "a": tool()}, agents={"helper": child}, policy=ALLOW, budgets={"tokens": 5000}
    )
    calls = calls_reply(("helper", '{"message": "one"}'), "a", ("helper", '{"message": "two"}'))
    return Run(agent, calls, text_reply("Done."), tools={"helper": sleeping(["m1", "m2"])}, helps=resumes)


@shape
def tool_gone() -> Run:
    """A call that was lost is to run again, but the package that the run goes on with has no such tool."""
    agent = package(tools={"refund": writing()}, policy=ALLOW)
    run = Run(agent, calls_reply("refund"), text_reply("Done."), helps=settles("retry"))
    run.disturb[5] = lambda run: run.crash(package())
    return run


@shape
def other_rules() -> Run:
    """The package that the run goes on with asks another question, and then denies."""
    asks = package(tools={"refund": writing()}, policy=policy(rule("ask", "refund")))
    denies = package(tools={"refund": writing()}, policy=policy(rule("deny", "refund")))
    run = Run(asks, calls_reply("refund"), text_reply("Done."))
    run.disturb[5] = lambda run: run.crash(asks)
    run.disturb[8] = lambda run: run.crash(denies)
    return run
