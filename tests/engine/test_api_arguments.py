"""Unknown keywords and names passed to `agentrun.run` are refused with a suggestion."""

from typing import Any

import msgspec
import pytest

import agentrun
from agentrun.errors import HostError
from agentrun.testing import StepClock, calls, scripted, sink, stub, text

from ..core.script import agent_tool, hook, mcp_tool, tool
from ..packages import package

INNER = package(name="inner", tools={"find": tool()})
FULL_AGENT = package(
    tools={"pay": tool(), "files": mcp_tool("read"), "ask": agent_tool()},
    agents={"ask": msgspec.to_builtins(INNER)},
    hooks=[hook("before_tool", id="careful")],
    sinks={"out": {"kind": "stdout", "delivery": "optional", "timeout": 1}},
    policy={"default": "allow", "rules": []},
)


def run_with(**given: Any) -> Any:
    return agentrun.run(FULL_AGENT, "Hi.", model=scripted(text("Hello.")), **{"clock": StepClock(), **given})


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tool", "unknown keyword argument 'tool': did you mean \"tools\"?"),
        ("banana", "unknown keyword argument 'banana'"),
    ],
)
def test_unknown_keyword_is_refused_with_a_suggestion(word: str, said: str) -> None:
    with pytest.raises(TypeError) as raised:
        run_with(**{word: {}})
    assert str(raised.value) == said
    with pytest.raises(TypeError):
        agentrun.resume("run-1", journals={}, **{word: {}})  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize(
    ("key", "name", "hint"),
    [
        ("tools", "payy", 'did you mean "pay"?'),
        ("tools", "files.write", 'did you mean "files.read"?'),
        ("hooks", "carefull", 'did you mean "careful"?'),
        ("sinks", "elsewhere", "use the names that the spec declares under `sinks`"),
    ],
)
def test_unknown_tool_hook_or_sink_is_refused_with_a_suggestion(key: str, name: str, hint: str) -> None:
    with pytest.raises(HostError) as raised:
        run_with(**{key: {name: stub("")}})
    assert (raised.value.code, raised.value.hint) == ("host.missing", hint)
    assert raised.value.fields == {"name": name, "what": key.removesuffix("s")}


def test_names_and_kinds_of_tools_hooks_and_sinks_are_accepted() -> None:
    names = ("pay", "files", "files.read", "find", "python", "http", "shell", "mcp")
    tools = {name: stub(name) for name in names}
    sinks = {"out": sink(), "file": sink()}
    model = scripted(calls("pay"), text("Done."))
    done = agentrun.run(
        FULL_AGENT,
        "Hi.",
        model=model,
        tools=tools,
        hooks={"careful": lambda question: agentrun.Continue()},
        sinks=sinks,
        clock=StepClock(),
    )
    assert done.exit_code == 0
    assert tools["pay"].count == 1
