"""Unknown keywords and names passed to `agentrun.run` are refused with a suggestion."""

from typing import Any

import msgspec
import pytest

import agentrun
from agentrun.engine.memory import MemoryJournals
from agentrun.errors import HostError, RequestError
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
    assert raised.value.fields == {"name": name, "what": key.removesuffix("s"), "run": "run-1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"package": 5}, "`package` must be a package, or the path of a spec or package, not int"),
        ({"message": 5}, "`message` must be a string, not int"),
        ({"message": "\ud800"}, "`message` contains a lone surrogate, which is no character and cannot be written"),
        ({"params": 5}, "`params` must be a mapping of names to values, not int"),
        ({"params": {1: 2}}, "the names in `params` must be strings, not int"),
        ({"journals": {}}, "`journals` must be an object with a method `open`, not dict"),
        ({"clock": 5}, "`clock` must be an object with a method `now`, not int"),
        ({"approver": "ada"}, "`approver` must be an object with a method `answer`, not str"),
        ({"env_file": 5}, "`env_file` must be a path, not int"),
        ({"project": 5}, "`project` must be a path, not int"),
    ],
    ids=str,
)
def test_argument_of_the_wrong_type_is_refused_with_a_sentence(given: dict[str, Any], message: str) -> None:
    arguments = {"package": FULL_AGENT, "message": "Hi.", "model": scripted(text("Hello.")), "clock": StepClock()}
    with pytest.raises((TypeError, ValueError)) as raised:
        agentrun.run(**{**arguments, **given})
    assert str(raised.value) == message


def test_hook_that_is_no_function_is_refused() -> None:
    with pytest.raises(HostError, match='the object for the hook "careful" is not a function'):
        run_with(hooks={"careful": "yes"})


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {"a": [float("-inf")]}], ids=str)
def test_param_that_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(RequestError, match='the param "team" is invalid: the value is not JSON'):
        agentrun.run(package(params={"team": {}}), "Hi.", params={"team": value}, model=scripted(text("Hello.")))


def test_resume_refuses_a_wrong_run_id_and_audit_a_wrong_journal() -> None:
    with pytest.raises(TypeError, match="`run` must be a run id"):
        agentrun.resume(7, journals=MemoryJournals())  # type: ignore[arg-type]  # the point
    with pytest.raises(ValueError, match="because a run id names a folder"):
        agentrun.resume("../run-1", journals=MemoryJournals())
    with pytest.raises(TypeError, match="`journal` must be a path or the records of a journal, not int"):
        agentrun.audit(5, FULL_AGENT)  # type: ignore[arg-type]  # the point


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
